/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages from rank to rank in a simulated network: each rank posts what it sends and receives in
 * an order drawn by a seed, and what is written becomes visible late. With an argument: so many
 * times the seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/pairs.h"

enum {
    RANKS_MAX = 5,
    MESSAGES_MAX = 40, /* of an ordered pair */
    BYTES_MAX = 700,
    SHORT = 64,
    PIECE = 100,
    GUARD = 16,
    GUARD_BYTE = 0xa5,
    SPOILT = 0x3c,
    WRITES_MAX = 4096,
    TURNS_MAX = 200000,
};

enum fault {
    NO_FAULT,
    RING_OVERRUN,   /* places that are said to be free, and are not */
    NOTE_OVERTAKES, /* a mark that is seen before the payload */
    WRITTEN_EARLY,  /* WRITTEN that is seen before the data */
    SETTLES_EARLY,  /* a push that is said to have completed, and goes on */
    OLD_NOTE,       /* a note of a whole ring before that is taken again */
    OLD_ROOM,       /* a room likewise */
    PUSH_TOO_LONG,  /* a byte beyond the end */
    SHORTER_UNSEEN, /* notes whose counts are not told */
    FAULTS,
};

static unsigned long seeds_more = 1;

/* ---- the network ---- */

/* What one rank has written and another does not see yet. */
struct write {
    enum { WRITE_NOTE, WRITE_WORD, WRITE_DATA } kind;
    struct coll_note note;
    enum coll_word word;
    uint64_t value;
    uint32_t bytes;
    uint64_t to; /* DATA */
    const uint8_t *from;
    uint8_t payload[SHORT];
};

struct way { /* from one rank to another: writes become visible in their order */
    struct write *writes;
    uint32_t posted, seen, settled;
    /* What the receiver of them has: its mailbox. */
    struct {
        uint8_t payload[SHORT];
        struct coll_note note;
    } notes[2][COLL_RING];
    uint64_t words[COLL_WORDS];
};

struct message {
    struct coll_transfer sent, received;
    bool is_sent, is_received, was_posted[2];
    uint8_t *from, *to;
    uint8_t copy[BYTES_MAX];
};

struct node {
    struct world *world;
    uint32_t rank;
    struct coll_pairs_port port;
    struct coll_pairs machine;
    struct coll_pair pairs[RANKS_MAX];
};

struct world {
    uint64_t random;
    enum fault fault;
    uint32_t size, messages;
    struct node nodes[RANKS_MAX];
    struct way ways[RANKS_MAX][RANKS_MAX];
    struct message all[RANKS_MAX][RANKS_MAX][MESSAGES_MAX];
    uint32_t over;
    char failure[300];
};

static uint64_t world_draw(struct world *world, uint64_t below)
{
    uint64_t x = world->random += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % below;
}

static void say_failure(struct world *world, const char *text)
{
    if (!*world->failure)
        snprintf(world->failure, sizeof(world->failure), "%s", text);
}

static struct write *next_write(struct world *world, uint32_t from, uint32_t to)
{
    struct way *way = &world->ways[from][to];
    if (from != to && !world_draw(world, 5))
        return NULL; /* its queue is full */
    assert_true(way->posted < WRITES_MAX);
    struct write *write = &way->writes[way->posted++];
    *write = (struct write){.kind = WRITE_WORD};
    return write;
}

static void let_see(struct world *world, struct way *way)
{
    const struct write *write = &way->writes[way->seen++];
    const bool is_room = write->note.form == COLL_ROOM;
    switch (write->kind) {
    case WRITE_NOTE:
        memcpy(way->notes[is_room][write->note.mark % COLL_RING].payload, write->payload, SHORT);
        way->notes[is_room][write->note.mark % COLL_RING].note = write->note;
        break;
    case WRITE_WORD:
        way->words[write->word] = write->value;
        break;
    case WRITE_DATA:
        memcpy((void *)(uintptr_t)write->to, write->from,
               write->bytes + (world->fault == PUSH_TOO_LONG));
        break;
    }
    way->settled = way->seen;
}

