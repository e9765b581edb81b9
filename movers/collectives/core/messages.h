/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine's messages: what it says by them, and what it makes of those of others. */
#ifndef SW_COLLECTIVES_MESSAGES_H
#define SW_COLLECTIVES_MESSAGES_H

#include "collectives/core/machine.h"

/* False: it waits, or has failed. */
bool coll_mail_step(struct coll_machine *machine, const struct coll_step *step);
bool coll_await_step(struct coll_machine *machine, const struct coll_step *step);
/* The operation has failed. Returns false. */
bool coll_fail_operation(struct coll_machine *machine, enum sw_coll_status status,
                         const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The operation has failed, since the connection has ended. Returns false. */
bool coll_lose_rank(struct coll_machine *machine, uint32_t rank);

#endif
