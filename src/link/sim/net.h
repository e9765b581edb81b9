/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A virtual network: hosts around one switch. Each host's uplink and each of the switch's ports is
 * a queue with a bandwidth; the switch's have buffers that overflow and marks for congestion. Paths
 * lose, double, damage and reorder packets, and can be cut.
 */
#ifndef SW_LINK_SIM_NET_H
#define SW_LINK_SIM_NET_H

#include "link/sim/world.h"

#define SW_SIM_HOSTS_MAX 32u
/* Ethernet with preamble and gap, IPv4 and UDP: what a packet costs beside its own bytes. */
#define SW_SIM_OVERHEAD_BYTES (8u + 14 + 4 + 12 + 20 + 8)

struct sw_sim_net_config {
    uint32_t hosts;
    uint64_t bits_per_s;   /* of each link */
    uint64_t delay_ns;     /* of each link */
    uint32_t buffer_bytes; /* of each port of the switch */
    uint32_t mark_from;    /* bytes queued from which packets are marked CE at times; 0: never */
    uint32_t mark_all;     /* and from which all are */
    uint32_t loss, dup, corrupt, reorder; /* sw_sim_happens() */
    uint64_t reorder_ns;                  /* at most */
};

struct sw_sim_packet {
    struct sw_sim_net *net;
    uint32_t from, to;
    bool marked; /* CE */
    uint32_t len;
    uint8_t bytes[];
};

typedef void (*sw_sim_receive_fn)(void *user, const struct sw_sim_packet *packet);

struct sw_sim_net {
    struct sw_sim_world *world;
    struct sw_sim_net_config config;
    void *user;
    sw_sim_receive_fn receive;
    uint64_t uplink_free_ns[SW_SIM_HOSTS_MAX];
    uint64_t port_free_ns[SW_SIM_HOSTS_MAX];
    uint64_t cut_until_ns[SW_SIM_HOSTS_MAX]; /* of a host */
    uint64_t sent, lost, dropped, doubled, damaged, reordered, marked;
};

void sw_sim_net_init(struct sw_sim_net *net, struct sw_sim_world *world,
                     const struct sw_sim_net_config *config, sw_sim_receive_fn receive, void *user);
/* Frees what is on its way. */
void sw_sim_net_fini(struct sw_sim_net *net);
/* Sends a copy of the bytes. */
void sw_sim_net_send(struct sw_sim_net *net, uint32_t from, uint32_t to, const void *bytes,
                     uint32_t len);
/* No more faults from here on; cuts end. */
void sw_sim_net_heal(struct sw_sim_net *net);

/* How long until the uplink of a host has sent what it was given; 0: it is free. */
static inline uint64_t sw_sim_net_uplink_busy_ns(const struct sw_sim_net *net, uint32_t host)
{
    uint64_t free_ns = net->uplink_free_ns[host], now_ns = net->world->now_ns;
    return free_ns > now_ns ? free_ns - now_ns : 0;
}

#endif
