/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles: where a datagram goes, and the header it arrives with. A program's work request
 * points to its handle, so the public struct comes first; what is needed of it is copied when the
 * request is posted, since the handle may be destroyed then.
 */
#ifndef SW_DEVICE_QUEUE_AH_H
#define SW_DEVICE_QUEUE_AH_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/nic/netdev.h"

struct sw_pd;

#define SW_GRH_BYTES 40u
#define SW_MULTICAST_QPN 0xffffffu

/* The 40 bytes before a datagram, but for the length in them: a GRH, or 20 bytes of nothing and an
 * IPv4 header (RoCEv2 annex A17.4.5.2). */
struct sw_path {
    uint8_t grh[SW_GRH_BYTES];
    union ibv_gid dgid;
    uint32_t ip_sum; /* of the IPv4 header without length and checksum, for the latter */
    uint8_t wc_sl;   /* what the receiver's completion shows as service level */
    bool is_ipv4;
    bool is_v1;
    bool is_multicast;
};

struct sw_ah {
    struct ibv_ah ibv;
    struct sw_path path;
    uint32_t pd_id; /* of its PD, which must be that of a QP that sends by it */
    /* Whether dgid is of this host, as of a state of the address table: its number << 1 | answer.
     */
    _Atomic uint64_t local;
};

/* -EINVAL: another port, no global route (RoCE has no LIDs: annex A17.4.1), no such source GID. */
int sw_ah_init(struct sw_ah *ah, const struct sw_pd *pd, struct sw_netdev *dev,
               const struct ibv_ah_attr *attr);
bool sw_ah_is_local(struct sw_ah *ah);
bool sw_gid_is_multicast(const union ibv_gid *gid);

/* The path of a datagram that came from another host. */
void sw_path_of_arrival(struct sw_path *path, const union ibv_gid *source,
                        const union ibv_gid *dest, uint8_t traffic_class, uint8_t hop_limit);

/* What stands before a message of this length when it is received. */
void sw_path_grh(const struct sw_path *path, uint32_t len_bytes, bool has_imm,
                 uint8_t grh[SW_GRH_BYTES]);
/* Where it went: an IPv4 address is mapped. */
union ibv_gid sw_grh_dgid(const uint8_t grh[SW_GRH_BYTES]);

#endif
