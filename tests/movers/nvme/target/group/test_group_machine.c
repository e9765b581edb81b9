/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members of a group in a simulated world: they die, stop, are cut off, leave, come twice; the log
 * is lost for a while. No write of a replaced owner gets to a medium, and none of a controller that
 * was said to be quiet; no reservation that was said to be in the log is lost, and none that was
 * refused is there; where all members are active, one that was answered holds wherever a host is
 * served. When all is well again, there is one leader, each namespace is served by one
 * member, and each host has heard of its lost controllers.
 *
 * usage: test_group_machine [FIRST-SEED [SEEDS [MEMBERS [all]]]]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum {
    PAIR = 2,
    SEEDS = 500,
    CHAOS_MS = 2000,
    UNFENCED_SEEDS = 200,
    TURN_SEEDS = 20,
    CUT_SEEDS = 4,
    CROWD_SEEDS = 3,
    BACK_SEEDS = 40
};

static struct world world;

static int run_seeds(int names, uint64_t first, uint64_t count, bool is_all_active)
{
    const struct world_options options = {.is_all_active = is_all_active,
                                          .fences = true,
                                          .awaits = true,
                                          .quiesces = true,
                                          .chaos_ms = CHAOS_MS,
                                          .names = names};
    uint64_t serves = 0, commits = 0, refusals = 0, leads = 0, fences = 0, checkpoints = 0;
    uint64_t asks = 0, quiets = 0, moves = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        const char *fault = world_run(&world, seed, &options);
        if (fault) {
            printf("seed %lu%s at %lu ms: %s\n", (unsigned long)seed,
                   is_all_active ? ", all active," : "", (unsigned long)world.now, fault);
            return 1;
        }
        serves += world.serves;
        commits += world.commits;
        refusals += world.refusals;
        leads += world.leads;
        fences += world.fences;
        checkpoints += world.checkpoints;
        asks += world.asks;
        quiets += world.quiets;
        moves += world.moves;
    }
    printf("%lu seeds%s: %lu leads, %lu serves, %lu fences, %lu commits, %lu refusals, "
           "%lu checkpoints, %lu resets, %lu quiet, %lu moves\n",
           (unsigned long)count, is_all_active ? ", all active" : "", (unsigned long)leads,
           (unsigned long)serves, (unsigned long)fences, (unsigned long)commits,
           (unsigned long)refusals, (unsigned long)checkpoints, (unsigned long)asks,
           (unsigned long)quiets, (unsigned long)moves);
    const bool is_quiet =
        leads < 5 * count || serves < 5 * count || fences < (is_all_active ? count / 2 : count) ||
        commits < (is_all_active ? 5 : 20) * count || refusals < count / 2 ||
        checkpoints < count / 2 || asks < 5 * count || quiets < 5 * count || moves < count / 8;
    if (is_quiet)
        printf("a world in which so little happens finds nothing\n");
    return is_quiet;
}

/* Without a fence, or a quiesce, there are ghosts, and the world finds them. */
static int find_ghost(bool is_all_active, bool fences, bool quiesces)
{
    const struct world_options options = {.is_all_active = is_all_active,
                                          .fences = fences,
                                          .awaits = true,
                                          .quiesces = quiesces,
                                          .chaos_ms = CHAOS_MS,
                                          .names = WORLD_NAMES};
    for (uint64_t seed = 1; seed <= UNFENCED_SEEDS; seed++) {
        const char *fault = world_run(&world, seed, &options);
        if (fault && strstr(fault, "ghost"))
            return 0;
    }
    printf("no ghost was found without a %s%s\n", fences ? "quiesce" : "fence",
           is_all_active ? ", all active" : "");
    return 1;
}

/* Members that say too early that a change of a reservation holds. */
static int find_early_answer(void)
{
    const struct world_options options = {.is_all_active = true,
                                          .fences = true,
                                          .quiesces = true,
                                          .chaos_ms = CHAOS_MS,
                                          .names = WORLD_NAMES};
    for (uint64_t seed = 1; seed <= UNFENCED_SEEDS; seed++) {
        const char *fault = world_run(&world, seed, &options);
        if (fault && strstr(fault, "does not hold"))
            return 0;
    }
    printf("no change of a reservation was answered too early\n");
    return 1;
}

static bool is_well(const char *fault, uint64_t seed, const char *of)
{
    if (fault)
        printf("seed %lu of %s at %lu ms: %s\n", (unsigned long)seed, of, (unsigned long)world.now,
               fault);
    return !fault;
}

static int crowd(void)
{
    for (uint64_t seed = 1; seed <= CROWD_SEEDS; seed++)
        if (!is_well(world_be_crowded(&world, seed), seed, "a crowd"))
            return 1;
    return 0;
}

/* No member shuns another one for longer than a search, nor takes the log from one that leads. */
static int take_turns(void)
{
    for (uint64_t seed = 1; seed <= TURN_SEEDS; seed++)
        if (!is_well(world_take_turns(&world, seed), seed, "turns"))
            return 1;
    for (uint64_t seed = 1; seed <= CUT_SEEDS; seed++)
        if (!is_well(world_stay_cut(&world, seed, false), seed, "a cut") ||
            !is_well(world_stay_cut(&world, seed, true), seed, "a cut, all active,"))
            return 1;
    for (uint64_t seed = 1; seed <= BACK_SEEDS; seed++)
        if (!is_well(world_come_back(&world, seed), seed, "a cut that heals"))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : SEEDS;
    if (argc > 3 && !strcmp(argv[3], "scenes"))
        return take_turns() || crowd();
    if (argc > 3)
        return run_seeds(atoi(argv[3]), first, count, argc > 4);
    return run_seeds(WORLD_NAMES, first, count, false) ||
           run_seeds(PAIR, first, count / 2, false) ||
           run_seeds(WORLD_NAMES, first, count / 5 + 1, true) || find_ghost(false, false, true) ||
           find_ghost(false, true, false) || find_ghost(true, false, true) ||
           find_ghost(true, true, false) || find_early_answer() || take_turns() || crowd();
}
