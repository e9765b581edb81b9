/* SPDX-License-Identifier: BSD-2-Clause */
#include "machine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/aeth.h"

enum { FIRST_PSN = 0xfffff8, STEP_MS = 5, ACK = 0x1f, NAK_ACCESS = 0x62 };

uint32_t machine_random(struct machine *m) /* xorshift64, Marsaglia 2003 */
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)(m->random >> 20);
}

static void exchange(struct machine *m, struct target_hello *hello)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(TARGET_PORT)};
    memcpy(&to.sin_addr, m->peer->out.dst, 4);
    m->control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(m->control, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(m->control, hello, sizeof(*hello), MSG_NOSIGNAL) != sizeof(*hello) ||
        recv(m->control, hello, sizeof(*hello), MSG_WAITALL) != sizeof(*hello)) {
        perror("the target");
        exit(EXIT_FAILURE);
    }
}

void machine_open(struct machine *m, struct peer *peer, enum sw_service service, uint32_t mtu_bytes,
                  uint32_t loss)
{
    static uint32_t serial = 0x4000;
    memset(m, 0, sizeof(*m));
    m->peer = peer;
    m->qpn = ++serial;
    m->random = 88172645463325252 + serial;
    struct target_hello hello = {.qpn = m->qpn,
                                 .psn = FIRST_PSN,
                                 .mtu_bytes = mtu_bytes,
                                 .is_uc = service == SW_SERVICE_UC,
                                 .gid = {[10] = 0xff, [11] = 0xff}};
    memcpy(hello.gid + 12, peer->out.src, 4);
    exchange(m, &hello);
    m->target_addr = hello.addr;
    m->target_rkey = hello.rkey;
    m->loss = loss;
    struct sw_requester_config requester = {
        .qpn = m->qpn,
        .dest_qpn = hello.qpn,
        .first_psn = FIRST_PSN,
        .mtu_bytes = mtu_bytes,
        .pkey = SW_PKEY_DEFAULT,
        .service = (uint8_t)service,
        .timeout = 18, /* an emulated guest may stand still for half a second */
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = 16,
        .offer_selective = true};
    struct sw_responder_config responder = {.qpn = m->qpn,
                                            .dest_qpn = hello.qpn,
                                            .first_psn = hello.psn,
                                            .mtu_bytes = mtu_bytes,
                                            .pkey = SW_PKEY_DEFAULT,
                                            .service = (uint8_t)service,
                                            .min_rnr_timer = 1,
                                            .max_dest_rd_atomic = 16,
                                            .offer_selective = true};
    sw_requester_init(&m->requester, &requester, m->ring, MACHINE_ENTRIES);
    sw_responder_init(&m->responder, &responder, NULL);
}

void machine_close(struct machine *m)
{
    sw_responder_release(&m->responder);
    close(m->control);
}

bool machine_post(struct machine *m, const struct sw_request *request)
{
    return sw_requester_post(&m->requester, request);
}

static bool is_lost(struct machine *m)
{
    return m->loss && machine_random(m) % 1000 < m->loss;
}

static void emit(struct machine *m, struct sw_emission *emission)
{
    struct sw_packet *packet = &emission->packet;
    switch (emission->source) {
    case SW_PAYLOAD_NONE:
        break;
    case SW_PAYLOAD_REQUEST:
        packet->payload = m->data[emission->position % MACHINE_ENTRIES] + emission->offset;
        break;
    case SW_PAYLOAD_MEMORY:
        packet->payload = m->memory + (emission->addr - MACHINE_BASE);
        break;
    case SW_PAYLOAD_BYTES:
        packet->payload = emission->bytes;
        break;
    }
    if (!is_lost(m))
        peer_send(m->peer, packet);
}

static bool is_ours(const struct sw_demand *demand, uint64_t len_bytes)
{
    return demand->rkey == MACHINE_RKEY && demand->addr >= MACHINE_BASE &&
           demand->addr - MACHINE_BASE <= TARGET_MEMORY &&
           len_bytes <= TARGET_MEMORY - (demand->addr - MACHINE_BASE);
}

