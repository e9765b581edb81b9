/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

enum { STEPS_MAX = 500000000, SLACK = 1 << 16 };

void world_fail(struct world *world, const char *format, ...)
{
    if (*world->result->failure)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->result->failure, sizeof(world->result->failure), format, arguments);
    va_end(arguments);
}

/* ---- buffers ---- */

static void make_buffer(struct world_buffer *buffer, size_t bytes)
{
    buffer->bytes = bytes + 2 * (size_t)GUARD;
    buffer->memory = malloc(buffer->bytes);
    buffer->before = malloc(buffer->bytes);
    buffer->after = malloc(buffer->bytes);
    memset(buffer->before, 0xa5, buffer->bytes);
}

static void free_buffers(struct world_rank *rank)
{
    for (unsigned i = 0; i < 2; i++) {
        struct world_buffer *buffer = &rank->buffers[i];
        free(buffer->memory);
        free(buffer->before);
        free(buffer->after);
        *buffer = (struct world_buffer){0};
    }
    rank->send = rank->recv = NULL;
}

/* Where `recv` begins in `send`, or `send` in `recv`, if the call is done in place. */
static int64_t place_in(const struct sw_coll_call *call, uint32_t rank)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < rank; i++)
        before += call->counts ? call->counts[i] : call->count;
    before *= sw_coll_type_bytes(call->type);
    if (call->kind == SW_COLL_ALL_GATHER || call->kind == SW_COLL_GATHER)
        return -(int64_t)before;
    if (call->kind == SW_COLL_REDUCE_SCATTER || call->kind == SW_COLL_SCATTER)
        return (int64_t)before;
    return 0;
}

/* Buffers with what this rank contributes, together or apart, and what they have to be. */
static void lay_buffers(struct world_rank *rank, struct sw_coll_call *call)
{
    struct world *world = rank->world;
    const struct world_options *options = world->options;
    const uint64_t number = rank->begun;
    const size_t offset = calls_random(&world->random) % GUARD / 2;
    rank->send_bytes = calls_send_bytes(call, rank->rank, world->size);
    rank->recv_bytes = calls_recv_bytes(call, rank->rank, world->size);
    /* A call that is changed may need more memory, and other memory. */
    const bool is_changed = options->change.change && number == options->operations;
    const size_t slack = is_changed ? SLACK : 0;
    const bool is_in_place = !is_changed && call->kind != SW_COLL_ALL_TO_ALL && rank->send_bytes &&
                             rank->recv_bytes && calls_random(&world->random) % 2;
    const int64_t shift = is_in_place ? place_in(call, rank->rank) : 0;
    const uint64_t larger =
        rank->send_bytes > rank->recv_bytes ? rank->send_bytes : rank->recv_bytes;
    struct world_buffer *send = &rank->buffers[0], *recv = &rank->buffers[!is_in_place];
    make_buffer(send, (is_in_place ? larger : rank->send_bytes) + offset + slack);
    if (!is_in_place)
        make_buffer(recv, rank->recv_bytes + offset + slack);
    const size_t send_at = GUARD + offset + (shift < 0 ? (size_t)-shift : 0);
    const size_t recv_at = GUARD + offset + (shift > 0 ? (size_t)shift : 0);
    if (rank->send_bytes)
        calls_contribute(&options->draw, number, rank->rank, send->before + send_at);
    for (unsigned i = 0; i < 2 && rank->buffers[i].memory; i++) {
        memcpy(rank->buffers[i].memory, rank->buffers[i].before, rank->buffers[i].bytes);
        memcpy(rank->buffers[i].after, rank->buffers[i].before, rank->buffers[i].bytes);
    }
    if (rank->recv_bytes)
        calls_expect(&options->draw, number, rank->rank,
                     options->fault == WORLD_LINE_FOR_TREE ? CALLS_LINE : CALLS_TREE, 0,
                     recv->after + recv_at);
    rank->send = send->memory + send_at;
    rank->recv = recv->memory + recv_at;
    call->send = rank->send_bytes || is_changed ? rank->send : NULL;
    call->recv = rank->recv_bytes || is_changed ? rank->recv : NULL;
    /* A root may broadcast what it has in `recv`. */
    if (call->kind == SW_COLL_BROADCAST && is_in_place && calls_random(&world->random) % 2)
        call->send = NULL;
}

