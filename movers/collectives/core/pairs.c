/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/pairs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/minmax.h"

static struct coll_transfer *transfer_of(struct list_node *node)
{
    return node ? LIST_MEMBER(node, struct coll_transfer, node) : NULL;
}

void coll_pairs_init(struct coll_pairs *machine, uint32_t rank, uint32_t size, uint32_t short_bytes,
                     uint64_t piece_bytes, const struct coll_pairs_port *port,
                     struct coll_pair *pairs)
{
    *machine = (struct coll_pairs){.rank = rank,
                                   .size = size,
                                   .short_bytes = short_bytes,
                                   .piece_bytes = piece_bytes,
                                   .port = port,
                                   .pairs = pairs};
    list_init(&machine->busy);
    list_init(&machine->over);
    for (uint32_t i = 0; i < size; i++) {
        pairs[i] = (struct coll_pair){.rank = i};
        list_init(&pairs[i].sends);
        list_init(&pairs[i].recvs);
    }
}

/* ---- errors ---- */

static void pairs_fail(struct coll_pairs *machine, enum sw_coll_status status, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));
static void pairs_fail(struct coll_pairs *machine, enum sw_coll_status status, const char *format,
                       ...)
{
    va_list arguments;
    if (machine->status)
        return;
    va_start(arguments, format);
    vsnprintf(machine->error.text, sizeof(machine->error.text), format, arguments);
    va_end(arguments);
    machine->error.status = machine->status = status;
}

static void pairs_accuse(struct coll_pairs *machine, uint32_t rank, const char *what)
{
    pairs_fail(machine, SW_COLL_PROTOCOL, "rank %u broke the protocol: %s", rank, what);
}

static bool is_posted(struct coll_pairs *machine, uint32_t rank, enum coll_posting posting)
{
    if (posting == COLL_LOST)
        pairs_fail(machine, SW_COLL_RANK_GONE, "the connection to rank %u has ended", rank);
    return posting == COLL_POSTED;
}

/* What the other side has said of the same message is what this one has: in the same words,
 * whoever finds that it is not. */
static bool compare_sides(struct coll_pairs *machine, const struct coll_transfer *own,
                          const struct coll_note *other)
{
    const uint32_t from = own->is_send ? machine->rank : own->peer;
    const uint32_t to = own->is_send ? own->peer : machine->rank;
    if (other->type >= SW_COLL_TYPES || other->form >= COLL_FORMS ||
        (other->form == COLL_ROOM) != own->is_send) {
        pairs_accuse(machine, own->peer, "its message names what there is not");
        return false;
    }
    if (other->count == own->count && other->type == own->type)
        return true;
    pairs_fail(machine, SW_COLL_MISMATCH,
               "message %" PRIu64 " from rank %u to rank %u: rank %u sends count %" PRIu64
               " of type %s, rank %u awaits %" PRIu64 " of %s",
               own->number, from, to, from, own->is_send ? own->count : other->count,
               sw_coll_type_name(own->is_send ? own->type : other->type), to,
               own->is_send ? other->count : own->count,
               sw_coll_type_name(own->is_send ? other->type : own->type));
    return false;
}

static void end_transfer(struct coll_pairs *machine, struct coll_transfer *transfer)
{
    list_remove(&transfer->node);
    list_append(&machine->over, &transfer->node);
}

static struct coll_note note_of(const struct coll_transfer *transfer, enum coll_form form)
{
    return (struct coll_note){.count = transfer->count,
                              .type = (uint8_t)transfer->type,
                              .form = (uint8_t)form,
                              .tag = transfer->tag,
                              .mark = transfer->number};
}

/* ---- the sender ---- */

/* How far it may go in a pair: what waits holds up all of its kind behind it. */
struct send_turn {
    bool may_note, may_push;
};

/* Its place in the ring is free. */
static bool ring_has_place(struct coll_pairs *machine, const struct coll_pair *pair,
                           uint64_t number)
{
    const uint64_t taken = machine->port->look_word(machine->port->context, pair->rank, COLL_TAKEN);
    if (taken > pair->sent)
        pairs_accuse(machine, pair->rank, "it has taken what was not sent");
    return !machine->status && number <= taken + COLL_RING;
}

