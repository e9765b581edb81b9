/* SPDX-License-Identifier: BSD-2-Clause */
/* Where rank 0 lets the others find it, as a launcher hands it on. */
#ifndef SW_COLLECTIVES_MEETING_H
#define SW_COLLECTIVES_MEETING_H

#include <stdbool.h>
#include <stddef.h>

#include "sidewire/coll.h"

enum { COLL_MEETING_BYTES = 160 };

/* "ADDR:PORT" with a free port of that address. The socket that has it stays open until this
 * process ends, so nobody gets it by chance; rank 0 may listen there, as neither minds the other.
 * NULL, or why there is none. */
const char *coll_meeting_reserve(const char *address, char *meet, size_t room);
/* 32 digits that nobody guesses; false: there are no random numbers. */
bool coll_meeting_draw_token(char *token, size_t room);

/* Rank 0 chooses place and token, and writes them as one word for the others. */
enum sw_coll_status coll_meeting_choose(struct sw_coll_launch *launch,
                                        char word[COLL_MEETING_BYTES], struct sw_coll_error *error);
/* The others read it. */
enum sw_coll_status coll_meeting_take(struct sw_coll_launch *launch, const char *word,
                                      struct sw_coll_error *error);

#endif
