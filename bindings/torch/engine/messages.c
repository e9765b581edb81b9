// SPDX-License-Identifier: BSD-2-Clause
// Tags. The communicator has an order of messages for each pair of ranks, and shows the next one
// with its tag before it is received. So nothing is received before it is known for which receive
// it is: it goes straight to the buffer of that. A message that nobody wants yet stays at its
// sender, as long as no receive waits for a later one of the same rank. Else it is parked.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

static bool may_come_from(const struct pge_operation *receive, uint32_t peer)
{
    return receive->kind == PGE_RECV_ANY || receive->peer == peer;
}

static bool is_awaited_from(const struct pge_engine *engine, uint32_t peer)
{
    const struct pge_operation *receive = engine->receives.first;
    while (receive && !may_come_from(receive, peer))
        receive = receive->next;
    return receive;
}

static void finish_unlike(struct pge_engine *engine, struct pge_operation *receive, uint32_t peer,
                          uint64_t bytes)
{
    struct sw_coll_error error;
    pge_say(&error, SW_COLL_MISMATCH,
            "rank %u sends %" PRIu64 " bytes with tag %" PRIu64 ", and rank %u awaits %" PRIu64,
            peer, bytes, receive->tag, engine->rank, receive->call.count);
    pge_finish(engine, receive, &error);
}

// ---- parked messages ----

static void free_parked(struct pge_engine *engine, struct pge_parked *parked)
{
    struct pge_parked **place = &engine->parked;
    while (*place != parked)
        place = &(*place)->next;
    *place = parked->next;
    if (engine->parked_last == &parked->next)
        engine->parked_last = place;
    engine->parked_bytes -= parked->bytes;
    free(parked);
}

static void deliver_parked(struct pge_engine *engine, struct pge_parked *parked)
{
    struct pge_operation *receive = parked->receive;
    if (parked->bytes)
        memcpy(receive->call.recv, parked->data, parked->bytes);
    receive->source = parked->peer;
    free_parked(engine, parked);
    pge_finish(engine, receive, NULL);
}

// The first of that tag has come, or is about to.
static void claim_parked(struct pge_engine *engine, struct pge_parked *parked,
                         struct pge_operation *receive)
{
    if (parked->bytes != receive->call.count) {
        const uint32_t peer = parked->peer;
        const uint64_t bytes = parked->bytes;
        parked->is_unwanted = true;
        if (parked->has_come)
            free_parked(engine, parked);
        finish_unlike(engine, receive, peer, bytes);
        return;
    }
    parked->receive = receive;
    if (parked->has_come)
        deliver_parked(engine, parked);
}

static struct pge_parked *find_parked(const struct pge_engine *engine,
                                      const struct pge_operation *receive)
{
    struct pge_parked *parked = engine->parked;
    while (parked && (parked->receive || parked->is_unwanted || parked->tag != receive->tag ||
                      !may_come_from(receive, parked->peer)))
        parked = parked->next;
    return parked;
}

void pge_message_come(struct pge_engine *engine, struct pge_parked *parked,
                      const struct sw_coll_error *error)
{
    struct pge_operation *receive = parked->receive;
    parked->has_come = true;
    if (error->status || parked->is_unwanted) {
        free_parked(engine, parked);
        if (receive)
            pge_finish(engine, receive, error);
    } else if (receive) {
        deliver_parked(engine, parked);
    }
}

// False: there is no room for it.
static bool park_message(struct pge_engine *engine, uint32_t peer,
                         const struct sw_coll_message *message, bool is_unwanted)
{
    struct sw_coll_request *request;
    struct pge_parked *parked;
    uint64_t bytes;
    if (__builtin_mul_overflow(message->count, sw_coll_type_bytes(message->type), &bytes) ||
        bytes > engine->options.parked_bytes - engine->parked_bytes || !pge_has_room(engine) ||
        !(parked = malloc(sizeof(*parked) + bytes)))
        return false;
    *parked = (struct pge_parked){
        .peer = peer, .tag = message->tag, .bytes = bytes, .is_unwanted = is_unwanted};
    if (sw_coll_recv_post(engine->coll, peer, parked->data, message->count, message->type, 0, NULL,
                          &request)) {
        free(parked);
        return false;
    }
    engine->parked_bytes += bytes;
    *engine->parked_last = parked;
    engine->parked_last = &parked->next;
    pge_add_active(engine, (struct pge_active){.parked = parked}, request);
    return true;
}

