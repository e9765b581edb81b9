/* SPDX-License-Identifier: BSD-2-Clause */
/* See control.h. Engine thread only. */
#include "link/direct/process/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/adopt/adopt.h"
#include "device/nic/nic.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/lane.h"
#include "link/direct/process/block.h"
#include "link/direct/process/control.h"
#include "link/direct/process/hold.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/peer_segments.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/state.h"
#include "link/direct/process/survey.h"
#include "link/engine.h"
#include "link/link.h"
#include "link/names/registry.h"

#define CONNECT_RETRY_NS (5 * SW_NS_PER_MS)

#define LIFE_LOOK_NS (250 * SW_NS_PER_MS)

/* ---- owner's side ---- */

/* First message of a new client. */
void sw_attach_greet(int fd)
{
    struct sw_message in;
    int fds[SW_CONTROL_FDS];
    int got = sw_control_receive(fd, &in, fds);
    if (got == 0)
        return;
    sw_control_close_fds(fds);
    if (got > 0 && in.type == SW_MESSAGE_HOLD && sw_hold_begin(fd, &in))
        return;
    if (got > 0 && in.type == SW_MESSAGE_SURVEY) {
        sw_survey_answer(fd, &in);
        goto refuse; /* that was all */
    }
    if (got > 0 && in.type == SW_MESSAGE_CONNECTIONS) {
        sw_survey_answer_connections(fd, &in);
        goto refuse;
    }
    if (got < 0 || in.type != SW_MESSAGE_ATTACH || in.slot == 0 || in.slot > SW_SLOT_MAX ||
        in.nonce == 0)
        goto refuse;

    pthread_mutex_lock(&sw_direct.lock);
    struct sw_inbox *inbox = sw_inbox_get(in.slot);
    if (inbox && inbox->client_nonce && inbox->client_nonce != in.nonce) {
        /* The slot has a new owner: the old one is gone, whether or not we have seen it hang up. */
        atomic_store(&inbox->dead, true);
        inbox = sw_inbox_get(in.slot);
    }
    bool usable = inbox && inbox->socket < 0;
    if (usable) {
        inbox->client_nonce = in.nonce;
        __atomic_store_n(&inbox->socket, fd, __ATOMIC_RELAXED); /* has_hung_up() looks */
    }
    pthread_mutex_unlock(&sw_direct.lock);
    if (!usable)
        goto refuse;
    sw_engine_rewatch(fd, inbox, SW_WATCH_CLIENT);
    struct sw_message out = {.type = SW_MESSAGE_WELCOME,
                             .version = SW_PUB_VERSION,
                             .nonce = sw_nic.nonce,
                             .slot = sw_nic.slot,
                             .offset = (uintptr_t)inbox->base};
    int handed[SW_CONTROL_FDS] = {sw_nic.pub_fd, inbox->fd, sw_engine.doorbell};
    int rc = sw_control_send(fd, &out, handed, SW_CONTROL_FDS);
    if (rc)
        sw_warn("cannot welcome slot %u: %s", in.slot, strerror(-rc));
    return;

refuse:
    sw_engine_unwatch(fd);
    close(fd);
}

static void send_segment(struct sw_inbox *inbox, uint32_t id)
{
    struct sw_message out = {.type = SW_MESSAGE_SEGMENT, .version = SW_PUB_VERSION, .id = id};
    struct sw_segment *segment = sw_direct.modes.mapped ? sw_segment_find(id) : NULL;
    int fd = segment ? sw_segment_hand_out(segment) : -1;
    if (segment)
        sw_segment_file_range(segment, &out.offset, &out.len_bytes);
    int rc = sw_control_send(inbox->socket, &out, &fd, fd >= 0);
    if (rc)
        sw_debug("segment %u not sent to slot %u: %s", id, inbox->slot, strerror(-rc));
    if (fd >= 0)
        close(fd);
    if (segment)
        sw_adopt_put(segment);
}

static void serve_join(struct sw_inbox *inbox, const struct sw_join *asked)
{
    struct sw_message out = {.type = SW_MESSAGE_JOINED, .version = SW_PUB_VERSION, .join = *asked};
    if (sw_qpn_slot(asked->initiator) == inbox->slot)
        sw_lane_serve(&out.join);
    else
        out.join.stand_in = 0;
    int rc = sw_control_send(inbox->socket, &out, NULL, 0);
    if (rc)
        sw_warn("XRC initiator 0x%x is not told of its connection: %s", asked->initiator,
                strerror(-rc));
}

