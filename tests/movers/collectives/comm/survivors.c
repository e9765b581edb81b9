// SPDX-License-Identifier: BSD-2-Clause
#include "survivors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { REMAINS = 8 };

// What sums that failed have left.
static struct remains {
    float *mine, *sum;
    uint32_t count, rank;
} remains[REMAINS];
static uint32_t failed;

// ---- data ----

// Numbers of many sizes and both signs: a sum in another order has other bits.
static float value_of(uint32_t rank, uint32_t place)
{
    uint32_t hash = (rank + 1) * 2654435761u ^ (place + 7) * 2246822519u;
    hash = (hash ^ hash >> 15) * 3266489917u;
    return ldexpf((float)(hash & 0xffff) - 32768, (int)(hash >> 16) % 24 - 12);
}

// Neighbours first, split at the largest power of two below.
static float tree_sum(uint32_t first, uint32_t count, uint32_t place)
{
    uint32_t half = 1;
    if (count == 1)
        return value_of(first, place);
    while (half * 2 < count)
        half *= 2;
    return tree_sum(first, half, place) + tree_sum(first + half, count - half, place);
}

static void need_source(const struct remains *what)
{
    for (uint32_t i = 0; i < what->count; i++) {
        const float value = value_of(what->rank, i);
        need(!memcmp(&what->mine[i], &value, sizeof(value)));
    }
}

static void keep_remains(const struct remains *what)
{
    struct remains *place = &remains[failed++ % REMAINS];
    free(place->mine);
    free(place->sum);
    memset(what->sum, 0x5a, what->count * sizeof(*what->sum));
    *place = *what;
}

void need_quiet_buffers(void)
{
    for (uint32_t i = 0; i < REMAINS; i++) {
        need_source(&remains[i]);
        for (uint32_t at = 0; at < remains[i].count; at++)
            need(!memcmp(&remains[i].sum[at], "ZZZZ", sizeof(float)));
    }
}

// ---- ranks ----

enum sw_coll_status sum_and_look(struct sw_coll *coll, uint32_t count, struct sw_coll_error *error)
{
    struct remains what = {.mine = malloc(count * sizeof(float)),
                           .sum = calloc(count, sizeof(float)),
                           .count = count,
                           .rank = sw_coll_rank(coll)};
    for (uint32_t i = 0; i < count; i++)
        what.mine[i] = value_of(what.rank, i);
    const enum sw_coll_status status =
        sw_coll_all_reduce(coll, what.mine, what.sum, count, SW_COLL_F32, SW_COLL_SUM, 0, error);
    need_source(&what);
    if (status) {
        keep_remains(&what);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        const float sum = tree_sum(0, sw_coll_size(coll), i);
        need(!memcmp(&what.sum[i], &sum, sizeof(sum)));
    }
    free(what.mine);
    free(what.sum);
    return SW_COLL_OK;
}

void sum_both_ways(struct rank *rank, struct sw_coll *coll)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_and_look(coll, FEW, &error), &error);
    need_ok(rank, sum_and_look(coll, MANY, &error), &error);
}

bool is_time_to_end(struct sw_coll *coll, const struct ranks_shared *shared, uint32_t flag,
                    enum sw_coll_status *status, struct sw_coll_error *error)
{
    uint32_t seen = __atomic_load_n(&shared->flags[flag], __ATOMIC_SEQ_CST) > 0, all = 0;
    *status = sw_coll_all_reduce(coll, &seen, &all, 1, SW_COLL_U32, SW_COLL_SUM, 0, error);
    return !*status && all == sw_coll_size(coll);
}

void keep_words(struct rank *rank, const char *words)
{
    char *text = rank->result->text;
    const size_t used = strlen(text);
    snprintf(text + used, sizeof(rank->result->text) - used, "%s; ", words);
}

void shrink_now(struct rank *rank, struct sw_coll *coll, struct sw_coll **shrunk)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_shrink(coll, 0, &error, shrunk), &error);
}

// ---- the test ----

void await_others(const struct ranks *ranks, uint32_t but)
{
    for (uint32_t i = 0; i < ranks->size; i++)
        while (!(but & 1u << i) &&
               waitid(P_PID, (id_t)ranks->pids[i], &(siginfo_t){0}, WEXITED | WNOWAIT) &&
               errno == EINTR)
            continue;
}

void expect_same(const struct ranks *ranks, uint32_t but, const char *part)
{
    const struct rank_result *first = NULL;
    for (uint32_t i = 0; i < ranks->size; i++) {
        const struct rank_result *result = &ranks->shared->results[i];
        if (but & 1u << i)
            continue;
        first = first ? first : result;
        if (!strstr(result->text, part) || strcmp(result->text, first->text) != 0 ||
            result->status != first->status || result->gone != first->gone)
            fail_msg("rank %u: %d, %u, %s; another one: %d, %u, %s", i, (int)result->status,
                     result->gone, result->text, (int)first->status, first->gone, first->text);
    }
}
