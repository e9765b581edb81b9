/* SPDX-License-Identifier: BSD-2-Clause */
/* How a communicator comes about, and its end. */
#include "collectives/comm/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "collectives/comm/door.h"
#include "collectives/comm/dump.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/meet.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/placement.h"
#include "collectives/comm/port.h"
#include "collectives/comm/processors.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "collectives/comm/transfer.h"
#include "collectives/comm/wait.h"
#include "collectives/core/fold.h"
#include "collectives/core/plan.h"
#include "collectives/core/ranks.h"
#include "common/base/minmax.h"
#include "common/rdma/memory.h"
#include "common/rdma/resolve.h"
#include "common/time/clock.h"

enum { EAGER_MAX = 1 << 20, READS_MAX = 16, LINE = 64, HALF_CONNECTED_MS = 2000 };

void sw_coll_options_init(struct sw_coll_options *options)
{
    *options = (struct sw_coll_options){
        .size = 1, .timeout_ms = 60000, .spin_us = 50, .eager_bytes = 4096};
}

/* ---- this rank alone ---- */

static enum sw_coll_status check_options(const struct sw_coll_options *options,
                                         enum coll_plan *plan, struct sw_coll_error *error)
{
    const char *unknown = coll_fold_unknown();
    bool keeps_ranks;
    *plan = COLL_PLAN_ANY;
    if (!options->size || options->size > SW_COLL_RANKS_MAX)
        return coll_say(error, SW_COLL_INVALID, "rank %u of %u: there may be 1 to %u ranks",
                        options->rank, options->size, (unsigned)SW_COLL_RANKS_MAX);
    if (options->rank >= options->size)
        return coll_say(error, SW_COLL_INVALID, "rank %u of %u: ranks are numbered from 0 to %u",
                        options->rank, options->size, options->size - 1);
    if (options->eager_bytes > EAGER_MAX)
        return coll_say(error, SW_COLL_INVALID, "eager_bytes is %u, and may be %u at most",
                        options->eager_bytes, (unsigned)EAGER_MAX);
    if (options->size > 1 && !options->exchange && !options->meet)
        return coll_say(error, SW_COLL_INVALID,
                        "ranks find each other by an exchange, or at an address to meet: neither "
                        "is set");
    if (options->algorithm && !coll_plan_of_name(options->algorithm, plan))
        return coll_say(error, SW_COLL_INVALID,
                        "there is no algorithm '%.40s'; there are " COLL_PLAN_NAMES,
                        options->algorithm);
    if (*plan == COLL_PLAN_RING && options->order != SW_COLL_ORDER_ANY)
        return coll_say(error, SW_COLL_INVALID,
                        "a ring does not sum in the order of the tree: ask for order any, too");
    if (unknown)
        return coll_say(error, SW_COLL_INVALID,
                        "SIDEWIRE_COLL_FOLD is '%.40s', and may be generic, avx2 or avx512",
                        unknown);
    if (!coll_placement_wanted(options, &keeps_ranks))
        return coll_say(error, SW_COLL_INVALID,
                        COLL_PLACEMENT " is '%.40s', and may be hosts or ranks",
                        getenv(COLL_PLACEMENT));
    return SW_COLL_OK;
}

static bool open_draw_random(void *data, size_t bytes)
{
    return getrandom(data, bytes, 0) == (ssize_t)bytes;
}

/* And what is shown. Whole pages: a device may reach parts of a page by a longer way. */
static size_t slices_bytes(const struct sw_coll *coll)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t all =
        coll_shown_at(&coll->layout, coll->site.size) + coll_shown_bytes(coll->site.size);
    return (all + page - 1) / page * page;
}

