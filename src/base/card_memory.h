/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of a PCI card that is mapped here. A processor may turn one memcpy() into stores that
 * overlap, or that are wider than a card takes, so what goes there is stored in words of eight
 * bytes at most, each aligned and each once.
 */
#ifndef SW_BASE_CARD_MEMORY_H
#define SW_BASE_CARD_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How many ranges are known. */
extern atomic_uint sw_card_ranges;

/* Whether the descriptor is of sysfs: there only the BARs of PCI cards can be mapped. */
bool sw_card_memory_is_file(int fd);
/* Makes a range known; one that is known already is no other. False: there are too many. */
bool sw_card_memory_add(uint64_t va, uint64_t len_bytes);
/* Forgets the range that begins there, before it is unmapped. */
void sw_card_memory_remove(uint64_t va);
bool sw_card_memory_find(uint64_t va);
/* Whether a place is known as a card's; almost free where no card is. */
static inline bool sw_card_memory_has(const void *at)
{
    return __builtin_expect(atomic_load_explicit(&sw_card_ranges, memory_order_relaxed) != 0, 0) &&
           sw_card_memory_find((uintptr_t)at);
}

/* To a card's memory, in ascending order; it has left this processor when the call returns. */
void sw_card_memory_copy(uint8_t *to, const uint8_t *from, uint64_t len_bytes);
/* Stores of any processor to it have reached the card when this returns: a read does not overtake
 * the writes before it. `at` lies in the card's memory. */
void sw_card_memory_settle(const uint8_t *at);

#endif
