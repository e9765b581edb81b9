/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire pmem log`: a record is a line. append, trim, recover and bench become the log's writer;
 * read, tail and status only read, and the writer does not notice them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/bench.h"
#include "common/text/endpoint.h"
#include "common/time/clock.h"
#include "pmem/command/command.h"
#include "sidewire/pmem_log.h"

enum { PLACE_MAX = 128, FOLLOW_MS = 1000, RETRY_MS = 20, SILENT_MS = 2000 };

/* Where a copy is: "ADDR", "ADDR:PORT", "[ADDR]:PORT", each with "/REGION" behind it or not. */
struct place {
    char text[PLACE_MAX];
    const char *address, *port, *region;
};

struct log_args {
    const char *command;
    struct place places[SW_PMEM_LOG_COPIES_MAX];
    struct sw_pmem_options copies[SW_PMEM_LOG_COPIES_MAX];
    struct sw_pmem_log_options options;
    struct sw_pmem_log_geometry geometry;
    uint64_t before;
    struct mover_bench appends; /* of bench */
    uint32_t wait_ms;
    bool replaces, is_json, has_before;
    bool new_only, stops; /* of tail */
    struct sw_pmem_log *log;
};

static bool parse_place(struct place *place, const char *text)
{
    char *at = place->text;
    if (strlen(text) >= PLACE_MAX)
        return false;
    strcpy(at, text);
    char *slash = strchr(at, '/');
    if (slash) {
        *slash = '\0';
        place->region = slash + 1;
    }
    return mover_split_endpoint(at, &place->address, &place->port);
}

static void take_copy(struct argp_state *state, void *arguments, char *text)
{
    struct log_args *args = arguments;
    const uint32_t at = args->options.copies_count;
    if (at == SW_PMEM_LOG_COPIES_MAX)
        argp_error(state, "a log has at most %u copies", SW_PMEM_LOG_COPIES_MAX);
    struct place *place = &args->places[at];
    if (!parse_place(place, text))
        argp_error(state, "a copy is ADDR[:PORT][/REGION], not '%s'", text);
    struct sw_pmem_options *copy = &args->copies[at];
    sw_pmem_options_init(copy);
    copy->address = place->address;
    copy->port = place->port;
    copy->region = place->region;
    copy->label = args->command;
    args->options.copies_count++;
}

static void take_before(struct argp_state *state, void *place, char *text)
{
    struct log_args *args = place;
    mover_take_bytes(state, &args->before, text);
    args->has_before = true;
}

#define LOG(member) offsetof(struct log_args, member)

static const struct mover_option options[] = {
    {"copy", 0, "ADDR[:PORT][/REGION]", 0,
     "A server that has a copy; 1 to 5 times, always in the same order", 1, take_copy, 0},
    {.letter = 'c', .flags = MOVER_OLD},
    {"wait", 0, "MS", 0, "How long a quorum, or an append, is waited for (30000)", 1,
     MOVER_TO(struct log_args, wait_ms)},
    {"visible-only", 0, NULL, 0, "Flushes for processors only: outlives no power cut", 1,
     MOVER_TO(struct log_args, options.visible_only)},
    {"ring", 0, "BYTES", 0, "create: what the log holds (1M)", 2,
     MOVER_TO(struct log_args, geometry.ring_bytes)},
    {.letter = 'S', .flags = MOVER_OLD},
    {"record", 0, "BYTES", 0, "create: the longest record (4096)", 2,
     MOVER_TO(struct log_args, geometry.record_bytes)},
    {.letter = 'b', .flags = MOVER_OLD},
    {"count", 0, "N", 0, "bench: how many records of 64 bytes are appended (10000)", 2,
     mover_take_bench_count, LOG(appends)},
    {"runtime", 0, "S", 0,
     "bench: ends after so many seconds, too (10; with --count alone it does not)", 2,
     mover_take_bench_runtime, LOG(appends)},
    {"replace", 0, NULL, 0, "create: also where there is a log", 2,
     MOVER_TO(struct log_args, replaces)},
    {"before", 0, "NUMBER", 0, "trim: records with lower numbers are forgotten", 2, take_before, 0},
    {.letter = 'n', .flags = MOVER_OLD},
    {"new", 0, NULL, 0, "tail: only records that come from now on", 2,
     MOVER_TO(struct log_args, new_only)},
    {"no-follow", 0, NULL, 0, "tail: ends behind the last record that is there", 2,
     MOVER_TO(struct log_args, stops)},
    {"output-format", 'o', "FORMAT", 0, "status, recover and bench: normal or json", 3,
     mover_take_format, LOG(is_json)},
    {0},
};

static void check_log(struct argp_state *state, void *arguments)
{
    const struct log_args *args = arguments;
    if (!args->options.copies_count)
        argp_error(state, "where is the log? --copy ADDR, for each of its copies");
    if (args->command && !strcmp(args->command, "trim") && !args->has_before) {
        mover_fail("up to which? --before NUMBER");
        exit(MOVER_USAGE);
    }
}

/* What happened, and why where that says more. */
static int log_fail_open(enum sw_pmem_log_status status, const struct sw_pmem_error *error)
{
    const char *what = sw_pmem_log_status_text(status);
    const bool says_more = error->text[0] && strcmp(error->text, what) != 0;
    return mover_fail("%s%s%s%s", what, says_more ? ": " : "", says_more ? error->text : "",
                      status == SW_PMEM_LOG_NO_LOG ? "; 'sidewire pmem log create' makes one "
                                                     "where there is none"
                                                   : "");
}

/* Nobody waits in silence: a first try is short, and what keeps it is told before the second. */
static uint32_t first_wait(const struct log_args *args)
{
    return args->wait_ms < SILENT_MS ? args->wait_ms : SILENT_MS;
}

static bool waits_on(struct log_args *args, enum sw_pmem_log_status status,
                     const struct sw_pmem_error *error)
{
    if (status != SW_PMEM_LOG_TIMEOUT || args->wait_ms <= SILENT_MS)
        return false;
    args->wait_ms -= SILENT_MS;
    mover_fail("too few copies answer: %s; trying again for %u s",
               error->text[0] ? error->text : sw_pmem_log_status_text(status),
               args->wait_ms / 1000);
    return true;
}

/* ---- the commands ---- */

static int create_log(struct log_args *args)
{
    struct sw_pmem_error error;
    const enum sw_pmem_log_status status =
        sw_pmem_log_create(&args->options, &args->geometry, args->replaces,
                           sw_pmem_deadline_ms(args->wait_ms), &error);
    if (!status)
        return MOVER_DONE;
    return mover_fail("%s%s", error.text[0] ? error.text : sw_pmem_log_status_text(status),
                      status == SW_PMEM_LOG_EXISTS ? "; --replace destroys it" : "");
}

/* Says the number of each record that is acknowledged. */
static int append_records(struct log_args *args)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int code = MOVER_DONE;
    while (!code && (len = getline(&line, &room, stdin)) >= 0) {
        struct sw_pmem_log_mark mark = {0};
        len -= len && line[len - 1] == '\n';
        const enum sw_pmem_log_status status = sw_pmem_log_append(
            args->log, line, (uint32_t)len, sw_pmem_deadline_ms(args->wait_ms), &mark);
        if (status)
            code = mover_fail("%s%s", status == SW_PMEM_LOG_TIMEOUT ? "it may still happen: " : "",
                              sw_pmem_log_status_text(status));
        else
            printf("%" PRIu64 "\n", mark.sequence - 1);
        fflush(stdout);
    }
    free(line);
    return code;
}

/* The record behind `mark`; false: there is none, or `code` says why not. */
static bool next_record(struct log_args *args, struct sw_pmem_log_mark *mark, char *record,
                        uint32_t room, uint32_t *bytes, int *code)
{
    const enum sw_pmem_log_status status =
        sw_pmem_log_read(args->log, mark, record, room, bytes, sw_pmem_deadline_ms(args->wait_ms));
    if (status && status != SW_PMEM_LOG_END)
        *code = mover_fail("%s", sw_pmem_log_status_text(status));
    return !status;
}

static int trim_log(struct log_args *args)
{
    struct sw_pmem_log_info info;
    struct sw_pmem_log_mark mark;
    uint32_t bytes = 0;
    int code = MOVER_DONE;
    sw_pmem_log_info_of(args->log, &info);
    char *record = malloc(info.record_bytes + 1ul);
    if (!record)
        return mover_fail("%s", sw_pmem_log_status_text(SW_PMEM_LOG_NO_MEMORY));
    sw_pmem_log_head(args->log, &mark);
    while (mark.sequence < args->before &&
           next_record(args, &mark, record, info.record_bytes, &bytes, &code))
        ;
    free(record);
    const enum sw_pmem_log_status status =
        code ? SW_PMEM_LOG_OK : sw_pmem_log_trim(args->log, &mark);
    return status ? mover_fail("%s", sw_pmem_log_status_text(status)) : code;
}

static const char *const copy_states[] = {"lost", "behind", "live", "damaged", "silent", "answers"};

/* Each with its place, as it is given to --copy. */
static void show_copies(const struct log_args *args, const struct sw_pmem_log_info *info,
                        const struct sw_pmem_error *errors)
{
    for (uint32_t i = 0; i < info->copies; i++) {
        const struct place *place = &args->places[i];
        const bool is_ipv6 = strchr(place->address, ':');
        printf("copy %u    %-8s %s%s%s", i + 1, copy_states[info->states[i]], is_ipv6 ? "[" : "",
               place->address, is_ipv6 ? "]" : "");
        printf("%s%s%s%s%s%s\n", place->port ? ":" : "", place->port ? place->port : "",
               place->region ? "/" : "", place->region ? place->region : "",
               errors[i].text[0] ? "  " : "", errors[i].text);
    }
}

/* Where there is a log: without one no copy has anything to be saved. */
static void advise_damaged(const struct sw_pmem_log_info *info)
{
    bool any = false;
    for (uint32_t i = 0; i < info->copies; i++)
        any |= info->states[i] == SW_PMEM_LOG_COPY_DAMAGED;
    if (any)
        puts("No writer mends a damaged copy. 'sidewire pmem log read' saves the records, and "
             "'sidewire pmem\nlog create --replace' makes a new log, for 'append' to put them "
             "into.");
}

/* The state of each copy, and why. */
static json_t *pack_copies(const struct sw_pmem_log_info *info, const struct sw_pmem_error *errors)
{
    json_t *copies = json_array(), *whys = json_array();
    for (uint32_t i = 0; i < info->copies; i++) {
        json_array_append_new(copies, json_string(copy_states[info->states[i]]));
        json_array_append_new(whys, errors[i].text[0] ? json_string(errors[i].text) : json_null());
    }
    return json_pack("{s:i, s:o, s:o}", "quorum", (int)info->quorum, "copies", copies, "reasons",
                     whys);
}

static void show_records(const struct sw_pmem_log_info *info)
{
    if (info->next_sequence > info->first_sequence)
        printf("records   %" PRIu64 " to %" PRIu64 ", up to %u bytes each\n", info->first_sequence,
               info->next_sequence - 1, info->record_bytes);
    else
        printf("records   none, up to %u bytes each\n", info->record_bytes);
    printf("ring      %" PRIu64 " of %" PRIu64 " bytes used\n", info->used_bytes, info->ring_bytes);
    printf("epoch     %" PRIu64 "\n", info->epoch);
}

/* Where no quorum shows the log, the copies alone. */
static int show_status(const struct log_args *args, const struct sw_pmem_log_info *info,
                       const struct sw_pmem_error *errors, bool is_log)
{
    if (args->is_json) {
        json_t *seen = pack_copies(info, errors);
        if (info->ready)
            json_object_update_new(seen, json_pack("{s:I, s:I, s:I, s:I, s:I, s:i}", "ring_bytes",
                                                   (json_int_t)info->ring_bytes, "used_bytes",
                                                   (json_int_t)info->used_bytes, "epoch",
                                                   (json_int_t)info->epoch, "first_record",
                                                   (json_int_t)info->first_sequence, "next_record",
                                                   (json_int_t)info->next_sequence, "record_bytes",
                                                   (int)info->record_bytes));
        return mover_print_json(seen);
    }
    if (info->ready)
        show_records(info);
    show_copies(args, info, errors);
    if (is_log)
        advise_damaged(info);
    return MOVER_DONE;
}

/* One after another; what does not fit any more, it forgets. */
static int bench_log(struct log_args *args)
{
    static const char record[64] = "a record of the benchmark";
    struct sw_pmem_log_mark mark = {0};
    struct mover_bench *appends = &args->appends;
    enum sw_pmem_log_status status = SW_PMEM_LOG_OK;
    appends->request_bytes = sizeof(record);
    mover_bench_begin(appends);
    while (!status && mover_bench_goes_on(appends)) {
        const uint64_t start = mover_now_ns();
        status = sw_pmem_log_append(args->log, record, sizeof(record),
                                    sw_pmem_deadline_ms(args->wait_ms), &mark);
        if (status == SW_PMEM_LOG_FULL && mark.position)
            status = sw_pmem_log_trim(args->log, &mark);
        else if (!status)
            mover_bench_add(appends, start);
    }
    mover_bench_end(appends);
    if (status)
        return mover_fail("%s", sw_pmem_log_status_text(status));
    return mover_bench_print(appends, args->is_json, "append",
                             json_pack("{sI sI}", "bs", (json_int_t)sizeof(record), "count",
                                       (json_int_t)appends->latency.count));
}

/* ---- reading beside the writer ---- */

/* Too few copies show what is acknowledged: a writer died before it had them, or lives. */
static int fail_reading(enum sw_pmem_log_status status)
{
    return mover_fail("%s%s", sw_pmem_log_status_text(status),
                      status == SW_PMEM_LOG_TIMEOUT
                          ? ": too few copies show up to where records are acknowledged. If nobody "
                            "writes the log, 'sidewire pmem log recover' finds out"
                          : "");
}

/* What was read before is whole: the copies' words say more than their records bear out. */
static int fail_behind(enum sw_pmem_log_status status, const struct sw_pmem_log_mark *mark)
{
    if (status != SW_PMEM_LOG_DAMAGED)
        return fail_reading(status);
    return mover_fail("%s. Records before %" PRIu64
                      " are whole; 'sidewire pmem log create --replace' makes a new log, for "
                      "'append' to put them into",
                      sw_pmem_log_status_text(status), mark->sequence);
}

/* `log follow` goes on after these. */
static bool is_passing(enum sw_pmem_log_status status, bool waits, uint64_t give_up_ns)
{
    return status == SW_PMEM_LOG_OK || status == SW_PMEM_LOG_TRIMMED ||
           (status == SW_PMEM_LOG_END && waits) ||
           (status == SW_PMEM_LOG_TIMEOUT && (waits || sw_pmem_deadline_ms(0) < give_up_ns));
}

/* Reads on until there is no more record, or for ever. Copies that do not answer are waited for
 * from the last record on. */
static int follow_log(struct log_args *args, struct sw_pmem_log_reader *reader,
                      struct sw_pmem_log_mark *mark, bool waits, bool prints)
{
    uint64_t give_up_ns = sw_pmem_deadline_ms(args->wait_ms);
    const uint32_t room = sw_pmem_log_reader_record_bytes(reader);
    char *record = malloc(room + 1ul);
    uint32_t bytes = 0;
    enum sw_pmem_log_status status = record ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_MEMORY;
    while (is_passing(status, waits, give_up_ns)) {
        const uint64_t sequence = mark->sequence;
        status =
            sw_pmem_log_reader_next(reader, mark, record, room, &bytes,
                                    sw_pmem_deadline_ms(waits                           ? FOLLOW_MS
                                                        : status == SW_PMEM_LOG_TIMEOUT ? RETRY_MS
                                                                                        : 0));
        if (status == SW_PMEM_LOG_OK || status == SW_PMEM_LOG_TRIMMED)
            give_up_ns = sw_pmem_deadline_ms(args->wait_ms);
        if (status == SW_PMEM_LOG_TRIMMED && prints)
            mover_fail("records %" PRIu64 " to %" PRIu64 " were trimmed before they were read",
                       sequence, mark->sequence - 1);
        if (status || !prints)
            continue;
        printf("%" PRIu64 " %.*s\n", mark->sequence - 1, (int)bytes, record);
        fflush(stdout);
    }
    free(record);
    return status == SW_PMEM_LOG_END ? MOVER_DONE : fail_behind(status, mark);
}

static int tail_log(struct log_args *args, struct sw_pmem_log_reader *reader)
{
    struct sw_pmem_log_mark mark;
    const enum sw_pmem_log_status status =
        sw_pmem_log_reader_head(reader, &mark, sw_pmem_deadline_ms(args->wait_ms));
    int code = status ? fail_reading(status) : MOVER_DONE;
    if (!code && (args->stops || args->new_only))
        code = follow_log(args, reader, &mark, false, !args->new_only);
    if (!code && !args->stops)
        code = follow_log(args, reader, &mark, true, true);
    return code;
}

/* What each copy says, also where that is not enough to know the log. */
static int survey_log(struct log_args *args)
{
    struct sw_pmem_log_info info;
    struct sw_pmem_error error, errors[SW_PMEM_LOG_COPIES_MAX];
    enum sw_pmem_log_status status = sw_pmem_log_survey(
        &args->options, sw_pmem_deadline_ms(first_wait(args)), &info, errors, &error);
    if (waits_on(args, status, &error))
        status = sw_pmem_log_survey(&args->options, sw_pmem_deadline_ms(args->wait_ms), &info,
                                    errors, &error);
    const int code =
        info.copies ? show_status(args, &info, errors, status != SW_PMEM_LOG_NO_LOG) : MOVER_DONE;
    if (!status)
        return code;
    fflush(stdout);
    return info.ring_bytes ? fail_reading(status) : log_fail_open(status, &error);
}

static int with_reader(struct log_args *args)
{
    struct sw_pmem_log_reader *reader = NULL;
    struct sw_pmem_error error;
    enum sw_pmem_log_status status = sw_pmem_log_reader_open(
        &args->options, sw_pmem_deadline_ms(first_wait(args)), &error, &reader);
    if (waits_on(args, status, &error))
        status = sw_pmem_log_reader_open(&args->options, sw_pmem_deadline_ms(args->wait_ms), &error,
                                         &reader);
    if (status)
        return log_fail_open(status, &error);
    const int code = tail_log(args, reader);
    sw_pmem_log_reader_close(reader);
    return code;
}

static int show_recovered(const struct log_args *args)
{
    struct sw_pmem_log_info info;
    const struct sw_pmem_error errors[SW_PMEM_LOG_COPIES_MAX] = {{0}};
    sw_pmem_log_info_of(args->log, &info);
    return show_status(args, &info, errors, true);
}

static int with_log(struct log_args *args)
{
    struct sw_pmem_error error;
    enum sw_pmem_log_status opened =
        sw_pmem_log_open(&args->options, sw_pmem_deadline_ms(first_wait(args)), &error, &args->log);
    if (waits_on(args, opened, &error))
        opened = sw_pmem_log_open(&args->options, sw_pmem_deadline_ms(args->wait_ms), &error,
                                  &args->log);
    if (opened)
        return log_fail_open(opened, &error);
    const int code = !strcmp(args->command, "append")    ? append_records(args)
                     : !strcmp(args->command, "recover") ? show_recovered(args)
                     : !strcmp(args->command, "bench")   ? bench_log(args)
                                                         : trim_log(args);
    sw_pmem_log_close(args->log);
    return code;
}

int pm_log(int argc, char **argv)
{
    static const char *const commands[] = {"create", "append", "read",    "tail",
                                           "trim",   "status", "recover", "bench"};
    static const struct mover_usage usage = {
        .words = "create|append|read|tail|trim|status|recover|bench",
        .about =
            "A log on one to five regions: what it acknowledges is persistent on most of them.\v"
            "Examples, for three copies:\n"
            "  C='--copy 192.0.2.1 --copy 192.0.2.2 --copy 192.0.2.3'\n"
            "  sidewire pmem log create $C --ring 64M\n"
            "  journalctl -f | sidewire pmem log append $C\n"
            "  sidewire pmem log read $C\n",
        .own = {.rows = options, .check = check_log}};
    static struct log_args args = {.wait_ms = 30000, .geometry = {1 << 20, 4096}};
    sw_pmem_log_options_init(&args.options);
    args.options.copies = args.copies;
    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
        if (!strcmp(argv[1], commands[i]))
            args.command = commands[i];
    if (!args.command) {
        mover_parse(&usage, argc > 1 && argv[1][0] == '-' ? argc : 1, argv, &args);
        return MOVER_USAGE;
    }
    argv[1] = mover_front_enter(args.command);
    mover_parse(&usage, argc - 1, argv + 1, &args);
    args.stops |= !strcmp(args.command, "read");
    if (!strcmp(args.command, "status"))
        return survey_log(&args);
    if (!strcmp(args.command, "tail") || !strcmp(args.command, "read"))
        return with_reader(&args);
    return !strcmp(args.command, "create") ? create_log(&args) : with_log(&args);
}