static bool send_note(struct coll_pairs *machine, const struct coll_pair *pair,
                      struct coll_transfer *transfer)
{
    const struct coll_pairs_port *port = machine->port;
    const bool is_long = coll_transfer_is_long(machine, transfer);
    struct coll_note note = note_of(transfer, is_long ? COLL_OFFER : COLL_SHORT);
    const void *payload = NULL;
    if (!ring_has_place(machine, pair, transfer->number))
        return false;
    if (!is_long) {
        note.payload_bytes = (uint32_t)transfer->bytes;
        if (note.payload_bytes > COLL_INLINE_MAX)
            payload = transfer->data;
        else if (note.payload_bytes)
            memcpy(note.payload, transfer->data, note.payload_bytes);
    }
    transfer->is_noted =
        is_posted(machine, pair->rank, port->note(port->context, pair->rank, &note, payload));
    return transfer->is_noted;
}

/* True: all of it, and WRITTEN behind it, has been posted. */
static bool push_message(struct coll_pairs *machine, struct coll_transfer *transfer,
                         const struct coll_note *room)
{
    const struct coll_pairs_port *port = machine->port;
    while (transfer->pushed < transfer->bytes) {
        const uint64_t piece =
            mover_min_u64(transfer->bytes - transfer->pushed, machine->piece_bytes);
        const struct coll_memory to = {room->address + transfer->pushed, room->key};
        if (!is_posted(machine, transfer->peer,
                       port->push(port->context, transfer, to, piece, &transfer->ticket)))
            return false;
        transfer->pushed += piece;
    }
    transfer->is_written =
        is_posted(machine, transfer->peer,
                  port->word(port->context, transfer->peer, COLL_WRITTEN, transfer->number));
    return transfer->is_written;
}

static void send_long(struct coll_pairs *machine, const struct coll_pair *pair,
                      struct coll_transfer *transfer, struct send_turn *turn)
{
    const struct coll_pairs_port *port = machine->port;
    if (!transfer->is_written && turn->may_push) {
        const struct coll_note *place =
            port->look(port->context, pair->rank, true, transfer->number);
        const struct coll_note room = place ? *place : (struct coll_note){.mark = 0};
        turn->may_push = place && compare_sides(machine, transfer, &room) &&
                         push_message(machine, transfer, &room);
        transfer->is_noted |= place != NULL; /* nobody needs to be told any more */
    }
    if (!transfer->is_noted && turn->may_note)
        turn->may_note = send_note(machine, pair, transfer);
    if (transfer->is_written && port->has_settled(port->context, pair->rank, transfer->ticket))
        end_transfer(machine, transfer);
}

static void go_on_sending(struct coll_pairs *machine, struct coll_pair *pair)
{
    struct send_turn turn = {true, true};
    struct list_node *at = list_first(&pair->sends), *after;
    for (; at && !machine->status; at = after) {
        struct coll_transfer *transfer = transfer_of(at);
        after = list_after(&pair->sends, at);
        if (coll_transfer_is_long(machine, transfer))
            send_long(machine, pair, transfer, &turn);
        else if (turn.may_note && (turn.may_note = send_note(machine, pair, transfer)))
            end_transfer(machine, transfer);
    }
}

/* ---- the receiver ---- */

/* The sender is done with the place that had the message COLL_RING before it. */
static void tell_rooms(struct coll_pairs *machine, struct coll_pair *pair)
{
    const struct coll_pairs_port *port = machine->port;
    struct list_node *at = list_first(&pair->recvs);
    for (; at; at = list_after(&pair->recvs, at)) {
        struct coll_transfer *transfer = transfer_of(at);
        if (transfer->number > pair->received + COLL_RING)
            return;
        if (transfer->is_noted || !coll_transfer_is_long(machine, transfer))
            continue;
        struct coll_note note = note_of(transfer, COLL_ROOM);
        note.address = transfer->memory.address;
        note.key = transfer->memory.key;
        transfer->is_noted =
            is_posted(machine, pair->rank, port->note(port->context, pair->rank, &note, NULL));
        if (!transfer->is_noted)
            return;
    }
}

