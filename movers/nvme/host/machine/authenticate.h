/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication of a queue, between Connect and its first other command. */
#ifndef SW_MOVERS_NVME_HOST_AUTHENTICATE_H
#define SW_MOVERS_NVME_HOST_AUTHENTICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/nvme.h"

/* Where the exchange of messages stands. The port says so. */
struct nvh_auth {
    bool is_under_way;
    bool sends;     /* the next message; else it is received */
    bool has_ended; /* there is no next one */
    bool has_failed;
    bool is_proof_false; /* the controller does not know its secret */
    bool is_their_word;  /* the controller says that this host has failed */
    const char *fault;   /* why it has failed */
    bool receives;       /* the command that is under way: the machine's */
};

/* Authenticates where dword 0 of Connect's completion asks for it. Then: nvh_queue_up(). */
void nvh_auth_start(struct sw_nvme_queue *queue, uint32_t connect_result);
void nvh_auth_stop(struct sw_nvme_queue *queue);
/* The peer ends the connection: says why, if the exchange is the reason. */
void nvh_auth_cut(struct sw_nvme_queue *queue);

#endif
