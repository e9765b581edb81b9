// SPDX-License-Identifier: BSD-2-Clause
// Messages from rank to rank of communicators that end, and of those that are made of them. With an
// argument: so many times the deaths.
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READY,
    GO,
    POSTED,
    SPLIT,
    LONG = 20000,
    MESSAGES = 6,
    CHAOS_RANKS = 4,
    UNTOUCHED = 0x5a5a5a5a
};

static unsigned long rounds = 4;
static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

// ---- an exchange of all with all ----

struct message {
    uint32_t data[LONG];
    uint64_t count;
    struct sw_coll_request *request; // NULL: it could not be posted
};

struct exchange {
    struct message sends[CHAOS_RANKS][MESSAGES], recvs[CHAOS_RANKS][MESSAGES];
};

// In the note, with it, and neither; alike on both sides.
static uint64_t count_of(uint32_t from, uint32_t to, uint32_t index)
{
    static const uint64_t counts[] = {1, 6, 200, 256, 257, LONG};
    return counts[(from * 5 + to * 3 + index) % 6];
}

static uint32_t word_of(uint32_t from, uint32_t to, uint32_t index, uint64_t at)
{
    return (uint32_t)(from * 1000003 + to * 10007 + index * 101 + at);
}

static enum sw_coll_status post_message(struct sw_coll *coll, struct message *message,
                                        uint32_t from, uint32_t to, uint32_t index,
                                        struct sw_coll_error *error)
{
    const bool is_send = from == sw_coll_rank(coll);
    const enum sw_coll_type type = SW_COLL_U32;
    message->count = count_of(from, to, index);
    for (uint64_t at = 0; at < LONG; at++)
        message->data[at] = is_send ? word_of(from, to, index, at) : UNTOUCHED;
    return is_send ? sw_coll_send_post(coll, to, message->data, message->count, type, 0, error,
                                       &message->request)
                   : sw_coll_recv_post(coll, from, message->data, message->count, type, 0, error,
                                       &message->request);
}

static enum sw_coll_status end_message(struct message *message, struct sw_coll_error *error)
{
    return message->request ? sw_coll_wait(message->request, error) : SW_COLL_OK;
}

static void look_at_data(const struct message *message, uint32_t from, uint32_t to, uint32_t index)
{
    for (uint64_t at = 0; at < message->count; at++)
        need(message->data[at] == word_of(from, to, index, at));
}

// Until one fails, whose error it is. Then all have ended.
static enum sw_coll_status exchange_all(struct sw_coll *coll, struct exchange *exchange,
                                        struct sw_coll_error *error)
{
    const uint32_t size = sw_coll_size(coll), rank = sw_coll_rank(coll);
    struct sw_coll_error own = {.text = ""};
    enum sw_coll_status first = SW_COLL_OK, status;
    memset(exchange, 0, sizeof(*exchange));
    for (uint32_t index = 0; index < MESSAGES; index++)
        for (uint32_t peer = 0; peer < size && !first; peer++) {
            if (peer == rank)
                continue;
            first = post_message(coll, &exchange->sends[peer][index], rank, peer, index, error);
            if (!first)
                first = post_message(coll, &exchange->recvs[peer][index], peer, rank, index, error);
        }
    for (uint32_t index = 0; index < MESSAGES; index++)
        for (uint32_t peer = 0; peer < size; peer++)
            for (int is_send = 0; is_send <= 1; is_send++) {
                status = end_message(
                    is_send ? &exchange->sends[peer][index] : &exchange->recvs[peer][index], &own);
                if (!status || first)
                    continue;
                first = status;
                *error = own;
            }
    for (uint32_t index = 0; !first && index < MESSAGES; index++)
        for (uint32_t peer = 0; peer < size; peer++) {
            look_at_data(&exchange->sends[peer][index], rank, peer, index);
            look_at_data(&exchange->recvs[peer][index], peer, rank, index);
        }
    return first;
}

static void exchange_well(struct rank *rank, struct sw_coll *coll)
{
    struct sw_coll_error error = {.text = ""};
    struct exchange *exchange = malloc(sizeof(*exchange));
    need(exchange);
    need_ok(rank, exchange_all(coll, exchange, &error), &error);
    free(exchange);
}

