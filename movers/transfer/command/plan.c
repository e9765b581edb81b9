/* SPDX-License-Identifier: BSD-2-Clause */
/* What it takes to hand a KV cache from one layout to another: blocks and bytes of each pair. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/command/remote.h"
#include "common/command/table.h"
#include "sidewire/transfer_plan.h"
#include "transfer/command/command.h"

enum { ORDER_BYTES = 16 };
struct side {
    struct sw_plan_side side;
    char order[ORDER_BYTES];
    bool is_told;
};

struct plan {
    struct sw_plan_model model;
    struct side from, to;
    uint64_t tokens;
    bool is_json;
    struct mover_table pairs;
    uint64_t blocks, bytes;
};

static void take_side(struct argp_state *state, void *place, char *text)
{
    struct side *side = place;
    char end;
    if (sscanf(text, "%15[LPBTH/]:%" SCNu32 ":%" SCNu32 "%c", side->order, &side->side.ranks,
               &side->side.block_tokens, &end) != 3)
        argp_error(state, "\"%s\" is no side; write L/PBTH:2:16", text);
    side->side.order = side->order;
    side->is_told = true;
}

static void check_sides(struct argp_state *state, void *arguments)
{
    const struct plan *plan = arguments;
    if (!plan->from.is_told || !plan->to.is_told)
        argp_error(state, "both sides are needed: --from SIDE --to SIDE");
}

#define PLAN(member) offsetof(struct plan, member)

static const struct mover_option options[] = {
    {"from", 0, "SIDE", 0, "ORDER:RANKS:TOKENS of the source, as L/PBTH:2:16", 1, take_side,
     PLAN(from)},
    {.letter = 'f', .flags = MOVER_OLD},
    {"to", 0, "SIDE", 0, "The same of the target", 1, take_side, PLAN(to)},
    {.letter = 't', .flags = MOVER_OLD},
    {"tokens", 0, "N", 0, "Tokens of the request (4096)", 1, MOVER_TO(struct plan, tokens)},
    {.letter = 'n', .flags = MOVER_OLD},
    {"layers", 0, "N", 0, "Layers of the model (32)", 2, MOVER_TO(struct plan, model.layers)},
    {"planes", 0, "N", 0, "2: keys and values; 1: one latent (2)", 2,
     MOVER_TO(struct plan, model.planes)},
    {"heads", 0, "N", 0, "KV heads of all ranks together (8)", 2,
     MOVER_TO(struct plan, model.heads)},
    {"head-elements", 0, "N", 0, "Elements of a head (128)", 2,
     MOVER_TO(struct plan, model.head_elements)},
    {"element-bytes", 0, "BYTES", 0, "Bytes of an element (2)", 2,
     MOVER_TO(struct plan, model.element_bytes)},
    MOVER_OPTION_FORMAT(PLAN(is_json)),
    {0},
};

static const struct mover_column columns[] = {{"SOURCE", "source", .width = 6},
                                              {"TARGET", "target", .width = 6},
                                              {"BLOCKS", "blocks", .width = 10},
                                              {"BYTES", "bytes", .width = 14},
                                              {"BYTES/BLOCK", "block_bytes", .width = 12},
                                              {0}};

/* A memory that has the request's blocks, one behind the other. */
static void fit_blocks(const struct plan *plan, struct sw_plan_side *side)
{
    const uint64_t tokens = side->block_tokens ? side->block_tokens : 1;
    const uint64_t blocks = (plan->tokens + tokens - 1) / tokens;
    side->blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX; /* too many, it says then */
}

static void show_pair(struct plan *plan, const struct sw_plan *pair)
{
    plan->blocks += pair->blocks;
    plan->bytes += pair->bytes;
    mover_table_add(&plan->pairs, NULL,
                    json_pack("{sI sI sI sI sI sI sI}", "source", (json_int_t)plan->from.side.rank,
                              "target", (json_int_t)plan->to.side.rank, "blocks",
                              (json_int_t)pair->blocks, "bytes", (json_int_t)pair->bytes,
                              "block_bytes", (json_int_t)(pair->bytes / pair->blocks),
                              "source_extents", (json_int_t)pair->source_count, "target_extents",
                              (json_int_t)pair->target_count));
}

static int make_pairs(struct plan *plan)
{
    struct sw_xfer_error error;
    struct sw_plan pair;
    struct sw_plan_side *from = &plan->from.side, *to = &plan->to.side;
    fit_blocks(plan, from);
    fit_blocks(plan, to);
    mover_table_open(&plan->pairs, columns, plan->is_json);
    /* Once in any case, so that it says what is wrong. */
    for (to->rank = 0; to->rank < to->ranks || !to->rank; to->rank++)
        for (from->rank = 0; from->rank < from->ranks || !from->rank; from->rank++) {
            if (sw_plan_reshard(&plan->model, from, to, 0, plan->tokens, &error, &pair))
                return mover_fail("%s", error.text);
            if (pair.blocks)
                show_pair(plan, &pair);
            sw_plan_free(&pair);
        }
    return MOVER_DONE;
}

int xf_plan(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows how many blocks it takes to hand a KV cache from one layout to another.",
        .own = {.rows = options, .check = check_sides}};
    static struct plan plan = {
        .model = {.layers = 32, .planes = 2, .heads = 8, .head_elements = 128, .element_bytes = 2},
        .tokens = 4096};
    mover_parse(&usage, argc, argv, &plan);
    const int code = make_pairs(&plan);
    if (!code)
        return mover_table_close(&plan.pairs,
                                 json_pack("{sI sI so}", "blocks", (json_int_t)plan.blocks, "bytes",
                                           (json_int_t)plan.bytes, "pairs", plan.pairs.rows));
    json_decref(plan.pairs.rows);
    return code;
}
