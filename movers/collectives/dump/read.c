/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/call.h"
#include "collectives/dump/write.h"

/* The first thing that is wrong counts; what is read after it is of no use. */
struct reading {
    struct coll_dump *dump;
    size_t numbers; /* of counts, so far */
    char *error;
    size_t room;
    bool is_bad;
};

static void refuse_dump(struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void refuse_dump(struct reading *reading, const char *format, ...)
{
    va_list args;
    if (reading->is_bad)
        return;
    reading->is_bad = true;
    va_start(args, format);
    vsnprintf(reading->error, reading->room, format, args);
    va_end(args);
}

/* ---- members ---- */

/* 0 where it is null, or not there. */
static uint64_t number_member(struct reading *reading, const json_t *json, const char *key,
                              uint64_t most)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return 0;
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > most) {
        refuse_dump(reading, "\"%s\" is no number from 0 to %" PRIu64, key, most);
        return 0;
    }
    return (uint64_t)number;
}

static uint64_t time_member(struct reading *reading, const json_t *json, const char *key)
{
    return number_member(reading, json, key, INT64_MAX / 4);
}

/* `none` where it is null, or not there. */
static uint32_t word_member(struct reading *reading, const json_t *json, const char *key,
                            enum coll_word_list list, uint32_t none)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return none;
    const uint32_t number = coll_dump_number(list, json_string_value(value));
    if (number == UINT32_MAX)
        refuse_dump(reading, "\"%s\" has a word that is not known", key);
    return number == UINT32_MAX ? none : number;
}

/* 16 hexadecimal digits. */
static uint64_t name_member(struct reading *reading, const json_t *json, const char *key)
{
    enum { DIGITS = 16 };
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return 0;
    const char *text = json_string_value(value);
    if (!text || strlen(text) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS) {
        refuse_dump(reading, "\"%s\" has no 16 hexadecimal digits", key);
        return 0;
    }
    return strtoull(text, NULL, 16);
}

/* For a terminal: a stranger's text may have anything in it. */
static void text_member(const json_t *json, const char *key, char *text, size_t room)
{
    const char *found = json_string_value(json_object_get(json, key));
    snprintf(text, room, "%s", found ? found : "");
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at >= 0x7f)
            *at = '?';
}

static bool ranks_member(struct reading *reading, const json_t *json, const char *key,
                         uint8_t *bits)
{
    const json_t *list = json_object_get(json, key);
    const size_t count = json_array_size(list);
    if (list && !json_is_array(list))
        refuse_dump(reading, "\"%s\" is no list", key);
    for (size_t i = 0; i < count && !reading->is_bad; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t rank = json_integer_value(value);
        if (!json_is_integer(value) || rank < 0 || rank >= reading->dump->seen.page.size)
            refuse_dump(reading, "\"%s\" has no rank at %zu", key, i);
        else
            bits[rank / 8] |= (uint8_t)(1u << rank % 8);
    }
    return count;
}

/* ---- an operation ---- */

/* What has no other key than these needs no more of its numbers than there may be recorded. */
static const uint64_t *counts_member(struct reading *reading, const json_t *json, const char *key,
                                     bool *has)
{
    const json_t *list = json_object_get(json, key);
    const uint32_t size = reading->dump->seen.page.size;
    *has = list;
    if (!list || json_is_null(list))
        return NULL;
    if (!json_is_array(list) || json_array_size(list) != size ||
        reading->numbers + size > COLL_RECORDED_COUNTS) {
        refuse_dump(reading, "\"%s\" has not a number for each rank, or there are too many in all",
                    key);
        return NULL;
    }
    uint64_t *counts = &reading->dump->numbers[reading->numbers];
    reading->numbers += size;
    for (uint32_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 0)
            refuse_dump(reading, "\"%s\" has no number at %u", key, i);
        counts[i] = (uint64_t)number;
    }
    return counts;
}

