/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callers: connections that have not shown yet that they may ask for anything. Anyone may connect,
 * so callers have a bounded number of places, and a bounded time. One rule for all doors
 * (docs/security.md):
 *
 *  - the places are a part of the descriptors that the process may have;
 *  - an address has a part of the places; beyond that its oldest caller makes room for its next;
 *  - where all places are taken, the oldest caller of the address that has most makes room;
 *  - a caller that is to make room is heard first, as what it had to say may have come already;
 *  - a caller that came a moment ago makes no room, as its word may be under way: who calls next
 *    waits in the kernel. But not for an address whose callers went without a word lately: one that
 *    says nothing would hold up all others. Nor where that was in vain several times, for whatever
 *    addresses.
 *  - a caller that says nothing for too long is turned away.
 *
 * So whoever proves itself at once gets in, however many others call. Each door guards its own
 * callers, and owns the memory of each.
 */
#ifndef SW_LINK_CALLERS_H
#define SW_LINK_CALLERS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define SW_CALLERS_DOUBTED 64u /* addresses, of which the latest are known */

struct sw_caller {
    struct sw_caller *older, *newer; /* by when they were added */
    struct in6_addr from;
    uint32_t rank;     /* how many of this address are not newer; this one counts */
    uint64_t since_ns; /* the oldest is the one with the least; its door may set it anew */
};

struct sw_callers_rule {
    uint32_t places_max, fds_parts; /* so many places, and one of so many parts of descriptors */
    uint32_t address_parts;         /* an address has one of so many parts of the places */
    uint64_t patience_ns;           /* 0: as long as its door lets it wait */
    uint64_t grace_ns;              /* for so long its word may be under way */
    /* Takes what has come from it. Whether it still is a caller of this door; NULL: it is. */
    bool (*hear)(struct sw_caller *caller);
    /* Closes it at once, and has it removed. */
    void (*turn_away)(struct sw_caller *caller);
};

struct sw_callers {
    const struct sw_callers_rule *rule;
    struct sw_caller *oldest, *newest;
    uint32_t count;
    struct sw_callers_doubt {
        struct in6_addr from;
        uint64_t until_ns;
    } doubts[SW_CALLERS_DOUBTED]; /* of addresses whose callers went without a word */
    uint32_t next_doubt;
    uint64_t vain_until_ns; /* later the more often others were held up in vain */
};

/* Whether nobody is to be let in now: the caller that makes room next may be about to speak. */
bool sw_callers_are_awaited(const struct sw_callers *callers, uint64_t now_ns);
/* Makes room for one more caller of that address, before anything is made for it. */
void sw_callers_make_room(struct sw_callers *callers, const struct in6_addr *from, uint64_t now_ns);
/* A caller of that address went without a word that counts. */
void sw_callers_doubt(struct sw_callers *callers, const struct in6_addr *from, uint64_t now_ns);
/* There is room. */
void sw_callers_add(struct sw_callers *callers, struct sw_caller *caller,
                    const struct in6_addr *from, uint64_t now_ns);
void sw_callers_remove(struct sw_callers *callers, struct sw_caller *caller);
/* Turns away whoever has been silent for too long. Returns when to call again. */
uint64_t sw_callers_tend(struct sw_callers *callers, uint64_t now_ns);

#endif
