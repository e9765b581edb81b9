/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "common/time/units.h"

enum {
    OPEN_MS = 2500,
    CREATE_MS = 10000,
    READ_MS = 1500,
    LOOK_MS = 50,   /* how often an idle writer looks whether it still is the writer */
    SLOW_MS = 1000, /* an append that takes longer has no quorum */
    RING_MIN = 1 << 20,
    RING_MAX = 16 << 20,
    CONTROL_BYTES = 4096, /* before the ring */
    TRIES = 3,            /* to make a log, before one is used that lacks copies */
    CHECKPOINT_PART = 4,  /* of the ring, that is used before it is trimmed */
};

/* ---- results ---- */

static void post_result(struct nvg_journal *j, uint64_t generation,
                        const struct nvg_journal_event *event, const uint8_t *record, size_t bytes)
{
    struct nvg_journal_result *result = calloc(1, sizeof(*result));
    const uint64_t one = 1;
    if (!result)
        abort(); /* a lost result would stop the group without a word */
    result->generation = generation;
    result->is_event = event;
    if (event)
        result->event = *event;
    result->bytes = (uint16_t)bytes;
    if (bytes)
        memcpy(result->record, record, bytes);
    pthread_mutex_lock(&j->lock);
    list_append(&j->results, &result->node);
    pthread_mutex_unlock(&j->lock);
    if (write(j->event_fd, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN);
}

static void journal_post_record(struct nvg_journal *j, const uint8_t *record, uint32_t bytes)
{
    j->has_records = true;
    post_result(j, j->order.generation, NULL, record, bytes);
}

static void post_event(struct nvg_journal *j, enum nvg_journal_kind kind, bool has_quorum)
{
    struct sw_pmem_log_info info = {0};
    struct nvg_journal_event event = {.kind = kind, .has_quorum = has_quorum};
    if (j->log)
        sw_pmem_log_info_of(j->log, &info);
    event.epoch = info.epoch;
    event.wants_checkpoint = j->log && info.used_bytes > info.ring_bytes / CHECKPOINT_PART;
    post_result(j, j->order.generation, &event, NULL, 0);
}

static void post_failure(struct nvg_journal *j, bool is_hopeless, const char *what,
                         const struct sw_pmem_error *error)
{
    struct nvg_journal_event event = {.kind = NVG_JOURNAL_FAILED, .is_hopeless = is_hopeless};
    snprintf(event.text, sizeof(event.text), "%s: %.200s", what, error->text);
    post_result(j, j->order.generation, &event, NULL, 0);
}

struct nvg_journal_result *nvg_journal_next(struct nvg_journal *j)
{
    uint64_t count;
    struct nvg_journal_result *result = NULL;
    if (read(j->event_fd, &count, sizeof(count)) < 0)
        assert(errno == EAGAIN);
    pthread_mutex_lock(&j->lock);
    for (struct list_node *node; (node = list_first(&j->results)); free(result), result = NULL) {
        list_remove(node);
        result = LIST_MEMBER(node, struct nvg_journal_result, node);
        if (result->generation == j->generation)
            break;
    }
    pthread_mutex_unlock(&j->lock);
    return result;
}

void nvg_journal_states(struct nvg_journal *j, uint8_t states[NVG_COPIES_MAX])
{
    pthread_mutex_lock(&j->lock);
    memcpy(states, j->copy_states, sizeof(j->copy_states));
    pthread_mutex_unlock(&j->lock);
}

/* ---- orders ---- */

static void put_order(struct nvg_journal *j, enum nvg_order_kind kind, const uint8_t *record,
                      size_t bytes)
{
    assert(j->count < NVG_ORDERS);
    struct nvg_order *order = &j->orders[(j->first + j->count++) % NVG_ORDERS];
    order->kind = kind;
    order->generation = j->generation;
    order->bytes = (uint16_t)bytes;
    if (bytes)
        memcpy(order->record, record, bytes);
    pthread_cond_signal(&j->changed);
}

void nvg_journal_order(struct nvg_journal *j, enum nvg_order_kind kind, const uint8_t *record,
                       size_t bytes)
{
    pthread_mutex_lock(&j->lock);
    if (kind == NVG_ORDER_READ || kind == NVG_ORDER_OPEN) {
        j->generation++;
        j->count = 0;
    }
    put_order(j, kind, record, bytes);
    pthread_mutex_unlock(&j->lock);
}

void nvg_journal_close_log(struct nvg_journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->generation++;
    j->count = 0;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* Nobody waits for what it does any more. */
static bool journal_is_outdated(struct nvg_journal *j, uint64_t generation)
{
    pthread_mutex_lock(&j->lock);
    const bool is = j->is_over || j->generation != generation;
    pthread_mutex_unlock(&j->lock);
    return is;
}

/* ---- reading ---- */

/* A copy of a log of more or fewer copies, or in another order. To open that as a writer would take
 * it from its group before it is refused. */
static bool journal_is_another(struct nvg_journal *j)
{
    struct sw_pmem_error errors[NVG_COPIES_MAX] = {0}, error = {0}, whole = {0};
    struct sw_pmem_log_info info;
    sw_pmem_log_survey(&j->options, sw_pmem_deadline_ms(READ_MS), &info, errors, &error);
    for (uint32_t i = 0; i < info.copies; i++) {
        if (errors[i].status != SW_PMEM_OTHER_REGION)
            continue;
        snprintf(whole.text, sizeof(whole.text),
                 "at %.63s%s%.8s %.90s; --group names all copies, in the same order at all "
                 "members",
                 j->copies[i].address, j->texts[i][1][0] ? ", port " : "", j->texts[i][1],
                 errors[i].text);
        post_failure(j, true, "the group's log is another one", &whole);
        return true;
    }
    return false;
}

/* A quorum of its copies answers, also where it is empty, or its last writer had not settled. */
static bool log_is_reached(struct nvg_journal *j)
{
    struct sw_pmem_error errors[NVG_COPIES_MAX] = {0}, error = {0};
    struct sw_pmem_log_info info;
    uint32_t count = 0;
    sw_pmem_log_survey(&j->options, sw_pmem_deadline_ms(READ_MS), &info, errors, &error);
    for (uint32_t i = 0; i < info.copies; i++)
        count += errors[i].status == SW_PMEM_OK;
    return count > j->options.copies_count / 2;
}

/* Reads by a reader, who disturbs no writer. */
static void journal_read_log(struct nvg_journal *j)
{
    struct sw_pmem_error error = {0};
    struct sw_pmem_log_reader *reader = NULL;
    struct sw_pmem_log_mark mark;
    uint8_t record[NVG_RECORD_MAX];
    uint32_t bytes = 0;
    const uint64_t deadline_ns = sw_pmem_deadline_ms(READ_MS);
    enum sw_pmem_log_status status =
        sw_pmem_log_reader_open(&j->options, deadline_ns, &error, &reader);
    if (status != SW_PMEM_LOG_OK && !j->is_known && journal_is_another(j))
        return;
    j->is_known |= status == SW_PMEM_LOG_OK;
    if (status == SW_PMEM_LOG_OK)
        status = sw_pmem_log_reader_head(reader, &mark, deadline_ns);
    while (status == SW_PMEM_LOG_OK &&
           (status = sw_pmem_log_reader_next(reader, &mark, record, sizeof(record), &bytes,
                                             sw_pmem_deadline_ms(0))) == SW_PMEM_LOG_OK)
        journal_post_record(j, record, bytes);
    sw_pmem_log_reader_close(reader);
    /* A log that is not there yet, or whose writer has died before it had settled, is read as
     * empty: the writer that opens it next will know. */
    post_event(j, NVG_JOURNAL_READ,
               status == SW_PMEM_LOG_END || (j->is_known && log_is_reached(j)));
}

/* ---- opening ---- */

static uint64_t ring_bytes_for(struct nvg_journal *j, struct sw_pmem_error *error)
{
    uint64_t least = UINT64_MAX, ring = RING_MAX;
    for (uint32_t i = 0; i < j->options.copies_count; i++) {
        struct sw_pmem *pmem = NULL;
        struct sw_pmem_info info;
        if (sw_pmem_open(&j->copies[i], error, &pmem) != SW_PMEM_OK)
            return 0;
        sw_pmem_info_of(pmem, &info);
        sw_pmem_close(pmem);
        if (info.bytes < least)
            least = info.bytes;
    }
    while (ring >= RING_MIN && ring + CONTROL_BYTES > least)
        ring /= 2;
    if (ring < RING_MIN) {
        snprintf(error->text, sizeof(error->text), "each region has to have 2 MiB or more");
        return 0;
    }
    return ring;
}

/* The first member makes the log. Others that come meanwhile go on with what it has made: one that
 * opened a log of two copies would keep it from making the third. */
static bool journal_create(struct nvg_journal *j, struct sw_pmem_error *error)
{
    const struct sw_pmem_log_geometry geometry = {.ring_bytes = ring_bytes_for(j, error),
                                                  .record_bytes = NVG_RECORD_MAX};
    const enum sw_pmem_log_status status =
        geometry.ring_bytes ? sw_pmem_log_create(&j->options, &geometry, false,
                                                 sw_pmem_deadline_ms(CREATE_MS), error)
                            : SW_PMEM_LOG_COPY;
    return status == SW_PMEM_LOG_OK || status == SW_PMEM_LOG_EXISTS;
}

static enum sw_pmem_log_status read_all(struct nvg_journal *j)
{
    uint8_t record[NVG_RECORD_MAX];
    uint32_t bytes = 0;
    enum sw_pmem_log_status status;
    sw_pmem_log_head(j->log, &j->end);
    while ((status = sw_pmem_log_read(j->log, &j->end, record, sizeof(record), &bytes,
                                      sw_pmem_deadline_ms(OPEN_MS))) == SW_PMEM_LOG_OK)
        journal_post_record(j, record, bytes);
    return status == SW_PMEM_LOG_END ? SW_PMEM_LOG_OK : status;
}

static void journal_close(struct nvg_journal *j)
{
    sw_pmem_log_close(j->log);
    j->log = NULL;
    j->has_begin = false;
}

static void journal_open_log(struct nvg_journal *j)
{
    struct sw_pmem_error error = {0}, unmade = {0};
    journal_close(j);
    const bool is_made = j->has_records || journal_create(j, &unmade);
    if (!is_made && j->tries++ < TRIES) {
        post_failure(j, false, "the group's log cannot be made", &unmade);
        return;
    }
    j->tries = 0;
    enum sw_pmem_log_status status =
        sw_pmem_log_open(&j->options, sw_pmem_deadline_ms(OPEN_MS), &error, &j->log);
    if (status == SW_PMEM_LOG_NO_LOG && !is_made) {
        post_failure(j, false, "the group's log cannot be made", &unmade);
        return;
    }
    if (status == SW_PMEM_LOG_OK)
        status = read_all(j);
    if (status == SW_PMEM_LOG_OK) {
        j->log_generation = j->order.generation;
        j->has_quorum = j->is_known = true;
        post_event(j, NVG_JOURNAL_OPENED, true);
        return;
    }
    journal_close(j);
    if (!error.text[0])
        snprintf(error.text, sizeof(error.text), "%s", sw_pmem_log_status_text(status));
    post_failure(j, false, "the group's log cannot be opened", &error);
}

/* ---- writing ---- */

static void say_quorum(struct nvg_journal *j, bool has_quorum)
{
    if (j->has_quorum == has_quorum)
        return;
    j->has_quorum = has_quorum;
    post_event(j, NVG_JOURNAL_QUORUM, has_quorum);
}

static void say_fenced(struct nvg_journal *j)
{
    journal_close(j);
    post_event(j, NVG_JOURNAL_FENCED, j->has_quorum);
}

/* Looks at the copies, and whether another writer has the log: then even a record that is too long
 * is refused for that. */
static void look_at_log(struct nvg_journal *j)
{
    struct sw_pmem_log_info info;
    uint32_t live = 0;
    sw_pmem_log_poll(j->log);
    sw_pmem_log_info_of(j->log, &info);
    pthread_mutex_lock(&j->lock);
    for (uint32_t i = 0; i < info.copies; i++) {
        j->copy_states[i] = (uint8_t)info.states[i];
        live += info.states[i] == SW_PMEM_LOG_COPY_LIVE;
    }
    pthread_mutex_unlock(&j->lock);
    const enum sw_pmem_log_status status = sw_pmem_log_post(j->log, "", info.record_bytes + 1, 0);
    if (status == SW_PMEM_LOG_FENCED || status == SW_PMEM_LOG_DAMAGED)
        say_fenced(j);
    else
        say_quorum(j, info.ready && live >= info.quorum);
}

/* Waits for an append as long as somebody wants it. */
static void append_record(struct nvg_journal *j)
{
    const uint64_t slow_ns = sw_pmem_deadline_ms(SLOW_MS);
    const struct sw_pmem_log_mark before = j->end;
    struct sw_pmem_log_result result = {0};
    enum sw_pmem_log_status status = SW_PMEM_LOG_AGAIN;
    while (j->log && !journal_is_outdated(j, j->order.generation)) {
        if (status == SW_PMEM_LOG_AGAIN || status == SW_PMEM_LOG_FULL)
            status = sw_pmem_log_post(j->log, j->order.record, j->order.bytes, 1);
        if (status == SW_PMEM_LOG_FENCED || status == SW_PMEM_LOG_DAMAGED) {
            say_fenced(j);
            return;
        }
        sw_pmem_log_wait(j->log, sw_pmem_deadline_ms(LOOK_MS));
        if (sw_pmem_log_take(j->log, &result))
            break;
        if (sw_pmem_deadline_ms(0) > slow_ns)
            look_at_log(j);
        if (sw_pmem_deadline_ms(0) > slow_ns && j->log)
            say_quorum(j, false);
    }
    if (!result.user)
        return;
    if (result.status == SW_PMEM_LOG_NOT_DONE && j->log) {
        append_record(j); /* it lost the copies, and has found them again */
        return;
    }
    if (result.status != SW_PMEM_LOG_OK) {
        say_fenced(j);
        return;
    }
    j->end = result.mark;
    if (j->order.bytes > 1 && j->order.record[1] == NVG_BEGIN) {
        j->begin = before;
        j->has_begin = true;
    }
    post_event(j, NVG_JOURNAL_DONE, j->has_quorum);
    say_quorum(j, true);
}

static void journal_carry_out(struct nvg_journal *j)
{
    switch (j->order.kind) {
    case NVG_ORDER_READ:
        journal_read_log(j);
        return;
    case NVG_ORDER_OPEN:
        journal_open_log(j);
        return;
    case NVG_ORDER_APPEND:
        append_record(j);
        return;
    case NVG_ORDER_TRIM:
        if (j->log && j->has_begin)
            sw_pmem_log_trim(j->log, &j->begin);
        return;
    }
}

/* False: it ends. The next order is in j->order, or there is none for now. */
static bool wait_for_order(struct nvg_journal *j, bool *has_order)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * (long)NS_PER_MS;
    until.tv_sec += until.tv_nsec / (long)NS_PER_S;
    until.tv_nsec %= (long)NS_PER_S;
    pthread_mutex_lock(&j->lock);
    while (!j->is_over && !j->count && !(j->log && j->generation != j->log_generation)) {
        if (!j->log)
            pthread_cond_wait(&j->changed, &j->lock);
        else if (pthread_cond_timedwait(&j->changed, &j->lock, &until) == ETIMEDOUT)
            break;
    }
    *has_order = j->count > 0;
    if (*has_order) {
        j->order = j->orders[j->first];
        j->first = (j->first + 1) % NVG_ORDERS;
        j->count--;
    }
    const bool is_outdated = j->log && j->generation != j->log_generation;
    const bool goes_on = !j->is_over;
    pthread_mutex_unlock(&j->lock);
    if (is_outdated)
        journal_close(j);
    return goes_on;
}

static void *journal_run(void *arg)
{
    struct nvg_journal *j = arg;
    bool has_order;
    while (wait_for_order(j, &has_order)) {
        if (has_order)
            journal_carry_out(j);
        else if (j->log)
            look_at_log(j);
    }
    journal_close(j);
    return NULL;
}

static void copy_settings(struct nvg_journal *j, const struct nvg_settings *settings)
{
    sw_pmem_log_options_init(&j->options);
    j->options.copies = j->copies;
    j->options.copies_count = settings->copy_count;
    snprintf(j->label, sizeof(j->label), "nvme target %s", settings->member);
    for (uint32_t i = 0; i < settings->copy_count; i++) {
        const struct nvg_copy *copy = &settings->copies[i];
        struct sw_pmem_options *options = &j->copies[i];
        sw_pmem_options_init(options);
        options->address = strncpy(j->texts[i][0], copy->address, NVG_ADDRESS_BYTES - 1);
        options->label = j->label;
        if (copy->port)
            options->port = strncpy(j->texts[i][1], copy->port, NVG_ADDRESS_BYTES - 1);
        if (copy->region)
            options->region = strncpy(j->texts[i][2], copy->region, NVG_ADDRESS_BYTES - 1);
        options->request_timeout_ms = SLOW_MS;
        options->connect_timeout_ms = SLOW_MS;
    }
}

int nvg_journal_start(struct nvg_journal *j, const struct nvg_settings *settings)
{
    pthread_condattr_t attr;
    memset(j, 0, sizeof(*j));
    copy_settings(j, settings);
    list_init(&j->results);
    j->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (j->event_fd < 0)
        return -errno;
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->changed, &attr);
    pthread_condattr_destroy(&attr);
    const int code = mover_thread_start(&j->thread, journal_run, j);
    if (code) {
        close(j->event_fd);
        pthread_cond_destroy(&j->changed);
        pthread_mutex_destroy(&j->lock);
    }
    return -code;
}

void nvg_journal_end(struct nvg_journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->is_over = true;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    for (struct list_node *node; (node = list_first(&j->results));) {
        list_remove(node);
        free(LIST_MEMBER(node, struct nvg_journal_result, node));
    }
    close(j->event_fd);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
}
