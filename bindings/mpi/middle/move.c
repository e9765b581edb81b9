/* SPDX-License-Identifier: BSD-2-Clause */
#include "move.h"

#include <stdio.h>
#include <stdlib.h>

#include "wait.h"

bool mpm_lack_memory(struct sw_coll_error *error)
{
    error->status = SW_COLL_NO_MEMORY;
    snprintf(error->text, sizeof(error->text),
             "no memory for a copy of what has gaps, or MPI does not pack its type");
    return false;
}

static bool move_broadcast(struct mpm_group *group, const struct mpm_move *move,
                           struct sw_coll_error *error)
{
    const struct mpm_buffer *buffer = &move->recv;
    bool is_root = group->rank == move->root;
    struct mpm_flat flat;
    bool is_ready = is_root ? mpm_flat_read(&flat, group->binding, buffer)
                            : mpm_flat_write(&flat, group->binding, buffer, UINT32_MAX);
    const struct sw_coll_call call = {.kind = SW_COLL_BROADCAST,
                                      .type = SW_COLL_U8,
                                      .root = move->root,
                                      .send = is_root ? flat.bytes : NULL,
                                      .recv = flat.bytes,
                                      .count = mpm_block_bytes(buffer, 0)};
    bool is_done = is_ready ? mpm_wait(group, &call, error) : mpm_lack_memory(error);
    if (is_done && !is_root && !mpm_flat_store(&flat))
        is_done = mpm_lack_memory(error);
    mpm_flat_free(&flat);
    return is_done;
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

static bool run_flat(struct mpm_group *group, const struct mpm_move *move,
                     const struct mpm_flat *send, const struct mpm_flat *recv,
                     struct sw_coll_error *error)
{
    bool is_exchange = move->kind == SW_COLL_ALL_TO_ALL;
    /* Which buffer says how long the blocks are: one that this rank has. */
    const struct mpm_buffer *said = &move->recv;
    if (is_exchange ? !move->is_in_place : !move->recv.blocks)
        said = &move->send;
    struct sw_coll_call call = {.kind = move->kind,
                                .type = SW_COLL_U8,
                                .root = move->root,
                                .send = send->bytes,
                                .recv = recv->bytes,
                                .count = said->counts ? 0 : mpm_block_bytes(said, 0)};
    uint64_t *counts = list_bytes(said), *recv_counts = NULL;
    bool is_ready = counts || !said->counts;
    if (is_exchange && said->counts) {
        recv_counts = list_bytes(&move->recv);
        is_ready = is_ready && recv_counts;
    }
    call.counts = counts;
    call.recv_counts = recv_counts;
    bool is_done = is_ready ? mpm_wait(group, &call, error) : mpm_lack_memory(error);
    free(counts);
    free(recv_counts);
    return is_done;
}

/* In place one of the buffers is the other's block of this rank; of ALL_TO_ALL, all of it. */
static bool open_flats(struct mpm_group *group, const struct mpm_move *move, struct mpm_flat *send,
                       struct mpm_flat *recv)
{
    const struct mpm_binding *binding = group->binding;
    if (move->is_in_place && move->kind == SW_COLL_ALL_TO_ALL)
        return mpm_flat_copy(send, binding, &move->recv) &&
               mpm_flat_write(recv, binding, &move->recv, UINT32_MAX);
    if (!move->is_in_place)
        return mpm_flat_read(send, binding, &move->send) &&
               mpm_flat_write(recv, binding, &move->recv, UINT32_MAX);
    if (move->kind == SW_COLL_SCATTER) {
        if (!mpm_flat_read(send, binding, &move->send))
            return false;
        recv->bytes = send->bytes + mpm_block_offset(&move->send, group->rank);
        return true;
    }
    if (!mpm_flat_write(recv, binding, &move->recv, group->rank))
        return false;
    send->bytes = recv->bytes + mpm_block_offset(&move->recv, group->rank);
    return true;
}

bool mpm_move_run(struct mpm_group *group, const struct mpm_move *move, struct sw_coll_error *error)
{
    if (move->kind == SW_COLL_BROADCAST)
        return move_broadcast(group, move, error);
    struct mpm_flat send = {0}, recv = {0};
    bool is_done = open_flats(group, move, &send, &recv)
                       ? run_flat(group, move, &send, &recv, error)
                       : mpm_lack_memory(error);
    if (is_done && !mpm_flat_store(&recv))
        is_done = mpm_lack_memory(error);
    mpm_flat_free(&send);
    mpm_flat_free(&recv);
    return is_done;
}
