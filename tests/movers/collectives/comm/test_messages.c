// SPDX-License-Identifier: BSD-2-Clause
// Messages from rank to rank: their bytes and order, beside operations, and how they end. With an
// argument it takes longer.
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5, LONG = 300000, READY = 0 };

static uint8_t byte_of(uint32_t from, uint32_t to, uint32_t index, uint64_t at)
{
    return (uint8_t)(from * 31 + to * 17 + index * 7 + at + at / 251);
}

// ---- drawn messages of all pairs ----

// Around the thresholds: in the note, with it, and neither.
static const uint64_t lengths[] = {0, 1, 3, 6, 7, 20, 255, 256, 257, 1000, 30001, LONG};

struct message {
    uint32_t from, to, index;
    uint64_t count;
    uint8_t *data;
    struct sw_coll_request *request;
};

// Alike on both sides.
static uint64_t count_of(uint32_t from, uint32_t to, uint32_t index)
{
    unsigned seed = from * 1009 + to * 101 + index + 1;
    rand_r(&seed);
    return lengths[(unsigned)rand_r(&seed) % (sizeof(lengths) / 8)];
}

static void begin_message(struct rank *rank, struct message *message, bool is_send)
{
    struct sw_coll_error error = {.text = ""};
    const uint64_t bytes = 4 * message->count;
    message->data = malloc(bytes + GUARD);
    need(message->data);
    memset(message->data, GUARD_BYTE, bytes + GUARD);
    for (uint64_t at = 0; is_send && at < bytes; at++)
        message->data[at] = byte_of(message->from, message->to, message->index, at);
    need_ok(rank,
            is_send ? sw_coll_send_post(rank->coll, message->to, message->data, message->count,
                                        SW_COLL_F32, 0, &error, &message->request)
                    : sw_coll_recv_post(rank->coll, message->from, message->data, message->count,
                                        SW_COLL_F32, 0, &error, &message->request),
            &error);
}

static void end_message(struct rank *rank, struct message *message)
{
    struct sw_coll_error error = {.text = ""};
    const uint64_t bytes = 4 * message->count;
    need_ok(rank, sw_coll_wait(message->request, &error), &error);
    for (uint64_t at = 0; at < bytes; at++)
        need(message->data[at] == byte_of(message->from, message->to, message->index, at));
    for (uint64_t at = bytes; at < bytes + GUARD; at++)
        need(message->data[at] == GUARD_BYTE);
    free(message->data);
}

static void sum_once(struct rank *rank, uint64_t round)
{
    struct sw_coll_error error = {.text = ""};
    const uint64_t mine = rank->rank + round;
    uint64_t sum = 0;
    need_ok(rank,
            sw_coll_all_reduce(rank->coll, &mine, &sum, 1, SW_COLL_U64, SW_COLL_SUM, 0, &error),
            &error);
    need(sum == rank->size * (rank->size - 1) / 2 + rank->size * round);
}

// Each rank sends 12 messages to each, itself too, and sums go on in between.
static void exchange_many(struct rank *rank)
{
    enum { EACH = 12 };
    static struct message sends[RANKS][EACH], recvs[RANKS][EACH];
    unsigned seed = rank->rank + 1;
    for (uint32_t index = 0; index < EACH; index++) {
        for (uint32_t i = 0; i < rank->size; i++) {
            const uint32_t peer = (rank->rank + i) % rank->size;
            const bool is_send_first = rand_r(&seed) % 2;
            sends[peer][index] = (struct message){
                rank->rank, peer, index, count_of(rank->rank, peer, index), NULL, NULL};
            recvs[peer][index] = (struct message){
                peer, rank->rank, index, count_of(peer, rank->rank, index), NULL, NULL};
            for (int half = 0; half < 2; half++)
                begin_message(rank,
                              half == is_send_first ? &recvs[peer][index] : &sends[peer][index],
                              half != is_send_first);
        }
        if (index % 4 == 3)
            sum_once(rank, index);
    }
    for (uint32_t peer = rank->size; peer-- > 0;)
        for (uint32_t index = EACH; index-- > 0;) {
            end_message(rank, &recvs[peer][index]);
            end_message(rank, &sends[peer][index]);
        }
}

