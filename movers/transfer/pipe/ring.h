/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring of a pipe, seen by its writer over the network and by its reader at home: docs/pipe.md.
 * No verbs, no clock, no memory of its own.
 *
 * Positions count bytes over all time and are multiples of a line. A record begins at a line with
 * its mark, which is written behind all else of it; the reader of a record clears the first word of
 * each of its lines before the room is given back. So where a mark is expected, either it is or it
 * was not written yet.
 */
#ifndef SW_MOVERS_TRANSFER_RING_H
#define SW_MOVERS_TRANSFER_RING_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PIPE_LINE = 64,
    PIPE_HEAD = 8, /* mark and length */
};

/* The length of a record that fills up to the end of the ring and says nothing. */
static const uint32_t PIPE_PAD = UINT32_MAX;

/* The writing side. `mirror` is a copy of the ring here: requests are made from it. */
struct pipe_out {
    uint8_t *mirror;
    uint32_t bytes; /* a power of two */
    uint32_t marks;
    uint64_t produced;
    uint64_t consumed;  /* by the peer, as it told */
    uint64_t reclaimed; /* whose requests have ended */
};

struct pipe_record {
    uint32_t offset, bytes; /* its head included; the message lies behind the head */
};

/* Room for a message; its head stands in the mirror then. Returns how many records there are to
 * write, in this order, of which the last is the message: 0 where there is no room now. */
unsigned pipe_out_reserve(struct pipe_out *out, uint32_t bytes, struct pipe_record records[2]);
/* False: the peer says that it has read what was not written, or takes something back. */
bool pipe_out_credit(struct pipe_out *out, uint64_t consumed);

/* The reading side. `ring` can change at any time: the peer writes it. */
struct pipe_in {
    uint8_t *ring;
    uint32_t bytes;
    uint32_t marks;
    uint64_t consumed;
    uint64_t told; /* to the peer */
};

enum pipe_look { PIPE_EMPTY, PIPE_MESSAGE, PIPE_BROKEN };

/* Where the next message is, which is looked at once, so the length is what was checked. */
enum pipe_look pipe_in_look(struct pipe_in *in, uint32_t bytes_max, const uint8_t **message,
                            uint32_t *bytes);
/* The bytes that were looked at are done with. */
void pipe_in_drop(struct pipe_in *in, uint32_t bytes);

/* It is time to give room back. */
static inline bool pipe_in_owes(const struct pipe_in *in)
{
    return in->consumed - in->told >= in->bytes / 4;
}

#endif
