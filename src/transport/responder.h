/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of a connection (RC, UC, XRC TGT): decides what a request packet is (expected,
 * duplicate, early, malformed), says what it asks of memory and queues, and is told by its user
 * what came of it (device/rules/target.c decides). A machine without clock, I/O, lock or memory of
 * its own. IBTA Vol1 9.7.4 ff (RC), 9.8.2 (UC), A14 (XRC), A19 (FLUSH, ATOMIC WRITE).
 *
 *   if (sw_responder_admit(r, packet, now, &demand))
 *       carry out the demand; sw_responder_conclude(r, &demand, &outcome, now);
 *   while (sw_responder_early(r, &packet))
 *       admit it in the same way
 *   at sw_responder_due_ns(): sw_responder_tick(), and the same loop again
 *   while (sw_responder_next(r, now, &emission))
 *       send it
 *
 * next() may be left for later, after a batch of packets: acknowledgements are coalesced until
 * then. Packets that follow each other (wire/run.h) may be one demand: admit_run().
 */
#ifndef SW_TRANSPORT_RESPONDER_H
#define SW_TRANSPORT_RESPONDER_H

#include "transport/congestion.h"
#include "transport/demand.h"
#include "transport/early.h"
#include "transport/emission.h"
#include "wire/run.h"

enum { SW_RESPONDER_RD_ATOMIC_MAX = 32, SW_RESPONDER_ANSWERS = 64 };

/* How far from the expected PSN others than Sidewire may be, either way, to be believed to send or
 * repeat something. rdma_rxe has 128 packets on their way; hardware at 400 Gb/s and 100 us some
 * 5,000 of 1 KiB; and each READ that is not answered takes as many PSNs as its response. */
#define SW_RESPONDER_REACH_PLAIN (1u << 15)

/* Where the PSN of a request of a reliable connection lies. */
enum sw_place {
    SW_PLACE_EXPECTED,
    SW_PLACE_DUPLICATE, /* executed before, and may be asked for again */
    SW_PLACE_EARLY,     /* its sender may have it on its way, behind what is missing */
    SW_PLACE_ASTRAY,    /* nothing the peer could have sent: IBTA Vol1 9.7.4.1's invalid region */
};

struct sw_responder_config {
    uint32_t qpn, dest_qpn, first_psn;
    uint32_t mtu_bytes;
    uint16_t pkey;
    uint8_t service;            /* enum sw_service: RC, UC, XRC */
    uint8_t min_rnr_timer;      /* 5-bit code */
    uint8_t max_dest_rd_atomic; /* at most SW_RESPONDER_RD_ATOMIC_MAX */
    bool offer_selective;
    uint8_t life;      /* goes with that offer: SW_SELECTIVE_LIFE */
    uint64_t late_ns;  /* UC: how long a gap is open for what is late; 0: it is lost at once */
    uint64_t rate_max; /* of struct sw_congestion_config, for READ responses */
};

/* A response that waits to be sent, in the order of execution. */
struct sw_answer {
    uint8_t kind; /* enum sw_packet_kind: READ_RESPONSE, ATOMIC_ACK; ACK: a refused duplicate */
    uint8_t syndrome;
    bool duplicate;
    uint32_t seq, count, index; /* response packets, and how many of them are sent */
    uint32_t msn, rkey;
    uint64_t addr, len_bytes;
    uint64_t original;
};

/* A READ, atomic, ATOMIC WRITE or FLUSH that has been executed. */
struct sw_done {
    uint32_t seq, count;
    uint32_t rkey;
    uint8_t kind; /* enum sw_demand_kind */
    uint64_t addr, len_bytes;
    uint64_t original; /* what an atomic found */
};

/* What is to be said after all answers. */
enum sw_remark { SW_REMARK_NONE, SW_REMARK_ACK, SW_REMARK_GAP, SW_REMARK_RNR, SW_REMARK_REFUSAL };

struct sw_responder_counts {
    uint64_t packets, duplicates, early, kept, malformed, cnps;
    uint64_t astray; /* enum sw_place, and duplicates that nothing is known of */
};

struct sw_responder {
    struct sw_responder_config config;
    uint32_t expected; /* PSN, counted on: transport/seq.h */
    uint32_t msn;      /* messages completed */
    uint8_t mtu_shift;
    bool dead, peer_selective;
    bool peer_piggybacks; /* piggyback.h */
    bool repeats;         /* the response that next() gave last was to a duplicate */
    bool gap_told;        /* one NAK a gap */
    bool rnr_told;        /* and what follows is dropped until the request comes again */
    uint8_t untold;       /* early packets since the peer was told of the gap */
    bool drained;         /* kept packets have been taken out since the last that was not there */
    uint32_t missed;      /* the early packets that could not be kept lie before it */
    /* The message under way. */
    bool under_way;
    uint8_t kind; /* enum sw_demand_kind */
    uint32_t rkey;
    uint64_t addr, offset, total;
    /* Unreliable: when the last was taken, and late ones since. */
    uint64_t heard_ns;
    uint32_t late_next, late_run;
    /* Unreliable: what came early waits for what is missing, until the gap is given up. */
    bool gives_up;
    uint64_t gap_ns; /* since when gaps before gap_end are open */
    uint32_t gap_end;
    enum sw_remark remark;
    uint8_t refusal;   /* AETH syndrome */
    bool refusal_told; /* what was answered before it may be asked for again from then on, ... */
    bool forgot;       /* ... unless that is over */
    uint32_t remark_seq;
    uint32_t answer_head, answer_count,
        outstanding; /* the latter: answers that are no duplicates */
    struct sw_answer answers[SW_RESPONDER_ANSWERS];
    /* The last requests that have an answer of their own: what may be asked for again. */
    uint32_t done_next, done_count;
    struct sw_done done[SW_RESPONDER_RD_ATOMIC_MAX];
    bool cnp_wanted;
    uint64_t cnp_next_ns;
    struct sw_congestion congestion;
    struct sw_responder_counts counts;
    struct sw_early early;
};

