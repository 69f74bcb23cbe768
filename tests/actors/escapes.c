/* The shapes that try to outlive a stop. */
#include "actor.h"
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

#define MAX_BOMB 200

static void close_everything(void)
{
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
}

static void branch(int depth)
{
    for (int i = 0; depth > 0 && i < 2; i++)
        if (start() == 0) {
            branch(depth - 1);
            in_place();
            idle();
        }
}

static void tree(void)
{
    branch(3);
    ready_and_stay(2 + 4 + 8);
}

static void own_session(void)
{
    if (start() == 0) {
        setsid();
        in_place();
        idle();
    }
    ready_and_stay(1);
}

static void start_daemon(void)
{
    pid_t middle = start();
    if (middle == 0) {
        setsid();
        if (start() == 0) {
            if (chdir("/") != 0)
                _exit(97);
            umask(0);
            in_place();
            close_everything();
            idle();
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    await_in_place(1);
    ready();
}

static void daemon_beside_root(void)
{
    start_daemon();
    idle();
}

static void ignore_term(void)
{
    ignore_polite_signals();
    if (start() == 0) {
        in_place();
        idle();
    }
    ready_and_stay(1);
}

static void stopped(void)
{
    pid_t child = start();
    if (child == 0) {
        in_place();
        raise(SIGSTOP);
        idle();
    }
    waitpid(child, NULL, WUNTRACED);
    ready_and_stay(1);
}

static void on_term_spawn(int sig)
{
    static int spawned;
    (void)sig;
    if (spawned++ < 20 && start() == 0) {
        signal(SIGTERM, SIG_IGN);
        setsid();
        idle();
    }
}

static void term_spawner(void)
{
    signal(SIGTERM, on_term_spawn);
    ready();
    idle();
}

static void pipe_holder(void)
{
    if (start() == 0) {
        in_place();
        idle();
    }
    await_in_place(1);
    ready();
    _exit(0);
}

static void *outlive_leader(void *unused)
{
    char path[64], stat[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    /* Nothing tells a thread that its leader has become a zombie: look until it has, bounded. */
    for (int i = 0; i < 1000; i++, nap(1)) {
        int fd = open(path, O_RDONLY);
        ssize_t n = read(fd, stat, sizeof stat - 1);
        close(fd);
        stat[n > 0 ? n : 0] = 0;
        char *after_name = strrchr(stat, ')');
        if (after_name && after_name[2] == 'Z')
            break;
    }
    ready();
    idle();
    return unused;
}

static void leader_thread(void)
{
    pthread_t thread;
    ignore_polite_signals();
    if (pthread_create(&thread, NULL, outlive_leader, NULL) != 0)
        die("thread");
    pthread_exit(NULL);
}

static void subreaper(void)
{
    pid_t reaper = start();
    if (reaper == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        signal(SIGTERM, SIG_IGN);
        pid_t middle = start();
        if (middle == 0) {
            for (int i = 0; i < 3; i++)
                if (start() == 0) {
                    setsid();
                    in_place();
                    idle();
                }
            _exit(0);
        }
        waitpid(middle, NULL, 0);
        in_place();
        idle();
    }
    ready_and_stay(4);
}

/*
 * No scan of /proc can outrun a chain that got away, so it has to give up by itself: when the test
 * has removed its fifo.
 */
static int test_is_over(void)
{
    return ready_path && access(ready_path, F_OK) != 0;
}

/* Whether the process has exited and was not collected yet. */
static int is_zombie(pid_t pid)
{
    char path[32], text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = pid > 0 && kill(pid, 0) == 0 ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return strstr(text, ") Z") != NULL;
}

/*
 * Notes this link of a chain, and waits a moment while the link CHAIN_ZOMBIES before it was not collected yet. So a chain whose
 * reaper is late does not fill the process table of the host; one whose reaper keeps up never waits.
 */
#define CHAIN_ZOMBIES 1000
static void next_link(void)
{
    static pid_t links[CHAIN_ZOMBIES];
    static int last;
    last = (last + 1) % CHAIN_ZOMBIES;
    for (int i = 0; i < 100 && is_zombie(links[last]); i++)
        nap(1);
    links[last] = getpid();
}

static void start_chain(void)
{
    int width = arg ? atoi(arg) : 1;
    time_t last = now() + LOOP_SECONDS;
    for (int i = 0; i < width; i++)
        if (start() == 0) {
            signal(SIGTERM, SIG_IGN);
            in_place();
            while (now() < last && !test_is_over()) {
                pid_t next = fork();
                if (next > 0)
                    _exit(0);
                if (next < 0) /* a full process table: try again, the loop is bounded in time */
                    nap(1);
                if (next == 0) {
                    alarm(LOOP_SECONDS);
                    setsid();
                    next_link();
                }
            }
            _exit(0);
        }
    signal(SIGCHLD, SIG_IGN);
    await_in_place(width);
    ready();
}

static void chain(void)
{
    start_chain();
    idle();
}

/*
 * A chain whose links live for ARG microseconds each: few enough for a long look, and too short for one that lists first
 * and reads afterwards. Each adds a byte to the file "beat". It ends after five seconds, or when the file "enough" is there.
 */
static void slow_chain(void)
{
    time_t last = now() + 5;
    long us = arg ? atol(arg) : 2000;
    if (start() == 0) {
        int beat = open("beat", O_WRONLY | O_CREAT | O_APPEND, 0666);
        in_place();
        while (now() < last && !test_is_over() && access("enough", F_OK) != 0 && write(beat, "x", 1) == 1) {
            struct timespec life = {0, us * 1000};
            nanosleep(&life, NULL);
            if (fork() > 0)
                _exit(0);
            alarm(LOOP_SECONDS);
            setsid();
        }
        _exit(0);
    }
    signal(SIGCHLD, SIG_IGN);
    ready_and_stay(1);
}

/*
 * Up to n processes, each in its own session, each refilling the slots whose process has gone.
 * A slot is claimed before the fork, so that there are never more than n.
 */
static void bomb(void)
{
    int n = arg ? atoi(arg) : 50;
    n = n < 1 ? 1 : n > MAX_BOMB ? MAX_BOMB : n;
    time_t last = now() + LOOP_SECONDS;
    _Atomic pid_t *slot = mmap(NULL, MAX_BOMB * sizeof *slot, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slot == MAP_FAILED)
        die("mmap");
    const pid_t claimed = -1;
    int said = 0, is_root = 1;
    unsigned at = 0;
    ignore_polite_signals();
    signal(SIGCHLD, SIG_IGN);
    while (now() < last && !test_is_over()) {
        /* A few slots each time: if every process took all of them, the whole machine would starve. */
        for (int i = 0; i < 10; i++, at++) {
            _Atomic pid_t *mine = &slot[at % n];
            pid_t p = *mine;
            if (p == claimed || (p > 0 && (kill(p, 0) == 0 || errno != ESRCH)))
                continue;
            if (!atomic_compare_exchange_strong(mine, &p, claimed))
                continue;
            pid_t child = start();
            if (child < 0)
                *mine = 0;
            if (child == 0) {
                *mine = getpid();
                is_root = 0;
                at = getpid();
                setsid();
                break;
            }
        }
        if (is_root && !said) {
            int filled = 0;
            for (int i = 0; i < n; i++)
                filled += slot[i] > 0;
            if (filled == n) {
                said = 1;
                ready();
            }
        }
        nap(5);
    }
    _exit(0);
}

static void clear_env(void)
{
    if (start() == 0) {
        char *argv[] = {"actor", "clear-env-inner", (char *)token, (char *)ready_path, NULL};
        char *envp[] = {NULL};
        setsid();
        if (chdir("/") != 0)
            _exit(97);
        execve("/proc/self/exe", argv, envp);
        _exit(96);
    }
    idle();
}

static void clear_env_inner(void)
{
    ready_path = arg;
    ready();
    idle();
}

static void other_uid(void)
{
    uid_t uid = arg ? (uid_t)atoi(arg) : 1;
    if (start() == 0) {
        /* Inside a user namespace that maps one uid these fail; the child then stays as it is. */
        if (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
            fprintf(stderr, "actor: no other uid here: %s\n", strerror(errno));
        setsid();
        in_place();
        idle();
    }
    ready_and_stay(1);
}

static void many(void)
{
    int n = arg ? atoi(arg) : 1000;
    for (int i = 0; i < n; i++) {
        pid_t child = start();
        if (child < 0)
            die("fork");
        if (child == 0) {
            in_place();
            idle();
        }
    }
    ready_and_stay(n);
}

static void move_cgroup(void)
{
    if (start() == 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/cgroup.procs", arg ? arg : "");
        int fd = open(path, O_WRONLY);
        if (fd < 0 || write(fd, "0", 1) != 1)
            fprintf(stderr, "actor: could not leave the cgroup: %s\n", strerror(errno));
        close(fd);
        setsid();
        in_place();
        idle();
    }
    ready_and_stay(1);
}

static void group_hopper(void)
{
    pid_t home[2];
    time_t last = now() + LOOP_SECONDS;
    for (int i = 0; i < 2; i++) {
        home[i] = start();
        if (home[i] == 0) {
            setpgid(0, 0);
            in_place();
            idle();
        }
        setpgid(home[i], home[i]);
    }
    if (start() == 0) {
        setpgid(0, home[0]);
        in_place();
        for (int i = 1; now() < last; i++, nap(1))
            setpgid(0, home[i % 2]);
        idle();
    }
    ready_and_stay(3);
}

/* The parent of a process, by /proc. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1)
        parent = 0;
    if (file)
        fclose(file);
    return parent;
}

static void stop_by_trace(pid_t pid, long options)
{
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) != 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0)
        fprintf(stderr, "actor: no ptrace here: %s\n", strerror(errno));
}

/*
 * Stops its keeper and the process above that one, as a tracer: SIGCONT does not help them. With the argument "exit", a
 * SIGKILL does not end them either, as long as the tracer lives.
 */
static void hold_by_trace(int keeper_alone)
{
    pid_t keeper = getppid(), above = parent_of(keeper);
    long options = arg && strcmp(arg, "exit") == 0 ? PTRACE_O_TRACEEXIT : 0;
    if (!keeper_alone)
        stop_by_trace(above, options);
    stop_by_trace(keeper, options);
    if (start() == 0) {
        setsid();
        in_place();
        idle();
    }
    ready_and_stay(1);
}

static void trace_keepers(void)
{
    hold_by_trace(0);
}

/* The same with its keeper alone: the process above sees that the keeper does nothing. */
static void trace_keeper(void)
{
    hold_by_trace(1);
}

/* The same with the two processes whose numbers are given. */
static void trace(void)
{
    int one = 0, other = 0;
    if (!arg || sscanf(arg, "%d,%d", &one, &other) != 2)
        die("trace PID,PID");
    stop_by_trace(one, 0);
    stop_by_trace(other, 0);
    idle();
}

/* A child that /proc may hide from its own user, in a session of its own. */
static void undumpable(void)
{
    if (start() == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        setsid();
        ignore_polite_signals();
        in_place();
        idle();
    }
    ready_and_stay(1);
}

/* Traces the process whose number is given, and never waits for it. */
static void seize(void)
{
    if (!arg || ptrace(PTRACE_SEIZE, atoi(arg), NULL, NULL) != 0)
        die("seize PID");
    idle();
}

/* Keeps the process whose number is given from its exit. */
static void hold_exit(void)
{
    ignore_polite_signals();
    if (!arg || ptrace(PTRACE_SEIZE, atoi(arg), NULL, (void *)PTRACE_O_TRACEEXIT) != 0)
        fprintf(stderr, "actor: no ptrace here: %s\n", strerror(errno));
    ready();
    idle();
}

/* A tracer that asked to see the exit of its tracee: the dead tracee stays until the tracer goes. */
static void traced(void)
{
    if (start() == 0) {
        ignore_polite_signals();
        pid_t tracee = start();
        if (tracee == 0) {
            setsid();
            idle();
        }
        if (ptrace(PTRACE_SEIZE, tracee, NULL, (void *)PTRACE_O_TRACEEXIT) != 0)
            fprintf(stderr, "actor: no ptrace here: %s\n", strerror(errno));
        in_place();
        idle();
    }
    ready_and_stay(1);
}

const struct kind escapes[] = {
    {"tree", tree},
    {"setsid", own_session},
    {"daemon", daemon_beside_root},
    {"daemon-exit", start_daemon},
    {"ignore-term", ignore_term},
    {"stopped", stopped},
    {"term-spawner", term_spawner},
    {"pipe-holder", pipe_holder},
    {"leader-thread", leader_thread},
    {"subreaper", subreaper},
    {"chain", chain},
    {"chain-exit", start_chain},
    {"slow-chain", slow_chain},
    {"bomb", bomb},
    {"clear-env", clear_env},
    {"clear-env-inner", clear_env_inner},
    {"other-uid", other_uid},
    {"many", many},
    {"move-cgroup", move_cgroup},
    {"group-hopper", group_hopper},
    {"traced", traced},
    {"trace-keepers", trace_keepers},
    {"trace-keeper", trace_keeper},
    {"trace", trace},
    {"undumpable", undumpable},
    {"seize", seize},
    {"hold-exit", hold_exit},
    {NULL, NULL},
};