static struct sw_coll *make_coll(const struct sw_coll_options *options, enum coll_plan plan)
{
    struct sw_coll *coll = calloc(1, sizeof(*coll));
    if (!coll)
        return NULL;
    coll->options = *options;
    coll->timer_fd = coll->page_fd = coll->wake.fd = -1;
    coll->layout = coll_layout_of((options->eager_bytes + LINE - 1) / LINE * LINE);
    coll->site = (struct coll_site){.rank = options->rank,
                                    .size = options->size,
                                    .eager_bytes = coll->layout.eager_bytes,
                                    .wanted = plan,
                                    .scratch_bytes =
                                        coll_scratch_fit(options->size, coll->layout.eager_bytes)};
    list_init(&coll->posted);
    list_init(&coll->transfers);
    list_init(&coll->grouped);
    list_init(&coll->pairs.busy);
    list_init(&coll->ended_requests);
    list_init(&coll->free_requests);
    coll->mailbox = mover_pages(slices_bytes(coll));
    coll->outbox = mover_pages(slices_bytes(coll));
    coll->scratch = mover_pages(coll->site.scratch_bytes);
    coll->machine_memory =
        aligned_alloc(LINE, (coll_machine_bytes(options->size) + LINE - 1) / LINE * LINE);
    coll->peers = calloc(options->size, sizeof(*coll->peers));
    coll->placement = calloc(options->size, 2 * sizeof(*coll->placement));
    coll_placement_wanted(options, &coll->keeps_ranks);
    coll->heard = calloc(options->size, sizeof(*coll->heard));
    coll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!mover_fork_guard_open(&coll->guard) || coll->epoll_fd < 0 ||
        !coll_wake_open(&coll->wake, coll->epoll_fd, &coll->wake) || !coll->mailbox ||
        !coll->outbox || !coll->scratch || !coll->machine_memory || !coll->peers ||
        !coll->placement || !coll->heard || !coll_transfers_open(coll) || !coll_dump_open(coll)) {
        sw_coll_close(coll);
        return NULL;
    }
    for (uint32_t rank = 0; rank < options->size; rank++)
        coll_peer_init(&coll->peers[rank], coll, rank);
    coll_agree_init(&coll->agree, options->rank, options->size, coll->heard);
    coll_port_open(coll);
    coll_machine_init(&coll->machine, &coll->site, &coll->port, coll->machine_memory, coll->scratch,
                      (void *)(coll->mailbox + coll_shown_at(&coll->layout, options->size)));
    return coll;
}

/* ---- the device ---- */

static enum sw_coll_status open_find_device(struct sw_coll *coll, struct sw_coll_error *error)
{
    struct sockaddr_storage address;
    char name[MOVER_LISTENER_TEXT];
    enum sw_coll_status status = coll_meet_address(&coll->options, &address, error);
    if (status)
        return status;
    const int code = coll_door_open(coll, (struct sockaddr *)&address);
    if (code == -ENODEV && !coll->events)
        return coll_say(error, SW_COLL_ADDRESS,
                        "there is no RDMA device; a software one: sidewire run");
    mover_listener_name(&coll->listener, name);
    if (code)
        return coll_say(error, SW_COLL_ADDRESS, "cannot listen at %s: %s%s", name, strerror(-code),
                        mover_listener_help(code));
    coll->verbs = coll_door_device(coll);
    return coll->verbs ? SW_COLL_OK
                       : coll_say(error, SW_COLL_ADDRESS, "no RDMA device has %s", name);
}

static bool open_device_objects(struct sw_coll *coll)
{
    struct ibv_device_attr attr;
    const size_t all = slices_bytes(coll);
    const uint32_t entries = (coll->site.size - 1) * (COLL_SENDS + COLL_RECEIVES);
    const unsigned local = IBV_ACCESS_LOCAL_WRITE;
    const unsigned reached = local | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if ((errno = ibv_query_device(coll->verbs, &attr)))
        return false;
    const int reads = attr.max_qp_rd_atom < attr.max_qp_init_rd_atom ? attr.max_qp_rd_atom
                                                                     : attr.max_qp_init_rd_atom;
    coll->reads_max = mover_min_u32(reads > 0 ? (uint32_t)reads : 1, READS_MAX);
    coll->inline_bytes = COLL_INLINE;
    coll->pd = ibv_alloc_pd(coll->verbs);
    if (!coll->pd)
        return false;
    coll_regions_open(&coll->regions, coll->pd);
    coll->mailbox_mr = ibv_reg_mr(coll->pd, coll->mailbox, all, reached);
    coll->outbox_mr = ibv_reg_mr(coll->pd, coll->outbox, all, local);
    coll->scratch_mr = ibv_reg_mr(coll->pd, coll->scratch, coll->site.scratch_bytes,
                                  local | IBV_ACCESS_REMOTE_WRITE);
    if (coll->scratch_mr)
        coll->machine.shared =
            (struct coll_memory){(uintptr_t)coll->scratch, coll->scratch_mr->rkey};
    return coll->mailbox_mr && coll->outbox_mr && coll->scratch_mr &&
           mover_queue_open(&coll->queue, coll->verbs, entries, coll->epoll_fd, &coll->queue);
}

