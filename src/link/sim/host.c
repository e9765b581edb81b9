/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/host.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "link/sim/target.h"
#include "wire/icrc.h"

/* Packets of the uplink that are given out ahead, so that it does not run dry between events. */
#define AHEAD_NS 2000

static void *need_memory(void *memory)
{
    if (!memory) {
        fputs("sim: no memory for hosts\n", stderr);
        abort();
    }
    return memory;
}

/* 10.0.0.<number + 1>; the sender's port is the flow's entropy. */
static struct sw_flow flow_between(uint32_t from, uint32_t to)
{
    struct sw_flow flow = {.dont_fragment = true, .ttl = 64, .dst_port = SW_ROCE_PORT};
    flow.src_port = (uint16_t)(0xc000 + from * SW_SIM_HOSTS_MAX + to);
    flow.src[0] = flow.dst[0] = 10;
    flow.src[3] = (uint8_t)(from + 1);
    flow.dst[3] = (uint8_t)(to + 1);
    return flow;
}

void sw_sim_host_init(struct sw_sim_host *host, struct sw_sim_net *net,
                      const struct sw_sim_host_config *config)
{
    *host = (struct sw_sim_host){.net = net,
                                 .number = config->number,
                                 .base = 0x10000000ull * (config->number + 1),
                                 .len_bytes = config->len_bytes,
                                 .wake_ns = UINT64_MAX};
    host->memory = need_memory(calloc(1, config->len_bytes));
    host->pd = sw_sim_pd_open();
    host->keys.host = config->number;
    sw_sim_host_register(host, host->base, host->len_bytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    host->qps = need_memory(calloc(SW_SIM_QPS_MAX, sizeof(struct sw_sim_qp *)));
    host->slots = need_memory(calloc(config->early_slots, sizeof(*host->slots)));
    host->copies = need_memory(calloc(config->early_slots, sizeof(*host->copies)));
    sw_early_pool_init(&host->pool, host->slots, host->copies, (uint16_t)config->early_slots);
    host->flows = need_memory(calloc(net->config.hosts, 2 * sizeof(*host->flows)));
    host->rewind = need_memory(calloc(1, sizeof(*host->rewind)));
    for (uint32_t other = 0; other < net->config.hosts; other++) {
        struct sw_flow out = flow_between(host->number, other),
                       in = flow_between(other, host->number);
        sw_icrc_flow_init(&host->flows[2 * other], &out);
        sw_icrc_flow_init(&host->flows[2 * other + 1], &in);
    }
}

/* What it has of the NIC, but its queue pairs. */
static void host_close_device(struct sw_sim_host *host)
{
    for (uint32_t i = 0; i < host->window_count; i++)
        sw_mw_dealloc(host->windows[i]);
    int rc = host->srq ? sw_srq_destroy(host->srq) : 0;
    for (uint32_t i = 0; i < host->mr_count && !rc; i++)
        rc = sw_mr_dereg(host->mrs[i]);
    if (!rc)
        rc = sw_pd_dealloc(host->pd);
    assert(!rc);
}

void sw_sim_host_fini(struct sw_sim_host *host)
{
    for (uint32_t i = 0; i < host->qp_count; i++) {
        sw_sim_qp_close(host->qps[i]->device);
        free(host->qps[i]);
    }
    host_close_device(host);
    free(host->qps);
    free(host->slots);
    free(host->copies);
    free(host->flows);
    free(host->rewind);
    free(host->memory);
}

uint32_t sw_sim_host_register(struct sw_sim_host *host, uint64_t addr, uint64_t len_bytes,
                              uint32_t access)
{
    struct sw_mr *mr =
        sw_sim_mr_open(host->pd, &host->keys, sw_sim_host_at(host, addr), len_bytes, addr, access);
    host->mrs[host->mr_count++] = mr;
    return sw_mr_key(mr);
}

uint32_t sw_sim_host_key(const struct sw_sim_host *host)
{
    return sw_mr_key(host->mrs[0]);
}

uint32_t sw_sim_host_next_qpn(const struct sw_sim_host *host)
{
    return (host->number + 1) << 13 | (host->qp_count + 1);
}

struct sw_sim_qp *sw_sim_qp_create(struct sw_sim_host *host, const struct sw_sim_qp_config *config)
{
    struct sw_sim_qp *qp = need_memory(calloc(1, sizeof(*qp)));
    qp->host = host;
    qp->qpn = sw_sim_host_next_qpn(host);
    qp->peer_host = config->peer_host;
    qp->complete = config->complete;
    qp->user = config->user;
    if (config->shares_receives && !host->srq)
        host->srq = sw_sim_srq_open(host->pd, SW_SIM_RECEIVES);
    qp->device = sw_sim_qp_open(&(struct sw_sim_qp_shape){
        .type = config->responder.service == SW_SERVICE_UC ? IBV_QPT_UC : IBV_QPT_RC,
        .pd = host->pd,
        .srq = config->shares_receives ? host->srq : NULL,
        .receives = SW_SIM_RECEIVES,
        .mtu_bytes = config->responder.mtu_bytes,
        .access = config->access,
        .shown_qpn = qp->qpn,
        .dest_qpn = config->responder.dest_qpn,
        .receive = &qp->receive,
    });
    sw_requester_init(&qp->requester, &config->requester, qp->ring, SW_SIM_SENDS);
    sw_responder_init(&qp->responder, &config->responder, &host->pool);
    host->qps[host->qp_count++] = qp;
    return qp;
}

/* ---- out ---- */

static const uint8_t *payload_of(struct sw_sim_qp *qp, struct sw_emission *emission)
{
    const struct sw_sim_host *host = qp->host;
    uint32_t len = emission->packet.payload_len;
    switch (emission->source) {
    case SW_PAYLOAD_REQUEST: {
        const struct sw_sim_send *send = &qp->sends[emission->position % SW_SIM_SENDS];
        return sw_sim_host_at(host, send->addr + emission->offset);
    }
    case SW_PAYLOAD_MEMORY: {
        uint8_t *bytes = NULL;
        enum sw_verdict verdict = sw_sim_may_read(qp, emission->addr, len, emission->rkey, &bytes);
        if (verdict == SW_ACK)
            return bytes;
        if (sw_responder_unreadable(&qp->responder, sw_verdict_rules[verdict].aeth_syndrome,
                                    emission))
            sw_sim_qp_die(qp);
        return NULL;
    }
    case SW_PAYLOAD_BYTES:
        return emission->bytes;
    case SW_PAYLOAD_NONE:
        break;
    }
    return NULL;
}

static void transmit_packet(struct sw_sim_qp *qp, struct sw_emission *emission)
{
    struct sw_sim_host *host = qp->host;
    const uint8_t *payload = payload_of(qp, emission);
    uint8_t bytes[SW_HEADERS_MAX + SW_EARLY_PAYLOAD_MAX + SW_TRAILER_MAX];
    uint32_t len = emission->packet.payload_len;
    size_t header = sw_packet_encode_headers(&emission->packet, bytes, sizeof(bytes));
    size_t total = header + len + sw_packet_pad(len) + SW_ICRC_BYTES;
    const struct sw_icrc_flow *flow = &host->flows[2 * qp->peer_host];
    struct sw_icrc_prefix prefix = {0};
    if (len)
        memcpy(bytes + header, payload, len);
    memset(bytes + header + len, 0, sw_packet_pad(len));
    sw_icrc_seal(flow, &prefix, 0, bytes, total);
    sw_sim_trace(host->net->world, "send", qp->qpn,
                 (uint64_t)emission->packet.bth.opcode << 32 | emission->packet.bth.psn);
    sw_sim_net_send(host->net, host->number, qp->peer_host, bytes, (uint32_t)total);
}

static bool host_send_one(struct sw_sim_qp *qp)
{
    enum { RUN = 16 };
    struct sw_emission emission;
    uint64_t now_ns = qp->host->net->world->now_ns;
    if (!sw_responder_next(&qp->responder, now_ns, &emission) &&
        (qp->dead || !sw_requester_next_run(&qp->requester, now_ns, RUN, &emission)))
        return false;
    for (const bool asks = emission.packet.bth.ack_req; emission.count;
         sw_emission_step(&emission)) {
        emission.packet.bth.ack_req = asks && emission.count == 1;
        transmit_packet(qp, &emission);
    }
    return true;
}

/* ---- completions ---- */

static void host_report_done(struct sw_sim_qp *qp, uint32_t done)
{
    while (qp->reported != done) {
        const struct sw_sim_send *send = &qp->sends[qp->reported % SW_SIM_SENDS];
        struct sw_sim_completion wc = {
            .id = send->id, .status = IBV_WC_SUCCESS, .original = send->original};
        qp->reported++;
        qp->complete(qp, &wc);
    }
}

static enum ibv_wc_status host_status_of(const struct sw_progress *progress)
{
    static const enum sw_verdict refusals[] = {SW_NAK_ACCESS, SW_NAK_INVALID, SW_NAK_OPERATIONAL};
    switch (progress->failure) {
    case SW_FAILURE_RETRY:
        return sw_verdict_rules[SW_UNREACHABLE].requester;
    case SW_FAILURE_RNR_RETRY:
        return sw_verdict_rules[SW_RNR_EXHAUSTED].requester;
    case SW_FAILURE_NAK:
        for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
            if (sw_verdict_rules[refusals[i]].aeth_syndrome == progress->syndrome)
                return sw_verdict_rules[refusals[i]].requester;
        return IBV_WC_BAD_RESP_ERR;
    case SW_FAILURE_BAD_RESPONSE:
    case SW_FAILURE_NONE:
        break;
    }
    return IBV_WC_BAD_RESP_ERR;
}

static void host_carry_out(struct sw_sim_qp *qp, const struct sw_progress *progress)
{
    if (progress->places) {
        struct sw_sim_send *send = &qp->sends[progress->place_position % SW_SIM_SENDS];
        if (progress->place_bytes)
            memcpy(sw_sim_host_at(qp->host, send->addr + progress->place_offset),
                   progress->place_bytes, progress->place_len);
        else
            send->original = progress->value;
    }
    host_report_done(qp, progress->done);
    if (progress->failure != SW_FAILURE_NONE && !qp->dead) {
        if (qp->reported == qp->requester.tail) {
            sw_sim_trace(qp->host->net->world, "idle failure", qp->qpn, progress->failure);
            qp->host->bad_failures++;
            sw_sim_qp_die(qp);
            return;
        }
        struct sw_sim_completion wc = {.id = qp->sends[qp->reported % SW_SIM_SENDS].id,
                                       .status = host_status_of(progress)};
        qp->reported++;
        qp->complete(qp, &wc);
        sw_sim_qp_die(qp);
    }
}

/* ---- in ---- */

static void host_serve_one(struct sw_sim_qp *qp, const struct sw_packet *packet)
{
    struct sw_demand demand;
    if (!sw_responder_admit(&qp->responder, packet, qp->host->net->world->now_ns, &demand))
        return;
    struct sw_outcome outcome = sw_sim_execute(qp, &demand);
    sw_responder_conclude(&qp->responder, &demand, &outcome);
    if (outcome.dead)
        sw_sim_qp_die(qp);
}

static void serve_early(struct sw_sim_qp *qp)
{
    struct sw_packet early;
    while (sw_responder_early(&qp->responder, &early))
        host_serve_one(qp, &early);
}

static void serve_packet(struct sw_sim_qp *qp, const struct sw_packet *packet)
{
    host_serve_one(qp, packet);
    serve_early(qp);
}

static void handle_packet(struct sw_sim_qp *qp, const struct sw_packet *packet, bool marked)
{
    uint64_t now_ns = qp->host->net->world->now_ns;
    if (marked)
        sw_responder_congested(&qp->responder, now_ns);
    if (packet->opcode->kind == SW_PACKET_CNP) {
        sw_requester_cnp(&qp->requester, now_ns);
        sw_responder_cnp(&qp->responder, now_ns);
    } else if (packet->opcode->is_request) {
        serve_packet(qp, packet);
    } else if (!qp->dead) {
        struct sw_progress progress;
        sw_requester_receive(&qp->requester, packet, now_ns, &progress);
        host_carry_out(qp, &progress);
    }
}

static struct sw_sim_qp *host_find_qp(const struct sw_sim_host *host, uint32_t qpn)
{
    uint32_t index = (qpn & 0x1fff) - 1;
    return qpn >> 13 == host->number + 1 && index < host->qp_count ? host->qps[index] : NULL;
}

void sw_sim_host_receive(struct sw_sim_host *host, const struct sw_sim_packet *packet)
{
    struct sw_packet decoded;
    struct sw_ip_id found = {.id = 0, .dont_fragment = true};
    struct sw_sim_world *world = host->net->world;
    const struct sw_icrc_flow *flow = &host->flows[2 * packet->from + 1];
    struct sw_icrc_prefix prefix = {0};
    if (sw_packet_decode(packet->bytes, packet->len, &decoded) != SW_PACKET_FAULT_NONE ||
        !sw_icrc_check(flow, &prefix, packet->bytes, packet->len, host->rewind, &found) ||
        found.id != 0) {
        host->bad_packets++;
        sw_sim_trace(world, "bad", packet->from, packet->to);
        return;
    }
    sw_sim_trace(world, "arrive", decoded.bth.dest_qpn,
                 (uint64_t)decoded.bth.opcode << 32 | decoded.bth.psn);
    struct sw_sim_qp *qp = host_find_qp(host, decoded.bth.dest_qpn);
    if (qp)
        handle_packet(qp, &decoded, packet->marked);
    sw_sim_host_pump(host);
}

/* ---- time ---- */

static void wake_host(void *who, void *what)
{
    struct sw_sim_host *host = who;
    (void)what;
    uint64_t now_ns = host->net->world->now_ns;
    if (now_ns < host->wake_ns)
        return; /* an earlier wake-up was asked for since, and has been */
    host->wake_ns = UINT64_MAX;
    for (uint32_t i = 0; i < host->qp_count; i++) {
        struct sw_sim_qp *qp = host->qps[i];
        if (qp->responder.config.service == SW_SERVICE_UC) {
            sw_responder_tick(&qp->responder, now_ns);
            serve_early(qp);
        }
        if (qp->dead || sw_requester_due_ns(&qp->requester) > now_ns)
            continue;
        struct sw_progress progress;
        sw_requester_tick(&qp->requester, now_ns, &progress);
        host_carry_out(qp, &progress);
    }
    sw_sim_host_pump(host);
}

static void wake_at(struct sw_sim_host *host, uint64_t at_ns)
{
    if (at_ns >= host->wake_ns)
        return;
    host->wake_ns = at_ns;
    sw_sim_at(host->net->world, at_ns, wake_host, host, NULL);
}

static uint64_t next_due(const struct sw_sim_host *host)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < host->qp_count; i++) {
        const struct sw_sim_qp *qp = host->qps[i];
        uint64_t due_ns = qp->dead ? UINT64_MAX : sw_requester_due_ns(&qp->requester);
        uint64_t answer_ns = sw_responder_due_ns(&qp->responder);
        due_ns = sw_min_u64(answer_ns, due_ns);
        next_ns = sw_min_u64(due_ns, next_ns);
    }
    return next_ns;
}

