/* SPDX-License-Identifier: BSD-2-Clause */
#include "test_host_target.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rdma_cma.h>

#include "nvme/target/model/auth.h"
#include "nvme/wire/quiesce.h"
#include "nvme/wire/sgl.h"

enum { PEERS = 16, DEPTH = 64, CAPSULE = 64 + 4096, DISK = PLAYED_BLOCK * PLAYED_BLOCKS };

/* One queue of a host. */
struct peer {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    uint16_t qid, size;
    uint32_t head;
    uint8_t *memory; /* capsules received, then answers */
    struct ibv_mr *mr;
    struct nvf_cqe waiting[DEPTH * 2]; /* for RDMA READ or WRITE */
    uint32_t message_bytes[DEPTH];     /* that a READ brings, for `auth` */
    struct nvt_auth auth;
};

struct played {
    pthread_t thread;
    _Atomic bool ends;
    _Atomic int mischief;
    _Atomic unsigned times;
    _Atomic unsigned counts[256];
    _Atomic uint64_t reservation; /* dwords 10 and 11 of the last command */
    char port[8];
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct ibv_pd *pd;
    struct peer *peers[PEERS];
    uint8_t *disk;
    struct ibv_mr *disk_mr;
    uint32_t cc;
    uint32_t seed;
    uint16_t quiesce_ms;
    bool resets;
    bool authenticates;
    struct nvt_auth_policy policy;
};

static uint8_t *answer_at(struct peer *peer, unsigned slot)
{
    return peer->memory + (size_t)DEPTH * CAPSULE + (size_t)slot * 4096;
}

/* Whether this mischief is on; takes one of its times. */
static bool misbehaves(struct played *t, enum mischief mischief)
{
    if (atomic_load(&t->mischief) != (int)mischief)
        return false;
    const unsigned times = atomic_load(&t->times);
    if (times == 1)
        atomic_store(&t->mischief, MISCHIEF_NONE);
    if (times)
        atomic_store(&t->times, times - 1);
    return true;
}

static void post_receive(struct peer *peer, unsigned slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)peer->memory + (uint64_t)slot * CAPSULE,
                          .length = CAPSULE,
                          .lkey = peer->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
    ibv_post_recv(peer->id->qp, &wr, &bad);
}

static void send_bytes(struct peer *peer, unsigned slot, const void *bytes, uint32_t len)
{
    memcpy(answer_at(peer, slot), bytes, len);
    struct ibv_sge sge = {
        .addr = (uintptr_t)answer_at(peer, slot), .length = len, .lkey = peer->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = 1000 + slot,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    post_receive(peer, slot);
    ibv_post_send(peer->id->qp, &wr, &bad);
}

static void fill_random(struct played *t, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        t->seed = t->seed * 1103515245 + 12345;
        out[i] = (uint8_t)(t->seed >> 16);
    }
}

