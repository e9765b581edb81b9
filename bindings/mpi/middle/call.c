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

static bool has_root(enum sw_coll_kind kind)
{
    return kind == SW_COLL_BROADCAST || kind == SW_COLL_REDUCE || kind == SW_COLL_GATHER ||
           kind == SW_COLL_SCATTER;
}

/* MPI says what is wrong with others. */
static bool are_counts_sane(const int *counts, uint32_t blocks)
{
    for (uint32_t i = 0; counts && i < blocks; i++)
        if (counts[i] < 0)
            return false;
    return true;
}

/* ---- whether it is ours, and as which operation of the library; MPM_DONE: prepared ---- */

static enum mpm_outcome prepare_sum(struct mpm_work *work, const struct mpm_call *call,
                                    struct sw_coll_error *error)
{
    const struct mpm_binding *binding = work->group->binding;
    work->call.send = call->send.base == binding->in_place ? call->recv.base : call->send.base;
    work->call.recv = (void *)call->recv.base;
    work->call.count = (uint64_t)call->recv.count;
    if (!binding->find_type(call->recv.type, &work->call.type) ||
        !binding->find_op(call->op, &work->call.op) || call->recv.count < 0 ||
        (call->has_counts && !call->recv.counts) ||
        !are_counts_sane(call->recv.counts, work->group->size))
        return leave_call(MPM_LEFT_TYPE);
    if (!mpm_group_is_ours(work->group))
        return leave_call(MPM_LEFT_UNOPENED);
    return mpm_sum_prepare(work, call->recv.counts, error) ? MPM_DONE : MPM_FAILED;
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
    if (!are_counts_sane(side->counts, blocks))
        return false;
    if (binding->find_type(side->type, &known)) {
        size_t bytes = sw_coll_type_bytes(known);
        buffer->is = (struct mpm_description){
            .element_bytes = bytes, .extent_bytes = (ptrdiff_t)bytes, .is_plain = true};
        return side->count >= 0;
    }
    return side->count >= 0 && binding->describe(side->type, &buffer->is);
}

/* Which buffers matter on this rank, and how many blocks they have. */
static bool choose_sides(struct mpm_work *work, const struct mpm_call *call, bool *is_in_place)
{
    const struct mpm_group *group = work->group;
    bool is_root = group->rank == work->call.root, is_all = call->kind == SW_COLL_ALL_TO_ALL;
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
        send_blocks = 0, *is_in_place = true;
    if (call->recv.base == in_place && call->kind == SW_COLL_SCATTER)
        recv_blocks = 0, *is_in_place = true;
    if (*is_in_place && has_root(call->kind) && !is_root)
        return false;
    if (call->has_counts && ((recv_blocks && (!call->recv.counts || !call->recv.starts)) ||
                             (is_all && send_blocks && (!call->send.counts || !call->send.starts))))
        return false;
    return (!send_blocks || describe_side(group, &call->send, &work->from, send_blocks)) &&
           (!recv_blocks || describe_side(group, &call->recv, &work->to, recv_blocks));
}

static enum mpm_outcome call_prepare_move(struct mpm_work *work, const struct mpm_call *call,
                                          struct sw_coll_error *error)
{
    if (!mpm_group_is_ours(work->group))
        return leave_call(MPM_LEFT_UNOPENED);
    bool is_in_place = false;
    if (!choose_sides(work, call, &is_in_place))
        return leave_call(MPM_LEFT_TYPE);
    return mpm_move_prepare(work, is_in_place, error) ? MPM_DONE : MPM_FAILED;
}

static enum mpm_outcome prepare_barrier(struct mpm_work *work)
{
    return mpm_group_is_ours(work->group) ? MPM_DONE : leave_call(MPM_LEFT_UNOPENED);
}

enum mpm_outcome mpm_prepare(struct mpm_work *work, struct mpm_group *group,
                             const struct mpm_call *call, struct sw_coll_error *error)
{
    if (!group || group->state == MPM_UNFIT)
        return leave_call(MPM_LEFT_COMMUNICATOR);
    if (group->state == MPM_MPI)
        return leave_call(MPM_LEFT_UNOPENED);
    if (has_root(call->kind) && (call->root < 0 || (uint32_t)call->root >= group->size))
        return leave_call(MPM_LEFT_TYPE);
    work->group = group;
    work->call.kind = call->kind;
    work->call.root = (uint32_t)call->root;
    enum mpm_outcome outcome = MPM_NOT_OURS;
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE:
    case SW_COLL_REDUCE_SCATTER:
        outcome = prepare_sum(work, call, error);
        break;
    case SW_COLL_ALL_GATHER:
    case SW_COLL_ALL_TO_ALL:
    case SW_COLL_BROADCAST:
    case SW_COLL_GATHER:
    case SW_COLL_SCATTER:
        outcome = call_prepare_move(work, call, error);
        break;
    case SW_COLL_BARRIER:
        outcome = prepare_barrier(work);
        break;
    case SW_COLL_KINDS:
        return leave_call(MPM_LEFT_KIND);
    }
    if (outcome != MPM_NOT_OURS)
        mpm_count_ours();
    return outcome;
}

enum mpm_outcome mpm_run(struct mpm_group *group, const struct mpm_call *call,
                         struct sw_coll_error *error)
{
    struct mpm_work work = {0};
    enum mpm_outcome outcome = mpm_prepare(&work, group, call, error);
    if (outcome == MPM_DONE &&
        !(mpm_wait(group, &work.call, error) && mpm_work_store(&work, error)))
        outcome = MPM_FAILED;
    mpm_work_free(&work);
    return outcome;
}
