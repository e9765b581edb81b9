/* SPDX-License-Identifier: BSD-2-Clause */
/* The control protocol, with each of its two ends played by the test against the engine of this
 * very process. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/nic/netdev.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/registry.h"
#include "link/direct/process/state.h"
#include "link/direct/process/survey.h"
#include "link/direct/send/requester.h"
#include "link_rig.h"

enum { ATTACH = 1, WELCOME, SEGMENT_GET, SEGMENT, SEGMENT_GONE };
enum { FDS = 4 };

/* Of the process that is played; nobody else has it meanwhile. */
static uint32_t played_slot;

/* As control.h has it; the size is part of the protocol. */
struct message {
    uint32_t type;
    uint32_t version;
    uint64_t nonce;
    uint32_t slot;
    uint32_t id;
    uint64_t offset;
    uint64_t len_bytes;
};

static int count_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void wait_fds(int count)
{
    for (int i = 0; i < 2000 && count_fds() != count; i++)
        usleep(1000);
    assert_int_equal(count_fds(), count);
}

static void send_bytes(int fd, const void *bytes, size_t len, const int *fds, int count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec iov = {(void *)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, (size_t)count * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

/* Waits for a message; its length, 0 when the other end hung up. */
static ssize_t receive(int fd, struct message *out, int fds[FDS])
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS * sizeof(int))];
    struct iovec iov = {out, sizeof(*out)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < FDS; i++)
        fds[i] = -1;
    assert_int_equal(poll(&ready, 1, 5000), 1);
    ssize_t len = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    struct cmsghdr *cmsg = len > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg)
        memcpy(fds, CMSG_DATA(cmsg), cmsg->cmsg_len - CMSG_LEN(0));
    return len < 0 && errno == ECONNRESET ? 0 : len;
}

static void hangs_up(int fd)
{
    struct message in;
    int fds[FDS];
    assert_int_equal(receive(fd, &in, fds), 0);
    close(fd);
}

static void close_all(const int fds[FDS])
{
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int claim_slot(void)
{
    int listener;
    assert_int_equal(sw_registry_claim(&listener, &played_slot), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0); /* blocking */
    return listener;
}

/* What both ends do first (test_proof.c): the pid is this process's own. */
static void prove(int fd)
{
    pid_t pid = 0;
    assert_int_equal(sw_proof_run(fd, 5000, &pid), 0);
    assert_int_equal(pid, getpid());
}

/* ---- the test is the client ---- */

static int client_listener;

static int client_down(void **state)
{
    close(client_listener);
    rig_close(*state);
    free(*state);
    return 0;
}

static int dial(void)
{
    int fd = sw_registry_connect(sw_nic.slot);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* blocking */
    prove(fd);
    return fd;
}

static struct message attach_message(uint64_t nonce)
{
    return (struct message){
        .type = ATTACH, .version = SW_PUB_VERSION, .nonce = nonce, .slot = played_slot};
}

static int attach(uint64_t nonce, struct message *in, int fds[FDS])
{
    int fd = dial();
    struct message out = attach_message(nonce);
    send_bytes(fd, &out, sizeof(out), NULL, 0);
    assert_int_equal(receive(fd, in, fds), sizeof(*in));
    return fd;
}

/* Waits until the engine is up and has let go of all who called before: descriptors can be counted.
 */
static void settle(void)
{
    struct message bad = {0};
    int fd = dial();
    send_bytes(fd, &bad, sizeof(bad), NULL, 0);
    hangs_up(fd);
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&sw_direct.lock);
        bool none = !sw_direct.inboxes;
        pthread_mutex_unlock(&sw_direct.lock);
        if (none)
            return;
        usleep(1000);
    }
    fail_msg("the engine keeps the inbox of a client that is gone");
}

static int client_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig_open(rig);
    client_listener = claim_slot();
    settle();
    *state = rig;
    return 0;
}

