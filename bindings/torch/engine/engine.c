// SPDX-License-Identifier: BSD-2-Clause
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { EXIT_PATIENCE_MS = 2000 };

enum sw_coll_status pge_say(struct sw_coll_error *error, enum sw_coll_status status,
                            const char *format, ...)
{
    va_list args;
    if (!error)
        return status;
    error->status = status;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

bool pge_enter(struct pge_engine *engine, struct sw_coll_error *error)
{
    if (pge_is_forked(engine)) {
        pge_say(error, SW_COLL_FORKED, "the process group belongs to the parent of this process");
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_closing) {
        engine->calls++;
        return true;
    }
    pthread_mutex_unlock(&engine->lock);
    pge_say(error, SW_COLL_REVOKED, "the process group was closed");
    return false;
}

void pge_leave(struct pge_engine *engine)
{
    engine->calls--;
    if (engine->is_closing)
        pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

// ---- open ----

void pge_options_init(struct pge_options *options)
{
    memset(options, 0, sizeof(*options));
    sw_coll_options_init(&options->coll);
    options->inline_bytes = 128 << 10;
    options->parked_bytes = 64 << 20;
}

static void free_engine(struct pge_engine *engine)
{
    pge_later_close(engine->later);
    pge_messages_free(engine);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    free(engine->active);
    free(engine->requests);
    free(engine->is_listened);
    free(engine->awaited);
    free(engine->gone);
    free(engine);
}

static void init_locks(struct pge_engine *engine)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->changed, &attr);
    pthread_cond_init(&engine->work, &attr);
    pthread_condattr_destroy(&attr);
}

// The communicator is open, and the engine's then.
static enum sw_coll_status make_engine(const struct pge_options *options, struct sw_coll *coll,
                                       struct sw_coll_error *error, struct pge_engine **out)
{
    struct pge_engine *engine = calloc(1, sizeof(*engine));
    if (!engine) {
        sw_coll_close(coll);
        return pge_say(error, SW_COLL_NO_MEMORY, "out of memory");
    }
    engine->options = *options;
    engine->coll = coll;
    engine->rank = sw_coll_rank(coll);
    engine->size = sw_coll_size(coll);
    init_locks(engine);
    pge_queue_init(&engine->submitted);
    pge_queue_init(&engine->receives);
    engine->parked_last = &engine->parked;
    engine->is_listened = calloc(engine->size, sizeof(bool));
    engine->awaited = calloc(engine->size, sizeof(struct pge_operation *));
    engine->gone = calloc(engine->size, sizeof(bool));
    engine->later = pge_later_open();
    pge_process_add(engine);
    if (!engine->is_listened || !engine->awaited || !engine->gone || !engine->later ||
        !pge_start_thread(&engine->thread, pge_thread_main, engine)) {
        pge_process_remove(engine);
        sw_coll_close(coll);
        free_engine(engine);
        return pge_say(error, SW_COLL_NO_MEMORY, "no memory, or no thread, for a process group");
    }
    *out = engine;
    return SW_COLL_OK;
}

enum sw_coll_status pge_open(const struct pge_options *options, struct sw_coll_error *error,
                             struct pge_engine **engine)
{
    struct sw_coll *coll;
    *engine = NULL;
    const enum sw_coll_status status = sw_coll_open(&options->coll, error, &coll);
    return status ? status : make_engine(options, coll, error, engine);
}

// ---- close ----

// Nothing touches their buffers any more.
static void end_operations(struct pge_engine *engine)
{
    struct sw_coll_error error;
    struct pge_operation *operation = engine->submitted.first, *next;
    pge_say(&error, SW_COLL_REVOKED, "the process group was closed");
    while (engine->active_count)
        if (engine->active[--engine->active_count].operation)
            pge_finish(engine, engine->active[engine->active_count].operation, &error);
        else
            pge_message_come(engine, engine->active[engine->active_count].parked, &error);
    pge_messages_fail(engine, &error);
    for (; operation; operation = next) {
        next = operation->next;
        pge_finish(engine, operation, &error);
    }
}

static void *close_apart(void *engine)
{
    pge_close(engine);
    return NULL;
}

void pge_close(struct pge_engine *engine)
{
    if (!engine || pge_is_forked(engine))
        return;
    if (pge_is_telling(engine)) {
        pthread_t thread;
        if (pge_start_thread(&thread, close_apart, engine))
            pthread_detach(thread);
        return;
    }
    pge_process_remove(engine);
    pthread_mutex_lock(&engine->lock);
    if (engine->is_closing) { /* abandoned: the process exits */
        pthread_mutex_unlock(&engine->lock);
        return;
    }
    engine->is_closing = true;
    pge_drive_await(engine); /* for good */
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->thread, NULL);
    sw_coll_close(engine->coll);
    end_operations(engine);
    pthread_mutex_lock(&engine->lock);
    while (engine->calls)
        pge_sleep(engine, &engine->changed, 0);
    pthread_mutex_unlock(&engine->lock);
    free_engine(engine);
}

