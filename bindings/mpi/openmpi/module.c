/* SPDX-License-Identifier: BSD-2-Clause */
#include "module.h"

#include <string.h>

#include <mpi.h>
#include <ompi/constants.h>
#include <opal/runtime/opal_progress.h>

#include "../middle/later.h"
#include "../middle/settings.h"
#include "request.h"
#include "types.h"

/* Above those of Open MPI, which are 90 at most. */
enum { PRIORITY = 95 };

#define MPO_CALLER __builtin_return_address(0)

/* Whether the call was ours; `result` is what it returns then. Open MPI gives it to the error
 * handler of the communicator. NULL for `request`: it blocks. */
static bool module_run_ours(struct mpo_module *module, const struct mpm_call *call,
                            ompi_request_t **request, const void *caller, int *result)
{
    if (request && !mpo_is_of_program(caller))
        return false;
    struct sw_coll_error error = {0};
    struct mpm_later *later = NULL;
    *result = MPI_SUCCESS;
    enum mpm_outcome outcome = request ? mpm_later_begin(&module->group, call, &error, &later)
                                       : mpm_run(&module->group, call, &error);
    if (outcome == MPM_NOT_OURS)
        return false;
    if (later && !mpo_request_make(later, module->communicator, request)) {
        outcome = MPM_FAILED;
        mpm_lack_memory(&error);
    }
    if (outcome == MPM_FAILED) {
        mpm_say("%s", error.text);
        *result = MPI_ERR_OTHER;
    }
    return true;
}

static int i_all_reduce(const void *send, void *recv, int count, struct ompi_datatype_t *type,
                        struct ompi_op_t *op, struct ompi_communicator_t *communicator,
                        ompi_request_t **request, mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_REDUCE,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_iallreduce(send, recv, count, type, op, communicator, request,
                                              module->others.coll_iallreduce_module);
    return module->others.coll_allreduce(send, recv, count, type, op, communicator,
                                         module->others.coll_allreduce_module);
}

static int all_reduce(const void *send, void *recv, int count, struct ompi_datatype_t *type,
                      struct ompi_op_t *op, struct ompi_communicator_t *communicator,
                      mca_coll_base_module_t *super)
{
    return i_all_reduce(send, recv, count, type, op, communicator, NULL, super);
}

static int i_reduce_root(const void *send, void *recv, int count, struct ompi_datatype_t *type,
                         struct ompi_op_t *op, int root, struct ompi_communicator_t *communicator,
                         ompi_request_t **request, mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE,
        .root = root,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ireduce(send, recv, count, type, op, root, communicator, request,
                                           module->others.coll_ireduce_module);
    return module->others.coll_reduce(send, recv, count, type, op, root, communicator,
                                      module->others.coll_reduce_module);
}

static int reduce_root(const void *send, void *recv, int count, struct ompi_datatype_t *type,
                       struct ompi_op_t *op, int root, struct ompi_communicator_t *communicator,
                       mca_coll_base_module_t *super)
{
    return i_reduce_root(send, recv, count, type, op, root, communicator, NULL, super);
}

static int i_reduce_scatter(const void *send, void *recv, const int *counts,
                            struct ompi_datatype_t *type, struct ompi_op_t *op,
                            struct ompi_communicator_t *communicator, ompi_request_t **request,
                            mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE_SCATTER,
        .has_counts = true,
        .send = {.base = send},
        .recv = {.base = recv, .counts = counts, .type = &type},
        .op = &op,
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ireduce_scatter(send, recv, counts, type, op, communicator,
                                                   request,
                                                   module->others.coll_ireduce_scatter_module);
    return module->others.coll_reduce_scatter(send, recv, counts, type, op, communicator,
                                              module->others.coll_reduce_scatter_module);
}

static int reduce_scatter(const void *send, void *recv, const int *counts,
                          struct ompi_datatype_t *type, struct ompi_op_t *op,
                          struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_reduce_scatter(send, recv, counts, type, op, communicator, NULL, super);
}

static int i_reduce_scatter_block(const void *send, void *recv, int count,
                                  struct ompi_datatype_t *type, struct ompi_op_t *op,
                                  struct ompi_communicator_t *communicator,
                                  ompi_request_t **request, mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE_SCATTER,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ireduce_scatter_block(
            send, recv, count, type, op, communicator, request,
            module->others.coll_ireduce_scatter_block_module);
    return module->others.coll_reduce_scatter_block(
        send, recv, count, type, op, communicator, module->others.coll_reduce_scatter_block_module);
}

static int reduce_scatter_block(const void *send, void *recv, int count,
                                struct ompi_datatype_t *type, struct ompi_op_t *op,
                                struct ompi_communicator_t *communicator,
                                mca_coll_base_module_t *super)
{
    return i_reduce_scatter_block(send, recv, count, type, op, communicator, NULL, super);
}