static void compare_buffers(struct world_rank *rank, bool is_done)
{
    for (unsigned i = 0; i < 2 && rank->buffers[i].memory; i++) {
        const struct world_buffer *buffer = &rank->buffers[i];
        const uint8_t *wanted = is_done ? buffer->after : buffer->before;
        size_t at = 0;
        while (at < buffer->bytes && buffer->memory[at] == wanted[at])
            at++;
        if (at < buffer->bytes)
            world_fail(rank->world,
                       "operation %lu (%s, count %lu, leaves %u, %s): rank %u has a wrong byte at "
                       "%ld of buffer %u of %zu bytes",
                       (unsigned long)rank->begun, sw_coll_kind_name(rank->machine.call.kind),
                       (unsigned long)rank->machine.call.count, rank->machine.call.leaves,
                       coll_plan_name(rank->machine.table.plan), rank->rank, (long)at - GUARD, i,
                       buffer->bytes - 2 * (size_t)GUARD);
    }
}

/* An operation that a death has ended: what was to be sent is as it was, and all around is. */
static void compare_sources(struct world_rank *rank)
{
    const struct world_buffer *send = &rank->buffers[0], *recv = &rank->buffers[1];
    if (!recv->memory)
        recv = send;
    else if (memcmp(send->memory, send->before, send->bytes))
        world_fail(rank->world, "rank %u: what it sends has changed", rank->rank);
    const size_t end = recv->bytes - GUARD;
    if (memcmp(recv->memory, recv->before, GUARD) ||
        memcmp(recv->memory + end, recv->before + end, GUARD))
        world_fail(rank->world, "rank %u: bytes beside a buffer have changed", rank->rank);
}

/* ---- faults in tables ---- */

static void drop_step(struct coll_table *table, uint32_t at)
{
    table->count--;
    table->loop -= table->loop > at;
    table->loop_end -= table->loop_end > at;
    memmove(&table->steps[at], &table->steps[at + 1], (table->count - at) * sizeof(*table->steps));
}

static bool is_dropped(const struct coll_step *step, enum world_fault fault)
{
    return (fault == WORLD_DONE_FORGOTTEN && step->action == COLL_AWAIT &&
            step->slot == COLL_DONE) ||
           (fault == WORLD_STEP_FORGOTTEN && step->action == COLL_AWAIT &&
            step->slot == COLL_STEP) ||
           (fault == WORLD_SETTLE_FORGOTTEN && step->action == COLL_SETTLE) ||
           (fault == WORLD_PULLS_FORGOTTEN && step->action == COLL_SETTLE_PULLS);
}

static void spoil_step(struct coll_step *step, enum world_fault fault)
{
    const bool is_request = step->action == COLL_PULL || step->action == COLL_PUSH;
    if (fault == WORLD_PARITY_FORGOTTEN && step->from.place == COLL_SCRATCH)
        step->from.chunk = 0;
    if (fault == WORLD_PARITY_FORGOTTEN && step->to.place == COLL_SCRATCH)
        step->to.chunk = 0;
    if (fault == WORLD_SLICE_SHIFTED && step->action == COLL_PULL && step->from.offset)
        step->from.offset -= 8;
    if (fault == WORLD_PUSH_TOO_LONG && step->action == COLL_PUSH)
        step->bytes += 8;
    if (fault == WORLD_LEAVES_FORGOTTEN && step->action == COLL_FOLD && step->leaves > 1)
        step->own.leaf = 0;
    if (fault == WORLD_HALF_MISTAKEN && step->action == COLL_FOLD_LEAVES)
        step->own.offset = 0;
    if (fault == WORLD_PARTIALS_SWAPPED && step->action == COLL_FOLD_PARTIALS)
        step->from.offset = 0;
    if (fault == WORLD_PEER_FORGOTTEN && is_request && step->peers > 1)
        step->peers--;
}