static void see_all_of_self(struct world *world, uint32_t rank)
{
    struct way *way = &world->ways[rank][rank];
    while (way->seen < way->posted)
        let_see(world, way);
}

static enum coll_posting write_note(void *context, uint32_t peer, const struct coll_note *note,
                                    const void *payload)
{
    struct node *node = context;
    struct world *world = node->world;
    struct write *write = next_write(world, node->rank, peer);
    if (!write)
        return COLL_LATER;
    write->kind = WRITE_NOTE;
    write->note = *note;
    if (payload)
        memcpy(write->payload + SHORT - note->payload_bytes, payload, note->payload_bytes);
    if (world->fault == NOTE_OVERTAKES)
        world->ways[node->rank][peer].notes[note->form == COLL_ROOM][note->mark % COLL_RING].note =
            *note;
    see_all_of_self(world, node->rank);
    return COLL_POSTED;
}

static enum coll_posting write_word(void *context, uint32_t peer, enum coll_word word,
                                    uint64_t value)
{
    struct node *node = context;
    struct write *write = next_write(node->world, node->rank, peer);
    if (!write)
        return COLL_LATER;
    write->word = word;
    write->value = value;
    if (node->world->fault == WRITTEN_EARLY)
        node->world->ways[node->rank][peer].words[word] = value;
    see_all_of_self(node->world, node->rank);
    return COLL_POSTED;
}

static enum coll_posting push_data(void *context, const struct coll_transfer *transfer,
                                   struct coll_memory to, uint64_t bytes, uint64_t *ticket)
{
    struct node *node = context;
    struct write *write = next_write(node->world, node->rank, transfer->peer);
    if (!write)
        return COLL_LATER;
    write->kind = WRITE_DATA;
    write->to = to.address;
    write->from = (const uint8_t *)transfer->data + transfer->pushed;
    write->bytes = (uint32_t)bytes;
    *ticket = node->world->ways[node->rank][transfer->peer].posted;
    see_all_of_self(node->world, node->rank);
    return COLL_POSTED;
}

static bool data_have_settled(void *context, uint32_t peer, uint64_t ticket)
{
    const struct node *node = context;
    return node->world->fault == SETTLES_EARLY ||
           node->world->ways[node->rank][peer].settled >= ticket;
}

static const struct coll_note *see_note(void *context, uint32_t peer, bool is_room, uint64_t number)
{
    const struct node *node = context;
    struct way *way = &node->world->ways[peer][node->rank];
    struct coll_note *note = &way->notes[is_room][number % COLL_RING].note;
    if (node->world->fault == (is_room ? OLD_ROOM : OLD_NOTE) && note->mark)
        note->mark = number;
    if (node->world->fault == SHORTER_UNSEEN && note->mark == number) {
        const struct message *message = is_room ? &node->world->all[node->rank][peer][number - 1]
                                                : &node->world->all[peer][node->rank][number - 1];
        note->count = is_room ? message->sent.count : message->received.count;
    }
    return note->mark == number ? note : NULL;
}

static uint64_t see_word(void *context, uint32_t peer, enum coll_word word)
{
    const struct node *node = context;
    if (node->world->fault == RING_OVERRUN && word == COLL_TAKEN)
        return node->machine.pairs[peer].sent;
    return node->world->ways[peer][node->rank].words[word];
}

/* ---- messages ---- */

static const uint64_t sizes[] = {0, 1, 8, 24, 25, 63, 64, 65, 200, 256, BYTES_MAX};

