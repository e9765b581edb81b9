/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sums of blocks, compared end to end: the side that moved the data asks the peer's agent for the
 * sums of what the peer's memory has now, and compares them with what its own memory has now.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_SUMS_H
#define SW_MOVERS_TRANSFER_ENGINE_SUMS_H

#include <stdint.h>

#include "sidewire/transfer.h"
#include "transfer/core/flow.h"
#include "transfer/wire/message.h"

/* The message that asks for these sums of the transfer, by the keys of a lane. Returns its length.
 */
uint32_t xfe_sums_ask(const struct sw_xfer_transfer *transfer, const struct xfc_step *step,
                      uint32_t lane, uint8_t *message);
/* Compares what was answered with what is here. OK, CORRUPT, or DENIED where it is no answer. */
enum sw_xfer_status xfe_sums_compare(struct xfc_plan *plan, const struct xfc_out *out,
                                     const uint8_t *message, uint32_t bytes);
/* What is asked of this side, from the `at`th sum on, until about so many bytes have been summed.
 * Returns the length of the answer; 0: there is more to do. */
uint32_t xfe_sums_answer(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t rail,
                         const uint8_t *message, const struct xfw_message *header, uint32_t *at,
                         uint64_t *left_bytes, uint8_t *answer);

#endif
