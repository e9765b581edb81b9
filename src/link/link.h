/* SPDX-License-Identifier: BSD-2-Clause */
/* The links a queue pair may use. */
#ifndef SW_LINK_LINK_H
#define SW_LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the links known to the device; before the first device is opened. Idempotent. */
void sw_link_init(void);

struct sw_counts;
struct sw_netdev;
/* What the living processes of this user on this host have counted on a device, this one included.
 * Asks them; waits half a second at most for those that do not answer. Callable without a NIC. */
void sw_link_survey(struct sw_netdev *dev, struct sw_counts *out);

struct sw_qp;
/* BUSY: a process has no room yet; the same call again goes on behind those that have theirs. */
enum sw_link_sent { SW_LINK_SENT, SW_LINK_NO_ROUTE, SW_LINK_BAD_KEY, SW_LINK_BUSY };
/* The datagram at `position` of the send queue leaves by RoCE. */
enum sw_link_sent sw_link_send_far(struct sw_qp *qp, uint32_t position);
/* The same of one to a group: to members on other hosts, if the QP hears those, and to `has_far`
 * ones on this host that the direct link does not serve. */
void sw_link_send_to_group(struct sw_qp *qp, uint32_t position, bool has_far);

struct sw_path;
/* Whether packets to a group can come by that path to members on this host; if not, processes of
 * it are given the datagram by sw_link_give_to_group(). */
bool sw_link_group_travels(const struct sw_qp *qp, const struct sw_path *path);
enum sw_link_sent sw_link_give_to_group(struct sw_qp *qp, uint32_t position, const uint16_t *slots,
                                        uint32_t count);

/* Whether a datagram goes out by RoCE. `is_local`: to an address of this host. */
bool sw_link_is_far(bool is_local);

/* Whether the direct link is in use on this host: SIDEWIRE_DIRECT may have switched it off. */
bool sw_link_has_direct(void);
/* Whether the process of that slot, on this host, brings its datagrams by the direct link. */
bool sw_link_brings(uint32_t slot);

/* There is a process on this host that refuses this one, or is refused: from here on its datagrams
 * are heard wherever they come from, the loopback too. Engine's thread. */
void sw_link_meet_stranger(void);

union ibv_gid;
/* How an address is reached: 0: on this host, the direct way; 1: by RoCE; -ENETUNREACH: it is
 * another host's, and SIDEWIRE_LINK=direct. After the NIC has started. */
int sw_link_way_to(const union ibv_gid *gid);
/* Has the UDP port opened for sending. Negative errno as sw_roce_open(). */
int sw_link_open_far(void);
struct in6_addr;
/* Other hosts may ask for a service at this address: has the UDP port opened. Negative errno as
 * sw_roce_open(), where there is no other way to it. */
int sw_link_listen_far(const struct in6_addr *address);

#endif
