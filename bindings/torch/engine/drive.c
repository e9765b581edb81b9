// SPDX-License-Identifier: BSD-2-Clause
// Whoever waits drives. The engine's own thread drives what nobody waits for: at once if it was
// called, as for a large operation, else when nothing has moved between two of its naps. It naps
// while there was something to do lately, because to call it takes longer than a small operation;
// the naps grow while they find nothing that was left to it.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

enum {
    NAP_US = 250,
    NAP_MAX_US = 4000,
    NAPS = 20,           /* without anything to do, before it sleeps until it is called */
    LOOK_EVERY_MS = 250, /* for deaths, on which ranks agree only if all look */
    ROOM = 16,
};

uint64_t pge_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool pge_sleep(struct pge_engine *engine, pthread_cond_t *condition, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                                   .tv_nsec = (long)(deadline_ns % 1000000000)};
    return deadline_ns ? !pthread_cond_timedwait(condition, &engine->lock, &until)
                       : !pthread_cond_wait(condition, &engine->lock);
}

// ---- who drives ----

bool pge_drive_take(struct pge_engine *engine)
{
    return !(__atomic_fetch_or(&engine->turn, PGE_DRIVEN, __ATOMIC_SEQ_CST) & PGE_DRIVEN);
}

bool pge_drive_begin(struct pge_engine *engine)
{
    return !__atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED) && pge_drive_take(engine);
}

bool pge_drive_watch(struct pge_engine *engine)
{
    return __atomic_fetch_or(&engine->turn, PGE_WANTED, __ATOMIC_SEQ_CST) & PGE_DRIVEN;
}

static void count_turn(struct pge_engine *engine)
{
    const uint64_t turns = __atomic_load_n(&engine->turns, __ATOMIC_RELAXED);
    __atomic_store_n(&engine->turns, turns + 1, __ATOMIC_RELAXED);
}

void pge_drive_end(struct pge_engine *engine)
{
    count_turn(engine);
    __atomic_store_n(&engine->turn, engine->is_deep ? PGE_WANTED : 0, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED) ||
        __atomic_load_n(&engine->waiters, __ATOMIC_SEQ_CST))
        pthread_cond_broadcast(&engine->changed);
    if (engine->is_deep && __atomic_load_n(&engine->pending, __ATOMIC_RELAXED))
        pthread_cond_signal(&engine->work);
}

void pge_drive_await(struct pge_engine *engine)
{
    __atomic_add_fetch(&engine->exclusive, 1, __ATOMIC_RELAXED);
    while (!pge_drive_take(engine)) {
        if (!pge_drive_watch(engine))
            continue;
        sw_coll_wake(engine->coll);
        pge_sleep(engine, &engine->changed, 0);
    }
    __atomic_sub_fetch(&engine->exclusive, 1, __ATOMIC_RELAXED);
}

void pge_turn_leave(struct pge_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->calls++;
    while (__atomic_load_n(&engine->has_submitted, __ATOMIC_RELAXED) &&
           !__atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED)) {
        pthread_mutex_unlock(&engine->lock);
        pge_drive_shortly(engine, NULL);
        pthread_mutex_lock(&engine->lock);
    }
    pge_drive_end(engine);
}

