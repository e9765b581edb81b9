/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/context.h"

#include <errno.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"
#include "device/nic/context_impl.h"
#include "device/nic/nic.h"
#include "device/rules/device_limits.h"

int sw_context_open(struct sw_netdev *dev, sw_async_fn async, void *owner, struct sw_context **out)
{
    int rc = sw_nic_start();
    if (rc)
        return rc;
    struct sw_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return -ENOMEM;
    ctx->netdev = dev;
    ctx->async = async;
    ctx->owner = owner;
    pthread_mutex_lock(&sw_nic.lock);
    ctx->next = sw_nic.contexts;
    sw_nic.contexts = ctx;
    pthread_mutex_unlock(&sw_nic.lock);
    *out = ctx;
    return 0;
}

void sw_context_close(struct sw_context *ctx)
{
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_context **at = &sw_nic.contexts; *at; at = &(*at)->next) {
        if (*at == ctx) {
            *at = ctx->next;
            break;
        }
    }
    pthread_mutex_unlock(&sw_nic.lock);
    free(ctx);
}

struct sw_netdev *sw_context_netdev(const struct sw_context *ctx)
{
    return ctx->netdev;
}

void sw_context_event(struct sw_context *ctx, enum ibv_event_type type, void *element)
{
    if (ctx->async)
        ctx->async(ctx->owner, type, element);
}

/* What iWARP has not, or otherwise. */
static void limit_to_iwarp(struct ibv_device_attr_ex *out)
{
    struct ibv_device_attr *attr = &out->orig_attr;
    attr->device_cap_flags &=
        ~(unsigned int)(IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_XRC | IBV_DEVICE_CURR_QP_STATE_MOD);
    attr->atomic_cap = IBV_ATOMIC_NONE;
    attr->max_sge_rd = 1; /* what NICs have; more are taken */
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = SW_MAX_IWARP_RD_ATOMIC;
    attr->max_res_rd_atom = SW_MAX_IWARP_RD_ATOMIC * SW_MAX_QP;
    attr->max_ah = attr->max_mcast_grp = attr->max_mcast_qp_attach = 0;
    attr->max_total_mcast_qp_attach = 0;
    attr->max_pkeys = 0;
    attr->local_ca_ack_delay = 0;
    out->odp_caps.per_transport_caps.ud_odp_caps = 0;
    out->odp_caps.per_transport_caps.uc_odp_caps = 0;
    out->odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                                   IBV_ODP_SUPPORT_SRQ_RECV |
                                                   IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    out->xrc_odp_caps = 0;
    out->device_cap_flags_ex = attr->device_cap_flags;
    memset(&out->packet_pacing_caps, 0, sizeof(out->packet_pacing_caps));
}

/* What ibv_query_device() says, too. */
static void set_attributes(struct ibv_device_attr *attr)
{
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = ~(uint64_t)4095;
    attr->vendor_id = SW_VENDOR_ID;
    attr->vendor_part_id = 1;
    attr->hw_ver = 1;
    attr->max_qp = SW_MAX_QP;
    attr->max_qp_wr = SW_MAX_QP_WR;
    attr->device_cap_flags =
        IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
        IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
        IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;
    attr->max_sge = SW_MAX_SGE;
    attr->max_sge_rd = SW_MAX_SGE;
    attr->max_cq = SW_MAX_CQ;
    attr->max_cqe = SW_MAX_CQE;
    attr->max_mr = SW_MAX_MR;
    attr->max_mw = SW_MAX_MR; /* one table holds both */
    attr->max_pd = SW_MAX_PD;
    attr->max_qp_rd_atom = SW_MAX_RD_ATOMIC;
    attr->max_res_rd_atom = SW_MAX_RD_ATOMIC * SW_MAX_QP;
    attr->max_qp_init_rd_atom = SW_MAX_RD_ATOMIC;
    /* They are processor atomics, so GLOB would be true as well. But hardware says HCA, and
     * programs compare with that (UCX's atomics need it). */
    attr->atomic_cap = IBV_ATOMIC_HCA;
    attr->max_ah = SW_MAX_PD;
    attr->max_mcast_grp = SW_MAX_MCAST_GROUPS;
    attr->max_mcast_qp_attach = SW_MAX_MCAST_QPS;
    attr->max_total_mcast_qp_attach = SW_MAX_MCAST_GROUPS * SW_MAX_MCAST_QPS;
    attr->max_srq = SW_MAX_SRQ;
    attr->max_srq_wr = SW_MAX_SRQ_WR;
    attr->max_srq_sge = SW_MAX_SGE;
    attr->max_pkeys = 1;
    attr->local_ca_ack_delay = 15;
    attr->phys_port_cnt = 1;
}

/* What works on memory that is not pinned: all of it. */
static void set_odp(struct ibv_device_attr_ex *out)
{
    out->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    out->odp_caps.per_transport_caps.ud_odp_caps =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    out->odp_caps.per_transport_caps.uc_odp_caps =
        out->odp_caps.per_transport_caps.ud_odp_caps | IBV_ODP_SUPPORT_WRITE;
    out->odp_caps.per_transport_caps.rc_odp_caps =
        out->odp_caps.per_transport_caps.uc_odp_caps | IBV_ODP_SUPPORT_READ |
        IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE;
    out->xrc_odp_caps = out->odp_caps.per_transport_caps.rc_odp_caps;
}

