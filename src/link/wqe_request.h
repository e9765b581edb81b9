/* SPDX-License-Identifier: BSD-2-Clause */
/* A request of a send queue as the machines of transport/ want it. */
#ifndef SW_LINK_WQE_REQUEST_H
#define SW_LINK_WQE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/request.h"

struct sw_qp;
struct sw_wqe;

/* Fills all of *out. */
void sw_request_of_wqe(const struct sw_wqe *wqe, struct sw_request *out);
/* Adds what travels with it and lies elsewhere: the range of a FLUSH, the word of an ATOMIC WRITE.
 * False: that is not there any more. */
bool sw_request_complete(struct sw_qp *qp, uint32_t position, struct sw_request *request);

/* Whether the keys of its local elements are good: looked at before anything of it is sent. */
bool sw_wqe_has_good_keys(struct sw_qp *qp, uint32_t position);

#endif
