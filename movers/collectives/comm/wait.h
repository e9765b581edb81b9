/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking, and sleeping when there is nothing: docs/collectives-protocol.md, "Sleep", says why
 * nothing is missed. */
#ifndef SW_COLLECTIVES_WAIT_H
#define SW_COLLECTIVES_WAIT_H

#include "collectives/comm/comm.h"

struct coll_waiting { /* all zero: it begins */
    uint32_t looks;
    bool is_tired; /* it has polled for long enough */
    uint64_t spin_until_ns, bells;
    uint64_t until_ns; /* it sleeps no longer; 0: as long as it likes */
    uint64_t now_ns;   /* when the clock was looked at last */
    bool is_wakeable;  /* by another thread, and by messages that are listened for */
};

/* Operations, as far as they can go by what is there. */
void coll_go_on(struct sw_coll *coll);
/* Completions, descriptors, deaths and deadlines, then operations. */
void coll_look(struct sw_coll *coll);
/* After coll_go_on() has not brought what is waited for: rests a little, or sleeps. */
void coll_wait_turn(struct sw_coll *coll, struct coll_waiting *waiting);
/* Descriptors: connections, the listener, timers. `timeout_ms`: how long it may sleep for them. */
void coll_take_events(struct sw_coll *coll, int timeout_ms);

#endif
