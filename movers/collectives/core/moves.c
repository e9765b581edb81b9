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
    const bool is_scratch = span->place == COLL_SCRATCH;
    const uint64_t offset = coll_offset_in(span, rank, leaf, is_scratch ? chunk & 1 : chunk);
    if (span->place == COLL_SEND || is_scratch)
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
    const uint64_t before = chunk * table->chunk + step->skip;
    const uint64_t most = step->part ? step->part : table->chunk;
    return before < step->bytes ? mover_min_u64(step->bytes - before, most) : 0;
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
    const uint64_t length = step->is_partial ? bytes << machine->partial_shift : bytes;
    const uint32_t requests = bytes ? step->peers * step->leaves : 0;
    for (; machine->cursor < requests; machine->cursor++) {
        const uint32_t peer = coll_peer_of(machine, step->peer, machine->cursor / step->leaves);
        if (machine->posted >= machine->port->posts_max &&
            !coll_has_settled(machine, machine->posted - machine->port->posts_max + 1))
            return false;
        if (!post_request(machine, step, peer, machine->cursor % step->leaves, chunk, length))
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
    for (uint32_t place = 0; place < site->size; place++) {
        const uint32_t rank = coll_rank_at(site, place);
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

/* ---- rounds ---- */

void coll_fold_pair_step(struct coll_machine *machine, const struct coll_step *step)
{
    const uint64_t chunk = machine->chunk, bytes = bytes_in_chunk(machine, step, chunk);
    const uint32_t own = machine->site.rank;
    const bool is_alone = step->from.place == COLL_NOWHERE;
    const struct coll_span *spans[2] = {&step->own, &step->from};
    const void **source = machine->sources;
    if (!bytes)
        return;
    if (!is_alone && step->peer < coll_place_of(&machine->site, own))
        spans[0] = &step->from, spans[1] = &step->own;
    for (unsigned i = 0; i < (is_alone ? 1 : 2); i++)
        for (uint32_t leaf = 0; leaf < step->leaves; leaf++)
            *source++ = coll_local_at(machine, spans[i], own, leaf, chunk);
    (step->action == COLL_FOLD_LEAVES ? coll_fold_leaves : coll_fold_partials)(
        machine->call.type, machine->call.op, coll_local_at(machine, &step->to, own, 0, chunk),
        machine->sources, (unsigned)(source - machine->sources), bytes >> machine->type_shift);
}

void coll_finish_step(struct coll_machine *machine, const struct coll_step *step)
{
    const uint64_t chunk = machine->chunk, bytes = bytes_in_chunk(machine, step, chunk);
    const uint32_t own = machine->site.rank;
    if (bytes)
        coll_fold_finish(
            machine->call.type, machine->call.op, machine->site.size * machine->call.leaves,
            coll_local_at(machine, &step->to, own, 0, chunk),
            coll_local_at(machine, &step->from, own, 0, chunk), bytes >> machine->type_shift);
}

/* What is in the block of that rank. */
static bool deliver_part(struct coll_machine *machine, uint32_t rank, const uint8_t *from,
                         uint64_t at, size_t bytes)
{
    const struct coll_port *port = machine->port;
    const struct coll_record *record = &machine->records[rank];
    if (rank == machine->site.rank) {
        memcpy((uint8_t *)machine->call.recv + at, from, bytes);
        return true;
    }
    machine->posted++;
    return port->push(port->context, rank, from,
                      (struct coll_memory){record->recv_address + at, record->recv_key}, bytes);
}

bool coll_deliver_step(struct coll_machine *machine, const struct coll_step *step)
{
    const struct sw_coll_call *call = &machine->call;
    const uint64_t begin = machine->chunk * machine->table.chunk + step->skip;
    const uint64_t end = begin + bytes_in_chunk(machine, step, machine->chunk);
    const uint8_t *from =
        coll_local_at(machine, &step->from, machine->site.rank, 0, machine->chunk);
    uint64_t block = coll_blocks_before(call->counts, call->count, machine->cursor)
                     << machine->type_shift;
    for (; machine->cursor < machine->site.size && block < end; machine->cursor++) {
        const uint64_t count = call->counts ? call->counts[machine->cursor] : call->count;
        const uint64_t next = block + (count << machine->type_shift);
        const uint64_t first = mover_max_u64(begin, block), last = mover_min_u64(end, next);
        if (machine->posted >= machine->port->posts_max &&
            !coll_has_settled(machine, machine->posted - machine->port->posts_max + 1))
            return false;
        if (first < last && !deliver_part(machine, machine->cursor, from + (first - begin),
                                          first - block, last - first))
            return coll_lose_rank(machine, machine->cursor);
        block = next;
    }
    machine->cursor = 0;
    return true;
}
