/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * It speaks NVMe over RDMA by hand. Most of what it says is right, so that it gets far; the rest is
 * changed at random. It takes no answers, or takes its memory away, or ends amid its commands: by a
 * word, without one, by SIGKILL, or by SIGSTOP.
 */
#include "hostile_host.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "nvme/wire/dhchap.h"
#include "nvme/wire/fabrics.h"
#include "nvme/wire/quiesce.h"
#include "nvme/wire/sgl.h"

enum {
    QUEUES = 4, /* the admin queue is 0 */
    DEPTH = 32,
    SENDS = 256,
    BUFFER_BYTES = 2 << 20,
    BLOCK_BYTES = 4096,
    CAPSULE_MAX = NVF_SQE_BYTES + 3 * 4096, /* more than a target takes */
    COMMANDS_MAX = 60,
    BATCH = 16,
    CONNECT_CID = 0x7fff,
    ANSWERS_OF_SETUP = 3, /* taken by those that take no others */
    LIFE_S = 2,           /* at most: whoever has started it ends it before */
    CONNECT_MS = 1000,
    READY = 4 << 20 | 6 << 16 | NVF_CC_ENABLE, /* of CC */
};

struct hostile {
    uint64_t seed, random;
    const char *port;
    struct rdma_cm_id *ids[QUEUES];
    struct ibv_mr *mrs[QUEUES]; /* of `buffer`, by the queue's protection domain */
    uint32_t sent[QUEUES];
    uint16_t cntlid;
    bool takes_answers;
    enum { OPEN, LOCKED, DISCOVERY } subsystem; /* that it asks for */
    uint8_t *buffer;
};

static uint32_t draw(struct hostile *host, uint32_t below) /* xorshift64, Marsaglia 2003 */
{
    host->random ^= host->random << 13;
    host->random ^= host->random >> 7;
    host->random ^= host->random << 17;
    return (uint32_t)(host->random >> 32) % below;
}

static bool one_in(struct hostile *host, uint32_t count)
{
    return draw(host, count) == 0;
}

/* ---- connections ---- */

static void post_receive(struct hostile *host, unsigned n, uint64_t at)
{
    struct ibv_sge sge = {(uintptr_t)host->buffer + at, NVF_CQE_BYTES, host->mrs[n]->lkey};
    struct ibv_recv_wr wr = {.wr_id = at, .sg_list = &sge, .num_sge = 1}, *bad;
    (void)ibv_post_recv(host->ids[n]->qp, &wr, &bad);
}

/* How many have come. */
static uint32_t take_answers(struct hostile *host, unsigned n)
{
    struct ibv_wc wcs[BATCH];
    const struct rdma_cm_id *id = host->ids[n];
    uint32_t taken = 0;
    int count = ibv_poll_cq(id->recv_cq, BATCH, wcs);
    for (int i = 0; i < count; i++) {
        const struct nvf_cqe *cqe = (const struct nvf_cqe *)(host->buffer + wcs[i].wr_id);
        if (wcs[i].status != IBV_WC_SUCCESS)
            continue;
        if (!n && !cqe->status && le16toh(cqe->cid) == CONNECT_CID)
            host->cntlid = (uint16_t)le64toh(cqe->result);
        if (host->takes_answers)
            post_receive(host, n, wcs[i].wr_id);
        taken++;
    }
    count = ibv_poll_cq(id->send_cq, BATCH, wcs);
    host->sent[n] -= (uint32_t)count < host->sent[n] ? (uint32_t)count : host->sent[n];
    return taken;
}

static struct nvf_cm_req private_data(struct hostile *host, unsigned n)
{
    struct nvf_cm_req req = {.qid = htole16((uint16_t)n),
                             .host_receives = htole16(DEPTH),
                             .host_sends = htole16(DEPTH - 1),
                             .cntlid = htole16(host->cntlid)};
    if (one_in(host, 8))
        ((uint8_t *)&req)[draw(host, 8)] = (uint8_t)draw(host, 256);
    return req;
}

