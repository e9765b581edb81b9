/* SPDX-License-Identifier: BSD-2-Clause */
/* The records of an operation, side by side. */
#ifndef SW_COLLECTIVES_COMPARE_H
#define SW_COLLECTIVES_COMPARE_H

#include "collectives/core/call.h"

/* Says what a rank was called with; `counts` of a plain call are hashed. */
void coll_record_of_call(struct coll_record *record, const struct sw_coll_call *call,
                         const struct coll_site *site, enum coll_plan plan);
/* What came from another rank names things that exist. */
bool coll_record_is_sane(const struct coll_record *record, uint32_t size);
bool coll_records_are_alike(const struct coll_record *one, const struct coll_record *other);
/* The lowest rank whose record is not like that of rank 0, and what differs. There is one. */
void coll_mismatch_text(const struct coll_record *records, uint32_t size, char *text, size_t room);
/* That rank, where its counts are what differs; else `size`. */
uint32_t coll_mismatch_of_counts(const struct coll_record *records, uint32_t size);
/* Which of them do: those of that rank, and those of rank 0. */
void coll_counts_text(const struct coll_record *records, uint32_t rank, const uint64_t *counts,
                      const uint64_t *first_counts, uint32_t size, char *text, size_t room);
/* What `verdict` of that rank's DONE says. */
void coll_verdict_text(uint32_t rank, const struct coll_record *verdict, char *text, size_t room);

#endif