// ---- messages that are shown ----

static void post_receive_for(struct pge_engine *engine, struct pge_operation *receive,
                             uint32_t peer)
{
    struct sw_coll_error error = {.status = SW_COLL_OK};
    struct sw_coll_request *request;
    receive->source = peer;
    if (!pge_has_room(engine))
        pge_say(&error, SW_COLL_NO_MEMORY, "out of memory");
    else
        sw_coll_recv_post(engine->coll, peer, receive->call.recv, receive->call.count, SW_COLL_U8,
                          receive->deadline_ns, &error, &request);
    if (error.status)
        pge_finish(engine, receive, &error);
    else
        pge_add_active(engine, (struct pge_active){.operation = receive}, request);
}

// The next one of that rank. False: it stays where it is for now.
static bool match_message(struct pge_engine *engine, uint32_t peer,
                          const struct sw_coll_message *message)
{
    struct pge_operation **place = &engine->receives.first, *receive;
    while (*place && ((*place)->tag != message->tag || !may_come_from(*place, peer)))
        place = &(*place)->next;
    if (!*place)
        return park_message(engine, peer, message, false);
    const bool is_like = message->type == SW_COLL_U8 && message->count == (*place)->call.count;
    if (!is_like && !park_message(engine, peer, message, true))
        return false;
    receive = pge_queue_take(&engine->receives, place);
    if (is_like)
        post_receive_for(engine, receive, peer);
    else
        finish_unlike(engine, receive, peer, message->count);
    return true;
}

// All of them that are there. Whether more may come.
static bool take_messages_of(struct pge_engine *engine, uint32_t peer, struct sw_coll_error *gone)
{
    struct sw_coll_message message;
    while (is_awaited_from(engine, peer)) {
        const enum sw_coll_status status = sw_coll_probe(engine->coll, peer, &message, gone);
        if (status == SW_COLL_AGAIN)
            return true;
        if (status || !match_message(engine, peer, &message))
            return false;
    }
    return true;
}

// All receives of which `is_meant` is true end so.
static void fail_receives(struct pge_engine *engine, const struct sw_coll_error *error,
                          bool (*is_meant)(const struct pge_operation *receive, uint64_t which),
                          uint64_t which)
{
    struct pge_operation **place = &engine->receives.first;
    while (*place)
        if (is_meant(*place, which))
            pge_finish(engine, pge_queue_take(&engine->receives, place), error);
        else
            place = &(*place)->next;
}

static bool is_from_rank(const struct pge_operation *receive, uint64_t rank)
{
    return receive->kind == PGE_RECV && receive->peer == rank;
}

static bool is_from_any(const struct pge_operation *receive, uint64_t ignored)
{
    (void)ignored;
    return receive->kind == PGE_RECV_ANY;
}

static bool is_any_receive(const struct pge_operation *receive, uint64_t ignored)
{
    (void)receive, (void)ignored;
    return true;
}

static void end_overdue(struct pge_engine *engine, uint64_t now_ns)
{
    struct pge_operation **place = &engine->receives.first;
    struct sw_coll_error error;
    while (*place) {
        char from[32] = "no rank";
        const struct pge_operation *receive = *place;
        if (now_ns < receive->deadline_ns) {
            place = &(*place)->next;
            continue;
        }
        if (receive->kind == PGE_RECV)
            snprintf(from, sizeof(from), "rank %u", receive->peer);
        pge_say(&error, SW_COLL_TIMEOUT,
                "%s%s a message with tag %" PRIu64 " to rank %u, and the deadline has passed", from,
                receive->kind == PGE_RECV ? " has not sent" : " has sent", receive->tag,
                engine->rank);
        pge_finish(engine, pge_queue_take(&engine->receives, place), &error);
    }
}

