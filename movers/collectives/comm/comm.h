/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A communicator from the inside. Each file of this folder has a part of it: open.c makes and ends
 * it, door.c lets other ranks in, peer.c has the connection to one of them, send.c what is posted
 * there, port.c is the machine's door to all that, request.c has the operations in the order of
 * their posts, watchdog.c their deadlines, transfer.c the messages from rank to rank, group.c those
 * that begin together, page.c what is shown of it, recorder.c what is recorded, dump.c what is
 * written of that, wait.c looks and sleeps, any.c waits for any of several, wake.c ends a sleep
 * from another thread, failure.c ends it all; after a death agreement.c sees to it that all name
 * the same ranks, by votes (vote.c). shrink.c and split.c make new ones of it.
 */
#ifndef SW_COLLECTIVES_COMM_H
#define SW_COLLECTIVES_COMM_H

#include "collectives/comm/card.h"
#include "collectives/comm/mailbox.h"
#include "collectives/comm/regions.h"
#include "collectives/comm/wake.h"
#include "collectives/core/agree.h"
#include "collectives/core/machine.h"
#include "collectives/core/pairs.h"
#include "collectives/core/recorder.h"
#include "common/base/list.h"
#include "common/rdma/connection.h"
#include "common/rdma/fork_guard.h"
#include "common/rdma/listener.h"
#include "sidewire/coll.h"

enum {
    COLL_SENDS = 64,    /* requests to one peer that are with the device */
    COLL_RECEIVES = 4,  /* for doorbells */
    COLL_MOVES = 1024,  /* pulls and pushes of all peers that are not settled */
    COLL_INLINE = 64,   /* bytes: a record */
    COLL_MESH_MAX = 16, /* so many ranks are connected when the communicator opens */
};

enum coll_peer_state {
    COLL_PEER_ABSENT,  /* there is no connection yet */
    COLL_PEER_DIALING, /* this rank, the lower one, asks */
    COLL_PEER_PROBING, /* this rank, the higher one, looks whether the other one is there */
    COLL_PEER_ASKED,   /* the other one has, and was accepted */
    COLL_PEER_UP,
    COLL_PEER_ENDED, /* for good */
};

/* On the way to sleep: the peer is told, then asked whether something is under way. */
enum coll_stage { COLL_AWAKE, COLL_TELLING, COLL_ASKING, COLL_UNDER_WAY, COLL_SURE };

enum { COLL_NO_MOVE = UINT32_MAX };

enum coll_sent_kind {
    COLL_SENT_MAIL,
    COLL_SENT_MOVE,
    COLL_SENT_TELL,
    COLL_SENT_ASK,
    COLL_SENT_LOOK
};

struct coll_sent { /* a request that asked for a completion */
    enum coll_sent_kind kind;
    uint32_t move;   /* of MOVE: its place among the moves */
    uint64_t posted; /* up to this one */
};

/* What waits until the peer's queue has room, or until there is a connection. */
struct coll_deferred {
    struct coll_deferred *next;
    enum { COLL_DEFER_MAIL, COLL_DEFER_PULL, COLL_DEFER_PUSH } kind;
    enum coll_slot slot; /* of MAIL */
    uint64_t number;
    uint32_t payload_bytes;
    uint32_t move; /* of the others; COLL_NO_MOVE: a piece that is not the last one */
    uint64_t local, remote, bytes;
    uint32_t lkey, rkey;
};

struct coll_peer {
    struct sw_coll *coll;
    uint32_t rank;
    enum coll_peer_state state;
    bool is_gone; /* it has died, or closed while it was waited for */
    struct coll_card card;
    struct mover_connection connection;
    uint64_t retry_ns; /* of a dial that has failed; 0: none is due */
    uint32_t refusals;
    uint8_t *inbox, *outbox; /* slices: what the peer writes, what this rank writes to it */
    uint64_t posted, done;   /* requests */
    uint64_t signals_posted, signals_done;
    struct coll_sent signals[COLL_SENDS];
    struct coll_deferred *first, **last;
    uint64_t busy[2][COLL_SLOTS]; /* mails that are read from the outbox until `done` is there */
    uint64_t votes;               /* that it was sent */
    uint64_t votes_busy;          /* as `busy` */
    uint64_t told_version;        /* of this rank's vote */
    uint64_t notes_busy[2][COLL_RING], words_busy[COLL_WORDS]; /* the same of these; [1]: rooms */
    enum coll_stage stage;
    uint64_t wanted;  /* the sleep that the peer was told of */
    uint64_t bells;   /* that came */
    uint64_t rung;    /* the sleep of the peer that was ended */
    bool is_listened; /* messages of it wake sw_coll_wait_any() */
    bool is_awaited;  /* the program waits for one */
    bool is_absent;   /* and for that rank, to open another communicator */
    struct sw_coll_message awaited;
    uint64_t awaited_ns, tell_ns; /* since when; when the log is told next. 0: nobody has looked */
};

