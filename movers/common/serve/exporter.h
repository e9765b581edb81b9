/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hands out a server's metrics without being asked by the control socket: to Prometheus by HTTP, at
 * an address of their own, and to the textfile collector of node_exporter as a file, which is
 * written every 15 s and is gone when the server has ended. Both are the loop's.
 *
 * HTTP is libmicrohttpd's, without threads. Anybody who reaches the address may read: it has
 * connections enough for a few collectors, of which an address has a share, and lets go of silent
 * ones.
 */
#ifndef SW_MOVERS_EXPORTER_H
#define SW_MOVERS_EXPORTER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/serve/control.h"
#include "common/serve/loop.h"

struct MHD_Daemon;

struct mover_exporter {
    struct mover_control_setup source; /* whose status and metrics they are */
    struct mover_loop *loop;
    struct mover_watch http, timer;
    struct MHD_Daemon *daemon;
    const char *file;
    bool is_file_bad; /* it was told */
};

/* `address` is ADDR[:PORT], and is cut in place; it and `file` may be NULL. Returns 0, or a
 * negative errno with `error` saying what is wrong; closing it does nothing then. */
int mover_exporter_open(struct mover_exporter *exporter, struct mover_loop *loop,
                        const struct mover_control_setup *source, char *address, const char *file,
                        char *error, size_t error_bytes);
void mover_exporter_close(struct mover_exporter *exporter);

#endif
