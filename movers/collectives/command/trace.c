/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll trace`: what a rank does for an operation, step by step. Nothing is run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/command/command.h"
#include "collectives/command/dumps.h"
#include "collectives/command/perf.h"
#include "collectives/command/words.h"
#include "collectives/core/plan.h"
#include "collectives/dump/read.h"
#include "common/command/option.h"
#include "common/command/remote.h"
#include "common/command/table.h"

enum { STEP_TEXT = 200, COLL_LINE_BYTES = 64 };

/* Where buffers would be: so far apart that they never overlap. Nothing is read there. */
#define SEND_AT (1ull << 12)
#define RECV_AT (1ull << 62)

#define NO_NUMBER UINT64_MAX /* none was said */

struct trace {
    enum sw_coll_kind kind;
    uint32_t type, op, root, ranks, rank;
    uint64_t bytes;
    const char *algorithm, *dump;
    uint64_t number;
    bool is_json, has_kind;
};

static void take_traced_kind(struct argp_state *state, void *arguments, char *text)
{
    struct trace *trace = arguments;
    if (trace->has_kind)
        argp_error(state, "\"%s\" is a second operation: look at one at a time", text);
    trace->has_kind = true;
    co_take_kind(state, &trace->kind, text);
}

static void check_trace(struct argp_state *state, void *arguments)
{
    const struct trace *trace = arguments;
    if (!trace->ranks || trace->ranks > SW_COLL_RANKS_MAX)
        argp_error(state, "there are 1 to %d ranks (--ranks)", SW_COLL_RANKS_MAX);
    if (trace->rank >= trace->ranks || trace->root >= trace->ranks)
        argp_error(state, "--rank and the root are less than --ranks");
    if (trace->type == SW_COLL_TYPES || trace->op == SW_COLL_OPS)
        argp_error(state, "steps are those of one type and one operator");
    if (!trace->bytes)
        argp_error(state, "a buffer has at least 1 byte (--size)");
    if (trace->bytes > INT64_MAX / 8)
        argp_error(state, "that are too many bytes (--size)");
    if (!trace->dump != (trace->number == NO_NUMBER))
        argp_error(state, "--dump and --number go together: the file, and which operation of it");
}

#define TRACE(member) offsetof(struct trace, member)

static const struct mover_option options[] = {
    {"ranks", 0, "N", 0, "How many ranks there are (4)", 1, MOVER_TO(struct trace, ranks)},
    {"rank", 0, "R", 0, "Whose steps are shown (0)", 1, MOVER_TO(struct trace, rank)},
    {"size", 0, "BYTES", 0, "Of the longest buffer of a rank (64K)", 1,
     MOVER_TO(struct trace, bytes)},
    {"op", 'o', "OP", 0, "sum, prod, min, max or avg (sum)", 2, co_take_op, TRACE(op)},
    {"datatype", 'd', "TYPE", 0, "Type of the elements (f32)", 2, co_take_type, TRACE(type)},
    {"root", 'r', "R", 0, "Root of broadcast, reduce, gather and scatter (0)", 2,
     MOVER_TO(struct trace, root)},
    {"algorithm", 0, "NAME", 0, "The way to go (the fastest)", 2, co_take_algorithm,
     TRACE(algorithm)},
    {"dump", 0, "FILE", 0, "Of an operation in this dump, in place of all that", 3,
     MOVER_TO(struct trace, dump)},
    {"number", 0, "N", 0, "Its number", 3, MOVER_TO(struct trace, number)},
    {"output-format", 0, "FORMAT", 0, "normal or json", 4, mover_take_format, TRACE(is_json)},
    {0},
};

static const struct mover_column columns[] = {
    {"STEP", "step", .width = 4}, {"TIMES", "times", .width = 6}, {"WHAT", "text", .gap = 1}, {0}};

static json_t *json_of_step(const struct coll_table *table, uint32_t step)
{
    char text[STEP_TEXT];
    const bool is_loop = step >= table->loop && step < table->loop_end;
    coll_step_text(table, step, text, sizeof(text));
    return json_pack("{sI sI ss}", "step", (json_int_t)step, "times",
                     is_loop ? (json_int_t)table->chunks : 1, "text", text);
}

static int print_steps(const struct trace *trace, const struct coll_table *steps)
{
    struct mover_table table;
    if (!trace->is_json)
        printf("%s of rank %u of %u: %s\n", sw_coll_kind_name(trace->kind), trace->rank,
               trace->ranks, coll_plan_name(steps->plan));
    mover_table_open(&table, columns, trace->is_json);
    for (uint32_t step = 0; step < steps->count; step++)
        mover_table_add(&table, NULL, json_of_step(steps, step));
    return mover_table_close(
        &table, json_pack("{ss sI sI ss so}", "collective", sw_coll_kind_name(trace->kind), "ranks",
                          (json_int_t)trace->ranks, "rank", (json_int_t)trace->rank, "algorithm",
                          coll_plan_name(steps->plan), "rows", table.rows));
}

static int trace_table(struct trace *trace, const struct sw_coll_call *call,
                       const struct coll_site *site)
{
    struct sw_coll_error error;
    if (coll_call_check(call, site, &error))
        return mover_fail("%s", error.text);
    struct coll_table steps = {.steps = calloc(coll_steps_max(site->size), sizeof(*steps.steps)),
                               .room = coll_steps_max(site->size)};
    if (!steps.steps)
        return mover_fail("out of memory");
    trace->kind = call->kind;
    trace->ranks = site->size;
    trace->rank = site->rank;
    coll_plan_make(&steps, call, site);
    const int code = print_steps(trace, &steps);
    free(steps.steps);
    return code;
}

/* An operation that was recorded. What a stranger's dump says of its communicator may make no
 * sense. */
static int trace_dump(struct trace *trace)
{
    char error[200] = "";
    struct coll_dump *dump = co_dump_read(trace->dump, error, sizeof(error));
    if (!dump)
        return mover_fail("%s: %s", trace->dump, error);
    const struct coll_dumped *found = coll_dump_find(dump, trace->number);
    const struct coll_site site = coll_dump_site(dump);
    int code;
    if (!found)
        code = mover_fail("%s has no operation %" PRIu64, trace->dump, trace->number);
    else if ((found->has_counts && !found->counts) ||
             (found->has_recv_counts && !found->recv_counts))
        code =
            mover_fail("the counts of operation %" PRIu64 " are not kept any more", found->number);
    else if (site.scratch_bytes < coll_scratch_min(site.size, site.eager_bytes) ||
             site.request_max % COLL_LINE_BYTES)
        code = mover_fail("%s: its \"site\" makes no sense", trace->dump);
    else {
        struct sw_coll_call call = coll_dump_call(found);
        call.send = (const void *)(uintptr_t)SEND_AT;
        call.recv = (void *)(uintptr_t)RECV_AT;
        code = trace_table(trace, &call, &site);
    }
    coll_dump_free(dump);
    return code;
}

static int run_trace(struct trace *trace)
{
    struct sw_coll_options preset;
    sw_coll_options_init(&preset);
    struct coll_site site = {.rank = trace->rank,
                             .size = trace->ranks,
                             .eager_bytes = preset.eager_bytes,
                             .scratch_bytes = coll_scratch_fit(trace->ranks, preset.eager_bytes)};
    if (trace->algorithm)
        coll_plan_of_name(trace->algorithm, &site.wanted);
    const struct co_asked asked = {trace->kind, trace->type, trace->op, trace->root, trace->ranks};
    const struct co_row row = co_row_make(&asked, trace->bytes);
    const struct sw_coll_call call = {.kind = row.kind,
                                      .type = row.type,
                                      .op = row.op,
                                      .root = row.root,
                                      .count = row.count,
                                      .send = (const void *)(uintptr_t)SEND_AT,
                                      .recv = (void *)(uintptr_t)RECV_AT};
    return trace_table(trace, &call, &site);
}

int co_trace(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "[KIND]",
        .about = "Shows the steps of a rank for all_reduce, or another operation.",
        .own = {.rows = options, .word = take_traced_kind, .check = check_trace}};
    static struct trace trace = {.kind = SW_COLL_ALL_REDUCE,
                                 .type = SW_COLL_F32,
                                 .op = SW_COLL_SUM,
                                 .ranks = 4,
                                 .bytes = 64 << 10,
                                 .number = NO_NUMBER};
    mover_parse(&usage, argc, argv, &trace);
    return trace.dump ? trace_dump(&trace) : run_trace(&trace);
}
