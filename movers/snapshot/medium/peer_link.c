/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection of peer: its device, its queue pair, and what the device completes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/rdma/busy.h"
#include "common/rdma/memory.h"
#include "common/time/clock.h"
#include "snapshot/medium/peer.h"

enum {
    RETRIES = 7,
    READS_MAX = 16,
    TURN = 64, /* completions of one poll */
    /* wr_ids behind those of slots. */
    QUESTION_WR = SNAP_PEER_SLOTS,
    ANSWER_WR,
    RETRY_MS = 20,
    RETRY_MS_MAX = 500,
};

/* ---- its device ---- */

bool snap_peer_register(struct snap_peer *peer, struct snap_memory *memory)
{
    if (peer->pd && !memory->registration)
        memory->registration =
            ibv_reg_mr(peer->pd, memory->data, memory->bytes, IBV_ACCESS_LOCAL_WRITE);
    return !peer->pd || memory->registration;
}

static bool peer_own_device(struct snap_peer *peer)
{
    struct ibv_context *verbs = peer->connection.id->verbs;
    if (peer->pd)
        return peer->verbs == verbs;
    peer->verbs = verbs;
    peer->pd = ibv_alloc_pd(verbs);
    peer->scratch = mover_pages(sizeof(*peer->scratch));
    if (peer->pd && peer->scratch)
        peer->scratch_mr =
            ibv_reg_mr(peer->pd, peer->scratch, sizeof(*peer->scratch), IBV_ACCESS_LOCAL_WRITE);
    bool is_fine = peer->scratch_mr;
    for (uint32_t i = 0; is_fine && i < peer->memories.count; i++)
        is_fine = snap_peer_register(peer, &peer->memories.of[i]);
    return is_fine;
}

void snap_peer_link_free(struct snap_peer *peer)
{
    if (peer->connection.events)
        mover_connection_destroy(&peer->connection);
    for (uint32_t i = 0; i < peer->memories.count; i++)
        if (peer->memories.of[i].registration)
            ibv_dereg_mr(peer->memories.of[i].registration);
    if (peer->scratch_mr)
        ibv_dereg_mr(peer->scratch_mr);
    if (peer->pd)
        ibv_dealloc_pd(peer->pd);
    free(peer->scratch);
}

/* ---- its connection ---- */

void snap_peer_connect(struct snap_peer *peer)
{
    char said[MOVER_CONNECTION_SAID];
    peer->stage = SNAP_PEER_CONNECTING;
    peer->begun_ns = mover_now_ns();
    const enum mover_event event = mover_connection_start(
        &peer->connection, peer->medium.fd, NULL,
        peer->has_from ? (struct sockaddr *)&peer->from : NULL, (struct sockaddr *)&peer->to);
    if (event == MOVER_NOTHING)
        return;
    mover_connection_say(&peer->connection, event, peer->where, said);
    snap_peer_drop(peer, said);
}

/* Ios that the device had wait again, before the others, in any order. */
static void take_slots_back(struct snap_peer *peer)
{
    struct snap_line all = {0};
    struct snap_io *io;
    for (uint32_t i = 0; i < SNAP_PEER_SLOTS; i++) {
        if (peer->slots[i])
            snap_line_add(&all, peer->slots[i]);
        peer->slots[i] = NULL;
    }
    while ((io = snap_line_take(&peer->waiting)))
        snap_line_add(&all, io);
    peer->waiting = all;
    peer->slots_busy = 0;
    peer->bytes_busy = 0;
}

void snap_peer_drop(struct snap_peer *peer, const char *why)
{
    const bool was_open = peer->stage == SNAP_PEER_OPEN;
    snprintf(peer->last_failure, sizeof(peer->last_failure), "%s", why);
    if (peer->connection.events)
        mover_connection_destroy(&peer->connection);
    take_slots_back(peer);
    peer->stage = SNAP_PEER_AWAY;
    peer->is_asked = false;
    peer->again_ns = peer->again_wait_ns = 0;
    peer->ticket = 0;
    peer->retry_wait_ns = was_open ? 0
                                   : mover_min_u64(peer->retry_wait_ns * 2 + RETRY_MS * NS_PER_MS,
                                                   RETRY_MS_MAX * NS_PER_MS);
    peer->retry_ns = mover_now_ns() + peer->retry_wait_ns;
}

static bool peer_make_queue(struct snap_peer *peer)
{
    struct mover_connection *connection = &peer->connection;
    /* Over iWARP each WRITE has a READ behind it. */
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 2 * SNAP_PEER_SLOTS + 1,
                                                  .max_recv_wr = 1,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1}};
    return peer_own_device(peer) && mover_connection_queue(connection, 2 * SNAP_PEER_SLOTS + 2) &&
           mover_queue_make_qp(&connection->queue, connection->id, peer->pd, &attr);
}

static void peer_request_connection(struct snap_peer *peer)
{
    struct ibv_device_attr attr;
    char why[128];
    if (!peer_make_queue(peer)) {
        snprintf(why, sizeof(why), "the RDMA device has no room for a queue: %s", strerror(errno));
        snap_peer_drop(peer, why);
        return;
    }
    const int depth = ibv_query_device(peer->verbs, &attr) ? 1 : attr.max_qp_init_rd_atom;
    struct rdma_conn_param param = {
        .initiator_depth = (uint8_t)(depth < READS_MAX ? depth : READS_MAX),
        .retry_count = RETRIES,
        .rnr_retry_count = RETRIES,
    };
    if (rdma_connect(peer->connection.id, &param))
        snap_peer_drop(peer, strerror(errno));
}

