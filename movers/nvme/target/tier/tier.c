/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/tier.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/tier/cache.h"
#include "nvme/target/tier/inside.h"
#include "nvme/target/tier/survey.h"

enum {
    BYTES_OF_EXTENT = 2048, /* of the log, for each extent that the index has room for */
    QUIET_TURNS = 64,       /* between two looks at the clock */
};

#define TICK_NS 20000000ull

static int tier_make_memory(struct nvt_tier *tier, const struct nvt_tier_setup *setup)
{
    const uint64_t extents = 2 * (tier->super.ring_bytes / BYTES_OF_EXTENT + 64);
    if (extents > UINT32_MAX / 2)
        return -EFBIG;
    int rc = nvt_tier_index_open(&tier->index, (uint32_t)extents);
    if (rc)
        return rc;
    if (posix_memalign((void **)&tier->stage, 4096, tier->super.stage_bytes))
        return -ENOMEM;
    if (posix_memalign((void **)&tier->run_memory, 4096, NVT_TIER_RUNS * NVT_TIER_RUN_BYTES))
        return -ENOMEM;
    memset(tier->stage, 0, tier->super.stage_bytes);
    for (uint32_t i = 0; i < NVT_TIER_RUNS; i++) {
        tier->runs[i].tier = tier;
        tier->runs[i].data = tier->run_memory + i * NVT_TIER_RUN_BYTES;
    }
    if (setup->cache_bytes && !(tier->cache = nvt_tier_cache_open(setup->cache_bytes)))
        return -ENOMEM;
    for (uint32_t i = 0; i < tier->copies_count && !rc; i++) {
        struct nvt_tier_medium *medium = tier->copies[i].medium;
        if (medium && medium->ops->use)
            rc = medium->ops->use(medium, tier->stage, tier->super.stage_bytes);
    }
    return rc ? rc : nvt_tier_walk_begin(tier);
}

static void free_tier(struct nvt_tier *tier)
{
    nvt_tier_walk_end(tier);
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        free(tier->copies[i].catch_up_piece);
        if (tier->copies[i].medium)
            tier->copies[i].medium->ops->close(tier->copies[i].medium);
    }
    while (tier->fetches) {
        struct nvt_tier_fetch *fetch = tier->fetches;
        tier->fetches = fetch->all;
        free(fetch->place);
        free(fetch);
    }
    while (tier->ops) {
        struct nvt_tier_op *op = tier->ops;
        tier->ops = op->all;
        free(op);
    }
    while (tier->seats) {
        struct nvt_tier_seat *seat = tier->seats;
        tier->seats = seat->next;
        nvt_uring_remove_poller(&seat->poller);
        free(seat);
    }
    nvt_tier_cache_close(tier->cache);
    nvt_tier_index_close(&tier->index);
    free(tier->run_memory);
    free(tier->stage);
    pthread_mutex_destroy(&tier->lock);
    free(tier);
}

int nvt_tier_open(const struct nvt_tier_setup *setup, struct nvt_tier **out, char *error,
                  size_t error_size)
{
    struct nvt_tier *tier = calloc(1, sizeof(*tier));
    if (!tier)
        return -ENOMEM;
    pthread_mutex_init(&tier->lock, NULL);
    tier->now_ns = mover_now_ns(); /* what is found in the log is as old as this start */
    list_init(&tier->waiting);
    list_init(&tier->logging);
    list_init(&tier->answering);
    tier->file = setup->file;
    tier->size_bytes = setup->file->size_bytes;
    tier->stamp = setup->look;
    tier->owner = setup->owner;
    tier->drops_damaged = setup->drops_damaged;
    tier->hands_over = setup->hands_over;
    tier->copies_count = setup->copies_count;
    tier->quorum = setup->copies_count / 2 + 1;
    for (uint32_t i = 0; i < setup->copies_count; i++) {
        tier->copies[i].tier = tier;
        tier->copies[i].medium = setup->media[i];
        tier->copies[i].name = setup->names[i];
        if (!setup->media[i])
            continue;
        setup->media[i]->tier = tier;
        tier->polls_media = tier->polls_media || setup->media[i]->ops->poll;
    }
    int rc = nvt_tier_survey(tier, setup, error, error_size);
    if (!rc && (rc = tier_make_memory(tier, setup)))
        snprintf(error, error_size,
                 "a tier with a log of %" PRIu64 " MiB and ram= of %" PRIu64 " MiB: %s",
                 tier->super.ring_bytes >> 20, setup->cache_bytes >> 20, strerror(-rc));
    if (!rc && !nvt_tier_take_seat(tier, setup->uring))
        rc = -ENOMEM;
    if (rc) {
        free_tier(tier);
        return rc;
    }
    atomic_store(&tier->has_steps, true); /* the walk */
    *out = tier;
    return 0;
}

