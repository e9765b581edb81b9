/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of non-blocking calls: Open MPI's progress engine goes on with them, and ends them. */
#ifndef SW_BINDINGS_MPI_REQUEST_H
#define SW_BINDINGS_MPI_REQUEST_H

#include "module.h"

struct mpm_later;

/* Whether requests of this Open MPI are those that this was built for. */
bool mpo_requests_fit(void);
/* Whether a function of MPI's calls, by its return address, and not Open MPI by itself: what
 * MPI_Comm_idup() does in several steps comes at any time, and not in an order that is alike on all
 * ranks. */
bool mpo_is_of_program(const void *caller);
/* False: no memory; the call is lost then, and with it the communicator. */
bool mpo_request_make(struct mpm_later *later, struct ompi_communicator_t *communicator,
                      struct ompi_request_t **request);
/* At the end. */
void mpo_requests_end(void);

#endif
