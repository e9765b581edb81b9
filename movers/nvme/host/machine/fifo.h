/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots in the order they came. */
#ifndef SW_MOVERS_NVME_HOST_FIFO_H
#define SW_MOVERS_NVME_HOST_FIFO_H

#include <stdbool.h>
#include <stdint.h>

/* A ring with room for all slots. */
struct nvh_fifo {
    uint16_t *at;
    uint32_t head, tail, mask;
};

static inline void nvh_fifo_push(struct nvh_fifo *fifo, uint32_t index)
{
    fifo->at[fifo->tail++ & fifo->mask] = (uint16_t)index;
}

static inline uint32_t nvh_fifo_pop(struct nvh_fifo *fifo)
{
    return fifo->at[fifo->head++ & fifo->mask];
}

static inline bool nvh_fifo_empty(const struct nvh_fifo *fifo)
{
    return fifo->head == fifo->tail;
}

#endif
