/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/gate.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

/* Looks at a flag before the processor is given to others: what holds the gate is mostly short. */
enum { LOOKS = 200 };

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

void nvt_gate_init(struct nvt_gate *gate, uint32_t thread_count)
{
    assert(thread_count <= NVT_GATE_THREADS);
    memset(gate, 0, sizeof(*gate));
    gate->thread_count = thread_count;
    pthread_mutex_init(&gate->closed, NULL);
}

void nvt_gate_free(struct nvt_gate *gate)
{
    pthread_mutex_destroy(&gate->closed);
}

bool nvt_gate_is_wanted(const struct nvt_gate *gate)
{
    return atomic_load_explicit(&gate->is_wanted, memory_order_relaxed);
}

static void await_open(struct nvt_gate *gate)
{
    for (int i = 0; i < LOOKS; i++) {
        if (!atomic_load_explicit(&gate->is_wanted, memory_order_acquire))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&gate->closed);
    pthread_mutex_unlock(&gate->closed);
}

/* Each side writes its own flag, then looks at the other's, in one order for all threads: so one of
 * the two sees the other. Pairs with nvt_gate_close(). */
void nvt_gate_enter(struct nvt_gate *gate, uint32_t number)
{
    assert(number < gate->thread_count);
    _Atomic bool *is_inside = &gate->threads[number].is_inside;
    for (;;) {
        atomic_store(is_inside, true);
        if (!atomic_load(&gate->is_wanted))
            return;
        atomic_store_explicit(is_inside, false, memory_order_release);
        await_open(gate);
    }
}

void nvt_gate_leave(struct nvt_gate *gate, uint32_t number)
{
    atomic_store_explicit(&gate->threads[number].is_inside, false, memory_order_release);
}

void nvt_gate_close(struct nvt_gate *gate)
{
    pthread_mutex_lock(&gate->closed);
    atomic_store(&gate->is_wanted, true);
    for (uint32_t i = 0; i < gate->thread_count; i++)
        for (int looks = 0; atomic_load(&gate->threads[i].is_inside); looks++)
            if (looks < LOOKS)
                pause_briefly();
            else
                sched_yield(); /* it may want this processor */
}

void nvt_gate_open(struct nvt_gate *gate)
{
    assert(nvt_gate_is_wanted(gate)); /* the caller has closed it */
    atomic_store_explicit(&gate->is_wanted, false, memory_order_release);
    pthread_mutex_unlock(&gate->closed);
}
