/* SPDX-License-Identifier: BSD-2-Clause */
#include "call.h"

#include "move.h"
#include "settings.h"
#include "sum.h"
#include "wait.h"

static enum mpm_outcome leave_call(enum mpm_left reason)
{
    mpm_count_left(reason);
    return MPM_NOT_OURS;
}

static enum mpm_outcome count_outcome(bool is_done)
{
    mpm_count_ours();
    return is_done ? MPM_DONE : MPM_FAILED;
}

static bool has_root(enum sw_coll_kind kind)
{
    return kind == SW_COLL_BROADCAST || kind == SW_COLL_REDUCE || kind == SW_COLL_GATHER ||
           kind == SW_COLL_SCATTER;
}

static enum mpm_outcome run_sum(struct mpm_group *group, const struct mpm_call *call,
                                struct sw_coll_error *error)
{
    const struct mpm_binding *binding = group->binding;
    struct mpm_sum sum = {.kind = call->kind,
                          .root = (uint32_t)call->root,
                          .send = call->send.base,
                          .recv = (void *)call->recv.base,
                          .count = (uint64_t)call->recv.count,
                          .counts = call->recv.counts};
    if (!binding->find_type(call->recv.type, &sum.type) || !binding->find_op(call->op, &sum.op) ||
        call->recv.count < 0 || (call->has_counts && !sum.counts))
        return leave_call(MPM_LEFT_TYPE);
    if (!mpm_group_is_ours(group))
        return leave_call(MPM_LEFT_UNOPENED);
    if (sum.send == binding->in_place)
        sum.send = sum.recv;
    return count_outcome(mpm_sum_run(group, &sum, error));
}

/* False: MPI will say what is wrong with it. */
static bool describe_side(const struct mpm_group *group, const struct mpm_side *side,
                          struct mpm_buffer *buffer, uint32_t blocks)
{
    const struct mpm_binding *binding = group->binding;
    buffer->base = (void *)side->base;
    buffer->type = side->type;
    buffer->blocks = blocks;
    buffer->count = (uint64_t)side->count;
    buffer->counts = side->counts;
    buffer->starts = side->starts;
    enum sw_coll_type known;
    if (binding->find_type(side->type, &known)) {
        size_t bytes = sw_coll_type_bytes(known);
        buffer->is = (struct mpm_description){
            .element_bytes = bytes, .extent_bytes = (ptrdiff_t)bytes, .is_plain = true};
        return side->count >= 0;
    }
    return side->count >= 0 && binding->describe(side->type, &buffer->is);
}

/* Which buffers matter on this rank, and how many blocks they have. */
static bool choose_sides(const struct mpm_group *group, const struct mpm_call *call,
                         struct mpm_move *move)
{
    bool is_root = group->rank == move->root, is_all = call->kind == SW_COLL_ALL_TO_ALL;
    uint32_t send_blocks = 1, recv_blocks = group->size;
    if (is_all)
        send_blocks = group->size;
    if (call->kind == SW_COLL_GATHER)
        recv_blocks = is_root ? group->size : 0;
    if (call->kind == SW_COLL_SCATTER)
        send_blocks = is_root ? group->size : 0, recv_blocks = 1;
    if (call->kind == SW_COLL_BROADCAST)
        send_blocks = 0, recv_blocks = 1;
    const void *in_place = group->binding->in_place;
    if (call->send.base == in_place && call->kind != SW_COLL_SCATTER)
        send_blocks = 0, move->is_in_place = true;
    if (call->recv.base == in_place && call->kind == SW_COLL_SCATTER)
        recv_blocks = 0, move->is_in_place = true;
    if (move->is_in_place && has_root(call->kind) && !is_root)
        return false;
    if (call->has_counts && ((recv_blocks && (!call->recv.counts || !call->recv.starts)) ||
                             (is_all && send_blocks && (!call->send.counts || !call->send.starts))))
        return false;
    return (!send_blocks || describe_side(group, &call->send, &move->send, send_blocks)) &&
           (!recv_blocks || describe_side(group, &call->recv, &move->recv, recv_blocks));
}

static enum mpm_outcome run_move(struct mpm_group *group, const struct mpm_call *call,
                                 struct sw_coll_error *error)
{
    if (!mpm_group_is_ours(group))
        return leave_call(MPM_LEFT_UNOPENED);
    struct mpm_move move = {.kind = call->kind, .root = (uint32_t)call->root};
    if (!choose_sides(group, call, &move))
        return leave_call(MPM_LEFT_TYPE);
    return count_outcome(mpm_move_run(group, &move, error));
}

static enum mpm_outcome run_barrier(struct mpm_group *group, struct sw_coll_error *error)
{
    if (!mpm_group_is_ours(group))
        return leave_call(MPM_LEFT_UNOPENED);
    return count_outcome(mpm_wait(group, &(struct sw_coll_call){.kind = SW_COLL_BARRIER}, error));
}

enum mpm_outcome mpm_run(struct mpm_group *group, const struct mpm_call *call,
                         struct sw_coll_error *error)
{
    if (!group || group->state == MPM_UNFIT)
        return leave_call(MPM_LEFT_COMMUNICATOR);
    if (group->state == MPM_MPI)
        return leave_call(MPM_LEFT_UNOPENED);
    if (has_root(call->kind) && (call->root < 0 || (uint32_t)call->root >= group->size))
        return leave_call(MPM_LEFT_TYPE);
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE:
    case SW_COLL_REDUCE_SCATTER:
        return run_sum(group, call, error);
    case SW_COLL_ALL_GATHER:
    case SW_COLL_ALL_TO_ALL:
    case SW_COLL_BROADCAST:
    case SW_COLL_GATHER:
    case SW_COLL_SCATTER:
        return run_move(group, call, error);
    case SW_COLL_BARRIER:
        return run_barrier(group, error);
    case SW_COLL_KINDS:
        break;
    }
    return leave_call(MPM_LEFT_KIND);
}
