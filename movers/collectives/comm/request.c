/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/agreement.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/late.h"
#include "collectives/comm/page.h"
#include "collectives/comm/recorder.h"
#include "collectives/comm/send.h"
#include "collectives/comm/wait.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

static struct sw_coll_request *request_of(struct list_node *node)
{
    return node ? LIST_MEMBER(node, struct sw_coll_request, node) : NULL;
}

/* ---- one operation ---- */

static void release_regions(struct sw_coll_request *request)
{
    struct coll_regions *regions = &request->coll->regions;
    if (request->recv)
        coll_region_put(regions, request->recv);
    if (request->send)
        coll_region_put(regions, request->send);
    request->recv = request->send = NULL;
}

void sw_coll_hold(struct sw_coll_request *request, bool is_held)
{
    uint32_t *held = &request->coll->held_count[request->is_transfer];
    if (request->is_held == is_held || request->status != SW_COLL_AGAIN)
        return;
    request->is_held = is_held;
    *held = is_held ? *held + 1 : *held - 1;
}

void coll_request_end(struct sw_coll_request *request, enum sw_coll_status status)
{
    struct sw_coll *coll = request->coll;
    release_regions(request);
    coll_recorder_end(coll, request, status);
    sw_coll_hold(request, false);
    request->status = status;
    list_remove(&request->node);
    list_append(&coll->ended_requests, &request->node);
    if (coll->current == request)
        coll->current = NULL;
    if (request->is_transfer && list_is_empty(&coll->transfers) && !coll->awaited_count)
        coll_page_rest(coll);
}

/* In place one registration is enough; so it is where a root broadcasts what it has in `recv`. */
static bool register_buffers(struct sw_coll_request *request)
{
    struct coll_regions *regions = &request->coll->regions;
    const struct coll_site *site = &request->coll->site;
    const struct sw_coll_call *call = &request->call;
    const struct coll_extents extents = coll_call_extents(call, site);
    const void *send = coll_call_send(call, site->rank);
    if (extents.recv_bytes &&
        !(request->recv = coll_region_get(regions, call->recv, extents.recv_bytes, true)))
        return false;
    if (coll_region_has(request->recv, (uintptr_t)send, extents.send_bytes)) {
        request->send = request->recv;
        request->send->users++;
        return true;
    }
    if (!extents.send_bytes)
        return true;
    request->send = coll_region_get(regions, send, extents.send_bytes, false);
    return request->send;
}

static struct coll_memory request_memory_of(const void *data, const struct coll_region *region)
{
    return region ? (struct coll_memory){(uintptr_t)data, region->mr->rkey}
                  : (struct coll_memory){0};
}

/* The places of its messages are free: the device has sent those of two operations before. */
static bool may_begin(struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank) &&
            !coll_send_is_ready(&coll->peers[rank], coll->number + 1)) {
            coll_send_poll(coll);
            return coll_send_is_ready(&coll->peers[rank], coll->number + 1);
        }
    return true;
}

static bool request_begin(struct sw_coll *coll, struct sw_coll_request *request)
{
    const struct sw_coll_call *call = &request->call;
    if (coll_failure_is_told(coll) || !may_begin(coll))
        return false;
    if (coll->site.size > 1 && coll_call_is_direct(call, &coll->site) &&
        !register_buffers(request)) {
        coll_fail_here(coll, SW_COLL_NO_MEMORY, "its buffers cannot be registered: %s",
                       strerror(errno));
        return false;
    }
    request->has_begun = true;
    coll->current = request;
    coll->number++;
    coll_page_begin(coll, call);
    coll_machine_begin(&coll->machine, call, coll->number,
                       request_memory_of(coll_call_send(call, coll->site.rank), request->send),
                       request_memory_of(call->recv, request->recv));
    return true;
}