struct coll_failure {
    /* Noted; the others were told; the caller was. */
    bool is_set, is_done, was_said;
    /* Ranks agree on who is gone: `error` is not known yet. Then they tell what was decided. */
    bool is_agreeing, is_telling;
    bool is_outcast;                /* the others count this rank as gone, and are told nothing */
    bool is_ending, is_over;        /* all connections are to end; have ended */
    struct coll_set late;           /* ranks that are to be left out */
    uint32_t known;                 /* so many that are gone, when it was last looked */
    uint32_t patience;              /* how often ranks were left out that did not say who is gone */
    uint64_t began_ns, deadline_ns; /* of the agreement */
    struct sw_coll_error error;
};

struct sw_coll_request {
    struct list_node node; /* of those that are to be done, of those that were, or of the free */
    struct sw_coll *coll;
    struct sw_coll_call call;
    uint64_t *counts; /* copies, for the call */
    uint64_t deadline_ns, started_ns;
    uint64_t tell_ns;        /* when the log is told next; UINT64_MAX: no more */
    bool has_begun, is_over; /* of the machine: it is over, but not all is given to devices yet */
    bool is_recorded;        /* as one that has begun */
    bool is_timed;           /* with a real look at the clock */
    bool is_transfer;        /* from rank to rank: no `call` */
    bool is_held;            /* the program waits for it */
    struct coll_transfer transfer;
    uint64_t number;             /* of an operation */
    uint64_t serial;             /* of its record; 0: none yet */
    struct list_node group_node; /* of those that the end of a group waits for */
    enum sw_coll_status status;
    struct coll_region *send, *recv;
};

struct sw_coll {
    struct sw_coll_options options;
    struct coll_site site;
    uint16_t *placement; /* what `site` may point to: ranks of places, then places of ranks */
    uint32_t hosts;      /* how many ranks are on */
    bool keeps_ranks;    /* each is at the place of its number */
    struct mover_fork_guard guard;
    struct coll_wake wake;
    int epoll_fd, timer_fd;
    struct rdma_event_channel *events; /* of the listener */
    struct mover_listener listener;
    uint32_t strangers; /* that were refused */
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct mover_queue queue;
    uint32_t reads_max, inline_bytes;
    struct coll_layout layout;
    uint8_t *mailbox, *outbox, *scratch;
    struct ibv_mr *mailbox_mr, *outbox_mr, *scratch_mr;
    struct coll_regions regions;
    struct coll_card card; /* this rank's */
    uint8_t token[COLL_TOKEN_BYTES];
    struct coll_peer *peers; /* one for each rank; this rank's is not used */
    bool must_yield;         /* ranks of this host share processors */

    struct coll_port port;
    struct coll_machine machine;
    void *machine_memory;
    uint64_t posts;  /* operations that were posted */
    uint64_t number; /* of the newest operation that has begun */
    uint64_t ended;  /* of the newest that has ended well */
    struct list posted, ended_requests, free_requests;
    struct coll_pairs_port pairs_port;
    struct coll_pairs pairs;
    struct list transfers; /* that are not over, in the order of their posts */
    struct list grouped;
    uint32_t group_depth;
    uint32_t held_count[2]; /* requests that the program waits for: operations, transfers */
    uint32_t listened_count, awaited_count, absent_count;
    uint64_t absent_since_ns;
    uint64_t bells;                         /* that came */
    uint32_t watched;                       /* the peer whose doorbell ends a sleep */
    uint64_t completions, completions_seen; /* that were taken; before operations last went on */
    struct sw_coll_request *current;        /* whose buffers the machine uses */
    /* Pulls and pushes, which the machine has posted in this order: which of the newest are done,
     * and how many of the first. */
    bool moves[COLL_MOVES];
    uint64_t moves_posted, moves_settled;
    struct coll_deferred *free_deferred;
    uint32_t deferred_count;

    struct coll_page *page;         /* NULL: there is none */
    struct coll_recorder *recorder; /* where the page is; NULL: there is none */
    char *page_path;                /* NULL: the page is memory of this process alone */
    int page_fd;
    struct sw_coll *own_next; /* of those of this process that have a file */
    uint64_t page_ns;         /* it was brought up to date */
    uint64_t page_looked_ns;  /* the last look at the clock */
    char *dump_folder;        /* NULL: none */
    bool has_signal;          /* one of this process asks for dumps */
    uint32_t dumps_asked;     /* by signals, that were answered */

    struct coll_failure failure;
    struct coll_agree agree;
    struct coll_heard *heard;
    uint8_t shown[COLL_CARD_BYTES]; /* with votes: this rank's card of the communicator to come */
    uint64_t looked_ns;             /* at descriptors */
};

static inline bool coll_is_other(const struct sw_coll *coll, uint32_t rank)
{
    return rank != coll->site.rank && rank < coll->site.size;
}

#endif
