/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tells systemd how far a server is, where it has asked to be told (Type=notify): sd_notify(3),
 * whose protocol is a datagram to $NOTIFY_SOCKET. libsystemd is not used for that, as its page
 * recommends: it would bring half a dozen libraries into each server.
 */
#ifndef SW_MOVERS_NOTIFY_H
#define SW_MOVERS_NOTIFY_H

/* It serves. */
void mover_notify_ready(void);
/* It reads its configuration again; mover_notify_ready() ends that. */
void mover_notify_reloading(void);
/* It is ending. */
void mover_notify_stopping(void);

#endif
