/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A played target for tests of the host: one thread, memory for a namespace, and whatever a
 * hostile target may do. It knows just enough of NVMe for a host to come up.
 */
#ifndef SW_TESTS_NVME_HOST_TARGET_H
#define SW_TESTS_NVME_HOST_TARGET_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAYED_BLOCK = 512, PLAYED_BLOCKS = 4096 };

enum mischief {
    MISCHIEF_NONE,
    /* on the answer to an I/O command */
    MISCHIEF_WRONG_CID,
    MISCHIEF_STALE_CID, /* the right slot, the wrong use of it */
    MISCHIEF_TWICE,
    MISCHIEF_SHORT,
    MISCHIEF_LONG,
    MISCHIEF_TOO_LONG, /* for the receive */
    MISCHIEF_HEAD_HUGE,
    MISCHIEF_HEAD_AHEAD,
    MISCHIEF_HEAD_FROZEN, /* sloppy, not hostile */
    MISCHIEF_STATUS,
    MISCHIEF_SILENT,
    MISCHIEF_CUT,     /* ends the connection after the command, before its answer */
    MISCHIEF_CUT_ALL, /* of the whole controller, silently by errors */
    /* on the way up */
    MISCHIEF_REFUSE,
    MISCHIEF_REFUSE_EMPTY,
    MISCHIEF_FORMAT,
    MISCHIEF_CONNECT_STATUS,
    MISCHIEF_AUTH, /* asks for authentication, and has none */
    MISCHIEF_CONCATENATION,
    MISCHIEF_AUTH_PROOF,   /* a wrong one */
    MISCHIEF_AUTH_STATUS,  /* of the first message */
    MISCHIEF_AUTH_GARBAGE, /* random messages */
    MISCHIEF_AUTH_CUT,     /* who has failed is cut off with the answer */
    MISCHIEF_NO_KEYED,
    MISCHIEF_NEVER_READY,
    MISCHIEF_FATAL,
    MISCHIEF_NO_CAPSULE,
    MISCHIEF_REFUSE_QUEUE, /* an I/O queue */
    MISCHIEF_KEEP_ALIVE,   /* has no answer */
    MISCHIEF_GARBAGE,      /* admin answers are random bytes */
};

struct played;

struct played *played_start(void);
void played_stop(struct played *target);
const char *played_port(const struct played *target);
/* Each queue has to authenticate. `controller` may be NULL. Before any host comes. */
void played_set_secrets(struct played *target, const char *host, const char *controller,
                        const char *host_nqn, const char *subsystem_nqn);
/* Its command quiesce time, and whether it resets another controller at once. Before any host. */
void played_set_quiesce(struct played *target, uint16_t quiesce_ms, bool resets);
/* From now on; `times`: how often, 0 for ever. */
void played_set(struct played *target, enum mischief mischief, unsigned times);
uint8_t *played_disk(struct played *target);
/* Reservations of the played target are all granted: keys that come go to the beginning of the
 * disk, and reports are read from there. This is dword 10 of the last such command, 11 behind it.
 */
uint64_t played_reservation(struct played *target);
/* Commands of one opcode, I/O and admin together, that have come. */
unsigned played_count(struct played *target, uint8_t opcode);

#endif
