// SPDX-License-Identifier: BSD-2-Clause
// Counts of blocks that differ: each rank is told which one, and both values.
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collectives/comm/comm.h"

static struct {
    enum sw_coll_kind kind;
    uint64_t count;
    uint32_t odd; // the rank whose counts are others
} unlike;

static void gather_unlike(struct rank *rank)
{
    uint64_t counts[RANKS] = {0}, all = 0;
    struct sw_coll_error error = {.text = ""};
    for (uint32_t i = 0; i < rank->size; i++)
        counts[i] = unlike.count + i;
    if (rank->rank == unlike.odd)
        counts[1] += 7, counts[rank->size - 1]++;
    for (uint32_t i = 0; i < rank->size; i++)
        all += counts[i];
    float *send = calloc(all, sizeof(*send)), *recv = calloc(all, sizeof(*recv));
    const struct sw_coll_call call = {
        .kind = unlike.kind, .type = SW_COLL_F32, .send = send, .recv = recv, .counts = counts};
    rank->result->status = sw_coll_run(rank->coll, &call, 0, &error);
    memcpy(rank->result->text, error.text, sizeof(error.text));
    const float nothing = 0;
    for (uint64_t i = 0; i < all; i++)
        need(!memcmp(&recv[i], &nothing, sizeof(nothing)));
    free(send);
    free(recv);
}

// With rank 0 the odd one, rank 1 is the first that differs from it.
static void counts__that_differ_are_told(void **state)
{
    static const enum sw_coll_kind kinds[] = {SW_COLL_ALL_GATHER, SW_COLL_REDUCE_SCATTER,
                                              SW_COLL_ALL_GATHER, SW_COLL_REDUCE_SCATTER};
    static const uint64_t counts[] = {3, 5, 100000, 30000};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct ranks ranks;
        char text[100];
        unlike.kind = kinds[i], unlike.count = counts[i], unlike.odd = 3 - i;
        ranks_start(&ranks, 4, gather_unlike, NULL);
        for (uint32_t rank = 0; rank < 4; rank++)
            while (waitid(P_PID, (id_t)ranks.pids[rank], &(siginfo_t){0}, WEXITED | WNOWAIT))
                continue;
        const unsigned more = unlike.odd ? 7 : 0, first = unlike.odd ? 0 : 7;
        snprintf(text, sizeof(text),
                 "operation 1: rank %u calls %s with %lu in counts[1], rank 0 with %lu",
                 unlike.odd ? unlike.odd : 1, sw_coll_kind_name(kinds[i]),
                 (unsigned long)counts[i] + 1 + more, (unsigned long)counts[i] + 1 + first);
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(ranks.shared->results[rank].status, SW_COLL_MISMATCH);
            assert_string_equal(ranks.shared->results[rank].text, text);
        }
        ranks_end(&ranks, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts__that_differ_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
