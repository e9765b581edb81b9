/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The MPI of the process: MPICH, another one, or none. It is looked for when it is first called:
 * Python loads it long after this library.
 */
#ifndef SW_BINDINGS_MPI_REAL_H
#define SW_BINDINGS_MPI_REAL_H

#include <stdbool.h>

#define MPP_NAMES(X)         \
    X(Allgather)             \
    X(Allgatherv)            \
    X(Allreduce)             \
    X(Alltoall)              \
    X(Alltoallv)             \
    X(Barrier)               \
    X(Bcast)                 \
    X(Comm_call_errhandler)  \
    X(Comm_create_keyval)    \
    X(Comm_disconnect)       \
    X(Comm_free)             \
    X(Comm_get_attr)         \
    X(Comm_rank)             \
    X(Comm_set_attr)         \
    X(Comm_size)             \
    X(Comm_test_inter)       \
    X(Finalize)              \
    X(Gather)                \
    X(Gatherv)               \
    X(Get_library_version)   \
    X(Grequest_complete)     \
    X(Iallgather)            \
    X(Iallgatherv)           \
    X(Iallreduce)            \
    X(Ialltoall)             \
    X(Ialltoallv)            \
    X(Ibarrier)              \
    X(Ibcast)                \
    X(Igather)               \
    X(Iprobe)                \
    X(Ireduce)               \
    X(Ireduce_scatter)       \
    X(Ireduce_scatter_block) \
    X(Iscatter)              \
    X(Pack)                  \
    X(Reduce)                \
    X(Reduce_scatter)        \
    X(Reduce_scatter_block)  \
    X(Scatter)               \
    X(Scatterv)              \
    X(Status_set_cancelled)  \
    X(Status_set_elements)   \
    X(Type_dup)              \
    X(Type_free)             \
    X(Type_get_envelope)     \
    X(Type_get_extent)       \
    X(Type_size)             \
    X(Unpack)

enum mpp_name {
#define MPP_NAME(name) MPP_##name,
    MPP_NAMES(MPP_NAME)
#undef MPP_NAME
        MPP_Xgrequest_start, /* PMPIX_Grequest_start */
    MPP_NAME_COUNT
};

/* Whether that MPI is MPICH, and our part is wanted. */
bool mpp_is_mpich(void);
/* Whether it has that. */
bool mpp_has(enum mpp_name name);
/* PMPI_<name> of that MPI. A program that calls MPI without having one ends here. */
void *mpp_find(enum mpp_name name);

#endif
