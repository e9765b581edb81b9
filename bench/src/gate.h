/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start and end of a measured phase, told without a system call: words in a shared file that both
 * the program and the one who measures it watch. So strace, attached while the program waits at the
 * gate, sees the phase and nothing else.
 */
#ifndef BENCH_GATE_H
#define BENCH_GATE_H

#include <stdatomic.h>
#include <stdint.h>

enum bench_phase {
    BENCH_PHASE_SETUP,
    BENCH_PHASE_READY, /* set by the program: connected and warm */
    BENCH_PHASE_GO,    /* set by the one who measures */
    BENCH_PHASE_DONE,  /* set by the program: the last completion is in */
    BENCH_PHASE_LEAVE, /* set by the one who measures */
};

/* The layout is known to bench/lib/gate.py. */
struct bench_gate {
    _Atomic uint32_t phase;
    uint32_t initiator_pid;
    uint32_t target_pid;
};

/* Maps the file at `path`; without one (NULL) the gate is private and open. */
struct bench_gate *bench_gate_open(const char *path);
/* Sets the phase; at a gate of one's own, the answer that would come is set at once. */
void bench_gate_set(struct bench_gate *gate, enum bench_phase phase);
void bench_gate_await(struct bench_gate *gate, enum bench_phase phase);

#endif