bool pge_turn_end(struct pge_engine *engine)
{
    uint32_t driven = PGE_DRIVEN;
    count_turn(engine);
    return __atomic_compare_exchange_n(&engine->turn, &driven, 0, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}

// ---- what ends ----

static _Thread_local const struct pge_engine *telling; /* whose program is told of an end */

bool pge_is_telling(const struct pge_engine *engine)
{
    return telling == engine;
}

void pge_finish(struct pge_engine *engine, struct pge_operation *operation,
                const struct sw_coll_error *error)
{
    void (*release)(struct pge_operation *) = operation->release;
    const struct pge_engine *outer = telling;
    telling = engine;
    if (error && error->status) {
        operation->error = *error;
    } else {
        operation->error.status = SW_COLL_OK;
        operation->error.text[0] = '\0';
    }
    if (operation->done)
        operation->done(operation);
    __atomic_store_n(&operation->is_over, 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&engine->pending, 1, __ATOMIC_RELAXED);
    /* A waiter counts itself before it looks whether the operation is over. */
    if (__atomic_load_n(&engine->waiters, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&engine->lock);
        pthread_cond_broadcast(&engine->changed);
        pthread_mutex_unlock(&engine->lock);
    }
    if (release)
        release(operation);
    telling = outer;
}

// A text that this rank has given the end says more than that there was one.
static void add_abort_text(struct pge_engine *engine, struct sw_coll_error *error)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->is_aborted && engine->abort_text[0] &&
        (error->status == SW_COLL_REVOKED || error->status == SW_COLL_BROKEN)) {
        error->status = SW_COLL_REVOKED;
        memcpy(error->text, engine->abort_text, sizeof(error->text));
    }
    pthread_mutex_unlock(&engine->lock);
}

bool pge_has_room(struct pge_engine *engine)
{
    if (engine->active_count < engine->active_room)
        return true;
    const uint32_t room = engine->active_room ? 2 * engine->active_room : ROOM;
    void *active = realloc(engine->active, room * sizeof(*engine->active));
    engine->active = active ? active : engine->active;
    void *requests = realloc(engine->requests, room * sizeof(struct sw_coll_request *));
    engine->requests = requests ? requests : engine->requests;
    if (!active || !requests)
        return false;
    engine->active_room = room;
    return true;
}

void pge_add_active(struct pge_engine *engine, struct pge_active active,
                    struct sw_coll_request *request)
{
    if (active.operation && __atomic_load_n(&active.operation->holders, __ATOMIC_SEQ_CST))
        __atomic_store_n(&engine->has_holds, 1, __ATOMIC_SEQ_CST);
    engine->active[engine->active_count] = active;
    engine->requests[engine->active_count++] = request;
}

static void end_active(struct pge_engine *engine, uint32_t which)
{
    struct sw_coll_error error; /* whose text is long: it is written where there is one */
    const struct pge_active ended = engine->active[which];
    error.status = sw_coll_test(engine->requests[which], &error);
    const uint32_t behind = --engine->active_count - which;
    if (behind) {
        memmove(&engine->active[which], &engine->active[which + 1], behind * sizeof(ended));
        memmove(&engine->requests[which], &engine->requests[which + 1],
                behind * sizeof(struct sw_coll_request *));
    }
    if (error.status)
        add_abort_text(engine, &error);
    if (ended.operation)
        pge_finish(engine, ended.operation, &error);
    else
        pge_message_come(engine, ended.parked, &error);
}

// Nothing goes on any more: receives that no message was found for end, too.
static void note_failure(struct pge_engine *engine, const struct sw_coll_error *broken)
{
    struct sw_coll_error error = {.status = SW_COLL_OK};
    if (sw_coll_error(engine->coll, &error) <= SW_COLL_AGAIN)
        error = *broken;
    pthread_mutex_lock(&engine->lock);
    engine->failure = error;
    sw_coll_gone(engine->coll, engine->gone);
    pthread_mutex_unlock(&engine->lock);
    engine->has_failed = true;
    __atomic_store_n(&engine->is_agreeing, 0, __ATOMIC_RELAXED);
    add_abort_text(engine, &error);
    pge_messages_fail(engine, &error);
}

// ---- a turn ----