/* Another rank can write to a note at any time: what was compared is a copy. */
static bool take_short(struct coll_pairs *machine, const struct coll_transfer *transfer,
                       const struct coll_note *place, const struct coll_note *note)
{
    if (note->form != COLL_SHORT || note->payload_bytes != transfer->bytes) {
        pairs_accuse(machine, transfer->peer, "its payload is not as long as its message says");
        return false;
    }
    if (transfer->bytes > COLL_INLINE_MAX)
        memcpy(transfer->data, (const uint8_t *)place - transfer->bytes, transfer->bytes);
    else if (transfer->bytes)
        memcpy(transfer->data, note->payload, transfer->bytes);
    return true;
}

static bool has_come(struct coll_pairs *machine, const struct coll_pair *pair,
                     const struct coll_transfer *transfer)
{
    const struct coll_pairs_port *port = machine->port;
    const struct coll_note *place = port->look(port->context, pair->rank, false, transfer->number);
    const bool is_long = coll_transfer_is_long(machine, transfer);
    if (place) {
        const struct coll_note note = *place;
        if (!compare_sides(machine, transfer, &note))
            return false;
        if (!is_long)
            return take_short(machine, transfer, place, &note);
        if (note.form != COLL_OFFER)
            pairs_accuse(machine, pair->rank, "its long message is a short one");
    }
    if (!is_long)
        return false;
    const uint64_t written = port->look_word(port->context, pair->rank, COLL_WRITTEN);
    if (written > pair->awaited)
        pairs_accuse(machine, pair->rank, "it has written what is not awaited");
    return !machine->status && transfer->is_noted && written >= transfer->number;
}

/* Half a ring at a time: the sender has the other half meanwhile. */
static void tell_taken(struct coll_pairs *machine, struct coll_pair *pair)
{
    const struct coll_pairs_port *port = machine->port;
    if (pair->received - pair->told < COLL_RING / 2)
        return;
    if (port->word(port->context, pair->rank, COLL_TAKEN, pair->received) != COLL_LATER)
        pair->told = pair->received; /* a peer that has gone needs no places */
}

static void go_on_receiving(struct coll_pairs *machine, struct coll_pair *pair)
{
    struct coll_transfer *first;
    tell_rooms(machine, pair);
    while (!machine->status && (first = transfer_of(list_first(&pair->recvs))) &&
           has_come(machine, pair, first)) {
        pair->received++;
        end_transfer(machine, first);
        tell_taken(machine, pair);
        tell_rooms(machine, pair);
    }
    tell_taken(machine, pair);
}

/* ---- the machine ---- */

static bool pair_is_idle(const struct coll_pair *pair)
{
    return list_is_empty(&pair->sends) && list_is_empty(&pair->recvs) &&
           pair->received - pair->told < COLL_RING / 2;
}

enum sw_coll_status coll_pairs_check(const struct coll_pairs *machine,
                                     struct coll_transfer *transfer, struct sw_coll_error *error)
{
    const char *what = transfer->is_send ? "send" : "recv", *wrong = NULL;
    const uint64_t element = sw_coll_type_bytes(transfer->type);
    uint64_t bytes = 0;
    if (transfer->peer >= machine->size)
        wrong = "there is no rank of that number";
    else if (!element)
        wrong = "there is no such type";
    else if (__builtin_mul_overflow(transfer->count, element, &bytes) || bytes > INT64_MAX)
        wrong = "the buffer would have more than 2^63 bytes";
    else if (bytes && !transfer->data)
        wrong = "the buffer is NULL";
    else if ((uintptr_t)transfer->data > UINTPTR_MAX - bytes)
        wrong = "the buffer ends behind the last address";
    transfer->bytes = bytes;
    if (!wrong)
        return SW_COLL_OK;
    if (error) {
        error->status = SW_COLL_INVALID;
        snprintf(error->text, sizeof(error->text), "%s with rank %u of %u: %s", what,
                 transfer->peer, machine->size, wrong);
    }
    return SW_COLL_INVALID;
}

