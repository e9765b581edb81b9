/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles: made, polled, waited for, freed. */
#include "pmem/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/utf8.h"
#include "common/rdma/memory.h"
#include "common/rdma/resolve.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"

enum { CHAINS_MAX = 1024, TICK_MS = 100, POLLS_PER_LOOK = 64 };

void sw_pmem_options_init(struct sw_pmem_options *options)
{
    *options = (struct sw_pmem_options){.chains = 64,
                                        .connect_timeout_ms = 5000,
                                        .loss_timeout_ms = 30000,
                                        .request_timeout_ms = 10000,
                                        .spin_us = 50};
}

uint64_t sw_pmem_deadline_ms(uint32_t from_now_ms)
{
    return mover_now_ns() + from_now_ms * PMC_MS;
}

static enum sw_pmem_status resolve_server(struct pmc_client *c, struct sw_pmem_error *error)
{
    struct sw_pmem *p = &c->pmem;
    char standard[8];
    snprintf(standard, sizeof(standard), "%d", SW_PMEM_PORT);
    const char *port = p->options.port ? p->options.port : standard;
    const char *wrong = mover_resolve_peer(p->options.address, port, &c->address);
    if (wrong)
        return pmc_fail(error, SW_PMEM_ADDRESS, "%s port %s: %s", p->options.address, port, wrong);
    snprintf(p->where, sizeof(p->where), "%.200s port %.16s", p->options.address, port);
    return SW_PMEM_OK;
}

static bool allocate_scratch(struct pmc_client *c)
{
    const size_t values = (size_t)c->pmem.options.chains * SW_PMEM_CHAIN_MAX * sizeof(uint64_t);
    c->scratch_bytes = sizeof(*c->scratch) + values;
    c->scratch = mover_pages(c->scratch_bytes);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return c->scratch && c->epoll_fd >= 0;
}

static enum sw_pmem_status start_client(const struct sw_pmem_options *options, enum pmf_type asks,
                                        struct sw_pmem_error *error, struct sw_pmem **out)
{
    static const struct pmc_port device = {
        .now_ns = mover_now_ns, .start = pmc_link_start, .end = pmc_link_end, .post = pmc_post};
    const char *region = options->region ? options->region : "";
    if (!options->address || !options->chains || options->chains > CHAINS_MAX ||
        strlen(region) > SW_PMEM_NAME_MAX)
        return pmc_fail(error, SW_PMEM_INVALID,
                        "an address is needed, 1-%d chains, and a name of up to %d bytes",
                        CHAINS_MAX, SW_PMEM_NAME_MAX);
    struct pmc_client *c = calloc(1, sizeof(*c));
    if (!c)
        return pmc_fail(error, SW_PMEM_NO_MEMORY, "out of memory");
    c->pmem.asks = asks;
    c->epoll_fd = -1;
    snprintf(c->region, sizeof(c->region), "%s", region);
    snprintf(c->label, sizeof(c->label), "%s", options->label ? options->label : "");
    /* Cut within a character, or never UTF-8: what comes before that is sent. */
    for (size_t len = strlen(c->label); !mover_text_is_fit(c->label); len--)
        c->label[len - 1] = 0;
    enum sw_pmem_status status = SW_PMEM_OK;
    if (!pmc_init(&c->pmem, &device, options) || !mover_fork_guard_open(&c->pmem.guard) ||
        !allocate_scratch(c))
        status = pmc_fail(error, SW_PMEM_NO_MEMORY, "out of memory or descriptors");
    if (!status)
        status = resolve_server(c, error);
    if (status) {
        sw_pmem_close(&c->pmem);
        return status;
    }
    pmc_connect(&c->pmem);
    *out = &c->pmem;
    return SW_PMEM_OK;
}

enum sw_pmem_status sw_pmem_start(const struct sw_pmem_options *options,
                                  struct sw_pmem_error *error, struct sw_pmem **pmem)
{
    return start_client(options, PMF_OPEN, error, pmem);
}

static enum sw_pmem_status start_and_wait(const struct sw_pmem_options *options, enum pmf_type asks,
                                          struct sw_pmem_error *error, struct sw_pmem **pmem)
{
    struct sw_pmem *p = NULL;
    enum sw_pmem_status status = start_client(options, asks, error, &p);
    if (status)
        return status;
    status = sw_pmem_wait_live(p, sw_pmem_deadline_ms(options->connect_timeout_ms));
    if (!status) {
        *pmem = p;
        return SW_PMEM_OK;
    }
    if (status == SW_PMEM_TIMEOUT && p->error.status == SW_PMEM_REFUSED)
        status = p->error.status; /* it was full all the while */
    if (status == SW_PMEM_TIMEOUT)
        pmc_fail(error, status, "%s does not answer within %u ms", p->where,
                 options->connect_timeout_ms);
    else if (error)
        *error = p->error;
    sw_pmem_close(p);
    return status;
}

enum sw_pmem_status sw_pmem_open(const struct sw_pmem_options *options, struct sw_pmem_error *error,
                                 struct sw_pmem **pmem)
{
    return start_and_wait(options, PMF_OPEN, error, pmem);
}

