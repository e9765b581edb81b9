/* SPDX-License-Identifier: BSD-2-Clause */
/* The control protocol's server: the test is a client of the engine of this very process. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach_rig.h"
#include "device/nic/netdev.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/process/survey.h"
#include "link/names/registry.h"

static int client_listener;

static int client_down(void **state)
{
    close(client_listener);
    rig_close(*state);
    free(*state);
    return 0;
}

static struct sw_message attach_message(uint64_t nonce)
{
    return (struct sw_message){
        .type = SW_MESSAGE_ATTACH, .version = SW_PUB_VERSION, .nonce = nonce, .slot = played_slot};
}

static int attach(uint64_t nonce, struct sw_message *in, int fds[FDS])
{
    int fd = dial();
    struct sw_message out = attach_message(nonce);
    send_message(fd, &out, sizeof(out), NULL, 0);
    assert_int_equal(receive_message(fd, in, fds), sizeof(*in));
    return fd;
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
    struct sw_message in;
    struct stat info;
    int fds[FDS], before = count_fds();
    int fd = attach(101, &in, fds);
    assert_int_equal(in.type, SW_MESSAGE_WELCOME);
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
    struct sw_message good = attach_message(102), bad[7];
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].version++;
    bad[1].type = SW_MESSAGE_WELCOME;
    bad[2].type = SW_MESSAGE_SEGMENT_GET;
    bad[3].type = 0;
    bad[4].slot = 0;
    bad[5].slot = SW_SLOT_MAX + 1;
    bad[6].nonce = 0;
    for (int i = 0; i < 7; i++) {
        int fd = dial();
        send_message(fd, &bad[i], sizeof(bad[i]), &sw_nic.pub_fd, 1);
        hangs_up(fd);
    }
    char larger[sizeof(good) + 8];
    memcpy(larger, &good, sizeof(good));
    static const size_t sizes[] = {1, sizeof(good) - 1, sizeof(good) + 1, sizeof(larger)};
    for (int i = 0; i < 4; i++) {
        int fd = dial();
        send_message(fd, larger, sizes[i], &sw_nic.pub_fd, 1);
        hangs_up(fd);
    }
    for (int count = 4; count <= 5; count++) { /* one too many even if the kernel delivers it */
        int fd = dial();
        send_message(fd, &good, sizeof(good), five, count);
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
        struct sw_message out = {.type = SW_MESSAGE_SURVEY,
                                 .version = SW_PUB_VERSION,
                                 .id = known ? info.ifindex : 4711};
        int fd = dial();
        send_message(fd, &out, sizeof(out), NULL, 0);
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
    struct sw_message in;
    int fds[FDS], before = count_fds();
    int first = attach(103, &in, fds);
    close_all(fds);
    int again = dial();
    struct sw_message out = attach_message(103);
    send_message(again, &out, sizeof(out), NULL, 0);
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
    struct sw_message in,
        out = {.type = SW_MESSAGE_SEGMENT_GET, .version = SW_PUB_VERSION, .id = 0x7fffffff};
    int fds[FDS], fd = attach(105, &in, fds);
    close_all(fds);
    send_message(fd, &out, sizeof(out), NULL, 0); /* there is no such segment */
    assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SW_MESSAGE_SEGMENT);
    assert_int_equal(in.id, 0x7fffffff);
    assert_int_equal(in.len_bytes, 0);
    assert_int_equal(fds[0], -1);

    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(rig->mr))];
    if (entry->extent_count == 0) {
        close(fd);
        skip(); /* no adoption on this machine */
    }
    out.id = entry->extents[0].segment;
    send_message(fd, &out, sizeof(out), NULL, 0);
    assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SW_MESSAGE_SEGMENT);
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
    assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SW_MESSAGE_SEGMENT_GONE);
    assert_int_equal(in.id, out.id);
    close(fd);
}

static void sw_attach_from_client__malformed(void **state)
{
    (void)state;
    struct sw_message in;
    static const uint32_t types[] = {
        0, SW_MESSAGE_ATTACH, SW_MESSAGE_WELCOME, SW_MESSAGE_SEGMENT, SW_MESSAGE_SEGMENT_GONE,
        6, UINT32_MAX};
    int fds[FDS], before = count_fds();
    for (uint64_t i = 0; i < 7; i++) {
        struct sw_message out = {.type = types[i], .version = SW_PUB_VERSION, .id = 1};
        int fd = attach(200 + i, &in, fds);
        close_all(fds);
        send_message(fd, &out, sizeof(out), NULL, 0);
        hangs_up(fd);
    }
    int fd = attach(300, &in, fds);
    close_all(fds);
    struct sw_message out = {.type = SW_MESSAGE_SEGMENT_GET, .version = SW_PUB_VERSION};
    send_message(fd, &out, 4, NULL, 0);
    hangs_up(fd);
    wait_fds(before);
}

#define client_test(function) cmocka_unit_test_setup_teardown(function, client_up, client_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(sw_attach_greet__welcomes_with_three_descriptors),
        client_test(sw_attach_greet__malformed),
        client_test(sw_survey_answer__is_the_end),
        client_test(sw_attach_greet__once_for_each_incarnation),
        client_test(sw_attach_from_client__segments),
        client_test(sw_attach_from_client__malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