void coll_pairs_post(struct coll_pairs *machine, struct coll_transfer *transfer)
{
    struct coll_pair *pair = &machine->pairs[transfer->peer];
    transfer->number = transfer->is_send ? ++pair->sent : ++pair->awaited;
    transfer->is_noted = transfer->is_written = false;
    transfer->pushed = transfer->ticket = 0;
    list_append(transfer->is_send ? &pair->sends : &pair->recvs, &transfer->node);
    if (!pair->is_busy)
        list_append(&machine->busy, &pair->node);
    pair->is_busy = true;
}

static void go_on_with_pair(struct coll_pairs *machine, struct coll_pair *pair)
{
    uint64_t before;
    if (pair->rank != machine->rank) {
        go_on_sending(machine, pair);
        if (!machine->status)
            go_on_receiving(machine, pair);
        return;
    }
    /* With itself: nobody wakes it, so it goes on until neither side can. */
    do {
        before = pair->received;
        go_on_receiving(machine, pair);
        go_on_sending(machine, pair);
    } while (!machine->status && pair->received != before);
}

enum sw_coll_status coll_pairs_go(struct coll_pairs *machine)
{
    struct list_node *at = list_first(&machine->busy), *after;
    for (; at && !machine->status; at = after) {
        struct coll_pair *pair = LIST_MEMBER(at, struct coll_pair, node);
        after = list_after(&machine->busy, at);
        go_on_with_pair(machine, pair);
        if (machine->status || !pair_is_idle(pair))
            continue;
        list_remove(&pair->node);
        pair->is_busy = false;
    }
    return machine->status;
}

enum sw_coll_status coll_pairs_probe(struct coll_pairs *machine, uint32_t peer,
                                     struct sw_coll_message *message)
{
    const struct coll_pairs_port *port = machine->port;
    const uint64_t number = machine->pairs[peer].awaited + 1;
    const struct coll_note *place = port->look(port->context, peer, false, number);
    if (machine->status || !place)
        return machine->status ? machine->status : SW_COLL_AGAIN;
    const struct coll_note note = *place;
    if (note.type >= SW_COLL_TYPES || note.form > COLL_OFFER) {
        pairs_accuse(machine, peer, "its message names what there is not");
        return machine->status;
    }
    *message = (struct sw_coll_message){
        .tag = note.tag, .count = note.count, .type = (enum sw_coll_type)note.type};
    return SW_COLL_OK;
}

struct coll_transfer *coll_pairs_drop(struct coll_pairs *machine)
{
    struct list_node *at = list_first(&machine->busy);
    for (; at; at = list_after(&machine->busy, at)) {
        const struct coll_pair *pair = LIST_MEMBER(at, struct coll_pair, node);
        struct list_node *first = list_first(&pair->sends);
        if (!first)
            first = list_first(&pair->recvs);
        if (!first)
            continue;
        list_remove(first);
        return transfer_of(first);
    }
    return NULL;
}

/* ---- what it waits for ---- */

const struct coll_transfer *coll_pair_first(const struct coll_pair *pair)
{
    struct list_node *at = list_first(&pair->recvs);
    if (at)
        return transfer_of(at);
    for (at = list_first(&pair->sends); at; at = list_after(&pair->sends, at))
        if (!transfer_of(at)->is_written)
            return transfer_of(at);
    return NULL;
}

bool coll_pair_waits(const struct coll_pair *pair)
{
    return coll_pair_first(pair);
}

void coll_transfer_waits_text(const struct coll_pairs *machine,
                              const struct coll_transfer *transfer, char *text, size_t room)
{
    if (transfer->is_written)
        snprintf(text, room, "message %" PRIu64 " to rank %u waits for its writes",
                 transfer->number, transfer->peer);
    else
        snprintf(text, room, "rank %u has not %s message %" PRIu64 " %s rank %u", transfer->peer,
                 transfer->is_send ? "received" : "sent", transfer->number,
                 transfer->is_send ? "from" : "to", machine->rank);
}
