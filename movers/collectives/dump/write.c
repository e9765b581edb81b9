/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/core/record.h"
#include "common/serve/json_text.h"

/* ---- pieces ---- */

static json_t *json_of_word(enum coll_word_list list, uint32_t number)
{
    const char *word = coll_dump_word(list, number);
    return word ? json_string(word) : json_null();
}

static json_t *json_of_u64(uint64_t number)
{
    return json_integer((json_int_t)number);
}

/* A time that is not there yet is null. */
static json_t *json_of_time(uint64_t time_ns)
{
    return time_ns ? json_of_u64(time_ns) : json_null();
}

static json_t *json_of_name(uint64_t name)
{
    char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, name);
    return name ? json_string(text) : json_null();
}

/* ---- an operation ---- */

static bool has_operator(uint32_t kind)
{
    return kind == SW_COLL_ALL_REDUCE || kind == SW_COLL_REDUCE || kind == SW_COLL_REDUCE_SCATTER;
}

static bool is_rooted(uint32_t kind)
{
    return kind == SW_COLL_BROADCAST || kind == SW_COLL_REDUCE || kind == SW_COLL_GATHER ||
           kind == SW_COLL_SCATTER;
}

static json_t *json_of_counts(const struct coll_recorder *recorder,
                              const struct coll_recorded *record, uint8_t which, uint32_t size)
{
    uint64_t *counts = calloc(SW_COLL_RANKS_MAX, sizeof(*counts)); /* too long for a stack */
    if (!counts || !coll_recorder_counts(recorder, record, which, size, counts)) {
        free(counts);
        return json_null();
    }
    json_t *list = json_array();
    for (uint32_t i = 0; i < size; i++)
        json_array_append_new(list, json_of_u64(counts[i]));
    free(counts);
    return list;
}

static void add_elements(json_t *json, const struct coll_recorded *record)
{
    json_object_set_new(json, "elements", json_of_u64(record->count));
    json_object_set_new(json, "type", json_of_word(COLL_WORDS_TYPE, record->type));
    json_object_set_new(
        json, "bytes",
        json_of_u64(record->count * sw_coll_type_bytes((enum sw_coll_type)record->type)));
}

static void add_operation(json_t *json, const struct coll_recorder *recorder,
                          const struct coll_recorded *record, uint32_t size)
{
    if (record->kind != SW_COLL_BARRIER)
        add_elements(json, record);
    if (has_operator(record->kind)) {
        json_object_set_new(json, "op", json_of_word(COLL_WORDS_OP, record->op));
        json_object_set_new(json, "leaves", json_integer(record->leaves ? record->leaves : 1));
    }
    if (is_rooted(record->kind))
        json_object_set_new(json, "root", json_integer(record->peer));
    if (record->has & COLL_HAS_COUNTS)
        json_object_set_new(json, "counts",
                            json_of_counts(recorder, record, COLL_HAS_COUNTS, size));
    if (record->has & COLL_HAS_RECV_COUNTS)
        json_object_set_new(json, "recv_counts",
                            json_of_counts(recorder, record, COLL_HAS_RECV_COUNTS, size));
    json_object_set_new(json, "algorithm", json_of_word(COLL_WORDS_PLAN, record->plan));
    if (record->status != SW_COLL_AGAIN)
        json_object_set_new(json, "step", json_integer(record->step));
}

static void add_child(json_t *json, const struct coll_recorded *record)
{
    json_object_set_new(json, "child", json_of_name(record->number));
    if (record->kind == COLL_RECORDED_SHRINK)
        return;
    json_object_set_new(json, "color", json_integer((int32_t)(record->count >> 32)));
    json_object_set_new(json, "key", json_integer((int32_t)record->count));
}

json_t *coll_dump_operation(const struct coll_recorder *recorder,
                            const struct coll_recorded *record, uint32_t size)
{
    const bool is_child =
        record->kind == COLL_RECORDED_SPLIT || record->kind == COLL_RECORDED_SHRINK;
    json_t *json = json_object();
    json_object_set_new(json, "collective", json_of_word(COLL_WORDS_KIND, record->kind));
    if (is_child) {
        add_child(json, record);
    } else {
        json_object_set_new(json, "number", json_of_u64(record->number));
        if (record->kind < SW_COLL_KINDS) {
            add_operation(json, recorder, record, size);
        } else {
            json_object_set_new(json, "peer", json_integer(record->peer));
            add_elements(json, record);
        }
    }
    json_object_set_new(json, "status", json_of_word(COLL_WORDS_STATUS, record->status));
    json_object_set_new(json, "posted_ns", json_of_time(record->posted_ns));
    json_object_set_new(json, "begun_ns", json_of_time(record->begun_ns));
    json_object_set_new(json, "ended_ns", json_of_time(record->ended_ns));
    return json;
}

/* ---- the whole ---- */

static json_t *json_of_operations(const struct coll_recorder *recorder, uint32_t size)
{
    const uint64_t newest = __atomic_load_n(&recorder->recorded, __ATOMIC_ACQUIRE);
    struct coll_recorded record;
    json_t *list = json_array();
    for (uint64_t serial = coll_recorder_first(recorder); serial <= newest; serial++)
        if (coll_recorder_read(recorder, serial, &record) && record.kind < COLL_RECORDED_KINDS)
            json_array_append_new(list, coll_dump_operation(recorder, &record, size));
    return list;
}

/* Null where each rank is at the place of its number. */
static json_t *json_of_places(const uint16_t *ranks, uint32_t size)
{
    bool is_moved = false;
    json_t *list = json_array();
    for (uint32_t place = 0; place < size; place++) {
        is_moved = is_moved || ranks[place] != place;
        json_array_append_new(list, json_integer(ranks[place]));
    }
    if (is_moved)
        return list;
    json_decref(list);
    return json_null();
}

