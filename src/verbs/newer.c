/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that libibverbs gained after the headers we build with (IBVERBS_1.15 to 1.18). Only
 * pointers and integers cross these interfaces, but for two structs whose layout is repeated here.
 * Their C names differ from their symbols, so that headers new enough to declare them do not clash.
 */
#include <errno.h>
#include <stdint.h>

#include "verbs/mr.h"
#include "verbs/stock.h"

#define SYMBOL(name) __asm__(#name) SW_EXPORT

/* Every object of these verbs that reaches a function below belongs to stock, unless it is one of
 * the types we can make (context, PD, QP): the creators refuse. */
#define FORWARD(missing, type, name, version, ...)                   \
    do {                                                             \
        type *stock_##name = (type *)sw_stock_find(#name, version);  \
        return stock_##name ? stock_##name(__VA_ARGS__) : (missing); \
    } while (0)

/* struct ibv_mr_init_attr */
struct mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask;
    uint64_t iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    void *dmah;
};

enum mr_init_mask { MR_INIT_IOVA = 1 << 0, MR_INIT_ADDR = 1 << 1 };

struct ibv_mr *sw_newer_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr)
    SYMBOL(ibv_reg_mr_ex);
struct ibv_mr *sw_newer_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr)
{
    if (!sw_verbs_is_ours(pd->context->device))
        FORWARD(sw_verbs_fail(-EOPNOTSUPP), __typeof__(sw_newer_reg_mr_ex), ibv_reg_mr_ex,
                "IBVERBS_1.15", pd, attr);
    if (attr->comp_mask & ~(uint64_t)(MR_INIT_IOVA | MR_INIT_ADDR))
        return sw_verbs_fail(-EOPNOTSUPP);
    if (!(attr->comp_mask & MR_INIT_ADDR))
        return sw_verbs_fail(-EINVAL);
    const uint64_t iova = attr->comp_mask & MR_INIT_IOVA ? attr->iova : (uintptr_t)attr->addr;
    return sw_verbs_reg(pd, attr->addr, attr->length, iova, (unsigned int)attr->access);
}

void *sw_newer_alloc_dmah(struct ibv_context *context, void *attr) SYMBOL(ibv_alloc_dmah);
void *sw_newer_alloc_dmah(struct ibv_context *context, void *attr)
{
    if (!sw_verbs_is_ours(context->device))
        FORWARD(sw_verbs_fail(-EOPNOTSUPP), __typeof__(sw_newer_alloc_dmah), ibv_alloc_dmah,
                "IBVERBS_1.15", context, attr);
    return sw_verbs_fail(-EOPNOTSUPP);
}

int sw_newer_dealloc_dmah(void *dmah) SYMBOL(ibv_dealloc_dmah);
int sw_newer_dealloc_dmah(void *dmah)
{
    FORWARD(EOPNOTSUPP, __typeof__(sw_newer_dealloc_dmah), ibv_dealloc_dmah, "IBVERBS_1.15", dmah);
}

static int minus_one_unsupported(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

int sw_newer_dm_export_dmabuf_fd(struct ibv_dm *dm) SYMBOL(ibv_dm_export_dmabuf_fd);
int sw_newer_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
    FORWARD(minus_one_unsupported(), __typeof__(sw_newer_dm_export_dmabuf_fd),
            ibv_dm_export_dmabuf_fd, "IBVERBS_1.16", dm);
}

/* The effective speed in units of 100 Mb/s; no netdev speed is known to that precision. */
int sw_newer_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *speed)
    SYMBOL(ibv_query_port_speed);
int sw_newer_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *speed)
{
    if (!sw_verbs_is_ours(context->device))
        FORWARD(EOPNOTSUPP, __typeof__(sw_newer_query_port_speed), ibv_query_port_speed,
                "IBVERBS_1.16", context, port_num, speed);
    return EOPNOTSUPP;
}

void *sw_newer_alloc_buf(struct ibv_pd *pd, size_t size, void **buf) SYMBOL(ibv_alloc_buf);
void *sw_newer_alloc_buf(struct ibv_pd *pd, size_t size, void **buf)
{
    if (!sw_verbs_is_ours(pd->context->device))
        FORWARD(sw_verbs_fail(-EOPNOTSUPP), __typeof__(sw_newer_alloc_buf), ibv_alloc_buf,
                "IBVERBS_1.17", pd, size, buf);
    return sw_verbs_fail(-EOPNOTSUPP);
}