static void begin_operation(struct pge_engine *engine, struct pge_operation *operation)
{
    struct sw_coll_error error;
    struct sw_coll_request *request;
    error.status = SW_COLL_OK;
    if (operation->kind == PGE_RECV || operation->kind == PGE_RECV_ANY) {
        pge_message_begin(engine, operation);
        return;
    }
    const struct sw_coll_call *call = &operation->call;
    if (!pge_has_room(engine))
        pge_say(&error, SW_COLL_NO_MEMORY, "out of memory");
    else if (operation->kind == PGE_SEND)
        sw_coll_send_tag_post(engine->coll, operation->peer, operation->tag, call->send,
                              call->count, SW_COLL_U8, operation->deadline_ns, &error, &request);
    else
        sw_coll_post(engine->coll, call, operation->deadline_ns, &error, &request);
    if (!error.status) {
        pge_add_active(engine, (struct pge_active){.operation = operation}, request);
        return;
    }
    add_abort_text(engine, &error);
    pge_finish(engine, operation, &error);
}

static void begin_submitted(struct pge_engine *engine)
{
    if (!__atomic_load_n(&engine->has_submitted, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&engine->lock);
    struct pge_operation *operation = engine->submitted.first, *next;
    pge_queue_init(&engine->submitted);
    __atomic_store_n(&engine->has_submitted, 0, __ATOMIC_RELAXED);
    const bool is_aborted = engine->is_aborted;
    pthread_mutex_unlock(&engine->lock);
    if (is_aborted && !engine->is_revoked) {
        engine->is_revoked = true;
        sw_coll_revoke(engine->coll);
        __atomic_store_n(&engine->is_agreeing, 1, __ATOMIC_RELAXED);
    }
    for (; operation; operation = next) {
        next = operation->next;
        begin_operation(engine, operation);
    }
}

// A parked message has no holder: its receive was not posted when it came.
static void tell_holds(struct pge_engine *engine)
{
    if (!__atomic_load_n(&engine->has_holds, __ATOMIC_SEQ_CST))
        return;
    __atomic_store_n(&engine->has_holds, 0, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < engine->active_count; i++) {
        struct pge_active *active = &engine->active[i];
        const bool is_held =
            active->operation && __atomic_load_n(&active->operation->holders, __ATOMIC_SEQ_CST);
        if (is_held != active->is_held)
            sw_coll_hold(engine->requests[i], is_held);
        active->is_held = is_held;
    }
}

void pge_drive_shortly(struct pge_engine *engine, struct pge_operation *operation)
{
    do {
        begin_submitted(engine);
        if (operation)
            begin_operation(engine, operation);
        operation = NULL;
        pge_messages_go(engine);
    } while (__atomic_load_n(&engine->has_submitted, __ATOMIC_RELAXED));
}

static bool may_stop_driving(struct pge_engine *engine, const struct pge_operation *until)
{
    if (__atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED))
        return true;
    return until ? pge_is_over(until)
                 : !__atomic_load_n(&engine->pending, __ATOMIC_RELAXED) &&
                       !__atomic_load_n(&engine->is_agreeing, __ATOMIC_RELAXED);
}

void pge_drive(struct pge_engine *engine, const struct pge_operation *until, uint64_t deadline_ns)
{
    struct sw_coll_error error;
    for (;;) {
        uint32_t which;
        begin_submitted(engine);
        uint64_t sleep_until_ns = pge_messages_go(engine);
        tell_holds(engine);
        if (may_stop_driving(engine, until))
            return;
        if (!sleep_until_ns || (deadline_ns && deadline_ns < sleep_until_ns))
            sleep_until_ns = deadline_ns;
        const enum sw_coll_status status = sw_coll_wait_any(
            engine->coll, engine->requests, engine->active_count, sleep_until_ns, &which, &error);
        if (status == SW_COLL_OK)
            end_active(engine, which);
        else if (status != SW_COLL_AGAIN && status != SW_COLL_TIMEOUT)
            note_failure(engine, &error);
        if (until && pge_is_over(until))
            return;
        if (deadline_ns && pge_now_ns() >= deadline_ns)
            return;
    }
}