static void messages__of_all_pairs_beside_sums(void **state)
{
    (void)state;
    ranks_run(1, exchange_many);
    ranks_run(2, exchange_many);
    ranks_run(4, exchange_many);
}

// ---- waits ----

// All send first, and then receive: a short message needs nobody. With more than 16 ranks the first
// one makes a connection.
static void pass_short_around(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    const uint32_t next = (rank->rank + 1) % rank->size;
    const uint32_t before = (rank->rank + rank->size - 1) % rank->size;
    for (uint64_t round = 0; round < (rank->size < 10 ? 200 : 3); round++) {
        const uint64_t mine = rank->rank + 100 * round;
        uint64_t theirs = 0;
        need_ok(rank, sw_coll_send(rank->coll, next, &mine, 1, SW_COLL_U64, 0, &error), &error);
        need_ok(rank, sw_coll_recv(rank->coll, before, &theirs, 1, SW_COLL_U64, 0, &error), &error);
        need(theirs == before + 100 * round);
    }
}

// Long ones in a group, each way at once.
static void pass_long_around(struct rank *rank)
{
    static uint32_t mine[LONG], theirs[LONG];
    struct sw_coll_error error = {.text = ""};
    const uint32_t next = (rank->rank + 1) % rank->size;
    const uint32_t before = (rank->rank + rank->size - 1) % rank->size;
    for (uint32_t round = 0, sum = 0; round < 4; round++) {
        for (uint32_t i = 0; i < LONG; i++)
            mine[i] = i * (rank->rank + 1) + round;
        sw_coll_group_begin(rank->coll);
        sw_coll_group_begin(rank->coll);
        need_ok(rank, sw_coll_send(rank->coll, next, mine, LONG, SW_COLL_U32, 0, &error), &error);
        need_ok(rank, sw_coll_group_end(rank->coll, &error), &error);
        need_ok(rank, sw_coll_recv(rank->coll, before, theirs, LONG, SW_COLL_U32, 0, &error),
                &error);
        need_ok(
            rank,
            sw_coll_all_reduce(rank->coll, &round, &sum, 1, SW_COLL_U32, SW_COLL_SUM, 0, &error),
            &error);
        need_ok(rank, sw_coll_group_end(rank->coll, &error), &error);
        for (uint32_t i = 0; i < LONG; i++)
            need(theirs[i] == i * (before + 1) + round);
        need(sum == rank->size * round);
    }
    need(sw_coll_group_end(rank->coll, &error) == SW_COLL_INVALID);
}

static void ring__short_ones_are_sent_before_they_are_received(void **state)
{
    (void)state;
    ranks_run(1, pass_short_around);
    ranks_run(3, pass_short_around);
    ranks_run(17, pass_short_around);
}

static void group__any_exchange_goes_well(void **state)
{
    (void)state;
    ranks_run(1, pass_long_around);
    ranks_run(2, pass_long_around);
    ranks_run(3, pass_long_around);
}

// A rank sleeps until what it waits for has come, and misses nothing.
static void send_late(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t *data = calloc(LONG, sizeof(*data));
    need(data);
    for (uint32_t round = 0; round < 30; round++) {
        const uint64_t count = round % 3 == 2 ? LONG : 1 + round;
        const bool is_sender = rank->rank == round % 2;
        if (rank->rank == round / 2 % 2)
            nap_ms(3);
        data[0] = is_sender ? round : 0;
        need_ok(rank,
                is_sender
                    ? sw_coll_send(rank->coll, !rank->rank, data, count, SW_COLL_U32, 0, &error)
                    : sw_coll_recv(rank->coll, !rank->rank, data, count, SW_COLL_U32, 0, &error),
                &error);
        need(data[0] == round);
    }
    free(data);
}

static void wait__sleeps_until_it_has_come(void **state)
{
    (void)state;
    ranks_run(2, send_late);
}

// ---- ends ----

static void keep_result(struct rank *rank, enum sw_coll_status status,
                        const struct sw_coll_error *error)
{
    rank->result->status = status;
    if (status)
        memcpy(rank->result->text, error->text, sizeof(error->text));
}

