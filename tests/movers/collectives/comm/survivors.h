/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks that outlive others: sums whose bits they know, and whether all that are left say the same.
 */
#ifndef SW_TESTS_MOVERS_COLLECTIVES_SURVIVORS_H
#define SW_TESTS_MOVERS_COLLECTIVES_SURVIVORS_H

#include "ranks.h"

/* FEW is one message; MANY is read from the others' buffers. */
enum { FEW = 3, MANY = 20000 };

/* An f32 sum of data that cancels. Its bits are compared with those of the order that is promised;
 * the sources have to be as they were, whatever its end. */
enum sw_coll_status sum_and_look(struct sw_coll *coll, uint32_t count, struct sw_coll_error *error);
/* The buffers of the last sums that failed: nothing has touched them since. */
void need_quiet_buffers(void);
/* Both sizes, and they end well. */
void sum_both_ways(struct rank *rank, struct sw_coll *coll);
/* True: all ranks have seen that flag. Where one has not, or it fails: false. */
bool is_time_to_end(struct sw_coll *coll, const struct ranks_shared *shared, uint32_t flag,
                    enum sw_coll_status *status, struct sw_coll_error *error);
/* Appends to the rank's text. */
void keep_words(struct rank *rank, const char *words);
void shrink_now(struct rank *rank, struct sw_coll *coll, struct sw_coll **shrunk);

/* Waits until all but those in the mask have ended, and leaves them to ranks_end(). */
void await_others(const struct ranks *ranks, uint32_t but);
/* All but those in the mask have the same words, which have that part, the same status, and the
 * same count. */
void expect_same(const struct ranks *ranks, uint32_t but, const char *part);

#endif