static void sw_attach_greet__welcomes_with_three_descriptors(void **state)
{
    (void)state;
    struct message in;
    struct stat info;
    int fds[FDS], before = count_fds();
    int fd = attach(101, &in, fds);
    assert_int_equal(in.type, WELCOME);
    assert_int_equal(in.version, SW_PUB_VERSION);
    assert_int_equal(in.nonce, sw_nic.nonce);
    assert_int_equal(in.slot, sw_nic.slot);
    assert_int_equal(fds[3], -1);
    assert_int_equal(fstat(fds[0], &info), 0);
    assert_true(info.st_size >= (off_t)sizeof(struct sw_pub));
    assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fds[0], 0), MAP_FAILED);
    assert_int_equal(fstat(fds[1], &info), 0);
    assert_true(info.st_size >= (off_t)SW_INBOX_BYTES);
    const struct sw_inbox_header *header =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    assert_int_equal(header->probe_read, sw_nic.nonce);
    assert_int_not_equal(fcntl(fds[2], F_GETFL) & O_NONBLOCK, 0);
    munmap((void *)header, 4096);
    close_all(fds);
    close(fd);
    wait_fds(before); /* when the client is gone, so is its inbox */
}

static void sw_attach_greet__malformed(void **state)
{
    (void)state;
    int before = count_fds();
    const int five[] = {0, 0, 0, 0, 0};
    struct message good = attach_message(102), bad[7];
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].version++;
    bad[1].type = WELCOME;
    bad[2].type = SEGMENT_GET;
    bad[3].type = 0;
    bad[4].slot = 0;
    bad[5].slot = SW_SLOT_MAX + 1;
    bad[6].nonce = 0;
    for (int i = 0; i < 7; i++) {
        int fd = dial();
        send_bytes(fd, &bad[i], sizeof(bad[i]), &sw_nic.pub_fd, 1);
        hangs_up(fd);
    }
    char larger[sizeof(good) + 8];
    memcpy(larger, &good, sizeof(good));
    static const size_t sizes[] = {1, sizeof(good) - 1, sizeof(good) + 1, sizeof(larger)};
    for (int i = 0; i < 4; i++) {
        int fd = dial();
        send_bytes(fd, larger, sizes[i], &sw_nic.pub_fd, 1);
        hangs_up(fd);
    }
    for (int count = 4; count <= 5; count++) { /* one too many even if the kernel delivers it */
        int fd = dial();
        send_bytes(fd, &good, sizeof(good), five, count);
        hangs_up(fd);
    }
    close(dial()); /* says nothing at all */
    settle();      /* after it in the queue of callers */
    wait_fds(before);
}

/* A stranger to a device asks what was counted on it; one that is not known has no numbers. */
static void sw_survey_answer__is_the_end(void **state)
{
    struct rig *rig = *state;
    struct sw_netdev_info info;
    struct sw_survey_answer answer;
    int before = count_fds();
    sw_netdev_read(rig->ctx->netdev, &info);
    sw_counter_add(rig->ctx->netdev, SW_RX_DROP_QKEY);
    for (int known = 0; known < 2; known++) {
        struct message out = {.type = SW_MESSAGE_SURVEY,
                              .version = SW_PUB_VERSION,
                              .id = known ? info.ifindex : 4711};
        int fd = dial();
        send_bytes(fd, &out, sizeof(out), NULL, 0);
        assert_int_equal(recv(fd, &answer, sizeof(answer), 0), known ? sizeof(answer) : 0);
        if (known) {
            assert_memory_equal(&answer.head, &out, sizeof(out));
            assert_int_equal(answer.counts.counters[SW_RX_DROP_QKEY],
                             sw_counter_read(rig->ctx->netdev, SW_RX_DROP_QKEY));
            assert_int_equal(recv(fd, &answer, sizeof(answer), 0), 0);
        }
        close(fd);
    }
    wait_fds(before);
}

static void sw_attach_greet__once_for_each_incarnation(void **state)
{
    (void)state;
    struct message in;
    int fds[FDS], before = count_fds();
    int first = attach(103, &in, fds);
    close_all(fds);
    int again = dial();
    struct message out = attach_message(103);
    send_bytes(again, &out, sizeof(out), NULL, 0);
    hangs_up(again);
    /* The slot's next owner: what the one before still does goes nowhere. */
    struct sw_inbox *old = NULL;
    pthread_mutex_lock(&sw_direct.lock);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next)
        if (inbox->slot == played_slot && inbox->client_nonce == 103)
            old = inbox;
    assert_non_null(old);
    old->users++; /* keep it, to look at it */
    pthread_mutex_unlock(&sw_direct.lock);
    int next = attach(104, &in, fds);
    close_all(fds);
    assert_true(atomic_load(&old->dead));
    pthread_mutex_lock(&sw_direct.lock);
    old->users--;
    pthread_mutex_unlock(&sw_direct.lock);
    close(first);
    close(next);
    wait_fds(before);
}

