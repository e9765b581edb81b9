/* SPDX-License-Identifier: BSD-2-Clause */
/* A wait for any of several requests, for messages that no request is for, and for a wake. */
#include "collectives/comm/failure.h"
#include "collectives/comm/transfer.h"
#include "collectives/comm/wait.h"

/* The first of them that has ended. Mostly none of any has, which the list tells. */
static bool find_ended(const struct sw_coll *coll, struct sw_coll_request *const *requests,
                       uint32_t count, uint32_t *which)
{
    for (uint32_t i = 0; i < count && !list_is_empty(&coll->ended_requests); i++)
        if (requests[i]->status != SW_COLL_AGAIN) {
            *which = i;
            return true;
        }
    return false;
}

enum sw_coll_status sw_coll_wait_any(struct sw_coll *coll, struct sw_coll_request *const *requests,
                                     uint32_t count, uint64_t deadline_ns, uint32_t *which,
                                     struct sw_coll_error *error)
{
    struct coll_waiting waiting = {.until_ns = deadline_ns, .is_wakeable = true};
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    for (;;) {
        coll_go_on(coll);
        if (find_ended(coll, requests, count, which))
            return SW_COLL_OK;
        if (coll_wake_take(&coll->wake) || coll_transfers_have_news(coll))
            return SW_COLL_AGAIN;
        if (coll->failure.is_done)
            return coll_say(error, SW_COLL_BROKEN, "%s", coll->failure.error.text);
        if (deadline_ns && waiting.now_ns >= deadline_ns)
            return coll_say(error, SW_COLL_TIMEOUT, "none of %u requests has ended in time", count);
        coll_wait_turn(coll, &waiting);
    }
}

void sw_coll_wake(struct sw_coll *coll)
{
    if (!mover_is_forked(&coll->guard))
        coll_wake_want(&coll->wake);
}
