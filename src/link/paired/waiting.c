/* SPDX-License-Identifier: BSD-2-Clause */
/* waiting.h. */
#include "link/paired/waiting.h"

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"

static uint32_t waiting_borrowed; /* of the bytes that all share */

static uint32_t borrowed_of(uint32_t room)
{
    return room > SW_WAITING_OWN_BYTES ? room - SW_WAITING_OWN_BYTES : 0;
}

/* Makes room for `len` bytes in all: by the double, so that few are moved often. */
static bool waiting_grow(struct sw_waiting *w, size_t len)
{
    uint32_t room = w->room ? w->room : SW_WAITING_OWN_BYTES;
    if (len > SW_WAITING_BYTES_MAX)
        return false;
    while (room < len)
        room *= 2;
    const uint32_t more = borrowed_of(room) - borrowed_of(w->room);
    if (more > SW_WAITING_SHARED_BYTES - waiting_borrowed)
        return false;
    uint8_t *bytes = realloc(w->bytes, room);
    if (!bytes)
        return false;
    waiting_borrowed += more;
    w->bytes = bytes;
    w->room = room;
    return true;
}

bool sw_waiting_add(struct sw_waiting *w, const struct iovec *pieces, uint32_t count, size_t skip,
                    uint64_t now_ns)
{
    size_t len = 0;
    for (uint32_t i = 0; i < count; i++)
        len += pieces[i].iov_len;
    len -= skip;
    if (!w->bytes)
        w->since_ns = now_ns;
    if (w->to + len > w->room && w->from > w->room / 4) { /* seldom: all that waits is moved */
        memmove(w->bytes, w->bytes + w->from, w->to - w->from);
        w->to -= w->from;
        w->from = 0;
    }
    if (w->to + len > w->room && !waiting_grow(w, w->to + len))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const size_t left = skip < pieces[i].iov_len ? pieces[i].iov_len - skip : 0;
        memcpy(w->bytes + w->to, (const uint8_t *)pieces[i].iov_base + pieces[i].iov_len - left,
               left);
        w->to += (uint32_t)left;
        skip -= pieces[i].iov_len - left;
    }
    w->frames++;
    return true;
}

void sw_waiting_free(struct sw_waiting *w)
{
    waiting_borrowed -= borrowed_of(w->room);
    free(w->bytes);
    *w = (struct sw_waiting){0};
}
