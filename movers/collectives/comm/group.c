/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that wait, and groups: in a group they only post, and its end waits for them all. */
#include "collectives/comm/failure.h"
#include "collectives/comm/request.h"
#include "collectives/comm/wait.h"

static enum sw_coll_status wait_or_group(struct sw_coll *coll, struct sw_coll_request *request,
                                         struct sw_coll_error *error)
{
    if (!coll->group_depth)
        return sw_coll_wait(request, error);
    list_append(&coll->grouped, &request->group_node);
    return SW_COLL_OK;
}

enum sw_coll_status sw_coll_run(struct sw_coll *coll, const struct sw_coll_call *call,
                                uint64_t deadline_ns, struct sw_coll_error *error)
{
    struct sw_coll_request *request = NULL;
    const enum sw_coll_status status = coll_request_post(coll, call, deadline_ns, error, &request);
    return status ? status : wait_or_group(coll, request, error);
}

enum sw_coll_status sw_coll_send(struct sw_coll *coll, uint32_t peer, const void *data,
                                 uint64_t count, enum sw_coll_type type, uint64_t deadline_ns,
                                 struct sw_coll_error *error)
{
    struct sw_coll_request *request = NULL;
    const enum sw_coll_status status =
        sw_coll_send_post(coll, peer, data, count, type, deadline_ns, error, &request);
    return status ? status : wait_or_group(coll, request, error);
}

enum sw_coll_status sw_coll_recv(struct sw_coll *coll, uint32_t peer, void *data, uint64_t count,
                                 enum sw_coll_type type, uint64_t deadline_ns,
                                 struct sw_coll_error *error)
{
    struct sw_coll_request *request = NULL;
    const enum sw_coll_status status =
        sw_coll_recv_post(coll, peer, data, count, type, deadline_ns, error, &request);
    return status ? status : wait_or_group(coll, request, error);
}

void sw_coll_group_begin(struct sw_coll *coll)
{
    coll->group_depth++;
}

enum sw_coll_status sw_coll_group_end(struct sw_coll *coll, struct sw_coll_error *error)
{
    enum sw_coll_status first = SW_COLL_OK;
    struct list_node *at;
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    if (!coll->group_depth)
        return coll_say(error, SW_COLL_INVALID, "a group ends that has not begun");
    if (--coll->group_depth)
        return SW_COLL_OK;
    coll_go_on(coll);
    while ((at = list_first(&coll->grouped))) {
        struct sw_coll_request *request = LIST_MEMBER(at, struct sw_coll_request, group_node);
        list_remove(at);
        const enum sw_coll_status status = sw_coll_wait(request, first ? NULL : error);
        first = first ? first : status;
    }
    return first;
}
