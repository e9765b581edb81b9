// SPDX-License-Identifier: BSD-2-Clause
// Messages of a process group: tags, receives from any rank, and messages that came before their
// receive.
#include "members.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 30000, MESSAGES = 12 };

static uint64_t bytes_of(uint32_t message)
{
    static const uint64_t lengths[] = {8, 0, 3000, 24, 1000, LONG};
    return lengths[message % 6];
}

static void fill_bytes(uint8_t *data, uint32_t from, uint32_t message)
{
    for (uint64_t i = 0; i < bytes_of(message); i++)
        data[i] = (uint8_t)(from * 31 + message * 7 + i + i / 251);
}

static void need_bytes(const uint8_t *data, uint32_t from, uint32_t message)
{
    for (uint64_t i = 0; i < bytes_of(message); i++)
        need(data[i] == (uint8_t)(from * 31 + message * 7 + i + i / 251));
}

static uint8_t out[MESSAGES][LONG], in[MESSAGES][LONG];
static struct work sends[MESSAGES], recvs[MESSAGES];

// ---- tags ----

// Tags are received in the reverse order of the sends.
static void receive_in_reverse(struct member *member)
{
    const uint32_t next = (member->rank + 1) % member->size;
    const uint32_t before = (member->rank + member->size - 1) % member->size;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        fill_bytes(out[i], member->rank, i);
        work_send(&sends[i], next, i, out[i], bytes_of(i));
        work_submit(member, &sends[i]);
    }
    for (uint32_t i = MESSAGES; i-- > 0;) {
        work_recv(&recvs[i], before, i, in[i], bytes_of(i));
        work_submit(member, &recvs[i]);
        work_end(member, &recvs[i], SW_COLL_OK);
        need_bytes(in[i], before, i);
    }
    for (uint32_t i = 0; i < MESSAGES; i++)
        work_end(member, &sends[i], SW_COLL_OK);
}

// With one rank they are its own.
static void tags__any_order(void **state)
{
    (void)state;
    members_run(1, receive_in_reverse, 0);
    members_run(2, receive_in_reverse, 0);
    members_run(4, receive_in_reverse, 0);
}

// The same tag again and again: in the order of the sends, though some are parked.
static void receive_same_tags(struct member *member)
{
    if (!member->rank)
        for (uint32_t i = 0; i < MESSAGES; i++) {
            fill_bytes(out[i], 0, i);
            work_send(&sends[i], 1, i % 2, out[i], bytes_of(i));
            work_submit(member, &sends[i]);
        }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        const uint32_t message = i < MESSAGES / 2 ? 2 * i + 1 : 2 * (i - MESSAGES / 2);
        if (!member->rank) {
            work_end(member, &sends[i], SW_COLL_OK);
            continue;
        }
        work_recv(&recvs[i], 0, message % 2, in[i], bytes_of(message));
        work_submit(member, &recvs[i]);
        if (i % 3)
            nap_ms(1);
        work_end(member, &recvs[i], SW_COLL_OK);
        need_bytes(in[i], 0, message);
    }
}

static void tags__one_has_an_order(void **state)
{
    (void)state;
    members_run(2, receive_same_tags, 0);
}

// All receives first, then all messages, with nobody who waits until all are there.
static void receive_first(struct member *member)
{
    const uint32_t other = !member->rank;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        work_recv(&recvs[i], other, i, in[i], bytes_of(i));
        work_submit(member, &recvs[i]);
    }
    nap_ms(3);
    for (uint32_t i = MESSAGES; i-- > 0;) {
        fill_bytes(out[i], member->rank, i);
        work_send(&sends[i], other, i, out[i], bytes_of(i));
        work_submit(member, &sends[i]);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        work_watch(&sends[i]);
        work_watch(&recvs[i]);
        need_bytes(in[i], other, i);
    }
    sum_once(member, 1);
}

static void tags__receives_that_came_first(void **state)
{
    (void)state;
    members_run(2, receive_first, 0);
}

// One receive gets another length than it awaits; those beside it are not touched.
static void receive_unlike(struct member *member)
{
    const bool is_parked = member->rank == 1;
    if (!member->rank) {
        for (uint32_t to = 1; to <= 2; to++) {
            struct work *two = &sends[2 * to];
            fill_bytes(out[0], 0, 2);
            work_send(&two[0], to, 5, out[0], bytes_of(2));
            work_send(&two[1], to, 6, out[0], bytes_of(2));
            work_submit(member, &two[0]);
            work_submit(member, &two[1]);
        }
        for (uint32_t i = 2; i < 6; i++)
            work_end(member, &sends[i], SW_COLL_OK);
    } else {
        work_recv(&recvs[0], 0, 5, in[0], bytes_of(2) - 1);
        work_recv(&recvs[1], 0, 6, in[1], bytes_of(2));
        for (uint32_t i = 0; i < 2; i++) {
            work_submit(member, &recvs[is_parked ? !i : i]);
            if (is_parked)
                work_end(member, &recvs[!i], i ? SW_COLL_MISMATCH : SW_COLL_OK);
        }
        for (uint32_t i = 0; i < 2 && !is_parked; i++)
            work_end(member, &recvs[i], i ? SW_COLL_OK : SW_COLL_MISMATCH);
        need(strstr(recvs[0].operation.error.text, "rank 0 sends 3000 bytes with tag 5"));
        need_bytes(in[1], 0, 2);
    }
    sum_once(member, 1);
}

static void tags__another_length_ends_one_receive(void **state)
{
    (void)state;
    members_run(3, receive_unlike, 0);
}