static void expect_result(const struct ranks *ranks, uint32_t number, enum sw_coll_status status,
                          const char *text)
{
    const struct rank_result *result = &ranks->shared->results[number];
    if (result->status != status || !strstr(result->text, text))
        fail_msg("rank %u: %s: %s", number, sw_coll_status_text(result->status), result->text);
}

// All are open: nobody hears of a failure before that.
static void await_all(const struct rank *rank)
{
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
}

static uint64_t unlike[2];

// The sender of a short one may have gone on: then its next call says it.
static void send_unlike(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint8_t *data = malloc(LONG + 1);
    enum sw_coll_status status = SW_COLL_OK;
    need(data);
    memset(data, GUARD_BYTE, LONG + 1);
    await_all(rank);
    if (rank->rank == 0)
        status = sw_coll_send(rank->coll, 1, data, unlike[0], SW_COLL_U8, 0, &error);
    if (rank->rank == 1)
        status = sw_coll_recv(rank->coll, 0, data, unlike[1], SW_COLL_U8, 0, &error);
    if (!status)
        status = sw_coll_barrier(rank->coll, 0, &error);
    keep_result(rank, status, &error);
    for (uint32_t i = 0; i <= LONG; i++)
        need(data[i] == GUARD_BYTE);
    free(data);
}

static void unlike__both_sides_are_told(void **state)
{
    static const uint64_t cases[][2] = {{3, 4}, {4, LONG}, {LONG, 4}, {LONG, LONG - 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ranks ranks;
        char text[120];
        memcpy(unlike, cases[i], sizeof(unlike));
        ranks_start(&ranks, 3, send_unlike, NULL);
        await_others(&ranks, 0);
        snprintf(text, sizeof(text), "rank 0 sends count %u of type u8, rank 1 awaits %u of u8",
                 (unsigned)unlike[0], (unsigned)unlike[1]);
        for (uint32_t j = 0; j < 3; j++)
            expect_result(&ranks, j, SW_COLL_MISMATCH, text);
        ranks_end(&ranks, 0);
    }
}

static void await_nothing(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t data = 0;
    enum sw_coll_status status;
    await_all(rank);
    if (rank->rank == 0)
        status =
            sw_coll_recv(rank->coll, 1, &data, 1, SW_COLL_U32, sw_coll_deadline_ms(300), &error);
    else
        status = sw_coll_barrier(rank->coll, 0, &error);
    keep_result(rank, status, &error);
}

static void absent__is_named_at_the_deadline(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 2, await_nothing, NULL);
    await_others(&ranks, 0);
    for (uint32_t j = 0; j < 2; j++)
        expect_result(&ranks, j, SW_COLL_TIMEOUT, "rank 1 has not sent message 1 to rank 0");
    ranks_end(&ranks, 0);
}

// Rank 1 sends one message and closes. What it has sent is received, and no more.
static void close_early(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t data = 7, got = 0;
    await_all(rank);
    if (rank->rank == 1) {
        need_ok(rank, sw_coll_send(rank->coll, 0, &data, 1, SW_COLL_U32, 0, &error), &error);
        sw_coll_close(rank->coll);
        rank->coll = NULL;
        return;
    }
    nap_ms(20);
    need_ok(rank, sw_coll_recv(rank->coll, 1, &got, 1, SW_COLL_U32, 0, &error), &error);
    need(got == 7);
    keep_result(rank, sw_coll_recv(rank->coll, 1, &got, 1, SW_COLL_U32, 0, &error), &error);
}

static void gone__what_it_has_sent_is_received(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 2, close_early, NULL);
    await_others(&ranks, 0);
    expect_result(&ranks, 0, SW_COLL_RANK_GONE, "rank 1");
    ranks_end(&ranks, 0);
}

static void await_dead(struct rank *rank)
{
    static uint32_t data[LONG];
    struct sw_coll_error error = {.text = ""};
    await_all(rank);
    if (rank->rank == 1)
        pause();
    keep_result(rank,
                rank->rank ? sw_coll_recv(rank->coll, 1, data, LONG, SW_COLL_U32, 0, &error)
                           : sw_coll_send(rank->coll, 1, data, LONG, SW_COLL_U32, 0, &error),
                &error);
}

