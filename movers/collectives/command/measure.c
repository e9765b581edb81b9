/* SPDX-License-Identifier: BSD-2-Clause */
/* A row of the table: the operation so many times between two barriers, then once more for its
 * result. */
#include <string.h>

#include "collectives/command/perf.h"
#include "common/time/clock.h"

enum { SPOILT = 0xee, GUARD = 0x5a };

/* What each kind does: which factor nccl-tests gives its bandwidth, whose buffer has a block for
 * each rank. */
static const struct {
    bool is_fold, has_root, has_send_blocks, has_recv_blocks;
} kinds[SW_COLL_KINDS + 1] = {
    [SW_COLL_ALL_REDUCE] = {.is_fold = true},
    [SW_COLL_REDUCE_SCATTER] = {.is_fold = true, .has_send_blocks = true},
    [SW_COLL_ALL_GATHER] = {.has_recv_blocks = true},
    [SW_COLL_ALL_TO_ALL] = {.has_send_blocks = true, .has_recv_blocks = true},
    [SW_COLL_BROADCAST] = {.has_root = true},
    [SW_COLL_REDUCE] = {.is_fold = true, .has_root = true},
    [SW_COLL_GATHER] = {.has_root = true, .has_recv_blocks = true},
    [SW_COLL_SCATTER] = {.has_root = true, .has_send_blocks = true},
    [CO_SENDRECV] = {.is_fold = false},
};

const char *co_kind_name(enum sw_coll_kind kind)
{
    return kind == CO_SENDRECV ? "sendrecv" : sw_coll_kind_name(kind);
}

bool co_kind_folds(enum sw_coll_kind kind)
{
    return kinds[kind].is_fold;
}

bool co_kind_has_root(enum sw_coll_kind kind)
{
    return kinds[kind].has_root;
}

static uint64_t blocks_of(const struct co_row *row, uint32_t size)
{
    return kinds[row->kind].has_send_blocks || kinds[row->kind].has_recv_blocks ? size : 1;
}

struct co_row co_row_make(const struct co_asked *asked, uint64_t bytes)
{
    struct co_row row = {.kind = asked->kind,
                         .type = (enum sw_coll_type)asked->type,
                         .op = (enum sw_coll_op)asked->op,
                         .root = asked->root};
    if (row.kind == SW_COLL_BARRIER)
        return row;
    const uint64_t unit = sw_coll_type_bytes(row.type) * blocks_of(&row, asked->size);
    row.count = bytes < unit ? 1 : bytes / unit;
    row.bytes = row.count * unit;
    return row;
}

double co_row_bus_factor(const struct co_row *row, uint32_t size)
{
    const double others = (double)(size - 1) / size;
    if (row->kind == SW_COLL_ALL_REDUCE)
        return 2 * others;
    return blocks_of(row, size) > 1 ? others : 1;
}

/* ---- buffers ---- */

static struct sw_coll_call call_of_row(const struct co_job *job, const struct co_row *row,
                                       bool is_in_place)
{
    struct sw_coll_call call = {.kind = row->kind,
                                .type = row->type,
                                .op = row->op,
                                .root = row->root,
                                .count = row->count,
                                .send = job->send,
                                .recv = job->recv};
    const uint64_t own = job->place.rank * row->count * sw_coll_type_bytes(row->type);
    if (row->kind == SW_COLL_BARRIER)
        return (struct sw_coll_call){.kind = SW_COLL_BARRIER};
    if (is_in_place && kinds[row->kind].has_send_blocks)
        call.recv = job->send + own;
    else if (is_in_place)
        call.send = job->recv + (kinds[row->kind].has_recv_blocks ? own : 0);
    return call;
}

static uint64_t result_elements(const struct co_job *job, const struct co_row *row)
{
    const bool is_all = !kinds[row->kind].has_root || row->root == job->place.rank ||
                        row->kind == SW_COLL_BROADCAST || row->kind == SW_COLL_SCATTER;
    const uint64_t blocks = kinds[row->kind].has_recv_blocks ? job->place.size : 1;
    return is_all ? blocks * row->count : 0;
}

/* Behind the result. In the middle of a buffer the rest of that lies there, and where there is no
 * result in place, the contribution itself. */
