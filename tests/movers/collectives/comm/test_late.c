// SPDX-License-Identifier: BSD-2-Clause
// Who is late: the rank that others wait for, also by those that wait for it themselves.
//
// usage: test_coll_late [RANKS]
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/comm/comm.h"

enum { READY, LATE = 2, COUNT = 200000 };

static const char *algorithm;
static uint32_t ranks_more;

static void ask_for_algorithm(struct rank *rank)
{
    rank->options.algorithm = algorithm;
    rank->options.order = SW_COLL_ORDER_ANY;
    rank->options.spin_us = 50;
}

// The late one stops amid its rounds, when it has done some chunks of them.
static void sum_in_rounds(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float *data = calloc(COUNT, sizeof(*data));
    const struct sw_coll_call call = {.kind = SW_COLL_ALL_REDUCE,
                                      .type = SW_COLL_F32,
                                      .send = data,
                                      .recv = data,
                                      .count = COUNT};
    struct sw_coll_request *request;
    need_ok(rank, sw_coll_run(rank->coll, &call, 0, &error), &error);
    if (rank->rank == LATE) {
        need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &request), &error);
        while (rank->coll->machine.chunk < 1)
            need(sw_coll_test(request, &error) == SW_COLL_AGAIN);
        flag_raise(rank->shared, READY);
        raise(SIGSTOP);
    }
    rank->result->status = sw_coll_run(rank->coll, &call, sw_coll_deadline_ms(1500), &error);
    memcpy(rank->result->text, error.text, sizeof(error.text));
    free(data);
}

static void stop_one_amid_rounds(uint32_t size)
{
    struct ranks ranks;
    ranks_start(&ranks, size, sum_in_rounds, ask_for_algorithm);
    await_others(&ranks, 1u << LATE);
    for (uint32_t rank = 0; rank < size; rank++) {
        const struct rank_result *result = &ranks.shared->results[rank];
        if (rank == LATE)
            continue;
        assert_int_equal(result->status, SW_COLL_TIMEOUT);
        if (strncmp(result->text, "rank 2 has begun operation 2 (all_reduce), and", 46))
            fail_msg("%s, rank %u: %s", algorithm, rank, result->text);
    }
    kill(ranks.pids[LATE], SIGKILL);
    ranks_end(&ranks, 1u << LATE);
}

static void late__is_named_amid_rounds(void **state)
{
    (void)state;
    algorithm = "ring";
    stop_one_amid_rounds(ranks_more ? ranks_more : 6);
    algorithm = "halving";
    stop_one_amid_rounds(ranks_more ? ranks_more : 7);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late__is_named_amid_rounds),
    };
    if (argc > 1)
        ranks_more = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
