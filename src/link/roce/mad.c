/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/mad.h"

#include <stdatomic.h>
#include <string.h>

#include "device/queue/counters.h"
#include "link/roce/impair.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/roce.h"
#include "wire/liveness.h"

static _Atomic(sw_roce_mad_fn) taker;

void sw_roce_on_mad(sw_roce_mad_fn take)
{
    atomic_store(&taker, take);
}

static void mad_take_message(sw_roce_mad_fn take, const struct sw_arrival *arrival,
                             const uint8_t mad[SW_MAD_BYTES])
{
    const struct sw_port_carrier *carrier = sw_port_carrier();
    if (carrier && carrier->heard)
        carrier->heard(&arrival->source, arrival->is_carried);
    take(arrival, mad);
}

void sw_roce_deliver_mad(const struct sw_arrival *arrival, const struct sw_packet *packet)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    sw_roce_mad_fn take = atomic_load_explicit(&taker, memory_order_acquire);
    sw_roce.mads++;
    if (packet->opcode->service != SW_SERVICE_UD || packet->payload_len != SW_MAD_BYTES ||
        (packet->bth.pkey | SW_PKEY_MEMBER) != SW_PKEY_DEFAULT)
        sw_counter_add(sw_roce_device_at(&arrival->dest), SW_RX_DROP_MALFORMED);
    else if (packet->deth.qkey != SW_MAD_QKEY)
        sw_counter_add(sw_roce_device_at(&arrival->dest), SW_RX_DROP_QKEY);
    else if (sw_lifeline_take_mad(arrival, packet->payload))
        return;
    else if (!take)
        sw_counter_add(sw_roce_device_at(&arrival->dest), SW_RX_DROP_NO_QP);
    else
        mad_take_message(take, arrival, packet->payload);
}

static struct sw_packet mad_packet_of(const uint8_t mad[SW_MAD_BYTES])
{
    static _Atomic uint32_t psn;
    const struct sw_opcode *opcode = sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0);
    return (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .mig_req = true,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = SW_MAD_QPN,
                .psn = atomic_fetch_add(&psn, 1) & 0xffffff},
        .deth = {.qkey = SW_MAD_QKEY, .src_qpn = SW_MAD_QPN},
        .payload_len = SW_MAD_BYTES,
        .payload = mad,
    };
}

size_t sw_roce_mad_packet(const struct sw_icrc_flow *flow, const uint8_t mad[SW_MAD_BYTES],
                          uint8_t packet[SW_ROCE_MAD_PACKET_BYTES])
{
    const struct sw_packet from = mad_packet_of(mad);
    struct sw_icrc_prefix prefix = {0};
    const size_t headers_len = sw_packet_encode_headers(&from, packet, SW_HEADERS_MAX);
    const size_t len = headers_len + SW_MAD_BYTES + SW_ICRC_BYTES;
    memcpy(packet + headers_len, mad, SW_MAD_BYTES);
    sw_icrc_seal(flow, &prefix, 0, packet, len);
    return len;
}

static void mad_send_message(struct sw_roce_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    uint8_t header[SW_HEADERS_MAX];
    const struct sw_packet packet = mad_packet_of(mad);
    struct iovec piece = {(void *)mad, SW_MAD_BYTES};
    const struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = &piece,
        .piece_count = 1,
        .payload_bytes = SW_MAD_BYTES,
    };
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    sw_roce_add(NULL, batch, &packet, &out);
    sw_batch_close(batch);
}

/* Whether a copy goes by TCP. MADs about liveness would only show that TCP passes. */
static bool is_to_be_copied(const struct sw_roce_path *path, uint32_t attempt,
                            const uint8_t mad[SW_MAD_BYTES])
{
    const struct sw_port_carrier *carrier = sw_port_carrier();
    struct sw_liveness_mad liveness;
    return carrier && carrier->copies && !path->is_carried &&
           !IN6_ARE_ADDR_EQUAL(&path->source, &path->dest) &&
           !sw_liveness_mad_decode(mad, &liveness) && carrier->copies(path, attempt != 0);
}

int sw_roce_send_mad(const uint8_t source[16], const uint8_t dest[16], uint32_t ifindex,
                     uint32_t attempt, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_roce_path path = {.sender = (uint8_t)(sw_nic.slot + attempt)};
    int rc = sw_roce_open(true);
    if (!rc)
        rc = sw_roce_path_set(&path, source, dest, ifindex);
    if (!rc)
        rc = sw_port_aim_datagrams(&sw_roce.port, &path, true);
    if (rc)
        return rc;
    mad_send_message(&path, mad);
    if (is_to_be_copied(&path, attempt, mad)) {
        path.is_carried = true;
        mad_send_message(&path, mad);
    }
    return 0;
}
