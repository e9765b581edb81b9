// SPDX-License-Identifier: BSD-2-Clause
// Operations that ranks have recorded are run again by their dumps alone: with the same steps, and
// in a simulated world to the right results.
#include "../comm/ranks.h"
#include "../core/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/comm/comm.h"
#include "collectives/core/plan.h"
#include "collectives/dump/read.h"

enum { SIZE = 3, CALLS = 60, BUFFER = 1 << 18, STEP_TEXT = 240 };

static const struct calls_draw draw = {.seed = 43, .size = SIZE, .kind = -1, .count_max = 3000};
static char folder[] = "/tmp/coll_replay.XXXXXX";
static enum coll_plan wanted;

// What each rank did, by the hash of its steps.
static struct {
    uint64_t steps[SIZE][CALLS];
} * done;

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    return hash;
}

static uint64_t hash_table(const struct coll_table *table)
{
    char text[STEP_TEXT];
    const uint64_t loop[] = {table->plan,     table->count, table->loop,
                             table->loop_end, table->chunk, table->chunks};
    uint64_t hash = hash_bytes(0xcbf29ce484222325, loop, sizeof(loop));
    for (uint32_t step = 0; step < table->count; step++) {
        coll_step_text(table, step, text, sizeof(text));
        hash = hash_bytes(hash, text, strlen(text));
    }
    return hash;
}

// ---- once ----

static void dump_path(uint32_t rank, char *path, size_t room)
{
    snprintf(path, room, "%s/%u.json", folder, rank);
}

static void want_plan(struct rank *rank)
{
    rank->options.algorithm = wanted == COLL_PLAN_HALVING ? "halving" : NULL;
    rank->options.eager_bytes = 512;
}

static void run_calls(struct rank *rank)
{
    static uint8_t send[BUFFER], recv[BUFFER];
    struct sw_coll_error error = {.text = ""};
    uint64_t counts[CALLS_RANKS_MAX], recv_counts[CALLS_RANKS_MAX];
    char path[80];
    for (uint64_t number = 1; number <= CALLS; number++) {
        struct sw_coll_call call = calls_of(&draw, number, rank->rank, counts, recv_counts);
        need(calls_send_bytes(&call, rank->rank, SIZE) <= BUFFER &&
             calls_recv_bytes(&call, rank->rank, SIZE) <= BUFFER);
        call.send = send;
        call.recv = recv;
        need_ok(rank, sw_coll_run(rank->coll, &call, 0, &error), &error);
        done->steps[rank->rank][number - 1] = hash_table(&rank->coll->machine.table);
    }
    dump_path(rank->rank, path, sizeof(path));
    need_ok(rank, sw_coll_dump(rank->coll, path, &error), &error);
}

// ---- and again ----

static struct coll_dump *dumps[SIZE];

static void read_dumps(void)
{
    static char text[1 << 20];
    char path[80], error[200] = "";
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        dump_path(rank, path, sizeof(path));
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        dumps[rank] =
            coll_dump_of_text(text, fread(text, 1, sizeof(text), file), error, sizeof(error));
        fclose(file);
        if (!dumps[rank])
            fail_msg("%s: %s", path, error);
        unlink(path);
    }
}

static void expect_same_steps(uint32_t rank, uint64_t number)
{
    static struct coll_step steps[13 * SIZE + 128];
    struct coll_table table = {.steps = steps, .room = coll_steps_max(SIZE)};
    const struct coll_site site = coll_dump_site(dumps[rank]);
    const struct coll_dumped *found = coll_dump_find(dumps[rank], number);
    assert_non_null(found);
    const struct sw_coll_call call = coll_dump_call(found);
    coll_plan_make(&table, &call, &site);
    assert_int_equal(table.plan, found->plan);
    assert_int_equal(table.count, found->step);
    if (hash_table(&table) != done->steps[rank][number - 1])
        fail_msg("operation %lu of rank %u has other steps", (unsigned long)number, rank);
}

static struct sw_coll_call recorded_call(uint64_t number, uint32_t rank, uint64_t *counts,
                                         uint64_t *recv_counts)
{
    struct sw_coll_call call = coll_dump_call(coll_dump_find(dumps[rank], number));
    if (call.counts)
        call.counts = memcpy(counts, call.counts, SIZE * sizeof(*counts));
    if (call.recv_counts)
        call.recv_counts = memcpy(recv_counts, call.recv_counts, SIZE * sizeof(*recv_counts));
    return call;
}

static void expect_right_results(void)
{
    const struct coll_site site = coll_dump_site(dumps[0]);
    struct world_result result = {.failure = ""};
    struct world_options options = {.draw = draw,
                                    .wanted = site.wanted,
                                    .eager_bytes = site.eager_bytes,
                                    .operations = CALLS,
                                    .absent = SIZE,
                                    .dies = SIZE,
                                    .stops = SIZE};
    options.draw.recorded = recorded_call;
    world_run(&options, &result);
    if (*result.failure)
        fail_msg("%s", result.failure);
    assert_int_equal(result.operations, (uint64_t)CALLS * SIZE);
}

static void run_again(enum coll_plan plan)
{
    struct ranks ranks;
    wanted = plan;
    memset(done, 0, sizeof(*done));
    ranks_start(&ranks, SIZE, run_calls, want_plan);
    ranks_end(&ranks, 0);
    read_dumps();
    for (uint32_t rank = 0; rank < SIZE; rank++)
        for (uint64_t number = 1; number <= CALLS; number++)
            expect_same_steps(rank, number);
    expect_right_results();
    for (uint32_t rank = 0; rank < SIZE; rank++)
        coll_dump_free(dumps[rank]);
}

static void replay__has_the_same_steps(void **state)
{
    (void)state;
    run_again(COLL_PLAN_ANY);
}

static void replay__has_them_in_rounds(void **state)
{
    (void)state;
    run_again(COLL_PLAN_HALVING);
}

// A dump that says something else of the communicator has other steps: the hash sees it.
static void replay__of_another_site_differs(void **state)
{
    static struct coll_step steps[13 * SIZE + 128];
    struct coll_table table = {.steps = steps, .room = coll_steps_max(SIZE)};
    const struct sw_coll_call call = {
        .kind = SW_COLL_ALL_REDUCE, .type = SW_COLL_F32, .count = 9000};
    struct coll_site site = {.rank = 1, .size = SIZE, .eager_bytes = 512, .scratch_bytes = 1 << 18};
    (void)state;
    coll_plan_make(&table, &call, &site);
    const uint64_t hash = hash_table(&table);
    site.scratch_bytes /= 2;
    coll_plan_make(&table, &call, &site);
    assert_true(hash != hash_table(&table));
}

static int make_folder(void **state)
{
    (void)state;
    ranks_have_pages = true;
    unsetenv(COLL_PAGE_OFF);
    done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return done != MAP_FAILED && mkdtemp(folder) && !setenv("XDG_RUNTIME_DIR", folder, 1) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char pages[80];
    (void)state;
    snprintf(pages, sizeof(pages), "%s/sidewire-coll", folder);
    return rmdir(pages) || rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay__has_the_same_steps),
        cmocka_unit_test(replay__has_them_in_rounds),
        cmocka_unit_test(replay__of_another_site_differs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
