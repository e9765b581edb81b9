// SPDX-License-Identifier: BSD-2-Clause
// Messages from rank to rank, and splits, that ranks have recorded are run again by their dumps
// alone: messages in a simulated world, splits by what each rank asked for.
#include "../comm/ranks.h"
#include "../core/pairs_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/dump/read.h"

// What is short there is short in the simulated world, too.
enum { SIZE = 3, ROUNDS = 12, EACH_MAX = 3, EAGER = 4 * SHORT, SEEDS = 20 };

static char folder[] = "/tmp/coll_replay_messages.XXXXXX";

static uint64_t draw_number(uint64_t *random, uint64_t below)
{
    *random = *random * 6364136223846793005 + 1442695040888963407;
    return (*random >> 33) % below;
}

// ---- once ----

static void want_short(struct rank *rank)
{
    rank->options.eager_bytes = EAGER;
}

static void write_dump(struct rank *rank, struct sw_coll *coll, const char *name)
{
    struct sw_coll_error error = {.text = ""};
    char path[80];
    snprintf(path, sizeof(path), "%s/%s-%u.json", folder, name, rank->rank);
    need_ok(rank, sw_coll_dump(coll, path, &error), &error);
}

// All ranks draw the same, and each posts its sides in that order.
static void exchange_some(struct rank *rank, struct sw_coll *coll, uint64_t seed)
{
    static uint8_t data[BYTES_MAX];
    const uint32_t size = sw_coll_size(coll), own = sw_coll_rank(coll);
    struct sw_coll_error error = {.text = ""};
    uint64_t random = seed;
    sw_coll_group_begin(coll);
    for (uint32_t count = EACH_MAX * size; count; count--) {
        const uint32_t from = (uint32_t)draw_number(&random, size);
        const uint32_t to = (uint32_t)draw_number(&random, size);
        const uint64_t bytes = draw_number(&random, 3) ? draw_number(&random, 2 * SHORT)
                                                       : draw_number(&random, BYTES_MAX);
        if (from == own)
            need_ok(rank, sw_coll_send(coll, to, data, bytes, SW_COLL_U8, 0, &error), &error);
        if (to == own)
            need_ok(rank, sw_coll_recv(coll, from, data, bytes, SW_COLL_U8, 0, &error), &error);
    }
    need_ok(rank, sw_coll_group_end(coll, &error), &error);
}

// Rank 0 is alone then, and the others are in the reverse order.
static void exchange_and_split(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        exchange_some(rank, rank->coll, seed);
    need_ok(rank,
            sw_coll_split(rank->coll, rank->rank ? 7 : -1, -(int32_t)rank->rank, 0, &error, &part),
            &error);
    if (part)
        for (uint64_t seed = 1; seed <= ROUNDS; seed++)
            exchange_some(rank, part, 100 + seed);
    write_dump(rank, rank->coll, "whole");
    if (part)
        write_dump(rank, part, "part");
    sw_coll_close(part);
}

// ---- and again ----

static struct coll_dump *dumps[SIZE];

static void read_dumps(const char *name, uint32_t first)
{
    static char text[1 << 20];
    char path[80], error[200] = "";
    for (uint32_t rank = first; rank < SIZE; rank++) {
        snprintf(path, sizeof(path), "%s/%s-%u.json", folder, name, rank);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        struct coll_dump *dump =
            coll_dump_of_text(text, fread(text, 1, sizeof(text), file), error, sizeof(error));
        fclose(file);
        unlink(path);
        if (!dump)
            fail_msg("%s: %s", path, error);
        dumps[dump->seen.page.rank] = dump;
    }
}

static void free_dumps(void)
{
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        coll_dump_free(dumps[rank]);
        dumps[rank] = NULL;
    }
}

static const struct coll_dumped *next_message(const struct coll_dump *dump, size_t *at)
{
    while (*at < dump->count && dump->operations[*at].kind != COLL_RECORDED_SEND &&
           dump->operations[*at].kind != COLL_RECORDED_RECV)
        ++*at;
    return *at < dump->count ? &dump->operations[(*at)++] : NULL;
}

