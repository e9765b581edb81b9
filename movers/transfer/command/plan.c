/* SPDX-License-Identifier: BSD-2-Clause */
/* What it takes to hand a KV cache from one layout to another: blocks and bytes of each pair. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/command/old_option.h"
#include "sidewire/transfer_plan.h"
#include "transfer/command/command.h"

enum { ORDER_BYTES = 16 };
enum {
    KEY_FROM = 0x5000,
    KEY_TO,
    KEY_TOKENS,
    KEY_LAYERS,
    KEY_PLANES,
    KEY_HEADS,
    KEY_ELEMENTS,
    KEY_ELEMENT_BYTES
};

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
    json_t *pairs;
    uint64_t blocks, bytes;
};

static const struct argp_option options[] = {
    {"from", KEY_FROM, "SIDE", 0, "ORDER:RANKS:TOKENS of the source, as L/PBTH:2:16", 1},
    {NULL, 'f', NULL, MOVER_OLD, NULL, 0},
    {"to", KEY_TO, "SIDE", 0, "The same of the target", 1},
    {NULL, 't', NULL, MOVER_OLD, NULL, 0},
    {"tokens", KEY_TOKENS, "N", 0, "Tokens of the request (4096)", 1},
    {NULL, 'n', NULL, MOVER_OLD, NULL, 0},
    {"layers", KEY_LAYERS, "N", 0, "Layers of the model (32)", 2},
    {"planes", KEY_PLANES, "N", 0, "2: keys and values; 1: one latent (2)", 2},
    {"heads", KEY_HEADS, "N", 0, "KV heads of all ranks together (8)", 2},
    {"head-elements", KEY_ELEMENTS, "N", 0, "Elements of a head (128)", 2},
    {"element-bytes", KEY_ELEMENT_BYTES, "BYTES", 0, "Bytes of an element (2)", 2},
    {"output-format", 'o', "FORMAT", 0, "normal or json", 3},
    {0},
};

static void parse_side(struct argp_state *state, const char *text, struct side *side)
{
    char end;
    if (sscanf(text, "%15[LPBTH/]:%" SCNu32 ":%" SCNu32 "%c", side->order, &side->side.ranks,
               &side->side.block_tokens, &end) != 3)
        argp_error(state, "\"%s\" is no side; write L/PBTH:2:16", text);
    side->side.order = side->order;
    side->is_told = true;
}

static error_t parse_plan(int key, char *value, struct argp_state *state)
{
    struct plan *plan = state->input;
    switch (mover_current_key(state, options, key)) {
    case KEY_FROM:
        parse_side(state, value, &plan->from);
        return 0;
    case KEY_TO:
        parse_side(state, value, &plan->to);
        return 0;
    case KEY_TOKENS:
        plan->tokens = mover_parse_bytes(state, value);
        return 0;
    case KEY_LAYERS:
        plan->model.layers = mover_parse_count(state, value);
        return 0;
    case KEY_PLANES:
        plan->model.planes = mover_parse_count(state, value);
        return 0;
    case KEY_HEADS:
        plan->model.heads = mover_parse_count(state, value);
        return 0;
    case KEY_ELEMENTS:
        plan->model.head_elements = mover_parse_count(state, value);
        return 0;
    case KEY_ELEMENT_BYTES:
        plan->model.element_bytes = mover_parse_count(state, value);
        return 0;
    case 'o':
        plan->is_json = mover_parse_format(state, value);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is too much", value);
        return 0;
    case ARGP_KEY_END:
        if (!plan->from.is_told || !plan->to.is_told)
            argp_error(state, "both sides are needed: --from SIDE --to SIDE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A memory that has the request's blocks, one behind the other. */
static void fit_blocks(const struct plan *plan, struct sw_plan_side *side)
{
    const uint64_t tokens = side->block_tokens ? side->block_tokens : 1;
    const uint64_t blocks = (plan->tokens + tokens - 1) / tokens;
    side->blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX; /* too many, it says then */
}

static void show_pair(struct plan *plan, const struct sw_plan *pair)
{
    const uint32_t from = plan->from.side.rank, to = plan->to.side.rank;
    plan->blocks += pair->blocks;
    plan->bytes += pair->bytes;
    if (plan->is_json)
        json_array_append_new(plan->pairs,
                              json_pack("{sI sI sI sI sI sI}", "source", (json_int_t)from, "target",
                                        (json_int_t)to, "blocks", (json_int_t)pair->blocks, "bytes",
                                        (json_int_t)pair->bytes, "source_extents",
                                        (json_int_t)pair->source_count, "target_extents",
                                        (json_int_t)pair->target_count));
    else
        printf("%6" PRIu32 " %6" PRIu32 " %10" PRIu32 " %14" PRIu64 " %12" PRIu64 "\n", from, to,
               pair->blocks, pair->bytes, pair->bytes / pair->blocks);
}

static int make_pairs(struct plan *plan)
{
    struct sw_xfer_error error;
    struct sw_plan pair;
    struct sw_plan_side *from = &plan->from.side, *to = &plan->to.side;
    fit_blocks(plan, from);
    fit_blocks(plan, to);
    if (!plan->is_json)
        printf("%6s %6s %10s %14s %12s\n", "SOURCE", "TARGET", "BLOCKS", "BYTES", "BYTES/BLOCK");
    /* Once in any case, so that it says what is wrong. */
    for (to->rank = 0; to->rank < to->ranks || !to->rank; to->rank++)
        for (from->rank = 0; from->rank < from->ranks || !from->rank; from->rank++) {
            if (sw_plan_reshard(&plan->model, from, to, 0, plan->tokens, &error, &pair)) {
                fprintf(stderr, "sidewire transfer plan: %s\n", error.text);
                return XF_STATUS_FAILED;
            }
            if (pair.blocks)
                show_pair(plan, &pair);
            sw_plan_free(&pair);
        }
    return XF_STATUS_OK;
}

int xf_plan(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse_plan,
        .doc = "Shows how many blocks it takes to hand a KV cache from one layout to another."};
    static struct plan plan = {
        .model = {.layers = 32, .planes = 2, .heads = 8, .head_elements = 128, .element_bytes = 2},
        .tokens = 4096};
    argp_parse(&argp, argc, argv, 0, NULL, &plan);
    plan.pairs = json_array();
    const int code = make_pairs(&plan);
    if (!code && plan.is_json)
        return mover_print_json(json_pack("{sI sI so}", "blocks", (json_int_t)plan.blocks, "bytes",
                                          (json_int_t)plan.bytes, "pairs", plan.pairs));
    json_decref(plan.pairs);
    return code || fflush(stdout) ? XF_STATUS_FAILED : XF_STATUS_OK;
}
