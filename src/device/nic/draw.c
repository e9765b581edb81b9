/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/draw.h"

#include <assert.h>

#include "base/random.h"

/* Fisher and Yates; a bias of 2^-27 is nobody's help. */
static void shuffle_numbers(struct sw_draw *draw)
{
    uint32_t words[SW_DRAW_BLOCK];
    sw_random_fill(words, sizeof(words));
    for (uint32_t i = 0; i < SW_DRAW_BLOCK; i++) {
        uint32_t other = words[i] % (i + 1);
        draw->order[i] = draw->order[other];
        draw->order[other] = (uint8_t)i;
    }
}

void sw_draw_start(struct sw_draw *draw, uint32_t limit)
{
    assert(limit >= SW_DRAW_BLOCK && (limit & (limit - 1)) == 0);
    draw->limit = limit;
    draw->next = (uint32_t)sw_random64() & (limit - 1) & ~(SW_DRAW_BLOCK - 1);
    shuffle_numbers(draw);
}

uint32_t sw_draw(struct sw_draw *draw)
{
    uint32_t at = draw->next++ & (draw->limit - 1);
    uint32_t index = (at & ~(SW_DRAW_BLOCK - 1)) + draw->order[at % SW_DRAW_BLOCK];
    if (draw->next % SW_DRAW_BLOCK == 0)
        shuffle_numbers(draw);
    return index;
}
