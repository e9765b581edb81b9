/* SPDX-License-Identifier: BSD-2-Clause */
/* An opened device, and the protection domains on it. What `ibv_open_device` and `ibv_alloc_pd`
 * stand on. */
#ifndef SW_DEVICE_NIC_CONTEXT_H
#define SW_DEVICE_NIC_CONTEXT_H

#include <infiniband/verbs.h>

#include "device/nic/netdev.h"

struct sw_context;
struct sw_pd;

/* `element` is the owner pointer given when the CQ, QP or SRQ was created; NULL for port events
 * (port 1) and device events. Called without locks of the device held that the callee could need;
 * from any thread (also the engine). */
typedef void (*sw_async_fn)(void *context_owner, enum ibv_event_type type, void *element);

/* Opens the device: brings up the process's NIC (slot, tables, engine) on first use. 0 or negative
 * errno. */
int sw_context_open(struct sw_netdev *dev, sw_async_fn async, void *owner, struct sw_context **out);
void sw_context_close(struct sw_context *ctx);
struct sw_netdev *sw_context_netdev(const struct sw_context *ctx);
/* Device limits and capability bits, filled whole. */
void sw_context_query(struct sw_context *ctx, struct ibv_device_attr_ex *out);
void sw_context_query_port(struct sw_context *ctx, struct ibv_port_attr *out);
/* The path MTU that fits into an interface's. */
enum ibv_mtu sw_context_mtu(unsigned int netdev_mtu_bytes);
uint32_t sw_context_mtu_bytes(struct sw_context *ctx); /* the port's, 256..4096 */

int sw_pd_alloc(struct sw_context *ctx, struct sw_pd **out);

/* Where a program wants its queues' memory: device/memory/buffer.h. */
#define SW_ALLOCATOR_DEFAULT ((void *)-1) /* the answer of one that leaves a request to us */
struct sw_allocator {
    void *(*alloc)(void *owner, size_t len_bytes, size_t alignment_bytes, uint64_t type);
    void (*free)(void *owner, void *memory, uint64_t type);
    void *owner;
};
/* A parent domain: the same domain as `base` (which stays busy meanwhile), with an allocator or
 * NULL. */
int sw_pd_alloc_parent(struct sw_pd *base, const struct sw_allocator *allocator,
                       struct sw_pd **out);
int sw_pd_dealloc(struct sw_pd *pd); /* -EBUSY while MRs, QPs, SRQs or AHs use it */
/* For other users of a PD (address handles). */
void sw_pd_ref(struct sw_pd *pd);
void sw_pd_unref(struct sw_pd *pd);

#endif