static void send_answer(struct played *t, struct peer *peer, unsigned slot, struct nvf_cqe *cqe)
{
    uint8_t long_answer[128] = {0};
    cqe->sq_head = htole16((uint16_t)peer->head);
    if (peer->qid) {
        if (misbehaves(t, MISCHIEF_SILENT))
            return;
        if (misbehaves(t, MISCHIEF_CUT)) {
            rdma_disconnect(peer->id);
            return;
        }
        if (misbehaves(t, MISCHIEF_WRONG_CID))
            cqe->cid = htole16(0x3ff);
        if (misbehaves(t, MISCHIEF_STALE_CID))
            cqe->cid ^= htole16(0x8000);
        if (misbehaves(t, MISCHIEF_HEAD_HUGE))
            cqe->sq_head = 0xffff;
        if (misbehaves(t, MISCHIEF_HEAD_AHEAD))
            cqe->sq_head = htole16((uint16_t)((peer->head + 1) % peer->size));
        if (misbehaves(t, MISCHIEF_HEAD_FROZEN))
            cqe->sq_head = 0;
        if (misbehaves(t, MISCHIEF_STATUS))
            cqe->status = htole16((NVME_SCT_MEDIA << 8 | NVME_SC_READ_ERROR | NVME_SC_DNR) << 1);
    }
    memcpy(long_answer, cqe, sizeof(*cqe));
    if (peer->qid && misbehaves(t, MISCHIEF_SHORT))
        return send_bytes(peer, slot, cqe, 12);
    if (peer->qid && misbehaves(t, MISCHIEF_LONG))
        return send_bytes(peer, slot, long_answer, 32);
    if (peer->qid && misbehaves(t, MISCHIEF_TOO_LONG))
        return send_bytes(peer, slot, long_answer, 128);
    if (!peer->qid && misbehaves(t, MISCHIEF_GARBAGE)) {
        fill_random(t, long_answer, sizeof(*cqe));
        memcpy(long_answer + 12, &cqe->cid, 2);
        return send_bytes(peer, slot, long_answer, 16);
    }
    send_bytes(peer, slot, cqe, sizeof(*cqe));
    if (peer->qid && misbehaves(t, MISCHIEF_TWICE))
        send_bytes(peer, slot, cqe, sizeof(*cqe));
}

/* Moves data between this side and the host; the answer follows when it is there. */
static void move_data(struct peer *peer, unsigned slot, const struct nvf_sgl *sgl,
                      enum ibv_wr_opcode opcode, const void *local, uint32_t lkey,
                      const struct nvf_cqe *cqe)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)local, .length = (uint32_t)sgl->len_bytes, .lkey = lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = 2000 + slot,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = sgl->segments[0].addr;
    wr.wr.rdma.rkey = sgl->segments[0].key;
    peer->waiting[slot] = *cqe;
    ibv_post_send(peer->id->qp, &wr, &bad);
}

/* What it promises of commands whose connection was lost. */
static void say_quiesce(const struct played *t, uint8_t *data)
{
    const uint16_t quiesce_ms = htole16(t->quiesce_ms);
    memcpy(data + NVF_ID_CQT, &quiesce_ms, sizeof(quiesce_ms));
    data[NVF_ID_CIRN] = data[NVF_ID_CCRL] = t->resets;
}

static void fill_identify(struct played *t, uint8_t *data, const struct nvf_sqe *sqe)
{
    memset(data, 0, 4096);
    switch (le32toh(sqe->cdw10) & 0xff) {
    case NVME_IDENTIFY_CNS_NS: {
        struct nvme_id_ns *ns = (void *)data;
        ns->nsze = ns->ncap = ns->nuse = htole64(PLAYED_BLOCKS);
        ns->lbaf[0].ds = 9;
        return;
    }
    case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST: {
        struct nvme_ns_list *list = (void *)data;
        list->ns[0] = htole32(le32toh(sqe->nsid) < 1);
        return;
    }
    default: {
        struct nvme_id_ctrl *id = (void *)data;
        memcpy(id->sn, "played              ", 20);
        memcpy(id->mn, "a played target                         ", 40);
        id->ioccsz = htole32(misbehaves(t, MISCHIEF_NO_CAPSULE) ? 4 : CAPSULE / 16);
        id->iorcsz = htole32(1);
        id->sgls = htole32(misbehaves(t, MISCHIEF_NO_KEYED) ? 1 : 1 | 1 << 2 | 1 << 20);
        id->kas = htole16(10);
        id->maxcmd = htole16(DEPTH);
        id->mdts = 5;
        say_quiesce(t, data);
    }
    }
}