// Threads may hang at an operation's end, as an interpreter that has ended gives nobody its lock.
void pge_abandon(struct pge_engine *engine)
{
    const uint64_t until_ns = sw_coll_deadline_ms(EXIT_PATIENCE_MS);
    bool is_early = true, is_mine;
    pthread_mutex_lock(&engine->lock);
    engine->is_closing = true;
    __atomic_add_fetch(&engine->exclusive, 1, __ATOMIC_RELAXED);
    while (!(is_mine = pge_drive_take(engine)) && is_early) {
        if (!pge_drive_watch(engine))
            continue;
        sw_coll_wake(engine->coll);
        is_early = pge_sleep(engine, &engine->changed, until_ns);
    }
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    if (!is_mine)
        return; /* the end of the process ends the connections */
    pthread_join(engine->thread, NULL);
    sw_coll_close(engine->coll);
}

// ---- after a failure ----

void pge_abort(struct pge_engine *engine, const char *text)
{
    struct sw_coll_error error;
    if (!pge_enter(engine, &error))
        return;
    if (!engine->is_aborted)
        snprintf(engine->abort_text, sizeof(engine->abort_text), "%s", text ? text : "");
    engine->is_aborted = true;
    pge_begin(engine);
    pge_call_thread(engine); /* ranks agree that it has ended */
    pge_leave(engine);
}

enum sw_coll_status pge_shrink(struct pge_engine *engine, uint64_t deadline_ns,
                               struct sw_coll_error *error, struct pge_engine **shrunk)
{
    struct sw_coll_error closed;
    struct sw_coll *rest;
    *shrunk = NULL;
    if (!pge_enter(engine, &closed))
        return pge_say(error, closed.status, "%s", closed.text);
    pge_drive_await(engine);
    pthread_mutex_unlock(&engine->lock);
    const enum sw_coll_status status = sw_coll_shrink(engine->coll, deadline_ns, error, &rest);
    if (sw_coll_error(engine->coll, NULL))
        pge_drive_out(engine);
    pthread_mutex_lock(&engine->lock);
    pge_drive_end(engine);
    pge_leave(engine);
    return status ? status : make_engine(&engine->options, rest, error, shrunk);
}

enum sw_coll_status pge_error(struct pge_engine *engine, struct sw_coll_error *error)
{
    struct sw_coll_error closed, found = {.status = SW_COLL_OK};
    if (!pge_enter(engine, &closed))
        return pge_say(error, closed.status, "%s", closed.text);
    if (pge_drive_begin(engine)) {
        pthread_mutex_unlock(&engine->lock);
        pge_look_for_death(engine, &found);
        pthread_mutex_lock(&engine->lock);
        pge_drive_end(engine);
    } else {
        found = engine->failure;
    }
    if (!found.status && __atomic_load_n(&engine->is_agreeing, __ATOMIC_RELAXED))
        found.status = SW_COLL_AGAIN;
    pge_leave(engine);
    if (error && found.status)
        *error = found;
    return found.status;
}

// ---- what it is ----

uint32_t pge_rank(const struct pge_engine *engine)
{
    return engine->rank;
}

uint32_t pge_size(const struct pge_engine *engine)
{
    return engine->size;
}

uint32_t pge_gone(struct pge_engine *engine, bool *is_gone)
{
    struct sw_coll_error closed;
    uint32_t count = 0;
    memset(is_gone, 0, engine->size * sizeof(bool));
    if (!pge_enter(engine, &closed))
        return 0;
    if (pge_drive_begin(engine)) {
        sw_coll_gone(engine->coll, engine->gone);
        pge_drive_end(engine);
    }
    for (uint32_t rank = 0; rank < engine->size; rank++)
        count += is_gone[rank] = engine->gone[rank];
    pge_leave(engine);
    return count;
}

uint64_t pge_sequence(struct pge_engine *engine)
{
    struct sw_coll_error closed;
    uint64_t number = 0;
    if (pge_enter(engine, &closed)) {
        number = __atomic_load_n(&engine->sequence, __ATOMIC_RELAXED);
        pge_leave(engine);
    }
    return number;
}

void pge_sequence_set(struct pge_engine *engine, uint64_t number)
{
    struct sw_coll_error closed;
    if (pge_enter(engine, &closed)) {
        __atomic_store_n(&engine->sequence, number, __ATOMIC_RELAXED);
        pge_leave(engine);
    }
}
