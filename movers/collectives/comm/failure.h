/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a communicator ends. The first failure counts: this rank tells all others that it is
 * connected to, waits until they have it, and ends the connections, so that nothing touches buffers
 * any more. The others return the same words. After a death, and where all can go on without a rank
 * that is late, or after unlike calls, it is done otherwise: agreement.h.
 */
#ifndef SW_COLLECTIVES_FAILURE_H
#define SW_COLLECTIVES_FAILURE_H

#include "collectives/comm/comm.h"

/* Fills `error`, if there is one, and returns its status. */
enum sw_coll_status coll_say(struct sw_coll_error *error, enum sw_coll_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A line for the log of its options, or to standard error. */
void coll_log(const struct sw_coll_options *options, const char *line);

/* Notes why the communicator is of no use any more. coll_failure_end() does the rest, where nobody
 * is in the midst of something. */
void coll_fail(struct sw_coll *coll, enum sw_coll_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, of what only this rank has met: the text says which one. */
void coll_fail_here(struct sw_coll *coll, enum sw_coll_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An operation has failed, and ranks can go on: they agree on that, in these words. `judge`:
 * COLL_JUDGE_ALL, or a rank's. Those that are late are left out; NULL: none is. */
void coll_conclude(struct sw_coll *coll, uint32_t judge, enum sw_coll_status status,
                   const bool *is_late, const char *text);
/* Tells that one that it is left out. */
void coll_failure_tell_late(struct coll_peer *peer, const struct sw_coll_error *why);
/* A text of COLL_TEXT_BYTES that another rank has written, as it may be shown. */
void coll_failure_get_text(char *text, const uint8_t *said);
/* Looks whether another rank has ended it all, or agrees with others on who is gone. */
bool coll_failure_is_told(struct sw_coll *coll);
/* Whether that one has ended it all. */
bool coll_failure_is_told_by(struct coll_peer *peer);
/* A word of another rank, or a lost connection, may end it all. Operations go on before that is
 * looked at: what they want may have come first. */
bool coll_failure_is_near(const struct sw_coll *coll);
/* The same as above, or a rank has died. */
void coll_failure_look(struct sw_coll *coll);
/* Tells the others, and ends the connections. Once. After a death it goes on with the agreement, as
 * far as it can now; then connections stay. */
void coll_failure_end(struct sw_coll *coll);
/* Waits until that is done. */
void coll_failure_await(struct sw_coll *coll);
/* Waits until the peers have what was posted: 5 s at most, half a second for those that are absent
 * when all ends, and less for those that end, too. */
void coll_failure_flush(struct sw_coll *coll);

#endif
