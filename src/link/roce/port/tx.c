/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets out. Packets of one flow and one size that follow each other (the last may be shorter)
 * leave in one message, cut up by the kernel or the interface (UDP_SEGMENT, udp(7)); messages from
 * one source leave in one call. A message costs some microseconds on either side, however few
 * packets share it: so each is filled before the next one is begun, and what a thread that receives
 * has to answer, for whichever queue pairs, waits until there is more (sw_batch_gather).
 */
#include "link/roce/port/tx.h"

#include <string.h>

#include "base/minmax.h"
#include "base/payload.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx_group.h"
#include "wire/joint.h"

#define BATCHES 4u
#define GROUP_SEGMENTS 64u      /* UDP_MAX_SEGMENTS of kernels before 6.9 */
#define LONG_PACKET_BYTES 1000u /* a message of such may be long */

static struct sw_batch batches[BATCHES];
static struct sw_batch gathered; /* under the port's rx_lock, not its own */
/* `gathered` is this thread's. Each poll looks, so without a call to the dynamic linker. */
static _Thread_local bool gathers __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t gather_turn = 1;

void sw_batch_gather(struct sw_port *port)
{
    sw_lock_assert_held(&port->rx_lock);
    gathered.port = port;
    gathers = true;
}

void sw_batch_gather_flush(void)
{
    sw_batch_flush(&gathered);
}

void sw_batch_gather_end(void)
{
    sw_batch_flush(&gathered);
    gathers = false;
}

uint64_t sw_batch_gather_turn(void)
{
    return atomic_load(&gather_turn);
}

bool sw_batch_gathers(const struct sw_batch *batch)
{
    return batch == &gathered;
}

struct sw_batch *sw_batch_open(struct sw_port *port)
{
    static _Thread_local uint32_t turn __attribute__((tls_model("initial-exec")));
    if (gathers)
        return &gathered;
    for (uint32_t tried = 0; tried < BATCHES; tried++, turn++) {
        struct sw_batch *batch = &batches[turn % BATCHES];
        if (sw_lock_try(&batch->lock)) {
            batch->port = port;
            return batch;
        }
    }
    struct sw_batch *batch = &batches[turn % BATCHES];
    sw_lock_acquire(&batch->lock);
    batch->port = port;
    return batch;
}

void sw_batch_close(struct sw_batch *batch)
{
    if (batch == &gathered)
        return;
    sw_batch_flush(batch);
    sw_lock_release(&batch->lock);
}

void sw_batch_fork_child(void)
{
    for (uint32_t i = 0; i < BATCHES; i++) {
        batches[i].lock = (struct sw_lock){0};
        batches[i].count = 0;
        batches[i].sender = NULL;
    }
    gathered.count = 0;
    gathered.sender = NULL;
    gathers = false;
    sw_connected_sender_fork_child();
}

void sw_batch_hurry(struct sw_batch *batch)
{
    batch->hurries = true;
}

/* Gives the last packet of a group its ICRC. The kernel numbers the packets of a message. */
static void seal_last(struct sw_tx_group *group)
{
    if (!group->unsealed_bytes)
        return;
    uint8_t *packet = group->bytes + group->len_bytes - group->unsealed_bytes;
    sw_icrc_seal(&group->path.icrc, &group->prefix, (uint16_t)(group->ip_id + group->count - 1),
                 packet, group->unsealed_bytes);
    group->unsealed_bytes = 0;
    if (__builtin_expect(group->damage, 0))
        packet[(group->damage - 1) / 8] ^= (uint8_t)(1u << (group->damage - 1) % 8);
}

/* Sends all groups. The sender stays claimed. */
static void send_batch(struct sw_batch *batch)
{
    const uint32_t groups = batch->count;
    uint64_t packets = 0, bytes = 0;
    if (!groups)
        return;
    for (uint32_t i = 0; i < groups; i++) {
        seal_last(&batch->groups[i]);
        packets += batch->groups[i].count;
        bytes += batch->groups[i].len_bytes;
    }
    sw_tx_send_groups(batch);
    sw_port_count(batch->port, SW_PORT_TX_PACKETS, packets);
    sw_port_count(batch->port, SW_PORT_TX_BYTES, bytes);
    sw_port_count(batch->port, SW_PORT_TX_BATCHES, groups);
    if (batch == &gathered)
        atomic_fetch_add(&gather_turn, 1);
    batch->count = 0;
}