/* What the machine has found. A rank that it cannot reach may have said why. */
static void take_verdict(struct sw_coll *coll, enum sw_coll_status status)
{
    if (status == SW_COLL_RANK_GONE) {
        coll_failure_look(coll);
        coll_agreement_begin(coll, 0);
    } else if (status == SW_COLL_MISMATCH) {
        coll_conclude(coll, COLL_JUDGE_ALL, status, NULL, coll->machine.error.text);
    } else {
        coll_fail(coll, status, "%s", coll->machine.error.text);
    }
}

/* True: it has ended well. */
static bool go_on_with(struct sw_coll *coll, struct sw_coll_request *request)
{
    if (!request->has_begun && !request_begin(coll, request))
        return false;
    if (!request->is_over) {
        const enum sw_coll_status status = coll_machine_go(&coll->machine);
        if (status == SW_COLL_AGAIN && !request->is_recorded)
            coll_recorder_wait(coll, request, 0);
        if (status > SW_COLL_AGAIN)
            take_verdict(coll, status);
        if (status)
            return false;
        request->is_over = true;
    }
    if (coll->deferred_count)
        return false;
    coll->ended = coll->number;
    coll_page_end(coll);
    coll_request_end(request, SW_COLL_OK);
    return true;
}

/* ---- all of them ---- */

void coll_requests_go(struct sw_coll *coll)
{
    struct sw_coll_request *first;
    while (!coll->failure.is_set && (first = request_of(list_first(&coll->posted))))
        if (!go_on_with(coll, first))
            return;
}

void coll_requests_fail(struct sw_coll *coll)
{
    struct sw_coll_request *first;
    while ((first = request_of(list_first(&coll->posted))) ||
           (first = request_of(list_first(&coll->transfers))))
        coll_request_end(first, coll->failure.error.status);
    while (coll_pairs_drop(&coll->pairs))
        continue;
}

static void release_all_of(struct list *list)
{
    struct list_node *at = list_first(list);
    for (; at; at = list_after(list, at))
        release_regions(request_of(at));
}

void coll_requests_release(struct sw_coll *coll)
{
    release_all_of(&coll->posted);
    release_all_of(&coll->transfers);
}

static void free_all(struct list *list)
{
    struct sw_coll_request *request;
    while ((request = request_of(list_first(list)))) {
        list_remove(&request->node);
        free(request->counts);
        free(request);
    }
}

void coll_requests_free(struct sw_coll *coll)
{
    free_all(&coll->posted);
    free_all(&coll->transfers);
    free_all(&coll->ended_requests);
    free_all(&coll->free_requests);
}

uint64_t coll_requests_deadline_ns(const struct sw_coll *coll)
{
    const struct sw_coll_request *request = request_of(list_first(&coll->posted));
    if (!request)
        request = request_of(list_first(&coll->transfers));
    return request ? request->deadline_ns : 0;
}

/* ---- what programs call ---- */

uint64_t sw_coll_deadline_ms(uint32_t from_now_ms)
{
    return mover_now_ns() + from_now_ms * NS_PER_MS;
}

struct sw_coll_request *coll_request_take(struct sw_coll *coll, uint64_t deadline_ns)
{
    struct sw_coll_request *request = request_of(list_first(&coll->free_requests));
    if (request)
        list_remove(&request->node);
    else if (!(request = calloc(1, sizeof(*request))))
        return NULL;
    request->coll = coll;
    request->started_ns = 0; /* a look at the clock takes a tenth of a short operation */
    request->deadline_ns = deadline_ns;
    request->has_begun = request->is_over = request->is_transfer = request->is_held = false;
    request->tell_ns = 0;
    request->is_recorded = false;
    request->serial = 0;
    request->status = SW_COLL_AGAIN;
    return request;
}

/* The caller's may end before the operation begins. */
static bool copy_counts(struct sw_coll_request *request)
{
    const uint32_t size = request->coll->site.size;
    struct sw_coll_call *call = &request->call;
    if (!call->counts && !call->recv_counts)
        return true;
    if (!request->counts && !(request->counts = malloc(2 * sizeof(uint64_t) * size)))
        return false;
    if (call->counts)
        call->counts = memcpy(request->counts, call->counts, sizeof(uint64_t) * size);
    if (call->recv_counts)
        call->recv_counts =
            memcpy(request->counts + size, call->recv_counts, sizeof(uint64_t) * size);
    return true;
}

