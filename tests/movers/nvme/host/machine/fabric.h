/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated network, as the port of the host's machine: connections come about and break, the
 * device reads SENDs late, their reports and the answers pass each other.
 * Nothing happens by itself: the test calls fabric_step(). What commands do is in target.c.
 */
#ifndef SW_TEST_NVME_FABRIC_H
#define SW_TEST_NVME_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/port.h"
#include "nvme/host/machine/queue.h"
#include "nvme/wire/fabrics.h"

enum {
    FABRIC_LINKS = 3,     /* the admin queue's, and those of I/O queues */
    FABRIC_ENTRIES = 128, /* SENDs, commands, completions of a link */
    FABRIC_CAPSULE_MAX = 128,
    FABRIC_KEY = 0x5eed, /* of the scratch, and of the program's memory */
};

/* A SEND, and then the command that it brings. */
struct fabric_command {
    struct nvf_sqe sqe;
    uint32_t capsule_bytes;
    uint8_t capsule[FABRIC_CAPSULE_MAX];
    const struct nvf_sqe *sqe_at; /* what the device reads */
    const void *capsule_at;
    bool is_inline, is_read;
    void *owner;       /* the request's `arg`: NULL for the machine's own */
    uint64_t sequence; /* of the request, which may have ended */
    uint32_t send;
    bool signals;
    bool is_executed;
    uint16_t status;
    uint64_t result;
};

struct fabric_ring {
    struct fabric_command at[FABRIC_ENTRIES];
    uint32_t count;
};

struct fabric_completion {
    bool is_send;
    uint32_t send;
    struct nvf_cqe cqe;
};

enum fabric_state { FABRIC_CLOSED, FABRIC_ASKED, FABRIC_ANSWERED, FABRIC_OPEN };

struct fabric_link {
    struct sw_nvme_queue *queue;
    enum fabric_state state;
    bool is_refused, is_cut; /* the host is told by its next look */
    bool is_dead;            /* the target's end is gone: nothing arrives any more */
    struct fabric_ring sends, reports, commands; /* reports: SENDs that are not reported done */
    struct fabric_completion completions[FABRIC_ENTRIES];
    uint32_t completion_first, completion_count;
    struct nvf_cqe last;     /* the newest answer, for a target that says it again */
    uint32_t arrived, known; /* commands; those whose entries the host may use again */
    uint64_t sequence;       /* of the newest request that was sent */
    bool is_connected, is_authenticated, is_proved; /* target.c */
    uint8_t auth_step, host_step;
    uint16_t cntlid;
};

enum fault_on_purpose {
    NO_FAULT,
    /* of the network and the target */
    ANSWER_EARLY,   /* a WRITE is answered before it happens */
    SEND_READ_LATE, /* a SEND is reported done, and read afterwards */
    END_LEAKS,      /* commands of a connection that has ended still use memory */
    OLD_LINGERS,    /* they still happen when a new controller is there */
    /* of the program */
    MAYBE_IS_DONE, /* it takes "maybe done" for done */
    BUFFER_EARLY,  /* it uses memory of a request that has not ended */
    /* of the machine, by its fields */
    CID_STUCK,            /* all uses of a slot have the same number */
    RESERVATION_REPLAYED, /* what must not be sent again is */
    SEND_FORGOTTEN,       /* a request ends while the device reads its command */
    SENT_FORGOTTEN,       /* one that was sent is said not to have been */
    KEEP_ALIVE_FORGOTTEN, /* none is sent */
    ORDER_LOST,           /* requests leave in any order after a loss */
    TIMER_FORGOTTEN,      /* no command is too old */
    RING_FORGOTTEN,       /* the controller's ring has always room */
    PROOF_FORGOTTEN,      /* a controller may be anybody */
    FAULTS
};

struct fabric {
    uint64_t *seed;
    enum fault_on_purpose fault;
    uint64_t now_ns;
    bool is_away;    /* the target, or the way to it */
    bool is_hostile; /* it says answers again, and drops some */
    bool is_sloppy;  /* it hardly moves the head of its rings */
    uint32_t inline_bytes;
    bool is_locked; /* by the machine */
    bool is_tended; /* by another thread, which has the lock */
    struct fabric_link links[FABRIC_LINKS];
    struct fabric_ring stale; /* of connections that the host has ended */
    const char *failure;
    /* A request has its answer, and has perhaps not ended yet. */
    void (*answers)(void *owner);
    /* Memory of a request is used. */
    void (*touches)(const void *data);
    uint64_t (*sequence_of)(const void *owner);
};

/* There is one at a time. */
extern struct fabric the_fabric;
extern const struct nvh_port fabric_port;

uint64_t fabric_draw(uint64_t limit);
void fabric_fail(const char *why);
void fabric_drop(struct fabric_ring *ring, uint32_t index);
/* Something arrives, happens, is answered, or breaks. */
void fabric_step(void);
/* All connections end; some of what is under way still happens, and some of it later. */
void fabric_cut(void);

#endif
