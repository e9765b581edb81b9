/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Power cuts and kills at any step, by seeds: test_cuts [SEEDS [FIRST]]. Each block is at any time
 * what was written to it last and answered, or what is being written. A seed that fails is printed,
 * and alone it fails the same way. Faults that are planted must be found by the same histories.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { BLOCK = 512, BLOCKS = 4096, LOG_BYTES = (16 << 10) + (4 << 20), OPS = 24, LIVES = 4 };

enum plant { PLANT_NONE, PLANT_LOG, PLANT_FILE, PLANT_QUORUM };

struct host_op {
    struct nvt_io io; /* must be first */
    struct history *history;
    bool is_busy;
    uint64_t value;
    uint8_t *data;
    uint64_t before[BLOCKS], during[BLOCKS], zeroed[BLOCKS]; /* READ: what may be there */
};

/* What each block may be: `now`, or `next` if a write of that is under way or was when it ended. */
struct history {
    struct world world;
    uint64_t now[BLOCKS], next[BLOCKS]; /* next 0: none; a value of 1 is zeroes */
    uint64_t zeroed[BLOCKS];            /* how often */
    struct host_op ops[OPS];
    uint64_t value;
    const char *why;
    bool has_left;
    uint32_t lives;
    uint32_t wiped; /* a copy; no more than one in a history */
};

struct counts {
    uint64_t cuts, kills, writes, reads, waits, destaged, replayed, lost;
};

static void fill_block(uint8_t *at, uint64_t value)
{
    uint64_t words[BLOCK / 8];
    for (uint32_t i = 0; i < BLOCK / 8; i++)
        words[i] = value == 1 ? 0 : value;
    memcpy(at, words, BLOCK);
}

/* 0: a mixture. */
static uint64_t value_of(const uint8_t *at)
{
    uint64_t words[BLOCK / 8];
    memcpy(words, at, BLOCK);
    for (uint32_t i = 1; i < BLOCK / 8; i++)
        if (words[i] != words[0])
            return 0;
    return words[0] ? words[0] : 1;
}

static uint64_t first_of(const struct nvt_io *io)
{
    return io->offset / BLOCK;
}

static uint64_t end_of_io(const struct nvt_io *io)
{
    return (io->offset + io->len_bytes) / BLOCK;
}

static void write_ended(struct nvt_io *io, uint16_t status)
{
    struct host_op *op = (struct host_op *)io;
    struct history *history = op->history;
    op->is_busy = false;
    if (status && !history->world.fail_writes)
        history->why = "a write has failed";
    for (uint64_t i = first_of(io); i < end_of_io(io) && !status; i++) {
        history->now[i] = op->value;
        history->next[i] = 0;
    }
}

/* A read sees what was there when it came, or what was being written or was written since. Values
 * only grow, but for zeroes. */
static bool may_be_found(const struct host_op *op, uint64_t block, uint64_t found)
{
    const struct history *history = op->history;
    if (found == op->before[block] || found == op->during[block])
        return true;
    if (found == 1)
        return history->zeroed[block] != op->zeroed[block];
    return found > op->before[block] && found > op->during[block] && found <= history->value;
}

static void check_read(struct host_op *op)
{
    for (uint64_t i = first_of(&op->io); i < end_of_io(&op->io); i++) {
        const uint64_t found = value_of(op->data + i * BLOCK - op->io.offset);
        if (!may_be_found(op, i, found))
            op->history->why = found ? "a read has found something old" : "a block is torn";
    }
}

static void note_allowed(struct host_op *op)
{
    memcpy(op->before, op->history->now, sizeof(op->before));
    memcpy(op->during, op->history->next, sizeof(op->during));
    memcpy(op->zeroed, op->history->zeroed, sizeof(op->zeroed));
}

static void read_ended(struct nvt_io *io, uint16_t status)
{
    struct host_op *op = (struct host_op *)io;
    op->is_busy = false;
    if (status)
        op->history->why = "a read has failed";
    else
        check_read(op);
}

