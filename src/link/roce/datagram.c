/* SPDX-License-Identifier: BSD-2-Clause */
/* UD: one packet each, to and from anybody. IBTA Vol1 9.8.3. */
#include "link/roce/datagram.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "device/nic/nic.h"
#include "device/queue/counters.h"
#include "device/serve/datagram.h"
#include "device/serve/mcast.h"
#include "link/gather.h"
#include "link/link.h"
#include "link/roce/deliver.h"
#include "link/roce/group.h"
#include "link/roce/impair.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/share.h"
#include "link/roce/port/stream.h"
#include "link/roce/port/tx.h"
#include "link/roce/roce.h"
#include "transport/ud.h"

static const struct sw_ud datagrams = {.mtu_bytes = SW_PACKET_PAYLOAD_MAX, .pkey = SW_PKEY_DEFAULT};

/* A datagram's packet: its headers end where its payload begins. */
struct made_packet {
    struct sw_emission emission;
    uint32_t header_bytes;
    uint8_t bytes[SW_HEADERS_MAX + SW_PACKET_PAYLOAD_MAX + SW_ICRC_BYTES];
};

static uint8_t *made_header(struct made_packet *made)
{
    return made->bytes + SW_HEADERS_MAX - made->header_bytes;
}

/* A path holds the header that a receiver would see: its addresses and class are in there. A RoCE
 * v1 GID has the address of the v2 one beside it, so its datagrams leave as RoCE v2, like messages
 * of connections. */
static void read_path(const struct sw_path *from, struct sw_roce_path *path, uint8_t source[16],
                      uint8_t dest[16])
{
    memset(source, 0, 10);
    source[10] = source[11] = 0xff;
    if (from->is_ipv4) {
        memcpy(source + 12, from->grh + SW_GRH_BYTES - 8, 4);
        path->traffic_class = from->grh[SW_GRH_BYTES - 19];
        path->hop_limit = from->grh[SW_GRH_BYTES - 12];
    } else {
        memcpy(source, from->grh + 8, 16);
        path->traffic_class = (uint8_t)(from->grh[0] << 4 | from->grh[1] >> 4);
        path->hop_limit = from->grh[7];
    }
    memcpy(dest, from->dgid.raw, 16);
}

static int datagram_aim_path(struct sw_qp *qp, const struct sw_path *from,
                             struct sw_roce_path *path)
{
    uint8_t source[16], dest[16];
    struct sw_netdev_info info;
    struct in6_addr own;
    read_path(from, path, source, dest);
    sw_netdev_read(qp->ctx->netdev, &info);
    path->sender = (uint8_t)(qp->qpn * 2654435761u >> 24);
    memcpy(&own, source, sizeof(own));
    if (sw_roce_is_ipv4(&own))
        sw_roce_group_ipv4(from->dgid.raw, dest);
    int rc = sw_roce_path_set(path, source, dest, info.ifindex);
    return rc ? rc : sw_port_aim_datagrams(&sw_roce.port, path, false);
}

/* False: its own keys are bad. */
static bool make_packet(struct sw_qp *qp, uint32_t position, struct made_packet *out)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    const struct sw_route *route = sw_sq_route(&qp->sq, position);
    uint8_t header[SW_HEADERS_MAX];
    struct sw_gather gather = sw_gather_of(qp, position);
    if (!sw_gather_out(&gather, 0, out->bytes + SW_HEADERS_MAX, wqe->len_bytes))
        return false;
    struct sw_ud ud = datagrams;
    ud.qpn = qp->qpn;
    ud.psn = qp->attr.sq_psn;
    const struct sw_ud_send send = {
        .dest_qpn = route->dest_qpn,
        .qkey = sw_qp_sent_qkey(qp, route->qkey),
        .len_bytes = wqe->len_bytes,
        .imm_be = wqe->imm,
        .has_imm = wqe->opcode == IBV_WR_SEND_WITH_IMM,
        .solicited = wqe->flags & SW_WQE_SOLICITED,
    };
    const bool fits = sw_ud_emit(&ud, &send, position, &out->emission);
    assert(fits); /* it was posted, and is no longer than the port's MTU */
    qp->attr.sq_psn = ud.psn;
    out->header_bytes =
        (uint32_t)sw_packet_encode_headers(&out->emission.packet, header, sizeof(header));
    memcpy(made_header(out), header, out->header_bytes);
    return true;
}

