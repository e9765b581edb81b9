/* SPDX-License-Identifier: BSD-2-Clause */
#include "move.h"

#include <stdlib.h>

static bool prepare_broadcast(struct mpm_work *work)
{
    const struct mpm_binding *binding = work->group->binding;
    bool is_root = work->group->rank == work->call.root;
    struct mpm_flat *flat = is_root ? &work->send : &work->recv;
    if (!(is_root ? mpm_flat_read(flat, binding, &work->to)
                  : mpm_flat_write(flat, binding, &work->to, UINT32_MAX)))
        return false;
    work->call.send = is_root ? flat->bytes : NULL;
    work->call.recv = flat->bytes;
    work->call.count = mpm_block_bytes(&work->to, 0);
    return true;
}

/* Bytes of each block; NULL where all have those of the first, or without memory. */
static uint64_t *list_bytes(const struct mpm_buffer *buffer)
{
    if (!buffer->counts)
        return NULL;
    uint64_t *list = malloc(buffer->blocks * sizeof(*list) + 1);
    for (uint32_t i = 0; list && i < buffer->blocks; i++)
        list[i] = mpm_block_bytes(buffer, i);
    return list;
}

static bool move_count_bytes(struct mpm_work *work, bool is_in_place)
{
    bool is_exchange = work->call.kind == SW_COLL_ALL_TO_ALL;
    /* Which buffer says how long the blocks are: one that this rank has. */
    const struct mpm_buffer *said = &work->to;
    if (is_exchange ? !is_in_place : !work->to.blocks)
        said = &work->from;
    work->call.count = said->counts ? 0 : mpm_block_bytes(said, 0);
    work->call.counts = work->counts = list_bytes(said);
    if (is_exchange && said->counts)
        work->call.recv_counts = work->recv_counts = list_bytes(&work->to);
    return !said->counts || (work->counts && (!is_exchange || work->recv_counts));
}

/* In place one of the buffers is the other's block of this rank; of ALL_TO_ALL, all of it. */
static bool open_flats(struct mpm_work *work, bool is_in_place)
{
    const struct mpm_binding *binding = work->group->binding;
    struct mpm_flat *send = &work->send, *recv = &work->recv;
    if (is_in_place && work->call.kind == SW_COLL_ALL_TO_ALL)
        return mpm_flat_copy(send, binding, &work->to) &&
               mpm_flat_write(recv, binding, &work->to, UINT32_MAX);
    if (!is_in_place)
        return mpm_flat_read(send, binding, &work->from) &&
               mpm_flat_write(recv, binding, &work->to, UINT32_MAX);
    if (work->call.kind == SW_COLL_SCATTER) {
        if (!mpm_flat_read(send, binding, &work->from))
            return false;
        recv->bytes = send->bytes + mpm_block_offset(&work->from, work->group->rank);
        return true;
    }
    if (!mpm_flat_write(recv, binding, &work->to, work->group->rank))
        return false;
    send->bytes = recv->bytes + mpm_block_offset(&work->to, work->group->rank);
    return true;
}

bool mpm_move_prepare(struct mpm_work *work, bool is_in_place, struct sw_coll_error *error)
{
    work->call.type = SW_COLL_U8;
    if (work->call.kind == SW_COLL_BROADCAST)
        return prepare_broadcast(work) || mpm_lack_memory(error);
    if (!open_flats(work, is_in_place) || !move_count_bytes(work, is_in_place))
        return mpm_lack_memory(error);
    work->call.send = work->send.bytes;
    work->call.recv = work->recv.bytes;
    return true;
}
