/*
 * actor KIND TOKEN [ARG]: processes that misbehave on purpose.
 *
 * TOKEN stays in the argv of every process forked here, so that the oracle can find it in
 * /proc/PID/cmdline without asking quell. When the whole shape of a kind is up, the line "ready"
 * goes to the file named by QUELL_TEST_READY (a fifo of the test), so that no test has to guess.
 *
 * Nothing here outlives LIFE seconds, whatever becomes of quell: see expire().
 */
#include "actor.h"

#ifndef LIFE
#define LIFE 55
#endif

const char *token;
const char *arg;
const char *ready_path;
int up[2];
static time_t end;

time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

void die(const char *what)
{
    fprintf(stderr, "actor: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static timer_t timer;

/*
 * The end of this process, whatever it does. alarm() outlives exec but waits while the process is
 * stopped; a POSIX timer that sends SIGKILL ends a stopped one too, but is lost over exec. Neither
 * is inherited by fork, so each new process calls this again.
 */
static void expire(void)
{
    time_t left = end - now();
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value.tv_sec = left > 0 ? left : 1};
    signal(SIGALRM, SIG_DFL);
    alarm(left > 0 ? left : 1);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_settime(timer, 0, &when, NULL);
}

void live_on(void)
{
    struct itimerspec never = {0};
    alarm(0);
    timer_settime(timer, 0, &never, NULL);
}

pid_t start(void)
{
    pid_t pid = fork();
    if (pid == 0)
        expire();
    return pid;
}

void ignore_polite_signals(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

void idle(void)
{
    for (;;)
        pause();
}

void in_place(void)
{
    if (write(up[1], "+", 1) != 1)
        _exit(98);
    close(up[0]);
    close(up[1]);
}

void await_in_place(int n)
{
    char byte;
    while (n > 0) {
        ssize_t got = read(up[0], &byte, 1);
        if (got == 1)
            n--;
        else if (got == 0 || errno != EINTR)
            die("shape did not come up");
    }
    close(up[0]);
    close(up[1]);
}

void ready(void)
{
    if (!ready_path)
        return;
    int fd = open(ready_path, O_WRONLY);
    if (fd < 0 || write(fd, "ready\n", 6) != 6)
        die(ready_path);
    close(fd);
}

/* The root's usual end of setting up: n processes are in place, say so, stay. */
void ready_and_stay(int n)
{
    await_in_place(n);
    ready();
    idle();
}

static int play(const struct kind *kinds, const char *name)
{
    for (; kinds->name; kinds++)
        if (strcmp(kinds->name, name) == 0) {
            kinds->play();
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: actor KIND TOKEN [ARG]\n");
        return 2;
    }
    unsigned left = alarm(0); /* what an exec has left of our life */
    end = now() + (left ? left : LIFE);
    expire();
    token = argv[2];
    arg = argc > 3 ? argv[3] : NULL;
    ready_path = getenv("QUELL_TEST_READY");
    if (play(probes, argv[1]))
        return 0;
    if (pipe(up) != 0)
        die("pipe");
    if (!play(escapes, argv[1])) {
        fprintf(stderr, "actor: no kind %s\n", argv[1]);
        return 2;
    }
    return 0;
}
