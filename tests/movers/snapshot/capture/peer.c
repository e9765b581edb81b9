/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidewire/transfer.h"

enum { CARD_BYTES = 4096, PATIENCE_MS = 20000, SLOT = 4096 };

struct peer {
    struct writers *all;
    struct writer *writer;
    pid_t pid;
    int card[2]; /* a pipe */
    struct sw_xfer_agent *agent;
    struct sw_xfer_memory *memory;
    struct sw_xfer_lease *lease;
    pthread_t thread;
    bool has_thread;
    struct sw_xfer_error error;
};

/* ---- the child ---- */

struct rdma_writer {
    uint64_t *words;
    struct sw_xfer_transfer *transfer;
};

static void write_by_rdma(void *context, uint32_t offset, uint64_t number)
{
    struct rdma_writer *by = context;
    const uint32_t local = 0, remote = offset / SLOT;
    for (uint32_t i = 0; i < SLOT / 8; i++)
        by->words[i] = number;
    if (sw_xfer_post(by->transfer, &(struct sw_xfer_post_options){.local_index = &local,
                                                                  .remote_index = &remote,
                                                                  .count = 1}) ||
        sw_xfer_wait(by->transfer, sw_xfer_deadline_ms(PATIENCE_MS)))
        _exit(4);
}

static void be_peer(struct peer *peer)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_memory *memory;
    struct sw_xfer_peer *other;
    struct sw_xfer_blocks *local, *remote;
    struct rdma_writer by;
    const struct sw_xfer_extent one = {.bytes = SLOT, .stride = SLOT, .count = 1};
    const struct sw_xfer_extent all = {
        .bytes = SLOT, .stride = SLOT, .count = WRITER_REGION / SLOT};
    uint8_t card[CARD_BYTES];
    close(peer->card[1]);
    const ssize_t bytes = read(peer->card[0], card, sizeof(card));
    if (bytes <= 0)
        _exit(0); /* there is no device */
    sw_xfer_agent_options_init(&options);
    by.words = aligned_alloc(SLOT, SLOT);
    if (!by.words || sw_xfer_agent_open(&options, NULL, &peer->agent) ||
        sw_xfer_memory_host(peer->agent, by.words, SLOT, NULL, &memory) ||
        sw_xfer_connect(peer->agent, card, (size_t)bytes, NULL, &other) ||
        sw_xfer_peer_wait(other, sw_xfer_deadline_ms(PATIENCE_MS), NULL) ||
        sw_xfer_blocks_local(peer->agent, &memory, 1, &one, 1, &local) ||
        sw_xfer_blocks_remote(other, card, (size_t)bytes, &all, 1, &remote) ||
        sw_xfer_prepare(other, SW_XFER_WRITE, local, remote, NULL, &by.transfer))
        _exit(3);
    writer_run(peer->all, peer->writer, write_by_rdma, &by);
    _exit(0);
}

/* ---- the process that takes snapshots ---- */

struct peer *peer_start(struct writers *all, struct writer *writer)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    assert(peer);
    peer->all = all;
    peer->writer = writer;
    const int opened = pipe(peer->card);
    assert(opened == 0);
    peer->pid = fork();
    assert(peer->pid >= 0);
    if (peer->pid == 0)
        be_peer(peer);
    close(peer->card[0]);
    return peer;
}

static void *serve_agent(void *arg)
{
    struct peer *peer = arg;
    while (!peer->all->should_end)
        sw_xfer_run_once(peer->agent, sw_xfer_deadline_ms(10));
    return NULL;
}

const char *peer_let_in(struct peer *peer)
{
    const struct sw_xfer_lease_options rights = {.rights = SW_XFER_MAY_WRITE,
                                                 .deadline_ns = SW_XFER_NEVER};
    struct sw_xfer_agent_options options;
    uint8_t card[CARD_BYTES];
    size_t bytes;
    sw_xfer_agent_options_init(&options);
    options.address = "127.0.0.1";
    if (sw_xfer_agent_open(&options, &peer->error, &peer->agent) ||
        sw_xfer_memory_host(peer->agent, peer->writer->region, WRITER_REGION, &peer->error,
                            &peer->memory) ||
        sw_xfer_lease_grant(peer->memory, &rights, &peer->error, &peer->lease))
        return peer->error.text;
    if (sw_xfer_card_make(peer->agent, &peer->lease, 1, card, sizeof(card), &bytes) ||
        write(peer->card[1], card, bytes) != (ssize_t)bytes ||
        pthread_create(&peer->thread, NULL, serve_agent, peer))
        return "the peer cannot be told";
    peer->has_thread = true;
    return NULL;
}

void peer_end(struct peer *peer)
{
    int status;
    close(peer->card[1]);
    const pid_t ended = waitpid(peer->pid, &status, 0);
    assert(ended == peer->pid && status == 0);
    if (peer->has_thread)
        pthread_join(peer->thread, NULL);
    if (peer->lease)
        sw_xfer_lease_revoke(peer->lease);
    if (peer->lease)
        sw_xfer_lease_release(peer->lease);
    if (peer->memory)
        sw_xfer_memory_release(peer->memory);
    if (peer->agent)
        sw_xfer_agent_close(peer->agent);
    free(peer);
}
