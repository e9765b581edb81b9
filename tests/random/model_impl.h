/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the reference model share. */
#ifndef SW_TESTS_INTEGRITY_MODEL_IMPL_H
#define SW_TESTS_INTEGRITY_MODEL_IMPL_H

#include "model.h"

struct model_expect *model_expect(struct model_queue *queue, uint64_t wr_id,
                                  enum ibv_wc_status status);
uint32_t model_total(const struct model_sge *sges, int count);
void model_gather(const struct model *model, int proc, const struct model_op *op, uint8_t *to);
/* The message from its byte `skip` on, which goes to byte `skip` of the elements. */
void model_scatter(struct model *model, int proc, const struct model_sge *sges, int count,
                   uint32_t skip, const uint8_t *from, uint32_t len);
/* Whether the local keys of a request are good; those of the elements that a message of this length
 * reaches. */
bool model_sources_reach(const struct model *model, int proc, const struct model_op *op);
bool model_receivable(const struct model *model, int proc, const struct model_recv *recv,
                      uint32_t len);
struct model_recv model_take(struct model_end *end);
void model_delivered(struct model_expect *one, const struct model_op *op);
/* Takes a receive of an SRQ that has one, for `len` bytes of data (NULL: none). */
struct model_expect *model_take_srq(struct model *model, struct model_end *to, enum srq srq,
                                    const uint8_t *data, uint32_t len);
/* Whether a request may be posted, and what is reported of it if not nothing. */
int model_admit(const struct model_end *from, const struct model_op *op);
bool model_report(struct model_end *from, const struct model_op *op, enum ibv_wc_status status);

#endif
