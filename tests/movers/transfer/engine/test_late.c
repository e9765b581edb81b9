/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer of the same host that is stopped in the midst of a store for longer than a device waits:
 * once its lease is revoked the memory is its owner's, and what the peer stores when it goes on
 * does not come there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidewire/transfer.h"

enum { CACHE = 16 << 20, CARD_MAX = 4096, PATIENCE_MS = 20000, LATE_MS = 100 };
enum { ROUNDS_MAX = 32, AMID_WANTED = 2 }; /* on a busy machine a peer is seldom amid */
enum { AMID_MS = 500 };                    /* who revokes for so long has waited for a store */

/* Writes all of the region again and again, until it may not. Each time it begins and ends with
 * another byte. */
static void be_peer(int card_fd)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_agent *agent;
    struct sw_xfer_memory *memory;
    struct sw_xfer_peer *peer;
    struct sw_xfer_blocks *local, *remote;
    struct sw_xfer_transfer *transfer;
    const struct sw_xfer_extent whole = {.bytes = CACHE, .stride = CACHE, .count = 1};
    uint8_t card[CARD_MAX];
    const ssize_t bytes = read(card_fd, card, sizeof(card));
    uint8_t *data = malloc(CACHE);
    sw_xfer_agent_options_init(&options);
    if (bytes <= 0 || !data)
        _exit(2);
    memset(data, 0x77, CACHE);
    if (sw_xfer_agent_open(&options, NULL, &agent) ||
        sw_xfer_memory_host(agent, data, CACHE, NULL, &memory) ||
        sw_xfer_connect(agent, card, (size_t)bytes, NULL, &peer) ||
        sw_xfer_peer_wait(peer, sw_xfer_deadline_ms(PATIENCE_MS), NULL) ||
        sw_xfer_blocks_local(agent, &memory, 1, &whole, 1, &local) ||
        sw_xfer_blocks_remote(peer, card, (size_t)bytes, &whole, 1, &remote) ||
        sw_xfer_prepare(peer, SW_XFER_WRITE, local, remote, NULL, &transfer))
        _exit(3);
    enum sw_xfer_status status = SW_XFER_OK;
    for (uint8_t mark = 1; !status; mark = (uint8_t)(mark % 0x70 + 1)) {
        data[0] = data[CACHE - 1] = mark;
        sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0});
        status = sw_xfer_wait(transfer, sw_xfer_deadline_ms(PATIENCE_MS));
    }
    _exit(status == SW_XFER_DENIED || status == SW_XFER_PEER_GONE ? 0 : 4);
}

struct peer {
    pid_t pid;
    int card_fd; /* it waits for its card there */
};

/* One for each round, before the library has threads: a child that is forked while one of them
 * allocates finds the allocator of ASan locked, for ever. */
static void start_peers(struct peer peers[ROUNDS_MAX])
{
    for (int i = 0; i < ROUNDS_MAX; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        peers[i] = (struct peer){.pid = fork(), .card_fd = ends[1]};
        assert_true(peers[i].pid >= 0);
        if (!peers[i].pid) {
            for (int other = 0; other <= i; other++)
                close(peers[other].card_fd);
            be_peer(ends[0]);
        }
        close(ends[0]);
    }
}

struct target {
    struct sw_xfer_agent *agent;
    struct sw_xfer_memory *memory;
    uint8_t *data;
};

static void open_target(struct target *t)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_error error;
    sw_xfer_agent_options_init(&options);
    options.address = "127.0.0.1";
    t->data = mmap(NULL, CACHE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(t->data != MAP_FAILED);
    if (sw_xfer_agent_open(&options, &error, &t->agent) ||
        sw_xfer_memory_host(t->agent, t->data, CACHE, &error, &t->memory))
        fail_msg("%s", error.text);
}

static void run_for(struct target *t, uint32_t ms)
{
    const uint64_t until = sw_xfer_deadline_ms(ms);
    while (sw_xfer_deadline_ms(0) < until)
        sw_xfer_run_once(t->agent, until);
}

/* Until the peer has written, and for a while more, up to the midst of a store: that begins with a
 * byte that the last one has not ended with. */
static void wait_for_data(struct target *t)
{
    const volatile uint8_t *first = t->data, *last = &t->data[CACHE - 1];
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (!*last && sw_xfer_deadline_ms(0) < deadline)
        sw_xfer_run_once(t->agent, sw_xfer_deadline_ms(1));
    assert_int_not_equal(*last, 0);
    run_for(t, 1 + (uint32_t)rand() % 20);
    while (*first == *last && sw_xfer_deadline_ms(0) < deadline)
        ;
}

/* Whether the peer was amid a store. */
static bool stop_and_own(struct target *t, const struct peer *peer, uint8_t kept)
{
    const struct sw_xfer_lease_options options = {.rights = SW_XFER_MAY_WRITE,
                                                  .deadline_ns = SW_XFER_NEVER};
    struct sw_xfer_lease *lease;
    uint8_t card[CARD_MAX];
    size_t bytes;
    int status;
    memset(t->data, 0, CACHE);
    assert_int_equal(sw_xfer_lease_grant(t->memory, &options, NULL, &lease), SW_XFER_OK);
    assert_int_equal(sw_xfer_card_make(t->agent, &lease, 1, card, sizeof(card), &bytes),
                     SW_XFER_OK);
    assert_int_equal(write(peer->card_fd, card, bytes), bytes);
    close(peer->card_fd);
    wait_for_data(t);
    kill(peer->pid, SIGSTOP);
    assert_int_equal(waitpid(peer->pid, &status, WUNTRACED), peer->pid);
    assert_true(WIFSTOPPED(status));
    const uint64_t begin_ns = sw_xfer_deadline_ms(0);
    assert_int_equal(sw_xfer_lease_revoke(lease), SW_XFER_OK);
    const bool was_amid = sw_xfer_deadline_ms(0) - begin_ns > AMID_MS * 1000000ull;
    memset(t->data, kept, CACHE);
    kill(peer->pid, SIGCONT);
    run_for(t, LATE_MS);
    for (size_t i = 0; i < CACHE; i++)
        if (t->data[i] != kept)
            fail_msg("a late store of 0x%02x came to byte %zu", t->data[i], i);
    while (waitpid(peer->pid, &status, WNOHANG) != peer->pid)
        sw_xfer_run_once(t->agent, sw_xfer_deadline_ms(1));
    assert_int_equal(status, 0);
    sw_xfer_lease_release(lease);
    return was_amid;
}

static void revoke__a_late_store_does_not_come(void **state)
{
    (void)state;
    struct peer peers[ROUNDS_MAX];
    struct target target;
    int amid = 0, round = 0;
    srand(3);
    start_peers(peers);
    for (; round < ROUNDS_MAX && amid < AMID_WANTED; round++) {
        open_target(&target);
        amid += stop_and_own(&target, &peers[round], (uint8_t)(round + 1));
        sw_xfer_agent_close(target.agent);
        munmap(target.data, CACHE);
    }
    for (int i = round; i < ROUNDS_MAX; i++) {
        close(peers[i].card_fd); /* there is no card for it: it ends */
        assert_int_equal(waitpid(peers[i].pid, NULL, 0), peers[i].pid);
    }
    print_message("amid a store in %d of %d rounds\n", amid, round);
    assert_int_equal(amid, AMID_WANTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(revoke__a_late_store_does_not_come)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
