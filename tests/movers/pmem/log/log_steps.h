/* SPDX-License-Identifier: BSD-2-Clause */
/* A log on the client without a network: what tests of writers and of readers do with it. */
#ifndef SW_TEST_PMEM_LOG_STEPS_H
#define SW_TEST_PMEM_LOG_STEPS_H

#include "fake_pmem.h"

enum { RECORD_BYTES = 200, RING_BYTES = 4096, WAIT_MS = 10000, SHORT_MS = 20 };

extern struct sw_pmem_log_options options;

/* A deadline that does not come. */
uint64_t soon(void);
/* A setup: a new log on all regions. */
int create_log(void **state);
struct sw_pmem_log *open_log(void);
/* "record NUMBER" */
void append(struct sw_pmem_log *log, unsigned number);
/* The log has the records from `first` on, up to and without `end`. */
void expect_records(struct sw_pmem_log *log, unsigned first, unsigned end);
void wait_all_live(struct sw_pmem_log *log);
/* Slots, and what a quorum did not wait for. */
void write_behind(struct sw_pmem_log *log);
struct sw_pmem_log_reader *open_reader(void);
/* What it reads is the record that comes next. */
enum sw_pmem_log_status read_next(struct sw_pmem_log_reader *reader, struct sw_pmem_log_mark *mark,
                                  unsigned wait_ms);

#endif
