/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sides of all scenarios of liveness.c share: to meet, to tell of themselves, and to learn
 * of a death. */
#ifndef SW_TESTS_STRESS_LIVENESS_SIDE_H
#define SW_TESTS_STRESS_LIVENESS_SIDE_H

#include "traffic.h"

enum { MARK_HERE = 0x11, MARK_THERE = 0x22, BYTES = 4096 };

struct scenario;
struct side {
    const struct scenario *scenario;
    int sock;    /* to the other side */
    int control; /* to who stops and kills */
    struct vu_dev dev;
};

enum kind {
    PLAIN,
    SLICES,   /* it is stopped again and again */
    LINELESS, /* it takes no part in docs/liveness.md */
};

struct scenario {
    const char *name;
    void (*here)(struct side *side);  /* goes on to live */
    void (*there)(struct side *side); /* is stopped, or dies */
    int signal;                       /* what happens to the other one; 0: nothing */
    uint8_t timeout, retries;
    const char *faults; /* a script for this side: docs/faults.md */
    enum kind kind;
};

/* Whether the two reach each other by packets. */
bool side_is_by_packets(void);
/* Where the process listens: a TCP port. */
uint16_t side_port_of(pid_t pid);
/* How many descriptors the process has. */
int side_descriptors_of(pid_t pid);

/* Tells who stops and kills that this side is ready. */
void side_tell(int control);
void side_connect(struct side *side, struct traffic *traffic, uint8_t mark);
/* traffic_step(), and a pause. */
bool side_step(struct traffic *traffic, bool initiate);
void side_run(struct traffic *traffic, unsigned int ms);
/* Over packets a death is known at once by a connection, which takes a while to come about where
 * dozens of processes share two processors. Before that it is known by the retries, and by who
 * only waits not at all. NULL: there is no traffic. */
void side_await_line(struct traffic *traffic);
/* When the other one ended, or had done what it does instead. */
uint64_t side_ended_ms(const struct side *side);
/* That the other one is dead is known now. Its end is told later, if it took the kernel longer. */
void side_report_death(const struct side *side);

/* Sends and answers until the other one is gone. */
void there_traffic(struct side *side);

/* liveness_waiting.c: who only waits. */
void there_waits(struct side *side);
void there_leaves(struct side *side);
void there_exits(struct side *side);
void there_forks(struct side *side);
void there_clones(struct side *side);
void here_waits(struct side *side);
void here_is_left(struct side *side);

/* liveness_strangers.c: thousands call from the peer's own address, and change nothing. */
void there_is_called(struct side *side);
void here_meets_strangers(struct side *side);

#endif
