/* SPDX-License-Identifier: BSD-2-Clause */
/* The signals that end a server, or have it read its configuration again, by its loop. */
#ifndef SW_MOVERS_SIGNALS_H
#define SW_MOVERS_SIGNALS_H

#include <stddef.h>

#include "common/serve/loop.h"

struct mover_signals {
    /* The caller sets these three; each may be NULL. */
    void (*stop)(void *context);   /* SIGINT or SIGTERM came; NULL: mover_loop_stop() */
    void (*reload)(void *context); /* SIGHUP came; NULL: that ends the process, as always */
    void *context;
    struct mover_loop *loop;
    struct mover_watch watch;
};

/* From here on these signals no longer end the process, but are the loop's. SIGPIPE does nothing: a
 * line about a stranger would end a server whose log nobody reads any more. Before other threads
 * start, which block what their maker blocks. 0, or a negative errno and what is wrong: then
 * signals do what they did before. */
int mover_signals_open(struct mover_signals *signals, struct mover_loop *loop, char *error,
                       size_t error_bytes);
/* They stay blocked: one that comes now ends nothing. */
void mover_signals_close(struct mover_signals *signals);

#endif
