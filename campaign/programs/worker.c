/*
 * worker TOKEN DIR TAG [key=value ...]: what the jobs of a campaign run. It keeps a journal about what it did and
 * what was done to it, in a file that only the checker reads, so that quell's answers can be compared.
 *
 *   lines=N    writes N numbered lines, every third one to stderr
 *   pace=US    pauses between lines
 *   kids=...   p plain child, s one in a session of its own, d an orphan (double fork), i one that ignores TERM
 *   exit=N     exits with N when it has written all; without it it stays
 *   after=MS   ... and so long after that
 *   deaf=1     ignores TERM
 *
 * DIR/g-TAG is locked by every process of a run: a run that finds a process of another one alive writes that down.
 * Nothing here outlives LIFE seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIFE 150

struct book {
    uint64_t out, err;      /* lines that write(2) has taken */
    uint64_t terms, others; /* signals that came */
    uint64_t leaving;       /* the exit code + 1, written before the exit */
    uint64_t met;           /* another run's process was alive: its pid + 1 */
    uint64_t up;            /* all children are there */
};

static volatile struct book *book;
static const char *lock_path;
static int deaf;
static volatile sig_atomic_t asked;

static void expire(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value.tv_sec = LIFE};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_settime(timer, 0, &when, NULL);
}

static void hear(int signal)
{
    if (signal == SIGTERM) {
        book->terms++;
        asked = 1;
    } else {
        book->others++;
    }
}

static int lock(short type, pid_t *holder)
{
    static int fd = -1;
    struct flock want = {.l_type = type, .l_whence = SEEK_SET};
    if (fd < 0)
        fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fcntl(fd, F_SETLK, &want) == 0)
        return 1;
    if (holder && fcntl(fd, F_GETLK, &want) == 0)
        *holder = want.l_type == F_UNLCK ? 0 : want.l_pid;
    return 0;
}

static void child(char kind)
{
    /* A child must not hear with its parent's ears: the book is shared. */
    sigset_t deaf_for_now, before;
    sigfillset(&deaf_for_now);
    sigprocmask(SIG_BLOCK, &deaf_for_now, &before);
    pid_t pid = fork();
    if (pid != 0)
        sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid > 0) {
        if (kind == 'd')
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return;
    }
    if (pid < 0)
        return;
    signal(SIGTERM, kind == 'i' ? SIG_IGN : SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGUSR1, SIG_IGN);
    if (kind == 'd') {
        setsid();
        if (fork() != 0)
            _exit(0);
    }
    if (kind == 's')
        setsid();
    expire();
    lock(F_RDLCK, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    char path[4096], line[256];
    const char *kids = "";
    long lines = 0, pace = 0, leave = -1, after = 0;
    struct sigaction action = {.sa_handler = hear};
    struct timespec now;
    pid_t holder = 0;
    if (argc < 4)
        return 99;
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 99;
        value++;
        if (!strncmp(argv[i], "lines=", 6)) lines = atol(value);
        if (!strncmp(argv[i], "pace=", 5)) pace = atol(value);
        if (!strncmp(argv[i], "exit=", 5)) leave = atol(value);
        if (!strncmp(argv[i], "after=", 6)) after = atol(value);
        if (!strncmp(argv[i], "kids=", 5)) kids = value;
        if (!strncmp(argv[i], "deaf=", 5)) deaf = atoi(value);
    }
    expire();
    clock_gettime(CLOCK_MONOTONIC, &now);
    const char *job = getenv("QUELL_JOB");
    snprintf(path, sizeof path, "%s/w-%s-%020lld", argv[2], job ? job : "none",
             (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof *book) < 0)
        return 98;
    book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (book == MAP_FAILED)
        return 98;
    snprintf(line, sizeof line, "%s/g-%s", argv[2], argv[3]);
    lock_path = strdup(line);
    umask(0);
    if (!lock(F_WRLCK, &holder))
        book->met = holder + 1;
    lock(F_RDLCK, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (const char *kind = kids; *kind; kind++)
        child(*kind);
    book->up = 1;
    for (long i = 1; i <= lines && !(asked && !deaf); i++) {
        int is_err = i % 3 == 0;
        uint64_t number = (is_err ? book->err : book->out) + 1;
        int length = snprintf(line, sizeof line, "%s %c %08llu\n", argv[3], is_err ? 'e' : 'o',
                              (unsigned long long)number);
        ssize_t wrote = -1;
        while (!(asked && !deaf) && (wrote = write(is_err ? 2 : 1, line, length)) < 0 && errno == EINTR)
            ;
        if (wrote != length)
            break;
        if (is_err)
            book->err++;
        else
            book->out++;
        if (pace)
            usleep(pace);
    }
    while (leave < 0 && !(asked && !deaf)) {
        sigset_t none;
        sigemptyset(&none);
        /* A signal between the look and the sleep is made up for a second later. */
        struct timespec second = {.tv_sec = 1};
        ppoll(NULL, 0, &second, &none);
    }
    if (after && !asked)
        usleep(after * 1000);
    if (leave < 0)
        leave = 0;
    book->leaving = leave + 1;
    _exit(leave);
}
