/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that knows nothing of Sidewire: drawn non-blocking collective calls, several of
 * which are under way at a time, beside messages and calls that block. Each way of completing them
 * is taken, another one on each rank.
 *
 * usage: pending SEED ROUNDS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draws.h"

enum { UNDER_WAY_MAX = 6, RANKS_MAX = 16, LARGE = 300000, GUARD = 0xa5 };
enum kind {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    REDUCE_BLOCK,
    BROADCAST,
    ALL_GATHER,
    ALL_GATHER_V,
    ALL_TO_ALL,
    ALL_TO_ALL_V,
    GATHER,
    SCATTER,
    BARRIER,
    KINDS
};

struct pending {
    enum kind kind;
    uint64_t number;
    const struct draw_type *type;
    enum draw_op op;
    int root, count;
    bool has_pairs; /* what is received lies in pairs, of which the second element comes first */
    int counts[RANKS_MAX], starts[RANKS_MAX];
    uint8_t *send, *recv, *expected;
    size_t expected_bytes;
};

static int rank, size;
static long checks;
static MPI_Comm communicator;

static size_t bytes_of(const struct pending *one, int count)
{
    return (size_t)count * one->type->bytes;
}

static void draw_call(struct pending *one, uint64_t number)
{
    *one = (struct pending){.number = number};
    one->kind = (enum kind)draw_next(KINDS);
    one->type = &draw_types[draw_next((uint32_t)draw_type_count)];
    one->op = (enum draw_op)draw_next(DRAW_OPS);
    one->root = (int)draw_next((uint32_t)size);
    one->count = 2 * (int)draw_next(draw_next(4) ? 50 : 5000);
    one->has_pairs = draw_next(3) == 0;
    int end = 0;
    for (int i = 0; i < size; i++) {
        one->counts[i] = (int)draw_next((uint32_t)one->count + 1);
        one->starts[i] = end;
        end += one->counts[i];
    }
    size_t all = bytes_of(one, one->count * size + 8);
    one->send = malloc(all), one->recv = malloc(all), one->expected = malloc(all);
    memset(one->recv, GUARD, all);
}

static void fill(const struct pending *one, int from, size_t first, int count, void *to)
{
    draw_fill(one->type, one->number, from, first, (size_t)count, to);
}

/* What rank `from` has for rank `to` in an all-to-all of unequal counts: alike both ways. */
static int pair_count(const struct pending *one, int from, int to)
{
    return (one->counts[from] + one->counts[to]) / 2;
}

static int all_counts(const struct pending *one, int of)
{
    int all = 0;
    for (int i = 0; i < size; i++)
        all += pair_count(one, of, i);
    return all;
}

/* ---- what has to come ---- */

static void expect_sum(struct pending *one, size_t first, int count)
{
    one->expected_bytes = bytes_of(one, count);
    draw_sum(one->type, one->op, one->number, size, first, (size_t)count, one->expected);
}

static void expect_moved(struct pending *one, int from, size_t first, int count)
{
    fill(one, from, first, count, one->expected + one->expected_bytes);
    one->expected_bytes += bytes_of(one, count);
}

static void swap_pairs(const struct pending *one)
{
    size_t bytes = one->type->bytes;
    for (size_t at = 0; at + 2 * bytes <= one->expected_bytes; at += 2 * bytes) {
        uint8_t kept[16];
        memcpy(kept, one->expected + at, bytes);
        memcpy(one->expected + at, one->expected + at + bytes, bytes);
        memcpy(one->expected + at + bytes, kept, bytes);
    }
}

static void expect_result(struct pending *one)
{
    bool is_root = rank == one->root;
    size_t count = (size_t)one->count, own = (size_t)rank;
    switch (one->kind) {
    case ALL_REDUCE:
        expect_sum(one, 0, one->count);
        break;
    case REDUCE:
        expect_sum(one, 0, is_root ? one->count : 0);
        break;
    case REDUCE_SCATTER:
        expect_sum(one, (size_t)one->starts[rank], one->counts[rank]);
        break;
    case REDUCE_BLOCK:
        expect_sum(one, own * count, one->count);
        break;
    case BROADCAST:
        expect_moved(one, one->root, 0, one->count);
        break;
    case SCATTER:
        expect_moved(one, one->root, own * count, one->count);
        break;
    case ALL_GATHER:
    case ALL_GATHER_V:
    case ALL_TO_ALL:
    case ALL_TO_ALL_V:
    case GATHER:
        for (int i = 0; i < size && (one->kind != GATHER || is_root); i++) {
            size_t first = 0;
            for (int j = 0; one->kind == ALL_TO_ALL_V && j < rank; j++)
                first += (size_t)pair_count(one, i, j);
            if (one->kind == ALL_TO_ALL)
                first = own * count;
            expect_moved(one, i, first,
                         one->kind == ALL_TO_ALL_V   ? pair_count(one, i, rank)
                         : one->kind == ALL_GATHER_V ? one->counts[i]
                                                     : one->count);
        }
        break;
    case BARRIER:
    case KINDS:
        break;
    }
}

