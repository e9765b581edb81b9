/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An iWARP connection once it has started (transport/iwarp/start.h): turns work requests into
 * FPDUs, and what comes into demands, answers and completions. A machine without clock, I/O, lock
 * or memory of its own. RFC 5040, RFC 5041, RFC 7306.
 *
 *   done <= sent <= tail: requests [done, sent) have left, the one at `sent` perhaps in part.
 *
 *   for each FPDU that comes (transport/iwarp/stream.h): sw_iwarp_admit()
 *       DEMAND: carry it out (device/rules/target.h), sw_iwarp_conclude()
 *       PLACE:  store the bytes
 *   while (there is room to send && sw_iwarp_next(w, &emission))
 *       send it; a READ response whose memory is gone: sw_iwarp_unreadable() instead
 *   after both: what is before sw_iwarp_done() is complete
 *
 * TCP brings order and repeats what is lost, so a WRITE or SEND is complete once it was handed to
 * it. The first fault is the last: `over` is set, and a Terminate is the last that next() gives.
 */
#ifndef SW_TRANSPORT_IWARP_IWARP_H
#define SW_TRANSPORT_IWARP_IWARP_H

#include "transport/demand.h"
#include "transport/emission.h"
#include "transport/request.h"
#include "wire/iwarp/ddp.h"
#include "wire/iwarp/fpdu.h"
#include "wire/iwarp/terminate.h"

enum {
    SW_IWARP_DEPTH_MAX = 128, /* READs and atomics that may be outstanding, each way */
    SW_IWARP_ANSWERS = SW_IWARP_DEPTH_MAX + 1, /* and the READ of a start */
    SW_IWARP_FPDU_LEAST = 256,
    /* Length, header, and the longest body that is not payload. */
    SW_IWARP_HEAD_MAX = SW_FPDU_LENGTH_BYTES + SW_DDP_HEADER_MAX + SW_RDMAP_ATOMIC_REQUEST_BYTES,
};

struct sw_iwarp_config {
    uint16_t ird, ord;   /* at most SW_IWARP_DEPTH_MAX */
    uint32_t fpdu_max;   /* bytes, from SW_IWARP_FPDU_LEAST on: what TCP puts into one segment */
    uint32_t token_seed; /* of the names of READ sinks */
    uint8_t rtr;         /* enum sw_mpa_rtr: the first message tells that the initiator is ready */
    bool is_initiator;
    bool is_held;         /* responder: nothing may be sent before the first message came */
    bool is_paired;       /* between queue pairs of RoCE devices: paired.c */
    bool has_persistence; /* paired: the peer takes FLUSH and ATOMIC WRITE */
    uint8_t rnr_retry;    /* paired: of this side's requests; 7: for ever */
    uint8_t rnr_timer;    /* paired: what a peer is told to wait that finds no receive */
};

/* A connection between queue pairs of RoCE devices. */
struct sw_iwarp_paired {
    uint32_t out, acked; /* units of this side, and those that the peer has taken */
    uint32_t in, told;   /* units of the peer, and those that it knows to be taken */
    uint32_t refused;    /* of this side: `rewinds` to it */
    uint32_t stopped_at; /* of the peer: for which there was no receive */
    uint32_t rnr_position, rnr_tries;
    uint32_t imm_be; /* of the SEND that comes next, if has_imm */
    uint8_t rnr_timer;
    bool ends_unit; /* the segment that is looked at */
    bool has_imm, is_announced;
    bool drops; /* the peer's requests, until it resumes */
    bool is_rnr_due, is_ack_due, is_resume_due, is_greeting_due;
    bool rewinds;
    bool waits;        /* nothing is sent until sw_iwarp_resume(), in rnr_timer */
    bool is_exhausted; /* nor then: too many tries of the request at `sent` */
    bool is_paused;    /* requests from `paused_from` on do not begin */
    bool has_left;     /* the peer's queue pair has let go of this one */
    bool has_said_bye;
    bool is_void; /* the peer's memory is gone: nothing is taken but its Terminate */
    uint32_t paused_from;
};

