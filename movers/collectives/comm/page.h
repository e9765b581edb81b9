/* SPDX-License-Identifier: BSD-2-Clause */
/* The page that `sidewire coll status` reads. A communicator does without where it cannot be made.
 */
#ifndef SW_COLLECTIVES_COMM_PAGE_H
#define SW_COLLECTIVES_COMM_PAGE_H

#include "collectives/comm/comm.h"

/* `parent`: which it was made of, or NULL. */
void coll_page_open(struct sw_coll *coll, const struct sw_coll *parent);
/* `is_child`: it is the parent's. */
void coll_page_close(struct sw_coll *coll, bool is_child);
/* A page of this process: to open and close its file would give its lock away. */
bool coll_page_is_own(uint64_t job, uint32_t rank);
/* Others see it no more; this rank still has it. */
void coll_page_hide(struct sw_coll *coll);
/* The communicator is about to fail: keeps what is awaited. Once. */
void coll_page_freeze(struct sw_coll *coll);
/* How it has failed. */
void coll_page_note_failure(struct sw_coll *coll);
/* What is awaited now; looks closer than each 20 us only if `is_sure`. */
void coll_page_refresh(struct sw_coll *coll, uint64_t now_ns, bool is_sure);
/* No message is under way any more. */
void coll_page_rest(struct sw_coll *coll);

/* An operation begins, and ends: some plain stores, and no look at the clock. */
static inline void coll_page_begin(struct sw_coll *coll, const struct sw_coll_call *call)
{
    struct coll_page *page = coll->page;
    if (!page)
        return;
    coll_page_write_begin(page);
    page->state.number = coll->number;
    page->state.count = call->count;
    page->state.since_ns = 0;
    page->state.step = 0;
    page->state.kind = (uint8_t)call->kind;
    page->state.type = (uint8_t)call->type;
    page->state.activity = COLL_IN_OPERATION;
    page->state.is_waiting = false;
    coll_page_write_end(page);
}

static inline void coll_page_end(struct sw_coll *coll)
{
    if (coll->page)
        __atomic_store_n(&coll->page->ended, coll->ended, __ATOMIC_RELAXED);
}

#endif