static void spoil_table(struct world_rank *rank)
{
    struct coll_table *table = &rank->machine.table;
    const enum world_fault fault = rank->world->options->fault;
    if (fault < WORLD_DONE_FORGOTTEN || fault > WORLD_PARTIALS_SWAPPED)
        return;
    rank->machine.has_table = false;
    for (uint32_t i = 0; i < table->count; i++) {
        spoil_step(&table->steps[i], fault);
        if (is_dropped(&table->steps[i], fault))
            drop_step(table, i--);
    }
}

/* ---- ranks ---- */

/* Its sums have another order, which depends on slices. */
static void expect_of_ring(struct world_rank *rank, const struct sw_coll_call *call)
{
    const struct world *world = rank->world;
    const uint64_t slice = rank->machine.table.chunk / world->size / sw_coll_type_bytes(call->type);
    struct world_buffer *recv = &rank->buffers[rank->buffers[1].memory != NULL];
    if (rank->recv_bytes && world->options->fault != WORLD_TREE_FOR_RING)
        calls_expect(&world->options->draw, rank->begun, rank->rank, CALLS_RING, slice,
                     recv->after + (rank->recv - recv->memory));
}

static void begin_operation(struct world_rank *rank)
{
    struct world *world = rank->world;
    const struct world_options *options = world->options;
    uint64_t counts[CALLS_RANKS_MAX] = {0}, recv_counts[CALLS_RANKS_MAX];
    rank->begun++;
    struct sw_coll_call call =
        calls_of(&options->draw, rank->begun, rank->rank, counts, recv_counts);
    lay_buffers(rank, &call);
    if (options->change.change && options->change.rank == rank->rank &&
        rank->begun == options->operations)
        options->change.change(&call, rank->rank);
    struct sw_coll_error error;
    if (coll_call_check(&call, &rank->machine.site, &error))
        world_fail(world, "a call is refused: %s", error.text);
    const struct coll_extents extents = coll_call_extents(&call, &rank->machine.site);
    if (!options->change.change && ((call.send && extents.send_bytes != rank->send_bytes) ||
                                    extents.recv_bytes != rank->recv_bytes))
        world_fail(world, "extents of rank %u are wrong", rank->rank);
    /* Counts are copied: they need not stay. */
    coll_machine_begin(&rank->machine, &call, rank->begun,
                       (struct coll_memory){(uintptr_t)(call.send ? call.send : rank->send),
                                            (uint32_t)rank->begun * 2},
                       (struct coll_memory){(uintptr_t)call.recv, (uint32_t)rank->begun * 2 + 1});
    if (rank->machine.table.plan == COLL_PLAN_RING)
        expect_of_ring(rank, &call);
    memset(counts, 0xff, sizeof(counts));
    spoil_table(rank);
    for (uint32_t i = 0; i < world->size; i++) {
        if (rank->begun > world->ranks[i].begun + 1)
            world_fail(world, "rank %u is two operations ahead of rank %u", rank->rank, i);
        if (rank->begun > world->ranks[i].ended + 1)
            world->result->ahead++;
    }
    world->progress++;
}

static void end_operation(struct world_rank *rank, enum sw_coll_status status)
{
    struct world *world = rank->world;
    struct world_result *result = world->result;
    rank->ended++;
    world->progress++;
    compare_buffers(rank, status == SW_COLL_OK);
    free_buffers(rank);
    result->operations++;
    if (status == SW_COLL_OK)
        return;
    rank->has_failed = true;
    if (!world->options->change.change || status != SW_COLL_MISMATCH)
        world_fail(world, "rank %u: %s", rank->rank, rank->machine.error.text);
    else if (!*result->error)
        snprintf(result->error, sizeof(result->error), "%s", rank->machine.error.text);
    else if (strcmp(result->error, rank->machine.error.text))
        world_fail(world, "\"%s\" and \"%s\"", result->error, rank->machine.error.text);
}

/* As verbs do it: connections end before the buffers are given back. */
static void end_by_death(struct world_rank *rank)
{
    struct world *world = rank->world;
    rank->ended++;
    rank->has_failed = rank->is_gone = true;
    world->progress++;
    world->result->gone++;
    compare_sources(rank);
    free_buffers(rank);
}

