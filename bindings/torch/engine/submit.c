// SPDX-License-Identifier: BSD-2-Clause
// What programs do with operations: a thread that submits a small one begins it itself, if nobody
// drives, and a thread that waits drives.
#include <string.h>

#include "inside.h"

static uint64_t operation_bytes(const struct pge_engine *engine,
                                const struct pge_operation *operation)
{
    const struct sw_coll_call *call = &operation->call;
    uint64_t elements = call->count, bytes;
    if (operation->kind != PGE_COLLECTIVE)
        return call->count;
    for (uint32_t rank = 0; call->counts && rank < engine->size; rank++)
        elements += call->counts[rank];
    if (call->kind != SW_COLL_ALL_REDUCE && call->kind != SW_COLL_BROADCAST)
        elements *= engine->size;
    return __builtin_mul_overflow(elements, sw_coll_type_bytes(call->type), &bytes) ? UINT64_MAX
                                                                                    : bytes;
}

// It never was one of the engine's.
static void refuse_operation(struct pge_operation *operation, const struct sw_coll_error *error)
{
    void (*release)(struct pge_operation *) = operation->release;
    operation->error = *error;
    if (operation->done)
        operation->done(operation);
    __atomic_store_n(&operation->is_over, 1, __ATOMIC_SEQ_CST);
    if (release)
        release(operation);
}

static void prepare_operation(struct pge_engine *engine, struct pge_operation *operation)
{
    operation->error.status = SW_COLL_AGAIN;
    operation->error.text[0] = '\0';
    operation->source = operation->peer;
    __atomic_store_n(&operation->is_over, 0, __ATOMIC_RELAXED);
    if (operation->kind == PGE_COLLECTIVE)
        __atomic_add_fetch(&engine->sequence, 1, __ATOMIC_RELAXED);
}

// With the lock. Whether all are small.
static bool append_operations(struct pge_engine *engine, struct pge_operation **operations,
                              uint32_t count)
{
    uint64_t bytes = 0, more;
    for (uint32_t i = 0; i < count; i++) {
        struct pge_operation *operation = operations[i];
        prepare_operation(engine, operation);
        more = operation_bytes(engine, operation);
        bytes = bytes + more < bytes ? UINT64_MAX : bytes + more;
        pge_queue_append(&engine->submitted, operation);
    }
    __atomic_add_fetch(&engine->pending, count, __ATOMIC_RELAXED);
    __atomic_store_n(&engine->has_submitted, 1, __ATOMIC_RELAXED);
    return bytes <= engine->options.inline_bytes;
}

void pge_call_thread(struct pge_engine *engine)
{
    engine->is_urged = true;
    pthread_cond_signal(&engine->work);
}

// An operation that comes while another thread is about to stop driving is begun before that one
// leaves.
void pge_begin(struct pge_engine *engine)
{
    __atomic_store_n(&engine->has_submitted, 1, __ATOMIC_RELAXED);
    while (!pge_drive_begin(engine)) {
        const bool is_exclusive = __atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED);
        if (pge_drive_watch(engine) || is_exclusive) {
            sw_coll_wake(engine->coll);
            return;
        }
    }
    do {
        pthread_mutex_unlock(&engine->lock);
        pge_drive_shortly(engine, NULL);
        pthread_mutex_lock(&engine->lock);
    } while (__atomic_load_n(&engine->has_submitted, __ATOMIC_RELAXED));
    pge_drive_end(engine);
}

// A small operation that comes alone, while nobody drives, needs no lock.
static bool submit_alone(struct pge_engine *engine, struct pge_operation *operation)
{
    if (pge_is_forked(engine) ||
        operation_bytes(engine, operation) > engine->options.inline_bytes ||
        !pge_turn_begin(engine))
        return false;
    prepare_operation(engine, operation);
    __atomic_add_fetch(&engine->pending, 1, __ATOMIC_SEQ_CST);
    pge_drive_shortly(engine, operation);
    if (!pge_turn_end(engine)) {
        pge_turn_leave(engine);
        pge_leave(engine);
    }
    return true;
}

void pge_submit(struct pge_engine *engine, struct pge_operation **operations, uint32_t count)
{
    struct sw_coll_error error;
    if (!count || (count == 1 && submit_alone(engine, operations[0])))
        return;
    if (!pge_enter(engine, &error)) {
        for (uint32_t i = 0; i < count; i++)
            refuse_operation(operations[i], &error);
        return;
    }
    if (append_operations(engine, operations, count) ||
        __atomic_load_n(&engine->turn, __ATOMIC_SEQ_CST) & PGE_DRIVEN)
        pge_begin(engine);
    else
        pge_call_thread(engine);
    pge_leave(engine);
}