// The sends of each rank, as they were recorded. How many messages there are.
static uint32_t make_recorded(struct world *world, uint32_t size)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        size_t at = 0;
        for (const struct coll_dumped *one; (one = next_message(dumps[rank], &at));) {
            assert_true(one->status == SW_COLL_OK && one->number && one->number <= MESSAGES_MAX);
            count++;
            if (one->kind != COLL_RECORDED_SEND)
                continue;
            make_message(world, rank, one->peer, (uint32_t)one->number - 1, one->count);
            // What the other rank has recorded of it has the same count.
            const struct coll_dumped *other =
                coll_dump_find_message(dumps[one->peer], COLL_RECORDED_RECV, rank, one->number);
            assert_true(other && other->count == one->count && other->type == one->type);
        }
    }
    return count;
}

static void post_recorded(struct world *world, uint32_t rank, size_t *at)
{
    const struct coll_dumped *one = next_message(dumps[rank], at);
    if (!one)
        return;
    const bool is_send = one->kind == COLL_RECORDED_SEND;
    const uint32_t from = is_send ? rank : one->peer, to = is_send ? one->peer : rank;
    const uint32_t index = (uint32_t)one->number - 1;
    assert_true(post_side(world, from, to, index, is_send));
    const struct message *message = &world->all[from][to][index];
    assert_int_equal(is_send ? message->sent.number : message->received.number, one->number);
}

static void run_again(uint32_t size, uint64_t seed)
{
    size_t at[SIZE] = {0};
    struct world *world = make_world(seed, size, MESSAGES_MAX, NO_FAULT);
    const uint32_t wanted = make_recorded(world, size);
    assert_true(wanted > ROUNDS);
    for (uint32_t turn = 0; turn < TURNS_MAX && world->over < wanted && !*world->failure; turn++) {
        const uint32_t rank = (uint32_t)world_draw(world, size);
        if (!world_draw(world, 4))
            post_recorded(world, rank, &at[rank]);
        else if (world_draw(world, 2))
            rank_turns(world, &world->nodes[rank]);
        else
            network_turns(world);
    }
    if (*world->failure)
        fail_msg("%s", world->failure);
    assert_int_equal(world->over, wanted);
    free_world(world);
}

static const struct coll_dumped *find_split(const struct coll_dump *dump)
{
    size_t at = dump->count;
    while (at && dump->operations[at - 1].kind != COLL_RECORDED_SPLIT)
        at--;
    assert_true(at > 3);
    for (size_t i = at - 4; i < at - 1; i++) // what it was made of
        assert_true(dump->operations[i].kind == SW_COLL_ALL_GATHER &&
                    dump->operations[i].type == SW_COLL_U8);
    return &dump->operations[at - 1];
}

static struct asked {
    int32_t color, key;
    uint64_t child, parent;
} asked[SIZE];

static void note_splits(void)
{
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        const struct coll_dumped *split = find_split(dumps[rank]);
        asked[rank] =
            (struct asked){split->color, split->key, split->number, dumps[rank]->seen.page.job};
    }
    assert_int_equal(asked[0].color, -1);
    assert_int_equal(asked[0].child, 0);
}

// The rank that it has in its part: by keys, then by ranks.
static uint32_t rank_in_part(uint32_t rank)
{
    uint32_t before = 0;
    for (uint32_t other = 0; other < SIZE; other++)
        before += asked[other].color == asked[rank].color &&
                  (asked[other].key < asked[rank].key ||
                   (asked[other].key == asked[rank].key && other < rank));
    return before;
}

static void replay__has_messages_and_splits(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, SIZE, exchange_and_split, want_short);
    ranks_end(&ranks, 0);
    read_dumps("whole", 0);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_again(SIZE, seed);
    note_splits();
    free_dumps();
    read_dumps("part", 1);
    for (uint32_t rank = 1; rank < SIZE; rank++) {
        const struct coll_page *page = &dumps[rank_in_part(rank)]->seen.page;
        assert_true(page->job == asked[rank].child && page->parent == asked[rank].parent);
        assert_true(page->size == SIZE - 1 && page->about.parent_rank == rank);
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_again(SIZE - 1, seed);
    free_dumps();
}

static int make_folder(void **state)
{
    (void)state;
    ranks_have_pages = true;
    unsetenv(COLL_PAGE_OFF);
    return mkdtemp(folder) && !setenv("XDG_RUNTIME_DIR", folder, 1) ? 0 : -1;
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
        cmocka_unit_test(replay__has_messages_and_splits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