enum sw_link_sent sw_roce_send_datagram(struct sw_qp *qp, uint32_t position)
{
    const uint32_t len_bytes = sw_sq_at(&qp->sq, position)->len_bytes;
    struct made_packet made;
    struct sw_roce_path path;
    if (sw_roce_open(true) || datagram_aim_path(qp, &sw_sq_route(&qp->sq, position)->path, &path))
        return SW_LINK_NO_ROUTE;
    if (!make_packet(qp, position, &made))
        return SW_LINK_BAD_KEY;
    struct iovec piece = {made.bytes + SW_HEADERS_MAX, len_bytes};
    const struct sw_outgoing out = {
        .path = &path,
        .header = made_header(&made),
        .header_bytes = made.header_bytes,
        .pieces = &piece,
        .piece_count = 1,
        .payload_bytes = len_bytes,
    };
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    sw_roce_add(qp, batch, &made.emission.packet, &out);
    sw_batch_close(batch);
    atomic_store_explicit(&sw_roce.moved_ns, sw_clock_ns(), memory_order_relaxed);
    return SW_LINK_SENT;
}

/* As if the interface had brought it. */
static struct sw_arrival arrival_at_home(const struct sw_qp *qp, const struct sw_path *from)
{
    struct sw_roce_path path;
    struct sw_netdev_info info;
    uint8_t source[16], dest[16];
    sw_netdev_read(qp->ctx->netdev, &info);
    read_path(from, &path, source, dest);
    struct sw_arrival arrival = {.ifindex = info.ifindex,
                                 .source_port = sw_roce.port.udp_port,
                                 .traffic_class = path.traffic_class,
                                 .hop_limit = path.hop_limit};
    memcpy(&arrival.source, source, 16);
    memcpy(&arrival.dest, dest, 16);
    return arrival;
}

enum sw_link_sent sw_roce_give_datagram(struct sw_qp *qp, uint32_t position, const uint16_t *slots,
                                        uint32_t count)
{
    const uint32_t len_bytes = sw_sq_at(&qp->sq, position)->len_bytes;
    const uint32_t pad = sw_packet_pad(len_bytes);
    struct made_packet made;
    struct sw_icrc_flow flow;
    struct sw_icrc_prefix prefix = {0};
    if (sw_roce_open(true))
        return SW_LINK_NO_ROUTE;
    if (!make_packet(qp, position, &made))
        return SW_LINK_BAD_KEY;
    memset(made.bytes + SW_HEADERS_MAX + len_bytes, 0, pad);
    const struct sw_rx_batch batch = {
        .bytes = made_header(&made),
        .len_bytes = made.header_bytes + len_bytes + pad + SW_ICRC_BYTES,
        .arrival = arrival_at_home(qp, &sw_sq_route(&qp->sq, position)->path)};
    const struct sw_arrival *arrival = &batch.arrival;
    sw_roce_icrc(&arrival->source, &arrival->dest, arrival->source_port, sw_roce.port.udp_port,
                 &flow);
    sw_icrc_seal(&flow, &prefix, 0, made_header(&made), batch.len_bytes);
    for (; qp->given < count; qp->given++)
        if (!sw_share_give(&sw_roce.port, slots[qp->given], &batch))
            return SW_LINK_BUSY;
    return SW_LINK_SENT;
}

