/* The kinds that end by themselves or that tell the test what they saw. */
#include "actor.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static void exit_now(void)
{
    _exit(arg ? atoi(arg) : 0);
}

static void die_by_signal(void)
{
    int sig = arg ? atoi(arg) : SIGTERM;
    struct rlimit no_core = {0, 0};
    sigset_t none;
    setrlimit(RLIMIT_CORE, &no_core);
    /* Past glibc, which keeps 32 and 33 for itself: some caller may have left them ignored. */
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } dfl = {0};
    syscall(SYS_rt_sigaction, sig, &dfl, NULL, sizeof dfl.mask);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    kill(getpid(), sig);
    idle();
}

/* Its command line is empty until it gets USR1, like that of a process in the middle of its exec. */
static void no_command_line(void)
{
    char *words = program_invocation_name;
    size_t length = token + strlen(token) - words;
    char *kept = malloc(length);
    sigset_t usr1;
    int sig;
    if (!kept)
        die("malloc");
    memcpy(kept, words, length);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    memset(words, 0, length);
    ready();
    sigwait(&usr1, &sig);
    memcpy(words, kept, length);
    idle();
}

static long polite_ms;

static void on_term_leave(int sig)
{
    (void)sig;
    nap(polite_ms);
    _exit(0);
}

static void polite(void)
{
    polite_ms = arg ? atol(arg) : 0;
    signal(SIGTERM, on_term_leave);
    if (pipe(up) != 0)
        die("pipe");
    for (int i = 0; i < 2; i++)
        if (start() == 0) {
            in_place();
            idle();
        }
    ready_and_stay(2);
}

static int asked;

static void on_term_tell(int sig)
{
    (void)sig;
    _exit(write(asked, "asked\n", 6) == 6 ? 0 : 95);
}

/* ARG children, each in its own session: each process that gets TERM, the root too, adds a line to the file "asked". */
static void askers(void)
{
    int n = arg ? atoi(arg) : 60;
    asked = open("asked", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (asked < 0 || pipe(up) != 0)
        die("asked");
    signal(SIGTERM, on_term_tell);
    for (int i = 0; i < n; i++)
        if (start() == 0) {
            setsid();
            in_place();
            idle();
        }
    ready_and_stay(n);
}

/*
 * A server that does not look at its input. Each INT, TERM, HUP and QUIT adds its number to the file "signals". ARG
 * milliseconds after the first one it makes the file "cleaned", and exits with 0.
 */
static void server(void)
{
    struct timespec left = {LOOP_SECONDS, 0}, t;
    long until = 0, cleanup = arg ? atol(arg) : 0;
    int log = open("signals", O_WRONLY | O_CREAT | O_APPEND, 0644);
    sigset_t stop;
    if (log < 0)
        die("signals");
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGHUP);
    sigaddset(&stop, SIGQUIT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    ready();
    for (;;) {
        int sig = sigtimedwait(&stop, NULL, &left);
        clock_gettime(CLOCK_MONOTONIC, &t);
        long ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
        if (sig > 0) {
            dprintf(log, "%d\n", sig);
            until = until ? until : ms + cleanup;
        } else if (errno == EAGAIN && until == 0) {
            _exit(94);
        }
        if (until && ms >= until)
            break;
        if (until)
            left = (struct timespec){(until - ms) / 1000, (until - ms) % 1000 * 1000000};
    }
    if (open("cleaned", O_WRONLY | O_CREAT, 0644) < 0)
        die("cleaned");
    _exit(0);
}

/* Which descriptors the program was given: "FD LINK" per line, to the file ARG. */
static void fds(void)
{
    char path[64], link[4096], text[65536];
    size_t used = 0;
    for (int fd = 0; fd < 4096; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, link, sizeof link - 1);
        if (n < 0)
            continue;
        link[n] = 0;
        used += snprintf(text + used, sizeof text - used, "%d %s\n", fd, link);
    }
    int out = open(arg, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0 || write(out, text, used) != (ssize_t)used)
        _exit(95);
    _exit(0);
}

/*
 * Bystanders for the PID-reuse test: short lives that end with 0, many a second, until TERM.
 * Each death by a signal is a stranger that was hit; exit 1 then, and say which.
 */
static volatile sig_atomic_t enough;

static void on_term_enough(int sig)
{
    (void)sig;
    enough = 1;
}

static void churn(void)
{
    int width = arg ? atoi(arg) : 20, alive = 0, hit = 0, total = 0;
    time_t last = now() + LOOP_SECONDS + 20;
    signal(SIGTERM, on_term_enough);
    ready();
    while (alive > 0 || (!enough && now() < last)) {
        if (!enough && alive < width && now() < last) {
            pid_t child = start();
            if (child == 0) {
                signal(SIGTERM, SIG_DFL);
                nap(1 + getpid() % 20);
                _exit(0);
            }
            if (child > 0) {
                alive++;
                total++;
                continue;
            }
        }
        int status;
        pid_t gone = waitpid(-1, &status, 0);
        if (gone > 0) {
            alive--;
            if (status != 0) {
                hit++;
                printf("stranger %d was hit: status %#x\n", gone, status);
            }
        } else if (errno == ECHILD) {
            nap(1); /* the table was full and no child of ours is left to wait for */
        }
    }
    printf("%d bystanders, %d hit\n", total, hit);
    exit(hit ? 1 : 0);
}

/* ARG numbers of 16 bytes each: from what is at an offset one can tell whether it belongs there. */
static void numbers(char last)
{
    static char block[4096 * 16 + 1];
    long count = arg ? atol(arg) : 1, at = 0;
    live_on(); /* the reader may take its time; when there is no reader any more, a write fails */
    while (at < count) {
        int n = 0;
        for (; n < 4096 && at < count; n++, at++) {
            long value = at;
            char *to = block + n * 16;
            to[15] = last ? last : (char)('0' + value % 10);
            if (!last)
                value /= 10;
            for (int digit = 14; digit >= 0; digit--, value /= 10)
                to[digit] = (char)('0' + value % 10);
        }
        for (size_t done = 0, all = (size_t)n * 16; done < all;) {
            ssize_t wrote = write(1, block + done, all - done);
            if (wrote <= 0)
                _exit(96);
            done += (size_t)wrote;
        }
    }
    _exit(0);
}

static void flood(void)
{
    numbers('\n');
}

static void flood_flat(void)
{
    numbers(0);
}

const struct kind probes[] = {
    {"exit-now", exit_now},
    {"die-by-signal", die_by_signal},
    {"no-command-line", no_command_line},
    {"polite", polite},
    {"askers", askers},
    {"server", server},
    {"fds", fds},
    {"churn", churn},
    {"flood", flood},
    {"flood-flat", flood_flat},
    {NULL, NULL},
};
