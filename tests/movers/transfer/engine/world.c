/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void must(enum sw_xfer_status status)
{
    if (status)
        fail_msg("%s", sw_xfer_status_text(status));
}

static void open_side(struct side *side, const char *address, const char *rail)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_error error;
    sw_xfer_agent_options_init(&options);
    options.address = address;
    options.rails[0] = rail;
    options.notices_max = 4;
    options.drain_timeout_ms = PATIENCE_MS; /* on a machine that is busy */
    if (sw_xfer_agent_open(&options, &error, &side->agent))
        fail_msg("%s", error.text);
    side->data = mmap(NULL, CACHE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    side->model = malloc(CACHE);
    assert_true(side->data != MAP_FAILED && side->model);
    for (int i = 0; i < CACHE; i++)
        side->data[i] = (uint8_t)rand();
    memcpy(side->model, side->data, CACHE);
    if (sw_xfer_memory_host(side->agent, side->data, CACHE, &error, &side->memory))
        fail_msg("%s", error.text);
}

static void close_side(struct side *side)
{
    if (side->agent)
        sw_xfer_agent_close(side->agent);
    munmap(side->data, CACHE);
    free(side->model);
}

struct sw_xfer_lease *grant(struct world *w, struct sw_xfer_lease_options options)
{
    struct sw_xfer_error error;
    struct sw_xfer_lease *lease;
    options.name = "kv";
    if (sw_xfer_lease_grant(w->there.memory, &options, &error, &lease))
        fail_msg("%s", error.text);
    return lease;
}

bool is_iwarp(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return link && !strcmp(link, "iwarp");
}

void make_card(struct world *w)
{
    must(sw_xfer_card_make(w->there.agent, &w->lease, 1, w->card, sizeof(w->card), &w->card_bytes));
}

void poll_both(struct world *w)
{
    sw_xfer_poll(w->here.agent);
    sw_xfer_poll(w->there.agent);
}

enum sw_xfer_peer_state settle(struct world *w, struct sw_xfer_peer *peer)
{
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (sw_xfer_peer_state_of(peer) == SW_XFER_CONNECTING && sw_xfer_deadline_ms(0) < deadline)
        poll_both(w);
    return sw_xfer_peer_state_of(peer);
}

struct sw_xfer_peer *connect_to(struct world *w)
{
    struct sw_xfer_error error;
    struct sw_xfer_peer *peer;
    if (sw_xfer_connect(w->here.agent, w->card, w->card_bytes, &error, &peer))
        fail_msg("%s", error.text);
    return peer;
}

enum sw_xfer_state end_of(struct world *w, const struct sw_xfer_transfer *transfer)
{
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (sw_xfer_state_of(transfer) == SW_XFER_POSTED && sw_xfer_deadline_ms(0) < deadline)
        poll_both(w);
    return sw_xfer_state_of(transfer);
}

struct sw_xfer_info info_of(const struct sw_xfer_transfer *transfer)
{
    struct sw_xfer_info info;
    sw_xfer_info_of(transfer, &info);
    return info;
}

static void open_world(void **state, const char *rail)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof(*w));
    srand(5);
    open_side(&w->here, NULL, NULL);
    open_side(&w->there, "127.0.0.1", rail);
    w->lease =
        grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_READ | SW_XFER_MAY_WRITE});
    make_card(w);
    w->peer = connect_to(w);
    assert_int_equal(settle(w, w->peer), SW_XFER_LIVE);
    *state = w;
}

int set_up(void **state)
{
    open_world(state, NULL);
    return 0;
}

int set_up_rails(void **state)
{
    open_world(state, "127.0.0.2");
    return 0;
}

int tear_down(void **state)
{
    struct world *w = *state;
    close_side(&w->here);
    close_side(&w->there);
    return 0;
}

void describe(struct world *w, const struct sw_xfer_extent *local, uint32_t local_count,
              const struct sw_xfer_extent *remote, uint32_t remote_count)
{
    must(sw_xfer_blocks_local(w->here.agent, &w->here.memory, 1, local, local_count, &w->local));
    must(sw_xfer_blocks_remote(w->peer, w->card, w->card_bytes, remote, remote_count, &w->remote));
}

struct sw_xfer_transfer *prepare(struct world *w, enum sw_xfer_op op)
{
    struct sw_xfer_error error;
    struct sw_xfer_transfer *transfer;
    if (sw_xfer_prepare(w->peer, op, w->local, w->remote, &error, &transfer))
        fail_msg("%s", error.text);
    return transfer;
}

void release(struct world *w, struct sw_xfer_transfer *transfer)
{
    sw_xfer_release(transfer);
    must(sw_xfer_blocks_release(w->local));
    must(sw_xfer_blocks_release(w->remote));
}

void check_both(const struct world *w)
{
    assert_memory_equal(w->here.data, w->here.model, CACHE);
    assert_memory_equal(w->there.data, w->there.model, CACHE);
}

void describe_row(struct world *w, uint64_t bytes, uint64_t count)
{
    const struct sw_xfer_extent row = {.bytes = bytes, .stride = bytes, .count = count};
    describe(w, &row, 1, &row, 1);
}
struct sw_xfer_transfer *prepare_notice(struct world *w)
{
    struct sw_xfer_transfer *transfer;
    must(sw_xfer_prepare(w->peer, SW_XFER_NOTIFY, NULL, NULL, NULL, &transfer));
    return transfer;
}

void post_notice(struct sw_xfer_transfer *transfer, const char *text)
{
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){
                                    .notice = text, .notice_bytes = (uint32_t)strlen(text)}));
}

uint64_t visitor_of(struct world *w)
{
    static struct sw_xfer_notice notice;
    struct sw_xfer_transfer *transfer = prepare_notice(w);
    post_notice(transfer, "who am I");
    assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    must(sw_xfer_notice_take(w->there.agent, &notice));
    sw_xfer_release(transfer);
    return notice.visitor;
}