// All know that all have come so far.
static void meet(struct rank *rank, uint32_t flag)
{
    flag_raise(rank->shared, flag);
    flag_await(rank->shared, flag, rank->size);
}

// ---- revoked ----

// A receive and a long send that nobody answers end by it, and so do those that come later.
static void revoke_amid(struct rank *rank)
{
    static uint32_t sent[LONG], got[LONG];
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *send = NULL, *recv = NULL;
    struct sw_coll *shrunk = NULL;
    const uint32_t next = (rank->rank + 1) % rank->size;
    exchange_well(rank, rank->coll);
    need_ok(rank, sw_coll_send_post(rank->coll, next, sent, LONG, SW_COLL_U32, 0, &error, &send),
            &error);
    // What comes is a message of the other neighbour.
    need_ok(rank, sw_coll_recv_post(rank->coll, next, got, LONG, SW_COLL_U32, 0, &error, &recv),
            &error);
    meet(rank, READY);
    if (rank->rank == 1)
        sw_coll_revoke(rank->coll);
    need(sw_coll_wait(recv, &error) == SW_COLL_REVOKED);
    keep_words(rank, error.text);
    need(sw_coll_wait(send, &error) == SW_COLL_REVOKED);
    need(sw_coll_send(rank->coll, next, sent, 1, SW_COLL_U32, 0, &error) == SW_COLL_BROKEN);
    need(sw_coll_recv(rank->coll, next, got, 1, SW_COLL_U32, 0, &error) == SW_COLL_BROKEN);
    need_ok(rank, sw_coll_shrink(rank->coll, 0, &error, &shrunk), &error);
    for (uint32_t i = 0; i < LONG; i++)
        need(!got[i]);
    exchange_well(rank, shrunk);
    sw_coll_close(rank->coll);
    exchange_well(rank, shrunk);
    rank->coll = shrunk;
}

static void revoke__ends_messages_that_are_under_way(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, revoke_amid, NULL);
    await_others(&ranks, 0);
    expect_same(&ranks, 0, "revoked");
    ranks_end(&ranks, 0);
}

// The message has come before the word of the rank that revokes it all.
static void revoke_after_a_send(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    uint32_t data = 5 + rank->rank;
    meet(rank, READY);
    if (rank->rank == 0) {
        flag_await(rank->shared, POSTED, 1);
        need_ok(rank, sw_coll_send(rank->coll, 1, &data, 1, SW_COLL_U32, 0, &error), &error);
        sw_coll_revoke(rank->coll);
        flag_raise(rank->shared, GO);
        need(sw_coll_recv(rank->coll, 1, &data, 1, SW_COLL_U32, 0, &error) == SW_COLL_REVOKED);
        return;
    }
    need_ok(rank, sw_coll_recv_post(rank->coll, 0, &data, 1, SW_COLL_U32, 0, &error, &request),
            &error);
    flag_raise(rank->shared, POSTED);
    flag_await(rank->shared, GO, 1);
    need_ok(rank, sw_coll_test(request, &error), &error);
    need(data == 5);
    need(sw_coll_recv(rank->coll, 0, &data, 1, SW_COLL_U32, 0, &error) == SW_COLL_REVOKED);
}

static void revoke__what_has_come_before_is_received(void **state)
{
    (void)state;
    ranks_run(2, revoke_after_a_send);
}

// What a group has begun ends with the communicator; one in which it is shrunk still has its end.
static void revoke_in_a_group(struct rank *rank)
{
    static uint32_t data[2][LONG];
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL, *part = NULL;
    const uint32_t other = !rank->rank;
    meet(rank, READY);
    sw_coll_group_begin(rank->coll);
    need(sw_coll_split(rank->coll, 0, 0, 0, &error, &part) == SW_COLL_INVALID && !part);
    need(strstr(error.text, "in a group"));
    need_ok(rank, sw_coll_recv(rank->coll, other, data[0], LONG, SW_COLL_U32, 0, &error), &error);
    need_ok(rank, sw_coll_send(rank->coll, other, data[1], LONG - 1, SW_COLL_U32, 0, &error),
            &error); // unlike, but it never begins
    need_ok(rank, sw_coll_shrink(rank->coll, 0, &error, &shrunk), &error);
    need(sw_coll_group_end(rank->coll, &error) == SW_COLL_REVOKED);
    sw_coll_close(rank->coll);
    rank->coll = shrunk;
    exchange_well(rank, shrunk);
}

