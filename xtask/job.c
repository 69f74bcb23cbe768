/*
 * The programs that are measured. They are as small as possible, so that the measured time is that of the tool that runs them.
 *
 *   job tree N FILE [sessions]   N processes, each in a session of its own with `sessions`; writes the pid of the
 *                                first to FILE when all are there; they wait for a signal
 *   job last MS FILE             waits, and as its last act writes the monotonic clock in nanoseconds to FILE
 *
 * Nothing here lives longer than LIFE seconds, whatever happens to its starter.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef LIFE
#define LIFE 600
#endif

static void live(void)
{
    alarm(LIFE);
    for (;;)
        pause();
}

static int say(int fd, const char *text)
{
    size_t length = strlen(text);
    return write(fd, text, length) == (ssize_t)length ? 0 : 1;
}

static int tree(long count, const char *file, int sessions)
{
    char part[4096], text[32];
    int fd, up[2];
    if (pipe(up) != 0)
        return 1;
    for (long n = 1; n < count; n++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            if (sessions)
                setsid();
            close(up[0]);
            if (write(up[1], "", 1) != 1)
                _exit(1);
            close(up[1]);
            live();
        }
    }
    close(up[1]);
    for (long n = 1; n < count; n++) {
        char byte;
        if (read(up[0], &byte, 1) != 1)
            return 1;
    }
    close(up[0]);
    /* Renamed into place, because the reader looks for the file all the time and must see it whole. */
    snprintf(part, sizeof part, "%s.part", file);
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || say(fd, text) != 0 || close(fd) != 0 || rename(part, file) != 0)
        return 1;
    live();
    return 0;
}

static int last(long ms, const char *file)
{
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000}, now;
    char text[32];
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return 1;
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    _exit(say(fd, text));
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "tree") == 0)
        return tree(atol(argv[2]), argv[3], argc > 4);
    if (argc == 4 && strcmp(argv[1], "last") == 0)
        return last(atol(argv[2]), argv[3]);
    fputs("job tree N FILE [sessions] | job last MS FILE\n", stderr);
    return 2;
}
