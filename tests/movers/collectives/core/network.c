/* SPDX-License-Identifier: BSD-2-Clause */
#include "network.h"

#include <stdlib.h>
#include <string.h>

static struct world_mail *mail_place(struct world_rank *rank, uint32_t from, uint64_t number,
                                     enum coll_slot slot)
{
    const bool is_one_sided = rank->world->options->fault == WORLD_ONE_SIDE;
    const uint32_t side = is_one_sided ? 0 : number % SIDES;
    return &rank->mails[(from * SIDES + side) * COLL_SLOTS + slot];
}

/* ---- links ---- */

static struct world_link *link_at(struct world *world, uint32_t index)
{
    return &world->links[index];
}

static void append_entry(struct world_rank *rank, uint32_t peer, struct world_entry entry)
{
    struct world *world = rank->world;
    const uint32_t index = (rank->rank * world->size + peer) * 2 + (entry.kind == WORLD_PULL);
    struct world_link *link = link_at(world, index);
    struct world_entry *made = malloc(sizeof(*made));
    *made = entry;
    made->next = NULL;
    made->number = rank->begun;
    if (entry.kind == WORLD_MAIL && entry.slot == COLL_DONE &&
        world->options->fault == WORLD_DONE_OVERTAKES) {
        made->next = link->first;
        link->first = made;
        link->last = link->last ? link->last : made;
    } else if (link->last) {
        link->last = link->last->next = made;
    } else {
        link->first = link->last = made;
    }
    if (!link->active) {
        world->active[world->active_count++] = index;
        link->active = world->active_count;
    }
    world->progress++;
}

static void drop_first(struct world *world, uint32_t index)
{
    struct world_link *link = link_at(world, index);
    struct world_entry *first = link->first;
    link->first = first->next;
    free(first->data);
    free(first);
    if (link->first)
        return;
    link->last = NULL;
    const uint32_t last = world->active[--world->active_count];
    world->active[link->active - 1] = last;
    link_at(world, last)->active = link->active;
    link->active = 0;
}

/* ---- what happens at the other end ---- */

static bool is_within(const uint8_t *at, size_t bytes, const uint8_t *buffer, uint64_t size)
{
    return at >= buffer && at + bytes <= buffer + size;
}

/* What a rank shows is there as long as the rank. */
static uint8_t *reach_shown(struct world_rank *rank, const struct world_entry *entry)
{
    uint8_t *at = (uint8_t *)entry->remote.address;
    if (is_within(at, entry->bytes, (const uint8_t *)rank->shown,
                  coll_shown_bytes(rank->world->size)))
        return at;
    world_fail(rank->world, "a request leaves what rank %u shows", rank->rank);
    return NULL;
}

/* The memory that a request names belongs to an operation that is under way there. */
static uint8_t *reach_memory(struct world_rank *rank, const struct world_entry *entry)
{
    if (entry->remote.key == SHOWN_KEY && entry->kind == WORLD_PULL)
        return reach_shown(rank, entry);
    const bool is_recv = entry->remote.key & 1, is_scratch = entry->remote.key == SCRATCH_KEY;
    uint8_t *at = (uint8_t *)entry->remote.address;
    if (is_recv != (entry->kind == WORLD_PUSH))
        world_fail(rank->world, "a key of rank %u is used the wrong way", rank->rank);
    else if (is_scratch && rank->ended == rank->begun)
        world_fail(rank->world, "scratch of rank %u is used after its operation", rank->rank);
    else if (is_scratch)
        return is_within(at, entry->bytes, rank->scratch, rank->machine.site.scratch_bytes)
                   ? at
                   : (world_fail(rank->world, "a request leaves scratch"), NULL);
    else if (entry->remote.key / 2 != (uint32_t)rank->begun || rank->ended == rank->begun)
        world_fail(rank->world, "memory of rank %u is used after its operation", rank->rank);
    else if (!is_within(at, entry->bytes, is_recv ? rank->recv : rank->send,
                        is_recv ? rank->recv_bytes : rank->send_bytes))
        world_fail(rank->world, "a request leaves a buffer of rank %u", rank->rank);
    else
        return at;
    return NULL;
}

static bool own_is_there(struct world_rank *rank, const struct world_entry *entry)
{
    if (entry->number == rank->begun && rank->ended != rank->begun)
        return true;
    world_fail(rank->world, "rank %u ends before its requests", rank->rank);
    return false;
}

static void deliver_mail(struct world_rank *from, struct world_rank *to, struct world_entry *entry)
{
    const uint64_t number = entry->record.mark;
    struct world_mail *mail = mail_place(to, from->rank, number, entry->slot);
    const uint64_t seen =
        entry->slot == COLL_STEP ? to->machine.steps_heard[from->rank] : to->ended;
    if (mail->record.mark && mail->record.mark > seen)
        world_fail(to->world, "mailbox of rank %u is overrun", to->rank);
    const uint32_t payload = entry->data ? entry->record.payload_bytes : 0;
    if (payload)
        memcpy(mail->room + to->world->options->eager_bytes - payload, entry->data, payload);
    mail->record = entry->record;
}

/* A request reads at one time, and writes at a later one. True: it has ended. */
static bool move_data(struct world_rank *from, struct world_rank *to, struct world_entry *entry)
{
    uint8_t *remote = reach_memory(to, entry);
    if (!remote || !own_is_there(from, entry))
        return true;
    if (!entry->data) {
        entry->data = malloc(entry->bytes);
        memcpy(entry->data, entry->kind == WORLD_PULL ? remote : entry->local, entry->bytes);
        return false;
    }
    memcpy(entry->kind == WORLD_PULL ? entry->local : remote, entry->data, entry->bytes);
    from->has_completed[entry->post % POSTS] = true;
    return true;
}

