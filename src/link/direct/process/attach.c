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
#include <sys/un.h>
#include <unistd.h>

#include "base/card_memory.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd_pass.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/mappable.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/adopt/adopt.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/lane.h"
#include "link/direct/process/block.h"
#include "link/direct/process/control.h"
#include "link/direct/process/hold.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/registry.h"
#include "link/direct/process/state.h"
#include "link/direct/process/survey.h"
#include "link/engine.h"
#include "link/link.h"

#define CONNECT_RETRY_NS (5 * SW_NS_PER_MS)

#define LIFE_LOOK_NS (250 * SW_NS_PER_MS)

#define NEWCOMERS_MAX 64u
/* Segments asked for at a time: so many answers always find room in the socket. */
#define ASKED_MAX 32u

enum { MAX_FDS = 3 };

static int send_message(int socket, const struct sw_message *message, const int *fds, size_t count)
{
    return sw_fd_pass_send(socket, message, sizeof(*message), fds, count, MSG_DONTWAIT);
}

static void close_fds(int fds[MAX_FDS])
{
    for (int i = 0; i < MAX_FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Returns 1 for a message, 0 when there is none now, -1 at the end of the connection. fds are -1
 * where not sent. */
static int receive_message(int socket, struct sw_message *message, int fds[MAX_FDS])
{
    size_t count;
    ssize_t len =
        sw_fd_pass_receive(socket, message, sizeof(*message), fds, MAX_FDS, &count, MSG_DONTWAIT);
    if (len < 0)
        return len == -EAGAIN || len == -EINTR ? 0 : -1;
    for (int i = 0; i < MAX_FDS; i++)
        fds[i] = sw_fd_own(fds[i]);
    if (len != sizeof(*message) || message->version != SW_PUB_VERSION || count > MAX_FDS) {
        close_fds(fds);
        return -1;
    }
    return 1;
}

/* ---- owner's side ---- */

/* A connection that has not said yet what it is for. It proves first that it may ask. */
struct sw_newcomer {
    _Alignas(16) struct sw_proof proof;
    struct sw_newcomer *next;
    int fd;
};
static struct sw_newcomer *newcomers;

static void forget_newcomer(struct sw_newcomer *newcomer)
{
    struct sw_newcomer **at = &newcomers;
    while (*at != newcomer)
        at = &(*at)->next;
    *at = newcomer->next;
    sw_proof_end(&newcomer->proof);
    free(newcomer);
}

static void turn_down(struct sw_newcomer *newcomer)
{
    sw_engine_unwatch(newcomer->fd);
    close(newcomer->fd);
    forget_newcomer(newcomer);
}

/* Who connects and proves nothing must not use up our descriptors: the oldest goes. */
static void bound_newcomers(void)
{
    uint32_t count = 0;
    for (struct sw_newcomer *at = newcomers, *next; at; at = next) {
        next = at->next;
        if (++count > NEWCOMERS_MAX)
            turn_down(at);
    }
}

/* A connection to us: has it prove that it may ask. */
static void meet_newcomer(int fd)
{
    struct sw_newcomer *newcomer = aligned_alloc(16, sizeof(*newcomer));
    int rc = newcomer ? sw_proof_begin(&newcomer->proof, fd) : -ENOMEM;
    if (rc) {
        if (rc == -EPERM) {
            sw_counter_add(NULL, SW_PEER_REFUSED);
            sw_info("refused an attachment by another user");
        }
        close(fd);
        free(newcomer);
        return;
    }
    newcomer->proof.is_spare = sw_direct.has_packets;
    newcomer->fd = fd;
    newcomer->next = newcomers;
    newcomers = newcomer;
    sw_engine_watch(fd, newcomer, SW_WATCH_NEW);
    bound_newcomers();
}

void sw_attach_accept(void)
{
    int fd;
    while ((fd = sw_fd_own(
                accept4(sw_direct.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0) {
        if (sw_direct.off)
            close(fd);
        else
            meet_newcomer(fd);
    }
}

void sw_attach_fork_child(void)
{
    for (struct sw_newcomer *at = newcomers, *next; at; at = next) {
        next = at->next;
        close(at->fd);
        sw_proof_end(&at->proof);
        free(at);
    }
    newcomers = NULL;
}

void sw_attach_prove(struct sw_newcomer *newcomer)
{
    int rc = sw_proof_step(&newcomer->proof, newcomer->fd);
    if (rc < 0) {
        if (rc == -EACCES)
            sw_link_meet_stranger();
        turn_down(newcomer);
    } else if (rc > 0) {
        const int fd = newcomer->fd;
        forget_newcomer(newcomer);
        sw_engine_unwatch(fd);
        sw_engine_watch_fd(fd, SW_WATCH_PROVEN);
    }
}

/* First message of a new client. */
void sw_attach_greet(int fd)
{
    struct sw_message in;
    int fds[MAX_FDS];
    int got = receive_message(fd, &in, fds);
    if (got == 0)
        return;
    close_fds(fds);
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
    int handed[MAX_FDS] = {sw_nic.pub_fd, inbox->fd, sw_engine.doorbell};
    int rc = send_message(fd, &out, handed, MAX_FDS);
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
    int rc = send_message(inbox->socket, &out, &fd, fd >= 0);
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
    int rc = send_message(inbox->socket, &out, NULL, 0);
    if (rc)
        sw_warn("XRC initiator 0x%x is not told of its connection: %s", asked->initiator,
                strerror(-rc));
}

void sw_attach_from_client(struct sw_inbox *inbox)
{
    struct sw_message in;
    int fds[MAX_FDS], got;
    while ((got = receive_message(inbox->socket, &in, fds)) == 1) {
        close_fds(fds);
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
        if (inbox->socket >= 0 && send_message(inbox->socket, &out, NULL, 0))
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
        rc = send_message(peer->socket, &out, NULL, 0);
    }
    return rc >= 0;
}

/* Writes and reads one word each way through the kernel, and looks at the result through the shared
 * mapping. */
static bool probe_cma(struct sw_peer *peer, uint64_t remote_inbox, uint64_t peer_nonce)
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

static bool welcome_peer(struct sw_peer *peer, const struct sw_message *in, int fds[MAX_FDS])
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
    atomic_store(&peer->can_cma, sw_direct.modes.cma && probe_cma(peer, in->offset, in->nonce));
    sw_peer_expect_segments(
        peer); /* so that the first accesses need not wait or take the slower way */
    atomic_store(&peer->state, SW_PEER_READY);
    sw_info("peer slot %u pid %d: mapped %s, cma %s, ring %s", peer->slot, (int)peer->pid,
            peer->can_map ? "yes" : "no", atomic_load(&peer->can_cma) ? "yes" : "no",
            sw_direct.modes.ring ? "yes" : "no");
    return true;
}

static struct sw_peer_segment *find_segment(struct sw_peer *peer, uint32_t id)
{
    struct sw_peer_segment *segment = peer->segments[id % SW_SEGMENT_BUCKETS];
    while (segment && segment->id != id)
        segment = segment->next;
    return segment;
}

/* Whether a file really has these bytes: past its end a mapping has nothing but SIGBUS. */
static bool file_holds(int fd, uint64_t offset, uint64_t len_bytes)
{
    struct stat file;
    uint64_t bytes;
    if (len_bytes == 0 || offset + len_bytes < offset || fstat(fd, &file) ||
        !sw_mappable_bytes(&file, &bytes))
        return false;
    return offset + len_bytes <= ((bytes + 4095) & ~4095ull); /* the last page is there whole */
}

/* MAP_SYNC where there is such a thing: on persistent memory, what the owner's mapping of that kind
 * promises (device/memory/persist.h) must hold for the pages that we are the first to touch. */
static void *map_shared(int fd, uint64_t offset, uint64_t len_bytes, bool writable)
{
    const int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    void *base = sw_map_sparse(NULL, len_bytes, prot, MAP_SHARED_VALIDATE | MAP_SYNC, fd, offset);
    if (!base)
        base = sw_map_sparse(NULL, len_bytes, prot, MAP_SHARED, fd, offset);
    return base ? base : MAP_FAILED;
}

static void map_segment(struct sw_peer *peer, const struct sw_message *in, int fd)
{
    uint64_t page_offset = in->offset & ~4095ull;
    uint64_t len_bytes = in->len_bytes + (in->offset - page_offset);
    void *base = MAP_FAILED;
    const bool writable = fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
    if (fd >= 0 && file_holds(fd, in->offset, in->len_bytes))
        base = map_shared(fd, page_offset, len_bytes, writable);
    if (base != MAP_FAILED && sw_card_memory_is_file(fd) &&
        !sw_card_memory_add((uintptr_t)base, len_bytes)) {
        munmap(base, len_bytes);
        base = MAP_FAILED; /* its owner does it */
    }
    if (base != MAP_FAILED && !sw_fault_guard(base, len_bytes))
        sw_debug("segment %u of slot %u is not guarded: there are too many", in->id, peer->slot);
    pthread_mutex_lock(&peer->lock);
    peer->asked -= peer->asked > 0;
    struct sw_peer_segment *segment = find_segment(peer, in->id);
    if (segment && segment->state != SW_SEGMENT_MAPPED) {
        if (base != MAP_FAILED && segment->wants_writable && !writable) {
            /* Somebody wants to write to it who was not asked for when it was sent. */
            segment->state = segment->asked_again ? SW_SEGMENT_REFUSED : SW_SEGMENT_WANTED;
            segment->asked_again = true;
            atomic_store(&peer->segments_wanted, true);
        } else if (base != MAP_FAILED && segment->former && segment->len_bytes != len_bytes) {
            segment->state = SW_SEGMENT_REFUSED;
        } else if (base != MAP_FAILED) {
            segment->base = base;
            segment->writable = writable;
            segment->offset = page_offset;
            segment->len_bytes = len_bytes;
            segment->state = SW_SEGMENT_MAPPED;
            base = MAP_FAILED;
        } else {
            segment->state = SW_SEGMENT_REFUSED;
        }
    }
    pthread_mutex_unlock(&peer->lock);
    if (base != MAP_FAILED) {
        sw_card_memory_remove((uintptr_t)base);
        sw_fault_unguard(base);
        munmap(base, len_bytes);
    }
}

/* Nobody may be inside the mapping when it goes: the QPs of this peer forget what they derived from
 * it first. */
static void drop_segment(struct sw_peer *peer, uint32_t id)
{
    struct sw_peer_segment *gone = NULL;
    pthread_mutex_lock(&peer->lock);
    for (struct sw_peer_segment **at = &peer->segments[id % SW_SEGMENT_BUCKETS]; *at;
         at = &(*at)->next) {
        if ((*at)->id == id) {
            gone = *at;
            *at = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&peer->lock);
    if (!gone)
        return;
    sw_bind_forget_keys(peer);
    sw_peer_segment_free(gone);
}

void sw_attach_from_peer(struct sw_peer *peer)
{
    struct sw_message in;
    int fds[MAX_FDS], got = 0;
    if (peer->proof && !prove_peer(peer)) {
        peer_died(peer);
        return;
    }
    while (!peer->proof && (got = receive_message(peer->socket, &in, fds)) == 1) {
        bool good = true;
        if (in.type == SW_MESSAGE_WELCOME)
            good = welcome_peer(peer, &in, fds);
        else if (in.type == SW_MESSAGE_SEGMENT)
            map_segment(peer, &in, fds[0]);
        else if (in.type == SW_MESSAGE_SEGMENT_GONE)
            drop_segment(peer, in.id);
        else if (in.type == SW_MESSAGE_JOINED)
            sw_lane_joined(&in.join);
        else
            good = false;
        close_fds(fds);
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
    return send_message(peer->socket, &out, NULL, 0) == 0;
}

static void ask_segments(struct sw_peer *peer)
{
    if (!atomic_exchange(&peer->segments_wanted, false))
        return;
    pthread_mutex_lock(&peer->lock);
    for (uint32_t i = 0; i < SW_SEGMENT_BUCKETS; i++) {
        for (struct sw_peer_segment *segment = peer->segments[i]; segment;
             segment = segment->next) {
            if (segment->state != SW_SEGMENT_WANTED)
                continue;
            struct sw_message out = {
                .type = SW_MESSAGE_SEGMENT_GET, .version = SW_PUB_VERSION, .id = segment->id};
            if (peer->asked < ASKED_MAX && send_message(peer->socket, &out, NULL, 0) == 0) {
                segment->state = SW_SEGMENT_ASKED;
                peer->asked++;
            } else {
                atomic_store(&peer->segments_wanted, true); /* the peer is slow to read: later */
            }
        }
    }
    pthread_mutex_unlock(&peer->lock);
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
            ask_segments(peer);
            has_peers = true;
            if (atomic_load(&peer->segments_wanted))
                next_ns = now_ns + SW_NS_PER_MS < next_ns ? now_ns + SW_NS_PER_MS : next_ns;
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
