/* SPDX-License-Identifier: BSD-2-Clause */
#include "types.h"

#include <stdlib.h>

#include <ompi_config.h>

#include <mpi.h>
#include <ompi/constants.h>
#include <ompi/datatype/ompi_datatype.h>

#include "../middle/types.h"

bool mpo_find_type(const void *handle, enum sw_coll_type *found)
{
    const struct ompi_datatype_t *type = *(struct ompi_datatype_t *const *)handle;
    static const struct {
        MPI_Datatype handle;
        enum sw_coll_type type;
    } types[] = {
#define MPO_TYPE(handle, type) {handle, type},
        MPM_TYPES(MPO_TYPE)
#undef MPO_TYPE
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (types[i].handle == type) {
            *found = types[i].type;
            return true;
        }
    }
    return false;
}

bool mpo_find_op(const void *handle, enum sw_coll_op *found)
{
    const struct ompi_op_t *op = *(struct ompi_op_t *const *)handle;
    static const struct {
        MPI_Op handle;
        enum sw_coll_op op;
    } ops[] = {
#define MPO_OP(handle, op) {handle, op},
        MPM_OPS(MPO_OP)
#undef MPO_OP
    };
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (ops[i].handle == op) {
            *found = ops[i].op;
            return true;
        }
    }
    return false;
}

bool mpo_describe(const void *handle, struct mpm_description *description)
{
    const struct ompi_datatype_t *type = *(struct ompi_datatype_t *const *)handle;
    ptrdiff_t lower;
    if (!type || ompi_datatype_type_size(type, &description->element_bytes) ||
        ompi_datatype_get_extent(type, &lower, &description->extent_bytes))
        return false;
    description->is_plain = ompi_datatype_is_predefined(type) &&
                            (size_t)description->extent_bytes == description->element_bytes;
    return true;
}

bool mpo_pack(const void *from, int count, const void *handle, void *to, int bytes)
{
    const struct ompi_datatype_t *type = *(struct ompi_datatype_t *const *)handle;
    return ompi_datatype_sndrcv(from, count, type, to, bytes, MPI_PACKED) == OMPI_SUCCESS;
}

bool mpo_unpack(const void *from, int bytes, void *to, int count, const void *handle)
{
    const struct ompi_datatype_t *type = *(struct ompi_datatype_t *const *)handle;
    return ompi_datatype_sndrcv(from, bytes, MPI_PACKED, to, count, type) == OMPI_SUCCESS;
}

const void *mpo_keep_type(const void *handle)
{
    struct ompi_datatype_t **kept = malloc(sizeof(struct ompi_datatype_t *));
    if (!kept)
        return NULL;
    *kept = *(struct ompi_datatype_t *const *)handle;
    OBJ_RETAIN(*kept);
    return kept;
}

void mpo_drop_type(const void *kept)
{
    struct ompi_datatype_t *type = *(struct ompi_datatype_t *const *)kept;
    OBJ_RELEASE(type);
    free((void *)kept);
}
