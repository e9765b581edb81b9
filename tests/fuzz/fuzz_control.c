/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The other end of a control socket may send any message with any descriptors: as a client of ours,
 * or as the owner whose client we are; and before that, to be let in. Afterwards no descriptor may
 * be left open, and all memory that was mapped must be there.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/death.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/control.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/state.h"
#include "link/engine.h"
#include "link_harness.h"

enum { MESSAGES_MAX = 24, FDS_MAX = 6, PEER_SLOT = 300 };

static int file_of(uint64_t len_bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    harness_needs(fd >= 0 && ftruncate(fd, (off_t)len_bytes) == 0);
    return fd;
}

static int tables(uint64_t nonce)
{
    const struct sw_pub_header header = {
        .magic = SW_PUB_MAGIC, .version = SW_PUB_VERSION, .nonce = nonce};
    int fd = file_of(sizeof(struct sw_pub));
    harness_needs(pwrite(fd, &header, sizeof(header), 0) == sizeof(header));
    return fd;
}

static int descriptor(uint8_t kind, uint64_t nonce)
{
    switch (kind % 9) {
    case 0:
        return tables(nonce);
    case 1:
        return file_of(SW_INBOX_BYTES);
    case 2:
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    case 3:
        return eventfd(0, EFD_CLOEXEC);
    case 4:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 5:
        return file_of(0);
    case 6:
        return file_of(4096);
    case 7:
        return file_of(65536);
    default:
        return file_of(SW_PUB_BYTES_MIN - 1);
    }
}

static struct sw_message make_message(struct feed *feed)
{
    const uint64_t nonces[] = {77, 0};
    const uint64_t slots[] = {PEER_SLOT, 0, SW_SLOT_MAX, sw_nic.slot};
    const uint64_t offsets[] = {0, 4096, 65536, UINT64_MAX};
    struct sw_message message = {.type = feed_u8(feed), .version = SW_PUB_VERSION};
    if (message.type > 200)
        message.version++;
    message.type %= 8;
    message.nonce = feed_value(feed, nonces, 2);
    message.slot = (uint32_t)feed_value(feed, slots, 4);
    message.id = feed_u8(feed) % 8;
    message.offset = feed_value(feed, offsets, 4);
    message.len_bytes = feed_value(feed, offsets, 4);
    return message;
}

static void say(struct feed *feed, int fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    char bytes[sizeof(struct sw_message) + 8] = {0};
    int fds[FDS_MAX];
    struct sw_message message = make_message(feed);
    memcpy(bytes, &message, sizeof(message));
    uint8_t size = feed_u8(feed);
    struct iovec iov = {bytes, size < 240 ? sizeof(message) : size % sizeof(bytes)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    uint8_t count = feed_u8(feed);
    count = count < 128 ? 3 : count % (FDS_MAX + 1);
    for (uint8_t i = 0; i < count; i++) {
        uint8_t kind = feed_u8(feed);
        fds[i] = descriptor(kind < 128 ? i : kind, message.nonce);
    }
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (uint8_t i = 0; i < count; i++)
        close(fds[i]);
}

static void drain(int fd)
{
    char bytes[256];
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
}

static struct sw_inbox *inbox_on(int socket)
{
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next)
        if (inbox->socket == socket && !atomic_load(&inbox->dead))
            return inbox;
    return NULL;
}

static void as_client(struct feed *feed, const int pair[2])
{
    sw_engine_watch_fd(pair[0], SW_WATCH_PROVEN);
    say(feed, pair[1]);
    sw_attach_greet(pair[0]);
    for (int i = 0; i < MESSAGES_MAX && feed->left; i++) {
        struct sw_inbox *inbox = inbox_on(pair[0]);
        if (!inbox)
            break; /* refused: closed */
        say(feed, pair[1]);
        sw_attach_from_client(inbox);
        drain(pair[1]);
    }
    struct sw_inbox *inbox = inbox_on(pair[0]);
    shutdown(pair[1], SHUT_RDWR);
    if (inbox)
        sw_attach_from_client(inbox);
    harness_needs(!inbox_on(pair[0]));
}

