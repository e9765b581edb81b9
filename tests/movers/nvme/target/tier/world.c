/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <nvme/types.h>

#include "common/time/clock.h"
#include "nvme/wire/fabrics.h"

uint64_t random_next(struct random *random)
{
    /* xorshift64* */
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * UINT64_C(0x2545F4914F6CDD1D);
}

uint32_t random_below(struct random *random, uint32_t below)
{
    return (uint32_t)((random_next(random) >> 32) % below);
}

/* ---- stores ---- */

void store_make(struct store *store, uint64_t bytes, uint32_t line_bytes)
{
    *store = (struct store){.bytes = bytes, .line_bytes = line_bytes};
    store->live = calloc(1, bytes);
    store->settled = calloc(1, bytes);
    store->last = &store->first;
    if (!store->live || !store->settled)
        abort();
}

static void store_forget(struct store *store)
{
    while (store->first) {
        struct store_write *write = store->first;
        store->first = write->next;
        free(write);
    }
    store->last = &store->first;
}

void store_free(struct store *store)
{
    store_forget(store);
    free(store->live);
    free(store->settled);
}

void store_write(struct store *store, uint64_t at, const void *data, uint32_t bytes)
{
    struct store_write *write = malloc(sizeof(*write) + bytes);
    if (!write || at + bytes > store->bytes)
        abort();
    *write = (struct store_write){.at = at, .bytes = bytes};
    memcpy(write->data, data, bytes);
    memcpy(store->live + at, data, bytes);
    *store->last = write;
    store->last = &write->next;
}

void store_flush(struct store *store)
{
    for (struct store_write *write = store->first; write; write = write->next)
        memcpy(store->settled + write->at, write->data, write->bytes);
    store_forget(store);
}

static void survive_in_part(struct store *store, struct random *random, uint64_t at,
                            const uint8_t *data, uint32_t bytes)
{
    const uint32_t luck = random_below(random, 101); /* often all, or nothing */
    for (uint32_t done = 0; done < bytes;) {
        uint32_t line = store->line_bytes - (uint32_t)((at + done) % store->line_bytes);
        if (line > bytes - done)
            line = bytes - done;
        if (random_below(random, 100) < luck)
            memcpy(store->settled + at + done, data + done, line);
        done += line;
    }
}

void store_cut(struct store *store, struct random *random)
{
    for (struct store_write *write = store->first; write; write = write->next)
        survive_in_part(store, random, write->at, write->data, write->bytes);
    store_forget(store);
    memcpy(store->live, store->settled, store->bytes);
}

/* ---- media of the log ---- */

static int world_now(struct nvt_tier_medium *base, bool is_write, uint64_t at, void *data,
                     uint32_t bytes)
{
    struct world_medium *medium = (struct world_medium *)base;
    if (medium->error)
        return medium->error;
    if (is_write) {
        store_write(medium->store, at, data, bytes);
        store_flush(medium->store);
    } else {
        memcpy(data, medium->store->live + at, bytes);
    }
    return 0;
}

static bool world_start(struct nvt_tier_medium *base, struct nvt_tier_move *move)
{
    struct world_medium *medium = (struct world_medium *)base;
    if (medium->pending_count == WORLD_PENDING)
        abort();
    medium->pending[medium->pending_count++] = move;
    return false;
}

static bool world_warm_up(struct nvt_tier_medium *base)
{
    struct world_medium *medium = (struct world_medium *)base;
    medium->cold -= medium->cold > 0;
    return medium->cold;
}

static void world_close(struct nvt_tier_medium *base)
{
    free(base);
}

static const struct nvt_tier_medium_ops world_ops = {
    .now = world_now, .start = world_start, .warm_up = world_warm_up, .close = world_close};

static bool end_move(struct world_medium *medium)
{
    struct world *world = medium->world;
    if (!medium->pending_count || medium->is_paused)
        return false;
    const uint32_t chosen = random_below(&world->random, medium->pending_count);
    struct nvt_tier_move *move = medium->pending[chosen];
    medium->pending[chosen] = medium->pending[--medium->pending_count];
    if (!medium->error && move->is_write) {
        /* Persistent: other writes that have ended are, too, and those under way are not there. */
        store_write(medium->store, move->at, move->data, move->bytes);
        if (!world->lies_of_log)
            store_flush(medium->store);
    } else if (!medium->error) {
        memcpy(move->data, medium->store->live + move->at, move->bytes);
    }
    struct nvt_tier_turn turn;
    nvt_tier_enter(world->tier, &turn, &world->uring);
    move->done(move, medium->error);
    nvt_tier_leave(world->tier);
    return true;
}

/* ---- FILE ---- */

static void submit_to_file(struct nvt_backend *backend, struct nvt_io *io)
{
    struct world *world = LIST_MEMBER(backend, struct world, backend);
    if (world->pending_count == WORLD_PENDING)
        abort();
    io->moved = world->file_writes;
    world->pending[world->pending_count++] = io;
}

static void zero_file(struct world *world, const struct nvt_io *io)
{
    uint8_t *zeroes = calloc(1, io->len_bytes);
    if (!zeroes)
        abort();
    store_write(&world->file, io->offset, zeroes, (uint32_t)io->len_bytes);
    free(zeroes);
}

/* Writes that came while the flush was under way stay unsettled. */
static void flush_file(struct world *world, const struct nvt_io *io)
{
    if (!world->lies_of_file && io->moved == world->file_writes)
        store_flush(&world->file);
}

