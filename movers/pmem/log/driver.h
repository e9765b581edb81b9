/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of the log on regions of persistent memory: a handle of the client for each copy. */
#ifndef SW_MOVERS_PMEM_LOG_DRIVER_H
#define SW_MOVERS_PMEM_LOG_DRIVER_H

#include "common/rdma/fork_guard.h"
#include "pmem/log/machine.h"
#include "sidewire/pmem_log.h"

struct sw_pmem_log;

struct pml_link {
    struct sw_pmem_log *log;
    unsigned copy;
    struct sw_pmem *pmem;
    struct sw_pmem_mem *mem;
    bool is_found;    /* the machine knows it */
    bool is_failing;  /* a chain failed: wait for the results of the others */
    uint64_t session; /* in which it was found */
    unsigned under_way;
    struct sw_pmem_op ops[SW_PMEM_CHAIN_MAX]; /* of the group that is being put together */
    unsigned ops_count;
    bool is_complete; /* and may be posted */
};

struct sw_pmem_log {
    struct mover_fork_guard guard; /* nothing of it goes on in a child */
    struct pml_log machine;
    struct sw_pmem_log_options options;
    struct pml_link links[PML_COPIES_MAX];
    uint8_t *memory, *read_buffer; /* the second is a part of the first */
    uint64_t memory_bytes;
    bool is_reading, read_failed;
    unsigned read_from; /* which copy */
    unsigned turn;      /* whom wait sleeps on */
};

/* Defined in driver.c. */
void pml_drive(struct sw_pmem_log *log);
void pml_sleep(struct sw_pmem_log *log);
bool pml_is_over(uint64_t deadline_ns);

#endif