static bool overlaps_write(const struct history *history, uint64_t first, uint64_t end)
{
    for (uint32_t i = 0; i < OPS; i++) {
        const struct host_op *op = &history->ops[i];
        if (op->is_busy && op->io.kind != NVT_READ && first_of(&op->io) < end &&
            end_of_io(&op->io) > first)
            return true;
    }
    return false;
}

/* Mostly where others write, too. */
static void draw_range(struct history *history, uint64_t *first, uint64_t *count)
{
    struct random *random = &history->world.random;
    const uint32_t size = random_below(random, 10);
    *count = size < 5   ? 1 + random_below(random, 16)
             : size < 9 ? 1 + random_below(random, 256)
                        : 1 + random_below(random, 2048);
    const uint32_t room = random_below(random, 3) ? BLOCKS / 4 : BLOCKS;
    if (*count > room)
        *count = room;
    *first = random_below(random, (uint32_t)(room - *count + 1));
}

static void submit_one(struct history *history, struct counts *counts)
{
    struct random *random = &history->world.random;
    struct host_op *op = &history->ops[random_below(random, OPS)];
    uint64_t first, count;
    draw_range(history, &first, &count);
    const uint32_t kind = random_below(random, 20);
    if (op->is_busy)
        return;
    op->io = (struct nvt_io){.kind = kind < 6     ? NVT_READ
                                     : kind == 18 ? NVT_WRITE_ZEROES
                                     : kind == 19 ? NVT_DEALLOCATE
                                                  : NVT_WRITE,
                             .offset = first * BLOCK,
                             .len_bytes = count * BLOCK,
                             .data = op->data,
                             .uring = &history->world.uring};
    op->io.deallocates = kind == 18 && random_below(random, 2);
    op->history = history;
    if (op->io.kind == NVT_READ) {
        counts->reads++;
        op->io.done = read_ended;
        note_allowed(op);
    } else if (overlaps_write(history, first, first + count)) {
        return;
    } else {
        counts->writes++;
        op->io.done = write_ended;
        op->value = op->io.kind == NVT_WRITE ? ++history->value : 1;
        for (uint64_t i = first; i < first + count; i++) {
            history->next[i] = op->value;
            history->zeroed[i] += op->value == 1;
            if (op->io.kind == NVT_WRITE)
                fill_block(op->data + (i - first) * BLOCK, op->value);
        }
    }
    op->is_busy = true;
    nvt_tier_submit(history->world.tier, &op->io);
}

static void rest_until_idle(struct history *history)
{
    enum { STEPS_MAX = 2000000 };
    for (uint32_t i = 0; i < STEPS_MAX && !history->why; i++) {
        bool any = false;
        for (uint32_t j = 0; j < OPS; j++)
            any = any || history->ops[j].is_busy;
        if (!any)
            return;
        world_step(&history->world);
    }
    history->why = history->why ? history->why : "it has come to a halt";
}

/* Reads all. What is found has happened, and stays. */
static void read_all(struct history *history)
{
    enum { PART = 512 };
    struct host_op *op = &history->ops[0];
    for (uint64_t first = 0; first < BLOCKS && !history->why; first += PART) {
        op->io = (struct nvt_io){.kind = NVT_READ,
                                 .offset = first * BLOCK,
                                 .len_bytes = PART * BLOCK,
                                 .data = op->data,
                                 .uring = &history->world.uring,
                                 .done = read_ended};
        op->history = history;
        note_allowed(op);
        op->is_busy = true;
        nvt_tier_submit(history->world.tier, &op->io);
        rest_until_idle(history);
        for (uint64_t i = first; i < first + PART; i++)
            history->now[i] = value_of(op->data + (i - first) * BLOCK);
    }
    memset(history->next, 0, sizeof(history->next));
}