/* A READ or atomic of ours on its way. Its sink has a name of its own for this one use, so what the
 * peer learns opens nothing else. */
struct sw_iwarp_read {
    uint32_t position;
    uint32_t token;
    uint32_t len_bytes, got_bytes;
    bool is_atomic; /* or a FLUSH: answered by a word, ... */
    bool has_sink;  /* ... which goes to the request's memory */
};

/* A READ or atomic of the peer that was carried out; its answer waits, or is under way. */
struct sw_iwarp_answer {
    bool is_atomic;
    bool is_rtr;        /* to the READ of a start, which is not one of those agreed on */
    uint32_t sink_stag; /* of an atomic: its ID */
    uint32_t rkey;
    uint32_t len_bytes, sent_bytes;
    uint64_t sink_to, addr;
    uint64_t original;
};

/* One FPDU: `head` is its beginning, behind it payload_len bytes of the source, then what
 * sw_fpdu_finish() writes. */
struct sw_iwarp_emission {
    uint8_t head[SW_IWARP_HEAD_MAX];
    uint8_t head_len;
    enum sw_payload_source source; /* NONE, REQUEST or MEMORY */
    uint32_t payload_len;
    uint32_t position; /* REQUEST: of the request, ... */
    uint64_t offset;   /* ... and in its data */
    uint64_t addr;     /* MEMORY: by rkey */
    uint32_t rkey;
};

static inline uint32_t sw_iwarp_ulpdu_len(const struct sw_iwarp_emission *emission)
{
    return emission->head_len - (uint32_t)SW_FPDU_LENGTH_BYTES + emission->payload_len;
}

enum sw_iwarp_step {
    SW_IWARP_NOTHING, /* to be done by the user; `over` may be set */
    SW_IWARP_DEMAND,
    SW_IWARP_PLACE,
};

/* What an FPDU asks of the user. */
struct sw_iwarp_input {
    struct sw_demand demand;
    /* PLACE: bytes of a READ into the data of a request; NULL: an atomic's original value. */
    uint32_t position;
    uint64_t offset;
    const uint8_t *bytes;
    uint32_t len_bytes;
    uint64_t value;
};

struct sw_iwarp {
    struct sw_iwarp_config config;
    struct sw_request *ring;
    uint32_t mask;
    uint32_t done, sent, tail;
    uint32_t ulpdu_max;
    bool over;                /* nothing is taken or begun any more */
    bool by_peer;             /* `over`: the peer sent a Terminate, which is in `terminate` */
    bool is_due;              /* ours has to be sent */
    bool is_held;             /* config.is_held, until the first message came */
    bool is_rtr_due;          /* initiator: it is the first message */
    bool is_nudge_due;        /* an empty WRITE between messages */
    bool awaits_first;        /* nothing has come yet */
    bool is_begun;            /* a part of the request at `sent` is out */
    bool answers_next;        /* whose turn it is between messages */
    bool awaits_rtr_response; /* initiator: its first message was a READ */
    bool owes_rtr;            /* responder: its answer to that READ waits */
    bool in_send, in_write;
    uint8_t send_kind;   /* of the SEND that comes in parts: enum sw_rdmap_kind */
    uint32_t sent_bytes; /* of the request at `sent` */
    uint32_t send_mo;    /* of the SEND that comes */
    uint64_t written;    /* bytes of the WRITE that comes, or of the last one */
    uint32_t msn_out[SW_DDP_QUEUES], msn_in[SW_DDP_QUEUES];
    uint32_t tokens;
    struct sw_iwarp_paired paired;
    uint32_t read_head, read_count, answer_head, answer_count;
    const uint8_t *admitted; /* the ULPDU whose demand is not concluded */
    uint32_t admitted_len;
    struct sw_iwarp_answer wanted; /* what it asks for, if anything */
    struct sw_terminate terminate;
    struct sw_iwarp_read reads[SW_IWARP_DEPTH_MAX];
    struct sw_iwarp_answer answers[SW_IWARP_ANSWERS];
};