static bool make_queue(struct hostile *host, unsigned n)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = SENDS, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1}};
    struct rdma_cm_id *id = host->ids[n];
    if (rdma_create_qp(id, NULL, &attr))
        return false;
    host->mrs[n] = ibv_reg_mr(id->pd, host->buffer, BUFFER_BYTES,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  (one_in(host, 8) ? 0 : IBV_ACCESS_REMOTE_READ));
    if (!host->mrs[n])
        return false;
    for (uint32_t i = 0; i < (host->takes_answers ? DEPTH : ANSWERS_OF_SETUP); i++)
        post_receive(host, n, (n * DEPTH + i) * NVF_CQE_BYTES);
    return true;
}

static void end_queue(struct hostile *host, unsigned n)
{
    if (!host->ids[n])
        return;
    if (host->mrs[n])
        ibv_dereg_mr(host->mrs[n]);
    if (host->ids[n]->qp)
        rdma_destroy_qp(host->ids[n]);
    rdma_destroy_id(host->ids[n]);
    host->ids[n] = NULL;
    host->mrs[n] = NULL;
    host->sent[n] = 0;
}

static bool connect_queue(struct hostile *host, unsigned n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(host->port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct nvf_cm_req req = private_data(host, n);
    struct rdma_conn_param param = {.private_data = &req,
                                    .private_data_len = one_in(host, 32) ? 8 : sizeof(req),
                                    .initiator_depth = 4,
                                    .responder_resources = 16,
                                    .rnr_retry_count = 7};
    if (rdma_create_id(NULL, &host->ids[n], NULL, RDMA_PS_TCP))
        return false;
    struct rdma_cm_id *id = host->ids[n];
    return !rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, CONNECT_MS) &&
           !rdma_resolve_route(id, CONNECT_MS) && make_queue(host, n) && !rdma_connect(id, &param);
}

/* ---- what it says ---- */

static void set_data(struct hostile *host, unsigned n, struct nvf_sqe *sqe, uint32_t len_bytes)
{
    const uint32_t at = draw(host, (BUFFER_BYTES - (1 << 20)) / 64) * 64;
    nvf_sgl_set_keyed(sqe, (uintptr_t)host->buffer + at, len_bytes, host->mrs[n]->rkey,
                      one_in(host, 4));
}

static struct nvf_sqe say_connect(struct hostile *host, unsigned n)
{
    struct nvmf_connect_data data = {.cntlid = htole16(n ? host->cntlid : 0xffff)};
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .cid = htole16(CONNECT_CID),
                          .nsid = htole32(NVF_CONNECT),
                          .cdw10 = htole32(n << 16),
                          .cdw11 = htole32(DEPTH - 1),
                          .cdw12 = htole32(one_in(host, 4) ? 100 : 5000)};
    strcpy(data.subsysnqn, host->subsystem == LOCKED      ? HOSTILE_LOCKED_NQN
                           : host->subsystem == DISCOVERY ? NVF_DISCOVERY_NQN
                                                          : HOSTILE_NQN);
    if (host->subsystem == LOCKED)
        strcpy(data.hostnqn, HOSTILE_KNOWN_HOST);
    else
        snprintf(data.hostnqn, sizeof(data.hostnqn), "nqn.2026-01.test:hostile-%d", getpid());
    memcpy(data.hostid, &host->seed, sizeof(host->seed));
    const uint32_t at = BUFFER_BYTES - (1 << 20);
    memcpy(host->buffer + at, &data, sizeof(data));
    nvf_sgl_set_keyed(&sqe, (uintptr_t)host->buffer + at, sizeof(data), host->mrs[n]->rkey, false);
    return sqe;
}

static struct nvf_sqe say_property(struct hostile *host, bool enables)
{
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE, .nsid = htole32(NVF_PROPERTY_SET)};
    const uint32_t cc = enables ? READY : one_in(host, 2) ? 0 : READY | 1 << 14;
    nvf_sgl_set_none(&sqe);
    sqe.cdw11 = htole32(NVME_REG_CC);
    sqe.cdw12 = htole32(cc);
    return sqe;
}