static void answer_admin(struct played *t, struct peer *peer, unsigned slot,
                         const struct nvf_sqe *sqe, const struct nvf_sgl *sgl, struct nvf_cqe *cqe)
{
    uint8_t *data = answer_at(peer, slot);
    switch (sqe->opcode) {
    case nvme_admin_identify:
        fill_identify(t, data, sqe);
        return move_data(peer, slot, sgl, IBV_WR_RDMA_WRITE, data, peer->mr->lkey, cqe);
    case nvme_admin_set_features:
        cqe->result = htole64(3 | 3 << 16);
        break;
    case nvme_admin_async_event:
        return;
    case nvme_admin_keep_alive:
        if (misbehaves(t, MISCHIEF_KEEP_ALIVE))
            return;
        break;
    default:
        if (sqe->opcode == NVF_ADMIN_CROSS_CTRL_RESET && t->resets)
            cqe->result = htole64(NVF_CCR_IMMEDIATE);
        else
            cqe->status = htole16((NVME_SC_INVALID_OPCODE | NVME_SC_DNR) << 1);
    }
    send_answer(t, peer, slot, cqe);
}

static void answer_auth(struct played *t, struct peer *peer, unsigned slot,
                        const struct nvf_sqe *sqe, const struct nvf_sgl *sgl, struct nvf_cqe *cqe)
{
    uint8_t *data = answer_at(peer, slot);
    size_t len = 0;
    if (nvf_type_of(sqe) == NVF_AUTH_SEND) {
        if (misbehaves(t, MISCHIEF_AUTH_STATUS))
            cqe->status = htole16((NVME_SC_INTERNAL | NVME_SC_DNR) << 1);
        peer->message_bytes[slot] = (uint32_t)sgl->len_bytes;
        return move_data(peer, slot, sgl, IBV_WR_RDMA_READ, data, peer->mr->lkey, cqe);
    }
    memset(data, 0, 4096);
    if (nvt_auth_receive(&peer->auth, (size_t)sgl->len_bytes, data, &len))
        cqe->status = htole16((NVME_SC_INTERNAL | NVME_SC_DNR) << 1);
    if (peer->auth.state == NVT_AUTH_SUCCESS2 && misbehaves(t, MISCHIEF_AUTH_PROOF))
        data[len - 1] ^= 1;
    if (misbehaves(t, MISCHIEF_AUTH_GARBAGE))
        fill_random(t, data, 4096);
    move_data(peer, slot, sgl, IBV_WR_RDMA_WRITE, data, peer->mr->lkey, cqe);
}

static void take_message(struct peer *peer, unsigned slot)
{
    if (peer->message_bytes[slot])
        nvt_auth_send(&peer->auth, answer_at(peer, slot), peer->message_bytes[slot]);
    peer->message_bytes[slot] = 0;
}

static bool is_barred(const struct peer *peer, const struct nvf_sqe *sqe)
{
    const enum nvf_type type = nvf_type_of(sqe);
    const bool may = sqe->opcode == NVF_OPCODE &&
                     (type == NVF_CONNECT || type == NVF_AUTH_SEND || type == NVF_AUTH_RECEIVE);
    return peer->auth.policy && !peer->auth.authenticated && !may;
}

static void answer_fabrics(struct played *t, struct peer *peer, unsigned slot,
                           const struct nvf_sqe *sqe, const struct nvf_sgl *sgl,
                           struct nvf_cqe *cqe)
{
    const uint32_t offset = le32toh(sqe->cdw11);
    if (nvf_type_of(sqe) == NVF_CONNECT) {
        cqe->result = htole64(7);
        if (misbehaves(t, MISCHIEF_CONNECT_STATUS))
            cqe->status = htole16(
                (NVME_SCT_CMD_SPECIFIC << 8 | NVME_SC_CONNECT_INVALID_HOST | NVME_SC_DNR) << 1);
        if (misbehaves(t, MISCHIEF_AUTH))
            cqe->result = htole64(7 | NVF_CONNECT_ATR);
        if (misbehaves(t, MISCHIEF_CONCATENATION))
            cqe->result = htole64(7 | NVF_CONNECT_ATR | NVF_CONNECT_ASCR);
        if (t->authenticates) {
            nvt_auth_init(&peer->auth, &t->policy, NULL);
            cqe->result |= htole64(NVF_CONNECT_ATR);
        }
        return move_data(peer, slot, sgl, IBV_WR_RDMA_READ, answer_at(peer, slot), peer->mr->lkey,
                         cqe);
    }
    if (nvf_type_of(sqe) == NVF_AUTH_SEND || nvf_type_of(sqe) == NVF_AUTH_RECEIVE)
        return answer_auth(t, peer, slot, sqe, sgl, cqe);
    if (nvf_type_of(sqe) == NVF_PROPERTY_SET)
        t->cc = le32toh(sqe->cdw12);
    else if (offset == 0)
        cqe->result = htole64((DEPTH - 1) | 1ull << 24);
    else if (offset == 8)
        cqe->result = htole64(0x10400);
    else if (misbehaves(t, MISCHIEF_FATAL))
        cqe->result = htole64(2);
    else if (!misbehaves(t, MISCHIEF_NEVER_READY))
        cqe->result = htole64((t->cc & 1) | (t->cc >> 14 & 1) << 3);
    send_answer(t, peer, slot, cqe);
}

