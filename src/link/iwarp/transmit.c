/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What leaves. FPDUs are gathered, as many as there are, and given to the kernel in one call.
 * Headers, trailers and short payload are copied; long payload stays where it is until the kernel
 * takes it. With CRCs all is copied: memory that changes between the CRC and the kernel's copy
 * would look like damage.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/guarded_copy.h"
#include "base/minmax.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/queue/counters.h"
#include "link/gather.h"
#include "link/iwarp/buffers.h"
#include "link/iwarp/connection.h"
#include "link/iwarp/socket.h"
#include "wire/iwarp/crc32c.h"

#define COPY_BYTES 512u          /* payload up to this is copied: a piece costs more */
#define BATCH_BYTES (256u << 10) /* given to the kernel at once */
#define ROUNDS_MAX 16            /* of these in one step */
#define IOV_MAX_PIECES 256u      /* that is twice as many elements as pieces, mostly */

static uint8_t zeros[SW_IWARP_LARGE_FPDU];

/* ---- what is gathered ---- */

static enum sw_iwarp_buffer kind_of_room(const struct sw_iwarp_connection *c)
{
    return c->has_crc ? SW_IWARP_BUFFER_OUT_CRC : SW_IWARP_BUFFER_OUT;
}

static bool transmit_make_room(struct sw_iwarp_connection *c)
{
    struct sw_iwarp_outgoing *out = &c->out;
    if (out->bytes)
        return true;
    out->pieces = sw_iwarp_buffer_borrow(kind_of_room(c));
    if (!out->pieces)
        return false;
    out->bytes = (uint8_t *)&out->pieces[SW_IWARP_PIECES];
    out->bytes_room =
        sw_iwarp_buffer_bytes(kind_of_room(c)) - SW_IWARP_PIECES * (uint32_t)sizeof(*out->pieces);
    return true;
}

void sw_iwarp_give_back_out(struct sw_iwarp_connection *c)
{
    sw_iwarp_buffer_return(kind_of_room(c), c->out.pieces);
    c->out.pieces = NULL;
    c->out.bytes = NULL;
}

/* Room for so many more bytes behind what is copied, which add_copied() makes a part of it. */
static uint8_t *copied_end(struct sw_iwarp_outgoing *out)
{
    return out->bytes + out->bytes_len;
}

static void add_copied(struct sw_iwarp_outgoing *out, uint32_t len_bytes)
{
    struct sw_iwarp_piece *last = out->count ? &out->pieces[out->count - 1] : NULL;
    if (last && last->source == SW_PAYLOAD_BYTES)
        last->len_bytes += len_bytes;
    else
        out->pieces[out->count++] = (struct sw_iwarp_piece){
            .source = SW_PAYLOAD_BYTES, .len_bytes = len_bytes, .at = out->bytes_len};
    out->bytes_len += len_bytes;
    out->total += len_bytes;
}

static bool copy_payload(struct sw_iwarp_connection *c, const struct sw_iwarp_emission *emission,
                         uint8_t *to)
{
    if (emission->source == SW_PAYLOAD_MEMORY) {
        const uint8_t *from =
            sw_iwarp_readable(c, emission->addr, emission->payload_len, emission->rkey);
        if (!from)
            return false;
        return sw_guarded_copy(to, from, emission->payload_len, from);
    }
    struct sw_gather gather = sw_gather_of(c->qp, sw_iwarp_sq_position(c, emission->position));
    return sw_gather_out(&gather, emission->offset, to, emission->payload_len);
}

/* `pad`: between the payload and the CRC, which are copied next. */
static void add_reference(struct sw_iwarp_connection *c, const struct sw_iwarp_emission *emission,
                          uint32_t pad)
{
    const bool is_memory = emission->source == SW_PAYLOAD_MEMORY;
    struct sw_iwarp_outgoing *out = &c->out;
    out->pieces[out->count++] =
        (struct sw_iwarp_piece){.source = emission->source,
                                .len_bytes = emission->payload_len,
                                .position = emission->position,
                                .rkey = emission->rkey,
                                .at = is_memory ? emission->addr : emission->offset,
                                .crc_at = out->bytes_len + pad};
    out->total += emission->payload_len;
}