// ---- any rank ----

static void serve_any(struct member *member)
{
    enum { EACH = 20 };
    uint32_t seen[MEMBERS] = {0};
    const uint32_t all = EACH * (member->size - 1);
    for (uint32_t i = 0; member->rank && i < EACH; i++) {
        const uint64_t value = member->rank * 1000 + i;
        struct work work;
        work_send(&work, 0, 4, &value, 8);
        work_submit(member, &work);
        work_end(member, &work, SW_COLL_OK);
        nap_ms(i % 5 == 0 ? 1 : 0);
    }
    for (uint32_t i = 0; !member->rank && i < all; i++) {
        uint64_t value = 0;
        struct work work;
        work_recv(&work, 0, 4, &value, 8);
        work.operation.kind = PGE_RECV_ANY;
        work_submit(member, &work);
        work_end(member, &work, SW_COLL_OK);
        const uint32_t source = work.operation.source;
        need(source > 0 && source < member->size && value == source * 1000 + seen[source]++);
    }
}

// Ranks that have sent all end meanwhile: that is no failure.
static void any__who_sends_first(void **state)
{
    (void)state;
    members_run(2, serve_any, 0);
    members_run(4, serve_any, 0);
}

// Nobody is left who could send.
static void await_nobody(struct member *member)
{
    uint64_t value;
    if (member->rank) {
        flag_await(member, 0, 1);
        return;
    }
    work_recv(&recvs[0], 0, 4, &value, 8);
    recvs[0].operation.kind = PGE_RECV_ANY;
    work_recv(&recvs[1], 1, 4, &value, 8);
    work_submit(member, &recvs[0]);
    work_submit(member, &recvs[1]);
    flag_raise(member, 0);
    work_end(member, &recvs[1], SW_COLL_RANK_GONE);
    need(strstr(recvs[1].operation.error.text, "rank 1"));
    work_end(member, &recvs[0], SW_COLL_RANK_GONE);
}

static void any__of_ranks_that_have_closed(void **state)
{
    (void)state;
    members_run(3, await_nobody, 0);
}

// ---- deadlines, and room ----

// It ends one receive, and the tag may come later.
static void receive_in_time(struct member *member)
{
    uint64_t value = 0;
    if (member->rank) {
        flag_await(member, 0, 1);
        value = 77;
        work_send(&sends[0], 0, 3, &value, 8);
        work_submit(member, &sends[0]);
        work_end(member, &sends[0], SW_COLL_OK);
    } else {
        for (uint32_t i = 0; i < 2; i++) {
            work_recv(&recvs[i], 1, 3, &value, 8);
            recvs[i].operation.kind = i ? PGE_RECV_ANY : PGE_RECV;
            recvs[i].operation.deadline_ns = sw_coll_deadline_ms(20);
            work_submit(member, &recvs[i]);
        }
        work_end(member, &recvs[0], SW_COLL_TIMEOUT);
        need(strstr(recvs[0].operation.error.text, "rank 1 has not sent a message with tag 3"));
        work_watch(&recvs[1]);
        need(recvs[1].operation.error.status == SW_COLL_TIMEOUT);
        flag_raise(member, 0);
        work_recv(&recvs[0], 1, 3, &value, 8);
        work_submit(member, &recvs[0]);
        work_end(member, &recvs[0], SW_COLL_OK);
        need(value == 77);
    }
    sum_once(member, 1);
}

static void deadline__ends_one_receive(void **state)
{
    (void)state;
    members_run(2, receive_in_time, 0);
}

// What has no room stays at its sender, until a receive for it comes.
static void park_little(struct member *member)
{
    struct pge_options options;
    struct member small = *member;
    pge_options_init(&options);
    options.parked_bytes = LONG + 10;
    small.engine = member_open(member, 1, 2, &options);
    for (uint32_t i = 0; i < 3; i++) {
        if (member->rank) {
            fill_bytes(out[i], 1, 5);
            work_send(&sends[i], 0, i, out[i], LONG);
            work_submit(&small, &sends[i]);
        }
    }
    if (member->rank) {
        work_end(&small, &sends[0], SW_COLL_OK);
        flag_raise(member, 0);
        work_end(&small, &sends[1], SW_COLL_OK);
        work_end(&small, &sends[2], SW_COLL_OK);
    } else {
        work_recv(&recvs[2], 1, 2, in[2], LONG);
        work_submit(&small, &recvs[2]);
        need(pge_wait(small.engine, &recvs[2].operation, sw_coll_deadline_ms(20), NULL) ==
             SW_COLL_AGAIN);
        flag_await(member, 0, 1); /* the first is parked, and the second has no room */
        for (uint32_t i = 0; i < 2; i++) {
            work_recv(&recvs[i], 1, i, in[i], LONG);
            work_submit(&small, &recvs[i]);
        }
        for (uint32_t i = 0; i < 3; i++) {
            work_end(&small, &recvs[i], SW_COLL_OK);
            need_bytes(in[i], 1, 5);
        }
    }
    pge_close(small.engine);
}

static void park__has_a_bound(void **state)
{
    (void)state;
    members_run(2, park_little, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags__any_order),
        cmocka_unit_test(tags__one_has_an_order),
        cmocka_unit_test(tags__receives_that_came_first),
        cmocka_unit_test(tags__another_length_ends_one_receive),
        cmocka_unit_test(any__who_sends_first),
        cmocka_unit_test(any__of_ranks_that_have_closed),
        cmocka_unit_test(deadline__ends_one_receive),
        cmocka_unit_test(park__has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