/* The first call after a failure that no operation has told is told it. */
static enum sw_coll_status say_broken(struct sw_coll *coll, struct sw_coll_error *error)
{
    const struct sw_coll_error *why = &coll->failure.error;
    if (coll->failure.was_said)
        return coll_say(error, SW_COLL_BROKEN, "an operation before has failed: %.200s", why->text);
    coll->failure.was_said = true;
    return coll_say(error, why->status, "%s", why->text);
}

enum sw_coll_status coll_request_may_post(struct sw_coll *coll, struct sw_coll_error *error)
{
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    coll_failure_end(coll);
    return coll->failure.is_done ? say_broken(coll, error) : SW_COLL_OK;
}

enum sw_coll_status coll_request_post(struct sw_coll *coll, const struct sw_coll_call *call,
                                      uint64_t deadline_ns, struct sw_coll_error *error,
                                      struct sw_coll_request **out)
{
    enum sw_coll_status status = coll_request_may_post(coll, error);
    if (!status)
        status = coll_call_check(call, &coll->site, error);
    if (status)
        return status;
    struct sw_coll_request *request = coll_request_take(coll, deadline_ns);
    if (request) {
        request->call = *call;
        if (!copy_counts(request)) {
            list_append(&coll->free_requests, &request->node);
            request = NULL;
        }
    }
    if (!request)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory");
    list_append(&coll->posted, &request->node);
    request->number = ++coll->posts;
    *out = request;
    if (!coll->group_depth && list_first(&coll->posted) == &request->node)
        coll_requests_go(coll);
    if (!request->serial && request->status == SW_COLL_AGAIN)
        coll_recorder_wait(coll, request, 0);
    return SW_COLL_OK;
}

void coll_request_show(struct sw_coll *coll, struct sw_coll_request *request)
{
    if (!coll->page || request->status != SW_COLL_AGAIN)
        return;
    const uint64_t now_ns = mover_now_ns();
    coll_recorder_wait(coll, request, now_ns);
    coll_page_refresh(coll, now_ns, true);
}

enum sw_coll_status sw_coll_post(struct sw_coll *coll, const struct sw_coll_call *call,
                                 uint64_t deadline_ns, struct sw_coll_error *error,
                                 struct sw_coll_request **out)
{
    const enum sw_coll_status status = coll_request_post(coll, call, deadline_ns, error, out);
    if (!status)
        coll_request_show(coll, *out);
    return status;
}

/* It has ended: its words, and its place for the next one. */
static enum sw_coll_status take_result(struct sw_coll_request *request, struct sw_coll_error *error)
{
    struct sw_coll *coll = request->coll;
    const enum sw_coll_status status = request->status;
    list_remove(&request->node);
    list_append(&coll->free_requests, &request->node);
    if (status == SW_COLL_OK)
        return SW_COLL_OK;
    coll->failure.was_said = true;
    return coll_say(error, status, "%s", coll->failure.error.text);
}

enum sw_coll_status sw_coll_test(struct sw_coll_request *request, struct sw_coll_error *error)
{
    if (mover_is_forked(&request->coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    if (request->status == SW_COLL_AGAIN)
        coll_look(request->coll);
    return request->status == SW_COLL_AGAIN ? SW_COLL_AGAIN : take_result(request, error);
}

enum sw_coll_status sw_coll_wait(struct sw_coll_request *request, struct sw_coll_error *error)
{
    struct coll_waiting waiting = {0};
    struct sw_coll *coll = request->coll;
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    sw_coll_hold(request, true);
    while (request->status == SW_COLL_AGAIN) {
        coll_go_on(coll);
        if (request->status == SW_COLL_AGAIN)
            coll_wait_turn(coll, &waiting);
    }
    return take_result(request, error);
}

void sw_coll_poll(struct sw_coll *coll)
{
    if (!mover_is_forked(&coll->guard))
        coll_look(coll);
}