static struct world *make_world(uint64_t seed, uint32_t size, uint32_t messages, enum fault fault)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->random = seed * 977 + size;
    world->size = size;
    world->messages = messages;
    world->fault = fault;
    for (uint32_t i = 0; i < size; i++) {
        struct node *node = &world->nodes[i];
        node->world = world;
        node->rank = i;
        node->port = (struct coll_pairs_port){
            node, write_note, write_word, push_data, data_have_settled, see_note, see_word};
        coll_pairs_init(&node->machine, i, size, SHORT, PIECE, &node->port, node->pairs);
        for (uint32_t j = 0; j < size; j++)
            world->ways[i][j].writes = calloc(WRITES_MAX, sizeof(struct write));
    }
    return world;
}

static void free_world(struct world *world)
{
    for (uint32_t i = 0; i < world->size; i++)
        for (uint32_t j = 0; j < world->size; j++) {
            free(world->ways[i][j].writes);
            for (uint32_t k = 0; k < MESSAGES_MAX; k++) {
                free(world->all[i][j][k].from);
                free(world->all[i][j][k].to);
            }
        }
    free(world);
}

static void make_message(struct world *world, uint32_t from, uint32_t to, uint32_t index,
                         uint64_t bytes)
{
    struct message *message = &world->all[from][to][index];
    message->from = malloc(BYTES_MAX + GUARD);
    message->to = malloc(BYTES_MAX + GUARD);
    for (uint32_t i = 0; i < BYTES_MAX; i++)
        message->copy[i] = message->from[i] = (uint8_t)world_draw(world, 256);
    memset(message->from + BYTES_MAX, 0, GUARD);
    memset(message->to, GUARD_BYTE, BYTES_MAX + GUARD);
    message->sent = (struct coll_transfer){
        .is_send = true, .peer = to, .type = SW_COLL_U8, .data = message->from, .count = bytes};
    message->received = (struct coll_transfer){.peer = from,
                                               .type = SW_COLL_U8,
                                               .data = message->to,
                                               .count = bytes,
                                               .memory = {(uintptr_t)message->to, 1}};
}

static bool post_side(struct world *world, uint32_t from, uint32_t to, uint32_t index, bool is_send)
{
    struct message *message = &world->all[from][to][index];
    struct coll_pairs *machine = &world->nodes[is_send ? from : to].machine;
    struct coll_transfer *transfer = is_send ? &message->sent : &message->received;
    if (message->was_posted[is_send])
        return false;
    assert_int_equal(coll_pairs_check(machine, transfer, NULL), SW_COLL_OK);
    coll_pairs_post(machine, transfer);
    message->was_posted[is_send] = true;
    return true;
}

/* The next of a pair that was not posted. */
static void post_next(struct world *world, uint32_t from, uint32_t to, bool is_send)
{
    for (uint32_t index = 0; index < world->messages; index++)
        if (post_side(world, from, to, index, is_send))
            return;
}

static void check_received(struct world *world, struct message *message)
{
    const uint64_t bytes = message->received.bytes;
    if (bytes && memcmp(message->to, message->copy, bytes) != 0)
        say_failure(world, "other bytes have come");
    for (uint64_t i = bytes; i < BYTES_MAX + GUARD; i++)
        if (message->to[i] != GUARD_BYTE) {
            say_failure(world, "bytes beyond the end were written");
            return;
        }
}

static void take_over(struct world *world, struct node *node)
{
    struct list_node *at;
    while ((at = list_first(&node->machine.over))) {
        struct coll_transfer *transfer = LIST_MEMBER(at, struct coll_transfer, node);
        list_remove(at);
        world->over++;
        if (transfer->is_send) {
            memset(transfer->data, SPOILT, transfer->bytes); /* the program's again */
            continue;
        }
        check_received(world, LIST_MEMBER(transfer, struct message, received));
    }
}

static void rank_turns(struct world *world, struct node *node)
{
    const enum sw_coll_status status = coll_pairs_go(&node->machine);
    take_over(world, node);
    if (status)
        say_failure(world, node->machine.error.text);
}

static void network_turns(struct world *world)
{
    struct way *way = &world->ways[world_draw(world, world->size)][world_draw(world, world->size)];
    uint64_t count = world_draw(world, 4);
    while (count-- && way->seen < way->posted)
        let_see(world, way);
}