static bool has_guard(const struct co_job *job, const struct co_row *row, bool is_in_place)
{
    return !is_in_place || (!kinds[row->kind].has_send_blocks && result_elements(job, row));
}

/* Its contribution into the source, nonsense into the target, and a guard behind that. */
static void fill_buffers(struct co_job *job, const struct co_row *row,
                         const struct sw_coll_call *call, bool is_in_place)
{
    const size_t element = sw_coll_type_bytes(row->type);
    const uint64_t blocks = kinds[row->kind].has_send_blocks ? job->place.size : 1;
    const uint64_t bytes = result_elements(job, row) * element;
    if (!is_in_place)
        memset(call->recv, SPOILT, bytes);
    if (has_guard(job, row, is_in_place))
        memset((uint8_t *)call->recv + bytes, GUARD, CO_GUARD_BYTES);
    if (is_in_place && kinds[row->kind].has_recv_blocks)
        memset(job->recv, SPOILT, bytes);
    co_tile_of_rank(&job->moved, row->type, row->op, job->place.rank);
    co_tile_spread(&job->moved, 0, blocks * row->count, (void *)(uintptr_t)call->send);
}

/* ---- results ---- */

static const struct co_tile *tile_of_folded(struct co_job *job, const struct co_row *row)
{
    if (job->folded_op != row->op || job->folded_type != row->type)
        co_tile_of_all(&job->folded, row->type, row->op, job->place.size);
    job->folded_op = row->op;
    job->folded_type = row->type;
    return &job->folded;
}

/* The blocks of all ranks, of which each begins at this element of what it sent. */
static uint64_t wrong_in_blocks(struct co_job *job, const struct co_row *row, uint64_t first,
                                const uint8_t *from)
{
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < job->place.size; rank++) {
        co_tile_of_rank(&job->moved, row->type, row->op, rank);
        wrong += co_tile_differs(&job->moved, first, row->count, from);
        from += row->count * sw_coll_type_bytes(row->type);
    }
    return wrong;
}

static uint64_t wrong_in_guard(const struct co_job *job, const struct co_row *row,
                               const uint8_t *recv)
{
    uint64_t wrong = 0;
    recv += result_elements(job, row) * sw_coll_type_bytes(row->type);
    for (int i = 0; i < CO_GUARD_BYTES; i++)
        wrong += recv[i] != GUARD;
    return wrong;
}

static uint32_t rank_before(const struct co_job *job)
{
    return (job->place.rank ? job->place.rank : job->place.size) - 1;
}

static uint64_t count_wrong(struct co_job *job, const struct co_row *row,
                            const struct sw_coll_call *call, bool is_in_place)
{
    const uint64_t own = job->place.rank * row->count;
    const bool is_root = row->root == job->place.rank;
    uint64_t wrong = has_guard(job, row, is_in_place) ? wrong_in_guard(job, row, call->recv) : 0;
    switch (row->kind) {
    case SW_COLL_ALL_REDUCE:
        return wrong + co_tile_differs(tile_of_folded(job, row), 0, row->count, call->recv);
    case SW_COLL_REDUCE:
        return wrong +
               (is_root ? co_tile_differs(tile_of_folded(job, row), 0, row->count, call->recv) : 0);
    case SW_COLL_REDUCE_SCATTER:
        return wrong + co_tile_differs(tile_of_folded(job, row), own, row->count, call->recv);
    case SW_COLL_ALL_GATHER:
        return wrong + wrong_in_blocks(job, row, 0, call->recv);
    case SW_COLL_GATHER:
        return wrong + (is_root ? wrong_in_blocks(job, row, 0, call->recv) : 0);
    case SW_COLL_ALL_TO_ALL:
        return wrong + wrong_in_blocks(job, row, own, call->recv);
    case SW_COLL_BROADCAST:
    case SW_COLL_SCATTER:
        co_tile_of_rank(&job->moved, row->type, row->op, row->root);
        return wrong + co_tile_differs(&job->moved, row->kind == SW_COLL_SCATTER ? own : 0,
                                       row->count, call->recv);
    case CO_SENDRECV:
        co_tile_of_rank(&job->moved, row->type, row->op, rank_before(job));
        return wrong + co_tile_differs(&job->moved, 0, row->count, call->recv);
    case SW_COLL_BARRIER:
        break;
    }
    return 0;
}

