/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs.so.1 with one real device, for machines that have none: its objects are zeroed
 * memory, and each function says by its result that it was the one called. `mode` decides what
 * ibv_get_device_list does.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))
enum { MARK = 4242 }; /* what int functions return */

static struct ibv_device device = {
    .name = "mlx9_0", .dev_name = "uverbs0", .node_type = IBV_NODE_CA};
static struct ibv_device twin = {.name = "sw_lo", .node_type = IBV_NODE_CA};
static int lists_out;

static struct ibv_device **make_list(int *num_devices)
{
    const char *mode = getenv("FAKE_STOCK");
    if (mode && !strcmp(mode, "none")) {
        errno = ENOSYS;
        return NULL;
    }
    struct ibv_device **list = calloc(3, sizeof(*list));
    if (!list)
        return NULL;
    list[0] = &device;
    list[1] = &twin; /* one of ours, as seen through the sysfs tree we show */
    lists_out++;
    if (num_devices)
        *num_devices = 2;
    return list;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    return make_list(num_devices);
}

/* A list as stock's own functions make it, past the exported one. */
EXPORT struct ibv_device **fake_stock_list(void);
EXPORT struct ibv_device **fake_stock_list(void)
{
    return make_list(NULL);
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    lists_out--;
    free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *dev)
{
    (void)dev;
    return MARK;
}

/* Also the way to ask how many lists were not freed. */
EXPORT int ibv_get_device_index(struct ibv_device *dev)
{
    (void)dev;
    return MARK + lists_out;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
    struct verbs_context *verbs = calloc(1, sizeof(*verbs));
    if (!verbs)
        return NULL;
    verbs->context.device = dev;
    verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    return &verbs->context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
    free((char *)context - offsetof(struct verbs_context, context));
    return MARK;
}

#define CREATE(type, name, ...)                           \
    EXPORT struct type *name(__VA_ARGS__)                 \
    {                                                     \
        struct type *object = calloc(1, sizeof(*object)); \
        if (object)                                       \
            object->context = context;                    \
        return object;                                    \
    }
#define CREATE_IN_PD(type, name, ...)                        \
    EXPORT struct type *name(struct ibv_pd *pd, __VA_ARGS__) \
    {                                                        \
        struct type *object = calloc(1, sizeof(*object));    \
        if (object)                                          \
            object->context = pd->context;                   \
        return object;                                       \
    }
#define DESTROY(type, name)              \
    EXPORT int name(struct type *object) \
    {                                    \
        free(object);                    \
        return MARK;                     \
    }
#define ANSWER(name, ...)        \
    EXPORT int name(__VA_ARGS__) \
    {                            \
        return MARK;             \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
CREATE(ibv_pd, ibv_alloc_pd, struct ibv_context *context)
CREATE(ibv_comp_channel, ibv_create_comp_channel, struct ibv_context *context)
CREATE(ibv_cq, ibv_create_cq, struct ibv_context *context, int cqe, void *cq_context,
       struct ibv_comp_channel *channel, int vector)
CREATE_IN_PD(ibv_mr, ibv_reg_mr, void *addr, size_t length, int access)
CREATE_IN_PD(ibv_qp, ibv_create_qp, struct ibv_qp_init_attr *attr)
CREATE_IN_PD(ibv_srq, ibv_create_srq, struct ibv_srq_init_attr *attr)
CREATE_IN_PD(ibv_ah, ibv_create_ah, struct ibv_ah_attr *attr)
DESTROY(ibv_pd, ibv_dealloc_pd)
DESTROY(ibv_comp_channel, ibv_destroy_comp_channel)
DESTROY(ibv_cq, ibv_destroy_cq)
DESTROY(ibv_mr, ibv_dereg_mr)
DESTROY(ibv_qp, ibv_destroy_qp)
DESTROY(ibv_srq, ibv_destroy_srq)
ANSWER(ibv_query_device, struct ibv_context *context, struct ibv_device_attr *attr)
ANSWER(ibv_query_port, struct ibv_context *context, uint8_t port,
       struct _compat_ibv_port_attr *attr)
ANSWER(ibv_query_gid, struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
ANSWER(ibv_query_pkey, struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
ANSWER(ibv_modify_qp, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
ANSWER(ibv_query_qp, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
       struct ibv_qp_init_attr *init)
ANSWER(ibv_get_async_event, struct ibv_context *context, struct ibv_async_event *event)
ANSWER(ibv_get_cq_event, struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
ANSWER(ibv_fork_init, void)

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_ENABLED;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
    cq->comp_events_completed = nevents + MARK;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    event->element.qp->events_completed = MARK;
}