static bool end_of_file_io(struct world *world)
{
    if (!world->pending_count)
        return false;
    const uint32_t chosen = random_below(&world->random, world->pending_count);
    struct nvt_io *io = world->pending[chosen];
    uint16_t status = 0;
    world->pending[chosen] = world->pending[--world->pending_count];
    switch (io->kind) {
    case NVT_READ:
        memcpy(io->data, world->file.live + io->offset, io->len_bytes);
        break;
    case NVT_WRITE:
        if (world->fail_writes && world->file_writes >= world->fail_writes)
            status = NVF_MEDIA(NVME_SC_WRITE_FAULT);
        else
            store_write(&world->file, io->offset, io->data, (uint32_t)io->len_bytes);
        world->file_writes++;
        break;
    case NVT_WRITE_ZEROES:
    case NVT_DEALLOCATE:
        zero_file(world, io);
        world->file_writes++;
        break;
    case NVT_FLUSH:
        flush_file(world, io);
        break;
    case NVT_VERIFY:
        break;
    }
    io->done(io, status);
    return true;
}

static const struct nvt_backend_ops file_of_world = {.kind = "file", .submit = submit_to_file};

/* ---- the world ---- */

void world_make(struct world *world, uint64_t seed, uint32_t copies, uint64_t file_bytes,
                uint64_t log_bytes)
{
    *world = (struct world){.random = {.state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1},
                            .copies = copies};
    store_make(&world->file, file_bytes, 512);
    for (uint32_t i = 0; i < copies; i++)
        store_make(&world->logs[i], log_bytes, 64);
    world->backend =
        (struct nvt_backend){.ops = &file_of_world, .size_bytes = file_bytes, .block_bytes = 512};
    world->stamp = (struct nvt_tier_stamp){.size_bytes = file_bytes, .mtime_ns = 1};
    if (nvt_uring_open(&world->uring, 8))
        abort();
}

void world_free(struct world *world)
{
    if (world->tier)
        world_kill(world);
    store_free(&world->file);
    for (uint32_t i = 0; i < world->copies; i++)
        store_free(&world->logs[i]);
    nvt_uring_close(&world->uring);
}

int world_open(struct world *world, uint32_t away, bool makes_anew)
{
    static const char *const names[WORLD_COPIES] = {"first", "second", "third"};
    struct nvt_tier_medium *media[WORLD_COPIES] = {0};
    for (uint32_t i = 0; i < world->copies; i++) {
        world->media[i] = NULL;
        if (away >> i & 1)
            continue;
        struct world_medium *medium = calloc(1, sizeof(*medium));
        if (!medium)
            abort();
        medium->medium = (struct nvt_tier_medium){.ops = &world_ops,
                                                  .name = "copy",
                                                  .writes_max = 1 + random_below(&world->random, 4),
                                                  .size_bytes = world->logs[i].bytes};
        medium->world = world;
        medium->store = &world->logs[i];
        medium->cold = WORLD_COLD;
        world->media[i] = medium;
        media[i] = &medium->medium;
    }
    struct nvt_tier_setup setup = {.file = &world->backend,
                                   .uring = &world->uring,
                                   .media = media,
                                   .names = names,
                                   .copies_count = world->copies,
                                   .stamp = world->stamp,
                                   .cache_bytes = world->cache_bytes,
                                   .makes_anew = makes_anew};
    for (uint32_t i = 0; i < sizeof(setup.identity); i++)
        setup.identity[i] = (uint8_t)random_next(&world->random);
    return nvt_tier_open(&setup, &world->tier, world->error, sizeof(world->error));
}

void world_kill(struct world *world)
{
    nvt_tier_close(world->tier);
    world->tier = NULL;
    world->pending_count = 0;
}

void world_power_cut(struct world *world)
{
    for (uint32_t i = 0; i < world->copies; i++) {
        struct world_medium *medium = world->media[i];
        for (uint32_t j = 0; medium && j < medium->pending_count; j++)
            if (medium->pending[j]->is_write)
                survive_in_part(medium->store, &world->random, medium->pending[j]->at,
                                medium->pending[j]->data, medium->pending[j]->bytes);
        store_cut(&world->logs[i], &world->random);
    }
    for (uint32_t i = 0; i < world->pending_count; i++)
        if (world->pending[i]->kind == NVT_WRITE)
            survive_in_part(&world->file, &world->random, world->pending[i]->offset,
                            world->pending[i]->data, (uint32_t)world->pending[i]->len_bytes);
    store_cut(&world->file, &world->random);
    world_kill(world);
}

void world_step(struct world *world)
{
    const uint32_t chosen = random_below(&world->random, world->copies + 2);
    if (chosen < world->copies && world->media[chosen] && end_move(world->media[chosen]))
        return;
    if (chosen == world->copies && end_of_file_io(world))
        return;
    if (world->hosts != WORLD_MIXED) {
        world->tier->ticked_ns = mover_now_ns();
        world->tier->wrote_ns = world->hosts == WORLD_BUSY ? INT64_MAX : 0;
    } else { /* time has passed */
        world->tier->ticked_ns = 0;
        world->tier->wrote_ns = random_below(&world->random, 2) ? 0 : INT64_MAX;
    }
    (void)nvt_uring_poll(&world->uring);
}
