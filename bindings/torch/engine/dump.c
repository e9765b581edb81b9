// SPDX-License-Identifier: BSD-2-Clause
#include "inside.h"

enum sw_coll_status pge_dump(struct pge_engine *engine, const char *path,
                             struct sw_coll_error *error)
{
    struct sw_coll_error closed;
    if (!pge_enter(engine, &closed))
        return pge_say(error, closed.status, "%s", closed.text);
    pge_drive_await(engine);
    pthread_mutex_unlock(&engine->lock);
    pge_drive_shortly(engine, NULL); /* a large operation may wait for the engine's thread */
    const enum sw_coll_status status = sw_coll_dump(engine->coll, path, error);
    pthread_mutex_lock(&engine->lock);
    pge_drive_end(engine);
    pge_leave(engine);
    return status;
}

void pge_await_ranks(struct pge_engine *engine, const bool *is_awaited, uint64_t since_ns)
{
    struct sw_coll_error closed;
    if (!pge_enter(engine, &closed))
        return;
    pge_drive_await(engine);
    sw_coll_await_ranks(engine->coll, is_awaited, since_ns);
    pge_drive_end(engine);
    pge_leave(engine);
}