static uint64_t first_deadline(const struct pge_engine *engine)
{
    uint64_t first_ns = 0;
    const struct pge_operation *receive = engine->receives.first;
    for (; receive; receive = receive->next)
        if (!first_ns || receive->deadline_ns < first_ns)
            first_ns = receive->deadline_ns;
    return first_ns;
}

static void listen_to(struct pge_engine *engine, uint32_t peer, bool is_listening)
{
    if (engine->is_listened[peer] == is_listening)
        return;
    engine->is_listened[peer] = is_listening;
    engine->listened_count += is_listening ? 1 : -1;
    sw_coll_listen(engine->coll, peer, is_listening);
}

// Status and dumps are told what the program waits for, but for a receive that only is there.
static void tell_awaited(struct pge_engine *engine, uint32_t peer)
{
    const struct pge_operation *receive = engine->receives.first;
    while (receive &&
           (!may_come_from(receive, peer) || !__atomic_load_n(&receive->holders, __ATOMIC_SEQ_CST)))
        receive = receive->next;
    if (receive == engine->awaited[peer])
        return;
    if (!receive)
        sw_coll_await(engine->coll, peer, NULL);
    else
        sw_coll_await(engine->coll, peer,
                      &(struct sw_coll_message){
                          .tag = receive->tag, .count = receive->call.count, .type = SW_COLL_U8});
    engine->awaited_count += (uint32_t)(receive != NULL) - (engine->awaited[peer] != NULL);
    engine->awaited[peer] = receive;
}

uint64_t pge_messages_go(struct pge_engine *engine)
{
    struct sw_coll_error gone;
    uint32_t gone_count = 0;
    if (!engine->receives.first && !engine->listened_count && !engine->awaited_count)
        return 0;
    for (uint32_t peer = 0; peer < engine->size; peer++) {
        gone.status = SW_COLL_OK;
        const bool may_come = take_messages_of(engine, peer, &gone);
        const bool is_gone = !may_come && gone.status == SW_COLL_RANK_GONE &&
                             sw_coll_error(engine->coll, NULL) == SW_COLL_OK;
        if (is_gone) {
            gone_count++;
            fail_receives(engine, &gone, is_from_rank, peer);
        }
        listen_to(engine, peer, may_come && is_awaited_from(engine, peer));
    }
    if (gone_count && gone_count + 1 >= engine->size)
        fail_receives(engine, &gone, is_from_any, 0);
    if (engine->receives.first)
        end_overdue(engine, pge_now_ns());
    if (engine->awaited_count || __atomic_load_n(&engine->has_holds, __ATOMIC_SEQ_CST))
        for (uint32_t peer = 0; peer < engine->size; peer++)
            tell_awaited(engine, peer);
    return first_deadline(engine);
}

// ---- receives ----

void pge_message_begin(struct pge_engine *engine, struct pge_operation *operation)
{
    struct sw_coll_error error = {.status = SW_COLL_OK};
    if (operation->kind == PGE_RECV && operation->peer >= engine->size)
        pge_say(&error, SW_COLL_INVALID, "recv from rank %u of %u: there is none", operation->peer,
                engine->size);
    else if (operation->call.count && !operation->call.recv)
        pge_say(&error, SW_COLL_INVALID, "recv: the buffer is NULL");
    else if (engine->has_failed)
        pge_say(&error, SW_COLL_BROKEN, "an operation before has failed: %.200s",
                engine->failure.text);
    if (error.status) {
        pge_finish(engine, operation, &error);
        return;
    }
    if (!operation->deadline_ns)
        operation->deadline_ns = sw_coll_deadline_ms(engine->options.coll.timeout_ms);
    struct pge_parked *parked = find_parked(engine, operation);
    if (parked)
        claim_parked(engine, parked, operation);
    else
        pge_queue_append(&engine->receives, operation);
    if (!parked && __atomic_load_n(&operation->holders, __ATOMIC_SEQ_CST))
        __atomic_store_n(&engine->has_holds, 1, __ATOMIC_SEQ_CST);
}

void pge_messages_fail(struct pge_engine *engine, const struct sw_coll_error *error)
{
    fail_receives(engine, error, is_any_receive, 0);
}

void pge_messages_free(struct pge_engine *engine)
{
    while (engine->parked)
        free_parked(engine, engine->parked);
}