void sw_sim_host_pump(struct sw_sim_host *host)
{
    uint32_t idle = 0;
    while (idle < host->qp_count) {
        uint64_t busy_ns = sw_sim_net_uplink_busy_ns(host->net, host->number);
        if (busy_ns > AHEAD_NS) {
            wake_at(host, host->net->world->now_ns + busy_ns - AHEAD_NS);
            return;
        }
        idle = host_send_one(host->qps[host->turn++ % host->qp_count]) ? 0 : idle + 1;
    }
    for (uint32_t i = 0; i < host->qp_count; i++) /* unreliable requests end when they are out */
        if (!host->qps[i]->dead)
            host_report_done(host->qps[i], sw_requester_done(&host->qps[i]->requester));
    uint64_t due_ns = next_due(host), now_ns = host->net->world->now_ns;
    if (due_ns != UINT64_MAX)
        wake_at(host, due_ns > now_ns ? due_ns : now_ns + 1);
}

bool sw_sim_post_send(struct sw_sim_qp *qp, const struct sw_request *request, uint64_t id,
                      uint64_t local_addr)
{
    if (qp->requester.tail - qp->reported >= SW_SIM_SENDS)
        return false;
    uint32_t position = qp->requester.tail;
    if (qp->dead || !sw_requester_post(&qp->requester, request))
        return false;
    qp->sends[position % SW_SIM_SENDS] = (struct sw_sim_send){.id = id, .addr = local_addr};
    return true;
}