/* The last group of a flow, if it takes another packet. */
static struct sw_tx_group *open_group(struct sw_batch *batch, const struct sw_roce_path *path,
                                      uint32_t len_bytes)
{
    struct sw_tx_group *group = batch->groups + batch->count;
    do {
        if (group-- == batch->groups)
            return NULL;
    } while (!sw_roce_path_is_same(&group->path, path));
    const bool fits = !group->is_closed && len_bytes <= group->segment_bytes &&
                      group->len_bytes + len_bytes <= SW_TX_GROUP_BYTES;
    return fits ? group : NULL;
}

/* How a group leaves: by its path's sender, if there is one. And where it gathers its bytes: in the
 * sender's ring, if it may become long. */
static void choose_way(struct sw_batch *batch, struct sw_tx_group *group)
{
    uint8_t *room = NULL;
    group->bytes = batch->arena[group - batch->groups] + SW_TX_HEADROOM_BYTES;
    group->sender = NULL;
    group->ip_id = 0;
    group->has_room = false;
    if (group->is_closed || group->path.is_carried)
        return;
    if (!batch->sender)
        batch->sender = sw_connected_sender_claim(batch->port, &group->path);
    if (!batch->sender || !sw_connected_sender_is_of(batch->sender, &group->path))
        return;
    group->sender = batch->sender;
    if (group->segment_bytes >= LONG_PACKET_BYTES)
        room = sw_connected_sender_room(batch->sender, &group->ip_id);
    if (room) {
        group->bytes = room;
        group->has_room = true;
    } else {
        group->ip_id = sw_connected_sender_take_id(batch->sender);
    }
}

/* Whether what is there leaves before more is copied: the peer takes it in meanwhile. */
static bool leaves_early(const struct sw_batch *batch)
{
    if (!batch->hurries || !batch->count)
        return false;
    const struct sw_tx_group *last = &batch->groups[batch->count - 1];
    return last->has_room && last->len_bytes >= SW_TX_LONG_BYTES;
}

/* The group that a packet leaves with. A damaged one is alone. */
static struct sw_tx_group *group_for(struct sw_batch *batch, const struct sw_outgoing *packet,
                                     uint32_t len_bytes)
{
    const struct sw_roce_path *path = packet->path;
    const uint32_t damage = packet->damage;
    struct sw_tx_group *group =
        damage || packet->begins_message ? NULL : open_group(batch, path, len_bytes);
    if (group)
        return group;
    if (batch->count == SW_TX_GROUPS || leaves_early(batch))
        send_batch(batch);
    group = &batch->groups[batch->count++];
    group->path = *path;
    group->count = group->len_bytes = group->unsealed_bytes = group->joint_left = 0;
    group->segment_bytes = len_bytes;
    group->damage = damage;
    group->is_pair = false;
    group->is_closed = damage || atomic_load_explicit(&batch->port->no_gso, memory_order_relaxed);
    group->prefix.datagram_len = 0;
    choose_way(batch, group);
    return group;
}

/* Headers, payload and pad. The kernel of the receiver has read a room last, on its own core. */
static void copy_packet(const struct sw_tx_group *group, uint8_t *to,
                        const struct sw_outgoing *packet)
{
    memcpy(to, packet->header, packet->header_bytes);
    to += packet->header_bytes;
    for (uint32_t i = 0; i < packet->piece_count; i++) {
        const struct iovec *piece = &packet->pieces[i];
        if (group->has_room)
            sw_payload_copy_ahead(to, piece->iov_base, piece->iov_len);
        else
            sw_payload_copy(to, piece->iov_base, piece->iov_len);
        to += piece->iov_len;
    }
    memset(to, 0, sw_packet_pad(packet->payload_bytes));
}

/* Begins a joint packet, the last one of its message, if there is room for what is to come. */
static struct sw_tx_group *begin_joint(struct sw_batch *batch, const struct sw_outgoing *packet)
{
    const uint32_t need_bytes = SW_JOINT_BYTES + packet->joint_bytes;
    struct sw_tx_group *group =
        packet->joint_bytes ? open_group(batch, packet->path, need_bytes) : NULL;
    if (!group || group != &batch->groups[batch->count - 1])
        return NULL;
    const uint32_t room_bytes = SW_TX_GROUP_BYTES - group->len_bytes;
    const uint32_t most_bytes = sw_min_u32(room_bytes, group->segment_bytes);
    seal_last(group);
    sw_joint_begin(group->bytes + group->len_bytes, packet->header);
    group->len_bytes += SW_JOINT_BYTES;
    group->unsealed_bytes = SW_JOINT_BYTES;
    group->joint_left = most_bytes - SW_JOINT_BYTES;
    group->count++;
    group->is_closed = true;
    return group;
}

