/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control socket between two processes (SEQPACKET). First each proves that it may look into
 * the other (proof.h). Then, from client to owner:
 *  - ATTACH{slot, nonce}
 *    is answered by WELCOME{nonce, inbox address} + tables, inbox, doorbell
 *  - SEGMENT_GET{id}
 *    is answered by SEGMENT{id, offset, length} + descriptor (none: refused)
 *  - JOIN{join}
 *    is answered by JOINED{join} (lane.h)
 *  - HOLD{hold}, instead of ATTACH: hold.h
 *  - SURVEY{id: interface index}, instead of ATTACH
 *    is answered by a struct sw_survey_answer (survey.h) and the end of the connection
 *  - CONNECTIONS{id: where to begin}, instead of ATTACH
 *    is answered by a struct sw_connections_answer (survey.h) and the end of the connection
 *
 * and from the owner at any time SEGMENT_GONE{id}. Everything received is checked for size and
 * kind; anything unexpected ends the connection.
 */
#ifndef SW_LINK_DIRECT_PROCESS_CONTROL_H
#define SW_LINK_DIRECT_PROCESS_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "device/rules/pub.h"

enum sw_message_type {
    SW_MESSAGE_ATTACH = 1,
    SW_MESSAGE_WELCOME,
    SW_MESSAGE_SEGMENT_GET,
    SW_MESSAGE_SEGMENT,
    SW_MESSAGE_SEGMENT_GONE,
    SW_MESSAGE_SURVEY,
    SW_MESSAGE_JOIN,
    SW_MESSAGE_JOINED,
    SW_MESSAGE_HOLD,
    SW_MESSAGE_CONNECTIONS
};

/* From an initiator's engine to that of an SRQ's owner, and back with `stand_in` filled. */
struct sw_join {
    uint32_t initiator, target, srq_num; /* numbers */
    uint32_t block, token;               /* for the answers, in the initiator's inbox */
    uint32_t stand_in;                   /* 0: refused */
    uint32_t min_rnr_timer;
    uint32_t pad;
};

struct sw_message {
    uint32_t type;
    uint32_t version;
    union {
        struct {
            uint64_t nonce;
            uint32_t slot;
            uint32_t id;
            uint64_t offset; /* WELCOME: the inbox's address in its owner */
            uint64_t len_bytes;
        };
        struct sw_join join;
        struct {
            struct sw_pub_domain domain;
            uint64_t number; /* of the call, for its answer */
            uint32_t qpn;
        } hold;
    };
};

enum { SW_CONTROL_FDS = 3 }; /* the most that a message brings */

/* 0 or a negative errno. */
int sw_control_send(int socket, const struct sw_message *message, const int *fds, size_t count);
/* Returns 1 for a message, 0 when there is none now, -1 at the end of the connection. fds are -1
 * where not sent. */
int sw_control_receive(int socket, struct sw_message *message, int fds[SW_CONTROL_FDS]);
void sw_control_close_fds(int fds[SW_CONTROL_FDS]);

#endif
