/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of the machine become chains of the client; results of chains become its events. */
#include "pmem/log/driver.h"

#include <assert.h>
#include <string.h>
#include <time.h>

enum { NAP_MS = 1 };

static void driver_end_chain(void *arg, const struct sw_pmem_result *result)
{
    struct pml_link *link = arg;
    assert(link->under_way);
    link->under_way--;
    if (link->is_failing)
        return;
    if (result->status != SW_PMEM_OK || result->session != link->session)
        link->is_failing = true;
    else
        pml_done(&link->log->machine, link->copy);
}

static void put_op(struct pml_link *link, const struct pml_op *op)
{
    struct sw_pmem_op *to = &link->ops[link->ops_count++];
    memset(to, 0, sizeof(*to));
    to->offset = op->offset;
    to->bytes = op->len_bytes;
    switch (op->verb) {
    case PML_READ:
    case PML_WRITE:
        to->opcode = op->verb == PML_READ ? SW_PMEM_OP_READ : SW_PMEM_OP_WRITE;
        to->pieces[0] = (struct sw_pmem_piece){op->data, (uint32_t)op->len_bytes, link->mem};
        to->pieces_count = 1;
        break;
    case PML_FLUSH:
        to->opcode = SW_PMEM_OP_FLUSH;
        to->flush =
            link->log->options.visible_only ? SW_PMEM_FLUSH_VISIBLE : SW_PMEM_FLUSH_PERSISTENT;
        break;
    case PML_PUBLISH:
        to->opcode = SW_PMEM_OP_PUBLISH;
        to->value = op->word;
        break;
    }
    link->is_complete = op->signals;
}

/* False: nothing was posted. */
static bool post_chain(struct pml_link *link)
{
    if (!link->is_complete || link->is_failing)
        return false;
    const struct sw_pmem_chain chain = {.ops = link->ops,
                                        .count = link->ops_count,
                                        .session = link->session,
                                        .done = driver_end_chain,
                                        .arg = link};
    const enum sw_pmem_status status = sw_pmem_post(link->pmem, &chain);
    if (status == SW_PMEM_AGAIN)
        return false;
    link->is_failing = status != SW_PMEM_OK;
    link->under_way += status == SW_PMEM_OK;
    link->ops_count = 0;
    link->is_complete = false;
    return true;
}

/* Takes requests until the machine has none, or one of them has to wait for its queue. */
static void post_all(struct sw_pmem_log *log)
{
    struct pml_op op;
    const unsigned copies = log->machine.config.geometry.copies;
    for (;;) {
        for (unsigned i = 0; i < copies; i++)
            if (log->links[i].is_complete && !log->links[i].is_failing &&
                !post_chain(&log->links[i]))
                return;
        if (!pml_next(&log->machine, &op))
            return;
        if (!log->links[op.copy].is_failing)
            put_op(&log->links[op.copy], &op);
    }
}

static void watch_link(struct pml_link *link)
{
    struct sw_pmem_log *log = link->log;
    sw_pmem_poll(link->pmem);
    const bool is_live = sw_pmem_state_of(link->pmem) == SW_PMEM_LIVE;
    if (link->is_found && (!is_live || sw_pmem_session(link->pmem) != link->session))
        link->is_failing = true;
    /* All results are there: nothing touches the machine's memory any more. */
    if (link->is_found && link->is_failing && !link->under_way) {
        link->is_found = false;
        link->ops_count = 0;
        link->is_complete = false;
        pml_lost(&log->machine, link->copy);
    }
    if (link->is_found || !is_live || link->under_way)
        return;
    if (!link->mem &&
        sw_pmem_mem_register(link->pmem, log->memory, log->memory_bytes, &link->mem) != SW_PMEM_OK)
        return;
    link->session = sw_pmem_session(link->pmem);
    link->is_failing = false;
    link->is_found = true;
    pml_found(&log->machine, link->copy);
}

void pml_drive(struct sw_pmem_log *log)
{
    for (unsigned i = 0; i < log->machine.config.geometry.copies; i++)
        if (log->links[i].pmem)
            watch_link(&log->links[i]);
    post_all(log);
}

/* A short sleep on one of the copies that has something under way. */
void pml_sleep(struct sw_pmem_log *log)
{
    const unsigned copies = log->machine.config.geometry.copies;
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    for (unsigned i = 0; i < copies; i++) {
        struct pml_link *link = &log->links[(log->turn + i) % copies];
        if (!link->pmem || !link->under_way)
            continue;
        log->turn = (log->turn + i + 1) % copies;
        sw_pmem_wait(link->pmem, sw_pmem_deadline_ms(NAP_MS));
        return;
    }
    nanosleep(&nap, NULL);
}

bool pml_is_over(uint64_t deadline_ns)
{
    return sw_pmem_deadline_ms(0) >= deadline_ns;
}
