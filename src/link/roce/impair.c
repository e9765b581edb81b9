/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose, on packets as they leave and come (docs/faults.md). A held packet is a copy: a
 * program may take its memory, its queue pair or itself away meanwhile. It goes on when somebody
 * receives, or the engine wakes for it. Packets that still wait to leave when the program ends
 * leave then, as they would be on their way in a network.
 *
 * Locks: rx_lock for what came; a queue pair's < a batch's < leaving.lock.
 */
#include "link/roce/impair.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/payload.h"
#include "link/engine.h"
#include "link/faults/line.h"
#include "link/roce/deliver.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/roce.h"
#include "wire/aeth.h"
#include "wire/cm_mad.h"
#include "wire/mad.h"

#define RELEASE_PACKETS 256u /* at most at a time */

/* No damage is done to BTH bytes 4 to 7: the first is not covered by the ICRC (IBTA A17.3.3), the
 * others say which process shall see the damage. */
enum { SPARED_FIRST = 4, SPARED_BYTES = 4 };

struct leaving { /* goes with its packet */
    struct sw_roce_path path;
    uint32_t header_bytes, damage;
};

static struct {
    struct sw_lock lock;
    struct sw_fault_line line;
    uint8_t copy[SW_HEADERS_MAX + SW_PACKET_PAYLOAD_MAX];
} leaving;

static struct sw_fault_line coming; /* under rx_lock; struct sw_arrival and the packet */

static uint32_t kind_of_mad(const struct sw_packet *packet)
{
    struct sw_mad_header header;
    if (!packet->payload || packet->payload_len != SW_MAD_BYTES)
        return SW_FAULT_MAD;
    sw_mad_header_decode(packet->payload, &header);
    const bool is_dreq = header.class == SW_MAD_CLASS_CM && header.attribute == SW_CM_DREQ;
    return is_dreq ? SW_FAULT_MAD | SW_FAULT_DREQ : SW_FAULT_MAD;
}

static uint32_t impair_kind_of(const struct sw_packet *packet)
{
    if (packet->bth.dest_qpn == SW_MAD_QPN)
        return kind_of_mad(packet);
    if (packet->opcode->service == SW_SERVICE_UD)
        return SW_FAULT_DATAGRAM;
    switch ((enum sw_packet_kind)packet->opcode->kind) {
    case SW_PACKET_SEND:
        return SW_FAULT_SEND;
    case SW_PACKET_WRITE:
        return SW_FAULT_WRITE;
    case SW_PACKET_READ_REQUEST:
        return SW_FAULT_READ;
    case SW_PACKET_READ_RESPONSE: /* or a NAK with a bitmap */
        return packet->opcode->headers & SW_HEADER_AETH &&
                       sw_aeth_class_of(packet->aeth.syndrome) != SW_AETH_ACK
                   ? SW_FAULT_ACK
                   : SW_FAULT_RESPONSE;
    case SW_PACKET_ACK:
        return SW_FAULT_ACK;
    case SW_PACKET_ATOMIC_ACK:
    case SW_PACKET_CMP_SWAP:
    case SW_PACKET_FETCH_ADD:
        return SW_FAULT_ATOMIC;
    case SW_PACKET_FLUSH:
    case SW_PACKET_ATOMIC_WRITE:
    case SW_PACKET_CNP:
        break;
    }
    return SW_FAULT_OTHER;
}

/* False: it just passes. */
static bool impair_decide_fate(const struct sw_qp *qp, const struct sw_packet *packet,
                               bool received, uint64_t now_ns, struct sw_fault_action *out)
{
    const struct sw_fault_packet about = {
        .qpn = qp ? qp->qpn : packet->bth.dest_qpn,
        .ordinal = qp ? qp->ordinal : 0,
        .psn = packet->bth.psn,
        .len_bytes = (uint32_t)sw_packet_len(packet->opcode, packet->payload_len) - SPARED_BYTES,
        .kind = impair_kind_of(packet),
        .received = received,
    };
    return sw_faults_decide(sw_faults_live, &about, sw_faults_elapsed_ns(now_ns), out);
}

static uint32_t damage_of(const struct sw_fault_action *action)
{
    if (!action->corrupt)
        return 0;
    uint32_t bit = action->corrupt_bit;
    return (bit < 8 * SPARED_FIRST ? bit : bit + 8 * SPARED_BYTES) + 1;
}

/* The engine sleeps until the time it knows of, which may be later. */
static void wake_for(const struct sw_fault_line *line, uint64_t due_ns)
{
    if (sw_fault_line_due_ns(line) == due_ns) {
        sw_roce_wake_at(due_ns);
        sw_engine_kick();
    }
}

static void hold_leaving(const struct sw_outgoing *out, uint64_t due_ns)
{
    struct leaving what = {
        .path = *out->path, .header_bytes = out->header_bytes, .damage = out->damage};
    sw_lock_acquire(&leaving.lock);
    memcpy(leaving.copy, out->header, out->header_bytes);
    uint8_t *end = leaving.copy + out->header_bytes;
    for (uint32_t i = 0; i < out->piece_count && out->payload_bytes; i++) {
        sw_payload_copy(end, out->pieces[i].iov_base, out->pieces[i].iov_len);
        end += out->pieces[i].iov_len;
    }
    if (sw_fault_line_put(&leaving.line, due_ns, &what, sizeof(what), leaving.copy,
                          (uint32_t)(end - leaving.copy)))
        wake_for(&leaving.line, due_ns);
    sw_lock_release(&leaving.lock);
}