// With the lock. False: the deadline has passed.
static bool wait_or_drive(struct pge_engine *engine, const struct pge_operation *operation,
                          uint64_t deadline_ns)
{
    bool is_early = true;
    if (pge_drive_begin(engine)) {
        do {
            pthread_mutex_unlock(&engine->lock);
            pge_drive(engine, operation, deadline_ns);
            pthread_mutex_lock(&engine->lock);
            is_early = !deadline_ns || pge_now_ns() < deadline_ns;
        } while (__atomic_load_n(&engine->has_submitted, __ATOMIC_RELAXED) &&
                 !__atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED) && is_early);
        pge_drive_end(engine);
        return is_early;
    }
    __atomic_add_fetch(&engine->waiters, 1, __ATOMIC_SEQ_CST);
    const bool is_driven =
        pge_drive_watch(engine) || __atomic_load_n(&engine->exclusive, __ATOMIC_RELAXED);
    if (is_driven && !__atomic_load_n(&operation->is_over, __ATOMIC_SEQ_CST))
        is_early = pge_sleep(engine, &engine->changed, deadline_ns);
    __atomic_sub_fetch(&engine->waiters, 1, __ATOMIC_SEQ_CST);
    return is_early;
}

// Where nobody drives it needs no lock. False: somebody does.
static bool wait_alone(struct pge_engine *engine, const struct pge_operation *operation,
                       uint64_t deadline_ns)
{
    bool is_early = true;
    if (pge_is_forked(engine) || !pge_turn_begin(engine))
        return false;
    pge_drive(engine, operation, deadline_ns);
    if (pge_is_over(operation) && pge_turn_end(engine))
        return true;
    pge_turn_leave(engine);
    while (!pge_is_over(operation) && is_early)
        is_early = (!deadline_ns || pge_now_ns() < deadline_ns) &&
                   wait_or_drive(engine, operation, deadline_ns);
    pge_leave(engine);
    return true;
}

enum sw_coll_status pge_wait(struct pge_engine *engine, struct pge_operation *operation,
                             uint64_t deadline_ns, struct sw_coll_error *error)
{
    struct sw_coll_error closed;
    if (!pge_is_over(operation) && !wait_alone(engine, operation, deadline_ns)) {
        bool is_early = true;
        if (!pge_enter(engine, &closed))
            return pge_say(error, closed.status, "%s", closed.text);
        while (!pge_is_over(operation) && is_early)
            is_early = wait_or_drive(engine, operation, deadline_ns);
        pge_leave(engine);
    }
    if (!pge_is_over(operation))
        return SW_COLL_AGAIN;
    if (error && operation->error.status)
        *error = operation->error;
    return operation->error.status;
}

// With the lock: looks once, if nobody drives.
static bool submit_look_once(struct pge_engine *engine, const struct pge_operation *operation)
{
    if (!pge_drive_begin(engine))
        return false;
    pthread_mutex_unlock(&engine->lock);
    pge_drive(engine, operation, 1); /* a deadline that has passed */
    pthread_mutex_lock(&engine->lock);
    pge_drive_end(engine);
    return true;
}

// A thread that begins to wait drives itself, unless another one does: that one has to be told.
void pge_hold(struct pge_engine *engine, struct pge_operation *operation, bool is_held)
{
    struct sw_coll_error error;
    const uint32_t before = is_held ? __atomic_fetch_add(&operation->holders, 1, __ATOMIC_SEQ_CST)
                                    : __atomic_fetch_sub(&operation->holders, 1, __ATOMIC_SEQ_CST);
    if (before != !is_held || pge_is_over(operation) || pge_is_forked(engine))
        return;
    __atomic_store_n(&engine->has_holds, 1, __ATOMIC_SEQ_CST);
    const bool is_driven = __atomic_load_n(&engine->turn, __ATOMIC_SEQ_CST) & PGE_DRIVEN;
    if ((is_held && !is_driven) || !pge_enter(engine, &error))
        return;
    if (is_held || !submit_look_once(engine, operation))
        sw_coll_wake(engine->coll);
    pge_leave(engine);
}

bool pge_test(struct pge_engine *engine, struct pge_operation *operation)
{
    struct sw_coll_error error;
    if (pge_is_over(operation) || !pge_enter(engine, &error))
        return pge_is_over(operation);
    submit_look_once(engine, operation);
    pge_leave(engine);
    return pge_is_over(operation);
}

void pge_urge(struct pge_engine *engine)
{
    struct sw_coll_error error;
    if (!pge_enter(engine, &error))
        return;
    if (__atomic_load_n(&engine->pending, __ATOMIC_RELAXED) &&
        !(__atomic_load_n(&engine->turn, __ATOMIC_SEQ_CST) & PGE_DRIVEN))
        pge_call_thread(engine);
    pge_leave(engine);
}

bool pge_later(struct pge_engine *engine, void (*run)(void *context), void *context)
{
    struct sw_coll_error error;
    if (!pge_enter(engine, &error))
        return false;
    const bool is_called = pge_later_call(engine->later, run, context);
    pge_leave(engine);
    return is_called;
}
