/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a server is asked, and changed, while it serves: a socket in the file system, for its own
 * user and root. One message asks, one answers, both JSON objects:
 *
 *   {"command": "add", "namespaces": ["ram:64M"]}
 *   {"ok": true, "text": "namespace 2 ..."}
 *
 * A document, as the status, comes as a descriptor of a file beside the answer, since it may be
 * long. Each server knows "status", "stop" and, where it has names for its numbers, "metrics"; the
 * rest are its own. ask.h is the other end.
 */
#ifndef SW_MOVERS_CONTROL_H
#define SW_MOVERS_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/serve/control_folder.h"
#include "common/serve/loop.h"
#include "common/serve/metrics.h"

enum {
    MOVER_CONTROL_CLIENTS_MAX = 8,
    MOVER_CONTROL_MESSAGE_MAX = 65536,
    MOVER_ORDER_TEXT = 16384,
};

/* A request, while it is carried out. */
struct mover_order {
    void *context; /* of struct mover_control_setup */
    const json_t *request;
    char text[MOVER_ORDER_TEXT]; /* what is said of it: mover_order_say() */
};

/* One more line of the answer. */
void mover_order_say(struct mover_order *order, const char *line);

struct mover_control_command {
    const char *name;
    /* In the loop's thread; must not block. True: it is done; else the text says why not. */
    bool (*carry_out)(struct mover_order *order);
};

struct mover_control_setup {
    const char *mover; /* "nvme" */
    const char *path;  /* NULL: PID.sock in the folder of control_folder.h, which is made */
    void *context;
    /* What the server does and has counted: the control's to release. NULL: no memory. */
    json_t *(*status)(void *context);
    const struct mover_metric *metrics;           /* NULL: none */
    const char *metrics_port;                     /* of exporter.h, where none is said */
    const struct mover_control_command *commands; /* up to one without a name; NULL: none */
    void (*stop)(void *context);                  /* NULL: mover_loop_stop() */
};

struct mover_control;

struct mover_control_client {
    struct mover_watch watch; /* fd -1: nobody */
    struct mover_control *control;
};

struct mover_control {
    struct mover_control_setup setup;
    struct mover_loop *loop;
    struct mover_watch watch;
    struct mover_watch again; /* a time: without a descriptor for the next one nobody is let in */
    struct mover_control_client clients[MOVER_CONTROL_CLIENTS_MAX];
    unsigned next_client;
    char path[MOVER_CONTROL_PATH_MAX];
};

/* Listens. What the setup points to is the caller's until the control is closed. Returns 0, or a
 * negative errno with `error` saying what is wrong; closing it does nothing then. */
int mover_control_open(struct mover_control *control, struct mover_loop *loop,
                       const struct mover_control_setup *setup, char *error, size_t error_bytes);
/* Removes the socket, too. */
void mover_control_close(struct mover_control *control);

#endif
