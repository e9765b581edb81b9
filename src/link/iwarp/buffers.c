/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/buffers.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/lock.h"
#include "wire/iwarp/fpdu.h"

#define KEPT 8u /* of each kind, when nobody has them */

struct stock {
    struct sw_lock lock;
    uint32_t count;
    void *free[KEPT];
};

static struct stock stocks[SW_IWARP_BUFFERS];

unsigned int sw_iwarp_buffer_bytes(enum sw_iwarp_buffer kind)
{
    static const unsigned int bytes[SW_IWARP_BUFFERS] = {
        [SW_IWARP_BUFFER_READ] = 128u << 10,
        [SW_IWARP_BUFFER_FPDU] = SW_FPDU_MAX,
        [SW_IWARP_BUFFER_OUT] = 32u << 10,
        [SW_IWARP_BUFFER_OUT_CRC] = 192u << 10,
    };
    return bytes[kind];
}

void *sw_iwarp_buffer_borrow(enum sw_iwarp_buffer kind)
{
    struct stock *stock = &stocks[kind];
    void *buffer = NULL;
    sw_lock_acquire(&stock->lock);
    if (stock->count)
        buffer = stock->free[--stock->count];
    sw_lock_release(&stock->lock);
    return buffer ? buffer : malloc(sw_iwarp_buffer_bytes(kind));
}

void sw_iwarp_buffer_return(enum sw_iwarp_buffer kind, void *buffer)
{
    struct stock *stock = &stocks[kind];
    if (!buffer)
        return;
    sw_lock_acquire(&stock->lock);
    const bool is_kept = stock->count < KEPT;
    if (is_kept)
        stock->free[stock->count++] = buffer;
    sw_lock_release(&stock->lock);
    if (!is_kept)
        free(buffer);
}

void sw_iwarp_buffers_fork_child(void)
{
    for (int i = 0; i < SW_IWARP_BUFFERS; i++)
        stocks[i] = (struct stock){0};
}