/* ---- tests ---- */

/* All messages of all pairs, in any order that keeps that of each side. */
static void exchange_all(struct world *world)
{
    const uint32_t size = world->size, wanted = 2 * size * size * world->messages;
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t j = 0; j < size; j++)
            for (uint32_t k = 0; k < world->messages; k++)
                make_message(world, i, j, k,
                             sizes[world_draw(world, sizeof(sizes) / sizeof(*sizes))]);
    for (uint32_t turn = 0; turn < TURNS_MAX && world->over < wanted && !*world->failure; turn++) {
        const uint32_t one = (uint32_t)world_draw(world, size);
        const uint32_t other = (uint32_t)world_draw(world, size);
        switch (world_draw(world, 4)) {
        case 0:
            post_next(world, one, other, world_draw(world, 2));
            break;
        case 1:
            rank_turns(world, &world->nodes[one]);
            break;
        default:
            network_turns(world);
        }
    }
    if (world->over < wanted)
        say_failure(world, "not all messages have come");
    for (uint32_t i = 0; i < size; i++)
        if (!*world->failure && !list_is_empty(&world->nodes[i].machine.busy))
            rank_turns(world, &world->nodes[i]);
}

static void pairs__every_message_comes_in_its_order(void **state)
{
    (void)state;
    uint32_t over = 0;
    for (uint32_t size = 1; size <= RANKS_MAX; size++)
        for (uint64_t seed = 1; seed <= 12 * seeds_more; seed++) {
            struct world *world = make_world(seed, size, MESSAGES_MAX / (1 + size / 3), NO_FAULT);
            exchange_all(world);
            if (*world->failure)
                fail_msg("%u ranks, seed %lu: %s", size, (unsigned long)seed, world->failure);
            over += world->over;
            free_world(world);
        }
    assert_true(over > 10000);
}

/* A send of a short message that is waited for, then a receive, in a ring and with itself. */
static void pairs__a_ring_of_short_sends_goes_on(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= RANKS_MAX; size++) {
        struct world *world = make_world(size, size, 3, NO_FAULT);
        uint32_t turn = 0;
        for (uint32_t k = 0; k < world->messages; k++) {
            for (uint32_t i = 0; i < size; i++)
                make_message(world, i, (i + 1) % size, k, SHORT);
            for (uint32_t i = 0; i < size; i++)
                post_side(world, i, (i + 1) % size, k, true);
            /* Nobody receives until all sends are over. */
            while (world->over < size * (2 * k + 1) && turn++ < TURNS_MAX) {
                rank_turns(world, &world->nodes[world_draw(world, size)]);
                network_turns(world);
            }
            assert_int_equal(world->over, size * (2 * k + 1));
            for (uint32_t i = 0; i < size; i++)
                post_side(world, i, (i + 1) % size, k, false);
            while (world->over < size * (2 * k + 2) && turn++ < TURNS_MAX) {
                rank_turns(world, &world->nodes[world_draw(world, size)]);
                network_turns(world);
            }
        }
        assert_int_equal(world->over, size * 6);
        assert_string_equal(world->failure, "");
        free_world(world);
    }
}

/* Either comes first, and either is short or long: the same words, and no byte has changed. */
static void differ_once(uint64_t seed, uint64_t sent, uint64_t awaited)
{
    char expected[200];
    struct world *world = make_world(seed, 3, 2, NO_FAULT);
    make_message(world, 1, 2, 0, 8);
    make_message(world, 1, 2, 1, sent);
    struct message *message = &world->all[1][2][1];
    message->received.count = awaited;
    if (sent == awaited)
        message->received.type = SW_COLL_I8;
    for (uint32_t turn = 0; turn < 3000; turn++) {
        post_next(world, 1, 2, world_draw(world, 2));
        rank_turns(world, &world->nodes[world_draw(world, 3)]);
        network_turns(world);
    }
    snprintf(expected, sizeof(expected),
             "message 2 from rank 1 to rank 2: rank 1 sends count %lu of type u8, rank 2 awaits "
             "%lu of %s",
             (unsigned long)sent, (unsigned long)awaited, sent == awaited ? "i8" : "u8");
    assert_string_equal(world->failure, expected);
    for (uint32_t i = 0; i < BYTES_MAX + GUARD; i++)
        assert_int_equal(message->to[i], GUARD_BYTE);
    free_world(world);
}