static struct nvf_sqe say_admin(struct hostile *host)
{
    static const uint8_t opcodes[] = {
        nvme_admin_identify,     nvme_admin_get_log_page, nvme_admin_set_features,
        nvme_admin_get_features, nvme_admin_async_event,  nvme_admin_async_event,
        nvme_admin_abort_cmd,    nvme_admin_keep_alive,   NVF_ADMIN_CROSS_CTRL_RESET};
    static const uint8_t pages[] = {
        1, 2, 3, 4, 5, NVME_LOG_LID_ANA, 0x70, 0x80, NVF_LOG_CROSS_CTRL_RESET};
    struct nvf_sqe sqe = {.opcode = opcodes[draw(host, sizeof(opcodes))],
                          .nsid = htole32(draw(host, 5))};
    set_data(host, 0, &sqe, BLOCK_BYTES);
    if (sqe.opcode == nvme_admin_get_log_page)
        sqe.cdw10 = htole32(pages[draw(host, sizeof(pages))] | draw(host, 1024) << 16);
    else if (sqe.opcode == nvme_admin_abort_cmd)
        sqe.cdw10 = htole32(draw(host, COMMANDS_MAX) << 16);
    else if (sqe.opcode == NVF_ADMIN_CROSS_CTRL_RESET)
        sqe.cdw10 = htole32(nvf_ccr_cdw10((uint16_t)draw(host, 64), (uint8_t)draw(host, 64)));
    else
        sqe.cdw10 = htole32(draw(host, 24));
    sqe.cdw11 = htole32(one_in(host, 2) ? 0xffffffff : draw(host, 1 << 12));
    sqe.cdw12 = sqe.opcode == NVF_ADMIN_CROSS_CTRL_RESET ? htole32(1 + draw(host, 4)) : 0;
    return sqe;
}

/* A key of 0 to 3, so that hosts meet; and any action. */
static void set_reservation(struct hostile *host, struct nvf_sqe *sqe)
{
    sqe->cdw10 = htole32(draw(host, 4) | (draw(host, 6) + 1) << 8 | (one_in(host, 2) ? 8 : 0));
    for (uint32_t at = 0; at < BUFFER_BYTES - (1 << 20); at += 64)
        host->buffer[at] = host->buffer[at + 8] = (uint8_t)(host->random >> at % 32 & 3);
}

static struct nvf_sqe say_io(struct hostile *host, unsigned n)
{
    static const uint8_t opcodes[] = {
        nvme_cmd_write,        nvme_cmd_read,         nvme_cmd_write,      nvme_cmd_read,
        nvme_cmd_write,        nvme_cmd_read,         nvme_cmd_flush,      nvme_cmd_compare,
        nvme_cmd_write_zeroes, nvme_cmd_dsm,          nvme_cmd_verify,     nvme_cmd_resv_register,
        nvme_cmd_resv_acquire, nvme_cmd_resv_release, nvme_cmd_resv_report};
    const uint32_t blocks = one_in(host, 2) ? 256 : 1 + draw(host, 16);
    struct nvf_sqe sqe = {.opcode = opcodes[draw(host, sizeof(opcodes))],
                          .nsid = htole32(1 + draw(host, 3)),
                          .cdw10 = htole32(draw(host, 1024)),
                          .cdw11 = htole32(one_in(host, 16)),
                          .cdw12 = htole32(blocks - 1)};
    set_data(host, n, &sqe, blocks * BLOCK_BYTES);
    if (sqe.opcode == nvme_cmd_dsm) {
        sqe.cdw10 = htole32(draw(host, 256));
        sqe.cdw11 = htole32(4);
    } else if (sqe.opcode >= nvme_cmd_resv_register && sqe.opcode != nvme_cmd_verify) {
        set_reservation(host, &sqe);
    } else if (one_in(host, 16)) {
        sqe.nsid = htole32(NVME_NSID_ALL);
    }
    return sqe;
}

