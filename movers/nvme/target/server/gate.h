/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How threads that serve hosts make room for one that changes what all of them share. A thread is
 * inside while it takes a turn of its loop. The thread that closes the gate waits until nobody is
 * inside, and has everything for itself until it opens the gate again. Turns are short, and a
 * thread that sleeps is not inside.
 *
 * To enter costs one exchange in a line that only its thread writes.
 */
#ifndef SW_MOVERS_NVME_GATE_H
#define SW_MOVERS_NVME_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NVT_GATE_THREADS = 16, NVT_GATE_LINE = 64 /* bytes */ };

struct nvt_gate_thread {
    _Alignas(NVT_GATE_LINE) _Atomic bool is_inside;
};

struct nvt_gate {
    pthread_mutex_t closed; /* held by the thread that has closed it */
    _Atomic bool is_wanted;
    uint32_t thread_count;
    struct nvt_gate_thread threads[NVT_GATE_THREADS];
};

void nvt_gate_init(struct nvt_gate *gate, uint32_t thread_count);
void nvt_gate_free(struct nvt_gate *gate);

/* Waits while it is closed. `number` is the caller's own. */
void nvt_gate_enter(struct nvt_gate *gate, uint32_t number);
void nvt_gate_leave(struct nvt_gate *gate, uint32_t number);
/* Somebody waits to close it: who is inside should leave soon. */
bool nvt_gate_is_wanted(const struct nvt_gate *gate);

/* The caller is not inside. One after the other has it closed. */
void nvt_gate_close(struct nvt_gate *gate);
void nvt_gate_open(struct nvt_gate *gate);

#endif
