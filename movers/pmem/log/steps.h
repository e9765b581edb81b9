/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the machine say to each other. */
#ifndef SW_MOVERS_PMEM_LOG_STEPS_H
#define SW_MOVERS_PMEM_LOG_STEPS_H

#include "pmem/log/machine.h"

/* Defined in queue.c. A group's requests are pushed first, then the group: its last request
 * signals. */
void pml_push(struct pml_copy *copy, const struct pml_op *op);
void pml_push_ring(struct pml_log *log, struct pml_copy *copy, enum pml_verb verb,
                   uint64_t position, uint64_t len, uint8_t *data);
void pml_push_group(struct pml_copy *copy, enum pml_purpose purpose, uint8_t for_copy,
                    uint64_t position);
bool pml_has_room(const struct pml_copy *copy);
void pml_push_flush_all(struct pml_log *log, struct pml_copy *copy);
void pml_push_slot(struct pml_log *log, struct pml_copy *copy, enum pml_purpose purpose);

/* Defined in recover.c. */
void pml_control_done(struct pml_log *log, unsigned copy);
void pml_scan_done(struct pml_log *log, unsigned copy, uint64_t len);
bool pml_confirms_head(const struct pml_copy *best, const struct pml_mark *head);
void pml_recover_step(struct pml_log *log);
void pml_condemn(struct pml_copy *copy, enum pml_verdict verdict);
void pml_copy_gone(struct pml_log *log, enum pml_copy_state was);

/* Defined in catch_up.c. */
void pml_match_done(struct pml_log *log, unsigned copy);
void pml_reset_done(struct pml_log *log, unsigned copy);
void pml_fetch_done(struct pml_log *log, unsigned source, unsigned copy, uint64_t len);
void pml_catch_up_step(struct pml_log *log, unsigned copy);
void pml_settle_done(struct pml_log *log, unsigned copy);

/* Defined in append.c. */
void pml_append_step(struct pml_log *log, unsigned copy);
void pml_count_quorum(struct pml_log *log);
void pml_end_pending(struct pml_log *log, enum pml_status status);
uint64_t pml_stage_low(const struct pml_log *log);

#endif
