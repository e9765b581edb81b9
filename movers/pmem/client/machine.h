/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What decides in the client: which requests are posted and in which order, what counts as done,
 * and what is posted again after a connection was lost. It knows neither devices nor sockets: it
 * talks through a port, which tests replace by a simulated one.
 *
 * Chains lie in a ring: those up to `ended` are over, those up to `posted` have been given to the
 * port, those up to `tail` wait for their turn.
 */
#ifndef SW_MOVERS_PMEM_MACHINE_H
#define SW_MOVERS_PMEM_MACHINE_H

#include "common/rdma/fork_guard.h"
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

enum pmc_verb { PMC_READ, PMC_WRITE, PMC_FLUSH, PMC_ATOMIC_WRITE };

/* Where the bytes of a request are on this side. */
enum pmc_local {
    PMC_NOWHERE,
    PMC_PIECES, /* of the operation */
    PMC_SINK,   /* one byte that nobody looks at */
    PMC_VALUE,  /* the operation's eight bytes */
};

/* One operation, as it goes to the device. It holds until `post` returns. */
struct pmc_request {
    enum pmc_verb verb;
    enum pmc_local local;
    bool is_fenced; /* waits until all FLUSHes and READs before it are answered */
    bool signals;
    uint32_t key;
    uint64_t remote, bytes; /* an address of the server, and how many from there */
    uint64_t id;            /* of its completion: slot << 3 | operation */
    const struct sw_pmem_op *op;
};

/* How the machine talks. */
struct pmc_port {
    uint64_t (*now_ns)(void);
    /* Begins a connection. pmc_live() or pmc_lost() comes of it, at once or later. */
    void (*start)(struct sw_pmem *p);
    /* Ends it. Afterwards nothing touches local memory any more. */
    void (*end)(struct sw_pmem *p);
    /* False: none of them was taken. */
    bool (*post)(struct sw_pmem *p, const struct pmc_request *requests, uint32_t count);
};

struct sw_pmem {
    const struct pmc_port *port;
    struct mover_fork_guard guard; /* nothing of the machine goes on in a child */
    struct sw_pmem_options options;
    char where[300];
    enum pmf_type asks; /* for a region, or for the list or the counts instead */
    struct pmf_answer answer;

    enum sw_pmem_state state;
    struct sw_pmem_error error;
    struct sw_pmem_info info;
    uint8_t next_instance[16];
    struct pmf_range ranges[SW_PMEM_RANGES_MAX];
    uint64_t began_ns, lost_ns, link_deadline_ns, retry_ns;
    bool is_full;         /* the server, just now: set before pmc_lost() */
    uint32_t turned_away; /* for that, in a row */

    enum pmc_stage stage;
    bool has_flush, has_atomic; /* of the device */
    bool is_broken;             /* it takes nothing more: the next look at timers sees to it */
    bool flushed; /* in this session: a FLUSH may be under way when the next chain is posted */

    struct pmc_slot *slots;
    uint64_t ended, posted, tail;
    struct sw_pmem_result *results;
    uint64_t results_taken, results_tail;
    uint32_t ended_in_poll;
};

struct sw_pmem_mem {
    struct sw_pmem_mem *next, **at;       /* of its handle's; what leads to it */
    const struct mover_fork_guard *guard; /* the handle's */
    struct ibv_mr *mr;
    char *data;
    size_t bytes;
};

/* Makes room for chains: false where there is no memory. */
bool pmc_init(struct sw_pmem *p, const struct pmc_port *port,
              const struct sw_pmem_options *options);
void pmc_free(struct sw_pmem *p);
enum sw_pmem_status pmc_fail(struct sw_pmem_error *error, enum sw_pmem_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- state.c: live, lost, dead ---- */

/* Begins a connection. */
void pmc_connect(struct sw_pmem *p);
/* The server has answered: `answer`, `next_instance` and what the device has are set. */
void pmc_live(struct sw_pmem *p);
/* The connection is of no use any more: it is ended, and chains that had left are sorted out. */
void pmc_lost(struct sw_pmem *p, enum sw_pmem_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void pmc_dead(struct sw_pmem *p);
void pmc_timers(struct sw_pmem *p);

/* ---- chain.c ---- */

void pmc_post_waiting(struct sw_pmem *p);
/* The request with that `id` has completed; OK, or what the device says of it. */
void pmc_completed(struct sw_pmem *p, uint64_t id, enum sw_pmem_status status, const char *why);
void pmc_sort_out(struct sw_pmem *p);
void pmc_end_all(struct sw_pmem *p, enum sw_pmem_status status);

/* ---- request.c ---- */

/* What the right to an operation is, and which range it uses. */
enum sw_pmem_status pmc_check_op(const struct sw_pmem *p, const struct sw_pmem_op *op,
                                 struct pmf_range *range);
/* The chain as requests, in their order. */
void pmc_make_requests(const struct sw_pmem *p, const struct pmc_slot *slot,
                       struct pmc_request requests[SW_PMEM_CHAIN_MAX]);

#endif