static void sw_attach_from_client__segments(void **state)
{
    struct rig *rig = *state;
    struct message in, out = {.type = SEGMENT_GET, .version = SW_PUB_VERSION, .id = 0x7fffffff};
    int fds[FDS], fd = attach(105, &in, fds);
    close_all(fds);
    send_bytes(fd, &out, sizeof(out), NULL, 0); /* there is no such segment */
    assert_int_equal(receive(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SEGMENT);
    assert_int_equal(in.id, 0x7fffffff);
    assert_int_equal(in.len_bytes, 0);
    assert_int_equal(fds[0], -1);

    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(rig->mr))];
    if (entry->extent_count == 0) {
        close(fd);
        skip(); /* no adoption on this machine */
    }
    out.id = entry->extents[0].segment;
    send_bytes(fd, &out, sizeof(out), NULL, 0);
    assert_int_equal(receive(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SEGMENT);
    assert_int_equal(in.id, out.id);
    assert_true(fds[0] >= 0);
    assert_true(in.offset <= entry->extents[0].file_offset);
    assert_true(in.offset + in.len_bytes >=
                entry->extents[0].file_offset + entry->extents[0].len_bytes);
    uint8_t *seen =
        mmap(NULL, in.len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], (off_t)in.offset);
    assert_ptr_not_equal(seen, MAP_FAILED);
    seen[entry->extents[0].file_offset - in.offset] = 'S';
    assert_int_equal(*(uint8_t *)(uintptr_t)entry->extents[0].va, 'S');
    munmap(seen, in.len_bytes);
    close_all(fds);

    sw_attach_segment_gone(out.id);
    assert_int_equal(receive(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SEGMENT_GONE);
    assert_int_equal(in.id, out.id);
    close(fd);
}

static void sw_attach_from_client__malformed(void **state)
{
    (void)state;
    struct message in;
    static const uint32_t types[] = {0, ATTACH, WELCOME, SEGMENT, SEGMENT_GONE, 6, UINT32_MAX};
    int fds[FDS], before = count_fds();
    for (uint64_t i = 0; i < 7; i++) {
        struct message out = {.type = types[i], .version = SW_PUB_VERSION, .id = 1};
        int fd = attach(200 + i, &in, fds);
        close_all(fds);
        send_bytes(fd, &out, sizeof(out), NULL, 0);
        hangs_up(fd);
    }
    int fd = attach(300, &in, fds);
    close_all(fds);
    struct message out = {.type = SEGMENT_GET, .version = SW_PUB_VERSION};
    send_bytes(fd, &out, 4, NULL, 0);
    hangs_up(fd);
    wait_fds(before);
}

/* ---- the test is the owner ---- */

struct owner {
    struct rig rig;
    int listener, before;
    struct sw_peer *peer;
};

/* Everything an owner hands out, to be spoiled. */
struct welcome {
    struct message message;
    int fds[FDS];
    int count;
    struct sw_pub_header *header;
};

static int owner_up(void **state)
{
    struct owner *owner = calloc(1, sizeof(*owner));
    rig_open(&owner->rig);
    settle();
    owner->before = count_fds();
    owner->listener = claim_slot();
    owner->peer = sw_peer_get(played_slot);
    *state = owner;
    return 0;
}

static int owner_down(void **state)
{
    struct owner *owner = *state;
    close(owner->listener);
    sw_peer_put(owner->peer);
    wait_fds(owner->before); /* nothing of what was sent is left open */
    rig_close(&owner->rig);
    free(owner);
    return 0;
}

/* The engine calls; returns its connection. */
static int answer_call(struct owner *owner)
{
    struct message in;
    int fds[FDS], fd = accept4(owner->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    prove(fd);
    assert_int_equal(receive(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, ATTACH);
    assert_int_equal(in.version, SW_PUB_VERSION);
    assert_int_equal(in.slot, sw_nic.slot);
    assert_int_equal(in.nonce, sw_nic.nonce);
    close_all(fds);
    return fd;
}

static int file_of(uint64_t len_bytes)
{
    int fd = memfd_create("owner", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)len_bytes), 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    return fd;
}

static struct welcome new_welcome(void)
{
    struct welcome w = {
        .message = {.type = WELCOME, .version = SW_PUB_VERSION, .nonce = 4242, .slot = played_slot},
        .fds = {file_of(sizeof(struct sw_pub)), file_of(SW_INBOX_BYTES),
                eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), -1},
        .count = 3,
    };
    w.header = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, w.fds[0], 0);
    assert_ptr_not_equal(w.header, MAP_FAILED);
    w.header->magic = SW_PUB_MAGIC;
    w.header->version = SW_PUB_VERSION;
    w.header->nonce = 4242;
    return w;
}

