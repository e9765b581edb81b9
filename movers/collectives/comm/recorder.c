/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/recorder.h"

#include "common/base/minmax.h"
#include "common/time/clock.h"

/* ---- one record ---- */

static struct coll_recorded *begin_recorded(struct coll_recorder *recorder)
{
    struct coll_recorded *record = &recorder->records[(recorder->recorded + 1) % COLL_RECORDS];
    __atomic_store_n(&record->serial, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return record;
}

static uint64_t publish_recorded(struct coll_recorder *recorder, struct coll_recorded *record)
{
    const uint64_t serial = recorder->recorded + 1;
    __atomic_store_n(&record->serial, serial, __ATOMIC_RELEASE);
    __atomic_store_n(&recorder->recorded, serial, __ATOMIC_RELEASE);
    return serial;
}

/* NULL: so many came after it that it is gone. */
static struct coll_recorded *recorded_of(struct coll_recorder *recorder,
                                         const struct sw_coll_request *request)
{
    struct coll_recorded *record = &recorder->records[request->serial % COLL_RECORDS];
    return record->serial == request->serial ? record : NULL;
}

/* A reader sees by `counted` that what it has read may be newer. */
static void keep_numbers(struct coll_recorder *recorder, const uint64_t *numbers, uint32_t size)
{
    const uint64_t at = recorder->counted;
    __atomic_store_n(&recorder->counted, at + size, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (uint32_t i = 0; i < size; i++)
        recorder->counts[(at + i) % COLL_RECORDED_COUNTS] = numbers[i];
}

__attribute__((noinline)) static void
record_counts(struct sw_coll *coll, struct coll_recorded *record, const struct sw_coll_call *call)
{
    struct coll_recorder *recorder = coll->recorder;
    record->counts_at = (uint32_t)recorder->counted;
    if (call->counts) {
        record->has |= COLL_HAS_COUNTS;
        keep_numbers(recorder, call->counts, coll->site.size);
    }
    if (call->recv_counts) {
        record->has |= COLL_HAS_RECV_COUNTS;
        keep_numbers(recorder, call->recv_counts, coll->site.size);
    }
}

static void record_call(struct sw_coll *coll, struct coll_recorded *record,
                        const struct sw_coll_request *request)
{
    const struct sw_coll_call *call = &request->call;
    record->number = request->number;
    record->count = call->count;
    record->peer = (uint16_t)call->root;
    record->kind = (uint8_t)call->kind;
    record->type = (uint8_t)call->type;
    record->op = (uint8_t)call->op;
    record->leaves = (uint8_t)call->leaves;
    record->has = 0;
    if (call->counts || call->recv_counts)
        record_counts(coll, record, call);
}

static void record_message(struct coll_recorded *record, const struct coll_transfer *transfer)
{
    record->number = transfer->number;
    record->count = transfer->count;
    record->peer = (uint16_t)transfer->peer;
    record->kind = transfer->is_send ? COLL_RECORDED_SEND : COLL_RECORDED_RECV;
    record->type = (uint8_t)transfer->type;
    record->op = record->leaves = record->plan = record->has = 0;
}

static void record_post(struct sw_coll *coll, struct sw_coll_request *request, uint64_t now_ns)
{
    struct coll_recorded *record = begin_recorded(coll->recorder);
    if (request->is_transfer)
        record_message(record, &request->transfer);
    else
        record_call(coll, record, request);
    const bool has_begun = request->has_begun || request->is_transfer;
    record->plan = request->has_begun ? (uint8_t)coll->machine.table.plan : COLL_PLAN_ANY;
    record->step = 0;
    record->status = SW_COLL_AGAIN;
    record->posted_ns = now_ns;
    record->begun_ns = has_begun ? now_ns : 0;
    record->ended_ns = 0;
    request->serial = publish_recorded(coll->recorder, record);
}

/* ---- times ---- */

/* A look at the clock takes 18 ns, a twelfth of the shortest operation, and this one 4. It is up to
 * 4 ms behind, but not behind the last real look. */
static uint64_t coarse_now_ns(const struct sw_coll *coll)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const uint64_t coarse_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    return mover_max_u64(coarse_ns, mover_max_u64(coll->page_looked_ns, coll->looked_ns));
}

/* It moves data beside messages: it takes long enough for real looks. */
static bool is_worth_looks(const struct sw_coll *coll, const struct sw_coll_request *request)
{
    return request->has_begun && coll->machine.table.plan != COLL_PLAN_EAGER;
}

static uint64_t find_begin(const struct sw_coll *coll, struct sw_coll_request *request,
                           uint64_t now_ns)
{
    request->is_timed = now_ns || is_worth_looks(coll, request);
    return now_ns ? now_ns : request->is_timed ? mover_now_ns() : coarse_now_ns(coll);
}

static uint64_t find_end(const struct sw_coll *coll, const struct sw_coll_request *request,
                         const struct coll_recorded *record)
{
    const uint64_t looked_ns = mover_max_u64(coll->page_looked_ns, coll->looked_ns);
    return is_worth_looks(coll, request) ? mover_now_ns()
                                         : mover_max_u64(looked_ns, record->begun_ns);
}

/* ---- what others call ---- */

void coll_recorder_wait(struct sw_coll *coll, struct sw_coll_request *request, uint64_t now_ns)
{
    struct coll_recorded *record;
    if (!coll->recorder || request->is_recorded)
        return;
    request->is_recorded = request->has_begun || request->is_transfer;
    if (!request->serial)
        record_post(coll, request, find_begin(coll, request, now_ns));
    else if (request->is_recorded && (record = recorded_of(coll->recorder, request))) {
        record->plan = (uint8_t)coll->machine.table.plan;
        __atomic_store_n(&record->begun_ns, find_begin(coll, request, now_ns), __ATOMIC_RELAXED);
    }
}

void coll_recorder_look(struct sw_coll *coll, uint64_t now_ns)
{
    struct sw_coll_request *request = coll->current;
    struct coll_recorded *record;
    if (!request->is_recorded || request->is_timed)
        return;
    request->is_timed = true;
    if (!(record = recorded_of(coll->recorder, request)))
        return;
    if (record->posted_ns == record->begun_ns)
        __atomic_store_n(&record->posted_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&record->begun_ns, now_ns, __ATOMIC_RELAXED);
}

void coll_recorder_end(struct sw_coll *coll, struct sw_coll_request *request,
                       enum sw_coll_status status)
{
    struct coll_recorded *record;
    if (!coll->recorder)
        return;
    coll_recorder_wait(coll, request, 0);
    if (!(record = recorded_of(coll->recorder, request)))
        return;
    if (request == coll->current)
        record->step = (uint16_t)coll->machine.step;
    __atomic_store_n(&record->ended_ns, find_end(coll, request, record), __ATOMIC_RELAXED);
    __atomic_store_n(&record->status, (uint8_t)status, __ATOMIC_RELEASE);
}

void coll_recorder_child(struct sw_coll *coll, enum coll_recorded_kind kind,
                         const struct sw_coll *child, int32_t color, int32_t key, uint64_t began_ns)
{
    if (!coll->recorder)
        return;
    struct coll_recorded *record = begin_recorded(coll->recorder);
    *record = (struct coll_recorded){
        .number = child && child->page ? child->page->job : 0,
        .count = (uint64_t)(uint32_t)color << 32 | (uint32_t)key,
        .posted_ns = began_ns,
        .begun_ns = began_ns,
        .ended_ns = mover_now_ns(),
        .kind = (uint8_t)kind,
        .status = SW_COLL_OK,
    };
    publish_recorded(coll->recorder, record);
}
