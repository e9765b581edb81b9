/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "link/link.h"
#include "verbs/async.h"
#include "verbs/stock.h"
#include "verbs/xrc.h"

#undef ibv_query_port

static atomic_int open_contexts;

int sw_verbs_open_contexts(void)
{
    return atomic_load(&open_contexts);
}

/* No command goes through it. But programs duplicate it and pass it on, for ibv_import_device: it
 * says which device it is of. */
struct cmd_file {
    char magic[16];
    char device[IBV_SYSFS_NAME_MAX];
};
static const char cmd_magic[16] = "sidewire-cmd-fd";

static int open_cmd_fd(const struct ibv_device *device)
{
    struct cmd_file file;
    memcpy(file.magic, cmd_magic, sizeof(file.magic));
    memcpy(file.device, device->name, sizeof(file.device));
    int fd = sw_shm_create("sidewire-context", sizeof(file));
    if (fd >= 0 && pwrite(fd, &file, sizeof(file), 0) != sizeof(file)) {
        close(fd);
        fd = -EIO;
    }
    return fd;
}

bool sw_verbs_is_cmd_fd(int fd, char device[IBV_SYSFS_NAME_MAX])
{
    struct cmd_file file;
    struct stat st; /* nothing else is read from: it could wait, or take what others want */
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
        pread(fd, &file, sizeof(file), 0) != sizeof(file) ||
        memcmp(file.magic, cmd_magic, sizeof(cmd_magic)) != 0)
        return false;
    memcpy(device, file.device, IBV_SYSFS_NAME_MAX);
    device[IBV_SYSFS_NAME_MAX - 1] = '\0';
    return true;
}

static void fill_ops(struct verbs_context *verbs)
{
    sw_verbs_fill_unsupported(verbs);
    verbs->query_port = sw_verbs_query_port;
    verbs->query_device_ex = sw_verbs_query_device_ex;
    verbs->query_rt_values = sw_verbs_query_rt_values;
    verbs->alloc_td = sw_verbs_alloc_td;
    verbs->dealloc_td = sw_verbs_dealloc_td;
    verbs->alloc_parent_domain = sw_verbs_alloc_parent_domain;
    verbs->create_cq_ex = sw_verbs_create_cq_ex;
    verbs->modify_cq = sw_verbs_modify_cq;
    verbs->create_srq_ex = sw_verbs_create_srq_ex;
    verbs->create_qp_ex = sw_verbs_create_qp_ex;
    verbs->get_srq_num = sw_verbs_get_srq_num;
    verbs->open_qp = sw_verbs_open_qp;
    verbs->modify_qp_rate_limit = sw_verbs_modify_qp_rate_limit;
    verbs->open_xrcd = sw_verbs_open_xrcd;
    verbs->close_xrcd = sw_verbs_close_xrcd;

    verbs->alloc_null_mr = sw_verbs_alloc_null_mr;
    verbs->advise_mr = sw_verbs_advise_mr;
    verbs->alloc_dm = sw_verbs_alloc_dm;
    verbs->free_dm = sw_verbs_free_dm;
    verbs->reg_dm_mr = sw_verbs_reg_dm_mr;

    struct ibv_context_ops *ops = &verbs->context.ops;
    ops->_compat_query_device = ibv_query_device;
    ops->_compat_query_port = ibv_query_port;
    ops->alloc_mw = sw_verbs_alloc_mw;
    ops->bind_mw = sw_verbs_bind_mw;
    ops->dealloc_mw = sw_verbs_dealloc_mw;
    ops->poll_cq = sw_verbs_poll_cq;
    ops->req_notify_cq = sw_verbs_req_notify_cq;
    ops->post_srq_recv = sw_verbs_post_srq_recv;
    ops->post_send = sw_verbs_post_send;
    ops->post_recv = sw_verbs_post_recv;
}