void sw_roce_impair_sent(const struct sw_qp *qp, struct sw_batch *batch,
                         const struct sw_packet *packet, const struct sw_outgoing *out)
{
    uint64_t now_ns = sw_clock_ns();
    struct sw_fault_action action;
    if (!impair_decide_fate(qp, packet, false, now_ns, &action)) {
        sw_batch_add(batch, out);
        return;
    }
    if (action.drop)
        return;
    struct sw_outgoing passed = *out;
    passed.damage = damage_of(&action);
    uint64_t held_ns = action.delay_ns + action.reorder_ns;
    for (int copies = action.duplicate ? 2 : 1; copies; copies--) {
        if (held_ns)
            hold_leaving(&passed, now_ns + held_ns);
        else
            sw_batch_add(batch, &passed);
    }
}

bool sw_roce_impair_spares(const struct sw_qp *qp, uint32_t count)
{
    return sw_faults_spare(sw_faults_live, true, qp->ordinal, count);
}

bool sw_roce_impair_received(struct sw_qp *qp, const struct sw_arrival *arrival,
                             const struct sw_packet *packet)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    uint64_t now_ns = sw_clock_ns();
    struct sw_fault_action action;
    if (!impair_decide_fate(qp, packet, true, now_ns, &action)) {
        return sw_roce_deliver_passed(qp, arrival, packet);
    }
    if (action.drop)
        return false;
    if (action.corrupt) {
        sw_port_refuse_damaged(&sw_roce.port, arrival);
        return false;
    }
    bool is_known = false;
    uint64_t held_ns = action.delay_ns + action.reorder_ns;
    for (int copies = action.duplicate ? 2 : 1; copies; copies--) {
        if (!held_ns)
            is_known = sw_roce_deliver_passed(qp, arrival, packet);
        else if (sw_fault_line_put(&coming, now_ns + held_ns, arrival, sizeof(*arrival),
                                   arrival->bytes, arrival->len_bytes))
            wake_for(&coming, now_ns + held_ns);
    }
    return is_known;
}

/* Sends what has left its line by now. Returns how many. */
static uint32_t release_leaving(uint64_t now_ns)
{
    struct sw_held *held;
    uint32_t count = 0;
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    for (; count < RELEASE_PACKETS; count++) {
        struct leaving what;
        sw_lock_acquire(&leaving.lock);
        held = sw_fault_line_take(&leaving.line, now_ns);
        sw_lock_release(&leaving.lock);
        if (!held)
            break;
        memcpy(&what, held->bytes, sizeof(what));
        const uint8_t *packet = held->bytes + held->path_len;
        struct iovec payload = {(void *)(packet + what.header_bytes),
                                held->packet_len - what.header_bytes};
        const struct sw_outgoing out = {
            .path = &what.path,
            .header = packet,
            .header_bytes = what.header_bytes,
            .pieces = &payload,
            .piece_count = payload.iov_len ? 1 : 0,
            .payload_bytes = (uint32_t)payload.iov_len,
            .damage = what.damage,
        };
        sw_batch_add(batch, &out);
        free(held);
    }
    sw_batch_close(batch);
    return count;
}

static void release_coming(uint64_t now_ns)
{
    struct sw_held *held;
    for (uint32_t i = 0; i < RELEASE_PACKETS && (held = sw_fault_line_take(&coming, now_ns)); i++) {
        struct sw_arrival arrival;
        struct sw_packet packet;
        memcpy(&arrival, held->bytes, sizeof(arrival));
        arrival.bytes = held->bytes + held->path_len;
        arrival.hold = NULL;
        struct sw_qp *qp;
        if (sw_roce_find_receiver(&arrival, &packet, &qp))
            sw_roce_deliver_passed(qp, &arrival, &packet);
        free(held);
    }
}

void sw_roce_impair_release(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    release_coming(now_ns);
    sw_roce_deliver_end(false);
    release_leaving(now_ns);
}

void sw_roce_impair_plan(void)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    sw_lock_acquire(&leaving.lock);
    uint64_t due_ns = sw_fault_line_due_ns(&leaving.line);
    sw_lock_release(&leaving.lock);
    uint64_t coming_ns = sw_fault_line_due_ns(&coming);
    due_ns = sw_min_u64(coming_ns, due_ns);
    if (due_ns != UINT64_MAX)
        sw_roce_wake_at(due_ns);
}

bool sw_roce_impair_withholds(const struct sw_qp *qp)
{
    return sw_faults_withholds(sw_faults_live, qp->qpn, qp->ordinal,
                               sw_faults_elapsed_ns(sw_clock_ns()));
}

static void at_end(void)
{
    while (atomic_load(&sw_roce.open) && release_leaving(UINT64_MAX) == RELEASE_PACKETS)
        ;
}

void sw_roce_impair_start(void)
{
    static bool ends;
    if (!ends)
        atexit(at_end);
    ends = true;
}

void sw_roce_impair_fork_child(void)
{
    leaving.lock = (struct sw_lock){0}; /* the lines may be in the middle of a change: left alone */
    leaving.line = coming = (struct sw_fault_line){0};
}