void sw_context_query(struct sw_context *ctx, struct ibv_device_attr_ex *out)
{
    struct sw_netdev_info info;
    sw_netdev_read(ctx->netdev, &info);
    memset(out, 0, sizeof(*out));
    struct ibv_device_attr *attr = &out->orig_attr;
    strncpy(attr->fw_ver, sw_version(), sizeof(attr->fw_ver) - 1);
    attr->node_guid = info.guid;
    attr->sys_image_guid = info.guid;
    set_attributes(attr);
    out->phys_port_cnt_ex = 1;
    out->max_dm_size = SW_MAX_DM_BYTES;
    set_odp(out);
    const uint64_t atomic_write = 1ull << 40; /* which older headers do not name */
    out->device_cap_flags_ex = attr->device_cap_flags | IB_UVERBS_DEVICE_FLUSH_GLOBAL |
                               IB_UVERBS_DEVICE_FLUSH_PERSISTENT | atomic_write;
    out->completion_timestamp_mask = INT64_MAX;
    out->hca_core_clock = 1000000; /* kHz: timestamps are nanoseconds */
    out->packet_pacing_caps.qp_rate_limit_min = SW_MIN_RATE_KBPS;
    out->packet_pacing_caps.qp_rate_limit_max = SW_MAX_RATE_KBPS;
    out->packet_pacing_caps.supported_qpts =
        1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD | 1 << IBV_QPT_XRC_SEND;
    out->cq_mod_caps.max_cq_count = UINT16_MAX;
    out->cq_mod_caps.max_cq_period = UINT16_MAX;
    if (info.kind == SW_NETDEV_IWARP)
        limit_to_iwarp(out);
}

/* The widest standard rate not above the netdev's; 100 Gb/s where the interface names none (memory
 * is faster still). */
static void set_speed(struct ibv_port_attr *out, unsigned int speed_mbps)
{
    static const struct {
        unsigned int mbps;
        uint8_t width, speed;
    } rates[] = {
        {400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {50000, 1, 64},
        {40000, 2, 4},    {25000, 1, 32},  {10000, 2, 1},   {0, 1, 1},
    };
    if (speed_mbps == 0)
        speed_mbps = 100000;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        if (speed_mbps >= rates[i].mbps) {
            out->active_width = rates[i].width;
            out->active_speed = rates[i].speed;
            return;
        }
    }
}

enum ibv_mtu sw_context_mtu(unsigned int netdev_mtu_bytes)
{
    /* RoCEv2 adds IP, UDP, BTH, the longest extension headers and the ICRC: at most 80 bytes over
     * IPv6. */
    static const unsigned int sizes[] = {4096, 2048, 1024, 512};
    for (unsigned int i = 0; i < 4; i++)
        if (netdev_mtu_bytes >= sizes[i] + 80)
            return (enum ibv_mtu)(IBV_MTU_4096 - i);
    return IBV_MTU_256;
}

uint32_t sw_context_mtu_bytes(struct sw_context *ctx)
{
    struct sw_netdev_info info;
    sw_netdev_read(ctx->netdev, &info);
    return 128u << sw_context_mtu(info.mtu_bytes);
}

void sw_context_query_port(struct sw_context *ctx, struct ibv_port_attr *out)
{
    struct sw_netdev_info info;
    sw_netdev_read(ctx->netdev, &info);
    memset(out, 0, sizeof(*out));
    out->state = info.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    out->max_mtu = IBV_MTU_4096;
    out->active_mtu = sw_context_mtu(info.mtu_bytes);
    const bool is_iwarp = info.kind == SW_NETDEV_IWARP;
    out->gid_tbl_len = sw_netdev_gid_table_len(ctx->netdev);
    out->port_cap_flags = is_iwarp ? IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP
                                   : IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    out->max_msg_sz = (uint32_t)SW_MAX_MSG_BYTES;
    out->pkey_tbl_len = !is_iwarp;
    out->max_vl_num = 1;
    out->phys_state = info.up ? 5 : 3; /* LinkUp, Disabled */
    out->link_layer = IBV_LINK_LAYER_ETHERNET;
    set_speed(out, info.speed_mbps);
}

int sw_pd_alloc(struct sw_context *ctx, struct sw_pd **out)
{
    static atomic_uint next_id;
    struct sw_pd *pd = calloc(1, sizeof(*pd));
    if (!pd)
        return -ENOMEM;
    pd->ctx = ctx;
    pd->id = atomic_fetch_add(&next_id, 1) + 1;
    *out = pd;
    return 0;
}

int sw_pd_alloc_parent(struct sw_pd *base, const struct sw_allocator *allocator, struct sw_pd **out)
{
    struct sw_pd *pd = calloc(1, sizeof(*pd));
    if (!pd)
        return -ENOMEM;
    pd->ctx = base->ctx;
    pd->id = base->id;
    pd->base = base;
    if (allocator)
        pd->allocator = *allocator;
    sw_pd_ref(base);
    *out = pd;
    return 0;
}

int sw_pd_dealloc(struct sw_pd *pd)
{
    if (atomic_load(&pd->refs))
        return -EBUSY;
    if (pd->base)
        sw_pd_unref(pd->base);
    free(pd);
    return 0;
}

void sw_pd_ref(struct sw_pd *pd)
{
    atomic_fetch_add(&pd->refs, 1);
}

void sw_pd_unref(struct sw_pd *pd)
{
    atomic_fetch_sub(&pd->refs, 1);
}
