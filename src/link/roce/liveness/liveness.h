/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the process at the other end lives, told by a TCP connection between the two, which the
 * kernel ends when one of them dies and keeps while one is merely stopped. A machine without clock
 * or I/O: lifeline.c has the sockets, wire/liveness.h what is said. docs/liveness.md.
 *
 * One of the two (`calls`) asks over packets where the other listens, and connects. It asks a few
 * times when there is a queue pair, since the other may be one of ours, and for longer if it is
 * known to be; the other invites it to ask when it has its own. Either learns of an end by the
 * connection, and then looks once whether anybody still listens where the other one did: if not, it
 * is dead; if so, the network has broken the connection.
 *
 * The kernel answers for a process that does not run, so silence is no sign while the connection
 * stands, unless the other is known to have run since: it has answered a ping, which it does when
 * it has received all packets that waited (is_excused).
 */
#ifndef SW_LINK_ROCE_LIVENESS_LIVENESS_H
#define SW_LINK_ROCE_LIVENESS_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

enum sw_liveness_state {
    SW_LIVENESS_IDLE,     /* there is no connection; of who calls: until due_ns */
    SW_LIVENESS_ASKING,   /* where the other one listens */
    SW_LIVENESS_CALLING,  /* it is being connected to, and has to prove who it is */
    SW_LIVENESS_UP,       /* the connection stands */
    SW_LIVENESS_CHECKING, /* it broke */
    SW_LIVENESS_DEAD,
};

enum sw_liveness_event {
    SW_LIVENESS_JOINED,   /* there is a queue pair */
    SW_LIVENESS_MET,      /* packets show that the other is a Sidewire process, or it invites */
    SW_LIVENESS_TOLD,     /* where it listens */
    SW_LIVENESS_PROVEN,   /* a connection stands, and both are who they say */
    SW_LIVENESS_TAKEN,    /* somebody listens where it did */
    SW_LIVENESS_GONE,     /* its host says that nobody has the port it sent from */
    SW_LIVENESS_FAREWELL, /* it lives and has no use for the connection */
    SW_LIVENESS_ENDED,    /* the connection has: FIN or RST */
    SW_LIVENESS_REFUSED,  /* nobody listens where it did */
    SW_LIVENESS_LOST,     /* the network does not answer, or this host has no room */
    SW_LIVENESS_TIME,     /* due_ns has come */
};

/* What its user is to do. */
enum sw_liveness_step {
    SW_LIVENESS_NOTHING,
    SW_LIVENESS_ASK,     /* a MAD */
    SW_LIVENESS_INVITE,  /* a MAD */
    SW_LIVENESS_CALL,    /* connect anew, instead of what there is */
    SW_LIVENESS_HANG_UP, /* close what there is */
    SW_LIVENESS_BURY,    /* the same; the process is dead */
};

#define SW_LIVENESS_NEVER UINT64_MAX

struct sw_liveness {
    enum sw_liveness_state state;
    bool calls;
    bool is_met;
    bool has_stood;  /* there was a connection once */
    bool is_reached; /* CALLING: its kernel has taken the connection, whether it runs or not */
    bool is_barred;  /* no first connection is to be had: it counts as asked from now on */
    uint64_t met_ns;
    bool has_hoped; /* it was tried once, whoever that is */
    bool pauses;    /* CHECKING: until it is looked again */
    uint32_t tries; /* in vain: of asking, or of calling */
    uint64_t due_ns;
    uint64_t pinged_ns;   /* when the ping was sent that is not answered yet; 0: there is none */
    uint64_t answered_ns; /* when the latest ping was sent that was answered promptly */
};

void sw_liveness_init(struct sw_liveness *l, bool calls);
enum sw_liveness_step sw_liveness_take(struct sw_liveness *l, enum sw_liveness_event event,
                                       uint64_t now_ns);

/* Whether what was sent at `since_ns` need not have been seen yet by a process that lives. */
bool sw_liveness_is_excused(const struct sw_liveness *l, uint64_t since_ns);
/* Whether the two have met not long ago, and the connection may still come about: who gets no
 * processor connects late, or is stopped before it does, and who has died already never does. */
bool sw_liveness_is_meeting(const struct sw_liveness *l, uint64_t now_ns);
/* Whether to ping now; and an answer to what was sent then. A round trip between the two kernels
 * takes `rtt_ns`, whether the other process runs or not. */
bool sw_liveness_ping(struct sw_liveness *l, uint64_t now_ns);
void sw_liveness_pong(struct sw_liveness *l, uint64_t pinged_ns, uint64_t rtt_ns, uint64_t now_ns);

#endif
