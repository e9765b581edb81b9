/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "base/mix.h"

void sw_sim_world_init(struct sw_sim_world *world, uint64_t seed)
{
    *world = (struct sw_sim_world){.random = sw_mix(seed + 1), .hash = sw_mix(~seed)};
}

void sw_sim_world_fini(struct sw_sim_world *world)
{
    free(world->heap);
    world->heap = NULL;
    world->count = world->room = 0;
}

static bool world_is_before(const struct sw_sim_event *one, const struct sw_sim_event *other)
{
    return one->at_ns != other->at_ns ? one->at_ns < other->at_ns : one->sequence < other->sequence;
}

void sw_sim_at(struct sw_sim_world *world, uint64_t at_ns, sw_sim_fn fn, void *who, void *what)
{
    if (world->count == world->room) {
        uint32_t room = world->room ? world->room * 2 : 256;
        struct sw_sim_event *heap = realloc(world->heap, room * sizeof(*heap));
        if (!heap) {
            fputs("sim: no memory for events\n", stderr);
            abort();
        }
        world->heap = heap;
        world->room = room;
    }
    struct sw_sim_event event = {.at_ns = sw_max_u64(at_ns, world->now_ns),
                                 .sequence = world->sequence++,
                                 .fn = fn,
                                 .who = who,
                                 .what = what};
    uint32_t at = world->count++;
    for (; at && world_is_before(&event, &world->heap[(at - 1) / 2]); at = (at - 1) / 2)
        world->heap[at] = world->heap[(at - 1) / 2];
    world->heap[at] = event;
}

static struct sw_sim_event world_take_first(struct sw_sim_world *world)
{
    struct sw_sim_event first = world->heap[0], last = world->heap[--world->count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < world->count; at = child) {
        if (child + 1 < world->count &&
            world_is_before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (world_is_before(&last, &world->heap[child]))
            break;
        world->heap[at] = world->heap[child];
    }
    world->heap[at] = last;
    return first;
}

bool sw_sim_step(struct sw_sim_world *world, uint64_t until_ns)
{
    if (!world->count || world->heap[0].at_ns > until_ns) {
        if (world->now_ns < until_ns)
            world->now_ns = until_ns;
        return false;
    }
    struct sw_sim_event event = world_take_first(world);
    world->now_ns = event.at_ns;
    event.fn(event.who, event.what);
    return true;
}

uint64_t sw_sim_random(struct sw_sim_world *world)
{
    world->random += SW_MIX_STEP;
    return sw_mix(world->random);
}

uint32_t sw_sim_below(struct sw_sim_world *world, uint32_t limit)
{
    return (uint32_t)((sw_sim_random(world) >> 32) * limit >> 32);
}

bool sw_sim_happens(struct sw_sim_world *world, uint32_t chance)
{
    return chance && sw_sim_random(world) >> 32 < chance;
}

uint32_t sw_sim_ppm(uint32_t ppm)
{
    return (uint32_t)(((uint64_t)ppm << 32) / 1000000 - (ppm >= 1000000));
}

void sw_sim_trace(struct sw_sim_world *world, const char *name, uint64_t a, uint64_t b)
{
    uint64_t what = 0;
    for (const char *at = name; *at; at++)
        what = what * 31 + (uint8_t)*at;
    world->hash = sw_mix(world->hash ^ sw_mix(world->now_ns ^ what << 40) ^ a * 3 ^ b * 7 << 1);
    if (world->prints)
        fprintf(stderr, "%12llu.%03llu us  %-10s %llx %llx\n",
                (unsigned long long)world->now_ns / 1000, (unsigned long long)world->now_ns % 1000,
                name, (unsigned long long)a, (unsigned long long)b);
}
