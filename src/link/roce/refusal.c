/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The refusal that ended a connection. The NAK leaves once, and the queue pair is in ERR then,
 * where hardware hears nothing any more: if it is lost, the peer runs out of retries and never
 * learns why. So the NAK outlives the connection, until the queue pair is connected again, and is
 * said again to a peer that still asks.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "link/roce/roce.h"

#define AGAIN_NS SW_NS_PER_MS /* a run of requests is answered once */

struct refusal {
    uint32_t qpn;
    struct sw_packet packet;
    struct sw_roce_path path;
    uint64_t said_ns;
};

static struct refusal *refusals[SW_MAX_QP]; /* by QP index; with the QP locked */

void sw_roce_refusal_keep(struct sw_roce_qp *r, uint64_t now_ns)
{
    struct sw_emission emission;
    if (!r->receives || !sw_responder_last_word(&r->responder, &emission))
        return;
    struct refusal *kept = malloc(sizeof(*kept));
    if (!kept)
        return;
    *kept = (struct refusal){
        .qpn = r->qp->qpn, .packet = emission.packet, .path = r->path, .said_ns = now_ns};
    sw_roce_refusal_forget(r->qp);
    refusals[r->qp->index] = kept;
}

void sw_roce_refusal_forget(const struct sw_qp *qp)
{
    free(refusals[qp->index]);
    refusals[qp->index] = NULL;
}

void sw_roce_refusal_repeat(const struct sw_qp *qp, const struct sw_arrival *arrival,
                            const struct sw_packet *packet, uint64_t now_ns)
{
    struct refusal *kept = refusals[qp->index];
    if (!kept || kept->qpn != qp->qpn || qp->state != IBV_QPS_ERR ||
        now_ns - kept->said_ns < AGAIN_NS)
        return;
    if (!packet->opcode->is_request || packet->opcode->service != kept->packet.opcode->service ||
        !IN6_ARE_ADDR_EQUAL(&arrival->source, &kept->path.dest) ||
        !IN6_ARE_ADDR_EQUAL(&arrival->dest, &kept->path.source))
        return;
    uint8_t header[SW_HEADERS_MAX];
    const struct sw_outgoing out = {
        .path = &kept->path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&kept->packet, header, sizeof(header)),
    };
    kept->said_ns = now_ns;
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    sw_roce_add(qp, batch, &kept->packet, &out);
    sw_batch_close(batch);
}
