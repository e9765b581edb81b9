/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A crowd of strangers: a process of plain sockets that calls a TCP port of this host from eight
 * addresses, keeps its connections open, and opens anew what is closed to it.
 */
#ifndef TESTS_STRESS_CROWD_H
#define TESTS_STRESS_CROWD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CROWD_CALLERS = 400, CROWD_WORDS_MAX = 600 };

/* What a stranger says when it is connected; none: it is silent. */
struct crowd_word {
    uint32_t len_bytes;
    uint8_t bytes[CROWD_WORDS_MAX];
};

enum { CROWD_WORD_KINDS = 4 };
struct crowd_order {
    uint16_t port;
    struct crowd_word words[CROWD_WORD_KINDS]; /* said in turn */
};

struct crowd {
    pid_t pid;
    int sock;
};

/* Before a device is open. */
void crowd_start(struct crowd *crowd);
/* Lets go of all, calls that port; returns when each has called once. */
void crowd_call(const struct crowd *crowd, const struct crowd_order *order);
void crowd_stop(const struct crowd *crowd);

#endif