bool sw_sim_post_receive(struct sw_sim_qp *qp, const struct sw_sim_receive *receive)
{
    const uint32_t lkey = receive->lkey ? receive->lkey : sw_sim_host_key(qp->host);
    const uint32_t cut = receive->cut_bytes;
    struct ibv_sge sges[SW_SIM_SGES] = {{receive->addr, receive->len_bytes, lkey}};
    struct ibv_recv_wr wr = {.wr_id = receive->id, .sg_list = sges, .num_sge = 1}, *bad;
    if (cut) {
        sges[0].length = cut;
        sges[1] = (struct ibv_sge){receive->addr + cut, receive->len_bytes - cut, lkey};
        wr.num_sge = 2;
    }
    if (qp->dead)
        return false;
    return qp->device->srq ? !sw_srq_post_recv(qp->device->srq, &wr, &bad)
                           : !sw_qp_post_recv(qp->device, &wr, &bad);
}

uint32_t sw_sim_receive_count(const struct sw_sim_qp *qp)
{
    return sw_rq_depth(qp->device->srq ? &qp->device->srq->rq : &qp->device->rq);
}

uint32_t sw_sim_bind_window(struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                            uint32_t access)
{
    struct sw_sim_host *host = qp->host;
    assert(host->window_count < SW_SIM_WINDOWS_MAX);
    struct sw_mw *mw = sw_sim_mw_open(host->pd, &host->keys);
    const struct sw_wqe wqe = {.opcode = IBV_WR_BIND_MW,
                               .rkey = sw_mw_key(mw),
                               .imm = sw_sim_host_key(host),
                               .remote_addr = addr,
                               .compare_add = len_bytes,
                               .swap = access};
    sw_lock_acquire(&qp->device->lock);
    const enum ibv_wc_status status = sw_mw_execute(qp->device, &wqe);
    sw_lock_release(&qp->device->lock);
    assert(status == IBV_WC_SUCCESS);
    host->windows[host->window_count++] = mw;
    return wqe.rkey;
}
