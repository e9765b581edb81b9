/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles: made, polled, waited for, freed. */
#include "pmem/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CHAINS_MAX = 1024, TICK_MS = 100, POLLS_PER_LOOK = 64 };

void sw_pmem_options_init(struct sw_pmem_options *options)
{
    *options = (struct sw_pmem_options){.chains = 64,
                                        .connect_timeout_ms = 5000,
                                        .loss_timeout_ms = 30000,
                                        .request_timeout_ms = 10000,
                                        .spin_us = 50};
}

static enum sw_pmem_status resolve(struct sw_pmem *p, struct sw_pmem_error *error)
{
    char standard[8];
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    snprintf(standard, sizeof(standard), "%d", SW_PMEM_PORT);
    const char *port = p->options.port ? p->options.port : standard;
    const int code = getaddrinfo(p->options.address, port, &hints, &found);
    if (code)
        return pmc_fail(error, SW_PMEM_ADDRESS, "%s port %s: %s", p->options.address, port,
                        gai_strerror(code));
    memcpy(&p->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    snprintf(p->where, sizeof(p->where), "%.200s port %.16s", p->options.address, port);
    return SW_PMEM_OK;
}

static bool allocate(struct sw_pmem *p)
{
    const size_t values = (size_t)p->options.chains * SW_PMEM_CHAIN_MAX * sizeof(uint64_t);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    p->scratch_bytes = (sizeof(*p->scratch) + values + page - 1) / page * page;
    p->scratch = aligned_alloc(page, p->scratch_bytes);
    p->slots = calloc(p->options.chains, sizeof(*p->slots));
    p->results = calloc(p->options.chains, sizeof(*p->results));
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!p->scratch || !p->slots || !p->results || p->epoll_fd < 0)
        return false;
    memset(p->scratch, 0, p->scratch_bytes);
    return true;
}

static enum sw_pmem_status start(const struct sw_pmem_options *options, bool is_listing,
                                 struct sw_pmem_error *error, struct sw_pmem **out)
{
    const char *region = options->region ? options->region : "";
    if (!options->address || !options->chains || options->chains > CHAINS_MAX ||
        strlen(region) > SW_PMEM_NAME_MAX)
        return pmc_fail(error, SW_PMEM_INVALID,
                        "an address is needed, 1-%d chains, and a name of up to %d bytes",
                        CHAINS_MAX, SW_PMEM_NAME_MAX);
    struct sw_pmem *p = calloc(1, sizeof(*p));
    if (!p)
        return pmc_fail(error, SW_PMEM_NO_MEMORY, "out of memory");
    p->options = *options;
    p->is_listing = is_listing;
    p->epoll_fd = -1;
    snprintf(p->region, sizeof(p->region), "%s", region);
    snprintf(p->label, sizeof(p->label), "%s", options->label ? options->label : "");
    enum sw_pmem_status status = resolve(p, error);
    if (!status && !allocate(p))
        status = pmc_fail(error, SW_PMEM_NO_MEMORY, "out of memory or descriptors");
    if (status) {
        sw_pmem_close(p);
        return status;
    }
    pmc_link_start(p);
    *out = p;
    return SW_PMEM_OK;
}

enum sw_pmem_status sw_pmem_start(const struct sw_pmem_options *options,
                                  struct sw_pmem_error *error, struct sw_pmem **pmem)
{
    return start(options, false, error, pmem);
}

static enum sw_pmem_status start_and_wait(const struct sw_pmem_options *options, bool is_listing,
                                          struct sw_pmem_error *error, struct sw_pmem **pmem)
{
    struct sw_pmem *p = NULL;
    enum sw_pmem_status status = start(options, is_listing, error, &p);
    if (status)
        return status;
    status = sw_pmem_wait_live(p, sw_pmem_deadline_ms(options->connect_timeout_ms));
    if (!status) {
        *pmem = p;
        return SW_PMEM_OK;
    }
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
    return start_and_wait(options, false, error, pmem);
}

