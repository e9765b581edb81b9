// SPDX-License-Identifier: BSD-2-Clause
// Parts of a communicator: of which ranks, in which order, and on all ranks or on none.
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/comm.h"
#include "collectives/comm/open.h"

enum { SPLIT };

static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};

static enum sw_coll_status sum_of(struct sw_coll *coll, uint32_t mine, uint32_t *sum,
                                  struct sw_coll_error *error)
{
    return sw_coll_all_reduce(coll, &mine, sum, 1, SW_COLL_U32, SW_COLL_SUM, 0, error);
}

// Ranks 0, 2 and 4 in the order of their keys, the other way round; 1 and 3; 5 has no part.
static void split_in_two(struct rank *rank)
{
    static const int32_t colors[] = {7, 0, 7, 0, 7, -3};
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = rank->coll;
    const uint32_t mine = rank->rank;
    uint32_t sum = 0;
    need_ok(rank, sw_coll_split(rank->coll, colors[mine], -(int32_t)mine, 0, &error, &part),
            &error);
    need(!part == (mine == 5));
    if (part) {
        need(sw_coll_size(part) == (mine % 2 ? 2 : 3));
        need(sw_coll_rank(part) == (mine % 2 ? (3 - mine) / 2 : (4 - mine) / 2));
        need_ok(rank, sum_of(part, mine, &sum, &error), &error);
        need(sum == (mine % 2 ? 1 + 3 : 0 + 2 + 4));
    }
    sw_coll_close(part);
    need_ok(rank, sum_of(rank->coll, mine, &sum, &error), &error); // it goes on
    need(sum == 15);
}

static void split__by_color_and_key(void **state)
{
    (void)state;
    ranks_run(6, split_in_two);
}

static void split_alone(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL, *again = NULL;
    uint32_t sum = 0;
    need_ok(rank, sw_coll_split(rank->coll, (int32_t)rank->rank, 0, 0, &error, &part), &error);
    need(sw_coll_size(part) == 1);
    need_ok(rank, sum_of(part, 5, &sum, &error), &error);
    need(sum == 5);
    need_ok(rank, sw_coll_split(part, 0, 0, 0, &error, &again), &error);
    need_ok(rank, sum_of(again, 6, &sum, &error), &error);
    need(sum == 6);
    sw_coll_close(part);
    need_ok(rank, sw_coll_shrink(again, 0, &error, &part), &error);
    need(sw_coll_size(part) == 1 && sw_coll_error(again, NULL) == SW_COLL_REVOKED);
    sw_coll_close(again);
    sw_coll_close(part);
}

static void split__of_one_rank_each(void **state)
{
    (void)state;
    ranks_run(2, split_alone);
}

static void split_or_not(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = rank->rank == 1 ? NULL : rank->coll;
    const enum sw_coll_status status = rank->rank == 1
                                           ? sw_coll_run(rank->coll, &barrier, 0, &error)
                                           : sw_coll_split(rank->coll, 0, 0, 0, &error, &part);
    need(status == SW_COLL_MISMATCH && strstr(error.text, "rank 1") && !part);
}

static void split__beside_another_call(void **state)
{
    (void)state;
    ranks_run(3, split_or_not);
}

// A part fails by itself; the whole is told when it is used.
static void lose_a_rank_of_a_part(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL, *rest = NULL;
    uint32_t sum = 0;
    need_ok(rank, sw_coll_split(rank->coll, rank->rank >= 2, 0, 0, &error, &part), &error);
    flag_raise(rank->shared, SPLIT);
    flag_await(rank->shared, SPLIT, rank->size);
    if (rank->rank == 3)
        raise(SIGKILL);
    enum sw_coll_status status = sum_of(part, 1, &sum, &error);
    need(rank->rank == 2 ? status == SW_COLL_RANK_GONE && strstr(error.text, "rank 1 died")
                         : !status && sum == 2);
    sw_coll_close(part);
    status = sum_of(rank->coll, 1, &sum, &error);
    need(status == SW_COLL_RANK_GONE && strstr(error.text, "rank 3 died"));
    need_ok(rank, sw_coll_shrink(rank->coll, 0, &error, &rest), &error);
    need_ok(rank, sw_coll_split(rest, 0, 0, 0, &error, &part), &error);
    need_ok(rank, sum_of(part, rank->rank, &sum, &error), &error);
    need(sum == 0 + 1 + 2);
    sw_coll_close(part);
    sw_coll_close(rest);
}