static void note_left(struct nvt_io *io, uint16_t status)
{
    struct history *history = io->user;
    history->has_left = true;
    if (status)
        history->why = "it cannot be detached";
}

static void detach_all(struct history *history)
{
    struct nvt_io leave = {.uring = &history->world.uring, .done = note_left, .user = history};
    history->has_left = false;
    nvt_tier_detach(history->world.tier, &leave);
    for (uint32_t i = 0; i < 2000000 && !history->has_left && !history->why; i++)
        world_step(&history->world);
    if (!history->has_left && !history->why)
        history->why = "a detach has come to a halt";
    for (uint64_t i = 0; i < BLOCKS && !history->why; i++)
        if (value_of(history->world.file.settled + i * BLOCK) != history->now[i])
            history->why = "FILE is not whole after a detach";
}

/* Copies that are away for a while, one of three. */
static void disturb_copies(struct history *history, struct counts *counts)
{
    struct world *world = &history->world;
    struct world_medium *medium = world->media[random_below(&world->random, world->copies)];
    uint32_t disturbed = 0;
    for (uint32_t i = 0; i < world->copies; i++)
        disturbed += !world->media[i] || world->media[i]->error || world->media[i]->is_paused;
    if (world->copies < 3 || !medium || random_below(&world->random, 40))
        return;
    if (medium->error || medium->is_paused) {
        medium->error = 0;
        medium->is_paused = false;
    } else if (!disturbed) {
        counts->lost++;
        medium->error = random_below(&world->random, 2) ? -ESTALE : 0;
        medium->is_paused = !medium->error;
    }
}

static void heal_copies(struct world *world)
{
    for (uint32_t i = 0; i < world->copies; i++) {
        if (!world->media[i])
            continue;
        world->media[i]->error = 0;
        world->media[i]->is_paused = false;
    }
}

static void end_life(struct history *history, struct counts *counts)
{
    struct world *world = &history->world;
    counts->waits += world->tier->counts.waits;
    counts->destaged += world->tier->counts.destaged_bytes;
    counts->replayed += world->tier->counts.replayed_records;
    if (random_below(&world->random, 3)) {
        counts->cuts++;
        world_power_cut(world);
    } else {
        counts->kills++;
        world_kill(world);
    }
    for (uint32_t i = 0; i < OPS; i++)
        history->ops[i].is_busy = false;
}

/* A copy loses all that it had, once. */
static void wipe_copy(struct history *history)
{
    struct world *world = &history->world;
    if (world->copies < 3 || history->wiped || random_below(&world->random, 4))
        return;
    struct store *store = &world->logs[random_below(&world->random, world->copies)];
    memset(store->live, 0, store->bytes);
    memset(store->settled, 0, store->bytes);
    history->wiped = 1;
}

static void live_once(struct history *history, enum plant plant, struct counts *counts)
{
    struct world *world = &history->world;
    const uint32_t away =
        world->copies > 2 && !history->wiped && history->lives++ && !random_below(&world->random, 3)
            ? 1u << random_below(&world->random, world->copies)
            : 0;
    if (world_open(world, away, false)) {
        history->why = world->error;
        return;
    }
    if (plant == PLANT_QUORUM)
        world->tier->quorum = 1;
    read_all(history);
    const uint32_t steps = random_below(&world->random, 4000);
    for (uint32_t i = 0; i < steps && !history->why; i++) {
        if (!random_below(&world->random, 3))
            submit_one(history, counts);
        world_step(world);
        disturb_copies(history, counts);
    }
    if (!random_below(&world->random, 4)) { /* all that was sent ends by itself */
        heal_copies(world);
        rest_until_idle(history);
    }
    end_life(history, counts);
    wipe_copy(history);
}

