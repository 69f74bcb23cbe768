/*
 * A wall clock that jumps: preloaded into quell's processes, it adds the seconds that stand (as text) in the file named by
 * TEST_CLOCK. No other clock is touched, as the kernel doesn't either when the date is set.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        const char *path = getenv("TEST_CLOCK");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        char text[32] = {0};
        if (fd >= 0) {
            if (read(fd, text, sizeof text - 1) > 0)
                time->tv_sec += atol(text);
            close(fd);
        }
    }
    return result;
}
