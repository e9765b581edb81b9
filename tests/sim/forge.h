/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One frame or segment that an honest peer never sends, at a moment of a connection's life drawn
 * from the seed: in the start, as the first message, between two messages, within one, or when the
 * other side is closing. What has to come of it is said by the table of forgeries: what RFC 5040,
 * RFC 5041 and RFC 5044 say, and where they leave it open what docs/iwarp.md promises.
 */
#ifndef SW_TESTS_SIM_FORGE_H
#define SW_TESTS_SIM_FORGE_H

#include "program.h"

enum forge_moment { AT_START, AT_FIRST, BETWEEN, WITHIN, AT_CLOSE, FORGE_MOMENTS };

enum forge_end {
    GOES_ON,      /* it asks for nothing */
    IS_TOLD,      /* by a Terminate with one of the causes */
    IS_HEARD,     /* it is a Terminate itself: no answer */
    ENDS_ANYHOW,  /* or waits for what does not come: nothing is stored by it */
    FAILS,        /* the start, by one of two failures */
    IS_REJECTION, /* of the start, by the responder */
};

struct forge {
    struct connection *conn;
    int from;
    enum forge_moment moment;
    const char *name;
    bool is_due, is_done;
    enum forge_end end;
    uint16_t causes[3];
    uint32_t cause_count;
    enum sw_iwarp_start_failure failures[2];
    /* How the segment is framed. */
    bool is_raw;       /* not at all */
    bool spoils_crc;   /* wrong, where there are CRCs */
    uint16_t too_much; /* its length says so much more than there is */
};

/* For connections that are not there yet: draws what, who and when. */
struct forge *forge_open(struct connection *conn);
void forge_close(struct forge *forge);
/* Called for the end that forges: struct sw_sim_iwarp_config. */
uint32_t forge_out(struct sw_sim_iwarp *end, uint8_t *bytes, uint32_t len);
/* What both sides think of it. */
void forge_check(const struct forge *forge);

/* segments.c: writes the ULPDU of one that is drawn, and sets what has to come of it. */
uint32_t forge_segment(struct forge *forge, uint8_t *ulpdu);
/* starts.c: alters a frame of the start; returns how long it is then. */
uint32_t forge_start(struct forge *forge, uint8_t *frame, uint32_t len);

static inline struct side *forge_victim(const struct forge *forge)
{
    return &forge->conn->sides[1 - forge->from];
}

static inline struct sw_sim_iwarp *forge_attacker(const struct forge *forge)
{
    return &forge->conn->ends[forge->from];
}

/* One of the causes that the victim may tell. */
static inline void forge_told(struct forge *forge, uint16_t cause)
{
    forge->end = IS_TOLD;
    forge->causes[forge->cause_count++] = cause;
}

#endif