/* Writes the header that stands before it to `grh`. */
static struct sw_datagram read_datagram(const struct sw_arrival *arrival,
                                        const struct sw_packet *packet, uint8_t grh[SW_GRH_BYTES])
{
    union ibv_gid source, dest;
    memcpy(source.raw, &arrival->source, 16);
    memcpy(dest.raw, &arrival->dest, 16);
    struct sw_path path;
    const bool has_imm = packet->opcode->headers & SW_HEADER_IMM;
    sw_path_of_arrival(&path, &source, &dest, arrival->traffic_class, arrival->hop_limit);
    sw_path_grh(&path, packet->payload_len, has_imm, grh);
    return (struct sw_datagram){
        .grh = grh,
        .payload = packet->payload,
        .len_bytes = packet->payload_len,
        .src_qpn = packet->deth.src_qpn,
        .qkey = packet->deth.qkey,
        .imm = packet->imm_be,
        .has_imm = has_imm,
        .is_solicited = packet->bth.solicited,
        .is_far = true,
        .sl = path.wc_sl,
    };
}

static bool is_datagram(const struct sw_packet *packet)
{
    return sw_ud_admits(&datagrams, packet) &&
           (packet->bth.pkey | SW_PKEY_MEMBER) == SW_PKEY_DEFAULT;
}

bool sw_roce_deliver_datagram(struct sw_qp *qp, const struct sw_arrival *arrival,
                              const struct sw_packet *packet)
{
    if (!is_datagram(packet)) {
        sw_counter_add(qp->ctx->netdev, SW_RX_DROP_MALFORMED);
        return false;
    }
    if (sw_roce_withholds(qp)) {
        sw_counter_add(qp->ctx->netdev, SW_RX_DROP_NO_RECV);
        return false;
    }
    uint8_t grh[SW_GRH_BYTES];
    const struct sw_datagram datagram = read_datagram(arrival, packet, grh);
    return sw_datagram_deliver(qp, &datagram);
}

int sw_roce_take_stream(int fd, const struct sw_stream_origin *origin)
{
    int rc = sw_roce_open(true);
    if (rc)
        return rc;
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_batch_gather(&sw_roce.port);
    rc = sw_streams_add(&sw_roce.port, fd, origin, sw_clock_ns());
    sw_roce_deliver_end(false);
    sw_batch_gather_end();
    sw_lock_release(&sw_roce.port.rx_lock);
    return rc;
}

/* Whether a process of this host has sent it, and has brought it by the direct link as well. */
static bool is_second_copy(const struct sw_arrival *arrival, const struct sw_packet *packet)
{
    const uint32_t slot = sw_qpn_slot(packet->deth.src_qpn);
    union ibv_gid source;
    memcpy(source.raw, &arrival->source, 16);
    return sw_netdev_is_local_gid(&source) && sw_link_brings(slot);
}

/* On the device that it came to: a group is joined on each by itself. */
void sw_roce_deliver_to_group(const struct sw_arrival *arrival, const struct sw_packet *packet)
{
    struct sw_netdev *dev = sw_roce_device_of(arrival->ifindex);
    union ibv_gid gid, source;
    memcpy(gid.raw, &arrival->dest, 16);
    memcpy(source.raw, &arrival->source, 16);
    if (!dev || !is_datagram(packet) || !sw_gid_is_multicast(&gid)) {
        sw_counter_add(dev, SW_RX_DROP_MALFORMED);
        return;
    }
    if (is_second_copy(arrival, packet))
        return;
    uint8_t grh[SW_GRH_BYTES];
    struct sw_datagram datagram = read_datagram(arrival, packet, grh);
    datagram.is_far = !sw_netdev_is_local_gid(&source);
    union ibv_gid other = {.raw = {0xff, 0x0e, [10] = 0xff, [11] = 0xff}}; /* of the same group */
    memcpy(other.raw + 12, gid.raw + 12, 4);
    const bool by_other = sw_roce_is_ipv4(&arrival->dest) && sw_mcast_is_group(&other);
    if (by_other)
        sw_mcast_deliver(&other, dev, &datagram);
    if (!by_other || sw_mcast_is_group(&gid))
        sw_mcast_deliver(&gid, dev, &datagram);
}