/* What a requester would do with the segments: look at both ends of what it was promised. */
static void touch(struct feed *feed, struct sw_peer *peer)
{
    const uint64_t values[] = {0, 4096, 65536, 65535, 1};
    uint32_t id = feed_u8(feed) % 8;
    uint64_t offset = feed_value(feed, values, 5), len = feed_value(feed, values, 5);
    bool refused;
    volatile uint8_t *at = sw_peer_segment_at(peer, id, offset, len, true, &refused);
    if (at && len) {
        at[0]++;
        at[len - 1]++;
    }
}

/* It has hung up, or was hung up on: a peer that was ready keeps its socket until it is freed. */
static bool is_over(struct sw_peer *peer)
{
    return peer->socket < 0 || atomic_load(&peer->state) == SW_PEER_DEAD;
}

static void as_owner(struct feed *feed, const int pair[2])
{
    struct sw_peer *peer = sw_peer_get(PEER_SLOT);
    harness_needs(peer != NULL);
    peer->socket = pair[0];
    peer->pid = getpid();
    atomic_store(&peer->state, SW_PEER_CONNECTING);
    sw_engine_watch(pair[0], peer, SW_WATCH_PEER);
    for (int i = 0; i < MESSAGES_MAX && feed->left && !is_over(peer); i++) {
        say(feed, pair[1]);
        sw_attach_from_peer(peer);
        touch(feed, peer);
        if (atomic_load(&peer->state) == SW_PEER_READY)
            sw_peer_ring(peer);
    }
    shutdown(pair[1], SHUT_RDWR);
    if (!is_over(peer))
        sw_attach_from_peer(peer);
    harness_needs(is_over(peer));
    atomic_store(&peer->state, SW_PEER_DEAD);
    sw_peer_put(peer);
}

/* As proof.c has it. */
struct proof_message {
    uint64_t magic;
    uint32_t kind;
    int32_t file;
    uint64_t address, dev, ino;
    uint8_t nonce[SW_PROOF_NONCE_BYTES];
};

/* Says anything before something is proven. The proof holds only if what was sent last shows that
 * the sender has looked in, and we have looked at a file of this process, too. */
static void as_prover(struct feed *feed, const int pair[2])
{
    struct sw_proof proof;
    struct proof_message challenge;
    int rc = sw_proof_begin(&proof, pair[0]);
    harness_needs(rc == 0);
    harness_needs(recv(pair[1], &challenge, sizeof(challenge), 0) == sizeof(challenge));
    for (int i = 0; i < MESSAGES_MAX && feed->left && rc == 0; i++) {
        uint8_t what = feed_u8(feed), bytes[sizeof(challenge) + 8] = {0};
        struct proof_message out = {.magic = challenge.magic, .kind = what % 3};
        const uint64_t files[] = {(uint64_t)challenge.file, 0, UINT64_MAX};
        bool is_true = out.kind == 1 && what & 8;
        out.file = (int32_t)feed_value(feed, files, 3);
        out.dev = what & 4 ? challenge.dev : feed_u8(feed);
        out.ino = challenge.ino;
        out.address = what & 16 ? challenge.address : feed_u8(feed);
        if (is_true)
            memcpy(out.nonce, proof.nonce, sizeof(out.nonce));
        if (what > 250)
            out.magic++;
        memcpy(bytes, &out, sizeof(out));
        uint8_t size = feed_u8(feed);
        size_t len = size < 240 ? sizeof(out) : size % sizeof(bytes);
        rc = send(pair[1], bytes, len, MSG_NOSIGNAL) < 0 ? -1 : sw_proof_step(&proof, pair[0]);
        harness_needs(rc != 1 || (is_true && proof.looked_in && len == sizeof(out)));
        drain(pair[1]);
    }
    sw_proof_end(&proof);
    close(pair[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    int pair[2];
    harness_start();
    int lowest = dup(0);
    close(lowest);
    harness_needs(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    uint8_t role = feed_u8(&feed);
    if (role >= 192)
        as_prover(&feed, pair);
    else if (role & 1)
        as_client(&feed, pair);
    else
        as_owner(&feed, pair);
    close(pair[1]);
    sw_bind_reap(sw_clock_ns()); /* frees what the dead ones left */
    int now = dup(0);
    close(now);
    harness_needs(now == lowest);
    return 0;
}
