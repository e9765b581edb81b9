/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/buffer.h"

#include <stdlib.h>

#include "device/nic/context_impl.h"
#include "device/rules/pub.h"

/* In front of the bytes: whose they are. An allocator may leave single requests to us. */
struct header {
    struct sw_pd *pd; /* whose allocator gave them; NULL: the heap's */
    uint64_t type;
};
static_assert(sizeof(struct header) <= SW_CACHELINE, "the bytes keep their alignment");

void *sw_buffer_alloc(struct sw_pd *pd, size_t len_bytes, enum sw_buffer_type type)
{
    size_t room = (len_bytes + 2 * SW_CACHELINE - 1) & ~(size_t)(SW_CACHELINE - 1);
    void *memory = SW_ALLOCATOR_DEFAULT;
    bool custom = false;
    if (pd && pd->allocator.alloc) {
        memory = pd->allocator.alloc(pd->allocator.owner, room, SW_CACHELINE, type);
        custom = memory != SW_ALLOCATOR_DEFAULT;
    }
    if (!custom)
        memory = aligned_alloc(SW_CACHELINE, room);
    if (!memory)
        return NULL;
    *(struct header *)memory = (struct header){custom ? pd : NULL, type};
    return (uint8_t *)memory + SW_CACHELINE;
}

void sw_buffer_free(void *bytes)
{
    if (!bytes)
        return;
    void *memory = (uint8_t *)bytes - SW_CACHELINE;
    const struct header header = *(struct header *)memory;
    if (header.pd)
        header.pd->allocator.free(header.pd->allocator.owner, memory, header.type);
    else
        free(memory);
}