static bool run_history(uint64_t seed, enum plant plant, struct counts *counts, const char **why)
{
    struct history *history = calloc(1, sizeof(*history));
    static char last[512];
    if (!history)
        abort();
    const uint32_t copies = plant == PLANT_QUORUM || seed % 3 == 0 ? 3 : 1;
    world_make(&history->world, seed, copies, BLOCKS * BLOCK, LOG_BYTES);
    history->world.cache_bytes = seed % 2 ? 256 << 10 : 0;
    history->world.lies_of_log = plant == PLANT_LOG;
    history->world.lies_of_file = plant == PLANT_FILE;
    history->value = 1;
    for (uint32_t i = 0; i < BLOCKS; i++)
        history->now[i] = 1;
    for (uint32_t i = 0; i < OPS; i++)
        if (!(history->ops[i].data = malloc(BLOCKS * BLOCK)))
            abort();
    for (uint32_t i = 0; i < LIVES && !history->why; i++)
        live_once(history, plant, counts);
    if (!history->why && world_open(&history->world, 0, false))
        history->why = history->world.error;
    if (!history->why)
        read_all(history);
    if (!history->why)
        detach_all(history);
    snprintf(last, sizeof(last), "%s", history->why ? history->why : "");
    *why = last;
    for (uint32_t i = 0; i < OPS; i++)
        history->ops[i].is_busy = false;
    world_free(&history->world);
    for (uint32_t i = 0; i < OPS; i++)
        free(history->ops[i].data);
    free(history);
    return !*last;
}

static bool all_hold(uint64_t first, uint64_t seeds)
{
    struct counts counts = {0};
    uint64_t failed = 0;
    for (uint64_t seed = first; seed < first + seeds && failed < 10; seed++) {
        const char *why;
        if (run_history(seed, PLANT_NONE, &counts, &why))
            continue;
        printf("seed %lu: %s\n", seed, why);
        failed++;
    }
    printf("%lu cuts, %lu kills, %lu writes, %lu reads, %lu waited, %lu MiB destaged, %lu records "
           "replayed, %lu times a copy was away; %lu seeds failed\n",
           counts.cuts, counts.kills, counts.writes, counts.reads, counts.waits,
           counts.destaged >> 20, counts.replayed, counts.lost, failed);
    return !failed && counts.cuts > seeds && counts.kills && counts.destaged && counts.replayed &&
           counts.lost;
}

static bool is_found(enum plant plant, const char *name)
{
    enum { SEEDS_MAX = 500 };
    struct counts counts = {0};
    for (uint64_t seed = 1; seed <= SEEDS_MAX; seed++) {
        const char *why;
        if (!run_history(seed, plant, &counts, &why)) {
            printf("%s: found by seed %lu: %s\n", name, seed, why);
            return true;
        }
    }
    printf("%s: not found\n", name);
    return false;
}

/* A new log has all its pages before a host is served; one that is found again is not made to wait
 * for them. */
static bool new_log_is_warm(uint32_t copies)
{
    struct world world;
    bool is_good = true;
    world_make(&world, 1, copies, BLOCKS * BLOCK, LOG_BYTES);
    for (uint32_t start = 0; start < 2; start++) {
        is_good = is_good && !world_open(&world, 0, false);
        while (is_good && !nvt_tier_is_ready(world.tier))
            world_step(&world);
        for (uint32_t i = 0; i < copies && is_good; i++)
            is_good = world.media[i]->cold == (start ? WORLD_COLD : 0);
        if (is_good)
            world_kill(&world);
    }
    if (!is_good)
        printf("the pages of a log with %u copies: %s\n", copies, world.error);
    world_free(&world);
    return is_good;
}

int main(int argc, char **argv)
{
    const uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool is_good = new_log_is_warm(1) && new_log_is_warm(WORLD_COPIES);
    is_good &= all_hold(first, seeds);
    is_good &= is_found(PLANT_LOG, "a log that is not persistent");
    is_good &= is_found(PLANT_FILE, "FILE is not flushed before the log is trimmed");
    is_good &= is_found(PLANT_QUORUM, "a quorum of one copy among three");
    return is_good ? 0 : 1;
}
