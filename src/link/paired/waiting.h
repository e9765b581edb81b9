/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams that wait for a call, or for room in TCP (datagrams.c): bytes in their order, of one
 * connection. Each connection has 64 KiB. It may borrow more, up to 1 MiB, of the 16 MiB that all
 * connections of the process share. A program may send a burst before its call is answered; over
 * UDP the buffer of the peer's socket would take it.
 *
 * All functions: with the lock of the connections (datagrams.c).
 */
#ifndef SW_LINK_PAIRED_WAITING_H
#define SW_LINK_PAIRED_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SW_WAITING_OWN_BYTES (64u << 10)
#define SW_WAITING_BYTES_MAX (1u << 20)
#define SW_WAITING_SHARED_BYTES (16u << 20)

/* All zero: nothing waits. */
struct sw_waiting {
    uint8_t *bytes; /* NULL: nothing waits */
    uint32_t room, from, to;
    uint32_t frames;
    uint64_t since_ns; /* when it began to wait, or some of it was sent */
};

/* Adds pieces behind what waits, without the first `skip` bytes of them. Returns false, and adds
 * none, if there is no room. */
bool sw_waiting_add(struct sw_waiting *w, const struct iovec *pieces, uint32_t count, size_t skip,
                    uint64_t now_ns);
void sw_waiting_free(struct sw_waiting *w);

static inline uint32_t sw_waiting_len(const struct sw_waiting *w)
{
    return w->to - w->from;
}

#endif
