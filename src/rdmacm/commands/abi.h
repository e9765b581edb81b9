/* SPDX-License-Identifier: BSD-2-Clause */
/* What Linux 6.16 and 6.17 added to rdma/rdma_user_cm.h, for headers that are older. */
#ifndef SW_RDMACM_COMMANDS_ABI_H
#define SW_RDMACM_COMMANDS_ABI_H

#include <assert.h>
#include <rdma/rdma_user_cm.h>
#include <stdint.h>

enum { SW_UCM_CMD_RESOLVE_IB_SERVICE = 23, SW_UCM_CMD_WRITE_CM_EVENT = 24 };
enum { SW_UCM_QUERY_IB_SERVICE = 3 };

struct sw_ucm_resolve_ib_service {
    uint32_t id;
    _Alignas(8) uint64_t service_id;
    uint8_t service_name[64];
    uint32_t flags;
    uint32_t reserved;
};
static_assert(sizeof(struct sw_ucm_resolve_ib_service) == 88, "the kernel's");

struct sw_ucm_query_ib_service_resp {
    uint32_t num_service_recs; /* and so many records */
};

struct sw_ucm_write_cm_event {
    uint32_t id;
    uint32_t reserved;
    uint32_t event;
    uint32_t status;
    union {
        struct rdma_ucm_conn_param conn;
        struct rdma_ucm_ud_param ud;
        uint64_t arg; /* in the event as two words, from the start of its parameters */
    } param;
};
static_assert(sizeof(struct sw_ucm_write_cm_event) == 320, "the kernel's");

#endif