static void split__a_death_in_one_part(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 4, lose_a_rank_of_a_part, NULL);
    ranks_end(&ranks, 1u << 3);
}

// The three operations of a split, by hand.
static void post_gather(struct rank *rank, const void *mine, uint64_t bytes,
                        struct sw_coll_request **request)
{
    static uint8_t all[3 * COLL_CARD_BYTES];
    struct sw_coll_error error = {.text = ""};
    const struct sw_coll_call call = {
        .kind = SW_COLL_ALL_GATHER, .type = SW_COLL_U8, .send = mine, .recv = all, .count = bytes};
    need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, request), &error);
}

static void show_color_and_card(struct rank *rank, int32_t color, const struct coll_card *card)
{
    const int32_t place[2] = {color};
    uint8_t bytes[COLL_CARD_BYTES] = {0};
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request;
    if (card)
        coll_card_put(bytes, card);
    post_gather(rank, place, sizeof(place), &request);
    need_ok(rank, sw_coll_wait(request, &error), &error);
    post_gather(rank, bytes, sizeof(bytes), &request);
    need_ok(rank, sw_coll_wait(request, &error), &error);
}

static struct sw_coll_request *say_that_all_went_well(struct rank *rank)
{
    static const uint32_t status = SW_COLL_OK;
    struct sw_coll_request *request;
    post_gather(rank, &status, sizeof(status), &request);
    return request;
}

// Rank 2 shows a card, and listens no more. When the others find that, it leaves the parent, too.
static void leave_before_it_is_connected(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct coll_card card;
    struct sw_coll *part = NULL;
    if (rank->rank < 2) {
        need(sw_coll_split(rank->coll, 0, 0, 0, &error, &part) == SW_COLL_RANK_GONE);
        need(!part && strstr(error.text, "rank 2 died, or closed"));
        return;
    }
    need_ok(rank, coll_open_child(rank->coll, 2, 3, &error, &part), &error);
    card = part->card;
    sw_coll_close(part);
    show_color_and_card(rank, 0, &card);
    need_ok(rank, sw_coll_wait(say_that_all_went_well(rank), &error), &error);
}

static void split__of_which_one_is_not_connected(void **state)
{
    (void)state;
    ranks_run(3, leave_before_it_is_connected);
}

// Rank 2 dies when its last word is at rank 0, and not at rank 1.
static void die_half_heard(struct rank *rank)
{
    struct coll_peer *peer = &rank->coll->peers[1];
    show_color_and_card(rank, -1, NULL);
    peer->state = COLL_PEER_ABSENT;
    peer->retry_ns = UINT64_MAX; // what is for it waits
    say_that_all_went_well(rank);
    flag_await(rank->shared, SPLIT, 1);
    _exit(0);
}

// Rank 0 waits for rank 1 in their part. Rank 1 wants to hear from rank 0 who has died.
static void hear_of_it_late(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL;
    uint32_t sum;
    if (rank->rank == 2)
        die_half_heard(rank);
    const enum sw_coll_status status = sw_coll_split(rank->coll, 0, 0, 0, &error, &part);
    if (rank->rank == 1) {
        need(status == SW_COLL_RANK_GONE && strstr(error.text, "rank 2 died"));
        return;
    }
    need_ok(rank, status, &error);
    flag_raise(rank->shared, SPLIT);
    need(sum_of(part, 0, &sum, &error) == SW_COLL_RANK_GONE);
    sw_coll_close(part);
    need(sw_coll_run(rank->coll, &barrier, 0, &error) == SW_COLL_RANK_GONE);
    need(strstr(error.text, "rank 2 died"));
}

static void split__one_hears_of_a_death_late(void **state)
{
    (void)state;
    ranks_run(3, hear_of_it_late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split__by_color_and_key),
        cmocka_unit_test(split__of_one_rank_each),
        cmocka_unit_test(split__beside_another_call),
        cmocka_unit_test(split__a_death_in_one_part),
        cmocka_unit_test(split__of_which_one_is_not_connected),
        cmocka_unit_test(split__one_hears_of_a_death_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