/* `pool`: NULL if early packets are not to be kept. */
void sw_responder_init(struct sw_responder *r, const struct sw_responder_config *config,
                       struct sw_early_pool *pool);

/* Gives back what it holds of the pool; before a second init(), and when it is done with. */
void sw_responder_release(struct sw_responder *r);

/* UC: the peer is known to have been connected again, and counts from its first PSN. */
void sw_responder_begin_anew(struct sw_responder *r);

/* Where a request packet of the connection's service lies; for RC and XRC. */
enum sw_place sw_responder_place(const struct sw_responder *r, const struct sw_packet *packet);

/* Takes a request packet. true: *out is to be carried out, and concluded before the next call. */
bool sw_responder_admit(struct sw_responder *r, const struct sw_packet *packet, uint64_t now_ns,
                        struct sw_demand *out);
/* Takes all packets of a run as one demand, the parts of which are next to each other. False: they
 * are not plainly what is expected next, and to be taken one by one. The responder is as it was; a
 * demand that cannot be carried out as a whole is forgotten, and the packets taken one by one. */
bool sw_responder_admit_run(const struct sw_responder *r, const struct sw_packet_run *run,
                            struct sw_demand *out);
/* The same with what had come early and is now expected, instead of sw_responder_early(): that one
 * gives it packet by packet. */
bool sw_responder_admit_early_run(struct sw_responder *r, struct sw_demand *out);
/* Takes all packets of a run that comes after a gap. Returns how many they are; 0: they are not. */
uint32_t sw_responder_keep_run(struct sw_responder *r, const struct sw_packet_run *run);
/* Takes a packet while a demand is not concluded yet: what is to come after it waits, as far as
 * there is room, and nobody is told of a gap. */
void sw_responder_keep_behind(struct sw_responder *r, const struct sw_packet *packet);
void sw_responder_conclude(struct sw_responder *r, const struct sw_demand *demand,
                           const struct sw_outcome *outcome);

/* A packet that had come early and is now expected: to be admitted before any other; its payload is
 * valid until the next call. */
bool sw_responder_early(struct sw_responder *r, struct sw_packet *out);

/* UC: time has passed, and all that came in it has been admitted. Gaps that have been open for long
 * enough are lost; sw_responder_early() gives what came behind them. */
void sw_responder_tick(struct sw_responder *r, uint64_t now_ns);

/* The next packet to be sent: CNP, responses in the order of the requests, then an ACK or NAK. */
bool sw_responder_next(struct sw_responder *r, uint64_t now_ns, struct sw_emission *out);

/* An ACK of what was executed so far; what next() has to say is still to be said. */
void sw_responder_ack(const struct sw_responder *r, struct sw_emission *out);

/* When next() or tick() will have something by the passing of time alone; UINT64_MAX: never. */
uint64_t sw_responder_due_ns(const struct sw_responder *r);

/* The memory of the READ response that next() just gave is gone: makes a NAK of the emission. true:
 * the machine is dead. false: it was the response to a duplicate, which the peer may have had long
 * ago. */
bool sw_responder_unreadable(struct sw_responder *r, uint8_t syndrome, struct sw_emission *out);

/* The connection is over. True: the machine goes on to answer. By a refusal of its own: the NAK is
 * repeated, and READs, FLUSHes and atomics that were executed before are answered again. By its
 * program: what was acknowledged is acknowledged again, but no memory is looked at. For a copy of
 * the machine: what has come early stays with the original, to be released. */
bool sw_responder_outlive(struct sw_responder *r);
/* From here on it only repeats the NAK, if there is one. */
void sw_responder_forget(struct sw_responder *r);

/* The link saw a packet of this QP marked CE: a CNP, at most every 50 us. */
void sw_responder_congested(struct sw_responder *r, uint64_t now_ns);

/* A CNP came, and may be about READ responses. */
void sw_responder_cnp(struct sw_responder *r, uint64_t now_ns);

/* Whether the gap that was to be told of is still there. */
static inline bool sw_responder_has_gap(const struct sw_responder *r)
{
    return r->early.count || r->remark_seq == r->expected;
}

/* Whether all there is to say is that what came was executed. */
static inline bool sw_responder_only_acks(const struct sw_responder *r)
{
    const bool acks =
        r->remark == SW_REMARK_ACK || (r->remark == SW_REMARK_GAP && !sw_responder_has_gap(r));
    return acks && !r->answer_count && !r->cnp_wanted;
}

/* Whether all there is to say is that something is missing. Packets that left behind later ones on
 * purpose come by themselves (transport/deferred.h). */
static inline bool sw_responder_only_misses(const struct sw_responder *r)
{
    return r->remark == SW_REMARK_GAP && !r->answer_count && !r->cnp_wanted;
}

/* Whether there is anything to say at all. */
static inline bool sw_responder_has_word(const struct sw_responder *r)
{
    return r->remark != SW_REMARK_NONE || r->answer_count || r->cnp_wanted;
}

#endif
