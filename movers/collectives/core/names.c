/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of types, operators, kinds, states and ways. */
#include <string.h>

#include "collectives/core/call.h"
#include "collectives/core/fold.h"

#define NAME_OF(names, number) \
    ((unsigned)(number) < sizeof(names) / sizeof(*(names)) ? (names)[number] : NULL)

const char *sw_coll_status_text(enum sw_coll_status status)
{
    static const char *const texts[] = {
        [SW_COLL_OK] = "done",
        [SW_COLL_AGAIN] = "not done yet",
        [SW_COLL_TIMEOUT] = "the deadline has passed",
        [SW_COLL_INVALID] = "an argument is wrong",
        [SW_COLL_MISMATCH] = "the ranks made different calls",
        [SW_COLL_RANK_GONE] = "a rank has died or ended",
        [SW_COLL_BROKEN] = "an operation before has failed",
        [SW_COLL_NO_MEMORY] = "no memory, or no room in the RDMA device",
        [SW_COLL_NOT_SUPPORTED] = "this host, device or build cannot do it",
        [SW_COLL_ADDRESS] = "no such address, or no RDMA device leads there",
        [SW_COLL_VERSION] = "another rank speaks another version of the protocol",
        [SW_COLL_PROTOCOL] = "another rank broke the protocol",
        [SW_COLL_FORKED] = "the communicator belongs to the parent of this process",
        [SW_COLL_SYSTEM] = "the operating system or the RDMA device failed",
        [SW_COLL_REVOKED] = "a rank has revoked the communicator",
    };
    const char *text = NAME_OF(texts, status);
    return text ? text : "unknown status";
}

const char *sw_coll_type_name(enum sw_coll_type type)
{
    static const char *const names[SW_COLL_TYPES] = {
        [SW_COLL_I8] = "i8",   [SW_COLL_U8] = "u8",     [SW_COLL_I16] = "i16",
        [SW_COLL_U16] = "u16", [SW_COLL_I32] = "i32",   [SW_COLL_U32] = "u32",
        [SW_COLL_I64] = "i64", [SW_COLL_U64] = "u64",   [SW_COLL_F16] = "f16",
        [SW_COLL_F32] = "f32", [SW_COLL_BF16] = "bf16", [SW_COLL_F64] = "f64",
    };
    return NAME_OF(names, type);
}

size_t sw_coll_type_bytes(enum sw_coll_type type)
{
    return (unsigned)type < SW_COLL_TYPES ? coll_type_bytes(type) : 0;
}

const char *sw_coll_op_name(enum sw_coll_op op)
{
    static const char *const names[SW_COLL_OPS] = {
        [SW_COLL_SUM] = "sum", [SW_COLL_PROD] = "prod", [SW_COLL_MIN] = "min",
        [SW_COLL_MAX] = "max", [SW_COLL_AVG] = "avg",
    };
    return NAME_OF(names, op);
}

const char *sw_coll_kind_name(enum sw_coll_kind kind)
{
    static const char *const names[SW_COLL_KINDS] = {
        [SW_COLL_BARRIER] = "barrier",
        [SW_COLL_ALL_REDUCE] = "all_reduce",
        [SW_COLL_REDUCE_SCATTER] = "reduce_scatter",
        [SW_COLL_ALL_GATHER] = "all_gather",
        [SW_COLL_ALL_TO_ALL] = "all_to_all",
        [SW_COLL_BROADCAST] = "broadcast",
        [SW_COLL_REDUCE] = "reduce",
        [SW_COLL_GATHER] = "gather",
        [SW_COLL_SCATTER] = "scatter",
    };
    return NAME_OF(names, kind);
}

static const char *const plan_names[COLL_PLANS] = {
    [COLL_PLAN_EAGER] = "eager",
    [COLL_PLAN_OWNERS] = "owners",
    [COLL_PLAN_HALVING] = "halving",
    [COLL_PLAN_RING] = "ring",
};

const char *coll_plan_name(enum coll_plan plan)
{
    return NAME_OF(plan_names, plan);
}

bool coll_plan_of_name(const char *name, enum coll_plan *plan)
{
    for (unsigned i = COLL_PLAN_ANY + 1; i < COLL_PLANS; i++) {
        if (!strcmp(name, plan_names[i])) {
            *plan = i;
            return true;
        }
    }
    return false;
}
