/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that may hang, by a thread of its own. Its caller waits for it as long as it likes; where it
 * takes longer, it goes on alone.
 */
#ifndef SW_MOVERS_NVME_ERRAND_H
#define SW_MOVERS_NVME_ERRAND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct nvt_errand {
    void (*work)(struct nvt_errand *errand);
    void (*drop)(struct nvt_errand *errand); /* frees it, and what nobody waits for any more */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done, is_left;
};

/* Returns 0 where the work is done, and -ETIMEDOUT where it goes on alone: its thread drops it in
 * the end. Else the negative errno of what kept it from beginning. */
int nvt_errand_run(struct nvt_errand *errand, uint32_t wait_ms);

#endif
