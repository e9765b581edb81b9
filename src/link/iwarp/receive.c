/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has come. Most is read into a buffer, where FPDUs are looked at one by one. The header of a
 * long one comes first, and the kernel puts the payload where it goes; but for its end, which
 * programs may poll, and not with CRCs, which come before use, nor where a program polls all of it:
 * the kernel copies in any order.
 */
#include <errno.h>

#include "base/minmax.h"
#include "device/memory/mr_impl.h"
#include "link/iwarp/buffers.h"
#include "link/iwarp/connection.h"
#include "link/iwarp/socket.h"
#include "wire/iwarp/ddp.h"

#define ROUNDS_MAX 16    /* of reading, in one step */
#define LONG_BYTES 4096u /* payload worth to be read where it goes */
#define END_BYTES 64u    /* of it, that is stored when the FPDU is whole */
#define NEXT_BYTES 20u   /* length and header of the next FPDU */

static void receive_tell_first(struct sw_iwarp_connection *c)
{
    if (!c->awaits_first)
        return;
    c->awaits_first = false;
    sw_iwarp_note(&c->first_note);
}

/* A local element that is not there any more fails the request, not the stream. */
static void receive_place_bytes(struct sw_iwarp_connection *c, const struct sw_iwarp_input *input)
{
    if (!sw_iwarp_store(c, input)) {
        c->is_over = true;
        c->send_status = IBV_WC_LOC_PROT_ERR;
    }
}

static enum sw_iwarp_life receive_take_ulpdu(struct sw_iwarp_connection *c,
                                             const struct sw_iwarp_fpdu *fpdu)
{
    struct sw_iwarp_input input = {0};
    if (c->is_paired && sw_iwarp_prepare_paired(c, fpdu->ulpdu) == SW_IWARP_DEAD)
        return SW_IWARP_DEAD;
    if (c->is_paired && fpdu->is_void) {
        sw_iwarp_take_void(&c->machine, fpdu->ulpdu, fpdu->len);
        return SW_IWARP_ALIVE;
    }
    switch (sw_iwarp_admit(&c->machine, fpdu->ulpdu, fpdu->len, &input)) {
    case SW_IWARP_DEMAND:
        sw_iwarp_carry_out(c, &input.demand);
        break;
    case SW_IWARP_PLACE:
        receive_place_bytes(c, &input);
        break;
    case SW_IWARP_NOTHING:
        break;
    }
    c->reads_ahead = fpdu->len >= LONG_BYTES;
    c->placed_from = c->placed_to = 0;
    if (!c->machine.over)
        receive_tell_first(c);
    return SW_IWARP_ALIVE;
}

enum sw_iwarp_life sw_iwarp_take_bytes(struct sw_iwarp_connection *c, const uint8_t *bytes,
                                       size_t len)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_iwarp_fpdu fpdu;
    size_t used;
    enum sw_iwarp_found found;
    if (!c->stream.buffer && !(c->stream.buffer = sw_iwarp_buffer_borrow(SW_IWARP_BUFFER_FPDU)))
        return sw_iwarp_fail(c, -ENOMEM);
    while (!c->machine.over && !c->is_over &&
           (found = sw_iwarp_stream_take(&c->stream, bytes, len, &used, &fpdu)) != SW_IWARP_MORE) {
        if (found != SW_IWARP_FPDU)
            sw_iwarp_refuse(&c->machine,
                            found == SW_IWARP_BAD_CRC ? SW_TERMINATE_CRC : SW_TERMINATE_FRAME);
        else if (receive_take_ulpdu(c, &fpdu) == SW_IWARP_DEAD)
            return SW_IWARP_DEAD;
        bytes += used;
        len -= used;
        if (c->parking.is_parked)
            return sw_iwarp_park(c, &fpdu, bytes, len) ? sw_iwarp_fail(c, -ENOMEM) : SW_IWARP_ALIVE;
    }
    if (c->is_over)
        return sw_iwarp_fail(c, 0);
    return sw_iwarp_settle(c);
}

/* Where the payload of the FPDU at hand goes on, if it is long: at most `pieces[0]`. */
static bool aim_ahead(struct sw_iwarp_connection *c, struct iovec *piece, uint32_t *missing)
{
    struct sw_iwarp_partial partial;
    struct sw_ddp_segment segment;
    if (c->has_crc || c->qp->in_order || !sw_iwarp_stream_partial(&c->stream, &partial) ||
        partial.have < SW_DDP_UNTAGGED_BYTES || partial.len < LONG_BYTES ||
        sw_ddp_check(partial.ulpdu, partial.len) != SW_DDP_FAULT_NONE)
        return false;
    sw_ddp_decode(partial.ulpdu, partial.len, &segment);
    const uint32_t header_len = partial.len - segment.payload_len;
    const uint32_t from = partial.have - header_len;
    if (from + END_BYTES >= segment.payload_len ||
        (c->placed_to > c->placed_from && c->placed_to != from))
        return false; /* or a part has come another way */
    const uint32_t len = segment.payload_len - END_BYTES - from;
    uint8_t *place = sw_iwarp_place_of(c, &segment, from, len);
    if (!place)
        return false;
    if (c->placed_to == c->placed_from)
        c->placed_from = c->placed_to = from;
    *piece = (struct iovec){place, len};
    *missing = END_BYTES + sw_fpdu_pad(partial.len) + SW_FPDU_CRC_BYTES;
    return true;
}