/* ---- the others ---- */

static enum sw_coll_status make_card(struct sw_coll *coll, struct sw_coll_error *error)
{
    struct coll_card *card = &coll->card;
    *card = (struct coll_card){.address = coll->listener.address,
                               .host = coll_host_number(),
                               .processor = coll_processors_of_this().bound,
                               .mailbox = (uintptr_t)coll->mailbox,
                               .key = coll->mailbox_mr->rkey,
                               .eager_bytes = coll->site.eager_bytes,
                               .rank = coll->site.rank,
                               .size = coll->site.size,
                               .plan = (uint32_t)coll->site.wanted,
                               .keeps_ranks = coll->keeps_ranks,
                               .is_any_order = coll->options.order == SW_COLL_ORDER_ANY};
    return open_draw_random(card->token, sizeof(card->token)) &&
                   open_draw_random(&card->instance, sizeof(card->instance))
               ? SW_COLL_OK
               : coll_say(error, SW_COLL_SYSTEM, "no random numbers: %s", strerror(errno));
}

static const char *wanted_name(const struct coll_card *card)
{
    const char *name = card->plan < COLL_PLANS ? coll_plan_name((enum coll_plan)card->plan) : "?";
    return name ? name : "any";
}

static const char *placement_name(const struct coll_card *card)
{
    return card->keeps_ranks ? "their numbers" : "hosts";
}

static enum sw_coll_status say_unlike(const struct coll_card *mine, const struct coll_card *theirs,
                                      struct sw_coll_error *error)
{
    if (theirs->size != mine->size)
        return coll_say(error, SW_COLL_MISMATCH, "rank %u has %u ranks, and rank %u has %u",
                        theirs->rank, theirs->size, mine->rank, mine->size);
    if (theirs->eager_bytes != mine->eager_bytes)
        return coll_say(error, SW_COLL_MISMATCH, "rank %u has %u eager bytes, and rank %u has %u",
                        theirs->rank, theirs->eager_bytes, mine->rank, mine->eager_bytes);
    if (theirs->plan != mine->plan)
        return coll_say(error, SW_COLL_MISMATCH, "rank %u wants algorithm %s, and rank %u wants %s",
                        theirs->rank, wanted_name(theirs), mine->rank, wanted_name(mine));
    if (theirs->is_any_order != mine->is_any_order)
        return coll_say(error, SW_COLL_MISMATCH, "rank %u wants order %s of sums, and rank %u %s",
                        theirs->rank, theirs->is_any_order ? "any" : "tree", mine->rank,
                        mine->is_any_order ? "any" : "tree");
    if (theirs->keeps_ranks != mine->keeps_ranks)
        return coll_say(error, SW_COLL_MISMATCH,
                        "rank %u places ranks by %s, and rank %u by %s (placement)", theirs->rank,
                        placement_name(theirs), mine->rank, placement_name(mine));
    return SW_COLL_OK;
}

enum sw_coll_status coll_open_cards(struct sw_coll *coll, const uint8_t *cards,
                                    struct sw_coll_error *error)
{
    const struct coll_card *first = &coll->peers[0].card;
    const struct coll_processors processors = coll_processors_of_this();
    uint32_t here = 0, on_mine = 0;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        struct coll_card *card = &coll->peers[rank].card;
        const enum coll_card_fault fault =
            coll_card_get(cards + (size_t)rank * COLL_CARD_BYTES, card);
        if (fault == COLL_CARD_VERSION)
            return coll_say(error, SW_COLL_VERSION,
                            "rank %u speaks another version of the protocol", rank);
        if (fault == COLL_CARD_GARBAGE || card->rank != rank)
            return coll_say(error, SW_COLL_PROTOCOL, "what came for rank %u is not its card", rank);
        const enum sw_coll_status status = say_unlike(first, card, error);
        if (status)
            return status;
        const bool is_here = card->host == coll->card.host;
        here += is_here;
        on_mine += is_here && card->processor == processors.bound;
    }
    memcpy(coll->token, first->token, COLL_TOKEN_BYTES);
    coll_placement_find(coll);
    coll->must_yield = coll_processors_are_short(&processors, here, on_mine);
    return SW_COLL_OK;
}

