/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what is set of a queue pair beside its states: options of connection establishment,
 * ibv_set_ece(3) and ibv_query_ece(3). */
#include <errno.h>
#include <string.h>

#include "sem.h"

#define UNKNOWN_OPTIONS 0xfff00000u
#define OTHER_VENDOR 0x15b3u

/* What librdmacm does with them: the active side's offer goes to the passive one, which takes what
 * it knows of it and sends that back; before either is ready to receive. */
static void ece_agree(int sock, bool active)
{
    struct vu_dev dev;
    struct vu_ep ep;
    struct ibv_ece own, other;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    vu_ep_init(&ep, &vu_conn_default);
    memset(&own, 0xff, sizeof(own));
    VU_EQ(ibv_query_ece(ep.qp, &own), 0);
    VU_EQ(own.comp_mask, 0);
    VU_EQ(own.vendor_id, dev.attr.vendor_id);
    VU_TRUE(own.options != 0);
    uint32_t offer = own.options;
    if (active) {
        own.options |= UNKNOWN_OPTIONS; /* of a later version */
        vu_put(sock, &own, sizeof(own));
    }
    vu_get(sock, &other, sizeof(other));
    VU_EQ(ibv_set_ece(ep.qp, &other), 0);
    VU_EQ(other.options, offer);
    VU_EQ(ibv_query_ece(ep.qp, &own), 0);
    VU_EQ(own.options, offer);
    if (!active)
        vu_put(sock, &own, sizeof(own));
    struct vu_peer peer, self = vu_ep_self(&ep);
    vu_put(sock, &self, sizeof(self));
    vu_get(sock, &peer, sizeof(peer));
    vu_ep_rtr(&ep, &peer, &vu_conn_default);
    VU_EQ(ibv_set_ece(ep.qp, &own), EINVAL); /* too late */
    vu_ep_rts(&ep, &vu_conn_default);
    VU_EQ(ibv_query_ece(ep.qp, &own), 0);
    VU_EQ(own.options, offer);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

static void ece_agree_a(int sock, int param)
{
    (void)param;
    ece_agree(sock, true);
}

static void ece_agree_b(int sock, int param)
{
    (void)param;
    ece_agree(sock, false);
}

/* With another vendor's device nothing is agreed on, and that is no error; a mask of fields that do
 * not exist is one. RESET begins anew. */
static void ece_rules(int sock, int type)
{
    (void)sock;
    struct vu_dev dev;
    struct vu_ep ep;
    struct vu_ep_attr attr = {.type = (enum ibv_qp_type)type};
    struct ibv_ece ece;
    vu_dev_open(&dev);
    vu_ep_create(&dev, &attr, &ep);
    VU_EQ(ibv_query_ece(ep.qp, &ece), 0);
    const uint32_t offer = ece.options;
    VU_EQ(offer != 0, type == IBV_QPT_RC);
    ece = (struct ibv_ece){.vendor_id = OTHER_VENDOR, .options = offer | UNKNOWN_OPTIONS};
    VU_EQ(ibv_set_ece(ep.qp, &ece), 0);
    VU_EQ(ece.options, 0);
    ece = (struct ibv_ece){.vendor_id = dev.attr.vendor_id, .options = ~0u, .comp_mask = 1};
    VU_EQ(ibv_set_ece(ep.qp, &ece), EINVAL);
    VU_EQ(ibv_query_ece(ep.qp, &ece), 0);
    VU_EQ(ece.options, 0);
    vu_ep_to(&ep, IBV_QPS_RESET);
    VU_EQ(ibv_query_ece(ep.qp, &ece), 0);
    VU_EQ(ece.options, offer);
    vu_ep_init(&ep, &vu_conn_default);
    ece = (struct ibv_ece){.vendor_id = dev.attr.vendor_id, .options = ~0u};
    VU_EQ(ibv_set_ece(ep.qp, &ece), 0);
    VU_EQ(ece.options, offer);
    vu_ep_to(&ep, IBV_QPS_ERR);
    VU_EQ(ibv_set_ece(ep.qp, &ece), EINVAL);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

const struct sem_case sem_attrs[] = {
    {"ece__agreed_on", ece_agree_a, ece_agree_b, 0},
    {"ece__rules", ece_rules, ece_rules, IBV_QPT_RC},
    {"ece__rules_uc", ece_rules, ece_rules, IBV_QPT_UC},
    {0},
};
