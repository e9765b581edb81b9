/* SPDX-License-Identifier: BSD-2-Clause */
#include "pairs_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t world_draw(struct world *world, uint64_t below)
{
    uint64_t x = world->random += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % below;
}

void say_failure(struct world *world, const char *text)
{
    if (!*world->failure)
        snprintf(world->failure, sizeof(world->failure), "%s", text);
}

static struct write *next_write(struct world *world, uint32_t from, uint32_t to)
{
    struct way *way = &world->ways[from][to];
    if ((from != to && !world_draw(world, 5)) || (to == world->dead && world->is_death_known))
        return NULL; /* its queue is full, or it has ended */
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

static enum coll_posting refuse_write(const struct world *world, uint32_t to)
{
    return to == world->dead && world->is_death_known ? COLL_LOST : COLL_LATER;
}

static enum coll_posting write_note(void *context, uint32_t peer, const struct coll_note *note,
                                    const void *payload)
{
    struct node *node = context;
    struct world *world = node->world;
    struct write *write = next_write(world, node->rank, peer);
    if (!write)
        return refuse_write(world, peer);
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
        return refuse_write(node->world, peer);
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
        return refuse_write(node->world, transfer->peer);
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

struct world *make_world(uint64_t seed, uint32_t size, uint32_t messages, enum fault fault)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->random = seed * 977 + size;
    world->size = world->dead = size;
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

void free_world(struct world *world)
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

void make_message(struct world *world, uint32_t from, uint32_t to, uint32_t index, uint64_t bytes)
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

bool post_side(struct world *world, uint32_t from, uint32_t to, uint32_t index, bool is_send)
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

void post_next(struct world *world, uint32_t from, uint32_t to, bool is_send)
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

/* A rank that has lost the dead one, and says so. */
static bool is_right_end(const struct world *world, const struct node *node)
{
    char name[24];
    snprintf(name, sizeof(name), "rank %u ", world->dead);
    return world->is_death_known && node->machine.status == SW_COLL_RANK_GONE &&
           strstr(node->machine.error.text, name);
}

void rank_turns(struct world *world, struct node *node)
{
    if (node->rank == world->dead)
        return;
    const enum sw_coll_status status = coll_pairs_go(&node->machine);
    take_over(world, node);
    if (status && !is_right_end(world, node))
        say_failure(world, node->machine.error.text);
}

void network_turns(struct world *world)
{
    const uint32_t from = (uint32_t)world_draw(world, world->size);
    const uint32_t to = (uint32_t)world_draw(world, world->size);
    struct way *way = &world->ways[from][to];
    uint64_t count = world_draw(world, 4);
    while (to != world->dead && count-- && way->seen < way->posted)
        let_see(world, way);
}

void let_die(struct world *world, uint32_t rank)
{
    world->dead = rank;
    for (uint32_t to = 0; to < world->size; to++) {
        struct way *way = &world->ways[rank][to];
        uint64_t count = world_draw(world, way->posted - way->seen + 1);
        while (count--)
            let_see(world, way);
        for (; world->fault == DEATH_HAS_GAPS && way->seen < way->posted; way->seen++)
            if (way->writes[way->seen].kind == WRITE_WORD)
                way->words[way->writes[way->seen].word] = way->writes[way->seen].value;
        way->posted = way->seen;
    }
}

void make_all_messages(struct world *world)
{
    const uint32_t size = world->size;
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t j = 0; j < size; j++)
            for (uint32_t k = 0; k < world->messages; k++)
                make_message(world, i, j, k,
                             sizes[world_draw(world, sizeof(sizes) / sizeof(*sizes))]);
}

void world_turns(struct world *world)
{
    const uint32_t one = (uint32_t)world_draw(world, world->size);
    const uint32_t other = (uint32_t)world_draw(world, world->size);
    const bool is_send = world_draw(world, 2);
    switch (world_draw(world, 4)) {
    case 0:
        if ((is_send ? one : other) != world->dead)
            post_next(world, one, other, is_send);
        break;
    case 1:
        rank_turns(world, &world->nodes[one]);
        break;
    default:
        network_turns(world);
    }
}

void exchange_all(struct world *world)
{
    const uint32_t size = world->size, wanted = 2 * size * size * world->messages;
    make_all_messages(world);
    for (uint32_t turn = 0; turn < TURNS_MAX && world->over < wanted && !*world->failure; turn++)
        world_turns(world);
    if (world->over < wanted)
        say_failure(world, "not all messages have come");
    for (uint32_t i = 0; i < size; i++)
        if (!*world->failure && !list_is_empty(&world->nodes[i].machine.busy))
            rank_turns(world, &world->nodes[i]);
}