static uint8_t receive_part(struct machine *m, const struct sw_demand *demand)
{
    uint32_t slot = m->received_count % MACHINE_RECEIVES;
    if (demand->offset + demand->len_bytes > TARGET_MESSAGE_MAX)
        return NAK_ACCESS;
    memcpy(m->received[slot] + demand->offset, demand->payload, demand->len_bytes);
    m->received_len[slot] = (uint32_t)(demand->offset + demand->len_bytes);
    m->received_count += demand->last;
    return ACK;
}

static uint8_t carry_out(struct machine *m, const struct sw_demand *demand, uint64_t *original)
{
    uint8_t *at = m->memory + (demand->addr - MACHINE_BASE);
    uint64_t word;
    switch (demand->kind) {
    case SW_DEMAND_SEND:
        return receive_part(m, demand);
    case SW_DEMAND_WRITE:
        if (demand->total && !is_ours(demand, demand->len_bytes))
            return NAK_ACCESS;
        if (demand->len_bytes)
            memcpy(at, demand->payload, demand->len_bytes);
        return ACK;
    case SW_DEMAND_READ:
        return !demand->total || is_ours(demand, demand->total) ? ACK : NAK_ACCESS;
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
        if (!is_ours(demand, sizeof(word)))
            return NAK_ACCESS;
        memcpy(&word, at, sizeof(word));
        *original = word;
        if (demand->kind == SW_DEMAND_FETCH_ADD)
            word += demand->compare_add;
        else if (word == demand->compare_add)
            word = demand->swap;
        memcpy(at, &word, sizeof(word));
        return ACK;
    case SW_DEMAND_ATOMIC_WRITE:
    case SW_DEMAND_FLUSH:
        break; /* the target does not ask for them */
    }
    return NAK_ACCESS;
}

static void progress(struct machine *m, const struct sw_progress *p)
{
    uint32_t slot = p->place_position % MACHINE_ENTRIES;
    if (p->places && p->place_bytes)
        memcpy(m->data[slot] + p->place_offset, p->place_bytes, p->place_len);
    else if (p->places)
        m->original[slot] = p->value;
    if (p->failure) {
        m->failure = p->failure;
        m->syndrome = p->syndrome;
    }
}

static void take(struct machine *m, const struct sw_packet *packet, uint64_t now_ns)
{
    struct sw_demand demand;
    struct sw_progress p = {0};
    if (packet->opcode->service == SW_SERVICE_CNP) {
        sw_requester_cnp(&m->requester, now_ns);
        sw_responder_cnp(&m->responder, now_ns);
    } else if (!packet->opcode->is_request) {
        sw_requester_receive(&m->requester, packet, now_ns, &p);
        progress(m, &p);
    } else if (sw_responder_admit(&m->responder, packet, now_ns, &demand)) {
        struct sw_outcome outcome = {0};
        outcome.syndrome = carry_out(m, &demand, &outcome.original);
        outcome.dead = outcome.syndrome != ACK;
        sw_responder_conclude(&m->responder, &demand, &outcome);
    }
}

void machine_step(struct machine *m)
{
    static struct received received;
    struct sw_emission emission;
    uint64_t now_ns = sw_clock_ns(), due_ns = sw_requester_due_ns(&m->requester);
    int wait_ms = due_ns < now_ns + STEP_MS * SW_NS_PER_MS ? 0 : STEP_MS;
    for (int i = 0; i < 64 && peer_receive(m->peer, &received, i ? 0 : wait_ms); i++)
        if (received.packet.bth.dest_qpn == m->qpn && !is_lost(m))
            take(m, &received.packet, sw_clock_ns());
    now_ns = sw_clock_ns();
    if (sw_requester_due_ns(&m->requester) <= now_ns) {
        struct sw_progress p = {0};
        sw_requester_tick(&m->requester, now_ns, &p);
        progress(m, &p);
    }
    while (sw_responder_next(&m->responder, sw_clock_ns(), &emission))
        emit(m, &emission);
    while (sw_requester_next(&m->requester, sw_clock_ns(), &emission))
        emit(m, &emission);
}
