/* What every kind of actor stands on: a bounded life, a ready line, a way to wait for a shape. */
#ifndef ACTOR_H
#define ACTOR_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOP_SECONDS 30 /* chains and bombs end by themselves after this */

extern const char *token;
extern const char *arg;
extern const char *ready_path;
extern int up[2]; /* every process of a shape writes one byte here when it is in place */

time_t now(void);
void die(const char *what);
void nap(long ms);
void idle(void);

/* no end of life by the clock, for one that ends with its work */
void live_on(void);

/* fork, and give the child its own end of life */
pid_t start(void);
void ignore_polite_signals(void);

/* a process of the shape says that it stands where it should; the root waits for n of them */
void in_place(void);
void await_in_place(int n);

/* say "ready" to the test; the second one first waits for n processes and then stays */
void ready(void);
void ready_and_stay(int n);

struct kind {
    const char *name;
    void (*play)(void);
};

extern const struct kind escapes[];
extern const struct kind probes[];

#endif