static json_t *json_of_site(const struct coll_recorder *recorder,
                            const struct coll_page_about *about, uint32_t size)
{
    return json_pack("{sI so so so sI sI sI}", "eager_bytes", (json_int_t)about->eager_bytes,
                     "algorithm", json_of_word(COLL_WORDS_PLAN, about->wanted), "order",
                     json_of_word(COLL_WORDS_ORDER, about->order), "places",
                     json_of_places(recorder->ranks, size), "scratch_bytes",
                     (json_int_t)about->scratch_bytes, "request_bytes",
                     (json_int_t)about->request_bytes, "timeout_ms", (json_int_t)about->timeout_ms);
}

static json_t *json_of_ranks(const uint8_t *bits, uint32_t size)
{
    json_t *ranks = json_array();
    for (uint32_t rank = 0; rank < size; rank++)
        if (bits[rank / 8] & 1u << rank % 8)
            json_array_append_new(ranks, json_integer(rank));
    return ranks;
}

static json_t *json_of_waits(const struct coll_page_state *state, uint32_t size)
{
    return state->is_waiting ? json_of_ranks(state->awaited, size) : json_array();
}

static json_t *json_of_state(const struct coll_page_state *state, uint32_t size)
{
    const bool is_message = state->activity == COLL_IN_SEND || state->activity == COLL_IN_RECV;
    return json_pack(
        "{so sI so sI sI so so so so}", "activity",
        json_of_word(COLL_WORDS_ACTIVITY, state->activity), "number", (json_int_t)state->number,
        "message", is_message ? json_of_u64(state->message) : json_null(), "step",
        (json_int_t)state->step, "steps", (json_int_t)state->steps, "collective",
        state->number ? json_of_word(COLL_WORDS_KIND, state->kind) : json_null(), "since_ns",
        json_of_time(state->since_ns), "waits_for", json_of_waits(state, size), "blocked_by",
        state->is_waiting ? json_of_ranks(state->blocking, size) : json_array());
}

static json_t *json_of_failure(const struct coll_page_failure *failure, uint32_t size)
{
    if (!failure->failed_ns)
        return json_null();
    return json_pack("{so so so sI}", "status", json_of_word(COLL_WORDS_STATUS, failure->status),
                     "gone", json_of_ranks(failure->gone, size), "text",
                     mover_json_text(failure->text), "failed_ns", (json_int_t)failure->failed_ns);
}

json_t *coll_dump_make(const struct coll_recorder *recorder, const struct coll_dump_case *how)
{
    struct coll_page page;
    if (!coll_page_read(&recorder->page, &page))
        return NULL;
    page.about.host_name[sizeof(page.about.host_name) - 1] = '\0';
    page.failure.text[sizeof(page.failure.text) - 1] = '\0';
    json_t *operations = json_of_operations(recorder, page.size);
    const struct coll_page_state *state =
        page.failure.failed_ns ? &page.failure.state : &page.state;
    return json_pack(
        "{ss si so so so so sI so sI sI sI sI sI sI so so sI so so so sI so}", "format",
        COLL_DUMP_FORMAT, "version", COLL_DUMP_VERSION, "why",
        json_of_word(COLL_WORDS_WHY, how->why), "process",
        json_of_word(COLL_WORDS_PROCESS, how->process), "job", json_of_name(page.job), "parent",
        json_of_name(page.parent), "parent_rank", (json_int_t)page.about.parent_rank, "host",
        mover_json_text(page.about.host_name), "rank", (json_int_t)page.rank, "ranks",
        (json_int_t)page.size, "place", (json_int_t)page.place, "pid", (json_int_t)page.pid,
        "monotonic_ns", (json_int_t)how->now_ns, "realtime_ns",
        (json_int_t)(page.about.realtime_ns + how->now_ns), "host_id",
        json_of_name(page.about.host), "site", json_of_site(recorder, &page.about, page.size),
        "ended", (json_int_t)page.ended, "activity",
        json_of_word(COLL_WORDS_ACTIVITY, page.state.activity), "state",
        json_of_state(state, page.size), "error", json_of_failure(&page.failure, page.size),
        "recorded", (json_int_t)__atomic_load_n(&recorder->recorded, __ATOMIC_RELAXED),
        "operations", operations);
}

/* ---- files ---- */

int coll_dump_write(json_t *dump, int fd)
{
    const int code = dump ? json_dumpfd(dump, fd, JSON_COMPACT) : -1;
    const int why = dump && errno ? errno : ENOMEM;
    json_decref(dump);
    if (code)
        return -why;
    return write(fd, "\n", 1) == 1 ? 0 : -errno;
}

int coll_dump_save(json_t *dump, const struct coll_page *page, const char *folder, char *path,
                   size_t room)
{
    char fresh[4096];
    snprintf(path, room, "%s/%016" PRIx64 "-%u" COLL_DUMP_SUFFIX, folder, page->job, page->rank);
    const int length = snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (length >= (int)sizeof(fresh) || (size_t)length >= room + 4) {
        json_decref(dump);
        return -ENAMETOOLONG;
    }
    (void)mkdir(folder, 0700);
    unlink(fresh);
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        const int why = errno;
        json_decref(dump);
        return -why;
    }
    int code = coll_dump_write(dump, fd);
    if (close(fd) && !code)
        code = -errno;
    if (!code && rename(fresh, path))
        code = -errno;
    if (code)
        unlink(fresh);
    return code;
}
