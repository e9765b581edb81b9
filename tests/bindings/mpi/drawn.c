/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that knows nothing of Sidewire: drawn collective calls, of which each result is
 * compared with what it has to be.
 *
 * usage: drawn SEED CALLS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draws.h"

enum { BYTES_MAX = 4 << 20, RANKS_MAX = 16, GUARD = 0xa5 };

/* A call: the same on all ranks but for `rank`. */
struct call {
    MPI_Comm communicator;
    int rank, size, root;
    int first_rank, step; /* of the world: who its ranks are */
    uint64_t number;
    const struct draw_type *type;
    enum draw_op op;
    int count;
    int counts[RANKS_MAX], starts[RANKS_MAX], end;
    bool is_in_place, has_pairs;
};

static uint8_t *send_bytes, *recv_bytes, *expected;
static const char *name = "nothing";
static long checks;
static MPI_Datatype pairs[64]; /* of each type: two elements, of which the second comes first */

static void fail_call(const struct call *call, const char *what)
{
    fprintf(stderr, "rank %d of %d: call %llu, %s of %d %s, root %d%s%s: %s\n", call->rank,
            call->size, (unsigned long long)call->number, name, call->count, call->type->name,
            call->root, call->is_in_place ? ", in place" : "", call->has_pairs ? ", pairs" : "",
            what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The received bytes are those expected, and what follows them was left alone. */
static void check_bytes(const struct call *call, const void *expect, size_t offset, size_t bytes)
{
    if (memcmp(recv_bytes + offset, expect, bytes))
        fail_call(call, "wrong data");
    checks++;
}

static void check_guard(const struct call *call, size_t bytes)
{
    for (size_t i = bytes; i < bytes + 64; i++) {
        if (recv_bytes[i] != GUARD)
            fail_call(call, "a byte behind the buffer was touched");
    }
}

static size_t bytes_of(const struct call *call, int count)
{
    return (size_t)count * call->type->bytes;
}

static void clear_result(size_t bytes)
{
    memset(recv_bytes, GUARD, bytes + 64);
}

static void fill_own(const struct call *call, size_t first, size_t count, void *to)
{
    draw_fill(call->type, call->number, call->rank, first, count, to);
}

/* ---- sums ---- */

static void call_all_reduce(const struct call *call)
{
    size_t bytes = bytes_of(call, call->count);
    void *from = call->is_in_place ? recv_bytes : send_bytes;
    clear_result(bytes);
    fill_own(call, 0, (size_t)call->count, from);
    MPI_Allreduce(call->is_in_place ? MPI_IN_PLACE : send_bytes, recv_bytes, call->count,
                  call->type->handle, draw_op_handle(call->op), call->communicator);
    draw_sum(call->type, call->op, call->number, call->size, 0, (size_t)call->count, expected);
    check_bytes(call, expected, 0, bytes);
    check_guard(call, bytes);
}

static void call_reduce(const struct call *call)
{
    size_t bytes = bytes_of(call, call->count);
    bool is_root = call->rank == call->root, is_in_place = is_root && call->is_in_place;
    clear_result(bytes);
    fill_own(call, 0, (size_t)call->count, is_in_place ? recv_bytes : send_bytes);
    MPI_Reduce(is_in_place ? MPI_IN_PLACE : send_bytes, is_root ? recv_bytes : NULL, call->count,
               call->type->handle, draw_op_handle(call->op), call->root, call->communicator);
    if (!is_root)
        return;
    draw_sum(call->type, call->op, call->number, call->size, 0, (size_t)call->count, expected);
    check_bytes(call, expected, 0, bytes);
    check_guard(call, bytes);
}

static void call_reduce_scatter(const struct call *call)
{
    int all = 0, first = 0;
    for (int i = 0; i < call->size; i++) {
        first += i < call->rank ? call->counts[i] : 0;
        all += call->counts[i];
    }
    int own = call->counts[call->rank];
    clear_result(bytes_of(call, all));
    fill_own(call, 0, (size_t)all, call->is_in_place ? recv_bytes : send_bytes);
    MPI_Reduce_scatter(call->is_in_place ? MPI_IN_PLACE : send_bytes, recv_bytes, call->counts,
                       call->type->handle, draw_op_handle(call->op), call->communicator);
    draw_sum(call->type, call->op, call->number, call->size, (size_t)first, (size_t)own, expected);
    check_bytes(call, expected, 0, bytes_of(call, own));
    check_guard(call, bytes_of(call, call->is_in_place ? all : own));
}

static void call_reduce_scatter_block(const struct call *call)
{
    size_t own = (size_t)call->count, all = own * (size_t)call->size;
    clear_result(all * call->type->bytes);
    fill_own(call, 0, all, call->is_in_place ? recv_bytes : send_bytes);
    MPI_Reduce_scatter_block(call->is_in_place ? MPI_IN_PLACE : send_bytes, recv_bytes, call->count,
                             call->type->handle, draw_op_handle(call->op), call->communicator);
    draw_sum(call->type, call->op, call->number, call->size, own * (size_t)call->rank, own,
             expected);
    check_bytes(call, expected, 0, own * call->type->bytes);
}

/* ---- data that is moved ---- */

/* Some ranks say the same data in pairs, which lie the other way round in memory. */
static MPI_Datatype pair_type(const struct call *call)
{
    MPI_Datatype *pair = &pairs[call->type - draw_types];
    if (*pair == MPI_DATATYPE_NULL) {
        MPI_Type_indexed(2, (int[]){1, 1}, (int[]){1, 0}, call->type->handle, pair);
        MPI_Type_commit(pair);
    }
    return *pair;
}

static void swap_pairs(const struct call *call, uint8_t *bytes, size_t elements)
{
    size_t one = call->type->bytes;
    for (size_t i = 0; i + 1 < elements; i += 2) {
        uint8_t kept[16];
        memcpy(kept, bytes + i * one, one);
        memcpy(bytes + i * one, bytes + (i + 1) * one, one);
        memcpy(bytes + (i + 1) * one, kept, one);
    }
}

static bool uses_pairs(const struct call *call)
{
    return call->has_pairs && call->count % 2 == 0 && (call->rank + call->number) % 2;
}

static MPI_Datatype moved_type(const struct call *call)
{
    return uses_pairs(call) ? pair_type(call) : call->type->handle;
}

static int moved_count(const struct call *call)
{
    return uses_pairs(call) ? call->count / 2 : call->count;
}

static void fill_moved(const struct call *call, size_t first, size_t count, void *to)
{
    fill_own(call, first, count, to);
    if (uses_pairs(call))
        swap_pairs(call, to, count);
}

static void check_moved(const struct call *call, int from, size_t first, size_t place)
{
    size_t count = (size_t)call->count;
    draw_fill(call->type, call->number, from, first, count, expected);
    if (uses_pairs(call))
        swap_pairs(call, expected, count);
    check_bytes(call, expected, place * call->type->bytes, count * call->type->bytes);
}

static void call_broadcast(const struct call *call)
{
    clear_result(bytes_of(call, call->count));
    if (call->rank == call->root)
        fill_moved(call, 0, (size_t)call->count, recv_bytes);
    MPI_Bcast(recv_bytes, moved_count(call), moved_type(call), call->root, call->communicator);
    check_moved(call, call->root, 0, 0);
    check_guard(call, bytes_of(call, call->count));
}

static void call_all_gather(const struct call *call)
{
    size_t count = (size_t)call->count;
    clear_result(bytes_of(call, call->count) * (size_t)call->size);
    uint8_t *own = recv_bytes + bytes_of(call, call->count) * (size_t)call->rank;
    fill_moved(call, 0, count, call->is_in_place ? own : send_bytes);
    MPI_Allgather(call->is_in_place ? MPI_IN_PLACE : send_bytes, moved_count(call),
                  moved_type(call), recv_bytes, moved_count(call), moved_type(call),
                  call->communicator);
    for (int i = 0; i < call->size; i++)
        check_moved(call, i, 0, count * (size_t)i);
    check_guard(call, bytes_of(call, call->count) * (size_t)call->size);
}

static void call_all_gather_v(const struct call *call)
{
    int own = call->counts[call->rank];
    clear_result(bytes_of(call, call->end));
    fill_own(call, 0, (size_t)own,
             call->is_in_place ? recv_bytes + bytes_of(call, call->starts[call->rank])
                               : send_bytes);
    MPI_Allgatherv(call->is_in_place ? MPI_IN_PLACE : send_bytes, own, call->type->handle,
                   recv_bytes, call->counts, call->starts, call->type->handle, call->communicator);
    for (int i = 0; i < call->size; i++) {
        draw_fill(call->type, call->number, i, 0, (size_t)call->counts[i], expected);
        check_bytes(call, expected, bytes_of(call, call->starts[i]),
                    bytes_of(call, call->counts[i]));
    }
    check_guard(call, bytes_of(call, call->end));
}

static void call_all_to_all(const struct call *call)
{
    size_t count = (size_t)call->count, all = count * (size_t)call->size;
    clear_result(all * call->type->bytes);
    fill_moved(call, 0, all, call->is_in_place ? recv_bytes : send_bytes);
    MPI_Alltoall(call->is_in_place ? MPI_IN_PLACE : send_bytes, moved_count(call), moved_type(call),
                 recv_bytes, moved_count(call), moved_type(call), call->communicator);
    for (int i = 0; i < call->size; i++)
        check_moved(call, i, count * (size_t)call->rank, count * (size_t)i);
    check_guard(call, all * call->type->bytes);
}

/* Rank i sends counts[(i + j) % size] elements to rank j. */
static void call_all_to_all_v(const struct call *call)
{
    int send_counts[RANKS_MAX], send_starts[RANKS_MAX], recv_starts[RANKS_MAX];
    int gap = call->starts[0], at = gap;
    for (int i = 0; i < call->size; i++) {
        send_counts[i] = call->counts[(call->rank + i) % call->size];
        send_starts[i] = recv_starts[i] = at;
        at += send_counts[i] + gap;
    }
    clear_result(bytes_of(call, at));
    fill_own(call, 0, (size_t)at, call->is_in_place ? recv_bytes : send_bytes);
    /* The counts are symmetrical: what goes to a rank comes from it. */
    MPI_Alltoallv(call->is_in_place ? MPI_IN_PLACE : send_bytes, send_counts, send_starts,
                  call->type->handle, recv_bytes, send_counts, recv_starts, call->type->handle,
                  call->communicator);
    for (int i = 0; i < call->size; i++) {
        int theirs = gap;
        for (int j = 0; j < call->rank; j++)
            theirs += call->counts[(i + j) % call->size] + gap;
        draw_fill(call->type, call->number, i, (size_t)theirs, (size_t)send_counts[i], expected);
        check_bytes(call, expected, bytes_of(call, recv_starts[i]), bytes_of(call, send_counts[i]));
    }
    check_guard(call, bytes_of(call, at));
}

static void call_gather(const struct call *call)
{
    bool is_root = call->rank == call->root, is_in_place = is_root && call->is_in_place;
    size_t count = (size_t)call->count;
    clear_result(bytes_of(call, call->count) * (size_t)call->size);
    uint8_t *own = recv_bytes + bytes_of(call, call->count) * (size_t)call->rank;
    fill_moved(call, 0, count, is_in_place ? own : send_bytes);
    MPI_Gather(is_in_place ? MPI_IN_PLACE : send_bytes, moved_count(call), moved_type(call),
               is_root ? recv_bytes : NULL, is_root ? moved_count(call) : -1,
               is_root ? moved_type(call) : MPI_DATATYPE_NULL, call->root, call->communicator);
    for (int i = 0; is_root && i < call->size; i++)
        check_moved(call, i, 0, count * (size_t)i);
}

static void call_scatter(const struct call *call)
{
    bool is_root = call->rank == call->root, is_in_place = is_root && call->is_in_place;
    size_t count = (size_t)call->count;
    clear_result(bytes_of(call, call->count));
    if (is_root)
        fill_moved(call, 0, count * (size_t)call->size, send_bytes);
    MPI_Scatter(is_root ? send_bytes : NULL, is_root ? moved_count(call) : -1,
                is_root ? moved_type(call) : MPI_DATATYPE_NULL,
                is_in_place ? MPI_IN_PLACE : recv_bytes, moved_count(call), moved_type(call),
                call->root, call->communicator);
    if (!is_in_place)
        check_moved(call, call->root, count * (size_t)call->rank, 0);
}

static void call_barrier(const struct call *call)
{
    MPI_Barrier(call->communicator);
}

/* Sizes that the root alone knows: MPI's. */
static void call_gather_v(const struct call *call)
{
    bool is_root = call->rank == call->root;
    int own = call->counts[call->rank];
    fill_own(call, 0, (size_t)own, send_bytes);
    MPI_Gatherv(send_bytes, own, call->type->handle, recv_bytes, call->counts, call->starts,
                call->type->handle, call->root, call->communicator);
    for (int i = 0; is_root && i < call->size; i++) {
        draw_fill(call->type, call->number, i, 0, (size_t)call->counts[i], expected);
        check_bytes(call, expected, bytes_of(call, call->starts[i]),
                    bytes_of(call, call->counts[i]));
    }
}

/* An operator that the library has not. */
static void call_bits(const struct call *call)
{
    int own = 1 << call->rank, all = 0;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_BOR, call->communicator);
    if (all != (1 << call->size) - 1)
        fail_call(call, "wrong bits");
    checks++;
}

static const struct {
    const char *name;
    void (*run)(const struct call *call);
    uint32_t weight;
} kinds[] = {
    {"Allreduce", call_all_reduce, 12},
    {"Reduce", call_reduce, 8},
    {"Reduce_scatter", call_reduce_scatter, 8},
    {"Reduce_scatter_block", call_reduce_scatter_block, 8},
    {"Bcast", call_broadcast, 10},
    {"Allgather", call_all_gather, 8},
    {"Allgatherv", call_all_gather_v, 8},
    {"Alltoall", call_all_to_all, 8},
    {"Alltoallv", call_all_to_all_v, 8},
    {"Gather", call_gather, 8},
    {"Scatter", call_scatter, 8},
    {"Barrier", call_barrier, 4},
    {"Gatherv", call_gather_v, 1},
    {"Allreduce of bits", call_bits, 1},
};

static void run_drawn(void (*run)(const struct call *call), struct call *call)
{
    static const int small[] = {0, 1, 2, 3, 8, 17, 100, 1000, 1024, 4096, 10000};
    call->type = &draw_types[draw_next((uint32_t)draw_type_count)];
    call->op = draw_next(DRAW_OPS);
    call->root = (int)draw_next((uint32_t)call->size);
    call->is_in_place = draw_next(3) == 0;
    call->has_pairs = draw_next(3) == 0;
    call->count = small[draw_next(sizeof(small) / sizeof(*small))] + (int)draw_next(2);
    /* A block each, some of them empty; at times with gaps, or from the last to the first. */
    int gap = (int)draw_next(3);
    if (call->size == 1)
        gap = 0; /* one rank alone is MPI's, and MPICH 4.0.2 takes no notice of where it begins */
    int at = gap;
    bool is_backwards = draw_next(4) == 0;
    for (int i = 0; i < call->size; i++) {
        int rank = is_backwards ? call->size - 1 - i : i;
        call->counts[rank] = (int)draw_next(4) ? (int)draw_next(2000) : 0;
        call->starts[rank] = at;
        at += call->counts[rank] + gap;
    }
    call->end = at;
    run(call);
}

static void draw_call(struct call *call)
{
    uint32_t all = 0, i = 0;
    for (uint32_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
        all += kinds[k].weight;
    uint32_t at = draw_next(all);
    while (at >= kinds[i].weight)
        at -= kinds[i++].weight;
    name = kinds[i].name;
    run_drawn(kinds[i].run, call);
}

/* A message that has begun before a collective call must arrive during it. */
static void cross_messages(int rank, int size)
{
    enum { LONG = BYTES_MAX };
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0)
        MPI_Isend(send_bytes, LONG, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
    if (rank == 1)
        MPI_Recv(recv_bytes, LONG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    checks += size > 1;
}

static void take_communicator(struct call *call, MPI_Comm communicator)
{
    call->communicator = communicator;
    MPI_Comm_rank(communicator, &call->rank);
    MPI_Comm_size(communicator, &call->size);
}

/* A few calls on others: a copy, and halves; both are freed at once. */
static void use_others(struct call *call, int world_rank)
{
    MPI_Comm copy, half;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(copy, world_rank % 2, -world_rank, &half);
    take_communicator(call, copy);
    draw_call(call);
    take_communicator(call, half);
    uint32_t seed = draw_next(1u << 31);
    for (int i = 0; i < 3; i++, call->number++)
        draw_call(call);
    draw_begin(seed); /* halves of unlike sizes have drawn unlike numbers */
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    take_communicator(call, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct call call = {0};
    take_communicator(&call, MPI_COMM_WORLD);
    if (argc != 3 || call.size > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < 64; i++)
        pairs[i] = MPI_DATATYPE_NULL;
    send_bytes = calloc(1, BYTES_MAX + 64);
    recv_bytes = calloc(1, BYTES_MAX + 64);
    expected = calloc(1, BYTES_MAX);
    draw_begin((uint64_t)atoll(argv[1]));
    cross_messages(call.rank, call.size);
    long calls = atol(argv[2]);
    for (long i = 0; i < calls; i++, call.number++) {
        if (i % 50 == 49)
            use_others(&call, call.rank);
        draw_call(&call);
    }
    long all = 0;
    MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (call.rank == 0)
        printf("%d ranks, %ld checks\n", call.size, all);
    for (int i = 0; i < 64; i++) {
        if (pairs[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&pairs[i]);
    }
    MPI_Finalize();
    return 0;
}
