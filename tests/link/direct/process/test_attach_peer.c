/* SPDX-License-Identifier: BSD-2-Clause */
/* The control protocol's client: the test owns what the engine of this very process asks for. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach_rig.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"

/* Everything an owner hands out, to be spoiled. */
struct welcome {
    struct sw_message message;
    int fds[FDS];
    int count;
    struct sw_pub_header *header;
};

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
        .message = {.type = SW_MESSAGE_WELCOME,
                    .version = SW_PUB_VERSION,
                    .nonce = 4242,
                    .slot = played_slot},
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
    send_message(fd, &w->message, sizeof(w->message), w->fds, w->count);
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
        w->message.type = SW_MESSAGE_SEGMENT_GET;
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
    char bytes[sizeof(struct sw_message) + 1] = {0};
    for (size_t len = 1; len <= sizeof(bytes); len += len == 1 ? sizeof(bytes) - 3 : 1) {
        if (len == sizeof(struct sw_message))
            continue;
        int fd = answer_call(owner);
        send_message(fd, bytes, len, NULL, 0);
        hangs_up(fd);
    }
    int fd = make_ready(owner);
    send_message(fd, bytes, 1, NULL, 0);
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
    struct sw_message out = {.type = SW_MESSAGE_SEGMENT,
                             .version = SW_PUB_VERSION,
                             .id = id,
                             .offset = offset,
                             .len_bytes = len_bytes};
    send_message(fd, &out, sizeof(out), &file, file >= 0);
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
    struct sw_message in;
    int fds[FDS];
    assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SW_MESSAGE_SEGMENT_GET);
    assert_int_equal(in.id, id);
}

/* An owner whose socket is full of answers has no room for the next: it would be lost. */
static void sw_attach_step__asks_for_few_segments_at_a_time(void **state)
{
    enum { SEGMENTS = 100, AT_ONCE = 32 };
    struct owner *owner = *state;
    struct sw_message in;
    int fds[FDS], fd = make_ready(owner);
    bool refused;
    for (uint32_t id = 1; id <= SEGMENTS; id++)
        assert_null(sw_peer_segment_at(owner->peer, id, 0, 4, true, &refused));
    for (uint32_t got = 0; got < SEGMENTS; got++) {
        pthread_mutex_lock(&owner->peer->lock);
        assert_true(owner->peer->asked <= AT_ONCE);
        pthread_mutex_unlock(&owner->peer->lock);
        assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
        assert_int_equal(in.type, SW_MESSAGE_SEGMENT_GET);
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
    struct sw_message gone = {.type = SW_MESSAGE_SEGMENT_GONE, .version = SW_PUB_VERSION, .id = 9};
    send_message(fd, &gone, sizeof(gone), NULL, 0);
    for (int i = 0; i < 5000; i++) { /* then it is asked for again */
        if (!sw_peer_segment_at(owner->peer, 9, 0x3010, 4, true, &refused))
            break;
        usleep(1000);
    }
    asked_for(fd, 9);
    close(fd);
    wait_peer(owner, SW_PEER_DEAD);
}

/* Memory that the peer has registered is asked for at once, not only when it is needed. */
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
        struct sw_message in;
        int fds[FDS];
        assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
        assert_int_equal(in.type, SW_MESSAGE_SEGMENT_GET);
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
    struct sw_message gone = {
        .type = SW_MESSAGE_SEGMENT_GONE, .version = SW_PUB_VERSION, .id = 4712};
    send_message(fd, &gone, sizeof(gone), NULL, 0);
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

#define owner_test(function) cmocka_unit_test_setup_teardown(function, owner_up, owner_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        owner_test(sw_attach_from_peer__welcome),
        owner_test(sw_attach_from_peer__welcome_malformed),
        owner_test(sw_attach_from_peer__wrong_sizes),
        owner_test(sw_attach_from_peer__welcome_twice),
        owner_test(sw_attach_step__asks_for_few_segments_at_a_time),
        owner_test(sw_attach_from_peer__segment),
        owner_test(sw_attach_from_peer__segments_expected),
        owner_test(sw_attach_from_peer__segment_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
