/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is behind a handle. Chains lie in a ring: those up to `ended` are over, those up to `posted`
 * have been given to the queue pair, those up to `tail` wait for their turn.
 */
#ifndef SW_MOVERS_PMEM_CLIENT_H
#define SW_MOVERS_PMEM_CLIENT_H

#include <rdma/rdma_cma.h>

#include "pmem/wire/control.h"
#include "sidewire/pmem.h"

#define PMC_MS 1000000ull

enum pmc_stage { PMC_NONE, PMC_RESOLVING, PMC_ASKING, PMC_OPENING, PMC_UP };

struct pmc_slot {
    struct sw_pmem_op ops[SW_PMEM_CHAIN_MAX];
    struct pmf_range ranges[SW_PMEM_CHAIN_MAX]; /* that each uses */
    uint32_t count, flags;
    uint64_t session, posted_ns;
    sw_pmem_done *done;
    void *arg;
    bool has_left, is_over;
    enum sw_pmem_status failure; /* what the server's device said; OK: nothing */
    uint32_t failed;             /* of which operation */
};

struct pmc_link {
    enum pmc_stage stage;
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp_ex *qpx; /* NULL: of the plain kind */
    unsigned channel_events;
    bool was_up, has_flush, has_atomic;
    struct ibv_wc stash; /* seen by arm, for poll */
    bool has_stash;
    bool is_broken; /* the device takes nothing more: the next poll sees to it */
};

/* Memory that the device reads and writes for the library itself. */
struct pmc_scratch {
    uint8_t request[PMF_REQUEST_MAX];
    uint8_t answer[PMF_ANSWER_MAX];
    uint64_t sink;     /* of READs that take the place of FLUSHes */
    uint64_t values[]; /* to publish, one for each operation of each slot */
};

struct sw_pmem {
    struct sw_pmem_options options;
    struct sockaddr_storage address;
    char where[300], region[PMF_NAME_BYTES], label[PMF_NAME_BYTES];
    bool is_listing; /* asks for the list instead */
    struct pmf_answer answer;

    enum sw_pmem_state state;
    struct sw_pmem_error error;
    struct sw_pmem_info info;
    uint8_t next_instance[16];
    struct pmf_range ranges[SW_PMEM_RANGES_MAX];
    uint64_t lost_ns, link_deadline_ns, retry_ns;

    struct pmc_link link;
    int epoll_fd;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_mr *scratch_mr;
    struct pmc_scratch *scratch;
    size_t scratch_bytes;

    struct pmc_slot *slots;
    uint64_t ended, posted, tail;
    struct sw_pmem_result *results;
    uint64_t results_taken, results_tail;
    uint32_t ended_in_poll, polls;
};

struct sw_pmem_mem {
    struct ibv_mr *mr;
    char *data;
    size_t bytes;
};

uint64_t pmc_now_ns(void);
enum sw_pmem_status pmc_fail(struct sw_pmem_error *error, enum sw_pmem_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- link.c: a connection, driven by events; nobody waits in it ---- */

void pmc_link_start(struct sw_pmem *p);
void pmc_link_events(struct sw_pmem *p);
void pmc_link_destroy(struct sw_pmem *p);
/* The SEND of the first request is over, or the answer is there. */
void pmc_link_completion(struct sw_pmem *p, const struct ibv_wc *wc);

/* ---- state.c ---- */

/* The connection is of no use any more: it is destroyed, and chains that had left are sorted
 * out. */
void pmc_lost(struct sw_pmem *p, enum sw_pmem_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void pmc_dead(struct sw_pmem *p);
void pmc_live(struct sw_pmem *p);
void pmc_timers(struct sw_pmem *p);

/* ---- chain.c ---- */

void pmc_post_waiting(struct sw_pmem *p);
void pmc_end_chain(struct sw_pmem *p, struct pmc_slot *slot, enum sw_pmem_status status,
                   uint32_t failed);
void pmc_chain_completion(struct sw_pmem *p, const struct ibv_wc *wc);
void pmc_sort_out(struct sw_pmem *p);
void pmc_end_all(struct sw_pmem *p, enum sw_pmem_status status);

enum { PMC_CONTROL_WR = 1 << 15 }; /* wr_id of control messages; chains: slot << 3 | operation */

#endif