static bool is_reason(const struct mover_connection *connection, const uint8_t reason[4])
{
    return connection->private_bytes >= 4 && !memcmp(connection->private_data, reason, 4);
}

static void peer_rejected(struct snap_peer *peer)
{
    char why[200];
    const bool is_busy = is_reason(&peer->connection, mover_busy);
    if (is_reason(&peer->connection, mover_denied)) {
        snap_peer_fail(peer, -EACCES, "no permission: the rules of %s let nobody in from here",
                       peer->where);
        return;
    }
    snprintf(why, sizeof(why),
             is_busy ? "there is no place left at %s"
                     : "nobody serves at %s; there: sidewire snapshot serve",
             peer->where);
    snap_peer_drop(peer, why);
}

static void take_connection_event(struct snap_peer *peer, enum mover_event event)
{
    char said[MOVER_CONNECTION_SAID];
    if (event == MOVER_ROUTED) {
        peer_request_connection(peer);
    } else if (event == MOVER_UP) {
        peer->stage = SNAP_PEER_OPENING;
        peer->begun_ns = mover_now_ns();
    } else if (event == MOVER_REJECTED) {
        peer_rejected(peer);
    } else {
        mover_connection_say(&peer->connection, event, peer->where, said);
        snap_peer_drop(peer, said);
    }
}

/* ---- its queue ---- */

static struct ibv_mr *registration_of(struct snap_peer *peer, const struct snap_io *io)
{
    struct snap_memory *memory = snap_memories_find(&peer->memories, io->data, io->bytes);
    return memory ? memory->registration : NULL;
}

/* Over iWARP a WRITE is complete when TCP has it. A READ of nothing behind it is answered once its
 * bytes are in place (RFC 5040 s5.5), and needs no right to read. */
static bool post_io(struct snap_peer *peer, const struct snap_io *io, uint32_t slot)
{
    const bool is_write = io->kind == SNAP_IO_WRITE;
    const bool has_proof = is_write && peer->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    struct ibv_send_wr *bad,
        proof = {.wr_id = slot, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_sge sge = {
        .addr = (uintptr_t)io->data, .length = io->bytes, .lkey = registration_of(peer, io)->lkey};
    struct ibv_send_wr wr = {
        .wr_id = slot,
        .next = has_proof ? &proof : NULL,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
        .send_flags = has_proof ? 0 : IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = peer->address + io->offset, .rkey = peer->key}};
    return !ibv_post_send(peer->connection.id->qp, &wr, &bad);
}

void snap_peer_push(struct snap_peer *peer)
{
    while (peer->stage == SNAP_PEER_OPEN && peer->waiting.first &&
           peer->slots_busy < SNAP_PEER_SLOTS && peer->bytes_busy < SNAP_PEER_WINDOW_BYTES) {
        uint32_t slot = 0;
        while (peer->slots[slot])
            slot++;
        struct snap_io *io = snap_line_take(&peer->waiting);
        peer->slots[slot] = io;
        peer->slots_busy++;
        peer->bytes_busy += io->bytes;
        if (!post_io(peer, io, slot))
            snap_peer_drop(peer, "the RDMA device takes no request");
    }
}

void snap_peer_send(struct snap_peer *peer, size_t bytes)
{
    struct ibv_qp *qp = peer->connection.id->qp;
    peer->is_asked = true;
    if (!mover_post_receive(qp, ANSWER_WR, peer->scratch->answer, SNAP_WIRE_MESSAGE_MAX,
                            peer->scratch_mr->lkey) ||
        !mover_post_send(qp, QUESTION_WR, peer->scratch->question, (uint32_t)bytes,
                         peer->scratch_mr->lkey, IBV_SEND_SIGNALED))
        snap_peer_drop(peer, "the RDMA device takes no request");
}

static void peer_end_slot(struct snap_peer *peer, uint64_t slot)
{
    struct snap_io *io = peer->slots[slot];
    peer->slots[slot] = NULL;
    peer->slots_busy--;
    peer->bytes_busy -= io->bytes;
    snap_ended_add(&peer->ended, io, 0);
}

static void take_completion(struct snap_peer *peer, const struct ibv_wc *wc)
{
    char why[128];
    if (wc->status) {
        snprintf(why, sizeof(why), "the connection has failed: %s", ibv_wc_status_str(wc->status));
        snap_peer_drop(peer, why);
        return;
    }
    if (wc->wr_id < SNAP_PEER_SLOTS)
        peer_end_slot(peer, wc->wr_id);
    peer->progress_ns = mover_now_ns();
    if (wc->wr_id == ANSWER_WR)
        snap_peer_answered(peer, wc->byte_len);
}

void snap_peer_take_events(struct snap_peer *peer)
{
    struct ibv_wc wc;
    enum mover_event event;
    if (!peer->connection.events)
        return;
    for (int i = 0; i < TURN && mover_queue_poll(&peer->connection.queue, 1, &wc) > 0; i++)
        take_completion(peer, &wc);
    while (peer->connection.events &&
           (event = mover_connection_next(&peer->connection)) != MOVER_NOTHING)
        take_connection_event(peer, event);
}
