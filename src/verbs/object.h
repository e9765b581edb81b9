/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects programs hold, each with the public struct of <infiniband/verbs.h> first, so that
 * unwrapping is a cast.
 *
 * Owner: the program, from create to destroy. Every object holds a reference on its context, so a
 * program that closes the device first (the kernel would take its objects down with it) does not
 * leave them dangling. Only src/verbs knows the verbs conventions (positive errno, or NULL or -1
 * with errno); device/ returns negative errno.
 */
#ifndef SW_VERBS_OBJECT_H
#define SW_VERBS_OBJECT_H

#include <assert.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "device/memory/mr.h"
#include "device/nic/context.h"
#include "device/nic/netdev.h"
#include "device/queue/cq.h"
#include "device/queue/qp.h"
#include "device/queue/srq.h"

#define SW_EXPORT __attribute__((visibility("default")))
#define SW_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Vendor libraries look behind struct ibv_device for their own fields before they know whose device
 * it is: let them find zeros. */
struct sw_verbs_device {
    union {
        struct ibv_device ibv;
        uint8_t room[1024];
    };
    struct sw_netdev *netdev;
};

struct sw_async_node;

struct sw_verbs_context {
    struct sw_context *dev;
    atomic_int refs;           /* one for the program's handle, one for each object */
    struct sw_lock async_lock; /* guards the queue below and every async_delivered */
    struct sw_async_node *async_head;
    struct sw_async_node **async_tail;
    struct verbs_context verbs; /* struct ibv_context is its last field */
};

struct sw_verbs_td {
    struct ibv_td ibv;
    atomic_int refs; /* parent domains */
};

struct sw_verbs_pd {
    struct ibv_pd ibv;
    struct sw_pd *dev;
    /* A parent domain's, as the program gave them: domain.c. */
    bool is_parent;
    uint32_t lender; /* imported from another process: its slot, and the PD's number there */
    uint32_t lent_id;
    struct ibv_parent_domain_init_attr parent;
};

struct sw_dm_memory;

struct sw_verbs_mr {
    struct ibv_mr ibv;
    struct sw_mr *dev;       /* NULL: imported */
    struct sw_dm_memory *dm; /* whose device memory it is, or NULL */
    void *mapping;           /* of a dma-buf or of another process's region, made for it, or NULL */
    size_t mapping_bytes;
    bool is_null;
    bool is_borrowed; /* imported from another process: ends by ibv_unimport_mr() */
};

struct sw_verbs_dm {
    struct ibv_dm ibv;
    struct sw_dm_memory *memory;
};

struct sw_verbs_mw {
    struct ibv_mw ibv;
    struct sw_mw *dev;
};

struct sw_verbs_cq;

struct sw_verbs_channel {
    struct ibv_comp_channel ibv;
    struct sw_lock lock;      /* guards refcnt, the list, and the channel fields of its CQs */
    struct sw_verbs_cq *head; /* CQs with undelivered events, in order of arrival */
    struct sw_verbs_cq *tail;
};

#define SW_CQ_CACHE_LEN 16

struct sw_verbs_cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ex;
        uint8_t room[512];
    };
    struct sw_cq *dev;
    bool is_ex;
    bool single_threaded;
    bool timed;
    /* Completions taken from the device and not yet given to the program, see cq_ex.c. Guarded by
     * cache_lock. */
    struct sw_lock cache_lock;
    uint32_t cache_at;
    uint32_t cache_count;
    struct ibv_wc cache[SW_CQ_CACHE_LEN];
    uint64_t cache_times_ns[SW_CQ_CACHE_LEN];

    struct sw_verbs_cq *channel_next;
    uint32_t channel_pending;   /* events not yet fetched */
    uint32_t channel_delivered; /* events fetched, to be acknowledged */
    uint32_t async_delivered;
};

struct sw_verbs_xrcd;

struct sw_verbs_srq {
    struct ibv_srq ibv;
    struct sw_srq *dev;
    struct sw_verbs_xrcd *xrcd; /* or NULL */
    uint32_t async_delivered;
};

struct sw_verbs_qp {
    union {
        struct ibv_qp ibv;
        struct ibv_qp_ex ex;
        uint8_t room[512];
    };
    struct sw_qp *dev;
    /* The builder: the request being described. Owned by the thread between ibv_wr_start and
     * ibv_wr_complete, under the send lock. */
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    uint64_t atomic_word; /* of ibv_wr_atomic_write */
    bool wr_open;         /* `wr` is described but not handed over yet */
    int wr_error;         /* first misuse since ibv_wr_start, positive errno */
    uint8_t *inline_room; /* gathers ibv_wr_set_inline_data_list */

    struct sw_verbs_xrcd *xrcd;     /* of a handle on an XRC target, or NULL */
    struct sw_verbs_qp *share_next; /* the ring of such handles on one QP */

    bool is_ex;
    bool sq_sig_all;
    struct ibv_qp_cap cap;
    uint32_t async_delivered;
};

static_assert(sizeof(struct ibv_device) == 664, "the public struct ibv_device is ABI");
static_assert(sizeof(struct ibv_qp_ex) + sizeof(void *) <= 512,
              "room for the operations of newer headers");
static_assert(sizeof(struct ibv_cq_ex) <= 512, "room for the fields of newer headers");
static_assert(offsetof(struct verbs_context, context) + sizeof(struct ibv_context) ==
                  sizeof(struct verbs_context),
              "struct ibv_context comes last");

extern struct sw_verbs_device sw_verbs_devices[SW_NETDEV_MAX];

/* Whether a device is ours or of stock libibverbs: ours all live in one array, so nothing is read.
 */
static inline bool sw_verbs_is_ours(const struct ibv_device *device)
{
    return (uintptr_t)device - (uintptr_t)sw_verbs_devices < sizeof(sw_verbs_devices);
}

static inline struct sw_verbs_context *sw_verbs_context_of(struct ibv_context *context)
{
    return (struct sw_verbs_context *)((uint8_t *)context -
                                       offsetof(struct sw_verbs_context, verbs.context));
}

static inline struct sw_netdev *sw_verbs_netdev_of(const struct ibv_context *context)
{
    return ((struct sw_verbs_device *)context->device)->netdev;
}

static inline struct sw_verbs_cq *sw_verbs_cq_of(struct ibv_cq *cq)
{
    return (struct sw_verbs_cq *)cq;
}

static inline struct sw_verbs_qp *sw_verbs_qp_of(struct ibv_qp *qp)
{
    return (struct sw_verbs_qp *)qp;
}

static inline struct sw_verbs_srq *sw_verbs_srq_of(struct ibv_srq *srq)
{
    return (struct sw_verbs_srq *)srq;
}

static inline struct sw_verbs_pd *sw_verbs_pd_of(struct ibv_pd *pd)
{
    return (struct sw_verbs_pd *)pd;
}

/* Allocates a zeroed object of `context`, counted there until sw_verbs_object_free(); NULL with
 * errno. */
void *sw_verbs_object_alloc(struct ibv_context *context, size_t len_bytes);
void sw_verbs_object_free(struct ibv_context *context, void *object);
uint32_t sw_verbs_next_handle(void);

/* Sets errno from a negative errno and returns NULL: the end of every failed creation. */
void *sw_verbs_fail(int negative_errno);

#endif
