/* SPDX-License-Identifier: BSD-2-Clause */
/* The copy of a WRITE or READ, on the side that executes it. */
#ifndef SW_LINK_DIRECT_SEND_MOVING_H
#define SW_LINK_DIRECT_SEND_MOVING_H

#include "base/card_memory.h"
#include "base/payload.h"
#include "base/stream_copy.h"
#include "device/serve/execute.h"
#include "link/direct/bind/connection.h"

/* `is_read`: to memory of ours, in any order. A WRITE's last bytes are seen last, or all in order
 * if the peer wants that. */
static inline void sw_move_bytes(struct sw_direct_qp *d, uint8_t *to, const uint8_t *from,
                                 uint64_t len_bytes, bool is_read)
{
    if (__builtin_expect(d->remote.in_order, 0) && !is_read) {
        sw_copy_all_ordered(to, from, len_bytes);
        return;
    }
    if (__builtin_expect(len_bytes >= SW_STREAM_MIN_BYTES, 0) &&
        sw_stream_watch_note(&d->send.stream, to, len_bytes) && !sw_card_memory_has(to)) {
        const uint64_t last = 8;
        sw_stream_copy(to, from, len_bytes - last);
        to += len_bytes - last;
        from += len_bytes - last;
        len_bytes = last;
    }
    if (is_read)
        sw_payload_copy(to, from, len_bytes);
    else
        sw_copy_ordered(to, from, len_bytes);
}

#endif