static enum sw_coll_status meet_others(struct sw_coll *coll, uint64_t deadline_ns,
                                       struct sw_coll_error *error)
{
    uint8_t mine[COLL_CARD_BYTES];
    uint8_t *cards = calloc(coll->site.size, COLL_CARD_BYTES);
    if (!cards)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory");
    coll_card_put(mine, &coll->card);
    enum sw_coll_status status =
        coll_meet_exchange(&coll->options, mine, sizeof(mine), cards, deadline_ns, error);
    if (!status)
        status = coll_open_cards(coll, cards, error);
    free(cards);
    return status;
}

uint32_t coll_open_missing(const struct sw_coll *coll, bool *is_missing)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const enum coll_peer_state state = coll->peers[rank].state;
        is_missing[rank] =
            coll_is_other(coll, rank) && state != COLL_PEER_UP && state != COLL_PEER_ENDED;
        count += is_missing[rank];
    }
    return count;
}

void coll_open_want(struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        coll_peer_want(&coll->peers[rank]);
}

static enum sw_coll_status open_connect_all(struct sw_coll *coll, uint64_t deadline_ns,
                                            struct sw_coll_error *error)
{
    bool is_missing[SW_COLL_RANKS_MAX];
    char text[160];
    coll_open_want(coll);
    while (!coll->failure.is_set && coll_open_missing(coll, is_missing)) {
        const uint64_t now_ns = mover_now_ns();
        if (now_ns >= deadline_ns) {
            coll_ranks_text(is_missing, coll->site.size, UINT32_MAX, text, sizeof(text));
            coll_fail(coll, SW_COLL_TIMEOUT, "%s did not connect with rank %u in time", text,
                      coll->site.rank);
            break;
        }
        coll_take_events(coll, 10);
        coll_look(coll);
    }
    if (!coll->failure.is_set)
        return SW_COLL_OK;
    coll_failure_await(coll);
    return coll_say(error, coll->failure.error.status, "%s", coll->failure.error.text);
}

/* The device is known. */
static enum sw_coll_status open_this_side(struct sw_coll *coll, struct sw_coll_error *error)
{
    return open_device_objects(coll) ? make_card(coll, error)
                                     : coll_say(error, SW_COLL_NO_MEMORY,
                                                "the RDMA device has no room: %s", strerror(errno));
}

static enum sw_coll_status join_ranks(struct sw_coll *coll, struct sw_coll_error *error)
{
    const uint64_t deadline_ns = sw_coll_deadline_ms(coll->options.timeout_ms);
    if (coll->site.size == 1)
        return SW_COLL_OK;
    enum sw_coll_status status = open_find_device(coll, error);
    if (!status)
        status = open_this_side(coll, error);
    if (!status)
        status = meet_others(coll, deadline_ns, error);
    if (!status && coll->site.size <= COLL_MESH_MAX)
        status = open_connect_all(coll, deadline_ns, error);
    return status;
}

enum sw_coll_status sw_coll_open(const struct sw_coll_options *options, struct sw_coll_error *error,
                                 struct sw_coll **out)
{
    enum coll_plan plan;
    enum sw_coll_status status = check_options(options, &plan, error);
    *out = NULL;
    if (status)
        return status;
    struct sw_coll *coll = make_coll(options, plan);
    if (!coll)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory or descriptors");
    status = join_ranks(coll, error);
    if (status) {
        sw_coll_close(coll);
        return status;
    }
    coll_page_open(coll, NULL);
    coll_placement_tell(coll);
    *out = coll;
    return SW_COLL_OK;
}

/* ---- another one ---- */

