/* SPDX-License-Identifier: BSD-2-Clause */
#include "types.h"

#include <mpi.h>
#include <stdlib.h>

#include "../middle/types.h"
#include "communicator.h"

bool mpp_find_type(const void *handle, enum sw_coll_type *found)
{
    const MPI_Datatype type = *(const MPI_Datatype *)handle;
    static const struct {
        MPI_Datatype handle;
        enum sw_coll_type type;
    } types[] = {
#define MPP_TYPE(handle, type) {handle, type},
        MPM_TYPES(MPP_TYPE)
#undef MPP_TYPE
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (types[i].handle == type && type != MPI_DATATYPE_NULL) {
            *found = types[i].type;
            return true;
        }
    }
    return false;
}

bool mpp_find_op(const void *handle, enum sw_coll_op *found)
{
    const MPI_Op op = *(const MPI_Op *)handle;
    static const struct {
        MPI_Op handle;
        enum sw_coll_op op;
    } ops[] = {
#define MPP_OP(handle, op) {handle, op},
        MPM_OPS(MPP_OP)
#undef MPP_OP
    };
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (ops[i].handle == op) {
            *found = ops[i].op;
            return true;
        }
    }
    return false;
}

bool mpp_describe(const void *handle, struct mpm_description *description)
{
    const MPI_Datatype type = *(const MPI_Datatype *)handle;
    if (type == MPI_BYTE || type == MPI_CHAR) {
        *description =
            (struct mpm_description){.element_bytes = 1, .extent_bytes = 1, .is_plain = true};
        return true;
    }
    int bytes, integers, addresses, types, combiner;
    MPI_Aint lower, extent;
    if (type == MPI_DATATYPE_NULL || MPP_REAL(Type_size)(type, &bytes) ||
        MPP_REAL(Type_get_extent)(type, &lower, &extent) ||
        MPP_REAL(Type_get_envelope)(type, &integers, &addresses, &types, &combiner))
        return false;
    description->element_bytes = (size_t)bytes;
    description->extent_bytes = extent;
    description->is_plain = combiner == MPI_COMBINER_NAMED && extent == bytes;
    return true;
}

const void *mpp_keep_type(const void *handle)
{
    MPI_Datatype *kept = malloc(sizeof(*kept));
    if (kept && MPP_REAL(Type_dup)(*(const MPI_Datatype *)handle, kept)) {
        free(kept);
        kept = NULL;
    }
    return kept;
}

void mpp_drop_type(const void *kept)
{
    MPP_REAL(Type_free)((MPI_Datatype *)kept);
    free((void *)kept);
}
