/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stock libibverbs beside us. Objects of real RDMA devices are its own, so each exported
 * function hands them on through this table. Where the installed library lacks a function, the
 * entry fails the way that verb fails (EOPNOTSUPP).
 */
#ifndef SW_VERBS_STOCK_H
#define SW_VERBS_STOCK_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* How a missing function fails: a positive errno, -1 with errno, NULL with errno. */
#define SW_STOCK_FUNCTIONS(X)                        \
    X(ack_async_event, "IBVERBS_1.1", ERRNO)         \
    X(ack_cq_events, "IBVERBS_1.1", ERRNO)           \
    X(alloc_pd, "IBVERBS_1.1", NULL)                 \
    X(attach_mcast, "IBVERBS_1.1", ERRNO)            \
    X(close_device, "IBVERBS_1.1", MINUS)            \
    X(create_ah, "IBVERBS_1.1", NULL)                \
    X(create_ah_from_wc, "IBVERBS_1.1", NULL)        \
    X(create_comp_channel, "IBVERBS_1.0", NULL)      \
    X(create_cq, "IBVERBS_1.1", NULL)                \
    X(create_qp, "IBVERBS_1.1", NULL)                \
    X(create_srq, "IBVERBS_1.1", NULL)               \
    X(dealloc_pd, "IBVERBS_1.1", ERRNO)              \
    X(dereg_mr, "IBVERBS_1.1", ERRNO)                \
    X(destroy_ah, "IBVERBS_1.1", ERRNO)              \
    X(destroy_comp_channel, "IBVERBS_1.0", ERRNO)    \
    X(destroy_cq, "IBVERBS_1.1", ERRNO)              \
    X(destroy_qp, "IBVERBS_1.1", ERRNO)              \
    X(destroy_srq, "IBVERBS_1.1", ERRNO)             \
    X(detach_mcast, "IBVERBS_1.1", ERRNO)            \
    X(fork_init, "IBVERBS_1.1", ERRNO)               \
    X(free_device_list, "IBVERBS_1.1", ERRNO)        \
    X(get_async_event, "IBVERBS_1.1", MINUS)         \
    X(get_cq_event, "IBVERBS_1.1", MINUS)            \
    X(get_device_guid, "IBVERBS_1.1", NULL)          \
    X(get_device_index, "IBVERBS_1.9", MINUS)        \
    X(get_device_list, "IBVERBS_1.1", NULL)          \
    X(get_device_name, "IBVERBS_1.1", NULL)          \
    X(get_pkey_index, "IBVERBS_1.5", MINUS)          \
    X(import_device, "IBVERBS_1.10", NULL)           \
    X(import_dm, "IBVERBS_1.13", NULL)               \
    X(import_mr, "IBVERBS_1.10", NULL)               \
    X(import_pd, "IBVERBS_1.10", NULL)               \
    X(init_ah_from_wc, "IBVERBS_1.1", MINUS)         \
    X(is_fork_initialized, "IBVERBS_1.13", NULL)     \
    X(modify_qp, "IBVERBS_1.1", ERRNO)               \
    X(modify_srq, "IBVERBS_1.1", ERRNO)              \
    X(open_device, "IBVERBS_1.1", NULL)              \
    X(qp_to_qp_ex, "IBVERBS_1.6", NULL)              \
    X(query_device, "IBVERBS_1.1", ERRNO)            \
    X(query_ece, "IBVERBS_1.10", ERRNO)              \
    X(query_gid, "IBVERBS_1.1", MINUS)               \
    X(query_pkey, "IBVERBS_1.1", MINUS)              \
    X(query_port, "IBVERBS_1.1", ERRNO)              \
    X(query_qp, "IBVERBS_1.1", ERRNO)                \
    X(query_qp_data_in_order, "IBVERBS_1.14", NULL)  \
    X(query_srq, "IBVERBS_1.1", ERRNO)               \
    X(reg_dmabuf_mr, "IBVERBS_1.12", NULL)           \
    X(reg_mr, "IBVERBS_1.1", NULL)                   \
    X(reg_mr_iova, "IBVERBS_1.7", NULL)              \
    X(reg_mr_iova2, "IBVERBS_1.8", NULL)             \
    X(rereg_mr, "IBVERBS_1.1", MINUS)                \
    X(resize_cq, "IBVERBS_1.1", ERRNO)               \
    X(resolve_eth_l2_from_gid, "IBVERBS_1.1", MINUS) \
    X(set_ece, "IBVERBS_1.10", ERRNO)                \
    X(unimport_dm, "IBVERBS_1.13", ERRNO)            \
    X(unimport_mr, "IBVERBS_1.10", ERRNO)            \
    X(unimport_pd, "IBVERBS_1.10", ERRNO)            \
    X(event_type_str, "IBVERBS_1.1", NULL)           \
    X(node_type_str, "IBVERBS_1.1", NULL)            \
    X(port_state_str, "IBVERBS_1.1", NULL)           \
    X(wc_status_str, "IBVERBS_1.1", NULL)            \
    X(rate_to_mult, "IBVERBS_1.0", MINUS)            \
    X(rate_to_mbps, "IBVERBS_1.1", MINUS)

#define SW_STOCK_FIELD(name, version, missing) __typeof__(ibv_##name) *name;
struct sw_stock {
    SW_STOCK_FUNCTIONS(SW_STOCK_FIELD)
};
#undef SW_STOCK_FIELD

/* Loads the library on first use if the program has not. Never NULL. */
const struct sw_stock *sw_stock(void);

/* For functions that the table leaves out; `version` may be NULL for any. NULL if the stock library
 * has no such symbol. */
void *sw_stock_find(const char *name, const char *version);

/* Whether stock sees any device: without one, its process-wide settings need no touching. */
int sw_stock_has_devices(void);

#endif
