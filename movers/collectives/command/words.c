/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/words.h"

#include <string.h>

#include "collectives/core/call.h"
#include "sidewire/coll.h"

/* Names of NCCL for types that have another one here. */
static const struct {
    const char *name;
    enum sw_coll_type type;
} nccl_types[] = {
    {"half", SW_COLL_F16},    {"float16", SW_COLL_F16}, {"bfloat16", SW_COLL_BF16},
    {"float", SW_COLL_F32},   {"float32", SW_COLL_F32}, {"double", SW_COLL_F64},
    {"float64", SW_COLL_F64}, {"int8", SW_COLL_I8},     {"uint8", SW_COLL_U8},
    {"int32", SW_COLL_I32},   {"uint32", SW_COLL_U32},  {"int64", SW_COLL_I64},
    {"uint64", SW_COLL_U64},
};

void co_take_type(struct argp_state *state, void *place, char *text)
{
    uint32_t *type = place;
    for (*type = 0; *type < SW_COLL_TYPES; ++*type)
        if (!strcmp(text, sw_coll_type_name((enum sw_coll_type) * type)))
            return;
    for (size_t i = 0; i < sizeof(nccl_types) / sizeof(nccl_types[0]); i++)
        if (!strcmp(text, nccl_types[i].name)) {
            *type = nccl_types[i].type;
            return;
        }
    if (strcmp(text, "all") != 0)
        argp_error(state,
                   "\"%s\" is no type; there are all, i8 to i64, u8 to u64, f16, bf16, f32, "
                   "f64",
                   text);
}

void co_take_op(struct argp_state *state, void *place, char *text)
{
    uint32_t *op = place;
    for (*op = 0; *op < SW_COLL_OPS; ++*op)
        if (!strcmp(text, sw_coll_op_name((enum sw_coll_op) * op)))
            return;
    if (strcmp(text, "all") != 0)
        argp_error(state, "\"%s\" is no operator; there are all, sum, prod, min, max, avg", text);
}

void co_take_order(struct argp_state *state, void *place, char *text)
{
    const bool is_any = !strcmp(text, "any");
    *(uint32_t *)place = is_any ? SW_COLL_ORDER_ANY : SW_COLL_ORDER_TREE;
    if (!is_any && strcmp(text, "tree") != 0)
        argp_error(state, "\"%s\" is no order; there are tree and any", text);
}

void co_take_algorithm(struct argp_state *state, void *place, char *text)
{
    enum coll_plan plan;
    if (!coll_plan_of_name(text, &plan))
        argp_error(state, "\"%s\" is no algorithm; there are " COLL_PLAN_NAMES, text);
    *(const char **)place = text;
}

void co_take_kind(struct argp_state *state, void *place, char *text)
{
    for (uint32_t kind = 0; kind < SW_COLL_KINDS; kind++)
        if (!strcmp(text, sw_coll_kind_name((enum sw_coll_kind)kind))) {
            *(enum sw_coll_kind *)place = (enum sw_coll_kind)kind;
            return;
        }
    argp_error(state,
               "\"%s\" is no operation; there are barrier, all_reduce, reduce_scatter, "
               "all_gather, all_to_all, broadcast, reduce, gather, scatter; for perf sendrecv, too",
               text);
}
