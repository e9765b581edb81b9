/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that NICs may be told to move from or to, and whose pages may be given back meanwhile. */
#ifndef SW_MOVERS_REGION_H
#define SW_MOVERS_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOVER_REGION_DEVICES = 8 };

struct mover_region {
    uint8_t *base;
    size_t len_bytes;
    void *registered[MOVER_REGION_DEVICES]; /* the transport's, by device */
    _Atomic bool is_pinned;                 /* a NIC knows its pages by where they lie, or may */
    _Atomic uint32_t givers;                /* who gives pages back at the moment */
};

/* To give pages back: true until mover_region_leave(). False: they are pinned. */
bool mover_region_enter(struct mover_region *region);
void mover_region_leave(struct mover_region *region);
/* They are, or may be. Waits for the threads that give pages back. */
void mover_region_pin(struct mover_region *region);

#endif