static bool add_fpdu(struct sw_iwarp_connection *c, const struct sw_iwarp_emission *emission)
{
    struct sw_iwarp_outgoing *out = &c->out;
    const bool copies = c->has_crc || emission->payload_len <= COPY_BYTES;
    const uint32_t payload_len = emission->source == SW_PAYLOAD_NONE ? 0 : emission->payload_len;
    uint32_t copied = emission->head_len;
    uint8_t trailer[SW_FPDU_TRAILER_MAX];
    memcpy(copied_end(out), emission->head, emission->head_len);
    if (payload_len && copies) {
        if (!copy_payload(c, emission, copied_end(out) + copied))
            return false;
        copied += payload_len;
    }
    const uint32_t crc = c->has_crc ? sw_crc32c_add(0, copied_end(out), copied) : 0;
    const uint32_t trailer_len =
        sw_fpdu_finish(crc, sw_iwarp_ulpdu_len(emission), c->has_crc, trailer);
    add_copied(out, copied);
    if (payload_len && !copies)
        add_reference(c, emission, trailer_len - SW_FPDU_CRC_BYTES);
    memcpy(copied_end(out), trailer, trailer_len);
    add_copied(out, trailer_len);
    return true;
}

/* Whether the rate holds what the queue pair sends by itself; answers are the peer's. */
static bool is_held_by_rate(const struct sw_iwarp_connection *c)
{
    const struct sw_pacer *pacer = &c->qp->pacer;
    return c->qp->sq.is_paced && !c->machine.answer_count && !c->machine.over &&
           sw_pacer_allows(pacer, sw_clock_ns(), pacer->packet_bytes) != pacer->packet_bytes;
}

static bool transmit_has_room(const struct sw_iwarp_connection *c)
{
    const struct sw_iwarp_outgoing *out = &c->out;
    const uint32_t longest =
        SW_IWARP_HEAD_MAX + SW_FPDU_TRAILER_MAX + (c->has_crc ? c->machine.ulpdu_max : COPY_BYTES);
    return out->count + 3 <= SW_IWARP_PIECES && out->total < BATCH_BYTES &&
           out->bytes_room - out->bytes_len >= longest;
}

/* If a file was made shorter, the key is still good. */
static enum sw_access_fault fault_of_answer(struct sw_iwarp_connection *c, uint64_t addr,
                                            uint32_t len_bytes, uint32_t rkey)
{
    const enum sw_access_fault fault = sw_iwarp_read_fault(c, addr, len_bytes, rkey);
    return fault == SW_ACCESS_FAULT_NONE ? SW_ACCESS_FAULT_BOUNDS : fault;
}

/* The memory of an answer may have been taken away since the READ was looked at. */
static bool is_refused(struct sw_iwarp_connection *c, struct sw_iwarp_emission *emission)
{
    if (emission->source != SW_PAYLOAD_MEMORY ||
        sw_iwarp_readable(c, emission->addr, emission->payload_len, emission->rkey))
        return false;
    sw_iwarp_unreadable(&c->machine,
                        fault_of_answer(c, emission->addr, emission->payload_len, emission->rkey));
    return true;
}

static void count_emission(struct sw_iwarp_connection *c, const struct sw_iwarp_emission *emission)
{
    if (emission->source == SW_PAYLOAD_MEMORY) {
        c->qp->moved.sent_bytes += emission->payload_len;
        c->qp->moved.sent_packets++;
    } else if (c->qp->sq.is_paced) {
        sw_pacer_charge(&c->qp->pacer, sw_clock_ns(), emission->payload_len);
    }
}

/* 0, or a negative errno: the connection cannot go on. */
static int add_checked(struct sw_iwarp_connection *c, struct sw_iwarp_emission *emission)
{
    int rc = 0;
    sw_mr_serve_begin(c->qp->index);
    if (!is_refused(c, emission)) { /* else next() has a Terminate then */
        const bool is_added = add_fpdu(c, emission);
        if (is_added)
            count_emission(c, emission);
        else if (emission->source == SW_PAYLOAD_MEMORY) /* taken away just now */
            sw_iwarp_unreadable(
                &c->machine,
                fault_of_answer(c, emission->addr, emission->payload_len, emission->rkey));
        else
            rc = -EFAULT;
    }
    sw_mr_serve_end(c->qp->index);
    return rc;
}

