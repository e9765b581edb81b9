/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a rank shows of itself to `sidewire coll status`: a file that it maps and writes to by plain
 * stores, and that nobody else writes to. `sequence` is odd while it changes. The rank has a lock
 * on the file (fcntl) as long as it lives. Behind the page the file has what recorder.h says.
 */
#ifndef SW_COLLECTIVES_PAGE_H
#define SW_COLLECTIVES_PAGE_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "sidewire/coll.h"

#define COLL_PAGE_OFF "SIDEWIRE_COLL_STATUS" /* "off" in the environment: there is none */
#define COLL_PAGE_SUFFIX ".rank"

enum { COLL_PAGE_VERSION = 3, COLL_PAGE_MAGIC = 0x50435753 /* "SWCP" */ };

enum coll_activity {
    COLL_IN_OPERATION, /* or it has ended: then `ended` says so */
    COLL_IN_SEND,
    COLL_IN_RECV,
    COLL_IN_AGREEMENT, /* on which ranks are gone */
    COLL_IN_SHRINK,
    COLL_HAS_FAILED, /* it can only be shrunk, or closed */
    COLL_IN_OPENING, /* of another communicator, whose ranks are awaited by their numbers in this */
    COLL_ACTIVITIES,
};

struct coll_page_state {
    uint64_t number;  /* of the newest operation that has begun */
    uint64_t message; /* IN_SEND, IN_RECV: its number; the rest is the message's then */
    uint64_t count;
    uint64_t since_ns; /* CLOCK_MONOTONIC: it waits so since then; 0: nobody has looked yet */
    uint32_t step, steps;
    uint8_t kind, type, activity;
    uint8_t is_waiting; /* for those in `awaited`, a bit for each rank */
    uint8_t reserved[4];
    uint8_t awaited[SW_COLL_RANKS_MAX / 8];
    uint8_t blocking[SW_COLL_RANKS_MAX / 8]; /* those that the program itself waits for now */
};

/* What a dump tells of the communicator, so that its operations can be run again. */
struct coll_page_about {
    uint64_t host;          /* alike for all processes of a host, until it starts anew */
    uint64_t realtime_ns;   /* CLOCK_REALTIME when CLOCK_MONOTONIC was 0 */
    uint64_t scratch_bytes; /* these three are of struct coll_site */
    uint32_t eager_bytes, request_bytes;
    uint32_t wanted, order; /* enum coll_plan, enum sw_coll_order */
    uint32_t parent_rank;   /* this rank's in the parent */
    uint32_t timeout_ms;
    char host_name[64];
};

/* How it has failed, and what was awaited when it did. */
struct coll_page_failure {
    uint64_t failed_ns; /* 0: it has not */
    uint32_t status, reserved;
    char text[256];
    uint8_t gone[SW_COLL_RANKS_MAX / 8]; /* a bit for each rank that is known to be gone */
    struct coll_page_state state;        /* before */
};

struct coll_page {
    uint32_t magic, version;
    uint64_t job;    /* alike for all ranks of a communicator */
    uint64_t parent; /* the one that it was split or shrunk from; 0: none */
    uint32_t rank, size;
    uint32_t pid;
    uint32_t place; /* in the tree of a sum */
    uint64_t sequence;
    uint64_t ended; /* the newest operation that has ended */
    struct coll_page_state state;
    struct coll_page_about about;
    struct coll_page_failure failure;
};

static_assert(sizeof(struct coll_page) <= 4096, "one page");

static inline void coll_page_write_begin(struct coll_page *page)
{
    __atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void coll_page_write_end(struct coll_page *page)
{
    __atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELEASE);
}

/* False: it changes all the time. */
static inline bool coll_page_read(const struct coll_page *page, struct coll_page *copy)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        const uint64_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
        memcpy(copy, page, sizeof(*copy));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before & 1 || __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) != before)
            continue;
        /* Its end is one store, and leaves what it has waited for. */
        if (copy->state.activity == COLL_IN_OPERATION && copy->ended >= copy->state.number)
            copy->state.is_waiting = false;
        return true;
    }
    return false;
}

static inline bool coll_page_awaits(const struct coll_page *page, uint32_t rank)
{
    return page->state.is_waiting && page->state.awaited[rank / 8] & 1u << rank % 8;
}

/* The program itself waits for that rank, and can do nothing else meanwhile. */
static inline bool coll_page_blocks(const struct coll_page *page, uint32_t rank)
{
    return page->state.is_waiting && page->state.blocking[rank / 8] & 1u << rank % 8;
}

#endif