static void group__ends_after_a_shrink_within(void **state)
{
    (void)state;
    ranks_run(2, revoke_in_a_group);
}

// ---- split ----

// Two ranks have messages under way in the whole and in a part, and each has its own order.
static void exchange_in_parts(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    struct sw_coll *part = NULL;
    uint32_t whole = 0, got = 0;
    const uint32_t other = rank->rank ^ 2, mine = rank->rank;
    need_ok(rank, sw_coll_split(rank->coll, (int32_t)mine % 2, 0, 0, &error, &part), &error);
    need_ok(rank, sw_coll_recv_post(rank->coll, other, &whole, 1, SW_COLL_U32, 0, &error, &request),
            &error);
    exchange_well(rank, part);
    need_ok(rank, sw_coll_send(part, !(mine / 2), &mine, 1, SW_COLL_U32, 0, &error), &error);
    need_ok(rank, sw_coll_recv(part, !(mine / 2), &got, 1, SW_COLL_U32, 0, &error), &error);
    need(got == other && sw_coll_test(request, &error) == SW_COLL_AGAIN);
    meet(rank, SPLIT);
    got = 100 + mine;
    need_ok(rank, sw_coll_send(rank->coll, other, &got, 1, SW_COLL_U32, 0, &error), &error);
    need_ok(rank, sw_coll_wait(request, &error), &error);
    need(whole == 100 + other);
    sw_coll_close(part);
    exchange_well(rank, rank->coll);
}

static void split__each_part_has_messages_of_its_own(void **state)
{
    (void)state;
    ranks_run(4, exchange_in_parts);
}

// A message of a part ends with it, and one of the whole does not.
static void revoke_a_part(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    struct sw_coll *part = NULL;
    uint32_t got = 0;
    const uint32_t other = rank->rank ^ 2, mine = rank->rank;
    need_ok(rank, sw_coll_split(rank->coll, (int32_t)mine % 2, 0, 0, &error, &part), &error);
    need_ok(rank, sw_coll_recv_post(part, !(mine / 2), &got, 1, SW_COLL_U32, 0, &error, &request),
            &error);
    meet(rank, SPLIT);
    if (mine == 0)
        sw_coll_revoke(part);
    if (mine % 2)
        need_ok(rank, sw_coll_send(part, !(mine / 2), &mine, 1, SW_COLL_U32, 0, &error), &error);
    need(sw_coll_wait(request, &error) == (mine % 2 ? SW_COLL_OK : SW_COLL_REVOKED));
    need(got == (mine % 2 ? other : 0));
    sw_coll_close(part);
    exchange_well(rank, rank->coll);
}

static void split__a_part_is_revoked_alone(void **state)
{
    (void)state;
    ranks_run(4, revoke_a_part);
}

// ---- deaths ----

// Once a rank was told of the failure nobody writes to its buffers any more, and all are as they
// were sent or untouched: nobody else's bytes are in them.
static void look_after_failure(const struct exchange *exchange, const struct exchange *before,
                               uint32_t size, uint32_t rank)
{
    for (uint32_t peer = 0; peer < size; peer++)
        for (uint32_t index = 0; index < MESSAGES; index++) {
            const struct message *recv = &exchange->recvs[peer][index];
            const struct message *was = &before->recvs[peer][index];
            need(!memcmp(recv->data, was->data, sizeof(recv->data)));
            look_at_data(&exchange->sends[peer][index], rank, peer, index);
            for (uint64_t at = 0; at < recv->count; at++)
                need(recv->data[at] == (uint32_t)UNTOUCHED ||
                     recv->data[at] == word_of(peer, rank, index, at));
        }
}