static void gone__a_death_ends_sends_and_receives(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 3, await_dead, NULL);
    flag_await(ranks.shared, READY, 3);
    nap_ms(30);
    kill(ranks.pids[1], SIGKILL);
    await_others(&ranks, 1u << 1);
    expect_result(&ranks, 0, SW_COLL_RANK_GONE, "rank 1 ");
    expect_result(&ranks, 2, SW_COLL_RANK_GONE, "rank 1 ");
    ranks_end(&ranks, 1u << 1);
}

static void post_nonsense(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request;
    uint32_t data = 0;
    need(sw_coll_send(rank->coll, 1, &data, 1, SW_COLL_U32, 0, &error) == SW_COLL_INVALID);
    need(strstr(error.text, "no rank of that number"));
    need(sw_coll_recv(rank->coll, 0, NULL, 1, SW_COLL_U32, 0, &error) == SW_COLL_INVALID);
    need(sw_coll_recv(rank->coll, 0, &data, UINT64_MAX, SW_COLL_U32, 0, &error) == SW_COLL_INVALID);
    need(sw_coll_recv(rank->coll, 0, &data, 1, SW_COLL_TYPES, 0, &error) == SW_COLL_INVALID);
    // The communicator is as before, and closes with what is under way.
    need_ok(rank, sw_coll_recv_post(rank->coll, 0, &data, 1, SW_COLL_U32, 0, &error, &request),
            &error);
    need(sw_coll_test(request, &error) == SW_COLL_AGAIN);
}

static void post__nonsense_is_refused(void **state)
{
    (void)state;
    ranks_run(1, post_nonsense);
}

static bool is_long;

// More than 2^31 elements, of a file of 16 MiB that is mapped again and again.
enum { FILE_BYTES = 16 << 20, MAPPINGS = 129 };

static uint8_t *map_again_and_again(void)
{
    const int fd = memfd_create("huge", 0);
    uint8_t *data = mmap(NULL, (size_t)MAPPINGS * FILE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(fd >= 0 && !ftruncate(fd, FILE_BYTES) && data != MAP_FAILED);
    for (size_t i = 0; i < MAPPINGS; i++)
        need(mmap(data + i * FILE_BYTES, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                  fd, 0) != MAP_FAILED);
    close(fd);
    return data;
}

static void send_huge(struct rank *rank)
{
    const uint64_t count = (1ull << 31) + 5;
    const uint32_t last = rank->size - 1;
    struct sw_coll_error error = {.text = ""};
    uint8_t *from = map_again_and_again(), *to = map_again_and_again();
    memset(from, 1, FILE_BYTES);
    from[4] = 4;
    from[5] = 5;
    sw_coll_group_begin(rank->coll);
    if (rank->rank == 0)
        need_ok(rank, sw_coll_send(rank->coll, last, from, count, SW_COLL_U8, 0, &error), &error);
    if (rank->rank == last)
        need_ok(rank, sw_coll_recv(rank->coll, 0, to, count, SW_COLL_U8, 0, &error), &error);
    need_ok(rank, sw_coll_group_end(rank->coll, &error), &error);
    if (rank->rank < last)
        return;
    need(to[3] == 1 && to[4] == 4 && to[5] == 5 && to[FILE_BYTES - 1] == 1);
}

static void huge__comes_whole(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) // it would note each byte
    skip();
#endif
    if (getenv("SIDEWIRE_LINK")) // as packets it takes long
        skip();
    ranks_run(2, send_huge);
    if (is_long)
        ranks_run(1, send_huge);
}

int main(int argc, char **argv)
{
    (void)argv;
    is_long = argc > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages__of_all_pairs_beside_sums),
        cmocka_unit_test(ring__short_ones_are_sent_before_they_are_received),
        cmocka_unit_test(group__any_exchange_goes_well),
        cmocka_unit_test(wait__sleeps_until_it_has_come),
        cmocka_unit_test(unlike__both_sides_are_told),
        cmocka_unit_test(absent__is_named_at_the_deadline),
        cmocka_unit_test(gone__what_it_has_sent_is_received),
        cmocka_unit_test(gone__a_death_ends_sends_and_receives),
        cmocka_unit_test(post__nonsense_is_refused),
        cmocka_unit_test(huge__comes_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
