/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of contexts and protection domains, for device/ only. */
#ifndef SW_DEVICE_NIC_CONTEXT_IMPL_H
#define SW_DEVICE_NIC_CONTEXT_IMPL_H

#include <stdatomic.h>

#include "device/nic/context.h"

struct sw_context {
    struct sw_context *next; /* in sw_nic.contexts, under nic.lock */
    struct sw_netdev *netdev;
    sw_async_fn async;
    void *owner;
};

struct sw_pd {
    struct sw_context *ctx;
    uint32_t id; /* published in MR and QP entries; a parent domain's is its base's */
    atomic_uint refs;
    struct sw_pd *base; /* of a parent domain */
    struct sw_allocator allocator;
};

#endif