static bool is_reservation(uint8_t opcode)
{
    return opcode == nvme_cmd_resv_register || opcode == nvme_cmd_resv_report ||
           opcode == nvme_cmd_resv_acquire || opcode == nvme_cmd_resv_release;
}

/* Where its data lies on the disk; false: not within it. */
static bool place_io(struct played *t, const struct nvf_sqe *sqe, uint64_t *at, uint32_t *bytes)
{
    *at = (uint64_t)le32toh(sqe->cdw10) * PLAYED_BLOCK;
    *bytes = ((le32toh(sqe->cdw12) & 0xffff) + 1) * PLAYED_BLOCK;
    if (is_reservation(sqe->opcode)) {
        atomic_store(&t->reservation, le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32);
        *at = 0;
    }
    return *at + *bytes <= DISK;
}

static void answer_io(struct played *t, struct peer *peer, unsigned slot, const struct nvf_sqe *sqe,
                      const uint8_t *data, const struct nvf_sgl *sgl, struct nvf_cqe *cqe)
{
    const bool is_read = sqe->opcode == nvme_cmd_read || sqe->opcode == nvme_cmd_resv_report;
    uint64_t at;
    uint32_t bytes;
    if (sqe->opcode == nvme_cmd_flush)
        return send_answer(t, peer, slot, cqe);
    if (!place_io(t, sqe, &at, &bytes)) {
        cqe->status = htole16((NVME_SC_LBA_RANGE | NVME_SC_DNR) << 1);
        return send_answer(t, peer, slot, cqe);
    }
    if (sqe->opcode == nvme_cmd_write_zeroes)
        memset(t->disk + at, 0, bytes);
    else if (sgl->is_in_capsule)
        memcpy(t->disk + at, data + sgl->offset, sgl->len_bytes);
    else if (sgl->len_bytes)
        return move_data(peer, slot, sgl, is_read ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                         t->disk + at, t->disk_mr->lkey, cqe);
    send_answer(t, peer, slot, cqe);
}

static void handle_capsule(struct played *t, struct peer *peer, unsigned slot, uint32_t bytes)
{
    const uint8_t *capsule = peer->memory + (size_t)slot * CAPSULE;
    struct nvf_sqe sqe;
    struct nvf_sgl sgl;
    memcpy(&sqe, capsule, sizeof(sqe));
    struct nvf_cqe cqe = {.cid = sqe.cid};
    peer->head = (peer->head + 1) % peer->size;
    atomic_fetch_add(&t->counts[sqe.opcode], 1);
    uint16_t status = nvf_sgl_parse(&sqe, capsule + 64, bytes - 64, 4096, &sgl);
    if (is_barred(peer, &sqe))
        status = NVF_SPECIFIC(NVME_SC_AUTH_REQUIRED) | NVME_SC_DNR;
    if (status) {
        cqe.status = htole16((uint16_t)(status << 1));
        return send_answer(t, peer, slot, &cqe);
    }
    if (sqe.opcode == NVF_OPCODE)
        answer_fabrics(t, peer, slot, &sqe, &sgl, &cqe);
    else if (!peer->qid)
        answer_admin(t, peer, slot, &sqe, &sgl, &cqe);
    else
        answer_io(t, peer, slot, &sqe, capsule + 64, &sgl, &cqe);
}