/* The texts of the options may be gone by now. The address is the parent's, at another port. */
enum sw_coll_status coll_open_child(const struct sw_coll *parent, uint32_t rank, uint32_t size,
                                    struct sw_coll_error *error, struct sw_coll **out)
{
    struct sw_coll_options options = parent->options;
    struct sockaddr_storage address = parent->listener.address;
    enum sw_coll_status status = SW_COLL_OK;
    options.rank = rank;
    options.size = size;
    options.meet = options.address = options.algorithm = NULL;
    options.exchange = NULL;
    options.dump_folder = parent->dump_folder ? parent->dump_folder : "";
    struct sw_coll *child = make_coll(&options, parent->site.wanted);
    if (!child)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory or descriptors");
    coll_meet_clear_port(&address);
    if (size > 1) {
        const int code = coll_door_open(child, (struct sockaddr *)&address);
        child->verbs = parent->verbs;
        status = code ? coll_say(error, SW_COLL_ADDRESS, "cannot listen: %s", strerror(-code))
                      : open_this_side(child, error);
    }
    if (status)
        sw_coll_close(child);
    else
        *out = child;
    return status;
}

/* ---- the end ---- */

/* A message can come over a connection before this side has heard that it is up. */
static bool is_half_connected(const struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const enum coll_peer_state state = coll->peers[rank].state;
        if (state == COLL_PEER_ASKED ||
            (state == COLL_PEER_DIALING && coll->pairs.pairs[rank].received))
            return true;
    }
    return false;
}

/* The others may still need what was sent last, and have to know that this rank has not died. */
static void leave_others(struct sw_coll *coll)
{
    const uint64_t until_ns = sw_coll_deadline_ms(HALF_CONNECTED_MS);
    while (!coll->failure.is_set && is_half_connected(coll) && mover_now_ns() < until_ns)
        coll_take_events(coll, 1);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank))
            coll_send_word(&coll->peers[rank], COLL_AT_LEFT, coll->ended + 1);
    coll_failure_flush(coll);
}

static void open_close_device(struct sw_coll *coll)
{
    struct ibv_mr *mrs[] = {coll->mailbox_mr, coll->outbox_mr, coll->scratch_mr};
    for (size_t i = 0; i < sizeof(mrs) / sizeof(*mrs); i++)
        if (mrs[i])
            ibv_dereg_mr(mrs[i]);
    coll_regions_close(&coll->regions);
    mover_queue_close(&coll->queue);
    if (coll->pd)
        ibv_dealloc_pd(coll->pd);
    coll_door_close(coll);
}

static void free_coll(struct sw_coll *coll)
{
    coll_requests_free(coll);
    while (coll->free_deferred) {
        struct coll_deferred *next = coll->free_deferred->next;
        free(coll->free_deferred);
        coll->free_deferred = next;
    }
    coll_wake_close(&coll->wake);
    if (coll->epoll_fd >= 0)
        close(coll->epoll_fd);
    mover_fork_guard_close(&coll->guard);
    coll_dump_close(coll);
    coll_transfers_close(coll);
    free(coll->machine_memory);
    free(coll->heard);
    free(coll->peers);
    free(coll->placement);
    free(coll);
}

void sw_coll_close(struct sw_coll *coll)
{
    if (!coll)
        return;
    coll_page_close(coll, mover_is_forked(&coll->guard));
    if (!mover_is_forked(&coll->guard)) {
        if (coll->peers && (!coll->failure.is_done || coll->failure.is_agreeing))
            leave_others(coll);
        for (uint32_t rank = 0; coll->peers && rank < coll->site.size; rank++)
            coll_peer_tear_down(&coll->peers[rank]);
        coll_requests_release(coll);
        open_close_device(coll);
        free(coll->mailbox);
        free(coll->outbox);
        free(coll->scratch);
    } /* else pages that the parent's device has may not be given away by a child */
    free_coll(coll);
}

uint32_t sw_coll_rank(const struct sw_coll *coll)
{
    return coll->site.rank;
}

uint32_t sw_coll_size(const struct sw_coll *coll)
{
    return coll->site.size;
}

uint32_t sw_coll_gone(const struct sw_coll *coll, bool *is_gone)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        is_gone[rank] = coll->peers[rank].is_gone;
        count += is_gone[rank];
    }
    return count;
}