static void read_dumped_call(struct reading *reading, const json_t *json, struct coll_dumped *found)
{
    found->op = word_member(reading, json, "op", COLL_WORDS_OP, SW_COLL_SUM);
    found->leaves = (uint32_t)number_member(reading, json, "leaves", SW_COLL_LEAVES_MAX);
    found->peer = (uint32_t)number_member(reading, json, "root", SW_COLL_RANKS_MAX - 1);
    found->plan = word_member(reading, json, "algorithm", COLL_WORDS_PLAN, COLL_PLAN_ANY);
    found->step = (uint32_t)number_member(reading, json, "step", UINT16_MAX);
    found->counts = counts_member(reading, json, "counts", &found->has_counts);
    found->recv_counts = counts_member(reading, json, "recv_counts", &found->has_recv_counts);
}

static int32_t small_member(struct reading *reading, const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    const json_int_t number = json_integer_value(value);
    if (value && (!json_is_integer(value) || number < INT32_MIN || number > INT32_MAX))
        refuse_dump(reading, "\"%s\" is no number of 32 bits", key);
    return (int32_t)number;
}

static void read_dumped_operation(struct reading *reading, const json_t *json,
                                  struct coll_dumped *found)
{
    const uint32_t none = UINT32_MAX;
    *found = (struct coll_dumped){
        .kind = word_member(reading, json, "collective", COLL_WORDS_KIND, none),
        .type = word_member(reading, json, "type", COLL_WORDS_TYPE, SW_COLL_I8),
        .status = word_member(reading, json, "status", COLL_WORDS_STATUS, none),
        .number = number_member(reading, json, "number", INT64_MAX),
        .count = number_member(reading, json, "elements", INT64_MAX),
        .posted_ns = time_member(reading, json, "posted_ns"),
        .begun_ns = time_member(reading, json, "begun_ns"),
        .ended_ns = time_member(reading, json, "ended_ns")};
    if (!json_is_object(json) || found->kind == none || found->status == none)
        refuse_dump(reading, "an operation has no \"collective\", or no \"status\"");
    else if (found->kind < SW_COLL_KINDS)
        read_dumped_call(reading, json, found);
    else if (found->kind == COLL_RECORDED_SEND || found->kind == COLL_RECORDED_RECV)
        found->peer = (uint32_t)number_member(reading, json, "peer", SW_COLL_RANKS_MAX - 1);
    else {
        found->number = name_member(reading, json, "child");
        found->color = small_member(reading, json, "color");
        found->key = small_member(reading, json, "key");
    }
    if (found->peer >= reading->dump->seen.page.size)
        refuse_dump(reading, "an operation names rank %u, which there is not", found->peer);
}

static void read_dumped_operations(struct reading *reading, const json_t *json)
{
    const json_t *list = json_object_get(json, "operations");
    struct coll_dump *dump = reading->dump;
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count > COLL_RECORDS) {
        refuse_dump(reading, "\"operations\" is no list of %u at most", (unsigned)COLL_RECORDS);
        return;
    }
    dump->operations = calloc(count + 1, sizeof(*dump->operations));
    dump->numbers = calloc(COLL_RECORDED_COUNTS, sizeof(*dump->numbers));
    dump->found = calloc(count + 1, sizeof(struct coll_dumped *));
    if (!dump->operations || !dump->numbers || !dump->found) {
        refuse_dump(reading, "out of memory");
        return;
    }
    for (size_t i = 0; i < count && !reading->is_bad; i++)
        read_dumped_operation(reading, json_array_get(list, i), &dump->operations[i]);
    dump->count = count;
}

/* ---- finding one ---- */