void network_step(struct world *world)
{
    const uint32_t index = world->active[calls_random(&world->random) % world->active_count];
    struct world_entry *entry = link_at(world, index)->first;
    struct world_rank *from = &world->ranks[index / 2 / world->size];
    struct world_rank *to = &world->ranks[index / 2 % world->size];
    world->progress++;
    if (to->is_gone || from->is_gone) {
        drop_first(world, index);
    } else if (entry->kind == WORLD_MAIL) {
        deliver_mail(from, to, entry);
        drop_first(world, index);
    } else if (move_data(from, to, entry)) {
        drop_first(world, index);
    }
}

/* ---- the port ---- */

static bool network_mail(void *context, uint32_t peer, enum coll_slot slot,
                         const struct coll_record *record, const void *payload)
{
    struct world_rank *rank = context;
    struct world_entry entry = {.kind = WORLD_MAIL, .slot = slot, .record = *record};
    if (!payload != (record->payload_bytes <= COLL_INLINE_MAX))
        world_fail(rank->world, "a payload of %u bytes is in two places, or in none",
                   record->payload_bytes);
    if (record->payload_bytes > rank->world->options->eager_bytes)
        world_fail(rank->world, "a payload has %u bytes", record->payload_bytes);
    else if (payload) {
        entry.data = malloc(record->payload_bytes);
        memcpy(entry.data, payload, record->payload_bytes);
    }
    rank->world->result->mails++;
    if (is_known_gone(&rank->world->ranks[peer])) {
        free(entry.data);
        return false;
    }
    append_entry(rank, peer, entry);
    return true;
}

static bool network_look(void *context, uint32_t peer, enum coll_slot slot, uint64_t number,
                         struct coll_mail *mail)
{
    struct world_rank *rank = context;
    const struct world_mail *place = mail_place(rank, peer, number, slot);
    const bool takes_all = rank->world->options->fault == WORLD_KEEPS_MAIL;
    if (takes_all ? !place->record.mark : place->record.mark != number)
        return false;
    mail->record = &place->record;
    mail->payload_end = place->room + rank->world->options->eager_bytes;
    return true;
}

static bool post_entry(struct world_rank *rank, uint32_t peer, struct world_entry entry)
{
    if (rank->posted - rank->revealed >= POSTS_MAX)
        world_fail(rank->world, "rank %u posts more than there is room for", rank->rank);
    entry.post = rank->posted++;
    rank->has_completed[entry.post % POSTS] = false;
    rank->world->result->requests++;
    if (is_known_gone(&rank->world->ranks[peer])) {
        free(entry.data);
        return false;
    }
    append_entry(rank, peer, entry);
    return true;
}

static bool network_pull(void *context, uint32_t peer, void *to, struct coll_memory from,
                         size_t bytes)
{
    struct world_rank *rank = context;
    memset(to, 0xee, bytes); /* what is read before it is there, is this */
    return post_entry(
        rank, peer,
        (struct world_entry){.kind = WORLD_PULL, .local = to, .remote = from, .bytes = bytes});
}

static bool network_push(void *context, uint32_t peer, const void *from, struct coll_memory to,
                         size_t bytes)
{
    struct world_rank *rank = context;
    struct world_entry entry = {
        .kind = WORLD_PUSH, .local = (uint8_t *)from, .remote = to, .bytes = bytes};
    /* Some devices read at once, others late. */
    if (calls_random(&rank->world->random) % 2) {
        entry.data = malloc(bytes);
        memcpy(entry.data, from, bytes);
    }
    return post_entry(rank, peer, entry);
}

static uint64_t network_settled(void *context)
{
    struct world_rank *rank = context;
    const bool is_early = rank->world->options->fault == WORLD_SETTLES_EARLY;
    while (rank->revealed < rank->posted &&
           (is_early || rank->has_completed[rank->revealed % POSTS])) {
        rank->revealed++;
        rank->world->progress++;
        if (calls_random(&rank->world->random) % 4 == 0)
            break;
    }
    return rank->revealed;
}

static struct coll_memory network_shown(void *context, uint32_t peer)
{
    const struct world_rank *rank = context;
    return (struct coll_memory){(uintptr_t)rank->world->ranks[peer].shown, SHOWN_KEY};
}

struct coll_port network_port(struct world_rank *rank)
{
    return (struct coll_port){.context = rank,
                              .posts_max = POSTS_MAX,
                              .mail = network_mail,
                              .look = network_look,
                              .pull = network_pull,
                              .push = network_push,
                              .settled = network_settled,
                              .shown = network_shown};
}

void network_open(struct world *world)
{
    const size_t links = (size_t)world->size * world->size * 2;
    world->links = calloc(links, sizeof(*world->links));
    world->active = calloc(links, sizeof(*world->active));
    const uint32_t eager = world->options->eager_bytes;
    for (uint32_t i = 0; i < world->size; i++) {
        const size_t places = (size_t)world->size * SIDES * COLL_SLOTS;
        struct world_mail *mails = calloc(places, sizeof(*mails));
        uint8_t *rooms = calloc(places, eager + 1);
        for (size_t at = 0; at < places; at++)
            mails[at].room = rooms + at * eager;
        world->ranks[i].mails = mails;
    }
}

void network_close(struct world *world)
{
    while (world->active_count)
        drop_first(world, world->active[0]);
    for (uint32_t i = 0; i < world->size; i++) {
        free(world->ranks[i].mails[0].room);
        free(world->ranks[i].mails);
    }
    free(world->links);
    free(world->active);
}