static void check_result(const struct pending *one)
{
    /* The root of a broadcast sends from where the others receive. */
    if (memcmp(one->recv, one->expected, one->expected_bytes)) {
        fprintf(stderr, "rank %d of %d: call %llu, kind %d of %d %s, root %d%s: wrong data\n", rank,
                size, (unsigned long long)one->number, (int)one->kind, one->count, one->type->name,
                one->root, one->has_pairs ? ", pairs" : "");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = one->expected_bytes; i < one->expected_bytes + one->type->bytes; i++) {
        if (one->recv[i] != GUARD && one->kind != BARRIER) {
            fprintf(stderr, "rank %d: call %llu: a byte behind the buffer was touched\n", rank,
                    (unsigned long long)one->number);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    checks++;
}

/* ---- calls ---- */

static void begin_sum(const struct pending *one, MPI_Request *request)
{
    MPI_Datatype type = one->type->handle;
    MPI_Op op = draw_op_handle(one->op);
    int all = one->kind == REDUCE_BLOCK     ? one->count * size
              : one->kind == REDUCE_SCATTER ? one->starts[size - 1] + one->counts[size - 1]
                                            : one->count;
    fill(one, rank, 0, all, one->send);
    switch (one->kind) {
    case ALL_REDUCE:
        if (one->has_pairs)
            memcpy(one->recv, one->send, bytes_of(one, one->count));
        MPI_Iallreduce(one->has_pairs ? MPI_IN_PLACE : one->send, one->recv, one->count, type, op,
                       communicator, request);
        break;
    case REDUCE:
        MPI_Ireduce(one->send, one->recv, one->count, type, op, one->root, communicator, request);
        break;
    case REDUCE_SCATTER:
        MPI_Ireduce_scatter(one->send, one->recv, one->counts, type, op, communicator, request);
        break;
    default:
        MPI_Ireduce_scatter_block(one->send, one->recv, one->count, type, op, communicator,
                                  request);
        break;
    }
}

/* The type of what is received is freed as soon as the call has begun. */
static void begin_equal(struct pending *one, MPI_Request *request)
{
    MPI_Datatype type = one->type->handle, into = type;
    int count = one->count, into_count = count;
    bool is_sender = one->kind == BROADCAST && rank == one->root;
    if (one->has_pairs && !is_sender) {
        MPI_Type_indexed(2, (int[]){1, 1}, (int[]){1, 0}, type, &into);
        MPI_Type_commit(&into);
        into_count /= 2;
        swap_pairs(one);
    }
    int all = one->kind == SCATTER || one->kind == ALL_TO_ALL ? count * size : count;
    fill(one, rank, 0, all, is_sender ? one->recv : one->send);
    if (one->kind == BROADCAST)
        MPI_Ibcast(one->recv, into_count, into, one->root, communicator, request);
    else if (one->kind == ALL_GATHER)
        MPI_Iallgather(one->send, count, type, one->recv, into_count, into, communicator, request);
    else if (one->kind == ALL_TO_ALL)
        MPI_Ialltoall(one->send, count, type, one->recv, into_count, into, communicator, request);
    else if (one->kind == GATHER)
        MPI_Igather(one->send, count, type, one->recv, into_count, into, one->root, communicator,
                    request);
    else
        MPI_Iscatter(one->send, count, type, one->recv, into_count, into, one->root, communicator,
                     request);
    if (into != type)
        MPI_Type_free(&into);
}

static void begin_unequal(struct pending *one, MPI_Request *request)
{
    MPI_Datatype type = one->type->handle;
    if (one->kind == ALL_GATHER_V) {
        fill(one, rank, 0, one->counts[rank], one->send);
        MPI_Iallgatherv(one->send, one->counts[rank], type, one->recv, one->counts, one->starts,
                        type, communicator, request);
        return;
    }
    fill(one, rank, 0, all_counts(one, rank), one->send);
    int counts[RANKS_MAX], end = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = pair_count(one, rank, i);
        one->starts[i] = end;
        end += counts[i];
    }
    memcpy(one->counts, counts, sizeof(counts));
    MPI_Ialltoallv(one->send, one->counts, one->starts, type, one->recv, one->counts, one->starts,
                   type, communicator, request);
}

static void begin_call(struct pending *one, MPI_Request *request)
{
    expect_result(one);
    if (one->kind <= REDUCE_BLOCK)
        begin_sum(one, request);
    else if (one->kind == ALL_GATHER_V || one->kind == ALL_TO_ALL_V)
        begin_unequal(one, request);
    else if (one->kind == BARRIER)
        MPI_Ibarrier(communicator, request);
    else
        begin_equal(one, request);
}

/* ---- rounds ---- */

static void complete_each(int count, MPI_Request *requests, int way)
{
    int done = 0, is_done = 0, index, indices[UNDER_WAY_MAX];
    MPI_Status statuses[UNDER_WAY_MAX];
    switch (way) {
    case 0:
        MPI_Waitall(count, requests, statuses);
        return;
    case 1:
        for (int i = count; i-- > 0;)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        return;
    case 2:
        for (int i = 0; i < count; i++)
            MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
        return;
    case 3:
        for (int i = 0; i < count; i += done)
            MPI_Waitsome(count, requests, &done, indices, statuses);
        return;
    case 4:
        for (int i = 0; i < count; i++, is_done = 0) {
            while (!is_done)
                MPI_Test(&requests[i], &is_done, MPI_STATUS_IGNORE);
        }
        return;
    default:
        while (!is_done)
            MPI_Testall(count, requests, &is_done, statuses);
        return;
    }
}

/* Others have sums meanwhile, and messages go round. */
static void do_something_else(uint64_t number)
{
    int own = rank, sum = 0, from = -1;
    if (draw_next(2)) {
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, communicator);
        if (sum != size * (size - 1) / 2)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (draw_next(2)) {
        int tag = (int)(number % 1000);
        MPI_Sendrecv(&own, 1, MPI_INT, (rank + 1) % size, tag, &from, 1, MPI_INT,
                     (rank + size - 1) % size, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (from != (rank + size - 1) % size)
            MPI_Abort(MPI_COMM_WORLD, 4);
    }
}

static void go_round(uint64_t number)
{
    struct pending calls[UNDER_WAY_MAX];
    MPI_Request requests[UNDER_WAY_MAX + 1];
    int count = 1 + (int)draw_next(UNDER_WAY_MAX);
    for (int i = 0; i < count; i++) {
        draw_call(&calls[i], number * UNDER_WAY_MAX + (uint64_t)i);
        begin_call(&calls[i], &requests[i]);
        if (draw_next(3) == 0)
            do_something_else(number);
    }
    complete_each(count, requests, (int)((number + (uint64_t)rank) % 6));
    for (int i = 0; i < count; i++) {
        check_result(&calls[i]);
        free(calls[i].send), free(calls[i].recv), free(calls[i].expected);
    }
}

/* A rank waits for a message that comes when its own call, which nobody waits for there, is done on
 * the other one. */
static void go_on_alone(void)
{
    double *mine = calloc(LARGE, sizeof(*mine)), *sum = calloc(LARGE, sizeof(*sum));
    int word = 0;
    for (int i = 0; i < LARGE; i++)
        mine[i] = rank;
    MPI_Request request;
    MPI_Iallreduce(mine, sum, LARGE, MPI_DOUBLE, MPI_SUM, communicator, &request);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(&word, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    if (sum[LARGE - 1] != size * (size - 1) / 2.0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    free(mine);
    free(sum);
}

/* Begun before its communicator is freed, ended after that. */
static void free_before_the_end(void)
{
    MPI_Comm copy;
    int own = 1, sum = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    MPI_Request request;
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, copy, &request);
    MPI_Comm_free(&copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (sum != size)
        MPI_Abort(MPI_COMM_WORLD, 6);
}

/* A communicator that is made meanwhile, for which MPI has steps of its own at its own time. */
static void copy_meanwhile(void)
{
    MPI_Comm copy;
    MPI_Request request;
    int own = rank, sum = 0;
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    for (int i = 0; i < 20; i++)
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    if (sum != size * (size - 1) / 2)
        MPI_Abort(MPI_COMM_WORLD, 7);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    communicator = MPI_COMM_WORLD;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    if (argc != 3 || size > RANKS_MAX)
        MPI_Abort(communicator, 2);
    draw_begin((uint64_t)atoll(argv[1]));
    MPI_Barrier(communicator); /* it opens the communicator for the others */
    for (int i = 0; i < atoi(argv[2]); i++)
        go_round((uint64_t)i);
    go_on_alone();
    free_before_the_end();
    copy_meanwhile();
    long all = 0;
    MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, communicator);
    if (rank == 0)
        printf("%d ranks, %ld checks\n", size, all);
    MPI_Finalize();
    return 0;
}