/* The same. */
static int transmit_fill_out(struct sw_iwarp_connection *c)
{
    struct sw_iwarp_outgoing *out = &c->out;
    struct sw_iwarp_emission emission;
    out->first = out->count = out->bytes_len = out->total = 0;
    out->first_position = c->machine.sent;
    if (c->qp->sq.is_paced)
        c->machine.ulpdu_max = sw_min_u32(c->machine.ulpdu_max, c->qp->pacer.packet_bytes);
    while ((!out->bytes || transmit_has_room(c)) && !is_held_by_rate(c) &&
           sw_iwarp_next(&c->machine, &emission)) {
        if (!transmit_make_room(c))
            return -ENOMEM;
        const int rc = add_checked(c, &emission);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- what is sent ---- */

/* Zeros leave instead of memory that was taken away after the header of its FPDU. The mark at the
 * end of it says so, and a Terminate follows, which says why. */
static bool void_piece(struct sw_iwarp_connection *c, struct sw_iwarp_piece *piece)
{
    if (!c->knows_voids || piece->len_bytes > sizeof(zeros))
        return false;
    sw_iwarp_unreadable(&c->machine, fault_of_answer(c, piece->at, piece->len_bytes, piece->rkey));
    piece->is_void = true;
    sw_fpdu_set_void(c->out.bytes + piece->crc_at);
    return true;
}

/* What the kernel is given at once. */
struct list {
    struct iovec iov[IOV_MAX_PIECES];
    uint32_t count;
    bool by_view; /* some of it may be taken away */
};

/* Adds the memory of a READ's answer. */
static bool add_answer_memory(struct sw_iwarp_connection *c, struct sw_iwarp_piece *piece,
                              struct list *list)
{
    const uint8_t *from =
        piece->is_void ? NULL : sw_iwarp_readable(c, piece->at, piece->len_bytes, piece->rkey);
    const bool by_view = from && sw_view_is_of(piece->rkey);
    if (by_view && !sw_fault_probe(from, piece->len_bytes))
        from = NULL;
    if (!from && !piece->is_void && !void_piece(c, piece))
        return false;
    list->by_view |= by_view;
    list->iov[list->count++] =
        (struct iovec){from ? (void *)from : (void *)zeros, piece->len_bytes};
    return true;
}

/* Adds a piece's memory; false: a key does not allow it any more, or it is lost. */
static bool transmit_add_memory(struct sw_iwarp_connection *c, struct sw_iwarp_piece *piece,
                                struct list *list)
{
    if (piece->source == SW_PAYLOAD_MEMORY)
        return add_answer_memory(c, piece, list);
    struct sw_gather gather = sw_gather_of(c->qp, sw_iwarp_sq_position(c, piece->position));
    const bool by_view = sw_gather_has_view(&gather);
    uint64_t at = piece->at, left = piece->len_bytes;
    list->by_view |= by_view;
    while (left && list->count < IOV_MAX_PIECES) {
        uint64_t run = left;
        uint8_t *from = sw_gather_at(&gather, at, 0, &run);
        if (!from || (by_view && !sw_fault_probe(from, run)))
            return false;
        list->iov[list->count++] = (struct iovec){from, run};
        at += run;
        left -= run;
    }
    return true;
}

static bool list_pieces(struct sw_iwarp_connection *c, struct list *list)
{
    struct sw_iwarp_outgoing *out = &c->out;
    list->count = 0;
    list->by_view = false;
    for (uint32_t i = out->first; i < out->count && list->count < IOV_MAX_PIECES; i++) {
        struct sw_iwarp_piece *piece = &out->pieces[i];
        if (piece->source == SW_PAYLOAD_BYTES)
            list->iov[list->count++] = (struct iovec){out->bytes + piece->at, piece->len_bytes};
        else if (!transmit_add_memory(c, piece, list))
            return false;
        if (list->count == IOV_MAX_PIECES)
            break; /* the last one may not be there as a whole */
    }
    return true;
}

static void pass_sent(struct sw_iwarp_outgoing *out, size_t sent)
{
    while (sent) {
        struct sw_iwarp_piece *piece = &out->pieces[out->first];
        if (sent < piece->len_bytes) {
            piece->len_bytes -= (uint32_t)sent;
            piece->at += sent;
            return;
        }
        sent -= piece->len_bytes;
        out->first++;
    }
}

/* Leaves no more than `len` bytes in the list. */
static void shorten_list(struct list *list, size_t len)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->iov[i].iov_len >= len) {
            list->iov[i].iov_len = len;
            list->count = i + 1;
        }
        len -= list->iov[i].iov_len;
    }
}

/* How many bytes TCP may be given now; 0: not yet. */
static size_t allowed_by_pace(struct sw_iwarp_connection *c)
{
    uint64_t rate;
    uint32_t segment;
    if (sw_iwarp_pacing_wants_rate(&c->pacing) && sw_iwarp_socket_pace(c->fd, &rate, &segment))
        sw_iwarp_pacing_learn(&c->pacing, rate, segment);
    if (!sw_iwarp_pacing_is_used(&c->pacing))
        return SIZE_MAX;
    return sw_iwarp_pacing_allows(&c->pacing, sw_clock_ns(), !c->is_watched, SIZE_MAX);
}

