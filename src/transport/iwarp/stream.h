/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds FPDUs in the bytes of a TCP stream, however these are cut or joined. One that lies whole in
 * what was given is taken where it lies; one that does not is put together in a buffer of the user.
 * Nothing of an FPDU is given out before its CRC was looked at. RFC 5044 s4.3, s4.4.
 *
 *   while ((found = sw_iwarp_stream_take(s, bytes, len, &used, &fpdu)) == SW_IWARP_FPDU)
 *       look at it; bytes += used; len -= used;
 */
#ifndef SW_TRANSPORT_IWARP_STREAM_H
#define SW_TRANSPORT_IWARP_STREAM_H

#include "wire/iwarp/fpdu.h"

struct sw_iwarp_fpdu {
    const uint8_t *ulpdu; /* valid until the next call */
    uint32_t len;
    bool is_void; /* without CRCs: it says that its data is gone */
};

enum sw_iwarp_found {
    SW_IWARP_MORE, /* all bytes are taken: the next FPDU is not whole yet */
    SW_IWARP_FPDU,
    SW_IWARP_BAD_CRC,    /* and nothing more can be found in this stream */
    SW_IWARP_BAD_LENGTH, /* the same: shorter than any segment, or more than there is room for */
};

struct sw_iwarp_stream {
    uint8_t *buffer; /* of `room` bytes: an FPDU may have as many; not needed between FPDUs */
    uint32_t room, have;
    bool has_crc;
    enum sw_iwarp_found broken; /* SW_IWARP_MORE: it is not */
};

/* `room`: from 64 on; SW_FPDU_MAX takes all that can be. */
void sw_iwarp_stream_init(struct sw_iwarp_stream *s, uint8_t *buffer, uint32_t room, bool has_crc);

/* Takes bytes; *used says how many. *out is set on SW_IWARP_FPDU. */
enum sw_iwarp_found sw_iwarp_stream_take(struct sw_iwarp_stream *s, const uint8_t *bytes,
                                         size_t len, size_t *used, struct sw_iwarp_fpdu *out);

/* The FPDU that is not whole yet: as much of its ULPDU as has come. */
struct sw_iwarp_partial {
    const uint8_t *ulpdu;
    uint32_t have, len; /* of the ULPDU */
};
/* false: there is none, or its length has not come. */
bool sw_iwarp_stream_partial(const struct sw_iwarp_stream *s, struct sw_iwarp_partial *out);
/* The next bytes of its ULPDU have come and lie elsewhere: what is given out has a gap there. Not
 * with CRCs. */
void sw_iwarp_stream_skip(struct sw_iwarp_stream *s, uint32_t count);

/* Whether the stream may end here. */
static inline bool sw_iwarp_stream_is_between(const struct sw_iwarp_stream *s)
{
    return s->have == 0;
}

#endif