void pge_drive_out(struct pge_engine *engine)
{
    struct sw_coll_error error;
    enum sw_coll_status status;
    uint32_t which;
    begin_submitted(engine);
    do {
        pge_messages_go(engine); /* a peer that has closed is news until nobody listens to it */
        status = sw_coll_wait_any(engine->coll, engine->requests, engine->active_count, 0, &which,
                                  &error);
        if (status == SW_COLL_OK)
            end_active(engine, which);
    } while (status <= SW_COLL_AGAIN);
    note_failure(engine, &error);
}

// ---- the engine's thread ----

// A rank that makes no call keeps the others from agreeing on who is gone.
enum sw_coll_status pge_look_for_death(struct pge_engine *engine, struct sw_coll_error *error)
{
    const enum sw_coll_status status = sw_coll_error(engine->coll, error);
    if (status == SW_COLL_AGAIN)
        __atomic_store_n(&engine->is_agreeing, 1, __ATOMIC_RELAXED);
    if (status > SW_COLL_AGAIN)
        add_abort_text(engine, error);
    return error->status = status;
}

struct napping {
    uint64_t turns; /* at the last nap */
    uint64_t nap_us, looked_ns;
    uint32_t calm;
};

// With the lock, and nothing to drive. It sleeps.
static void take_nap(struct pge_engine *engine, struct napping *napping)
{
    const uint64_t now_ns = pge_now_ns();
    uint64_t until_ns = now_ns + napping->nap_us * 1000;
    const uint64_t turns = __atomic_load_n(&engine->turns, __ATOMIC_RELAXED);
    napping->calm = turns == napping->turns ? napping->calm + 1 : 0;
    napping->turns = turns;
    if (napping->nap_us < NAP_MAX_US)
        napping->nap_us *= 2;
    /* A turn that ended without the lock may have left something. */
    engine->is_deep =
        napping->calm >= NAPS &&
        (pge_drive_watch(engine) || !__atomic_load_n(&engine->pending, __ATOMIC_SEQ_CST));
    if (engine->is_deep)
        until_ns = now_ns + LOOK_EVERY_MS * 1000000ull;
    pge_sleep(engine, &engine->work, until_ns);
    engine->is_deep = false;
}

// With the lock: whether it is for this thread to drive.
static bool is_left_to_engine(const struct pge_engine *engine, const struct napping *napping)
{
    return engine->is_urged ||
           __atomic_load_n(&engine->turns, __ATOMIC_RELAXED) == napping->turns ||
           __atomic_load_n(&engine->is_agreeing, __ATOMIC_RELAXED);
}

void *pge_thread_main(void *arg)
{
    struct pge_engine *engine = arg;
    struct sw_coll_error error;
    struct napping napping = {.nap_us = NAP_US, .looked_ns = pge_now_ns()};
    pthread_mutex_lock(&engine->lock);
    while (!engine->is_closing) {
        const bool has_work = __atomic_load_n(&engine->pending, __ATOMIC_RELAXED) ||
                              __atomic_load_n(&engine->is_agreeing, __ATOMIC_RELAXED);
        engine->is_urged = engine->is_urged && has_work;
        const bool is_due = has_work
                                ? is_left_to_engine(engine, &napping)
                                : pge_now_ns() - napping.looked_ns >= LOOK_EVERY_MS * 1000000ull;
        if (!is_due || !pge_drive_begin(engine)) {
            take_nap(engine, &napping);
            continue;
        }
        engine->is_urged = false;
        pthread_mutex_unlock(&engine->lock);
        if (has_work) {
            pge_drive(engine, NULL, 0);
            napping.nap_us = NAP_US;
            napping.calm = 0;
        } else {
            pge_look_for_death(engine, &error);
        }
        napping.looked_ns = pge_now_ns();
        pthread_mutex_lock(&engine->lock);
        if (!has_work) /* it was nothing */
            __atomic_sub_fetch(&engine->turns, 1, __ATOMIC_RELAXED);
        pge_drive_end(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
