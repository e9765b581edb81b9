/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sw_sim_net_init(struct sw_sim_net *net, struct sw_sim_world *world,
                     const struct sw_sim_net_config *config, sw_sim_receive_fn receive, void *user)
{
    *net = (struct sw_sim_net){.world = world, .config = *config, .receive = receive, .user = user};
}

static uint64_t transmit_ns(const struct sw_sim_net *net, uint32_t len)
{
    return ((uint64_t)len + SW_SIM_OVERHEAD_BYTES) * 8 * 1000000000 / net->config.bits_per_s;
}

/* Puts a packet behind what is queued; returns when it has left. */
static uint64_t queue_packet(uint64_t *free_ns, uint64_t now_ns, uint64_t takes_ns)
{
    uint64_t from_ns = *free_ns > now_ns ? *free_ns : now_ns;
    return *free_ns = from_ns + takes_ns;
}

static bool is_cut(const struct sw_sim_net *net, const struct sw_sim_packet *packet)
{
    uint64_t now_ns = net->world->now_ns;
    return now_ns < net->cut_until_ns[packet->from] || now_ns < net->cut_until_ns[packet->to];
}

static void arrive_packet(void *who, void *what)
{
    struct sw_sim_net *net = who;
    struct sw_sim_packet *packet = what;
    if (is_cut(net, packet)) {
        net->lost++;
        sw_sim_trace(net->world, "cut", packet->from, packet->to);
    } else {
        net->receive(net->user, packet);
    }
    free(packet);
}

/* Bytes waiting at a port of the switch. */
static uint64_t backlog_bytes(const struct sw_sim_net *net, uint32_t port)
{
    uint64_t free_ns = net->port_free_ns[port], now_ns = net->world->now_ns;
    return free_ns > now_ns ? (free_ns - now_ns) * (net->config.bits_per_s / 1000000) / 8000 : 0;
}

/* As RED does: the fuller, the likelier. */
static bool is_marked(struct sw_sim_net *net, uint64_t bytes)
{
    const struct sw_sim_net_config *config = &net->config;
    if (!config->mark_from || bytes < config->mark_from)
        return false;
    if (bytes >= config->mark_all)
        return true;
    uint64_t part = ((bytes - config->mark_from) << 32) / (config->mark_all - config->mark_from);
    return sw_sim_happens(net->world, (uint32_t)(part / 5)); /* a fifth at most, then all */
}

/* The packet has come to the switch. */
static void forward_packet(void *who, void *what)
{
    struct sw_sim_net *net = who;
    struct sw_sim_packet *packet = what;
    struct sw_sim_world *world = net->world;
    uint64_t waiting = backlog_bytes(net, packet->to);
    if (waiting + packet->len > net->config.buffer_bytes) {
        net->dropped++;
        sw_sim_trace(world, "overflow", packet->from, packet->to);
        free(packet);
        return;
    }
    if (is_marked(net, waiting)) {
        packet->marked = true;
        net->marked++;
    }
    uint64_t out_ns =
        queue_packet(&net->port_free_ns[packet->to], world->now_ns, transmit_ns(net, packet->len));
    uint64_t extra_ns = 0;
    if (sw_sim_happens(world, net->config.reorder)) {
        extra_ns = 1 + sw_sim_random(world) % net->config.reorder_ns;
        net->reordered++;
    }
    sw_sim_at(world, out_ns + net->config.delay_ns + extra_ns, arrive_packet, net, packet);
}

void sw_sim_net_fini(struct sw_sim_net *net)
{
    struct sw_sim_world *world = net->world;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        if (world->heap[i].fn == arrive_packet || world->heap[i].fn == forward_packet)
            free(world->heap[i].what);
        else
            world->heap[kept++] = world->heap[i];
    }
    world->count = kept; /* no longer in order: the world ends, too */
}

static struct sw_sim_packet *copy_of(struct sw_sim_net *net, uint32_t from, uint32_t to,
                                     const void *bytes, uint32_t len)
{
    struct sw_sim_packet *packet = malloc(sizeof(*packet) + len);
    if (!packet) {
        fputs("sim: no memory for packets\n", stderr);
        abort();
    }
    *packet = (struct sw_sim_packet){.net = net, .from = from, .to = to, .len = len};
    memcpy(packet->bytes, bytes, len);
    return packet;
}

void sw_sim_net_send(struct sw_sim_net *net, uint32_t from, uint32_t to, const void *bytes,
                     uint32_t len)
{
    struct sw_sim_world *world = net->world;
    uint64_t out_ns =
        queue_packet(&net->uplink_free_ns[from], world->now_ns, transmit_ns(net, len));
    uint32_t copies = 1;
    net->sent++;
    if (sw_sim_happens(world, net->config.loss)) {
        net->lost++;
        sw_sim_trace(world, "lost", from, to);
        return;
    }
    if (sw_sim_happens(world, net->config.dup)) {
        net->doubled++;
        copies = 2;
    }
    for (; copies; copies--) {
        struct sw_sim_packet *packet = copy_of(net, from, to, bytes, len);
        if (sw_sim_happens(world, net->config.corrupt)) {
            net->damaged++;
            uint32_t bit = sw_sim_below(world, len * 8);
            packet->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (sw_sim_below(world, 4) == 0)
                packet->len = sw_sim_below(world, len); /* or cut short */
        }
        sw_sim_at(world, out_ns + net->config.delay_ns, forward_packet, net, packet);
    }
}

void sw_sim_net_heal(struct sw_sim_net *net)
{
    net->config.loss = net->config.dup = net->config.corrupt = net->config.reorder = 0;
    for (uint32_t i = 0; i < SW_SIM_HOSTS_MAX; i++)
        net->cut_until_ns[i] = 0;
}
