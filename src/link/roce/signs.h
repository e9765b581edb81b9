/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What threads of the program, and those who receive, leave for the engine to see. handoff.h says
 * by it who receives. Any thread writes.
 */
#ifndef SW_LINK_ROCE_SIGNS_H
#define SW_LINK_ROCE_SIGNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/roce/handoff.h"

/* As in struct sw_handoff_seen. */
struct sw_roce_signs {
    _Atomic uint64_t polled_ns;
    atomic_bool sleeps;
    _Atomic uint64_t attended_until_ns;
    _Atomic uint64_t posted_ns;
    _Atomic int cpu; /* on which the program last did any of these */
    _Atomic uint64_t served_ns;
    atomic_bool serves_long;
};

/* `sleeps` comes first: see sw_roce_mind(). */
static inline struct sw_handoff_seen sw_roce_signs_read(const struct sw_roce_signs *signs)
{
    const bool sleeps = atomic_load(&signs->sleeps);
    return (struct sw_handoff_seen){
        .sleeps = sleeps,
        .polled_ns = atomic_load_explicit(&signs->polled_ns, memory_order_relaxed),
        .attended_until_ns = atomic_load_explicit(&signs->attended_until_ns, memory_order_relaxed),
        .posted_ns = atomic_load_explicit(&signs->posted_ns, memory_order_relaxed),
        .served_ns = atomic_load_explicit(&signs->served_ns, memory_order_relaxed),
        .serves_long = atomic_load_explicit(&signs->serves_long, memory_order_relaxed),
    };
}

#endif
