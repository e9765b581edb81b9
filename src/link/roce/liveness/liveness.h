/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the process at the other end lives. A TCP connection between the two processes tells: the
 * kernel ends it when one of them dies, and keeps it while one is merely stopped. This is a machine
 * without clock or I/O: lifeline.c has the sockets, wire/liveness.h the messages. docs/liveness.md.
 *
 * One of the two (`calls`) asks over packets where the other listens, and connects. It asks a few
 * times when it has a queue pair, as the other may be a Sidewire process. It asks for longer if the
 * other is known to be one. The other invites it to ask when it has a queue pair of its own.
 *
 * When the connection ends, either side looks once whether anybody still listens where the other
 * did. If nobody does, the other is dead. If somebody does, the network has broken the connection.
 *
 * While the connection stands, silence is no sign of death: a process may be alive and not run, and
 * the kernel keeps its connection. But the other answers a ping once it has received all packets
 * that waited. So what was sent before an answered ping has been seen (sw_liveness_is_excused()).
 */
#ifndef SW_LINK_ROCE_LIVENESS_LIVENESS_H
#define SW_LINK_ROCE_LIVENESS_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

enum sw_liveness_state {
    SW_LIVENESS_IDLE,     /* there is no connection; the side that calls asks at due_ns */
    SW_LIVENESS_ASKING,   /* where the other one listens */
    SW_LIVENESS_CALLING,  /* connects to the other, which then has to prove who it is */
    SW_LIVENESS_UP,       /* the connection stands */
    SW_LIVENESS_CHECKING, /* the connection broke: does anybody listen there still? */
    SW_LIVENESS_DEAD,
};

enum sw_liveness_event {
    SW_LIVENESS_JOINED,   /* there is a queue pair */
    SW_LIVENESS_MET,      /* packets show that the other is a Sidewire process, or it invites */
    SW_LIVENESS_TOLD,     /* the other says where it listens */
    SW_LIVENESS_PROVEN,   /* a connection stands, and both are who they say */
    SW_LIVENESS_TAKEN,    /* somebody listens where it did */
    SW_LIVENESS_GONE,     /* its host says that nobody has the port it sent from */
    SW_LIVENESS_FAREWELL, /* it lives and has no use for the connection */
    SW_LIVENESS_ENDED,    /* the connection has ended: FIN or RST */
    SW_LIVENESS_REFUSED,  /* nobody listens where it did */
    SW_LIVENESS_LOST,     /* the network does not answer, or this host has no room */
    SW_LIVENESS_TIME,     /* due_ns has come */
};

/* What its user is to do. */
enum sw_liveness_step {
    SW_LIVENESS_NOTHING,
    SW_LIVENESS_ASK,     /* send the MAD that asks where the other listens */
    SW_LIVENESS_INVITE,  /* send the MAD that invites the other to ask */
    SW_LIVENESS_CALL,    /* connect anew, instead of what there is */
    SW_LIVENESS_HANG_UP, /* close what there is */
    SW_LIVENESS_BURY,    /* close what there is; the process is dead */
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
    bool has_hoped; /* it has asked or invited once, not knowing what the other is */
    bool pauses;    /* CHECKING: waits until it looks again */
    uint32_t tries; /* of asking or of calling, in vain */
    uint64_t due_ns;
    uint64_t pinged_ns;   /* when the ping was sent that is not answered yet; 0: there is none */
    uint64_t answered_ns; /* when the latest ping was sent that was answered promptly */
};

void sw_liveness_init(struct sw_liveness *l, bool calls);
enum sw_liveness_step sw_liveness_take(struct sw_liveness *l, enum sw_liveness_event event,
                                       uint64_t now_ns);

/* Whether what was sent at `since_ns` need not have been seen yet by a process that lives. */
bool sw_liveness_is_excused(const struct sw_liveness *l, uint64_t since_ns);
/* Whether the two have met not long ago, so that the connection may still come about. A process
 * that gets no processor connects late; one that has died never does. */
bool sw_liveness_is_meeting(const struct sw_liveness *l, uint64_t now_ns);
/* Whether to ping now. */
bool sw_liveness_ping(struct sw_liveness *l, uint64_t now_ns);
/* The ping that was sent at `pinged_ns` is answered. `rtt_ns`: what a round trip between the two
 * kernels takes, whether the other process runs or not. */
void sw_liveness_pong(struct sw_liveness *l, uint64_t pinged_ns, uint64_t rtt_ns, uint64_t now_ns);

#endif
