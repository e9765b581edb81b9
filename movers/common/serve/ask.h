/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end of control.h: finds a server of this host that runs, and asks it. */
#ifndef SW_MOVERS_ASK_H
#define SW_MOVERS_ASK_H

#include <jansson.h>
#include <stdbool.h>

/* Which server is meant, and how it is spoken of on standard error. */
struct mover_ask {
    const char *mover;   /* "nvme": as in struct mover_control_setup */
    const char *command; /* "nvme target status", for messages */
    const char *noun;    /* "target" */
    const char *start;   /* "sidewire nvme target --namespace ram:64M": what starts one */
    const char *path;    /* its socket; NULL: one of the user's folder, or the system's */
    const char *pid;     /* its number, if there are several; NULL: the only one */
};

/* Asks for that, and takes what was answered, the caller's to free(): a document where one came,
 * else the lines that the server has said. NULL: standard error was told why there is none. A
 * server has 10 s to let the asker in, and 10 s to answer. Takes the request. A server of another
 * user is told nothing; root may ask any. */
char *mover_ask(const struct mover_ask *ask, json_t *request);
/* The same, with a command and no more: "status". */
char *mover_ask_command(const struct mover_ask *ask, const char *command);

/* Has the server end, and waits up to a minute until its process is gone. Returns that process's
 * number, or -1: standard error was told why it is not gone, or that nobody can see whether it is.
 */
int mover_ask_stop(const struct mover_ask *ask);

#endif
