/* SPDX-License-Identifier: BSD-2-Clause */
/* A handle: the machine that decides, and the RDMA device that it talks through. */
#ifndef SW_MOVERS_PMEM_CLIENT_H
#define SW_MOVERS_PMEM_CLIENT_H

#include "common/rdma/connection.h"
#include "pmem/client/machine.h"

struct pmc_link {
    struct mover_connection connection;
    struct ibv_qp_ex *qpx; /* NULL: of the plain kind */
};

/* Memory that the device reads and writes for the library itself. */
struct pmc_scratch {
    uint8_t request[PMF_REQUEST_MAX];
    uint8_t answer[PMF_ANSWER_MAX];
    uint64_t sink;     /* of READs that take the place of FLUSHes */
    uint64_t values[]; /* to publish, one for each operation of each slot */
};

struct pmc_client {
    struct sw_pmem pmem; /* first: a handle is both */
    struct sockaddr_storage address;
    char region[PMF_NAME_BYTES], label[PMF_NAME_BYTES];
    struct pmc_link link;
    int epoll_fd;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_mr *scratch_mr;
    struct sw_pmem_mem *mems; /* that the caller has not released */
    struct pmc_scratch *scratch;
    size_t scratch_bytes;
    uint32_t polls;
};

static inline struct pmc_client *pmc_client_of(struct sw_pmem *p)
{
    return (struct pmc_client *)p;
}

/* ---- link.c: what this protocol says on a connection ---- */

void pmc_link_start(struct sw_pmem *p);
void pmc_link_events(struct pmc_client *c);
void pmc_link_end(struct sw_pmem *p);
/* The SEND of the first request is over, or the answer is there. */
void pmc_link_completion(struct pmc_client *c, const struct ibv_wc *wc);

/* ---- post.c: requests as the device takes them ---- */

bool pmc_post(struct sw_pmem *p, const struct pmc_request *requests, uint32_t count);
void pmc_chain_completion(struct pmc_client *c, const struct ibv_wc *wc);

enum { PMC_CONTROL_WR = 1 << 15 }; /* wr_id of control messages; those of chains are below it */

#endif
