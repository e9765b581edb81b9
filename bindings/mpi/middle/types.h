/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The types and operators of MPI that have a counterpart here, most frequent ones first. Each MPI
 * makes a table of its own handles from them. Complex numbers, MINLOC, logical operators and what
 * programs define are MPI's.
 */
#ifndef SW_BINDINGS_MPI_TYPES_H
#define SW_BINDINGS_MPI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "sidewire/coll.h"

/* The integers of enum sw_coll_type are in pairs, signed and unsigned, by their size. */
#define MPM_INTEGER(type)                                                                     \
    ((enum sw_coll_type)(2 * ((sizeof(type) > 1) + (sizeof(type) > 2) + (sizeof(type) > 4)) + \
                         ((type)-1 > 0)))

#define MPM_TYPES(X)                                 \
    X(MPI_INT, MPM_INTEGER(int))                     \
    X(MPI_DOUBLE, SW_COLL_F64)                       \
    X(MPI_FLOAT, SW_COLL_F32)                        \
    X(MPI_LONG, MPM_INTEGER(long))                   \
    X(MPI_UNSIGNED_LONG, MPM_INTEGER(unsigned long)) \
    X(MPI_UNSIGNED, MPM_INTEGER(unsigned))           \
    X(MPI_INT64_T, SW_COLL_I64)                      \
    X(MPI_UINT64_T, SW_COLL_U64)                     \
    X(MPI_INT32_T, SW_COLL_I32)                      \
    X(MPI_UINT32_T, SW_COLL_U32)                     \
    X(MPI_LONG_LONG, SW_COLL_I64)                    \
    X(MPI_UNSIGNED_LONG_LONG, SW_COLL_U64)           \
    X(MPI_SIGNED_CHAR, SW_COLL_I8)                   \
    X(MPI_UNSIGNED_CHAR, SW_COLL_U8)                 \
    X(MPI_INT8_T, SW_COLL_I8)                        \
    X(MPI_UINT8_T, SW_COLL_U8)                       \
    X(MPI_SHORT, SW_COLL_I16)                        \
    X(MPI_UNSIGNED_SHORT, SW_COLL_U16)               \
    X(MPI_INT16_T, SW_COLL_I16)                      \
    X(MPI_UINT16_T, SW_COLL_U16)                     \
    X(MPI_AINT, MPM_INTEGER(ptrdiff_t))              \
    X(MPI_OFFSET, SW_COLL_I64)                       \
    X(MPI_COUNT, SW_COLL_I64)                        \
    X(MPI_INTEGER, SW_COLL_I32)                      \
    X(MPI_REAL, SW_COLL_F32)                         \
    X(MPI_DOUBLE_PRECISION, SW_COLL_F64)             \
    X(MPI_INTEGER1, SW_COLL_I8)                      \
    X(MPI_INTEGER2, SW_COLL_I16)                     \
    X(MPI_INTEGER4, SW_COLL_I32)                     \
    X(MPI_INTEGER8, SW_COLL_I64)                     \
    X(MPI_REAL4, SW_COLL_F32)                        \
    X(MPI_REAL8, SW_COLL_F64)

#define MPM_OPS(X)          \
    X(MPI_SUM, SW_COLL_SUM) \
    X(MPI_MAX, SW_COLL_MAX) \
    X(MPI_MIN, SW_COLL_MIN) \
    X(MPI_PROD, SW_COLL_PROD)

#endif