void sw_attach_from_client(struct sw_inbox *inbox)
{
    struct sw_message in;
    int fds[SW_CONTROL_FDS], got;
    while ((got = sw_control_receive(inbox->socket, &in, fds)) == 1) {
        sw_control_close_fds(fds);
        if (in.type == SW_MESSAGE_SEGMENT_GET) {
            send_segment(inbox, in.id);
        } else if (in.type == SW_MESSAGE_JOIN) {
            serve_join(inbox, &in.join);
        } else {
            got = -1;
            break;
        }
    }
    if (got < 0) {
        sw_engine_unwatch(inbox->socket);
        pthread_mutex_lock(&sw_direct.lock);
        close(inbox->socket);
        __atomic_store_n(&inbox->socket, -1, __ATOMIC_RELAXED);
        atomic_store(&inbox->dead, true);
        pthread_mutex_unlock(&sw_direct.lock);
    }
}

void sw_attach_segment_gone(uint32_t id)
{
    struct sw_message out = {.type = SW_MESSAGE_SEGMENT_GONE, .version = SW_PUB_VERSION, .id = id};
    pthread_mutex_lock(&sw_direct.lock);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next)
        if (inbox->socket >= 0 && sw_control_send(inbox->socket, &out, NULL, 0))
            sw_debug("slot %u was not told that segment %u is gone", inbox->slot, id);
    pthread_mutex_unlock(&sw_direct.lock);
}

/* ---- client's side ---- */

static void connect_peer(struct sw_peer *peer, uint64_t now_ns)
{
    int fd = sw_registry_connect(peer->slot);
    struct sw_proof *proof = malloc(sizeof(*proof));
    if (!proof || fd < 0 || sw_proof_begin(proof, fd)) {
        if (fd >= 0)
            close(fd);
        free(proof);
        atomic_store(&peer->refusals, 0);
        peer->retry_at_ns = now_ns + CONNECT_RETRY_NS;
        return;
    }
    proof->is_spare = sw_direct.has_packets;
    peer->pid = proof->pid;
    peer->proof = proof;
    peer->socket = fd;
    atomic_store(&peer->state, SW_PEER_CONNECTING);
    sw_engine_watch(fd, peer, SW_WATCH_PEER);
}

void sw_attach_end_proof(struct sw_peer *peer)
{
    if (peer->proof)
        sw_proof_end(peer->proof);
    free(peer->proof);
    peer->proof = NULL;
}

/* Asks for the peer's tables once it is proven whose they are. False: no such peer. */
static bool prove_peer(struct sw_peer *peer)
{
    int rc = sw_proof_step(peer->proof, peer->socket);
    if (rc == -EACCES) {
        sw_link_meet_stranger(); /* what it has to say comes by packets */
        atomic_fetch_add(&peer->refusals, 1);
    }
    const struct sw_message out = {.type = SW_MESSAGE_ATTACH,
                                   .version = SW_PUB_VERSION,
                                   .nonce = sw_nic.nonce,
                                   .slot = sw_nic.slot};
    if (rc > 0) {
        sw_attach_end_proof(peer);
        rc = sw_control_send(peer->socket, &out, NULL, 0);
    }
    return rc >= 0;
}

/* Writes and reads one word each way through the kernel, and looks at the result through the shared
 * mapping. */
static bool attach_probe_cma(struct sw_peer *peer, uint64_t remote_inbox, uint64_t peer_nonce)
{
    struct sw_inbox_header *header = peer->inbox;
    uint64_t sent = sw_nic.nonce ^ 0x5357, got = 0;
    struct iovec local = {&sent, sizeof(sent)};
    struct iovec remote = {
        (void *)(uintptr_t)(remote_inbox + offsetof(struct sw_inbox_header, probe_write)),
        sizeof(sent)};
    if (process_vm_writev(peer->pid, &local, 1, &remote, 1, 0) != sizeof(sent) ||
        *(volatile uint64_t *)&header->probe_write != sent)
        return false;
    local.iov_base = &got;
    remote.iov_base =
        (void *)(uintptr_t)(remote_inbox + offsetof(struct sw_inbox_header, probe_read));
    return process_vm_readv(peer->pid, &local, 1, &remote, 1, 0) == sizeof(got) &&
           got == peer_nonce;
}

