/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the engine, having worked for a peer, goes on looking for more before it sleeps, which
 * saves the next wake. On the processor of a program that spins on its memory it would only be in
 * the way of the answer that the next packet comes for, which shows in that nothing comes: after
 * some times in vain it goes on only now and then, until that is of use again.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_SPIN_H
#define SW_LINK_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"

/* How long it goes on: longer than a list of 32 requests of 4 KiB and their answers take, also
 * where the peer sleeps, and has to be woken. */
#define SW_SPIN_NS 250000u

struct sw_spin {
    uint64_t since_ns;         /* when it last worked for a peer; 0: it does not go on */
    struct sw_backoff backoff; /* of times that it found nothing */
};

/* Whether it will go on if it has worked now. */
bool sw_spin_goes_on(const struct sw_spin *spin);
/* With each round: whether it has `worked` in it. Returns whether another one follows at once. */
bool sw_spin_round(struct sw_spin *spin, bool worked, uint64_t now_ns);

/* Another use, of a struct of its own: a peer says that something is about to come. */
void sw_spin_begin(struct sw_spin *spin, uint64_t now_ns);
/* With each round: whether that has come, which ends it. Returns as sw_spin_round(). */
bool sw_spin_await(struct sw_spin *spin, bool has_come, uint64_t now_ns);

#endif