enum sw_pmem_status sw_pmem_list(const struct sw_pmem_options *options,
                                 struct sw_pmem_entry *entries, uint32_t entries_max,
                                 uint32_t *count, struct sw_pmem_error *error)
{
    struct sw_pmem *p = NULL;
    const enum sw_pmem_status status = start_and_wait(options, PMF_LIST, error, &p);
    *count = 0;
    if (status)
        return status;
    for (uint32_t i = 0; i < p->answer.count && i < entries_max; i++) {
        const struct pmf_region *region = &p->answer.regions[i];
        struct sw_pmem_entry *entry = &entries[(*count)++];
        *entry = (struct sw_pmem_entry){.bytes = region->bytes,
                                        .kind = region->kind,
                                        .visible = region->flags & PMF_VISIBLE,
                                        .persistent = region->flags & PMF_PERSISTENT,
                                        .rights = region->rights};
        memcpy(entry->name, region->name, sizeof(entry->name));
        memcpy(entry->identity, region->identity, sizeof(entry->identity));
    }
    sw_pmem_close(p);
    return SW_PMEM_OK;
}

enum sw_pmem_status sw_pmem_server(const struct sw_pmem_options *options,
                                   struct sw_pmem_server_info *info, struct sw_pmem_error *error)
{
    struct sw_pmem *p = NULL;
    const enum sw_pmem_status status = start_and_wait(options, PMF_COUNTS, error, &p);
    if (status)
        return status;
    const struct pmf_counts *counts = &p->answer.counts;
    *info = (struct sw_pmem_server_info){.uptime_ms = counts->uptime_ms,
                                         .connections = counts->connections,
                                         .refused = counts->refused,
                                         .malformed = counts->malformed,
                                         .ended = counts->ended,
                                         .clients = counts->clients,
                                         .clients_max = counts->clients_max,
                                         .regions_count = p->answer.count};
    for (uint32_t i = 0; i < p->answer.count; i++) {
        const struct pmf_region_counts *from = &p->answer.region_counts[i];
        struct sw_pmem_region_info *to = &info->regions[i];
        memcpy(to->name, from->name, sizeof(to->name));
        to->opens = from->opens;
        to->clients = from->clients;
        to->writers = from->writers;
    }
    sw_pmem_close(p);
    return SW_PMEM_OK;
}

void sw_pmem_close(struct sw_pmem *p)
{
    struct pmc_client *c = pmc_client_of(p);
    const bool is_ours = !mover_is_forked(&p->guard);
    pmc_fail(&p->error, SW_PMEM_CLOSED, "closed");
    if (is_ours && p->slots && p->results)
        pmc_dead(p);
    while (c->mems)
        sw_pmem_mem_release(c->mems);
    if (is_ours && c->scratch_mr)
        ibv_dereg_mr(c->scratch_mr);
    if (is_ours && c->pd)
        ibv_dealloc_pd(c->pd);
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (is_ours) /* else the parent's device has these pages, which a child may lack */
        free(c->scratch);
    mover_fork_guard_close(&p->guard);
    pmc_free(p);
    free(c);
}

static void client_take_completion(struct pmc_client *c, const struct ibv_wc *wc)
{
    if (wc->wr_id & PMC_CONTROL_WR)
        pmc_link_completion(c, wc);
    else
        pmc_chain_completion(c, wc);
}

static void client_poll_queue(struct pmc_client *c)
{
    struct ibv_wc wc;
    while (mover_queue_poll(&c->link.connection.queue, 1, &wc) > 0)
        client_take_completion(c, &wc);
}

uint32_t sw_pmem_poll(struct sw_pmem *p)
{
    struct pmc_client *c = pmc_client_of(p);
    if (mover_is_forked(&p->guard))
        return 0;
    p->ended_in_poll = 0;
    client_poll_queue(c);
    /* Events cost a system call, timers a look at the clock. */
    if (p->state == SW_PMEM_LIVE && !p->is_broken && ++c->polls % POLLS_PER_LOOK)
        return p->ended_in_poll;
    pmc_link_events(c);
    pmc_timers(p);
    return p->ended_in_poll;
}

bool sw_pmem_arm(struct sw_pmem *p)
{
    if (mover_is_forked(&p->guard))
        return true; /* nothing will come of it */
    return p->state != SW_PMEM_DEAD && mover_queue_arm(&pmc_client_of(p)->link.connection.queue);
}

static void nap_until(struct sw_pmem *p, uint64_t deadline_ns)
{
    struct epoll_event event;
    const int ms = mover_ms_until(deadline_ns, mover_now_ns(), TICK_MS);
    if (sw_pmem_arm(p))
        epoll_wait(pmc_client_of(p)->epoll_fd, &event, 1, ms);
}

enum sw_pmem_status sw_pmem_wait_live(struct sw_pmem *p, uint64_t deadline_ns)
{
    if (mover_is_forked(&p->guard))
        return SW_PMEM_FORKED;
    for (;;) {
        sw_pmem_poll(p);
        if (p->state == SW_PMEM_LIVE)
            return SW_PMEM_OK;
        if (p->state == SW_PMEM_DEAD)
            return p->error.status;
        if (mover_now_ns() >= deadline_ns)
            return SW_PMEM_TIMEOUT;
        nap_until(p, deadline_ns);
    }
}

enum sw_pmem_status sw_pmem_wait(struct sw_pmem *p, uint64_t deadline_ns)
{
    const uint64_t spin_until = mover_now_ns() + p->options.spin_us * 1000ull;
    if (mover_is_forked(&p->guard))
        return SW_PMEM_FORKED;
    if (p->tail == p->ended)
        return p->results_tail > p->results_taken ? SW_PMEM_OK : SW_PMEM_AGAIN;
    for (;;) {
        if (sw_pmem_poll(p) || p->tail == p->ended)
            return SW_PMEM_OK;
        const uint64_t now = mover_now_ns();
        if (now >= deadline_ns)
            return SW_PMEM_TIMEOUT;
        if (now >= spin_until)
            nap_until(p, deadline_ns);
    }
}

int sw_pmem_fd(const struct sw_pmem *p)
{
    return ((const struct pmc_client *)p)->epoll_fd;
}