bool sw_attach_has_hung_up(int fd)
{
    struct pollfd socket = {.fd = fd, .events = POLLRDHUP};
    return fd >= 0 && poll(&socket, 1, 0) == 1 && socket.revents & (POLLHUP | POLLRDHUP | POLLERR);
}

/* The socket of a peer that was ready stays open as long as anybody has the peer: they look at it.
 * One that refused or went before it answered is tried again while somebody wants it. */
static void peer_died(struct sw_peer *peer)
{
    sw_engine_unwatch(peer->socket);
    int state = SW_PEER_READY;
    if (atomic_compare_exchange_strong(&peer->state, &state, SW_PEER_DEAD) ||
        state == SW_PEER_DEAD) {
        shutdown(peer->socket, SHUT_RDWR); /* it may have been us who had enough */
        return;
    }
    sw_attach_end_proof(peer);
    close(peer->socket);
    peer->socket = -1;
    peer->retry_at_ns = sw_clock_ns() + CONNECT_RETRY_NS;
    atomic_store(&peer->state, SW_PEER_IDLE);
}

bool sw_attach_is_gone(struct sw_peer *peer)
{
    int state = SW_PEER_READY;
    if (atomic_load(&peer->state) != SW_PEER_READY ||
        !(sw_peer_has_ended(peer) || sw_attach_has_hung_up(peer->socket)))
        return false;
    atomic_compare_exchange_strong(&peer->state, &state, SW_PEER_DEAD);
    sw_engine_kick(); /* for all the others */
    return true;
}

static bool welcome_peer(struct sw_peer *peer, const struct sw_message *in, int fds[SW_CONTROL_FDS])
{
    struct stat tables, inbox;
    if (atomic_load(&peer->state) != SW_PEER_CONNECTING || fds[0] < 0 || fds[1] < 0 || fds[2] < 0 ||
        in->slot != peer->slot || fstat(fds[0], &tables) || fstat(fds[1], &inbox) ||
        tables.st_size < (off_t)SW_PUB_BYTES_MIN || !sw_inbox_blocks((uint64_t)inbox.st_size) ||
        !(fcntl(fds[2], F_GETFL) & O_NONBLOCK)) /* ringing must never wait */
        return false;
    const struct sw_pub *pub = sw_shm_map(fds[0], sizeof(struct sw_pub), false);
    void *base = sw_shm_map(fds[1], SW_INBOX_BYTES, true);
    if (!pub || !base || pub->header.magic != SW_PUB_MAGIC ||
        pub->header.version != SW_PUB_VERSION || pub->header.nonce != in->nonce) {
        sw_warn("slot %u: its tables cannot be mapped or are not ours to read", peer->slot);
        if (pub)
            munmap((void *)pub, sizeof(*pub));
        if (base)
            munmap(base, SW_INBOX_BYTES);
        return false;
    }
    peer->pub = pub;
    peer->pub_bytes = sw_pub_bytes((uint64_t)tables.st_size);
    peer->inbox = base;
    peer->inbox_blocks = sw_inbox_blocks((uint64_t)inbox.st_size);
    peer->doorbell = fds[2];
    fds[2] = -1;
    peer->can_map = sw_direct.modes.mapped; /* the tables and inbox just mapped are the proof */
    atomic_store(&peer->can_cma,
                 sw_direct.modes.cma && attach_probe_cma(peer, in->offset, in->nonce));
    sw_peer_expect_segments(
        peer); /* so that the first accesses need not wait or take the slower way */
    atomic_store(&peer->state, SW_PEER_READY);
    sw_info("peer slot %u pid %d: mapped %s, cma %s, ring %s", peer->slot, (int)peer->pid,
            peer->can_map ? "yes" : "no", atomic_load(&peer->can_cma) ? "yes" : "no",
            sw_direct.modes.ring ? "yes" : "no");
    return true;
}

/* Nobody may be inside the mapping when it goes: the QPs of this peer forget what they derived from
 * it first. */