void nvt_tier_close(struct nvt_tier *tier)
{
    free_tier(tier);
}

/* ---- what goes on ---- */

static bool poll_media(struct nvt_tier *tier)
{
    bool any = false;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_medium *medium = tier->copies[i].medium;
        if (medium && medium->ops->poll)
            any = medium->ops->poll(medium) || any;
    }
    return any;
}

static void do_rare_things(struct nvt_tier *tier)
{
    atomic_store_explicit(&tier->ticked_ns, tier->now_ns, memory_order_relaxed);
    nvt_tier_copies_tick(tier);
    nvt_tier_fetch_again(tier);
    nvt_tier_end_unwanted(tier);
    nvt_tier_flow(tier);
}

/* It stays awake until the next write to FILE may begin. */
static bool paces_runs(const struct nvt_tier *tier, const struct nvt_tier_seat *seat)
{
    return atomic_load_explicit(&tier->is_paced, memory_order_relaxed) &&
           atomic_load_explicit(&tier->writer, memory_order_relaxed) == seat->uring;
}

bool nvt_tier_poll(struct nvt_tier *tier, struct nvt_tier_seat *seat)
{
    const bool is_pacer = paces_runs(tier, seat);
    const bool is_due = tier->polls_media ||
                        atomic_load_explicit(&tier->has_steps, memory_order_relaxed) ||
                        (is_pacer && nvt_tier_is_silent(tier, mover_now_ns()));
    if (!is_due && ++seat->quiet_turns % QUIET_TURNS)
        return is_pacer;
    const uint64_t ticked_ns = atomic_load_explicit(&tier->ticked_ns, memory_order_relaxed);
    if (!is_due && mover_now_ns() - ticked_ns < TICK_NS)
        return is_pacer;
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, seat->uring);
    bool any = tier->polls_media && poll_media(tier);
    if (tier->phase == NVT_TIER_WALKING) {
        any = nvt_tier_walk_step(tier) || any;
    } else if (tier->destage.step == NVT_TIER_DROPPING || tier->wants_runs || is_pacer) {
        nvt_tier_go_at_pace(tier);
        any = true;
    }
    if (tier->now_ns - ticked_ns >= TICK_NS)
        do_rare_things(tier);
    nvt_tier_leave(tier);
    return any;
}

bool nvt_tier_is_ready(struct nvt_tier *tier)
{
    pthread_mutex_lock(&tier->lock);
    const bool is_ready = tier->phase != NVT_TIER_WALKING;
    pthread_mutex_unlock(&tier->lock);
    return is_ready;
}

void nvt_tier_status_of(struct nvt_tier *tier, struct nvt_tier_status *status)
{
    *status = (struct nvt_tier_status){0};
    pthread_mutex_lock(&tier->lock);
    nvt_tier_index_answered(tier);
    const uint64_t oldest = nvt_tier_index_oldest(&tier->index), now_ns = mover_now_ns();
    status->log_bytes = tier->super.ring_bytes;
    status->used_bytes = tier->end - tier->head;
    status->dirty_bytes = tier->index.dirty_bytes;
    if (oldest != UINT64_MAX)
        status->oldest_ns = now_ns - nvt_tier_destage_since(&tier->destage, oldest, now_ns);
    if (tier->cache)
        nvt_tier_cache_counts(tier->cache, &status->cache_bytes, &status->cache_hits,
                              &status->cache_misses);
    status->counts = tier->counts;
    status->phase = tier->phase;
    status->copies_count = tier->copies_count;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const struct nvt_tier_copy *copy = &tier->copies[i];
        status->copies[i].state = copy->state;
        snprintf(status->copies[i].name, sizeof(status->copies[i].name), "%s", copy->name);
    }
    memcpy(status->trouble, tier->trouble, sizeof(status->trouble));
    pthread_mutex_unlock(&tier->lock);
}