/* `ring` holds `entries` requests, a power of two, and stays the user's. Positions start at 0. */
void sw_iwarp_init(struct sw_iwarp *w, const struct sw_iwarp_config *config,
                   struct sw_request *ring, uint32_t entries);

/* Whether the connection has such a request: FLUSH, ATOMIC WRITE and SEND with immediate data are
 * those of paired queue pairs alone. */
bool sw_iwarp_supports(const struct sw_iwarp *w, const struct sw_request *request);
/* Appends a request (copies it), which is supported. false: the ring is full. */
bool sw_iwarp_post(struct sw_iwarp *w, const struct sw_request *request);

/* The next FPDU. false: nothing may be sent (nothing to do, a fence, the depth of READs). */
bool sw_iwarp_next(struct sw_iwarp *w, struct sw_iwarp_emission *out);
/* The memory of the READ response that next() just gave may not be read any more. */
void sw_iwarp_unreadable(struct sw_iwarp *w, enum sw_access_fault why);

/* Takes what an FPDU carries, which stays where it is until conclude(). */
enum sw_iwarp_step sw_iwarp_admit(struct sw_iwarp *w, const uint8_t *ulpdu, uint32_t len,
                                  struct sw_iwarp_input *out);
void sw_iwarp_conclude(struct sw_iwarp *w, const struct sw_demand *demand,
                       const struct sw_outcome *outcome);
/* The FPDU that was admitted lies here from now on. */
void sw_iwarp_keep(struct sw_iwarp *w, const uint8_t *ulpdu);
/* Instead of admit(), paired: the data of this FPDU is not there (a READ response whose memory was
 * taken away). */
void sw_iwarp_take_void(struct sw_iwarp *w, const uint8_t *ulpdu, uint32_t len);

/* Whether a READ response is the one that is awaited, and in its place, before it is admitted:
 * where its bytes go in the data of which request. */
bool sw_iwarp_awaits(const struct sw_iwarp *w, const struct sw_ddp_segment *segment,
                     uint32_t *position, uint64_t *offset);

/* Something else was wrong (the stream, the start): ends the connection with a Terminate. */
void sw_iwarp_refuse(struct sw_iwarp *w, uint16_t cause);

static inline uint32_t sw_iwarp_done(const struct sw_iwarp *w)
{
    return w->done;
}

/* siw does not see what comes just behind its reply until more comes. An initiator that has heard
 * nothing yet sends an empty WRITE, which asks for nothing. */
void sw_iwarp_nudge(struct sw_iwarp *w);

/* A responder whose initiator says nothing may speak first, after all: siw's does so at once, and
 * programs of its hosts rely on it (RFC 5044 s7.1.2 has it wait). */
void sw_iwarp_release(struct sw_iwarp *w);

/* Paired. The peer's messages that are taken and that it was not told of; they are told with what
 * leaves next, or after sw_iwarp_tell(). */
uint32_t sw_iwarp_untold(const struct sw_iwarp *w);
void sw_iwarp_tell(struct sw_iwarp *w);
/* The initiator says something at once: so the peer knows that its reply came. */
void sw_iwarp_greet(struct sw_iwarp *w);
/* The peer's time to wait is over. */
void sw_iwarp_resume(struct sw_iwarp *w);
/* The last FPDUs of a queue pair that lets go of its peer: a Terminate that has not left; paired,
 * what the peer is told. False: that was all. */
bool sw_iwarp_say_last(struct sw_iwarp *w, struct sw_iwarp_emission *out);
/* Requests from this position on do not begin, or they do again (SQD). */
void sw_iwarp_pause(struct sw_iwarp *w, bool is_paused, uint32_t from);

/* Whether it is the turn of a SW_REQUEST_LOCAL, at done(): the user does it and says so. */
bool sw_iwarp_is_local(const struct sw_iwarp *w);
void sw_iwarp_local_done(struct sw_iwarp *w);

#endif
