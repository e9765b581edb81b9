/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A second process of the same program: CUDA does not survive fork(), so it is executed anew, with
 * its role as the first argument and a socket as descriptor PEER_SOCKET. It is killed when its
 * parent dies.
 */
#ifndef GPU_COMMON_PEER_H
#define GPU_COMMON_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/common/driver.h"

enum { PEER_SOCKET = 3, PEER_NUMBERS = 8 };

struct peer {
    pid_t pid;
    int socket;
};

struct peer_note {
    int32_t code;
    uint64_t number[PEER_NUMBERS];
    struct gpu_handle handle;
};

/* Ends the program if it cannot. */
void peer_start(struct peer *peer, const char *role);

/* `fd`: a descriptor that goes with the note, or -1. */
void peer_send(int socket, const struct peer_note *note, int fd);

/* False when the other side is gone, or after 20 s. `fd` is -1 if none came; it may be NULL. */
bool peer_receive(int socket, struct peer_note *note, int *fd);

/* Receives, or ends the program. */
void peer_expect(int socket, struct peer_note *note, int *fd);

/* Sends the signal, if it is not 0, and waits. Gives how it ended, as waitpid() does. */
int peer_end(struct peer *peer, int signal);

#endif