/* Operations come first, then messages, by their peers, each by number. */
static int compare_dumped(const void *one, const void *other)
{
    const struct coll_dumped *a = *(const struct coll_dumped *const *)one;
    const struct coll_dumped *b = *(const struct coll_dumped *const *)other;
    const bool is_call = a->kind < SW_COLL_KINDS && b->kind < SW_COLL_KINDS;
    if (!is_call && a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (!is_call && a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static const struct coll_dumped *find_alike(const struct coll_dump *dump, struct coll_dumped wanted)
{
    const struct coll_dumped *key = &wanted;
    const struct coll_dumped **found =
        bsearch(&key, dump->found, dump->count, sizeof(struct coll_dumped *), compare_dumped);
    return found ? *found : NULL;
}

const struct coll_dumped *coll_dump_find(const struct coll_dump *dump, uint64_t number)
{
    return find_alike(dump, (struct coll_dumped){.number = number});
}

const struct coll_dumped *coll_dump_find_message(const struct coll_dump *dump,
                                                 enum coll_recorded_kind kind, uint32_t peer,
                                                 uint64_t number)
{
    return find_alike(dump, (struct coll_dumped){.kind = kind, .peer = peer, .number = number});
}

static void order_operations(struct coll_dump *dump)
{
    for (size_t i = 0; i < dump->count; i++)
        dump->found[i] = &dump->operations[i];
    qsort(dump->found, dump->count, sizeof(struct coll_dumped *), compare_dumped);
}

/* ---- the whole ---- */

/* Each rank once. */
static void places_member(struct reading *reading, const json_t *site, struct coll_dump *dump)
{
    const json_t *list = json_object_get(site, "places");
    const uint32_t size = dump->seen.page.size;
    uint8_t is_there[SW_COLL_RANKS_MAX / 8] = {0};
    for (uint32_t place = 0; place < size; place++)
        dump->ranks[place] = dump->places[place] = (uint16_t)place;
    if (!list || json_is_null(list))
        return;
    if (!json_is_array(list) || json_array_size(list) != size ||
        !ranks_member(reading, site, "places", is_there))
        refuse_dump(reading, "\"places\" has not a place for each rank");
    for (uint32_t place = 0; !reading->is_bad && place < size; place++) {
        const uint32_t rank = (uint32_t)json_integer_value(json_array_get(list, place));
        if (!(is_there[place / 8] & 1u << place % 8))
            refuse_dump(reading, "\"places\" lacks rank %u", place);
        dump->ranks[place] = (uint16_t)rank;
        dump->places[rank] = (uint16_t)place;
    }
}

static void read_dumped_site(struct reading *reading, const json_t *json,
                             struct coll_page_about *about)
{
    const json_t *site = json_object_get(json, "site");
    about->host = name_member(reading, json, "host_id");
    about->parent_rank =
        (uint32_t)number_member(reading, json, "parent_rank", SW_COLL_RANKS_MAX - 1);
    about->eager_bytes = (uint32_t)number_member(reading, site, "eager_bytes", UINT32_MAX);
    about->scratch_bytes = number_member(reading, site, "scratch_bytes", INT64_MAX);
    about->request_bytes = (uint32_t)number_member(reading, site, "request_bytes", UINT32_MAX);
    about->timeout_ms = (uint32_t)number_member(reading, site, "timeout_ms", UINT32_MAX);
    about->wanted = word_member(reading, site, "algorithm", COLL_WORDS_PLAN, COLL_PLAN_ANY);
    about->order = word_member(reading, site, "order", COLL_WORDS_ORDER, SW_COLL_ORDER_TREE);
    text_member(json, "host", about->host_name, sizeof(about->host_name));
    places_member(reading, site, reading->dump);
}

static void read_dumped_state(struct reading *reading, const json_t *json,
                              struct coll_page_state *state)
{
    const json_t *now = json_object_get(json, "state");
    state->activity =
        (uint8_t)word_member(reading, now, "activity", COLL_WORDS_ACTIVITY, COLL_IN_OPERATION);
    state->kind = (uint8_t)word_member(reading, now, "collective", COLL_WORDS_KIND, 0);
    state->number = number_member(reading, now, "number", INT64_MAX);
    state->message = number_member(reading, now, "message", INT64_MAX);
    state->step = (uint32_t)number_member(reading, now, "step", UINT32_MAX);
    state->steps = (uint32_t)number_member(reading, now, "steps", UINT32_MAX);
    state->since_ns = time_member(reading, now, "since_ns");
    state->is_waiting = ranks_member(reading, now, "waits_for", state->awaited);
    ranks_member(reading, now, "blocked_by", state->blocking);
    if (state->kind >= SW_COLL_KINDS)
        refuse_dump(reading, "\"collective\" of \"state\" is no operation");
}

static void read_dumped_failure(struct reading *reading, const json_t *json,
                                struct coll_page_failure *failure)
{
    const json_t *error = json_object_get(json, "error");
    if (!json_is_object(error))
        return;
    failure->status = word_member(reading, error, "status", COLL_WORDS_STATUS, SW_COLL_SYSTEM);
    failure->failed_ns = time_member(reading, error, "failed_ns");
    text_member(error, "text", failure->text, sizeof(failure->text));
    ranks_member(reading, error, "gone", failure->gone);
    if (!failure->failed_ns)
        failure->failed_ns = 1;
}

static void read_dumped_header(struct reading *reading, const json_t *json)
{
    struct coll_page *page = &reading->dump->seen.page;
    const char *format = json_string_value(json_object_get(json, "format"));
    if (!format || strcmp(format, COLL_DUMP_FORMAT) != 0)
        refuse_dump(reading, "it is no dump: \"format\" is not \"" COLL_DUMP_FORMAT "\"");
    else if (number_member(reading, json, "version", INT64_MAX) != COLL_DUMP_VERSION)
        refuse_dump(reading, "it has another \"version\" than %u", (unsigned)COLL_DUMP_VERSION);
    page->job = name_member(reading, json, "job");
    page->parent = name_member(reading, json, "parent");
    page->size = (uint32_t)number_member(reading, json, "ranks", SW_COLL_RANKS_MAX);
    page->rank = (uint32_t)number_member(reading, json, "rank", SW_COLL_RANKS_MAX - 1);
    page->pid = (uint32_t)number_member(reading, json, "pid", UINT32_MAX);
    page->ended = number_member(reading, json, "ended", INT64_MAX);
    if (!page->job || page->rank >= page->size)
        refuse_dump(reading, "it has no \"job\", or \"rank\" is none of \"ranks\"");
}

struct coll_dump *coll_dump_of_json(const json_t *json, char *error, size_t room)
{
    struct reading reading = {.error = error, .room = room};
    struct coll_dump *dump = reading.dump = calloc(1, sizeof(*dump));
    if (!dump) {
        snprintf(error, room, "out of memory");
        return NULL;
    }
    read_dumped_header(&reading, json);
    dump->monotonic_ns = time_member(&reading, json, "monotonic_ns");
    dump->realtime_ns = time_member(&reading, json, "realtime_ns");
    dump->seen.process =
        word_member(&reading, json, "process", COLL_WORDS_PROCESS, COLL_PROCESS_ALIVE);
    read_dumped_site(&reading, json, &dump->seen.page.about);
    read_dumped_state(&reading, json, &dump->seen.page.state);
    read_dumped_failure(&reading, json, &dump->seen.page.failure);
    read_dumped_operations(&reading, json);
    if (!reading.is_bad) {
        order_operations(dump);
        return dump;
    }
    coll_dump_free(dump);
    return NULL;
}

struct coll_dump *coll_dump_of_text(const char *text, size_t bytes, char *error, size_t room)
{
    json_error_t why;
    json_t *json =
        bytes <= COLL_DUMP_BYTES_MAX ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (!json) {
        if (bytes > COLL_DUMP_BYTES_MAX)
            snprintf(error, room, "it has more than %u MiB", COLL_DUMP_BYTES_MAX >> 20);
        else
            snprintf(error, room, "it is no JSON, in line %d", why.line);
        return NULL;
    }
    struct coll_dump *dump = coll_dump_of_json(json, error, room);
    json_decref(json);
    return dump;
}

void coll_dump_free(struct coll_dump *dump)
{
    if (!dump)
        return;
    free(dump->operations);
    free(dump->found);
    free(dump->numbers);
    free(dump);
}

struct sw_coll_call coll_dump_call(const struct coll_dumped *operation)
{
    return (struct sw_coll_call){.kind = (enum sw_coll_kind)operation->kind,
                                 .type = (enum sw_coll_type)operation->type,
                                 .op = (enum sw_coll_op)operation->op,
                                 .root = operation->peer,
                                 .count = operation->count,
                                 .leaves = operation->leaves,
                                 .counts = operation->counts,
                                 .recv_counts = operation->recv_counts};
}

struct coll_site coll_dump_site(const struct coll_dump *dump)
{
    const struct coll_page *page = &dump->seen.page;
    return (struct coll_site){.rank = page->rank,
                              .size = page->size,
                              .eager_bytes = page->about.eager_bytes,
                              .wanted = (enum coll_plan)page->about.wanted,
                              .scratch_bytes = page->about.scratch_bytes,
                              .request_max = page->about.request_bytes,
                              .ranks = dump->ranks,
                              .places = dump->places};
}