static int i_broadcast_root(void *buffer, int count, struct ompi_datatype_t *type, int root,
                            struct ompi_communicator_t *communicator, ompi_request_t **request,
                            mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_BROADCAST,
        .root = root,
        .recv = {.base = buffer, .count = count, .type = &type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ibcast(buffer, count, type, root, communicator, request,
                                          module->others.coll_ibcast_module);
    return module->others.coll_bcast(buffer, count, type, root, communicator,
                                     module->others.coll_bcast_module);
}

static int broadcast_root(void *buffer, int count, struct ompi_datatype_t *type, int root,
                          struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_broadcast_root(buffer, count, type, root, communicator, NULL, super);
}

static int i_all_gather(const void *send, int send_count, struct ompi_datatype_t *send_type,
                        void *recv, int recv_count, struct ompi_datatype_t *recv_type,
                        struct ompi_communicator_t *communicator, ompi_request_t **request,
                        mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_GATHER,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_iallgather(send, send_count, send_type, recv, recv_count,
                                              recv_type, communicator, request,
                                              module->others.coll_iallgather_module);
    return module->others.coll_allgather(send, send_count, send_type, recv, recv_count, recv_type,
                                         communicator, module->others.coll_allgather_module);
}

static int all_gather(const void *send, int send_count, struct ompi_datatype_t *send_type,
                      void *recv, int recv_count, struct ompi_datatype_t *recv_type,
                      struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_all_gather(send, send_count, send_type, recv, recv_count, recv_type, communicator,
                        NULL, super);
}

static int i_all_gather_v(const void *send, int send_count, struct ompi_datatype_t *send_type,
                          void *recv, const int *recv_counts, const int *starts,
                          struct ompi_datatype_t *recv_type,
                          struct ompi_communicator_t *communicator, ompi_request_t **request,
                          mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_GATHER,
        .has_counts = true,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .counts = recv_counts, .starts = starts, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_iallgatherv(send, send_count, send_type, recv, recv_counts,
                                               starts, recv_type, communicator, request,
                                               module->others.coll_iallgatherv_module);
    return module->others.coll_allgatherv(send, send_count, send_type, recv, recv_counts, starts,
                                          recv_type, communicator,
                                          module->others.coll_allgatherv_module);
}

static int all_gather_v(const void *send, int send_count, struct ompi_datatype_t *send_type,
                        void *recv, const int *recv_counts, const int *starts,
                        struct ompi_datatype_t *recv_type, struct ompi_communicator_t *communicator,
                        mca_coll_base_module_t *super)
{
    return i_all_gather_v(send, send_count, send_type, recv, recv_counts, starts, recv_type,
                          communicator, NULL, super);
}

static int i_all_to_all(const void *send, int send_count, struct ompi_datatype_t *send_type,
                        void *recv, int recv_count, struct ompi_datatype_t *recv_type,
                        struct ompi_communicator_t *communicator, ompi_request_t **request,
                        mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_TO_ALL,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ialltoall(send, send_count, send_type, recv, recv_count,
                                             recv_type, communicator, request,
                                             module->others.coll_ialltoall_module);
    return module->others.coll_alltoall(send, send_count, send_type, recv, recv_count, recv_type,
                                        communicator, module->others.coll_alltoall_module);
}

static int all_to_all(const void *send, int send_count, struct ompi_datatype_t *send_type,
                      void *recv, int recv_count, struct ompi_datatype_t *recv_type,
                      struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_all_to_all(send, send_count, send_type, recv, recv_count, recv_type, communicator,
                        NULL, super);
}

static int i_all_to_all_v(const void *send, const int *send_counts, const int *send_starts,
                          struct ompi_datatype_t *send_type, void *recv, const int *recv_counts,
                          const int *recv_starts, struct ompi_datatype_t *recv_type,
                          struct ompi_communicator_t *communicator, ompi_request_t **request,
                          mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_TO_ALL,
        .has_counts = true,
        .send = {.base = send, .counts = send_counts, .starts = send_starts, .type = &send_type},
        .recv = {.base = recv, .counts = recv_counts, .starts = recv_starts, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ialltoallv(send, send_counts, send_starts, send_type, recv,
                                              recv_counts, recv_starts, recv_type, communicator,
                                              request, module->others.coll_ialltoallv_module);
    return module->others.coll_alltoallv(send, send_counts, send_starts, send_type, recv,
                                         recv_counts, recv_starts, recv_type, communicator,
                                         module->others.coll_alltoallv_module);
}

static int all_to_all_v(const void *send, const int *send_counts, const int *send_starts,
                        struct ompi_datatype_t *send_type, void *recv, const int *recv_counts,
                        const int *recv_starts, struct ompi_datatype_t *recv_type,
                        struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_all_to_all_v(send, send_counts, send_starts, send_type, recv, recv_counts, recv_starts,
                          recv_type, communicator, NULL, super);
}

static int i_gather_root(const void *send, int send_count, struct ompi_datatype_t *send_type,
                         void *recv, int recv_count, struct ompi_datatype_t *recv_type, int root,
                         struct ompi_communicator_t *communicator, ompi_request_t **request,
                         mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_GATHER,
        .root = root,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_igather(send, send_count, send_type, recv, recv_count, recv_type,
                                           root, communicator, request,
                                           module->others.coll_igather_module);
    return module->others.coll_gather(send, send_count, send_type, recv, recv_count, recv_type,
                                      root, communicator, module->others.coll_gather_module);
}

static int gather_root(const void *send, int send_count, struct ompi_datatype_t *send_type,
                       void *recv, int recv_count, struct ompi_datatype_t *recv_type, int root,
                       struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_gather_root(send, send_count, send_type, recv, recv_count, recv_type, root,
                         communicator, NULL, super);
}

static int i_scatter_root(const void *send, int send_count, struct ompi_datatype_t *send_type,
                          void *recv, int recv_count, struct ompi_datatype_t *recv_type, int root,
                          struct ompi_communicator_t *communicator, ompi_request_t **request,
                          mca_coll_base_module_t *super)
{
    const struct mpm_call call = {
        .kind = SW_COLL_SCATTER,
        .root = root,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_iscatter(send, send_count, send_type, recv, recv_count,
                                            recv_type, root, communicator, request,
                                            module->others.coll_iscatter_module);
    return module->others.coll_scatter(send, send_count, send_type, recv, recv_count, recv_type,
                                       root, communicator, module->others.coll_scatter_module);
}

static int scatter_root(const void *send, int send_count, struct ompi_datatype_t *send_type,
                        void *recv, int recv_count, struct ompi_datatype_t *recv_type, int root,
                        struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_scatter_root(send, send_count, send_type, recv, recv_count, recv_type, root,
                          communicator, NULL, super);
}

static int gather_v(const void *send, int send_count, struct ompi_datatype_t *send_type, void *recv,
                    const int *recv_counts, const int *starts, struct ompi_datatype_t *recv_type,
                    int root, struct ompi_communicator_t *communicator,
                    mca_coll_base_module_t *super)
{
    struct mpo_module *module = (struct mpo_module *)super;
    mpm_count_left(MPM_LEFT_KIND);
    return module->others.coll_gatherv(send, send_count, send_type, recv, recv_counts, starts,
                                       recv_type, root, communicator,
                                       module->others.coll_gatherv_module);
}

static int scatter_v(const void *send, const int *send_counts, const int *starts,
                     struct ompi_datatype_t *send_type, void *recv, int recv_count,
                     struct ompi_datatype_t *recv_type, int root,
                     struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    struct mpo_module *module = (struct mpo_module *)super;
    mpm_count_left(MPM_LEFT_KIND);
    return module->others.coll_scatterv(send, send_counts, starts, send_type, recv, recv_count,
                                        recv_type, root, communicator,
                                        module->others.coll_scatterv_module);
}

static int i_wait_all(struct ompi_communicator_t *communicator, ompi_request_t **request,
                      mca_coll_base_module_t *super)
{
    const struct mpm_call call = {.kind = SW_COLL_BARRIER};
    struct mpo_module *module = (struct mpo_module *)super;
    int result;
    if (module_run_ours(module, &call, request, MPO_CALLER, &result))
        return result;
    if (request)
        return module->others.coll_ibarrier(communicator, request,
                                            module->others.coll_ibarrier_module);
    return module->others.coll_barrier(communicator, module->others.coll_barrier_module);
}

static int wait_all(struct ompi_communicator_t *communicator, mca_coll_base_module_t *super)
{
    return i_wait_all(communicator, NULL, super);
}

/* ---- a module ---- */

static int world_rank;

void mpo_tell_counts(void)
{
    mpm_tell_counts(world_rank);
}

static bool module_gather_cards(void *communicator, const void *card, size_t bytes, void *cards)
{
    struct mpo_module *module = communicator;
    return module->others.coll_allgather(card, (int)bytes, MPI_BYTE, cards, (int)bytes, MPI_BYTE,
                                         module->communicator,
                                         module->others.coll_allgather_module) == OMPI_SUCCESS;
}

static void poke_openmpi(void)
{
    opal_progress();
}

static const struct mpm_binding openmpi_binding = {
    .in_place = MPI_IN_PLACE,
    .find_type = mpo_find_type,
    .find_op = mpo_find_op,
    .describe = mpo_describe,
    .exchange = module_gather_cards,
    .pack = mpo_pack,
    .unpack = mpo_unpack,
    .keep_type = mpo_keep_type,
    .drop_type = mpo_drop_type,
    .progress = poke_openmpi,
};

/* The functions that ours go before. */
#define MPO_FUNCTIONS(X)     \
    X(allgather)             \
    X(allgatherv)            \
    X(allreduce)             \
    X(alltoall)              \
    X(alltoallv)             \
    X(barrier)               \
    X(bcast)                 \
    X(gather)                \
    X(gatherv)               \
    X(iallgather)            \
    X(iallgatherv)           \
    X(iallreduce)            \
    X(ialltoall)             \
    X(ialltoallv)            \
    X(ibarrier)              \
    X(ibcast)                \
    X(igather)               \
    X(ireduce)               \
    X(ireduce_scatter)       \
    X(ireduce_scatter_block) \
    X(iscatter)              \
    X(reduce)                \
    X(reduce_scatter)        \
    X(reduce_scatter_block)  \
    X(scatter)               \
    X(scatterv)

static int enable_module(mca_coll_base_module_t *super, struct ompi_communicator_t *communicator)
{
    struct mpo_module *module = (struct mpo_module *)super;
    module->others = *communicator->c_coll;
#define MPO_MISSES(name) || !module->others.coll_##name
    if (false MPO_FUNCTIONS(MPO_MISSES))
        return OMPI_ERROR; /* there is nobody to leave calls to */
#undef MPO_MISSES
#define MPO_RETAIN(name) OBJ_RETAIN(module->others.coll_##name##_module);
    MPO_FUNCTIONS(MPO_RETAIN)
#undef MPO_RETAIN
    module->has_others = true;
    return OMPI_SUCCESS;
}

static void offer_requests(mca_coll_base_module_t *super)
{
    super->coll_iallgather = i_all_gather;
    super->coll_iallgatherv = i_all_gather_v;
    super->coll_iallreduce = i_all_reduce;
    super->coll_ialltoall = i_all_to_all;
    super->coll_ialltoallv = i_all_to_all_v;
    super->coll_ibarrier = i_wait_all;
    super->coll_ibcast = i_broadcast_root;
    super->coll_igather = i_gather_root;
    super->coll_ireduce = i_reduce_root;
    super->coll_ireduce_scatter = i_reduce_scatter;
    super->coll_ireduce_scatter_block = i_reduce_scatter_block;
    super->coll_iscatter = i_scatter_root;
}

mca_coll_base_module_t *mpo_module_make(struct ompi_communicator_t *communicator, int *priority)
{
    if (communicator == MPI_COMM_WORLD)
        world_rank = ompi_comm_rank(communicator);
    if (OMPI_COMM_IS_INTER(communicator) || ompi_comm_size(communicator) < 2)
        return NULL;
    struct mpo_module *module = OBJ_NEW(mpo_module_t);
    if (!module)
        return NULL;
    module->communicator = communicator;
    module->group = (struct mpm_group){.binding = &openmpi_binding,
                                       .communicator = module,
                                       .rank = (uint32_t)ompi_comm_rank(communicator),
                                       .size = (uint32_t)ompi_comm_size(communicator)};
    module->super.coll_module_enable = enable_module;
    module->super.coll_allgather = all_gather;
    module->super.coll_allgatherv = all_gather_v;
    module->super.coll_allreduce = all_reduce;
    module->super.coll_alltoall = all_to_all;
    module->super.coll_alltoallv = all_to_all_v;
    module->super.coll_barrier = wait_all;
    module->super.coll_bcast = broadcast_root;
    module->super.coll_gather = gather_root;
    module->super.coll_reduce = reduce_root;
    module->super.coll_reduce_scatter = reduce_scatter;
    module->super.coll_reduce_scatter_block = reduce_scatter_block;
    module->super.coll_scatter = scatter_root;
    module->super.coll_gatherv = gather_v;
    module->super.coll_scatterv = scatter_v;
    if (mpo_requests_fit())
        offer_requests(&module->super);
    *priority = PRIORITY;
    return &module->super;
}

static void construct_module(mpo_module_t *module)
{
    memset((char *)module + sizeof(module->super), 0, sizeof(*module) - sizeof(module->super));
}

static void destruct_module(mpo_module_t *module)
{
    mpm_group_close(&module->group);
    if (!module->has_others)
        return;
#define MPO_RELEASE(name) OBJ_RELEASE(module->others.coll_##name##_module);
    MPO_FUNCTIONS(MPO_RELEASE)
#undef MPO_RELEASE
}

OBJ_CLASS_INSTANCE(mpo_module_t, mca_coll_base_module_t, construct_module, destruct_module);
