/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface of 2006 (IBVERBS_1.0), whose objects have another layout. Stock libibverbs still
 * implements it in full on top of its own list of real devices; a program that old is handed to it
 * and sees none of ours. Without stock it finds no device.
 */
#include <errno.h>

#include "verbs/object.h"
#include "verbs/stock.h"

/* All arguments and results of these functions are pointers and integers of at most six, so they
 * pass through as they are. */
typedef long compat_function(long a, long b, long c, long d, long e, long f);

static long forward_call(const char *name, long a, long b, long c, long d, long e, long f)
{
    compat_function *stock = (compat_function *)sw_stock_find(name, "IBVERBS_1.0");
    if (stock)
        return stock(a, b, c, d, e, f);
    errno = ENOSYS;
    return 0;
}

#define COMPAT(name)                                                                \
    SW_EXPORT compat_function sw_compat_##name;                                     \
    SW_EXPORT long sw_compat_##name(long a, long b, long c, long d, long e, long f) \
    {                                                                               \
        return forward_call(#name, a, b, c, d, e, f);                               \
    }                                                                               \
    __asm__(".symver sw_compat_" #name ", " #name "@IBVERBS_1.0, remove");

COMPAT(ibv_ack_async_event)
COMPAT(ibv_ack_cq_events)
COMPAT(ibv_alloc_pd)
COMPAT(ibv_attach_mcast)
COMPAT(ibv_close_device)
COMPAT(ibv_create_ah)
COMPAT(ibv_create_cq)
COMPAT(ibv_create_qp)
COMPAT(ibv_create_srq)
COMPAT(ibv_dealloc_pd)
COMPAT(ibv_dereg_mr)
COMPAT(ibv_destroy_ah)
COMPAT(ibv_destroy_cq)
COMPAT(ibv_destroy_qp)
COMPAT(ibv_destroy_srq)
COMPAT(ibv_detach_mcast)
COMPAT(ibv_free_device_list)
COMPAT(ibv_get_async_event)
COMPAT(ibv_get_cq_event)
COMPAT(ibv_get_device_guid)
COMPAT(ibv_get_device_list)
COMPAT(ibv_get_device_name)
COMPAT(ibv_modify_qp)
COMPAT(ibv_modify_srq)
COMPAT(ibv_open_device)
COMPAT(ibv_query_device)
COMPAT(ibv_query_gid)
COMPAT(ibv_query_pkey)
COMPAT(ibv_query_port)
COMPAT(ibv_query_qp)
COMPAT(ibv_query_srq)
COMPAT(ibv_reg_mr)
COMPAT(ibv_resize_cq)