static void check_survivor(struct world_rank *rank, enum sw_coll_status status)
{
    const struct world_rank *dead = &rank->world->ranks[rank->world->options->dies];
    if (status == SW_COLL_OK && dead->is_gone && rank->begun > dead->begun)
        world_fail(rank->world, "rank %u ends what rank %u has not begun", rank->rank, dead->rank);
    if (status == SW_COLL_RANK_GONE && !strstr(rank->machine.error.text, "the connection to rank "))
        world_fail(rank->world, "rank %u: %s", rank->rank, rank->machine.error.text);
}

static void turn_rank(struct world_rank *rank, bool is_forced)
{
    struct world *world = rank->world;
    const struct world_options *options = world->options;
    const bool may_die = options->dies < world->size;
    if (rank->is_gone)
        return;
    if (may_die && options->dies == rank->rank && world->progress >= world->death) {
        rank->is_gone = true;
        world->progress++;
        world->death_known = world->progress + calls_random(&world->random) % 100;
        return;
    }
    if (rank->begun == rank->ended) {
        const bool is_last = rank->begun + 1 == options->operations;
        if (!rank->has_failed && rank->begun < options->operations &&
            !(is_last && options->absent == rank->rank) &&
            (is_forced || calls_random(&world->random) % (rank->is_slow ? 50 : 2) == 0))
            begin_operation(rank);
        return;
    }
    if (options->stops == rank->rank && rank->begun == options->operations &&
        calls_random(&world->random) % 4 == 0)
        rank->has_stopped = true;
    if (rank->has_stopped)
        return;
    const enum sw_coll_status status = coll_machine_go(&rank->machine);
    if (may_die)
        check_survivor(rank, status);
    if (may_die && (status == SW_COLL_RANK_GONE ||
                    (status == SW_COLL_AGAIN && is_known_gone(&world->ranks[options->dies]))))
        end_by_death(rank);
    else if (status != SW_COLL_AGAIN)
        end_operation(rank, status);
}

/* ---- the world ---- */

static void open_rank(struct world *world, uint32_t index)
{
    const struct world_options *options = world->options;
    struct world_rank *rank = &world->ranks[index];
    rank->world = world;
    rank->rank = index;
    rank->is_slow = calls_random(&world->random) % 4 == 0;
    rank->port = network_port(rank);
    const uint64_t drawn = calls_hash(options->draw.seed, world->size, 5, 5);
    const struct coll_site site = {
        .rank = index,
        .size = world->size,
        .eager_bytes = options->eager_bytes,
        .wanted = options->wanted,
        .scratch_bytes = coll_scratch_min(world->size, options->eager_bytes) + drawn % 4096,
        .request_max = 64 * (1 + (uint32_t)(drawn / 4096 % 4)),
        .ranks = options->draw.ranks,
        .places = options->draw.places,
    };
    if (posix_memalign(&rank->memory, 64, coll_machine_bytes(world->size)))
        abort();
    rank->scratch = malloc(site.scratch_bytes);
    rank->shown = calloc(1, coll_shown_bytes(world->size));
    coll_machine_init(&rank->machine, &site, &rank->port, rank->memory, rank->scratch, rank->shown);
    rank->machine.shared = (struct coll_memory){(uintptr_t)rank->scratch, SCRATCH_KEY};
}

static void close_rank(struct world_rank *rank)
{
    free_buffers(rank);
    free(rank->memory);
    free(rank->scratch);
    free(rank->shown);
}

/* The one that is absent is named by all that wait, and nobody else is. */
static void compare_waits(struct world *world)
{
    struct world_result *result = world->result;
    for (uint32_t i = 0; i < world->size; i++) {
        char text[256];
        bool is_absent[CALLS_RANKS_MAX];
        const uint32_t absent = coll_machine_absent(&world->ranks[i].machine, is_absent);
        if (i == world->options->absent)
            continue;
        coll_machine_waits_text(&world->ranks[i].machine, text, sizeof(text));
        if (absent != 1 || !is_absent[world->options->absent])
            world_fail(world, "rank %u waits for %u ranks: %s", i, absent, text);
        if (!*result->waits)
            snprintf(result->waits, sizeof(result->waits), "%s", text);
        else if (strcmp(result->waits, text))
            world_fail(world, "\"%s\" and \"%s\"", result->waits, text);
    }
}