/* What somebody says who knows the host's name, and no secret. */
static struct nvf_sqe say_authentication(struct hostile *host, unsigned n)
{
    static const enum nvf_auth_id ids[] = {NVF_AUTH_NEGOTIATE, NVF_AUTH_NEGOTIATE, NVF_AUTH_REPLY,
                                           NVF_AUTH_SUCCESS2, NVF_AUTH_FAILURE2};
    const bool sends = one_in(host, 2);
    struct nvf_auth_message message = {.id = ids[draw(host, sizeof(ids) / sizeof(*ids))],
                                       .transaction = 1,
                                       .offers_dhchap = true,
                                       .hash_count = 1,
                                       .group_count = 2,
                                       .hashes = {NVF_SHA256},
                                       .groups = {NVF_DH_NULL, NVF_FFDHE2048},
                                       .hash_bytes = 32,
                                       .dh_bytes = 256,
                                       .dh = {1},
                                       .sequence = 1};
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .nsid = htole32(sends ? NVF_AUTH_SEND : NVF_AUTH_RECEIVE),
                          .cdw10 = htole32((uint32_t)NVF_AUTH_PROTOCOL << 24 | 0x010100)};
    const uint32_t at = BUFFER_BYTES - (1 << 20) + sizeof(struct nvmf_connect_data);
    uint8_t *data = host->buffer + at;
    const uint32_t len =
        sends ? (uint32_t)nvf_auth_encode(&message, data) : (uint32_t)NVF_AUTH_MESSAGE_MAX;
    sqe.cdw11 = htole32(len);
    nvf_sgl_set_keyed(&sqe, (uintptr_t)data, len, host->mrs[n]->rkey, false);
    return sqe;
}

static struct nvf_sqe say_any(struct hostile *host, unsigned n)
{
    struct nvf_sqe sqe = one_in(host, 24)   ? say_connect(host, n)
                         : one_in(host, 24) ? say_property(host, one_in(host, 2))
                         : one_in(host, host->subsystem == LOCKED ? 2 : 40)
                             ? say_authentication(host, n)
                         : n ? say_io(host, n)
                             : say_admin(host);
    for (uint32_t i = one_in(host, 6) ? 1 + draw(host, 3) : 0; i; i--)
        ((uint8_t *)&sqe)[draw(host, sizeof(sqe))] = (uint8_t)draw(host, 256);
    return sqe;
}

/* Sends a capsule of 64 bytes and data, if not less or more. */
static void send_capsule(struct hostile *host, unsigned n, const struct nvf_sqe *sqe)
{
    const uint32_t at = BUFFER_BYTES - (1 << 19) + host->sent[n] % DEPTH * CAPSULE_MAX;
    uint32_t len = NVF_SQE_BYTES;
    struct nvf_sqe said = *sqe;
    if (host->sent[n] >= SENDS)
        take_answers(host, n);
    if (n && one_in(host, 8)) {
        nvf_sgl_set_in_capsule(&said, BLOCK_BYTES);
        len += one_in(host, 8) ? draw(host, CAPSULE_MAX - NVF_SQE_BYTES) : BLOCK_BYTES;
    } else if (one_in(host, 64)) {
        len = draw(host, NVF_SQE_BYTES);
    }
    memcpy(host->buffer + at, &said, sizeof(said));
    struct ibv_sge sge = {(uintptr_t)host->buffer + at, len, host->mrs[n]->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;
    host->sent[n] += !ibv_post_send(host->ids[n]->qp, &wr, &bad);
}

static void say_and_wait(struct hostile *host, unsigned n, const struct nvf_sqe *sqe)
{
    send_capsule(host, n, sqe);
    for (int i = 0; i < 50 && !take_answers(host, n); i++)
        usleep(200);
}

/* ---- its life ---- */

static void ask_for_events(struct hostile *host)
{
    struct nvf_sqe sqe = {.opcode = nvme_admin_set_features,
                          .cid = htole16(1),
                          .cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT),
                          .cdw11 = htole32(0xffffffff)};
    nvf_sgl_set_none(&sqe);
    say_and_wait(host, 0, &sqe);
    sqe = (struct nvf_sqe){.opcode = nvme_admin_async_event, .cid = htole16(2)};
    nvf_sgl_set_none(&sqe);
    send_capsule(host, 0, &sqe);
}

