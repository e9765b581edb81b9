/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Non-blocking calls. One is begun when MPI's is called, goes on whenever somebody looks, and ends
 * where MPI completes its request. MPI wants that it goes on whatever this rank does meanwhile: so
 * its progress engine looks, or a thread does where that calls nobody (MPICH).
 *
 * A communicator opens by a blocking call, as all ranks have to come for that. Before, non-blocking
 * calls are MPI's.
 */
#ifndef SW_BINDINGS_MPI_LATER_H
#define SW_BINDINGS_MPI_LATER_H

#include "call.h"

struct mpm_later;

/* As mpm_run(), but MPM_DONE means that it has begun. */
enum mpm_outcome mpm_later_begin(struct mpm_group *group, const struct mpm_call *call,
                                 struct sw_coll_error *error, struct mpm_later **later);
/* Goes on with all that have begun, unless another thread does so. */
void mpm_later_look(void);
/* The operation has ended; mpm_later_end() is left to do. */
bool mpm_later_is_over(const struct mpm_later *later);
/* Results go to their places, and it is freed. False: it has failed, with the error. Before it is
 * over it may not be called. */
bool mpm_later_end(struct mpm_later *later, struct sw_coll_error *error);
/* How many have begun and are not over. */
uint32_t mpm_later_count(void);
/* Waits until those of the group are over: all ranks have called them. */
void mpm_later_drain(struct mpm_group *group);

/* The group closes: a program has ended without them. */
void mpm_later_forget(struct mpm_group *group);

/* For calls that block: while others of their communicator are under way, only one thread at a time
 * may use that. */
void mpm_later_lock(void);
void mpm_later_unlock(void);

#endif
