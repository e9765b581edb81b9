/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connected queue pair: the machines of transport/iwarp/ between its queues and a TCP socket.
 * Connection management has made the connection and brought it past MPA's start; it is told by
 * notes (notes.h) what becomes of it. With the QP locked.
 *
 *   connection.c  its life, who looks after its socket
 *   request.c     the send queue, between the program and the machine
 *   transmit.c    FPDUs, as many as there are in one call of the kernel
 *   pacing.c      when TCP may be given more
 *   receive.c     bytes into FPDUs, and what they ask for
 *   respond.c     that, carried out by the rules of device/
 *   parking.c     a FLUSH that takes its time
 */
#ifndef SW_LINK_IWARP_CONNECTION_H
#define SW_LINK_IWARP_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "device/queue/qp_impl.h"
#include "device/serve/flushing.h"
#include "device/serve/receive.h"
#include "link/iwarp/notes.h"
#include "link/iwarp/pacing.h"
#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/start.h"
#include "transport/iwarp/stream.h"

enum {
    SW_IWARP_PIECES = 160,
    SW_IWARP_LARGE_FPDU = 32796, /* 32 KiB of payload, and header, trailer and pad */
};

/* A part of what is to be sent. Payload stays where it is: its key is looked at each time. */
struct sw_iwarp_piece {
    enum sw_payload_source source; /* BYTES: of `bytes` below */
    uint32_t len_bytes;
    uint32_t position, rkey; /* REQUEST, MEMORY */
    uint64_t at;             /* offset, or address */
    uint32_t crc_at;         /* MEMORY: where in `bytes` the CRC of its FPDU lies */
    bool is_void;            /* MEMORY: it was taken away, and zeros leave instead */
};

/* FPDUs that the kernel has not taken as a whole. */
struct sw_iwarp_outgoing {
    struct sw_iwarp_piece *pieces; /* in the same memory as `bytes` */
    uint32_t first, count;         /* pieces */
    uint32_t bytes_len, bytes_room;
    uint32_t total;          /* of all pieces as they were made */
    uint32_t first_position; /* requests before it had left when the first FPDU was made */
    uint8_t *bytes;          /* headers, trailers, and payload that is copied; NULL: no FPDU */
};

/* A FLUSH that goes on: nothing is read until it is done. */
struct sw_iwarp_parking {
    bool is_parked;
    struct sw_demand demand;
    struct sw_flushing flushing;
    uint8_t ulpdu[SW_DDP_UNTAGGED_BYTES + SW_RDMAP_FLUSH_BYTES];
    uint8_t *kept; /* what has been read from behind it; NULL: nothing */
    size_t kept_len;
};

struct sw_iwarp_connection {
    struct sw_qp *qp;
    int fd;
    bool has_crc;
    bool is_paired; /* of a RoCE device: paired.c */
    bool is_established;
    bool knows_voids;                 /* the peer: void FPDUs, without CRCs */
    struct sw_iwarp_outcome *outcome; /* paired */
    bool is_watched, watches_room;    /* by the engine */
    bool is_blocked;                  /* the kernel has no room for what is to be sent */
    bool has_left;                    /* the peer: nothing comes any more */
    bool was_refused;                 /* by us, with a Terminate */
    bool is_counted;                  /* the Terminate */
    bool awaits_first;                /* responder: connection management is told when it came */
    bool is_over;                     /* the QP has failed, or is about to */
    uint32_t visits;                  /* of a program that polls, since the engine watches */
    uint64_t polled_ns, moved_ns;
    uint64_t nudge_ns; /* when the peer is to be nudged, if it has said nothing; UINT64_MAX: not */
    uint64_t nudge_gap_ns;
    uint64_t resume_ns; /* paired: when to send again what the peer had no receive for; 0: unset */

    uint32_t posted; /* send queue positions before it were given to the machine */
    uint32_t offset; /* of send queue positions from the machine's */
    bool has_bad;    /* the one at `posted` has a local error, to be told in its turn */
    enum ibv_wc_status bad_status;
    enum ibv_wc_status send_status; /* of the oldest request, when the connection ends */
    int end_event;                  /* enum ibv_event_type, or -1 */
    int end_errno;

    struct sw_receive receive;       /* of the message that is coming in */
    struct sw_iwarp_parking parking; /* paired */
    bool reads_ahead;                /* the last FPDU was long: the next is read where it goes */
    uint32_t placed_from, placed_to; /* payload of the one at hand that lies there already */

    struct sw_iwarp_note first_note, end_note;
    struct sw_iwarp_outgoing out;
    struct sw_iwarp_pacing pacing;
    struct sw_iwarp_stream stream;
    struct sw_request *ring;
    struct sw_iwarp machine; /* last: make_connection() clears what is before */
};

/* Whether the QP still has it. */
enum sw_iwarp_life { SW_IWARP_ALIVE, SW_IWARP_DEAD };