/* Makes a joint packet of the only one in its message and shorter ones, if the interface takes it:
 * a message without segments costs the kernels of both sides less. Packets that are alike stay
 * segments: with lists of requests joined, an exchange of 32 was slower. */
static struct sw_tx_group *begin_pair(struct sw_batch *batch, const struct sw_outgoing *packet,
                                      uint32_t each_bytes)
{
    const uint32_t head_bytes = SW_BTH_BYTES + SW_JOINT_EACH_BYTES;
    const uint32_t more_bytes = packet->joint_bytes ? packet->joint_bytes : each_bytes;
    struct sw_tx_group *group = &batch->groups[batch->count - 1];
    const uint32_t most_bytes = sw_min_u32(packet->path->datagram_max, SW_TX_GROUP_BYTES);
    if (group->count != 1 || group->unsealed_bytes != group->len_bytes || group->has_room ||
        each_bytes - SW_JOINT_EACH_BYTES + SW_ICRC_BYTES >= group->segment_bytes || group->damage ||
        !sw_roce_path_is_same(&group->path, packet->path) ||
        group->len_bytes + head_bytes + more_bytes > most_bytes ||
        atomic_load_explicit(&batch->port->no_pairs, memory_order_relaxed) ||
        !sw_joint_is_for(group->bytes, packet->header))
        return NULL;
    sw_joint_begin(group->bytes - head_bytes, group->bytes);
    sw_joint_announce(group->bytes - SW_JOINT_EACH_BYTES, group->len_bytes - SW_ICRC_BYTES);
    group->bytes -= head_bytes;
    group->len_bytes += head_bytes;
    group->unsealed_bytes = group->len_bytes;
    group->joint_left = most_bytes - group->len_bytes;
    group->is_closed = group->is_pair = true;
    return group;
}

/* Whether the packet has become part of a joint one: one that is there, or is begun with it. */
static bool join_packet(struct sw_batch *batch, const struct sw_outgoing *packet,
                        uint32_t len_bytes)
{
    const uint32_t each_bytes = SW_JOINT_EACH_BYTES + len_bytes;
    struct sw_tx_group *group = batch->count ? &batch->groups[batch->count - 1] : NULL;
    if (!group || packet->damage || !(group->joint_left | packet->joint_bytes | packet->pairs))
        return false;
    if (!group->joint_left || !sw_roce_path_is_same(&group->path, packet->path)) {
        group = packet->pairs ? begin_pair(batch, packet, each_bytes) : NULL;
        group = !group && packet->joint_bytes ? begin_joint(batch, packet) : group;
    }
    if (!group || group->joint_left < each_bytes)
        return false;
    uint8_t *joint = group->bytes + group->len_bytes - group->unsealed_bytes;
    if (!sw_joint_is_for(joint, packet->header))
        return false;
    uint8_t *end = group->bytes + group->len_bytes - SW_ICRC_BYTES;
    sw_joint_announce(end, len_bytes);
    copy_packet(group, end + SW_JOINT_EACH_BYTES, packet);
    group->len_bytes += each_bytes;
    group->unsealed_bytes += each_bytes;
    group->joint_left -= each_bytes;
    return true;
}

/*
 * All is copied, the payload too, although the kernel may copy it once more: a piece more to be
 * gathered costs the kernel as much as the copy of 4 KiB that is still in the cache, and the ICRC
 * needs bytes that the program does not write to meanwhile. It is computed one packet later: bytes
 * that are just being written are slow to read.
 */
void sw_batch_add(struct sw_batch *batch, const struct sw_outgoing *packet)
{
    const uint32_t pad = sw_packet_pad(packet->payload_bytes);
    const uint32_t len_bytes = packet->header_bytes + packet->payload_bytes + pad + SW_ICRC_BYTES;
    if (packet->joins && join_packet(batch, packet, len_bytes - SW_ICRC_BYTES))
        return;
    struct sw_tx_group *group = group_for(batch, packet, len_bytes);
    copy_packet(group, group->bytes + group->len_bytes, packet);
    seal_last(group);
    group->len_bytes += len_bytes;
    group->unsealed_bytes = len_bytes;
    group->count++;
    group->is_closed |= len_bytes < group->segment_bytes || group->count == GROUP_SEGMENTS;
}

bool sw_batch_flush(struct sw_batch *batch)
{
    send_batch(batch);
    if (batch->sender)
        sw_connected_sender_release(batch->sender);
    batch->sender = NULL;
    const bool all = !batch->dropped;
    batch->dropped = batch->hurries = false;
    return all;
}