/* A queue's worth at most: a host that is faster than this thread does not keep it here. */
static void poll_peer(struct played *t, struct peer *peer)
{
    struct ibv_wc wc;
    for (unsigned i = 0; i < DEPTH && ibv_poll_cq(peer->cq, 1, &wc) > 0; i++) {
        if (wc.status != IBV_WC_SUCCESS)
            continue;
        if (wc.opcode == IBV_WC_RECV)
            handle_capsule(t, peer, (unsigned)wc.wr_id, wc.byte_len);
        else if (wc.wr_id >= 2000) {
            take_message(peer, (unsigned)wc.wr_id - 2000);
            send_answer(t, peer, (unsigned)wc.wr_id - 2000, &peer->waiting[wc.wr_id - 2000]);
            if (peer->auth.state == NVT_AUTH_FAILED && misbehaves(t, MISCHIEF_AUTH_CUT))
                rdma_disconnect(peer->id);
        }
    }
}

static void free_peer(struct played *t, struct rdma_cm_id *id)
{
    for (unsigned i = 0; i < PEERS; i++) {
        struct peer *peer = t->peers[i];
        if (!peer || peer->id != id)
            continue;
        t->peers[i] = NULL;
        nvt_auth_clear(&peer->auth);
        rdma_destroy_qp(id);
        ibv_destroy_cq(peer->cq);
        ibv_dereg_mr(peer->mr);
        free(peer->memory);
        free(peer);
        rdma_destroy_id(id);
    }
}

