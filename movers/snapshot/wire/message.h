/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of a client and the server of a peer's memory: docs/snapshot-format.md, "The server of a
 * peer's memory". What comes is checked once, by get; no I/O.
 */
#ifndef SW_SNAPSHOT_MESSAGE_H
#define SW_SNAPSHOT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNAP_WIRE_PORT "4460"

enum {
    SNAP_WIRE_VERSION = 1,
    SNAP_WIRE_MESSAGE_MAX = 4096,
    SNAP_WIRE_NAME_BYTES = 96, /* with its NUL */
    SNAP_WIRE_WRITER_BYTES = 56,
    SNAP_WIRE_TEXT_BYTES = 120,
    SNAP_WIRE_ID_BYTES = 16,
    SNAP_WIRE_LEAVES_MAX = 60,
    SNAP_WIRE_LIST_MAX = 22, /* of one answer */
};

enum snap_wire_type {
    SNAP_WIRE_OPEN = 1,
    SNAP_WIRE_CHECK,
    SNAP_WIRE_FLUSH,
    SNAP_WIRE_CLOSE,
    SNAP_WIRE_LIST,
    SNAP_WIRE_REMOVE,
};

enum snap_wire_status {
    SNAP_WIRE_OK,
    SNAP_WIRE_WORKING,   /* ask again */
    SNAP_WIRE_MALFORMED, /* the message breaks the protocol */
    SNAP_WIRE_OTHER_VERSION,
    SNAP_WIRE_NOT_FOUND, /* no such volume */
    SNAP_WIRE_BUSY,      /* another writer has it */
    SNAP_WIRE_NO_ROOM,   /* the server has not so much memory left, or this address its share */
    SNAP_WIRE_DENIED,    /* by the server's rules */
    SNAP_WIRE_FENCED,    /* another writer has taken over since */
    SNAP_WIRE_DIFFERS,   /* a block has another sum than its leaf says */
    SNAP_WIRE_FAILED,    /* the server's system or disk failed; the text says how */
    SNAP_WIRE_STATUSES,
};

enum snap_wire_wish {
    SNAP_WIRE_WRITE = 1,
    SNAP_WIRE_CREATE = 2,    /* if it is not there, with `bytes` */
    SNAP_WIRE_TAKE_OVER = 4, /* from a writer that is there */
    SNAP_WIRE_RESUME = 8,    /* the session was open before; it is never begun by this */
};

enum snap_wire_flag {
    SNAP_WIRE_IS_BLANK = 1,    /* nobody has written a superblock yet */
    SNAP_WIRE_IS_VOLATILE = 2, /* memory alone */
    SNAP_WIRE_HAS_WRITER = 4,  /* one is connected */
};

struct snap_wire_request {
    enum snap_wire_type type;
    uint32_t tag; /* of the answer, too */
    uint32_t wishes;
    uint64_t bytes; /* of a volume that is made */
    uint8_t session[SNAP_WIRE_ID_BYTES];
    char name[SNAP_WIRE_NAME_BYTES], writer[SNAP_WIRE_WRITER_BYTES];
    uint32_t leaves_count;
    uint64_t leaves[SNAP_WIRE_LEAVES_MAX]; /* where they lie; multiples of a block */
    uint64_t ticket;                       /* of a FLUSH that is asked again; 0: a new one */
    uint32_t first;                        /* of a LIST */
};

struct snap_wire_volume {
    char name[SNAP_WIRE_NAME_BYTES], writer[SNAP_WIRE_WRITER_BYTES];
    uint64_t bytes, epoch;
    uint32_t flags;
};

struct snap_wire_answer {
    enum snap_wire_type type;
    enum snap_wire_status status;
    uint32_t tag;
    char text[SNAP_WIRE_TEXT_BYTES];      /* why not, for people; empty: the status says it */
    uint8_t instance[SNAP_WIRE_ID_BYTES]; /* which run of the server answers */
    /* What an OPEN tells. */
    uint8_t identity[SNAP_WIRE_ID_BYTES];
    uint64_t epoch, bytes, address;
    uint32_t key, flags;
    uint32_t leaves_done; /* of a CHECK */
    uint64_t bad_block;
    uint64_t ticket;       /* of a FLUSH */
    uint32_t count, total; /* of a LIST */
    struct snap_wire_volume volumes[SNAP_WIRE_LIST_MAX];
};

/* Whether a volume may be called that: UTF-8 of 1 to 95 bytes, nothing that a terminal obeys, no
 * '/', no '.' at its beginning. So it is the name of a file, too. */
bool snap_wire_name_is_fit(const char *name);

/* Each put returns the bytes of the message. */
size_t snap_wire_put_request(uint8_t out[SNAP_WIRE_MESSAGE_MAX],
                             const struct snap_wire_request *request);
size_t snap_wire_put_answer(uint8_t out[SNAP_WIRE_MESSAGE_MAX],
                            const struct snap_wire_answer *answer);
/* OK, MALFORMED or OTHER_VERSION; type and tag are set where there is a header. Names are fit, the
 * writer's text may be printed. */
enum snap_wire_status snap_wire_get_request(const uint8_t *in, size_t bytes,
                                            struct snap_wire_request *request);
/* False: it is none. */
bool snap_wire_get_answer(const uint8_t *in, size_t bytes, struct snap_wire_answer *answer);

/* A sentence without its full stop. */
const char *snap_wire_status_text(enum snap_wire_status status);

#endif