enum sw_pmem_status sw_pmem_list(const struct sw_pmem_options *options,
                                 struct sw_pmem_entry *entries, uint32_t entries_max,
                                 uint32_t *count, struct sw_pmem_error *error)
{
    struct sw_pmem *p = NULL;
    const enum sw_pmem_status status = start_and_wait(options, true, error, &p);
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

void sw_pmem_close(struct sw_pmem *p)
{
    pmc_fail(&p->error, SW_PMEM_CLOSED, "closed");
    if (p->slots && p->results)
        pmc_dead(p);
    if (p->scratch_mr)
        ibv_dereg_mr(p->scratch_mr);
    if (p->pd)
        ibv_dealloc_pd(p->pd);
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    free(p->scratch);
    free(p->slots);
    free(p->results);
    free(p);
}

static void take_completion(struct sw_pmem *p, const struct ibv_wc *wc)
{
    if (wc->wr_id & PMC_CONTROL_WR)
        pmc_link_completion(p, wc);
    else
        pmc_chain_completion(p, wc);
}

static void poll_queue(struct sw_pmem *p)
{
    struct ibv_wc wc;
    if (p->link.has_stash) {
        p->link.has_stash = false;
        wc = p->link.stash;
        take_completion(p, &wc);
    }
    while (p->link.cq && ibv_poll_cq(p->link.cq, 1, &wc) > 0)
        take_completion(p, &wc);
}

uint32_t sw_pmem_poll(struct sw_pmem *p)
{
    p->ended_in_poll = 0;
    poll_queue(p);
    /* Events cost a system call, timers a look at the clock. */
    if (p->state == SW_PMEM_LIVE && !p->link.is_broken && ++p->polls % POLLS_PER_LOOK)
        return p->ended_in_poll;
    pmc_link_events(p);
    pmc_timers(p);
    return p->ended_in_poll;
}

bool sw_pmem_arm(struct sw_pmem *p)
{
    struct pmc_link *link = &p->link;
    struct ibv_cq *cq;
    void *context;
    if (!link->cq)
        return p->state != SW_PMEM_DEAD;
    while (!ibv_get_cq_event(link->channel, &cq, &context))
        link->channel_events++;
    if (link->has_stash || ibv_req_notify_cq(link->cq, 0))
        return false;
    link->has_stash = ibv_poll_cq(link->cq, 1, &link->stash) > 0;
    return !link->has_stash;
}

static void nap(struct sw_pmem *p, uint64_t deadline_ns)
{
    struct epoll_event event;
    const uint64_t now = pmc_now_ns();
    uint64_t ms = deadline_ns > now ? (deadline_ns - now + PMC_MS - 1) / PMC_MS : 0;
    if (ms > TICK_MS)
        ms = TICK_MS;
    if (sw_pmem_arm(p))
        epoll_wait(p->epoll_fd, &event, 1, (int)ms);
}

enum sw_pmem_status sw_pmem_wait_live(struct sw_pmem *p, uint64_t deadline_ns)
{
    for (;;) {
        sw_pmem_poll(p);
        if (p->state == SW_PMEM_LIVE)
            return SW_PMEM_OK;
        if (p->state == SW_PMEM_DEAD)
            return p->error.status;
        if (pmc_now_ns() >= deadline_ns)
            return SW_PMEM_TIMEOUT;
        nap(p, deadline_ns);
    }
}

enum sw_pmem_status sw_pmem_wait(struct sw_pmem *p, uint64_t deadline_ns)
{
    const uint64_t spin_until = pmc_now_ns() + p->options.spin_us * 1000ull;
    if (p->tail == p->ended)
        return p->results_tail > p->results_taken ? SW_PMEM_OK : SW_PMEM_AGAIN;
    for (;;) {
        if (sw_pmem_poll(p) || p->tail == p->ended)
            return SW_PMEM_OK;
        const uint64_t now = pmc_now_ns();
        if (now >= deadline_ns)
            return SW_PMEM_TIMEOUT;
        if (now >= spin_until)
            nap(p, deadline_ns);
    }
}

uint32_t sw_pmem_take(struct sw_pmem *p, struct sw_pmem_result *results, uint32_t results_max)
{
    uint32_t count = 0;
    while (count < results_max && p->results_taken < p->results_tail)
        results[count++] = p->results[p->results_taken++ % p->options.chains];
    return count;
}

uint32_t sw_pmem_depth(const struct sw_pmem *p)
{
    return p->options.chains;
}

uint32_t sw_pmem_used(const struct sw_pmem *p)
{
    return (uint32_t)(p->tail - p->ended + (p->results_tail - p->results_taken));
}

int sw_pmem_fd(const struct sw_pmem *p)
{
    return p->epoll_fd;
}

enum sw_pmem_state sw_pmem_state_of(const struct sw_pmem *p)
{
    return p->state;
}

void sw_pmem_last_error(const struct sw_pmem *p, struct sw_pmem_error *error)
{
    *error = p->error;
}

void sw_pmem_info_of(const struct sw_pmem *p, struct sw_pmem_info *info)
{
    *info = p->info;
}

uint64_t sw_pmem_session(const struct sw_pmem *p)
{
    return p->info.session;
}