static struct peer *make_peer(struct played *t, struct rdma_cm_id *id, const struct nvf_cm_req *req)
{
    unsigned slot = 0;
    while (slot < PEERS && t->peers[slot])
        slot++;
    struct peer *peer = slot < PEERS ? calloc(1, sizeof(*peer)) : NULL;
    if (!peer)
        return NULL;
    if (!t->pd) {
        t->pd = ibv_alloc_pd(id->verbs);
        t->disk_mr = ibv_reg_mr(t->pd, t->disk, DISK, IBV_ACCESS_LOCAL_WRITE);
    }
    const size_t bytes = (size_t)DEPTH * (CAPSULE + 4096);
    peer->id = id;
    peer->qid = le16toh(req->qid);
    peer->size = le16toh(req->host_receives);
    peer->memory = aligned_alloc(4096, bytes);
    memset(peer->memory, 0, bytes);
    peer->mr = ibv_reg_mr(t->pd, peer->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    peer->cq = ibv_create_cq(id->verbs, DEPTH * 4, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = peer->cq,
                                    .recv_cq = peer->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = DEPTH * 2,
                                            .max_recv_wr = DEPTH * 2,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    if (rdma_create_qp(id, t->pd, &attr))
        abort();
    for (unsigned i = 0; i < DEPTH; i++)
        post_receive(peer, i);
    t->peers[slot] = peer;
    return peer;
}

static void accept_peer(struct played *t, struct rdma_cm_event *event)
{
    struct nvf_cm_req req;
    struct nvf_cm_rep rep = {.controller_receives = htole16(DEPTH)};
    struct nvf_cm_rej rej = {.status = htole16(NVF_CM_RESOURCES)};
    memcpy(&req, event->param.conn.private_data, sizeof(req));
    if (misbehaves(t, MISCHIEF_REFUSE) || (req.qid && misbehaves(t, MISCHIEF_REFUSE_QUEUE))) {
        rdma_reject(event->id, &rej, sizeof(rej));
        return;
    }
    if (misbehaves(t, MISCHIEF_REFUSE_EMPTY) || !make_peer(t, event->id, &req)) {
        rdma_reject(event->id, NULL, 0);
        return;
    }
    if (misbehaves(t, MISCHIEF_FORMAT))
        rep.format = htole16(9);
    struct rdma_conn_param param = {.private_data = &rep,
                                    .private_data_len = sizeof(rep),
                                    .initiator_depth = 16,
                                    .responder_resources = 0,
                                    .rnr_retry_count = 7};
    rdma_accept(event->id, &param);
}

static void *play(void *arg)
{
    struct played *t = arg;
    struct rdma_cm_event *event;
    while (!atomic_load(&t->ends)) {
        if (!rdma_get_cm_event(t->events, &event)) {
            struct rdma_cm_id *gone = NULL;
            if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
                accept_peer(t, event);
            else if (event->event == RDMA_CM_EVENT_DISCONNECTED)
                gone = event->id;
            rdma_ack_cm_event(event);
            if (gone)
                free_peer(t, gone);
        }
        if (atomic_load(&t->mischief) == MISCHIEF_CUT_ALL && misbehaves(t, MISCHIEF_CUT_ALL))
            for (unsigned i = 0; i < PEERS; i++)
                if (t->peers[i])
                    rdma_disconnect(t->peers[i]->id);
        for (unsigned i = 0; i < PEERS; i++)
            if (t->peers[i])
                poll_peer(t, t->peers[i]);
        const struct timespec nap = {.tv_nsec = 50 * 1000};
        nanosleep(&nap, NULL);
    }
    return NULL;
}

struct played *played_start(void)
{
    struct played *t = calloc(1, sizeof(*t));
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    t->seed = 1;
    t->disk = aligned_alloc(4096, DISK);
    memset(t->disk, 0, DISK);
    t->events = rdma_create_event_channel();
    if (!t->events || rdma_create_id(t->events, &t->listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(t->listener, (struct sockaddr *)&addr) || rdma_listen(t->listener, 8))
        abort();
    fcntl(t->events->fd, F_SETFL, fcntl(t->events->fd, F_GETFL) | O_NONBLOCK);
    snprintf(t->port, sizeof(t->port), "%u", ntohs(rdma_get_src_port(t->listener)));
    if (pthread_create(&t->thread, NULL, play, t))
        abort();
    return t;
}

void played_stop(struct played *t)
{
    atomic_store(&t->ends, true);
    pthread_join(t->thread, NULL);
    for (unsigned i = 0; i < PEERS; i++)
        if (t->peers[i])
            free_peer(t, t->peers[i]->id);
    rdma_destroy_id(t->listener);
    if (t->pd) {
        ibv_dereg_mr(t->disk_mr);
        ibv_dealloc_pd(t->pd);
    }
    rdma_destroy_event_channel(t->events);
    free(t->disk);
    free(t);
}

const char *played_port(const struct played *t)
{
    return t->port;
}

void played_set_secrets(struct played *t, const char *host, const char *controller,
                        const char *host_nqn, const char *subsystem_nqn)
{
    if (nvt_auth_policy_parse(host, controller, 0, 0, &t->policy))
        abort();
    snprintf(t->policy.host_nqn, sizeof(t->policy.host_nqn), "%s", host_nqn);
    snprintf(t->policy.subsystem_nqn, sizeof(t->policy.subsystem_nqn), "%s", subsystem_nqn);
    t->authenticates = true;
}

void played_set_quiesce(struct played *t, uint16_t quiesce_ms, bool resets)
{
    t->quiesce_ms = quiesce_ms;
    t->resets = resets;
}

void played_set(struct played *t, enum mischief mischief, unsigned times)
{
    atomic_store(&t->times, times);
    atomic_store(&t->mischief, mischief);
}

uint8_t *played_disk(struct played *t)
{
    return t->disk;
}

uint64_t played_reservation(struct played *t)
{
    return atomic_load(&t->reservation);
}

unsigned played_count(struct played *t, uint8_t opcode)
{
    return atomic_load(&t->counts[opcode]);
}