void sw_newer_free_buf(void *buf) SYMBOL(ibv_free_buf);
void sw_newer_free_buf(void *buf)
{
    __typeof__(sw_newer_free_buf) *stock = sw_stock_find("ibv_free_buf", "IBVERBS_1.17");
    if (stock)
        stock(buf);
}

struct ibv_mr *sw_newer_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr, size_t length,
                                   int access) SYMBOL(ibv_reg_buf_mr);
struct ibv_mr *sw_newer_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr, size_t length,
                                   int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        FORWARD(sw_verbs_fail(-EOPNOTSUPP), __typeof__(sw_newer_reg_buf_mr), ibv_reg_buf_mr,
                "IBVERBS_1.17", pd, buf, addr, length, access);
    return sw_verbs_fail(-EOPNOTSUPP);
}

int sw_newer_export_buf_dmabuf_fd(void *buf) SYMBOL(ibv_export_buf_dmabuf_fd);
int sw_newer_export_buf_dmabuf_fd(void *buf)
{
    FORWARD(minus_one_unsupported(), __typeof__(sw_newer_export_buf_dmabuf_fd),
            ibv_export_buf_dmabuf_fd, "IBVERBS_1.18", buf);
}

/* Completion counters. */

int sw_newer_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t caps_size)
    SYMBOL(_ibv_query_comp_cntr_caps);
int sw_newer_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t caps_size)
{
    if (!sw_verbs_is_ours(context->device))
        FORWARD(EOPNOTSUPP, __typeof__(sw_newer_query_comp_cntr_caps), _ibv_query_comp_cntr_caps,
                "IBVERBS_1.18", context, caps, caps_size);
    return EOPNOTSUPP;
}

void *sw_newer_create_comp_cntr(struct ibv_context *context, void *attr)
    SYMBOL(ibv_create_comp_cntr);
void *sw_newer_create_comp_cntr(struct ibv_context *context, void *attr)
{
    if (!sw_verbs_is_ours(context->device))
        FORWARD(sw_verbs_fail(-EOPNOTSUPP), __typeof__(sw_newer_create_comp_cntr),
                ibv_create_comp_cntr, "IBVERBS_1.18", context, attr);
    return sw_verbs_fail(-EOPNOTSUPP);
}

int sw_newer_qp_attach_comp_cntr(struct ibv_qp *qp, void *counter, void *attr)
    SYMBOL(ibv_qp_attach_comp_cntr);
int sw_newer_qp_attach_comp_cntr(struct ibv_qp *qp, void *counter, void *attr)
{
    if (!sw_verbs_is_ours(qp->context->device))
        FORWARD(EOPNOTSUPP, __typeof__(sw_newer_qp_attach_comp_cntr), ibv_qp_attach_comp_cntr,
                "IBVERBS_1.18", qp, counter, attr);
    return EOPNOTSUPP;
}

int sw_newer_destroy_comp_cntr(void *counter) SYMBOL(ibv_destroy_comp_cntr);
int sw_newer_destroy_comp_cntr(void *counter)
{
    FORWARD(EOPNOTSUPP, __typeof__(sw_newer_destroy_comp_cntr), ibv_destroy_comp_cntr,
            "IBVERBS_1.18", counter);
}

#define SET_COUNTER(verb)                                                                     \
    int sw_newer_##verb(void *counter, uint64_t value) SYMBOL(ibv_##verb);                    \
    int sw_newer_##verb(void *counter, uint64_t value)                                        \
    {                                                                                         \
        FORWARD(EOPNOTSUPP, __typeof__(sw_newer_##verb), ibv_##verb, "IBVERBS_1.18", counter, \
                value);                                                                       \
    }
SET_COUNTER(set_comp_cntr)
SET_COUNTER(set_err_comp_cntr)
SET_COUNTER(inc_comp_cntr)
SET_COUNTER(inc_err_comp_cntr)

#define READ_COUNTER(verb)                                                                    \
    int sw_newer_##verb(void *counter, uint64_t *value) SYMBOL(ibv_##verb);                   \
    int sw_newer_##verb(void *counter, uint64_t *value)                                       \
    {                                                                                         \
        FORWARD(EOPNOTSUPP, __typeof__(sw_newer_##verb), ibv_##verb, "IBVERBS_1.18", counter, \
                value);                                                                       \
    }
READ_COUNTER(read_comp_cntr)
READ_COUNTER(read_err_comp_cntr)