static void pairs__sides_that_differ_are_told(void **state)
{
    (void)state;
    static const uint64_t cases[][2] = {{8, 9},   {9, 8},   {0, 1},    {1, 0},     {8, 300},
                                        {300, 8}, {0, 300}, {300, 0},  {300, 301}, {301, 300},
                                        {8, 8},   {60, 60}, {300, 300}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (uint64_t seed = 1; seed <= 8; seed++)
            differ_once(seed, cases[i][0], cases[i][1]);
}

static void pairs__what_is_waited_for_has_a_name(void **state)
{
    (void)state;
    char text[160];
    struct world *world = make_world(1, 3, 1, NO_FAULT);
    make_message(world, 1, 2, 0, 300);
    struct coll_pairs *sender = &world->nodes[1].machine, *receiver = &world->nodes[2].machine;
    post_side(world, 1, 2, 0, true);
    assert_true(coll_pair_waits(&sender->pairs[2]) && !coll_pair_waits(&sender->pairs[0]));
    coll_transfer_waits_text(sender, coll_pair_first(&sender->pairs[2]), text, sizeof(text));
    assert_string_equal(text, "rank 2 has not received message 1 from rank 1");
    post_side(world, 1, 2, 0, false);
    coll_transfer_waits_text(receiver, coll_pair_first(&receiver->pairs[1]), text, sizeof(text));
    assert_string_equal(text, "rank 1 has not sent message 1 to rank 2");
    free_world(world);
}

static void pairs__find_faults_on_purpose(void **state)
{
    (void)state;
    static const char *const names[FAULTS] = {
        [RING_OVERRUN] = "a ring that is overrun",
        [NOTE_OVERTAKES] = "a note that is seen before its payload",
        [WRITTEN_EARLY] = "data that are said to be there",
        [SETTLES_EARLY] = "a source that is given back too early",
        [OLD_NOTE] = "an old note that is taken again",
        [OLD_ROOM] = "an old room that is taken again",
        [PUSH_TOO_LONG] = "a byte beyond the end",
        [SHORTER_UNSEEN] = "sides that are not compared",
    };
    for (unsigned fault = NO_FAULT + 1; fault < FAULTS; fault++) {
        bool is_found = false;
        for (uint64_t seed = 1; seed <= 40 && !is_found; seed++) {
            struct world *world = make_world(seed, 2, MESSAGES_MAX, (enum fault)fault);
            if (fault == SHORTER_UNSEEN) {
                make_message(world, 0, 1, 0, 300);
                world->all[0][1][0].received.count = 200;
                for (uint32_t turn = 0; turn < 3000; turn++) {
                    post_next(world, 0, 1, turn % 2);
                    rank_turns(world, &world->nodes[turn % 2]);
                    network_turns(world);
                    world->messages = 1;
                }
            } else {
                exchange_all(world);
            }
            is_found = *world->failure;
            if (is_found)
                printf("%s: found by seed %lu: %s\n", names[fault], (unsigned long)seed,
                       world->failure);
            free_world(world);
        }
        if (!is_found)
            fail_msg("%s: not found", names[fault]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs__every_message_comes_in_its_order),
        cmocka_unit_test(pairs__a_ring_of_short_sends_goes_on),
        cmocka_unit_test(pairs__sides_that_differ_are_told),
        cmocka_unit_test(pairs__what_is_waited_for_has_a_name),
        cmocka_unit_test(pairs__find_faults_on_purpose),
    };
    if (argc > 1)
        seeds_more = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
