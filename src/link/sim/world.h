/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Virtual time: events in order, random numbers from one seed, and a hash over all that happened.
 * Two runs with the same seed are the same run; that their hashes are equal shows it.
 */
#ifndef SW_LINK_SIM_WORLD_H
#define SW_LINK_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

typedef void (*sw_sim_fn)(void *who, void *what);

struct sw_sim_event {
    uint64_t at_ns;
    uint64_t sequence; /* among equal times the order they were asked for */
    sw_sim_fn fn;
    void *who, *what;
};

struct sw_sim_world {
    uint64_t now_ns;
    uint64_t random;
    uint64_t hash;
    uint64_t sequence;
    struct sw_sim_event *heap;
    uint32_t count, room;
    bool prints; /* what sw_sim_trace() is told, line by line on stderr */
};

void sw_sim_world_init(struct sw_sim_world *world, uint64_t seed);
void sw_sim_world_fini(struct sw_sim_world *world);

/* Calls fn(who, what) at a time, now at the earliest. */
void sw_sim_at(struct sw_sim_world *world, uint64_t at_ns, sw_sim_fn fn, void *who, void *what);
/* Runs the next event if it is not later than `until_ns`; false: there is none, and it is
 * `until_ns` now. */
bool sw_sim_step(struct sw_sim_world *world, uint64_t until_ns);

uint64_t sw_sim_random(struct sw_sim_world *world);
/* Less than `limit`, which is not 0. */
uint32_t sw_sim_below(struct sw_sim_world *world, uint32_t limit);
/* True in `chance` of 2^32 cases. */
bool sw_sim_happens(struct sw_sim_world *world, uint32_t chance);
/* A probability for sw_sim_happens(), in millionths. */
uint32_t sw_sim_ppm(uint32_t ppm);

/* Notes that something happened. `name` is a literal. */
void sw_sim_trace(struct sw_sim_world *world, const char *name, uint64_t a, uint64_t b);

#endif