/* The kernel copies the bytes that were found there, or finds nothing: then it is looked again. */
static ssize_t send_listed(struct sw_iwarp_connection *c, size_t allowed)
{
    struct list list;
    ssize_t sent = -EAGAIN;
    for (int i = 0; i < SW_FAULT_TRIES; i++) {
        const uint64_t mark = sw_fault_mark();
        if (!list_pieces(c, &list))
            return -EFAULT;
        if (list.by_view && !sw_fault_hold(mark))
            continue;
        shorten_list(&list, allowed);
        sent = sw_iwarp_socket_send_pieces(c->fd, list.iov, list.count);
        if (list.by_view)
            sw_fault_let_go();
        if (sent != -EFAULT || !list.by_view)
            return sent;
    }
    return sent;
}

/* How many bytes the kernel has taken, or a negative errno. */
static ssize_t transmit_send_list(struct sw_iwarp_connection *c, size_t allowed)
{
    sw_mr_serve_begin(c->qp->index);
    const ssize_t sent = send_listed(c, allowed);
    sw_mr_serve_end(c->qp->index);
    if (sent > 0)
        sw_iwarp_pacing_charge(&c->pacing, (size_t)sent,
                               sw_iwarp_pacing_is_used(&c->pacing) ? sw_clock_ns() : 0);
    return sent;
}

/* 1: all is sent; 0: the kernel has no room, or is to be given more later; or a negative errno. */
static int send_out(struct sw_iwarp_connection *c, bool *moved)
{
    struct sw_iwarp_outgoing *out = &c->out;
    while (out->first != out->count) {
        const size_t allowed = allowed_by_pace(c);
        const ssize_t sent = allowed ? transmit_send_list(c, allowed) : -EAGAIN;
        if (sent == -EAGAIN)
            return 0;
        if (sent < 0 && sent != -EINTR)
            return (int)sent;
        if (sent > 0) {
            *moved = true;
            pass_sent(out, (size_t)sent);
        }
    }
    out->first = out->count = 0;
    if (out->bytes)
        sw_iwarp_give_back_out(c);
    return 1;
}

void sw_iwarp_count_terminate(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    if (!c->machine.over || c->is_counted)
        return;
    c->is_counted = true;
    sw_counter_add(c->qp->ctx->netdev,
                   c->machine.by_peer ? SW_TERMINATES_RECEIVED : SW_TERMINATES_SENT);
}

/* The error that the kernel has told: EFAULT is about this side's memory. With any other the peer
 * has closed; its Terminate, which says why, may have come since the last look. */
static enum sw_iwarp_life fail_send(struct sw_iwarp_connection *c, int err)
{
    bool moved;
    if (err == -EFAULT) {
        c->send_status = IBV_WC_LOC_PROT_ERR;
        return sw_iwarp_fail(c, 0);
    }
    if (!c->is_paired && sw_iwarp_receive(c, &moved) == SW_IWARP_DEAD)
        return SW_IWARP_DEAD;
    return c->machine.by_peer ? sw_iwarp_end_by_terminate(c) : sw_iwarp_fail(c, err);
}

enum sw_iwarp_life sw_iwarp_transmit(struct sw_iwarp_connection *c, bool *moved)
{
    sw_lock_assert_held(&c->qp->lock);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        const int rc = send_out(c, moved);
        c->is_blocked = rc == 0;
        if (rc < 0 && !(c->is_paired && rc != -EFAULT))
            return fail_send(c, rc);
        if (rc <= 0) /* paired: what the peer has said last is read first */
            return sw_iwarp_settle(c);
        if (sw_iwarp_settle(c) == SW_IWARP_DEAD || sw_iwarp_feed(c) == SW_IWARP_DEAD)
            return SW_IWARP_DEAD;
        const int filled = transmit_fill_out(c);
        if (filled < 0)
            return fail_send(c, filled);
        sw_iwarp_count_terminate(c);
        if (!c->out.count)
            return SW_IWARP_ALIVE;
    }
    c->is_blocked = true; /* there is more: as if the kernel had no room now */
    return SW_IWARP_ALIVE;
}

uint8_t *sw_iwarp_copy_rest(struct sw_iwarp_connection *c, size_t *len)
{
    const struct sw_iwarp_outgoing *out = &c->out;
    struct list list;
    size_t bytes_len = 0;
    *len = 0;
    if (out->first == out->count || !list_pieces(c, &list))
        return NULL;
    for (uint32_t i = 0; i < list.count; i++)
        bytes_len += list.iov[i].iov_len;
    uint8_t *bytes = malloc(bytes_len);
    for (uint32_t i = 0; bytes && i < list.count; i++) {
        const struct iovec *piece = &list.iov[i];
        if (!sw_guarded_copy(bytes + *len, piece->iov_base, piece->iov_len, piece->iov_base)) {
            free(bytes);
            *len = 0;
            return NULL;
        }
        *len += piece->iov_len;
    }
    return bytes;
}
