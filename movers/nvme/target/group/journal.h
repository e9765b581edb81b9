/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log of a group: a thread that may wait for it. Orders go in and results come out, in their
 * order; those of orders before the newest OPEN, READ or CLOSE are dropped. One thread gives the
 * orders, and takes the results.
 */
#ifndef SW_MOVERS_NVME_GROUP_JOURNAL_H
#define SW_MOVERS_NVME_GROUP_JOURNAL_H

#include <pthread.h>

#include "common/base/list.h"
#include "nvme/target/group/machine.h"
#include "sidewire/pmem_log.h"

enum { NVG_ORDERS = 8 };

enum nvg_order_kind { NVG_ORDER_READ, NVG_ORDER_OPEN, NVG_ORDER_APPEND, NVG_ORDER_TRIM };

struct nvg_order {
    enum nvg_order_kind kind;
    uint64_t generation;
    uint16_t bytes;
    uint8_t record[NVG_RECORD_MAX];
};

/* Records that were read, or an event. */
struct nvg_journal_result {
    struct list_node node;
    uint64_t generation;
    bool is_event;
    struct nvg_journal_event event;
    uint16_t bytes;
    uint8_t record[NVG_RECORD_MAX];
};

struct nvg_journal {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int event_fd; /* readable while there are results */
    /* Under the lock. */
    bool is_over;
    uint64_t generation;
    uint32_t first, count;
    struct nvg_order orders[NVG_ORDERS];
    struct list results;
    uint8_t copy_states[NVG_COPIES_MAX];
    /* The thread's. */
    struct sw_pmem_log *log;
    uint64_t log_generation;
    bool is_known;    /* it has been read, or opened */
    bool has_records; /* so all its copies were made */
    uint32_t tries;   /* to make it */
    bool has_quorum, has_begin;
    struct sw_pmem_log_mark end, begin; /* behind the newest append; before the newest BEGIN */
    struct nvg_order order;
    struct sw_pmem_options copies[NVG_COPIES_MAX];
    struct sw_pmem_log_options options;
    char texts[NVG_COPIES_MAX][3][NVG_ADDRESS_BYTES]; /* address, port, region */
    char label[NVG_NAME_BYTES + 16];
};

/* 0, or a negative errno. */
int nvg_journal_start(struct nvg_journal *journal, const struct nvg_settings *settings);
void nvg_journal_order(struct nvg_journal *journal, enum nvg_order_kind kind, const uint8_t *record,
                       size_t bytes);
void nvg_journal_close_log(struct nvg_journal *journal);
/* The next result, which the caller frees; NULL: there is none for now. */
struct nvg_journal_result *nvg_journal_next(struct nvg_journal *journal);
void nvg_journal_states(struct nvg_journal *journal, uint8_t states[NVG_COPIES_MAX]);
void nvg_journal_end(struct nvg_journal *journal);

#endif
