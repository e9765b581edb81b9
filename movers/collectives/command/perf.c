/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll perf`: its options, in the words of nccl-tests, and its ranks. */
#include "collectives/command/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/command/command.h"
#include "collectives/command/launch.h"
#include "collectives/command/words.h"
#include "collectives/launch/meeting.h"
#include "collectives/launch/way.h"
#include "common/command/option.h"
#include "common/command/remote.h"

#define HERE "127.0.0.1"

/* ---- options ---- */

static void take_measured_kind(struct argp_state *state, void *arguments, char *text)
{
    struct co_perf *perf = arguments;
    if (perf->has_kind)
        argp_error(state, "\"%s\" is a second operation: measure one at a time", text);
    perf->has_kind = true;
    if (!strcmp(text, "sendrecv"))
        perf->kind = CO_SENDRECV;
    else
        co_take_kind(state, &perf->kind, text);
}

static bool is_svg(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix && !strcmp(suffix, ".svg");
}

static void check_perf(struct argp_state *state, void *arguments)
{
    struct co_perf *perf = arguments;
    if (!perf->min_bytes || perf->min_bytes > perf->max_bytes)
        argp_error(state, "sizes begin at 1 byte or more (-b), and end at no less (-e)");
    if (!perf->step_bytes && perf->factor < 2)
        argp_error(state, "the factor from size to size is at least 2 (-f)");
    if (!perf->iterations)
        argp_error(state, "there is at least one iteration (-n)");
    if (perf->is_checked > 1)
        argp_error(state, "-c is 1 or 0: whether results are checked");
    if (perf->ranks != CO_NOT_SAID && (!perf->ranks || perf->ranks > SW_COLL_RANKS_MAX))
        argp_error(state, "there are 1 to %d ranks (--ranks)", SW_COLL_RANKS_MAX);
    if (perf->rank != CO_NOT_SAID && (perf->ranks == CO_NOT_SAID || perf->rank >= perf->ranks))
        argp_error(state, "--rank R is less than --ranks N");
    if (perf->rank != CO_NOT_SAID && !perf->meet)
        argp_error(state, "where rank 0 is is missing (--meet HOST:PORT)");
    if (perf->max_bytes > INT64_MAX / 4)
        argp_error(state, "sizes end at less than that (-e)");
    if (perf->ranks != CO_NOT_SAID && perf->root >= perf->ranks)
        argp_error(state, "the root is one of the ranks: at most %u (-r)", perf->ranks - 1);
    if (perf->algorithm && !strcmp(perf->algorithm, "ring") && perf->order != SW_COLL_ORDER_ANY)
        argp_error(state, "a ring does not sum in the order of the tree: add --order any");
    if (!perf->deadline_ms)
        argp_error(state, "an operation has at least a millisecond (--deadline)");
    if (perf->plot && !is_svg(perf->plot))
        argp_error(state, "a plot is an SVG: its name ends in .svg (--plot)");
    if (perf->plot && perf->kind == SW_COLL_BARRIER)
        argp_error(state, "a barrier has no sizes: there is nothing to plot");
    if (!co_kind_folds(perf->kind))
        perf->op = SW_COLL_SUM;
    if (perf->kind == SW_COLL_BARRIER)
        perf->type = SW_COLL_U8;
}

#define PERF(member) offsetof(struct co_perf, member)

static const struct mover_option options[] = {
    {"ranks", 0, "N", 0, "Starts so many ranks on this host; with --rank: how many there are", 1,
     MOVER_TO(struct co_perf, ranks)},
    {"rank", 0, "R", 0, "Which one this is (as the launcher says)", 1,
     MOVER_TO(struct co_perf, rank)},
    {"meet", 0, "HOST:PORT", 0, "Where rank 0 waits for the others", 1,
     MOVER_TO(struct co_perf, meet)},
    {"local", 0, "ADDR", 0, "Address of the RDMA device here (that which leads to rank 0)", 1,
     mover_take_text, PERF(local)},
    {"minbytes", 'b', "BYTES", 0, "Size to begin with (8)", 2, MOVER_TO(struct co_perf, min_bytes)},
    {"maxbytes", 'e', "BYTES", 0, "Size to end with (64M)", 2, MOVER_TO(struct co_perf, max_bytes)},
    {"stepfactor", 'f', "FACTOR", 0, "From size to size (4)", 2, MOVER_TO(struct co_perf, factor)},
    {"stepbytes", 'i', "BYTES", 0, "From size to size, in place of a factor", 2,
     MOVER_TO(struct co_perf, step_bytes)},
    {"iters", 'n', "N", 0, "Operations of a measurement (20)", 2,
     MOVER_TO(struct co_perf, iterations)},
    {"warmup_iters", 'w', "N", 0, "Operations before it (5)", 2, MOVER_TO(struct co_perf, warmups)},
    {"check", 'c', "0/1", 0, "Whether results are checked (1)", 2,
     MOVER_TO(struct co_perf, is_checked)},
    {"op", 'o', "OP", 0, "sum, prod, min, max, avg or all (sum)", 3, co_take_op, PERF(op)},
    {"datatype", 'd', "TYPE", 0,
     "i8 to i64, u8 to u64, f16, bf16, f32, f64, NCCL's names, or all "
     "(f32)",
     3, co_take_type, PERF(type)},
    {"root", 'r', "R", 0, "Root of broadcast, reduce, gather and scatter (0)", 3,
     MOVER_TO(struct co_perf, root)},
    {"algorithm", 0, "NAME", 0, "The way to go (the fastest)", 3, co_take_algorithm,
     PERF(algorithm)},
    {"order", 0, "ORDER", 0, "Order of sums: tree, or any, which a ring needs (tree)", 3,
     co_take_order, PERF(order)},
    {"deadline", 0, "MS", 0, "When an operation is ended that is not done (60000)", 4,
     MOVER_TO(struct co_perf, deadline_ms)},
    {"output-format", 0, "FORMAT", 0, "normal or json", 4, mover_take_format, PERF(is_json)},
    {"plot", 0, "FILE", 0, "Draws bandwidth and time by size, as an SVG", 4, mover_take_text,
     PERF(plot)},
    {"verbose", 'v', NULL, 0, "Says which rank this is, and who says so", 4,
     MOVER_TO(struct co_perf, is_verbose)},
    {0},
};

/* ---- ranks ---- */

/* Where the ranks of this command meet, and a token: others on this host cannot join then. */
static bool choose_meeting(const struct co_perf *perf, struct sw_coll_launch *place)
{
    const char *host = perf->local ? perf->local : HERE;
    const char *wrong = coll_meeting_reserve(host, place->meet, sizeof(place->meet));
    if (wrong)
        mover_fail("%s: %s", host, wrong);
    return !wrong;
}

static bool take_meeting(const char *meet, struct sw_coll_launch *place)
{
    if (strlen(meet) < sizeof(place->meet)) {
        strcpy(place->meet, meet);
        return true;
    }
    mover_fail("%.40s...: that is no HOST:PORT", meet);
    return false;
}

struct crew_job {
    const struct co_perf *perf;
    struct sw_coll_launch place;
};

static int run_crew_rank(void *context, uint32_t rank)
{
    struct crew_job *crew = context;
    crew->place.rank = rank;
    return co_job_run(crew->perf, &crew->place);
}

static int run_crew(const struct co_perf *perf)
{
    struct crew_job crew = {perf, {.size = perf->ranks, .local_size = perf->ranks}};
    if (!(perf->meet ? take_meeting(perf->meet, &crew.place) : choose_meeting(perf, &crew.place)))
        return MOVER_FAILED;
    if (perf->is_verbose)
        fprintf(stderr, "sidewire coll perf: starts %u ranks, which meet at %s\n", perf->ranks,
                crew.place.meet);
    if (!coll_meeting_draw_token(crew.place.token, sizeof(crew.place.token)))
        crew.place.token[0] = '\0';
    return co_launch(perf->ranks, run_crew_rank, &crew);
}

/* One that a launcher has started, or that is told by its options which it is. */
static int run_alone(const struct co_perf *perf)
{
    struct sw_coll_launch place = {.rank = perf->rank, .size = perf->ranks};
    struct sw_coll_error error;
    if (perf->rank != CO_NOT_SAID) {
        if (!take_meeting(perf->meet, &place))
            return MOVER_FAILED;
        strcpy(place.launcher, "its options");
    } else {
        if (perf->meet)
            setenv("SIDEWIRE_COLL_MEET", perf->meet, 1);
        if (sw_coll_launch_find(&place, perf->deadline_ms, &error))
            return mover_fail("%s%s", error.text,
                              coll_launch_is_there()
                                  ? ""
                                  : ". Give --ranks N to start ranks here, or begin this by a "
                                    "launcher: 'mpirun -n 4 sidewire coll perf'");
    }
    if (perf->is_verbose)
        fprintf(stderr, "sidewire coll perf: rank %u of %u, by %s, meets at %s\n", place.rank,
                place.size, place.launcher, place.meet);
    return co_job_run(perf, &place);
}

int co_perf(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "[KIND]",
        .about = "Measures all_reduce, or another operation, of all ranks, or sendrecv: each rank "
                 "sends to the next one. Each result is checked. "
                 "Options, columns and figures are those of nccl-tests.",
        .own = {.rows = options, .word = take_measured_kind, .check = check_perf}};
    static struct co_perf perf = {.kind = SW_COLL_ALL_REDUCE,
                                  .type = SW_COLL_F32,
                                  .op = SW_COLL_SUM,
                                  .min_bytes = 8,
                                  .max_bytes = 64 << 20,
                                  .factor = 4,
                                  .iterations = 20,
                                  .warmups = 5,
                                  .is_checked = 1,
                                  .ranks = CO_NOT_SAID,
                                  .rank = CO_NOT_SAID,
                                  .deadline_ms = 60000};
    mover_parse(&usage, argc, argv, &perf);
    const bool is_launcher = perf.ranks != CO_NOT_SAID && perf.rank == CO_NOT_SAID;
    return is_launcher ? run_crew(&perf) : run_alone(&perf);
}