struct ibv_context *sw_verbs_context_open(struct sw_verbs_device *device)
{
    struct sw_verbs_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return sw_verbs_fail(-ENOMEM);
    struct ibv_context *context = &ctx->verbs.context;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    context->device = &device->ibv;
    context->num_comp_vectors = cpus > 0 ? (int)cpus : 1;
    context->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&context->mutex, NULL);
    ctx->verbs.sz = sizeof(ctx->verbs);
    atomic_init(&ctx->refs, 1);
    fill_ops(&ctx->verbs);

    int rc = sw_async_init(ctx);
    if (rc)
        goto no_async;
    context->cmd_fd = open_cmd_fd(&device->ibv);
    if (context->cmd_fd < 0) {
        rc = context->cmd_fd;
        goto no_cmd_fd;
    }
    sw_link_init();
    rc = sw_context_open(device->netdev, sw_async_push, ctx, &ctx->dev);
    if (rc)
        goto no_device;
    atomic_fetch_add(&open_contexts, 1);
    return context;

no_device:
    close(context->cmd_fd);
no_cmd_fd:
    sw_async_fini(ctx);
no_async:
    free(ctx);
    return sw_verbs_fail(rc);
}

void sw_verbs_context_put(struct ibv_context *context)
{
    struct sw_verbs_context *ctx = sw_verbs_context_of(context);
    if (atomic_fetch_sub(&ctx->refs, 1) > 1)
        return;
    sw_context_close(ctx->dev);
    sw_async_fini(ctx);
    close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    free(ctx);
    atomic_fetch_sub(&open_contexts, 1);
}

/* On cache lines of its own: threads with a QP each must not share one. */
void *sw_verbs_object_alloc(struct ibv_context *context, size_t len_bytes)
{
    const size_t line = 64, room = (len_bytes + line - 1) & ~(line - 1);
    void *object = aligned_alloc(line, room);
    if (!object)
        return sw_verbs_fail(-ENOMEM);
    memset(object, 0, room);
    atomic_fetch_add(&sw_verbs_context_of(context)->refs, 1);
    return object;
}

void sw_verbs_object_free(struct ibv_context *context, void *object)
{
    free(object);
    sw_verbs_context_put(context);
}

uint32_t sw_verbs_next_handle(void)
{
    static atomic_uint next;
    return atomic_fetch_add(&next, 1) + 1;
}

void *sw_verbs_fail(int negative_errno)
{
    errno = -negative_errno;
    return NULL;
}

int sw_verbs_query_device_ex(struct ibv_context *context,
                             const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attr, size_t attr_size)
{
    struct ibv_device_attr_ex all;
    if ((input && input->comp_mask) || attr_size < sizeof(all.orig_attr))
        return EINVAL;
    sw_context_query(sw_verbs_context_of(context)->dev, &all);
    /* The program's struct may be older (shorter) or newer than ours. */
    memset(attr, 0, attr_size);
    memcpy(attr, &all, sw_min_size(attr_size, sizeof(all)));
    return 0;
}

/* The clock of the completions' timestamps. Its cycles go into tv_nsec whole, which is where
 * programs that know hardware look for them. */
int sw_verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    (void)context;
    const uint32_t known = values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK;
    if (known)
        values->raw_clock = (struct timespec){.tv_nsec = (long)sw_clock_ns()};
    values->comp_mask = known;
    return 0;
}

SW_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->query_device(context, attr);
    struct ibv_device_attr_ex all;
    sw_context_query(sw_verbs_context_of(context)->dev, &all);
    *attr = all.orig_attr;
    return 0;
}

int sw_verbs_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                        size_t attr_len)
{
    if (port_num != 1)
        return EINVAL;
    struct ibv_port_attr all;
    sw_context_query_port(sw_verbs_context_of(context)->dev, &all);
    memset(attr, 0, attr_len);
    memcpy(attr, &all, sw_min_size(attr_len, sizeof(all)));
    return 0;
}

/* The function, in contrast to the inline of the same name, knows the struct as it was before
 * port_cap_flags2. */
enum { COMPAT_PORT_ATTR_BYTES = offsetof(struct ibv_port_attr, port_cap_flags2) };
static_assert(COMPAT_PORT_ATTR_BYTES == 48, "what ibv_query_port has always written");

SW_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                             struct _compat_ibv_port_attr *attr)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->query_port(context, port_num, attr);
    return sw_verbs_query_port(context, port_num, (struct ibv_port_attr *)attr,
                               COMPAT_PORT_ATTR_BYTES);
}
