/* SPDX-License-Identifier: BSD-2-Clause */
/* Live, lost, dead, and the timers between. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/client/machine.h"

enum { RETRY_MS = 100, FULL_SHIFT_MAX = 2 };

bool pmc_init(struct sw_pmem *p, const struct pmc_port *port, const struct sw_pmem_options *options)
{
    assert(options->chains);
    p->port = port;
    p->options = *options;
    p->slots = calloc(options->chains, sizeof(*p->slots));
    p->results = calloc(options->chains, sizeof(*p->results));
    return p->slots && p->results;
}

void pmc_free(struct sw_pmem *p)
{
    free(p->slots);
    free(p->results);
}

/* The first connection has to come within its time. */
static bool is_first_try(const struct sw_pmem *p)
{
    return p->state == SW_PMEM_CONNECTING && !p->options.keeps_trying;
}

void pmc_connect(struct sw_pmem *p)
{
    const uint64_t now = p->port->now_ns();
    assert(p->state != SW_PMEM_DEAD && p->stage == PMC_NONE);
    if (!p->began_ns)
        p->began_ns = now;
    p->stage = PMC_RESOLVING;
    p->is_full = false;
    p->link_deadline_ns =
        (is_first_try(p) ? p->began_ns : now) + p->options.connect_timeout_ms * PMC_MS;
    p->port->start(p);
}

static void state_end_connection(struct sw_pmem *p)
{
    p->port->end(p);
    p->stage = PMC_NONE;
    p->has_flush = p->has_atomic = p->is_broken = p->flushed = false;
}

/* What no further try can mend. A server that is full has a place again as soon as one leaves. */
static bool is_final(const struct sw_pmem *p, enum sw_pmem_status status, uint64_t now)
{
    if (is_first_try(p))
        return !p->is_full || now >= p->link_deadline_ns;
    return (status == SW_PMEM_REFUSED && !p->is_full) || status == SW_PMEM_NO_REGION ||
           status == SW_PMEM_OTHER_REGION || status == SW_PMEM_PROTOCOL ||
           (status == SW_PMEM_DISK_FAILED && !p->options.keeps_trying) ||
           !p->options.loss_timeout_ms;
}

/* Clients that were turned away together do not come back together. */
static uint64_t retry_pause_ns(struct sw_pmem *p, uint64_t now)
{
    if (!p->is_full) {
        p->turned_away = 0;
        return RETRY_MS * PMC_MS;
    }
    const uint64_t pause = RETRY_MS * PMC_MS << mover_min_u32(p->turned_away++, FULL_SHIFT_MAX);
    return pause + now % pause;
}

void pmc_dead(struct sw_pmem *p)
{
    p->state = SW_PMEM_DEAD;
    state_end_connection(p);
    pmc_end_all(p, SW_PMEM_NOT_DONE);
}

void pmc_lost(struct sw_pmem *p, enum sw_pmem_status status, const char *format, ...)
{
    va_list args;
    const uint64_t now = p->port->now_ns();
    if (p->state == SW_PMEM_DEAD)
        return;
    p->error.status = status;
    va_start(args, format);
    vsnprintf(p->error.text, sizeof(p->error.text), format, args);
    va_end(args);
    state_end_connection(p);
    if (is_final(p, status, now))
        return pmc_dead(p);
    p->retry_ns = now + retry_pause_ns(p, now);
    if (p->state == SW_PMEM_LOST || is_first_try(p))
        return;
    p->state = SW_PMEM_LOST;
    p->lost_ns = now;
    pmc_sort_out(p);
}

void pmc_timers(struct sw_pmem *p)
{
    const uint64_t now = p->port->now_ns();
    if (p->state == SW_PMEM_DEAD)
        return;
    if (p->state == SW_PMEM_LOST && now - p->lost_ns > p->options.loss_timeout_ms * PMC_MS)
        return pmc_dead(p);
    if (p->stage == PMC_NONE) {
        if (is_first_try(p) && now >= p->link_deadline_ns)
            pmc_dead(p);
        else if (now >= p->retry_ns)
            pmc_connect(p);
    } else if (p->stage != PMC_UP) {
        if (now > p->link_deadline_ns)
            pmc_lost(p, SW_PMEM_UNREACHABLE, "%s does not answer within %u ms", p->where,
                     p->options.connect_timeout_ms);
    } else if (p->is_broken) {
        pmc_lost(p, SW_PMEM_SYSTEM, "the RDMA device takes no request");
    } else if (p->ended < p->posted) {
        const struct pmc_slot *oldest = &p->slots[p->ended % p->options.chains];
        if (now - oldest->posted_ns > p->options.request_timeout_ms * PMC_MS)
            pmc_lost(p, SW_PMEM_UNREACHABLE, "%s has not answered a request for %u ms", p->where,
                     p->options.request_timeout_ms);
    }
}

static void take_region(struct sw_pmem *p)
{
    const struct pmf_region *region = &p->answer.regions[0];
    struct sw_pmem_info *info = &p->info;
    memcpy(info->name, region->name, sizeof(info->name));
    memcpy(info->identity, region->identity, sizeof(info->identity));
    memcpy(info->instance, p->next_instance, sizeof(info->instance));
    info->bytes = region->bytes;
    info->session++;
    info->kind = region->kind;
    info->flush = p->has_flush ? SW_PMEM_BY_FLUSH : SW_PMEM_BY_READ;
    info->atomic_publish = p->has_atomic;
    /* A READ brings bytes to the processors, but not through a page cache to a disk. */
    info->visible = !p->has_flush || region->flags & PMF_VISIBLE;
    info->persistent =
        p->has_flush ? region->flags & PMF_PERSISTENT : region->kind >= SW_PMEM_DAX_FILE;
    info->ranges_count = p->answer.count;
    for (uint32_t i = 0; i < p->answer.count; i++) {
        p->ranges[i] = p->answer.ranges[i];
        info->ranges[i] = (struct sw_pmem_range){.offset = p->ranges[i].offset,
                                                 .bytes = p->ranges[i].bytes,
                                                 .rights = p->ranges[i].rights};
    }
}

void pmc_live(struct sw_pmem *p)
{
    const struct pmf_region *region = &p->answer.regions[0];
    if (p->asks == PMF_OPEN) {
        if (p->info.session &&
            (memcmp(p->info.identity, region->identity, 16) || p->info.bytes != region->bytes))
            return pmc_lost(p, SW_PMEM_OTHER_REGION,
                            "%s now serves another region under the name \"%s\"", p->where,
                            region->name);
        take_region(p);
    }
    p->stage = PMC_UP;
    p->state = SW_PMEM_LIVE;
    pmc_post_waiting(p);
}

enum sw_pmem_state sw_pmem_state_of(const struct sw_pmem *p)
{
    return mover_is_forked(&p->guard) ? SW_PMEM_DEAD : p->state;
}

void sw_pmem_last_error(const struct sw_pmem *p, struct sw_pmem_error *error)
{
    *error = p->error;
    if (mover_is_forked(&p->guard))
        pmc_fail(error, SW_PMEM_FORKED, "%s", sw_pmem_status_text(SW_PMEM_FORKED));
}

void sw_pmem_info_of(const struct sw_pmem *p, struct sw_pmem_info *info)
{
    *info = p->info;
}

uint64_t sw_pmem_session(const struct sw_pmem *p)
{
    return p->info.session;
}
