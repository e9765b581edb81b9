/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/moves.h"

#include <assert.h>
#include <string.h>

#include "collectives/core/fold.h"
#include "collectives/core/messages.h"

/* ---- where things are ---- */

static const uint8_t *mailed_payload(const struct coll_machine *machine, uint32_t rank)
{
    const struct coll_record *record = &machine->records[rank];
    return record->payload_bytes <= COLL_INLINE_MAX
               ? record->payload
               : machine->mails[rank].payload_end - record->payload_bytes;
}

uint64_t coll_offset_in(const struct coll_span *span, uint32_t rank, uint32_t leaf, uint64_t chunk)
{
    return span->offset + chunk * span->chunk + rank * span->peer + leaf * span->leaf;
}

uint8_t *coll_local_at(const struct coll_machine *machine, const struct coll_span *span,
                       uint32_t rank, uint32_t leaf, uint64_t chunk)
{
    const struct coll_site *site = &machine->site;
    switch (span->place) {
    case COLL_SEND:
        return (uint8_t *)machine->call.send + coll_offset_in(span, rank, leaf, chunk);
    case COLL_RECV:
        return (uint8_t *)machine->call.recv + coll_offset_in(span, rank, leaf, chunk);
    case COLL_SCRATCH:
        rank = rank > site->rank ? rank - site->rank - 1 : rank + site->size - site->rank - 1;
        return machine->scratch + coll_offset_in(span, rank, leaf, chunk & 1);
    case COLL_MAILED:
        return (uint8_t *)mailed_payload(machine, rank) + coll_offset_in(span, 0, leaf, chunk);
    case COLL_NOWHERE:
        break;
    }
    assert(false);
    return NULL;
}

static struct coll_memory remote_at(const struct coll_machine *machine,
                                    const struct coll_span *span, uint32_t rank, uint32_t leaf,
                                    uint64_t chunk)
{
    const struct coll_record *record = &machine->records[rank];
    const uint64_t offset = coll_offset_in(span, rank, leaf, chunk);
    if (span->place == COLL_SEND)
        return (struct coll_memory){record->send_address + offset, record->send_key};
    assert(span->place == COLL_RECV);
    return (struct coll_memory){record->recv_address + offset, record->recv_key};
}

/* How much of a step's bytes are in that chunk. */
static uint64_t bytes_in_chunk(const struct coll_machine *machine, const struct coll_step *step,
                               uint64_t chunk)
{
    const struct coll_table *table = &machine->table;
    if (machine->step < table->loop || machine->step >= table->loop_end)
        return step->bytes;
    const uint64_t before = chunk * table->chunk;
    return before < step->bytes ? mover_min_u64(step->bytes - before, table->chunk) : 0;
}

/* ---- pulls and pushes ---- */

bool coll_has_settled(struct coll_machine *machine, uint64_t number)
{
    if (machine->settled < number)
        machine->settled = machine->port->settled(machine->port->context);
    return machine->settled >= number;
}

static bool post_request(struct coll_machine *machine, const struct coll_step *step, uint32_t peer,
                         uint32_t leaf, uint64_t chunk, size_t bytes)
{
    const struct coll_port *port = machine->port;
    if (step->action == COLL_PULL)
        return port->pull(port->context, peer, coll_local_at(machine, &step->to, peer, leaf, chunk),
                          remote_at(machine, &step->from, peer, leaf, chunk), bytes);
    return port->push(port->context, peer, coll_local_at(machine, &step->from, peer, leaf, chunk),
                      remote_at(machine, &step->to, peer, leaf, chunk), bytes);
}

bool coll_post_step(struct coll_machine *machine, const struct coll_step *step)
{
    const uint64_t chunk = machine->chunk + step->is_ahead;
    const uint64_t bytes = bytes_in_chunk(machine, step, chunk);
    const uint32_t requests = bytes ? step->peers * step->leaves : 0;
    for (; machine->cursor < requests; machine->cursor++) {
        const uint32_t peer = coll_peer_of(machine, step->peer, machine->cursor / step->leaves);
        if (machine->posted >= machine->port->posts_max &&
            !coll_has_settled(machine, machine->posted - machine->port->posts_max + 1))
            return false;
        if (!post_request(machine, step, peer, machine->cursor % step->leaves, chunk, bytes))
            return coll_lose_rank(machine, peer);
        machine->posted++;
    }
    machine->cursor = 0;
    if (step->action == COLL_PULL)
        machine->pulled[chunk & 1] = machine->posted;
    return true;
}

/* ---- on this rank ---- */

void coll_fold_step(struct coll_machine *machine, const struct coll_step *step)
{
    const struct coll_site *site = &machine->site;
    const uint64_t chunk = machine->chunk, bytes = bytes_in_chunk(machine, step, chunk);
    const void **source = machine->sources;
    if (!bytes)
        return;
    for (uint32_t rank = 0; rank < site->size; rank++) {
        const struct coll_span *span = rank == site->rank ? &step->own : &step->from;
        for (uint32_t leaf = 0; leaf < step->leaves; leaf++)
            *source++ = coll_local_at(machine, span, rank, leaf, chunk);
    }
    coll_fold(machine->call.type, machine->call.op,
              coll_local_at(machine, &step->to, site->rank, 0, chunk), machine->sources,
              site->size * step->leaves, bytes >> machine->type_shift);
}

void coll_copy_step(struct coll_machine *machine, const struct coll_step *step)
{
    const uint64_t bytes = bytes_in_chunk(machine, step, machine->chunk);
    /* A root that broadcasts `send` need not have `recv`. */
    if (!bytes || !machine->call.recv)
        return;
    for (uint32_t i = 0; i < step->peers; i++) {
        const uint32_t peer = coll_peer_of(machine, step->peer, i);
        const uint8_t *from = coll_local_at(machine, &step->from, peer, 0, machine->chunk);
        uint8_t *to = coll_local_at(machine, &step->to, peer, 0, machine->chunk);
        if (to != from)
            memcpy(to, from, bytes);
    }
}