/* By what the others show, each rank that waits finds the one that has stopped, and that alone. */
static void follow_shown(struct world *world, uint32_t first)
{
    bool is_absent[CALLS_RANKS_MAX];
    const struct coll_machine *machine = &world->ranks[first].machine;
    coll_machine_absent(machine, is_absent);
    for (uint32_t i = 0; i < world->size; i++) {
        uint32_t rank = i, hops = 0;
        while (is_absent[i] && hops++ < world->size) {
            bool is_step;
            const uint32_t next =
                coll_machine_follow(machine, rank, world->ranks[rank].shown, &is_step);
            if (next == rank || (is_step && world->ranks[next].machine.steps_mailed[rank] >=
                                                world->ranks[rank].shown->step))
                break;
            rank = next;
        }
        if (is_absent[i] && rank != world->options->stops)
            world_fail(world, "rank %u takes rank %u for late, and rank %u has stopped", first,
                       rank, world->options->stops);
        world->result->followed += is_absent[i] && i != rank;
    }
}

/* From each rank that waits, those that it waits for lead to the one that has stopped. */
static void follow_waits(struct world *world, uint32_t first)
{
    bool is_reached[CALLS_RANKS_MAX] = {false}, is_absent[CALLS_RANKS_MAX];
    uint32_t row[CALLS_RANKS_MAX] = {first}, count = 1;
    is_reached[first] = true;
    for (uint32_t at = 0; at < count; at++) {
        const struct world_rank *rank = &world->ranks[row[at]];
        if (row[at] == world->options->stops || rank->ended == rank->begun)
            continue;
        coll_machine_absent(&rank->machine, is_absent);
        for (uint32_t i = 0; i < world->size; i++) {
            if (is_absent[i] && !is_reached[i])
                row[count++] = i;
            is_reached[i] |= is_absent[i];
        }
    }
    world->result->held++;
    if (first != world->options->stops && coll_machine_is_amid_rounds(&world->ranks[first].machine))
        follow_shown(world, first);
    if (!is_reached[world->options->stops])
        world_fail(world, "rank %u does not wait for rank %u, which has stopped", first,
                   world->options->stops);
}

/* Nothing is on its way. True: nothing more can happen. */
static bool is_quiet(struct world *world)
{
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t before = world->progress;
        for (uint32_t i = 0; i < world->size; i++)
            turn_rank(&world->ranks[i], true);
        if (world->progress != before || *world->result->failure)
            return false;
    }
    return true;
}

static void check_end(struct world *world)
{
    const struct world_options *options = world->options;
    if (options->absent < world->size) {
        compare_waits(world);
        return;
    }
    for (uint32_t i = 0; i < world->size; i++) {
        char text[256];
        if (options->stops < world->size && world->ranks[i].ended < options->operations)
            follow_waits(world, i);
        if (options->dies < world->size || options->stops < world->size)
            continue;
        coll_machine_waits_text(&world->ranks[i].machine, text, sizeof(text));
        if (world->ranks[i].ended < options->operations)
            world_fail(world, "rank %u does not go on: %s", i, text);
    }
}

void world_run(const struct world_options *options, struct world_result *result)
{
    struct world world = {.options = options,
                          .result = result,
                          .size = options->draw.size,
                          .random = options->draw.seed * 31 + options->draw.size};
    *result = (struct world_result){0};
    world.ranks = calloc(world.size, sizeof(*world.ranks));
    network_open(&world);
    for (uint32_t i = 0; i < world.size; i++)
        open_rank(&world, i);
    world.death = calls_random(&world.random) % (60 * world.size * options->operations);
    bool is_over = false;
    for (uint64_t step = 0; !is_over && !*result->failure; step++) {
        if (step == STEPS_MAX)
            world_fail(&world, "it takes too many steps");
        const uint64_t drawn = calls_random(&world.random);
        if (world.active_count && drawn % 8 < 6)
            network_step(&world);
        else if (drawn / 8 % 4)
            turn_rank(&world.ranks[drawn / 32 % world.size], false);
        else if (!world.active_count)
            is_over = is_quiet(&world);
    }
    if (!*result->failure)
        check_end(&world);
    for (uint32_t i = 0; i < world.size; i++)
        close_rank(&world.ranks[i]);
    network_close(&world);
    free(world.ranks);
}
