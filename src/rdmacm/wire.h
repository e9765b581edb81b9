/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection between two processes of a host, by which their MADs pass as letters. Letters wait
 * in memory until the connection is proven (link/direct/proof.h) and its socket has room.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_WIRE_H
#define SW_RDMACM_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cm/cm.h"
#include "link/direct/proof.h"

#define SW_LETTER_MAGIC 0x6d63207773000001ull
#define SW_WIRE_ASKED 256u /* requests that a door remembers */

struct sw_waiting; /* a letter that waits */

enum sw_letter_kind {
    SW_LETTER_HELLO,  /* nothing but whose connection it is */
    SW_LETTER_MAD,    /* from that process */
    SW_LETTER_PACKET, /* from another host, or who may be as strange */
    SW_LETTER_TRUST,  /* brings a descriptor; nothing follows */
};

struct sw_letter { /* addresses as the receiver sees them */
    uint64_t magic;
    uint32_t kind, slot, ifindex;
    uint16_t pkey;
    uint8_t traffic_class, hop_limit;
    uint8_t local_gid[16], remote_gid[16];
    uint8_t mad[SW_MAD_BYTES];
};

struct sw_wire {
    struct sw_wire *next;
    int fd;
    bool is_counted;       /* as one of those who have proven nothing */
    bool is_judged;        /* whether both may look into the other: until then letters wait */
    bool is_strange;       /* they may not: packets alone pass, as between two hosts */
    struct sw_proof proof; /* until it is judged */
    int listener;  /* of a service, by which it came; -1: by none, or by one that is closed */
    uint32_t slot; /* 0: not told yet */
    pid_t pid;
    bool is_dead;         /* to be closed by sw_local_step() */
    bool is_door;         /* to a service of theirs */
    bool is_guest;        /* to one of ours, or for trust */
    int entrusted;        /* by them; -1: nothing */
    bool is_peer;         /* MADs for the process take it, or would */
    bool entrusts;        /* takes what we entrust, as soon as it is proven */
    uint32_t wanted_slot; /* whose it should be, for that */
    uint64_t service_id;
    struct in6_addr address;
    uint32_t asked_count;
    struct sw_asked {
        uint32_t local_comm_id;
        uint8_t peer_gid[16];
    } asked[SW_WIRE_ASKED];
    uint32_t waiting_count;
    struct sw_waiting *first, **last;
};

/* A letter of this process. */
struct sw_letter sw_letter_write(const struct sw_cm_path *path, enum sw_letter_kind kind,
                                 const uint8_t mad[SW_MAD_BYTES]);
/* Sends it, now or later. -EAGAIN: lost, as too many wait; -ECONNRESET: the connection ends. */
int sw_wire_put(struct sw_wire *wire, const struct sw_letter *letter);
/* Sends what waits, as far as there is room. */
void sw_wire_put_waiting(struct sw_wire *wire);
void sw_wire_drop_waiting(struct sw_wire *wire);

/* It is to be closed by the next step of the engine, and: a step is wanted. */
void sw_wire_end(struct sw_wire *wire);
void sw_wire_want_step(void);
bool sw_wire_has_ended(void);  /* whether a step is wanted; any thread */
bool sw_wire_take_ended(void); /* the same, and it is taken */

#endif