/* The connections that it wants, as far as they come about. */
static bool get_in(struct hostile *host)
{
    if (!connect_queue(host, 0))
        return false;
    if (one_in(host, 16)) /* nothing is said on it */
        return true;
    struct nvf_sqe sqe = say_connect(host, 0);
    say_and_wait(host, 0, &sqe);
    sqe = say_property(host, true);
    say_and_wait(host, 0, &sqe);
    if (one_in(host, 2))
        ask_for_events(host);
    for (unsigned n = 1; n <= 1 + draw(host, QUEUES - 1) && n < QUEUES; n++) {
        if (!connect_queue(host, n)) {
            end_queue(host, n);
            continue;
        }
        sqe = say_connect(host, n);
        say_and_wait(host, n, &sqe);
    }
    return true;
}

static void do_harm(struct hostile *host)
{
    for (uint32_t i = draw(host, COMMANDS_MAX); i; i--) {
        const unsigned n = draw(host, QUEUES);
        if (!host->ids[n] || !host->mrs[n])
            continue;
        struct nvf_sqe sqe = say_any(host, n);
        sqe.cid = htole16((uint16_t)i);
        send_capsule(host, n, &sqe);
        if (one_in(host, 4))
            take_answers(host, n);
        if (one_in(host, 8))
            usleep(draw(host, 2000));
        if (one_in(host, 40))
            end_queue(host, n);
    }
}

/* As many long commands as the queue takes, all the time; mostly until it is killed amid them. */
static void flood(struct hostile *host, unsigned n)
{
    const uint32_t commands = one_in(host, 4) ? DEPTH + draw(host, 8 * DEPTH) : UINT32_MAX;
    const uint32_t nsid = 1 + draw(host, 2);
    uint32_t said = 0, answered = 0;
    while (said < commands) {
        while (said - answered < DEPTH - 1 && said < commands) {
            struct nvf_sqe sqe = {.opcode = one_in(host, 2) ? nvme_cmd_write : nvme_cmd_read,
                                  .nsid = htole32(nsid),
                                  .cid = htole16((uint16_t)said++),
                                  .cdw12 = htole32(255)};
            set_data(host, n, &sqe, 256 * BLOCK_BYTES);
            send_capsule(host, n, &sqe);
        }
        answered += take_answers(host, n);
        usleep(20);
    }
}

static void leave(struct hostile *host)
{
    switch (draw(host, 8)) {
    case 0:
        raise(SIGSTOP); /* until somebody ends it */
        break;
    case 1:
        _exit(0);
    case 2:
        for (unsigned n = 0; n < QUEUES; n++)
            if (host->ids[n])
                rdma_disconnect(host->ids[n]);
        break;
    case 3: /* the admin queue alone; events come before the others end */
        end_queue(host, 0);
        usleep(200000);
        break;
    case 4:
    case 5:
        usleep(draw(host, 100000));
        break;
    default:
        raise(SIGKILL);
    }
    for (unsigned n = 0; n < QUEUES; n++)
        end_queue(host, n);
}

void hostile_host_live(const char *port, uint64_t seed)
{
    struct hostile host = {.random = seed * 0x9e3779b97f4a7c15ull | 1,
                           .seed = seed,
                           .port = port,

                           .cntlid = 0xffff};
    alarm(LIFE_S);
    host.buffer = aligned_alloc(BLOCK_BYTES, BUFFER_BYTES);
    if (!host.buffer)
        _exit(1);
    memset(host.buffer, (int)seed, BUFFER_BYTES);
    for (;;) {
        host.takes_answers = !one_in(&host, 4);
        host.subsystem = one_in(&host, 6) ? DISCOVERY : one_in(&host, 4) ? LOCKED : OPEN;
        if (get_in(&host) && host.ids[1] && one_in(&host, 2))
            flood(&host, 1);
        else if (host.ids[0]->qp)
            do_harm(&host);
        leave(&host);
    }
}