/* ---- the measurement ---- */

static enum sw_coll_status send_and_receive(const struct co_job *job,
                                            const struct sw_coll_call *call,
                                            struct sw_coll_error *error)
{
    const uint32_t next = (job->place.rank + 1) % job->place.size;
    sw_coll_group_begin(job->coll);
    enum sw_coll_status status =
        sw_coll_send(job->coll, next, call->send, call->count, call->type, 0, error);
    if (!status)
        status = sw_coll_recv(job->coll, rank_before(job), call->recv, call->count, call->type, 0,
                              error);
    const enum sw_coll_status ended = sw_coll_group_end(job->coll, status ? NULL : error);
    return status ? status : ended;
}

static enum sw_coll_status repeat_call(const struct co_job *job, const struct sw_coll_call *call,
                                       uint32_t times, struct sw_coll_error *error)
{
    enum sw_coll_status status = SW_COLL_OK;
    for (uint32_t i = 0; i < times && !status; i++)
        status = call->kind == CO_SENDRECV ? send_and_receive(job, call, error)
                                           : sw_coll_run(job->coll, call, 0, error);
    return status;
}

struct shares {
    uint64_t ns, wrong;
};

static enum sw_coll_status measure_place(struct co_job *job, const struct co_row *row,
                                         bool is_in_place, struct shares *share,
                                         struct sw_coll_error *error)
{
    const struct sw_coll_call call = call_of_row(job, row, is_in_place);
    const struct co_perf *perf = job->perf;
    if (row->kind != SW_COLL_BARRIER)
        fill_buffers(job, row, &call, is_in_place);
    enum sw_coll_status status = repeat_call(job, &call, perf->warmups, error);
    if (!status)
        status = sw_coll_barrier(job->coll, 0, error);
    const uint64_t start_ns = mover_now_ns();
    if (!status)
        status = repeat_call(job, &call, perf->iterations, error);
    share->ns = (mover_now_ns() - start_ns) / perf->iterations;
    if (status || !perf->is_checked || row->kind == SW_COLL_BARRIER)
        return status;
    fill_buffers(job, row, &call, is_in_place);
    status = repeat_call(job, &call, 1, error);
    if (!status)
        share->wrong = count_wrong(job, row, &call, is_in_place);
    return status;
}

/* All ranks' shares of both ways, to all. */
static enum sw_coll_status add_shares(const struct co_job *job, const struct shares own[2],
                                      struct co_figures figures[2], struct sw_coll_error *error)
{
    enum { WORDS = 4 };
    uint64_t *all = (uint64_t *)job->recv;
    const struct sw_coll_call call = {
        .kind = SW_COLL_ALL_GATHER, .type = SW_COLL_U64, .send = own, .recv = all, .count = WORDS};
    const enum sw_coll_status status = sw_coll_run(job->coll, &call, 0, error);
    for (uint32_t i = 0; !status && i < job->place.size; i++)
        for (uint32_t way = 0; way < 2; way++) {
            figures[way].seconds += (double)all[i * WORDS + 2 * way] / 1e9 / job->place.size;
            figures[way].wrong += all[i * WORDS + 2 * way + 1];
        }
    return status;
}

static bool is_done_in_place(enum sw_coll_kind kind)
{
    return kind != SW_COLL_ALL_TO_ALL && kind != SW_COLL_BARRIER && kind != CO_SENDRECV;
}

enum sw_coll_status co_measure(struct co_job *job, const struct co_row *row,
                               struct co_figures figures[2], struct sw_coll_error *error)
{
    enum sw_coll_status status = SW_COLL_OK;
    struct shares shares[2] = {0};
    for (int way = 0; way < 2 && !status; way++) {
        figures[way] = (struct co_figures){.is_there = !way || is_done_in_place(row->kind)};
        if (figures[way].is_there)
            status = measure_place(job, row, way, &shares[way], error);
    }
    return status ? status : add_shares(job, shares, figures, error);
}