static void drop_segment(struct sw_peer *peer, uint32_t id)
{
    struct sw_peer_segment *gone = sw_peer_segments_take_out(peer, id);
    if (!gone)
        return;
    sw_bind_forget_keys(peer);
    sw_peer_segment_free(gone);
}

void sw_attach_from_peer(struct sw_peer *peer)
{
    struct sw_message in;
    int fds[SW_CONTROL_FDS], got = 0;
    if (peer->proof && !prove_peer(peer)) {
        peer_died(peer);
        return;
    }
    while (!peer->proof && (got = sw_control_receive(peer->socket, &in, fds)) == 1) {
        bool good = true;
        if (in.type == SW_MESSAGE_WELCOME)
            good = welcome_peer(peer, &in, fds);
        else if (in.type == SW_MESSAGE_SEGMENT)
            sw_peer_segments_map(peer, &in, fds[0]);
        else if (in.type == SW_MESSAGE_SEGMENT_GONE)
            drop_segment(peer, in.id);
        else if (in.type == SW_MESSAGE_JOINED)
            sw_lane_joined(&in.join);
        else
            good = false;
        sw_control_close_fds(fds);
        if (!good) {
            got = -1;
            break;
        }
    }
    if (got < 0)
        peer_died(peer);
}

bool sw_attach_join(struct sw_peer *peer, const struct sw_join *join)
{
    const struct sw_message out = {
        .type = SW_MESSAGE_JOIN, .version = SW_PUB_VERSION, .join = *join};
    return sw_control_send(peer->socket, &out, NULL, 0) == 0;
}

/* An access that it was in ends with it, but when is not known before it hangs up: until then that
 * is not waited for, as if it was stopped there. */
static void note_end(struct sw_peer *peer)
{
    int state = SW_PEER_READY;
    atomic_compare_exchange_strong(&peer->state, &state, SW_PEER_DEAD);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next)
        if (inbox->slot == peer->slot)
            atomic_store(&inbox->stopped, true);
}

/* Whether to look after peers from time to time: not where the program waits for none of them, so a
 * passive target sleeps on. */
static bool minds_peers(uint64_t now_ns)
{
    static bool awaits; /* the engine's alone, as of asked_ns */
    static uint64_t asked_ns;
    if (!awaits || now_ns - asked_ns >= LIFE_LOOK_NS) {
        asked_ns = now_ns;
        awaits = sw_engine_is_awaited();
    }
    return awaits;
}

uint64_t sw_attach_step(uint64_t now_ns)
{
    static bool had_peers; /* in the step before this one */
    uint64_t next_ns = UINT64_MAX;
    const bool minds = had_peers && minds_peers(now_ns);
    bool has_peers = false;
    atomic_store(&sw_direct.work, false);
    pthread_mutex_lock(&sw_direct.lock);
    for (struct sw_peer *peer = sw_direct.peers; peer; peer = peer->next) {
        int state = atomic_load(&peer->state);
        if (state == SW_PEER_IDLE && atomic_load(&peer->refs)) {
            if (now_ns >= peer->retry_at_ns)
                connect_peer(peer, now_ns);
            if (atomic_load(&peer->state) == SW_PEER_IDLE && peer->retry_at_ns < next_ns)
                next_ns = peer->retry_at_ns;
        } else if (state == SW_PEER_READY && sw_peer_has_ended(peer)) {
            note_end(peer);
        } else if (state == SW_PEER_READY && !peer->self) {
            sw_peer_segments_ask(peer);
            has_peers = true;
            if (atomic_load(&peer->segments_wanted))
                next_ns = sw_min_u64(now_ns + SW_NS_PER_MS, next_ns);
        }
    }
    pthread_mutex_unlock(&sw_direct.lock);
    atomic_store_explicit(&sw_nic.unminded, has_peers && !minds, memory_order_relaxed);
    const bool is_first = has_peers && !had_peers;
    had_peers = has_peers;
    if (is_first)
        return now_ns; /* whether to mind it is asked in the next step */
    const uint64_t look_ns = minds && has_peers ? now_ns + LIFE_LOOK_NS : UINT64_MAX;
    return sw_min_u64(look_ns, next_ns);
}