static void shrink_after(struct rank *rank, struct exchange *exchange)
{
    struct exchange *before = malloc(sizeof(*before));
    struct sw_coll *shrunk = NULL;
    const uint32_t size = sw_coll_size(rank->coll), number = sw_coll_rank(rank->coll);
    need(before);
    memcpy(before, exchange, sizeof(*before));
    shrink_now(rank, rank->coll, &shrunk);
    look_after_failure(exchange, before, size, number);
    free(before);
    sw_coll_close(rank->coll);
    rank->coll = shrunk;
}

static void exchange_through_deaths(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    enum sw_coll_status status = SW_COLL_OK;
    need(exchange);
    flag_raise(rank->shared, READY);
    while (!is_time_to_end(rank->coll, rank->shared, GO, &status, &error)) {
        if (status)
            memset(exchange, 0, sizeof(*exchange));
        else
            status = exchange_all(rank->coll, exchange, &error);
        if (!status)
            continue;
        need(status == SW_COLL_RANK_GONE);
        keep_words(rank, error.text);
        shrink_after(rank, exchange);
    }
    rank->result->gone = rank->size - sw_coll_size(rank->coll);
    exchange_well(rank, rank->coll);
    free(exchange);
}

// One, and by turns a second one that dies meanwhile.
static void death__amid_messages(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < rounds; i++) {
        struct ranks ranks;
        const uint32_t one = draw(CHAOS_RANKS);
        const uint32_t other = (one + 1 + draw(CHAOS_RANKS - 1)) % CHAOS_RANKS;
        uint32_t killed = 1u << one;
        ranks_start(&ranks, CHAOS_RANKS, exchange_through_deaths, NULL);
        flag_await(ranks.shared, READY, CHAOS_RANKS);
        usleep(draw(20000));
        kill(ranks.pids[one], SIGKILL);
        if (i % 2) {
            usleep(draw(3000));
            kill(ranks.pids[other], SIGKILL);
            killed |= 1u << other;
        }
        nap_ms(10);
        flag_raise(ranks.shared, GO);
        await_others(&ranks, killed);
        expect_same(&ranks, killed, "died");
        for (uint32_t rank = 0; rank < CHAOS_RANKS; rank++)
            assert_true(killed & 1u << rank || ranks.shared->results[rank].gone == 1 + i % 2);
        ranks_end(&ranks, killed);
    }
}

// A rank that only sends, and one that only receives of it, learn that a third one has died.
static void stream_beside_a_death(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status = SW_COLL_OK;
    static uint32_t data[LONG];
    meet(rank, READY);
    if (rank->rank == 2)
        pause();
    for (uint32_t i = 0; !status; i++)
        status = rank->rank
                     ? sw_coll_recv(rank->coll, 0, data, i % 2 ? LONG : 3, SW_COLL_U32, 0, &error)
                     : sw_coll_send(rank->coll, 1, data, i % 2 ? LONG : 3, SW_COLL_U32, 0, &error);
    rank->result->status = status;
    keep_words(rank, error.text);
}

static void death__of_a_rank_that_no_message_needs(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, stream_beside_a_death, NULL);
    flag_await(ranks.shared, READY, 3);
    nap_ms(20);
    kill(ranks.pids[2], SIGKILL);
    await_others(&ranks, 1u << 2);
    expect_same(&ranks, 1u << 2, "rank 2 died");
    assert_int_equal(ranks.shared->results[0].status, SW_COLL_RANK_GONE);
    ranks_end(&ranks, 1u << 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(revoke__ends_messages_that_are_under_way),
        cmocka_unit_test(revoke__what_has_come_before_is_received),
        cmocka_unit_test(group__ends_after_a_shrink_within),
        cmocka_unit_test(split__each_part_has_messages_of_its_own),
        cmocka_unit_test(split__a_part_is_revoked_alone),
        cmocka_unit_test(death__amid_messages),
        cmocka_unit_test(death__of_a_rank_that_no_message_needs),
    };
    if (argc > 1)
        rounds *= strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
