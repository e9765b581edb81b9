/* SPDX-License-Identifier: BSD-2-Clause */
/* UD: one packet each, to and from whoever. IBTA Vol1 9.8.3. */
#include <string.h>

#include "device/counters.h"
#include "device/datagram.h"
#include "link/gather.h"
#include "link/roce/roce.h"

/* A path holds the header that a receiver would see: its addresses and class are in there. */
static int aim(struct sw_qp *qp, const struct sw_path *from, struct sw_roce_path *path)
{
    uint8_t source[16] = {[10] = 0xff, [11] = 0xff};
    struct sw_netdev_info info;
    if (from->is_v1)
        return -1; /* it is not of this link */
    if (from->is_ipv4) {
        memcpy(source + 12, from->grh + SW_GRH_BYTES - 8, 4);
        path->traffic_class = from->grh[SW_GRH_BYTES - 19];
        path->hop_limit = from->grh[SW_GRH_BYTES - 12];
    } else {
        memcpy(source, from->grh + 8, 16);
        path->traffic_class = (uint8_t)(from->grh[0] << 4 | from->grh[1] >> 4);
        path->hop_limit = from->grh[7];
    }
    sw_netdev_read(qp->ctx->netdev, &info);
    path->sender = (uint8_t)(qp->qpn * 2654435761u >> 24);
    int rc = sw_roce_path_set(path, source, from->dgid.raw, info.ifindex);
    return rc ? rc : sw_port_aim(&sw_roce.port, path);
}

enum sw_roce_sent sw_roce_send_datagram(struct sw_qp *qp, uint32_t position)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    const struct sw_route *route = sw_sq_route(&qp->sq, position);
    uint8_t header[SW_HEADERS_MAX], bytes[SW_PACKET_PAYLOAD_MAX];
    struct sw_roce_path path;
    if (sw_roce_open(true) || aim(qp, &route->path, &path))
        return SW_ROCE_NO_WAY;
    struct sw_gather gather = sw_gather_of(qp, position);
    if (!sw_gather_out(&gather, 0, bytes, wqe->len_bytes))
        return SW_ROCE_BAD_KEY;
    bool has_imm = wqe->opcode == IBV_WR_SEND_WITH_IMM;
    const struct sw_opcode *opcode =
        sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, has_imm ? SW_HEADER_IMM : 0);
    const struct sw_packet packet = {
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .solicited = wqe->flags & SW_WQE_SOLICITED,
                .mig_req = true,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = route->dest_qpn,
                .psn = qp->attr.sq_psn},
        .deth = {.qkey = route->qkey >> 31 ? qp->attr.qkey : route->qkey, .src_qpn = qp->qpn},
        .imm_be = wqe->imm,
        .payload_len = wqe->len_bytes,
    };
    qp->attr.sq_psn = (qp->attr.sq_psn + 1) & 0xffffff;
    struct iovec piece = {bytes, wqe->len_bytes};
    const struct sw_outgoing out = {
        .path = &path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = &piece,
        .piece_count = 1,
        .payload_bytes = wqe->len_bytes,
    };
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    sw_roce_add(qp, batch, &packet, &out);
    sw_batch_close(batch);
    return SW_ROCE_SENT;
}

void sw_roce_deliver_datagram(struct sw_qp *qp, const struct sw_arrival *arrival,
                              const struct sw_packet *packet)
{
    if (packet->opcode->service != SW_SERVICE_UD ||
        (packet->bth.pkey | SW_PKEY_MEMBER) != SW_PKEY_DEFAULT) {
        sw_counter_add(qp->ctx->netdev, SW_RX_DROP_MALFORMED);
        return;
    }
    if (sw_roce_withholds(qp)) {
        sw_counter_add(qp->ctx->netdev, SW_RX_DROP_NO_RECV);
        return;
    }
    union ibv_gid source, dest;
    memcpy(source.raw, &arrival->source, 16);
    memcpy(dest.raw, &arrival->dest, 16);
    struct sw_path path;
    uint8_t grh[SW_GRH_BYTES];
    const bool has_imm = packet->opcode->headers & SW_HEADER_IMM;
    sw_path_of_arrival(&path, &source, &dest, arrival->traffic_class, arrival->hop_limit);
    sw_path_grh(&path, packet->payload_len, has_imm, grh);
    const struct sw_datagram datagram = {
        .grh = grh,
        .payload = packet->payload,
        .len_bytes = packet->payload_len,
        .src_qpn = packet->deth.src_qpn,
        .qkey = packet->deth.qkey,
        .imm = packet->imm_be,
        .has_imm = has_imm,
        .is_solicited = packet->bth.solicited,
        .sl = path.wc_sl,
    };
    sw_datagram_deliver(qp, &datagram);
}