struct arrived {
    ssize_t got; /* altogether, or 0 (the peer has closed) or a negative errno */
    size_t buffered, room;
};

/* Reads into memory, and behind it into the buffer. false: not now. */
static bool read_ahead(struct sw_iwarp_connection *c, uint8_t *buffer, struct arrived *out)
{
    struct iovec pieces[2];
    uint32_t missing;
    sw_mr_serve_begin(c->qp->index);
    const bool is_aimed = aim_ahead(c, &pieces[0], &missing);
    if (is_aimed) {
        pieces[1] = (struct iovec){buffer, missing + NEXT_BYTES};
        out->got = sw_iwarp_socket_receive_pieces(c->fd, pieces, 2);
    }
    sw_mr_serve_end(c->qp->index);
    if (!is_aimed || out->got == -EFAULT) /* memory without pages: the buffer's way tells */
        return false;
    out->room = pieces[0].iov_len + pieces[1].iov_len;
    if (out->got <= 0)
        return true;
    const size_t got = (size_t)out->got;
    const size_t placed = sw_min_size(got, pieces[0].iov_len);
    sw_iwarp_stream_skip(&c->stream, (uint32_t)placed);
    c->placed_to += (uint32_t)placed;
    out->buffered = got - placed;
    return true;
}

static void read_buffer(struct sw_iwarp_connection *c, uint8_t *buffer, struct arrived *out)
{
    const bool is_between = sw_iwarp_stream_is_between(&c->stream);
    out->room =
        c->reads_ahead && is_between ? NEXT_BYTES : sw_iwarp_buffer_bytes(SW_IWARP_BUFFER_READ);
    out->got = sw_iwarp_socket_receive(c->fd, buffer, out->room);
    out->buffered = out->got > 0 ? (size_t)out->got : 0;
}

/* The peer has closed, or worse. */
static enum sw_iwarp_life receive_hear_end(struct sw_iwarp_connection *c, ssize_t got)
{
    c->has_left = true;
    if (c->is_paired)
        return sw_iwarp_lose_peer(c);
    if (got == 0)
        return sw_iwarp_fail(c, sw_iwarp_stream_is_between(&c->stream) ? 0 : -ECONNRESET);
    return sw_iwarp_fail(c, (int)got);
}

/* One read. *goes_on: there may be more. */
static enum sw_iwarp_life receive_once(struct sw_iwarp_connection *c, uint8_t *buffer,
                                       bool *goes_on, bool *moved)
{
    struct arrived arrived = {0};
    *goes_on = false;
    if (!read_ahead(c, buffer, &arrived))
        read_buffer(c, buffer, &arrived);
    if (arrived.got == -EAGAIN || arrived.got == -EINTR)
        return SW_IWARP_ALIVE;
    if (arrived.got <= 0)
        return receive_hear_end(c, arrived.got);
    *moved = true;
    *goes_on = (size_t)arrived.got == arrived.room;
    return arrived.buffered ? sw_iwarp_take_bytes(c, buffer, arrived.buffered) : SW_IWARP_ALIVE;
}

void sw_iwarp_give_back(struct sw_iwarp_connection *c)
{
    if (!c->stream.buffer || !sw_iwarp_stream_is_between(&c->stream))
        return;
    sw_iwarp_buffer_return(SW_IWARP_BUFFER_FPDU, c->stream.buffer);
    c->stream.buffer = NULL;
}

enum sw_iwarp_life sw_iwarp_receive(struct sw_iwarp_connection *c, bool *moved)
{
    sw_lock_assert_held(&c->qp->lock);
    enum sw_iwarp_life life = SW_IWARP_ALIVE;
    bool goes_on = true;
    if (c->parking.is_parked && sw_iwarp_unpark(c, moved) == SW_IWARP_DEAD)
        return SW_IWARP_DEAD;
    if (c->parking.is_parked || c->machine.by_peer) /* nothing counts behind its Terminate */
        return SW_IWARP_ALIVE;
    uint8_t *buffer = sw_iwarp_buffer_borrow(SW_IWARP_BUFFER_READ);
    for (int i = 0; buffer && i < ROUNDS_MAX && goes_on && life == SW_IWARP_ALIVE; i++) {
        life = receive_once(c, buffer, &goes_on, moved);
        if (life == SW_IWARP_ALIVE && (c->machine.over || c->parking.is_parked))
            break;
    }
    sw_iwarp_buffer_return(SW_IWARP_BUFFER_READ, buffer);
    if (life == SW_IWARP_ALIVE && c->is_watched)
        sw_iwarp_give_back(c);
    return life;
}