/* request.c: gives requests to the machine, and does local ones in their turn. */
enum sw_iwarp_life sw_iwarp_feed(struct sw_iwarp_connection *c);
/* What is complete by now. */
enum sw_iwarp_life sw_iwarp_settle(struct sw_iwarp_connection *c);
/* Bytes that came for a request. */
bool sw_iwarp_store(struct sw_iwarp_connection *c, const struct sw_iwarp_input *input);

/* transmit.c: sends what there is. *moved: something left. */
enum sw_iwarp_life sw_iwarp_transmit(struct sw_iwarp_connection *c, bool *moved);
/* transmit.c: counts the Terminate of a machine that is over, once. */
void sw_iwarp_count_terminate(struct sw_iwarp_connection *c);
/* What was begun and not taken by the kernel, copied; to be freed. NULL: nothing, or no memory. */
uint8_t *sw_iwarp_copy_rest(struct sw_iwarp_connection *c, size_t *len);

/* transmit.c, receive.c: lets go of memory that is not needed while nothing is on its way. */
void sw_iwarp_give_back_out(struct sw_iwarp_connection *c);
void sw_iwarp_give_back(struct sw_iwarp_connection *c);

/* receive.c: takes what has come. `bytes`: the first of it, which somebody has read already. */
enum sw_iwarp_life sw_iwarp_receive(struct sw_iwarp_connection *c, bool *moved);
enum sw_iwarp_life sw_iwarp_take_bytes(struct sw_iwarp_connection *c, const uint8_t *bytes,
                                       size_t len);

/* respond.c: what an FPDU asks for. */
void sw_iwarp_carry_out(struct sw_iwarp_connection *c, const struct sw_demand *demand);
/* parking.c: a FLUSH that takes its time. Begins, or goes on with it; on ACK it may be parked. */
enum sw_verdict sw_iwarp_serve_flush(struct sw_iwarp_connection *c, const struct sw_demand *demand,
                                     const struct sw_inbound *message);
/* The FPDU that asks for it, and what was read behind it: copies. -ENOMEM. */
int sw_iwarp_park(struct sw_iwarp_connection *c, const struct sw_iwarp_fpdu *fpdu,
                  const uint8_t *bytes, size_t len);
/* Goes on; if it is done, with what was read behind it. */
enum sw_iwarp_life sw_iwarp_unpark(struct sw_iwarp_connection *c, bool *moved);
void sw_iwarp_drop_parking(struct sw_iwarp_connection *c);
/* Where the payload of the segment that is coming may be put right away, from its byte `from` on.
 * NULL: nowhere. To be called, and used, between sw_mr_serve_begin() and _end(). */
uint8_t *sw_iwarp_place_of(struct sw_iwarp_connection *c, const struct sw_ddp_segment *segment,
                           uint32_t from, uint32_t len_bytes);
/* Where memory is that a READ's answer is made of; NULL: it may not be read. */
const uint8_t *sw_iwarp_readable(struct sw_iwarp_connection *c, uint64_t addr, uint32_t len_bytes,
                                 uint32_t rkey);
enum sw_access_fault sw_iwarp_read_fault(struct sw_iwarp_connection *c, uint64_t addr,
                                         uint32_t len_bytes, uint32_t rkey);

/* paired.c: what is due between receiving and sending. */
enum sw_iwarp_life sw_iwarp_step_paired(struct sw_iwarp_connection *c, bool moved);
/* The peer's end came. */
enum sw_iwarp_life sw_iwarp_lose_peer(struct sw_iwarp_connection *c);
/* What the oldest request is told when the connection ended for a fault. */
void sw_iwarp_note_paired_refusal(struct sw_iwarp_connection *c);
/* Adds the final FPDUs to what the kernel has not taken. */
uint8_t *sw_iwarp_add_final_fpdus(struct sw_iwarp_connection *c, uint8_t *rest, size_t *len);
/* Before an FPDU is taken: what came before it is seen to. */
enum sw_iwarp_life sw_iwarp_prepare_paired(struct sw_iwarp_connection *c, const uint8_t *ulpdu);
/* A request of the peer was carried out. */
void sw_iwarp_establish(struct sw_iwarp_connection *c);
void sw_iwarp_note_pending(struct sw_iwarp_connection *c);

/* connection.c: nudges the peers whose time has come; returns when next. Takes locks. */
uint64_t sw_iwarp_nudge_peers(uint64_t now_ns);
extern _Atomic uint64_t sw_iwarp_nudge_ns; /* when that is wanted */

/* connection.c: the end, for the reason that is noted in `c`. It is not to be used any more. */
enum sw_iwarp_life sw_iwarp_fail(struct sw_iwarp_connection *c, int errno_of_peer);
/* The same where the machine is over: for what the Terminate says, the peer's or our own. */
enum sw_iwarp_life sw_iwarp_end_by_terminate(struct sw_iwarp_connection *c);

static inline uint32_t sw_iwarp_sq_position(const struct sw_iwarp_connection *c, uint32_t position)
{
    return position + c->offset;
}

#endif
