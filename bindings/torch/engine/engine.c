// SPDX-License-Identifier: BSD-2-Clause
#include "engine.h"

#include <stdio.h>
#include <string.h>

static enum sw_coll_status engine_is_missing(struct sw_coll_error *error)
{
    if (error) {
        error->status = SW_COLL_NOT_SUPPORTED;
        snprintf(error->text, sizeof(error->text), "the engine is not there yet");
    }
    return SW_COLL_NOT_SUPPORTED;
}

void pge_options_init(struct pge_options *options)
{
    memset(options, 0, sizeof(*options));
    sw_coll_options_init(&options->coll);
    options->inline_bytes = 128 << 10;
    options->parked_bytes = 64 << 20;
}

enum sw_coll_status pge_open(const struct pge_options *options, struct sw_coll_error *error,
                             struct pge_engine **engine)
{
    (void)options;
    *engine = NULL;
    return engine_is_missing(error);
}

void pge_close(struct pge_engine *engine)
{
    (void)engine;
}

void pge_abort(struct pge_engine *engine, const char *text)
{
    (void)engine, (void)text;
}

enum sw_coll_status pge_shrink(struct pge_engine *engine, uint64_t deadline_ns,
                               struct sw_coll_error *error, struct pge_engine **shrunk)
{
    (void)engine, (void)deadline_ns;
    *shrunk = NULL;
    return engine_is_missing(error);
}

uint32_t pge_rank(const struct pge_engine *engine)
{
    (void)engine;
    return 0;
}

uint32_t pge_size(const struct pge_engine *engine)
{
    (void)engine;
    return 1;
}

uint32_t pge_gone(struct pge_engine *engine, bool *is_gone)
{
    (void)engine, (void)is_gone;
    return 0;
}

enum sw_coll_status pge_error(struct pge_engine *engine, struct sw_coll_error *error)
{
    (void)engine;
    return engine_is_missing(error);
}

uint64_t pge_sequence(struct pge_engine *engine)
{
    (void)engine;
    return 0;
}

void pge_sequence_set(struct pge_engine *engine, uint64_t number)
{
    (void)engine, (void)number;
}

void pge_submit(struct pge_engine *engine, struct pge_operation **operations, uint32_t count)
{
    (void)engine;
    for (uint32_t i = 0; i < count; i++) {
        struct pge_operation *operation = operations[i];
        engine_is_missing(&operation->error);
        if (operation->done)
            operation->done(operation);
        __atomic_store_n(&operation->is_over, 1, __ATOMIC_RELEASE);
        if (operation->release)
            operation->release(operation);
    }
}

enum sw_coll_status pge_wait(struct pge_engine *engine, struct pge_operation *operation,
                             uint64_t deadline_ns, struct sw_coll_error *error)
{
    (void)engine, (void)deadline_ns;
    if (error)
        *error = operation->error;
    return operation->error.status;
}

bool pge_test(struct pge_engine *engine, struct pge_operation *operation)
{
    (void)engine;
    return pge_is_over(operation);
}

void pge_urge(struct pge_engine *engine)
{
    (void)engine;
}

bool pge_later(struct pge_engine *engine, void (*run)(void *context), void *context)
{
    (void)engine, (void)run, (void)context;
    return false;
}