static void say(int fd, struct welcome *w)
{
    send_bytes(fd, &w->message, sizeof(w->message), w->fds, w->count);
    munmap(w->header, 4096);
    close_all(w->fds);
}

static void wait_peer(struct owner *owner, int state)
{
    for (int i = 0; i < 5000 && atomic_load(&owner->peer->state) != state; i++)
        usleep(1000);
    assert_int_equal(atomic_load(&owner->peer->state), state);
}

static int make_ready(struct owner *owner)
{
    struct welcome w = new_welcome();
    int fd = answer_call(owner);
    say(fd, &w);
    wait_peer(owner, SW_PEER_READY);
    return fd;
}

static void sw_attach_from_peer__welcome(void **state)
{
    struct owner *owner = *state;
    int fd = make_ready(owner);
    assert_true(owner->peer->can_map);
    assert_int_equal(owner->peer->pid, getpid());
    assert_int_equal(owner->peer->pub->header.nonce, 4242);
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void replace(int *fd, int with)
{
    close(*fd);
    *fd = with;
}

static void spoil(struct welcome *w, int how)
{
    int old = w->fds[2];
    switch (how) {
    case 0:
    case 1:
    case 2:
        w->count = how; /* descriptors are missing */
        break;
    case 3:
        replace(&w->fds[0], file_of(SW_PUB_BYTES_MIN - 1));
        break;
    case 4:
        replace(&w->fds[1], file_of(SW_INBOX_BYTES_MIN - 1));
        break;
    case 5:
        w->fds[2] = eventfd(0, EFD_CLOEXEC); /* ringing could block */
        close(old);
        break;
    case 6:
        w->header->magic++;
        break;
    case 7:
        w->header->version++;
        break;
    case 8:
        w->header->nonce++;
        break;
    case 9:
        w->message.slot++;
        break;
    case 10:
        w->message.version++;
        break;
    case 11:
        w->message.type = SEGMENT_GET;
        break;
    case 12:
        w->fds[3] = dup(0); /* one too many */
        w->count = 4;
        break;
    default:
        replace(&w->fds[0], open("/dev/null", O_RDWR | O_CLOEXEC));
        break;
    }
}

/* Each time the engine hangs up, closes what it got, and calls again later. */
static void sw_attach_from_peer__welcome_malformed(void **state)
{
    struct owner *owner = *state;
    for (int how = 0; how <= 13; how++) {
        struct welcome w = new_welcome();
        int fd = answer_call(owner);
        spoil(&w, how);
        say(fd, &w);
        hangs_up(fd);
        assert_int_not_equal(atomic_load(&owner->peer->state), SW_PEER_READY);
    }
    int fd = make_ready(owner); /* none of it did harm */
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void sw_attach_from_peer__wrong_sizes(void **state)
{
    struct owner *owner = *state;
    char bytes[sizeof(struct message) + 1] = {0};
    for (size_t len = 1; len <= sizeof(bytes); len += len == 1 ? sizeof(bytes) - 3 : 1) {
        if (len == sizeof(struct message))
            continue;
        int fd = answer_call(owner);
        send_bytes(fd, bytes, len, NULL, 0);
        hangs_up(fd);
    }
    int fd = make_ready(owner);
    send_bytes(fd, bytes, 1, NULL, 0);
    hangs_up(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void sw_attach_from_peer__welcome_twice(void **state)
{
    struct owner *owner = *state;
    int fd = make_ready(owner);
    struct welcome w = new_welcome();
    say(fd, &w);
    hangs_up(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void say_segment(int fd, uint32_t id, uint64_t offset, uint64_t len_bytes, int file)
{
    struct message out = {.type = SEGMENT,
                          .version = SW_PUB_VERSION,
                          .id = id,
                          .offset = offset,
                          .len_bytes = len_bytes};
    send_bytes(fd, &out, sizeof(out), &file, file >= 0);
    if (file >= 0)
        close(file);
}

/* Asks for a segment until the engine has an answer; NULL when it was refused. */
static uint8_t *segment_at(struct owner *owner, uint32_t id, uint64_t offset, uint64_t len)
{
    bool refused = false;
    uint8_t *at = NULL;
    for (int i = 0; i < 5000 && !at && !refused; i++) {
        at = sw_peer_segment_at(owner->peer, id, offset, len, true, &refused);
        usleep(1000);
    }
    assert_true(at || refused);
    return at;
}

static void asked_for(int fd, uint32_t id)
{
    struct message in;
    int fds[FDS];
    assert_int_equal(receive(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SEGMENT_GET);
    assert_int_equal(in.id, id);
}

/* An owner whose socket is full of answers has no room for the next: it would be lost. */
static void sw_attach_step__asks_for_few_segments_at_a_time(void **state)
{
    enum { SEGMENTS = 100, AT_ONCE = 32 };
    struct owner *owner = *state;
    struct message in;
    int fds[FDS], fd = make_ready(owner);
    bool refused;
    for (uint32_t id = 1; id <= SEGMENTS; id++)
        assert_null(sw_peer_segment_at(owner->peer, id, 0, 4, true, &refused));
    for (uint32_t got = 0; got < SEGMENTS; got++) {
        pthread_mutex_lock(&owner->peer->lock);
        assert_true(owner->peer->asked <= AT_ONCE);
        pthread_mutex_unlock(&owner->peer->lock);
        assert_int_equal(receive(fd, &in, fds), sizeof(in));
        assert_int_equal(in.type, SEGMENT_GET);
        if (got + 1 >= AT_ONCE) /* now it waits for an answer */
            say_segment(fd, in.id, 0, 0, -1);
    }
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void sw_attach_from_peer__segment(void **state)
{
    struct owner *owner = *state;
    bool refused;
    int fd = make_ready(owner), file = file_of(0x8000);
    assert_int_equal(pwrite(file, "here", 4, 0x3010), 4);
    assert_null(sw_peer_segment_at(owner->peer, 9, 0x3010, 4, true, &refused));
    assert_false(refused);
    asked_for(fd, 9);
    say_segment(fd, 9, 0x3000, 0x5000, file);
    uint8_t *at = segment_at(owner, 9, 0x3010, 4);
    assert_memory_equal(at, "here", 4);
    assert_null(segment_at(owner, 9, 0x2fff, 2)); /* before and after what was handed out */
    assert_null(segment_at(owner, 9, 0x7ffe, 3));
    assert_non_null(segment_at(owner, 9, 0x7ffe, 2));
    assert_null(segment_at(owner, 9, UINT64_MAX, 2));
    assert_null(segment_at(owner, 9, 0x3000, UINT64_MAX));
    struct message gone = {.type = SEGMENT_GONE, .version = SW_PUB_VERSION, .id = 9};
    send_bytes(fd, &gone, sizeof(gone), NULL, 0);
    for (int i = 0; i < 5000; i++) { /* then it is asked for again */
        if (!sw_peer_segment_at(owner->peer, 9, 0x3010, 4, true, &refused))
            break;
        usleep(1000);
    }
    asked_for(fd, 9);
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

/* What the peer has registered is asked for at once, not only when it is needed. */
static void sw_attach_from_peer__segments_expected(void **state)
{
    struct owner *owner = *state;
    struct welcome w = new_welcome();
    struct sw_pub *pub = mmap(NULL, sizeof(*pub), PROT_READ | PROT_WRITE, MAP_SHARED, w.fds[0], 0);
    assert_ptr_not_equal(pub, MAP_FAILED);
    atomic_store(&pub->header.mr_last, 2);
    pub->mrs[2] = (struct sw_pub_mr){
        .key_word = 1ull << 32 | 2 << 8 | 1, .handed = SW_HANDED_OUT_WRITE, .extent_count = 2};
    pub->mrs[2].extents[0].segment = 31;
    pub->mrs[2].extents[1].segment = 32;
    pub->mrs[2].extents[2].segment = 33; /* not counted */
    pub->mrs[1].extent_count = 1;        /* not valid any more */
    pub->mrs[1].extents[0].segment = 34;
    /* The newest wraps around to the end of the table; nonsense in there is no more than that. */
    pub->mrs[SW_MAX_MR - 1] =
        (struct sw_pub_mr){.key_word = 1, .handed = SW_HANDED_OUT_READ, .extent_count = UINT32_MAX};
    pub->mrs[SW_MAX_MR - 1].extents[3].segment = 31 + SW_SEGMENT_BUCKETS;
    munmap(pub, sizeof(*pub));
    int fd = answer_call(owner);
    say(fd, &w);
    bool seen[4] = {false};
    for (int i = 0; i < 3; i++) {
        struct message in;
        int fds[FDS];
        assert_int_equal(receive(fd, &in, fds), sizeof(in));
        assert_int_equal(in.type, SEGMENT_GET);
        int which = in.id == 31 ? 0 : in.id == 32 ? 1 : in.id == 31 + SW_SEGMENT_BUCKETS ? 2 : 3;
        assert_false(seen[which]);
        seen[which] = true;
    }
    assert_false(seen[3]);
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

static void sw_attach_from_peer__segment_malformed(void **state)
{
    struct owner *owner = *state;
    static const struct {
        uint64_t offset, len, file;
    } cases[] = {
        {0, 0x1000, 0},               /* no descriptor */
        {0, 0, 0x1000},               /* nothing of it */
        {0, 0x2000, 0x1000},          /* more than the file has: would be SIGBUS */
        {0x1000, 0x1000, 0x1000},     /* behind its end */
        {UINT64_MAX, 0x1000, 0x1000}, /* wraps */
        {0, UINT64_MAX, 0x1000},
        {0xfffffffffffff000, 0x2000, 0x1000},
    };
    int fd = make_ready(owner);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool refused;
        assert_null(sw_peer_segment_at(owner->peer, 50 + i, cases[i].offset, 1, true, &refused));
        asked_for(fd, 50 + i);
        say_segment(fd, 50 + i, cases[i].offset, cases[i].len,
                    cases[i].file ? file_of(cases[i].file) : -1);
        assert_null(segment_at(owner, 50 + i, cases[i].offset, 1));
    }
    /* For one nobody asked for: dropped, and no reason to part. */
    say_segment(fd, 4711, 0, 0x1000, file_of(0x1000));
    struct message gone = {.type = SEGMENT_GONE, .version = SW_PUB_VERSION, .id = 4712};
    send_bytes(fd, &gone, sizeof(gone), NULL, 0);
    bool refused;
    assert_null(sw_peer_segment_at(owner->peer, 60, 0, 1, true, &refused));
    asked_for(fd, 60);
    say_segment(fd, 60, 0, 0, -1);
    assert_null(
        segment_at(owner, 60, 0, 1)); /* messages are read in order: those before are, too */
    assert_null(sw_peer_segment_at(owner->peer, 4711, 0, 1, true, &refused));
    asked_for(fd, 4711);
    assert_int_equal(atomic_load(&owner->peer->state), SW_PEER_READY);
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

/* A process that is there, but never lets us in, is as unreachable as one that is not there. */
static void sw_attach_step__refused_again_and_again(void **state)
{
    struct owner *owner = *state;
    rig_connect(&owner->rig, played_slot << SW_QP_INDEX_BITS | 5);
    struct sw_qp *qp = owner->rig.qp;
    qp->attr.timeout = 1;
    struct ibv_sge sge = rig_sge(&owner->rig, 0, 8);
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    rig_append(&owner->rig, &wr, &sge);
    uint64_t end_ns = sw_clock_ns() + 10 * SW_NS_PER_S;
    while (qp->state == IBV_QPS_RTS && sw_clock_ns() < end_ns) {
        struct pollfd calling = {.fd = owner->listener, .events = POLLIN};
        if (poll(&calling, 1, 1) == 1)
            close(answer_call(owner));
        sw_direct_send_run(qp, owner->rig.d);
    }
    assert_int_equal(rig_wc(&owner->rig).status, IBV_WC_RETRY_EXC_ERR);
    rig_drop(&owner->rig);
}

#define client_test(function) cmocka_unit_test_setup_teardown(function, client_up, client_down)
#define owner_test(function) cmocka_unit_test_setup_teardown(function, owner_up, owner_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(sw_attach_greet__welcomes_with_three_descriptors),
        client_test(sw_attach_greet__malformed),
        client_test(sw_survey_answer__is_the_end),
        client_test(sw_attach_greet__once_for_each_incarnation),
        client_test(sw_attach_from_client__segments),
        client_test(sw_attach_from_client__malformed),
        owner_test(sw_attach_from_peer__welcome),
        owner_test(sw_attach_from_peer__welcome_malformed),
        owner_test(sw_attach_from_peer__wrong_sizes),
        owner_test(sw_attach_from_peer__welcome_twice),
        owner_test(sw_attach_step__asks_for_few_segments_at_a_time),
        owner_test(sw_attach_from_peer__segment),
        owner_test(sw_attach_from_peer__segments_expected),
        owner_test(sw_attach_from_peer__segment_malformed),
        owner_test(sw_attach_step__refused_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
