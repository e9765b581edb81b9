/* SPDX-License-Identifier: BSD-2-Clause */
/* A reader of a log: what follows it, and what tells of each copy, share this. */
#ifndef SW_MOVERS_PMEM_LOG_FOLLOW_H
#define SW_MOVERS_PMEM_LOG_FOLLOW_H

#include "common/rdma/fork_guard.h"
#include "pmem/log/reader.h"
#include "sidewire/pmem_log.h"

/* What the READs of one copy bring. */
struct follow_look {
    uint8_t before[PML_WORDS_BYTES], after[PML_WORDS_BYTES];
    uint8_t tail[8];
    uint8_t superblock[PML_LINE_BYTES];
    uint8_t control[PML_CONTROL_BYTES];
};

/* Where the READs of one copy go; what a slow one is still to bring is nobody else's. */
struct follow_memory {
    void *data;
    uint64_t bytes;
    struct sw_pmem_mem *mem;
};

struct follow_link {
    struct sw_pmem *pmem;
    struct follow_memory look_memory, chunk_memory;
    struct follow_look *look;
    uint8_t *chunk;
    bool is_busy, is_fine;
};

struct sw_pmem_log_reader {
    struct mover_fork_guard guard; /* nothing of it goes on in a child */
    struct sw_pmem_log_options options;
    struct pml_geometry geometry;
    struct pml_reader reader;
    struct follow_link links[PML_COPIES_MAX];
    uint64_t chunk_bytes;
    uint64_t acked;     /* up to where records were seen to be acknowledged: that does not end */
    uint64_t from, len; /* what of the log is in a chunk */
    unsigned source;    /* in which one */
    uint32_t foreign;   /* copies that are none of this log */
    uint32_t unseen;    /* copies that did not answer the last look */
    uint32_t damaged;   /* copies that had a wrong head, where no other had a right one */
};

/* Defined in follow.c. */
/* OK, or why no quorum of copies shows a log: `*out` is set then, too, and has to be closed. It is
 * NULL where no handle could be made. */
enum sw_pmem_log_status pml_follow_open(const struct sw_pmem_log_options *options,
                                        uint64_t deadline_ns, struct sw_pmem_error *error,
                                        struct sw_pmem_log_reader **out);
/* Posts a READ of a copy's control page; false: not now. */
bool pml_follow_ask_control(struct sw_pmem_log_reader *r, unsigned copy);
/* Its control page, which has been read, is none that a writer left. */
bool pml_follow_is_spoilt(const struct sw_pmem_log_reader *r, unsigned copy);
/* Up to where records are acknowledged: also by copies that have gone since. */
bool pml_follow_limit(struct sw_pmem_log_reader *r, uint64_t *limit);
void pml_follow_nap(struct sw_pmem_log_reader *r);

#endif
