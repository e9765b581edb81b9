/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member of a group as a machine: events come in, orders go out by a port. It has no clock, no
 * network and no memory of its own; service.c drives it, and a simulator in the tests.
 *
 * STARTING  reads the log to learn who is there
 * SEEKING   asks all members who leads. If nobody does, and its turn has come: CANDIDATE
 * CANDIDATE opens the log as its writer, which fences the writer before
 * LEADER    appends what members propose, and tells all what is in the log
 * FOLLOWER  proposes, and hears
 *
 * Clocks decide only when somebody is suspected. A wrong suspicion costs time and nothing else: the
 * log fences leaders, and the medium fences owners.
 */
#ifndef SW_MOVERS_NVME_GROUP_MACHINE_H
#define SW_MOVERS_NVME_GROUP_MACHINE_H

#include "nvme/target/group/message.h"
#include "nvme/target/group/state.h"

enum {
    NVG_LINKS = 64,           /* 0-15: to the member of that slot. Others: from whoever calls */
    NVG_LINKS_IN = NVG_SLOTS, /* the first of these */
    NVG_WISHES = 4 * NVG_PLACES_MAX,
    NVG_JOBS = 512,  /* records that wait to be appended */
    NVG_QUIETS = 64, /* controllers that are to be ended: by a member, and at the leader */
};

enum nvg_journal_kind {
    NVG_JOURNAL_READ,   /* all was read that a reader sees; no: why it could not be */
    NVG_JOURNAL_OPENED, /* all was read, and this member is the writer */
    NVG_JOURNAL_FAILED, /* it could not be read, or opened: `text` */
    NVG_JOURNAL_DONE,   /* the append is in the log */
    NVG_JOURNAL_FENCED, /* another writer has the log: it is closed */
    NVG_JOURNAL_QUORUM, /* whether a quorum of copies is there: `has_quorum` */
};

struct nvg_journal_event {
    enum nvg_journal_kind kind;
    bool has_quorum;       /* of READ: the log was reached, though it may be empty */
    bool wants_checkpoint; /* of OPENED and DONE: much of the ring is used */
    uint64_t epoch;        /* of OPENED: the writer's; greater than that of each before it */
    bool is_hopeless;      /* of FAILED: trying again changes nothing */
    char text[NVG_TEXT_BYTES];
};

/* Orders. None may call the machine. */
struct nvg_port {
    void *context;
    void (*dial)(void *context, uint32_t link, const char *address);
    void (*send)(void *context, uint32_t link, const uint8_t *message, size_t bytes);
    void (*hang_up)(void *context, uint32_t link); /* after what was sent; nothing comes after it */
    void (*journal_read)(void *context);
    void (*journal_open)(void *context);
    void (*journal_append)(void *context, const uint8_t *record, size_t bytes);
    /* Forgets all before the newest append whose record was BEGIN. */
    void (*journal_trim)(void *context);
    void (*journal_close)(void *context);
    void (*tell)(void *context, const struct nvg_event *event);
    uint64_t (*draw)(void *context); /* a random number */
};

struct nvg_link {
    bool is_open;   /* dialled, or come */
    bool is_up;     /* it can be sent to */
    bool is_member; /* who called was in the log when it was welcomed */
    bool is_joining, is_leaving;
    uint8_t slot;
    uint64_t incarnation;
    uint64_t heard_ns, said_ns, since_ns;
    struct nvg_join join; /* of one that joins */
};

/* What this member wants to be in the log. It asks each leader anew until it is there. */
struct nvg_wish {
    bool is_used, is_sent;
    uint64_t number, retry_ns;
    enum nvg_record_kind kind;
    uint32_t nsid;
    uint64_t epoch, size_bytes;
    uint64_t id, user; /* of a reservation: its number in the log, and the target's */
    bool was_sent;     /* to any leader: it may be in the log */
    bool is_logged;    /* of RESERVE: it is, and is to hold at all members */
    uint32_t error;    /* of DISK */
};

struct nvg_job {
    uint8_t link;    /* NVG_LINKS: its own */
    uint64_t number; /* of the proposal; 0: nobody waits for it */
    uint16_t bytes;
    uint8_t record[NVG_RECORD_MAX];
};

/* What this member's target was told of a namespace. */
enum nvg_told {
    NVG_TOLD_NOTHING,
    NVG_TOLD_STANDBY,
    NVG_TOLD_TAKE,
    NVG_TOLD_SERVE,
    NVG_TOLD_RELEASE
};

struct nvg_mine {
    enum nvg_told told;
    uint64_t epoch;                       /* of that */
    uint64_t size_bytes;                  /* that was told */
    uint64_t owner;                       /* of STANDBY: the incarnation that was named */
    struct nvt_reservation wanted;        /* of a wish of it */
    struct nvt_reservation_change change; /* the same where all members are active */
    /* Changes of its reservation that the target was told of, that hold here, and that hold
     * wherever a host is served. */
    uint64_t reserved, applied, settled;
    uint64_t disk;                  /* the last change of its disk that the target was told of */
    uint64_t refused_ns[NVG_SLOTS]; /* at the leader: until then that member is not asked again */
};

/* A controller that a host of this member wants ended. */
struct nvg_quiet {
    bool is_used;
    uint64_t retry_ns, until_ns;
    struct nvg_controller of;
};

/* The same at the leader, for a member that has asked. */
struct nvg_quiesce {
    bool is_used;
    uint8_t link;        /* NVG_LINKS: its own */
    uint64_t retry_ns;   /* when to ask the member that has it again */
    uint64_t unknown_to; /* the incarnation that knows no such controller; 0: none has said so */
    uint64_t append;     /* once that one is in the log, the leader's state is new enough */
    struct nvg_controller of;
};

/* At the leader: a namespace, or a host, is wanted elsewhere (move.c). */
struct nvg_move {
    bool is_wanted;
    uint8_t slot;
    uint64_t until_ns;
    uint64_t epoch; /* of the owner that is to give it up */
    uint64_t asked; /* the same, once it was asked */
};

/* At the leader: which members a host is connected to (hosts.c). */
struct nvg_presence {
    struct nvg_host host; /* that this is about: the log may have the number's host before yet */
    uint64_t since_ns;    /* without a break */
    uint64_t until_ns[NVG_SLOTS];
    uint64_t heard_ns[NVG_SLOTS]; /* 0: never */
    uint8_t origins[NVG_SLOTS][NVG_ORIGIN_BYTES];
};

/* At the leader: the changes of reservations that hold at a member (settle.c). */
struct nvg_settling {
    uint64_t incarnation;
    uint64_t applied[NVG_NSID_MAX + 1];
};

struct nvg_peer {
    uint64_t gone; /* the incarnation that nobody answers for any more */
    uint64_t gone_ns;
    uint64_t answered_ns; /* when it said last that it follows, leads, or is about to */
    uint64_t seeking_ns;  /* when it said last that it seeks */
    bool is_asked;        /* in this search; the answer has not come */
    bool is_mute;         /* it takes long, and the call was not refused */
    bool has_joined;      /* it was in the log already when it answered */
};

struct nvg_setup {
    const char *nqn;
    struct nvg_join self; /* slot: any */
    uint32_t namespace_count;
    const struct nvg_namespace *namespaces;
    bool is_all_active;
    uint64_t timeout_ns;
};

struct nvg_machine {
    struct nvg_port port;
    struct nvg_setup setup;
    enum nvg_role role;
    uint64_t now_ns;
    bool has_joined; /* its JOIN is in the log, and it knows its slot */
    bool is_synced;  /* it has the whole state of the leader that it follows */
    bool is_leaving, has_quorum;
    uint8_t slot;
    uint64_t seek_ns, round_ns, lead_ns, leave_ns, retry_ns;
    uint64_t log_epoch;   /* of a leader, as the writer of the log */
    uint64_t reread_ns;   /* when one that seeks has read the log again */
    bool is_reading;      /* and it has not been read yet */
    uint64_t reached_ns;  /* when this search has reached the log first; 0: it has not */
    uint64_t read_count;  /* the records that this search has found there; 0: it has not looked */
    uint64_t grown_ns;    /* when they were others than before: somebody leads; 0: never */
    uint64_t pulse_ns;    /* when a leader has shown last that it lives */
    uint64_t quorum_ns;   /* when a leader has lost the quorum */
    uint64_t named_ns;    /* when a follower has heard last of a namespace, or of all */
    uint32_t leader_link; /* of a follower; NVG_LINKS: none */
    /* The incarnation that led and was silent: the search after that does not wait for its answer.
     * It ends with that search: two members that shun each other fence each other in turn. */
    uint64_t shunned;
    bool is_replaced; /* another member has opened the log, and this one has not found it yet */
    bool was_cut;     /* it did not reach the log, so perhaps it was not the leader that was away */
    bool is_replaying; /* records of the log have come, and not all: some members may be missing */
    bool wants_checkpoint, is_dumping, is_appending;
    uint32_t dump; /* where the checkpoint under way is */
    uint32_t job_first, job_count;
    uint64_t appends, appended;        /* begun so far, and the last one that is in the log */
    uint64_t calm_appended[NVG_SLOTS]; /* which one the last CALM of that slot was */
    uint64_t calm_told;                /* the last one that the target was told of */
    uint64_t numbers;
    char trouble[NVG_TEXT_BYTES]; /* why it has not joined so far */
    struct nvg_job now;           /* the append under way */
    struct nvg_link links[NVG_LINKS];
    struct nvg_peer peers[NVG_SLOTS];
    struct nvg_mine mine[NVG_PLACES_MAX + 1];
    struct nvg_wish wishes[NVG_WISHES];
    struct nvg_job jobs[NVG_JOBS];
    struct nvg_move moves[NVG_PLACES_MAX + 1];
    struct nvg_presence presences[NVG_HOSTS_MAX];
    struct nvg_settling settling[NVG_SLOTS];
    uint64_t settled[NVG_NSID_MAX + 1]; /* that this leader has said */
    struct nvg_quiet quiets[NVG_QUIETS];
    struct nvg_quiesce quiesces[NVG_QUIETS];
    struct nvg_replica replica;
    struct nvg_message in, out; /* too large for a stack */
    struct nvg_record record, made;
    struct nvg_event event;
};

/* The machine is all zeroes; what setup points to stays. Begins by reading the log. */
void nvg_machine_start(struct nvg_machine *m, const struct nvg_setup *setup,
                       const struct nvg_port *port, uint64_t now_ns);
/* Time has passed: at least every 20 ms. */
void nvg_machine_tick(struct nvg_machine *m, uint64_t now_ns);

void nvg_machine_link_up(struct nvg_machine *m, uint32_t link); /* that it has dialled */
void nvg_machine_link_in(struct nvg_machine *m, uint32_t link); /* somebody has called */
void nvg_machine_link_lost(struct nvg_machine *m, uint32_t link);
void nvg_machine_message(struct nvg_machine *m, uint32_t link, const uint8_t *message,
                         size_t bytes);

/* A record that was read from the log, in order, before READ and OPENED. */
void nvg_machine_record(struct nvg_machine *m, const uint8_t *record, size_t bytes);
void nvg_machine_journal(struct nvg_machine *m, const struct nvg_journal_event *event);

/* What the target says: group.h. */
void nvg_machine_taken(struct nvg_machine *m, uint32_t nsid, uint64_t epoch, uint64_t size_bytes);
/* It has nothing of it open: after RELEASE, or where it cannot take or keep it. */
void nvg_machine_released(struct nvg_machine *m, uint32_t nsid, uint64_t epoch);
void nvg_machine_resized(struct nvg_machine *m, uint32_t nsid, uint64_t epoch, uint64_t size_bytes);
int nvg_machine_reserve(struct nvg_machine *m, uint32_t nsid, uint64_t epoch,
                        const struct nvt_reservation *reservation, uint64_t id);
int nvg_machine_change(struct nvg_machine *m, uint32_t nsid,
                       const struct nvt_reservation_change *change, uint64_t id);
/* An errno: that member's disk of it has failed; 0: an operator says that it is sound. */
int nvg_machine_disk(struct nvg_machine *m, uint32_t nsid, uint32_t error);
void nvg_machine_applied(struct nvg_machine *m, uint32_t nsid, uint64_t number);
int nvg_machine_quiesce(struct nvg_machine *m, const struct nvg_controller *of);
void nvg_machine_quieted(struct nvg_machine *m, const struct nvg_controller *of,
                         enum nvt_quiet quiet);
void nvg_machine_calmed(struct nvg_machine *m, uint64_t id);
/* That host is connected to this member: said again each 300 ms. */
void nvg_machine_host_is_here(struct nvg_machine *m, const struct nvg_host *host,
                              const uint8_t origin[NVG_ORIGIN_BYTES]);
enum nvg_room nvg_machine_room_for(const struct nvg_machine *m, const struct nvg_host *host);
/* An errno as nvg_move() returns it. */
int nvg_machine_move(struct nvg_machine *m, const struct nvg_moved *what, const char *member,
                     uint64_t *epoch);
void nvg_machine_leave(struct nvg_machine *m);

/* ---- between the files of the machine ---- */

enum { NVG_MS = 1000000 };

/* machine.c */
void nvg_send(struct nvg_machine *m, uint32_t link, const struct nvg_message *message);
void nvg_hang_up(struct nvg_machine *m, uint32_t link);
void nvg_stop(struct nvg_machine *m, int status, const char *text, const char *name);
/* Looks for a leader. One that led closes the log first. */
void nvg_seek(struct nvg_machine *m);
/* Ends all links, with a word to members that follow. */
void nvg_close_links(struct nvg_machine *m);
/* The group takes changes, as far as this member knows. */
bool nvg_may_decide(const struct nvg_machine *m);
/* That very process is this member. */
bool nvg_is_self(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation);
/* The replica has changed: tells the target, fulfils wishes, and ends where it is no member. */
void nvg_state_moved(struct nvg_machine *m, uint32_t nsid);

/* seek.c: how a leader is found, or becomes one. */
void nvg_seek_tick(struct nvg_machine *m);
void nvg_seek_has_read(struct nvg_machine *m, bool was_reached);
void nvg_seek_answer(struct nvg_machine *m, uint32_t link, const struct nvg_message *message);
/* It cannot be a member as it was started: true, and it has stopped. */
bool nvg_stops_unfit(struct nvg_machine *m);

/* lead.c: what a leader does. */
void nvg_lead_begin(struct nvg_machine *m, bool wants_checkpoint);
void nvg_lead_tick(struct nvg_machine *m);
void nvg_lead_hello(struct nvg_machine *m, uint32_t link, const struct nvg_message *hello);
void nvg_lead_propose(struct nvg_machine *m, uint32_t link, uint64_t number, const uint8_t *record,
                      size_t bytes);
void nvg_lead_done(struct nvg_machine *m, bool wants_checkpoint);
/* Orders that member to end its controllers before it owns anything again. */
void nvg_lead_name_host(struct nvg_machine *m, uint32_t number, const struct nvg_host *host);
void nvg_lead_order_calm(struct nvg_machine *m, uint8_t slot);
/* Appends what changes nothing: when it is in the log, so is all that was decided before, by
 * another leader, too. */
void nvg_lead_prove(struct nvg_machine *m);
bool nvg_lead_suspects(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation);
/* Its decisions count: what it was before, the log has by now. */
bool nvg_lead_counts(const struct nvg_machine *m);
/* By which that process is heard; NVG_LINKS: there is none. */
uint32_t nvg_lead_link_of(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation);
/* A member that is there, and takes that namespace. */
bool nvg_lead_may_own(const struct nvg_machine *m, uint32_t nsid, uint8_t slot);
void nvg_lead_quorum(struct nvg_machine *m, bool has_quorum);

/* quiesce.c: controllers that hosts have lost. */
void nvg_quiesce_tick(struct nvg_machine *m);
/* Appends what a question waits for. True: it has. */
bool nvg_quiesce_decide(struct nvg_machine *m);
void nvg_quiesce_hear(struct nvg_machine *m, uint32_t link); /* m->in, from a member */
void nvg_quiesce_hear_leader(struct nvg_machine *m);         /* m->in, from the leader */
void nvg_quiesce_link_lost(struct nvg_machine *m, uint32_t link);
void nvg_quiesce_anew(struct nvg_machine *m);

/* settle.c: where the changes of reservations hold. */
void nvg_settle_begin(struct nvg_machine *m);                  /* it leads */
void nvg_settle_welcome(struct nvg_machine *m, uint32_t link); /* it may have missed some */
void nvg_settle_tick(struct nvg_machine *m);                   /* of a leader */
void nvg_settle_hear(struct nvg_machine *m, uint8_t slot, uint64_t incarnation, uint32_t nsid,
                     uint64_t number);
/* There is another leader: what holds here. */
void nvg_settle_anew(struct nvg_machine *m);
/* A change waits for a process that owned that host, or may have, and the host is nowhere: any
 * member may fence that process. */
bool nvg_settle_wants(const struct nvg_machine *m, uint32_t number);

/* hosts.c: at the leader of a group whose members are all active, which hosts are where. */
/* By that link; NVG_LINKS: its own target says so. */
void nvg_hosts_hear(struct nvg_machine *m, uint32_t link, const struct nvg_host *host,
                    const uint8_t origin[NVG_ORIGIN_BYTES]);
/* The leader has no place for that host. */
void nvg_hosts_tell_placeless(struct nvg_machine *m, const struct nvg_host *host,
                              bool is_of_origin);
void nvg_hosts_leave(struct nvg_machine *m, uint32_t number, uint8_t slot);
/* Whether that member may have the host of that number, which is connected there. */
bool nvg_hosts_is_anywhere(const struct nvg_machine *m, uint32_t number);
bool nvg_hosts_may_own(const struct nvg_machine *m, uint32_t number, uint8_t slot);
/* The host may be connected to more members in a moment: it is given to none yet. */
bool nvg_hosts_is_early(const struct nvg_machine *m, uint32_t number);

/* move.c: at the leader, namespaces and hosts that are wanted elsewhere. */
/* A wish of another epoch than the newest is late, and changes nothing. */
void nvg_move_wish(struct nvg_machine *m, uint32_t nsid, uint8_t slot, uint64_t epoch);
void nvg_move_tick(struct nvg_machine *m);
/* The member that shall have it; -1: no one is wanted, or cannot have it now. */
int nvg_move_choice(const struct nvg_machine *m, uint32_t nsid);

/* wish.c: what this member asks for, and what its target is told. */
void nvg_wish_tick(struct nvg_machine *m);
void nvg_wish_anew(struct nvg_machine *m);
void nvg_wish_refused(struct nvg_machine *m, uint64_t number, int status);
/* The target is told to give it up, where it serves it in that epoch. */
void nvg_wish_give_up(struct nvg_machine *m, uint32_t nsid, uint64_t epoch);
void nvg_wish_look(struct nvg_machine *m, uint32_t nsid);
/* That change holds wherever a host is served. */
void nvg_wish_settled(struct nvg_machine *m, uint32_t nsid, uint64_t number);
/* A record is about to be taken. */
void nvg_wish_note(struct nvg_machine *m, const struct nvg_record *record);
/* Whether this member is to end its controllers. */
void nvg_wish_look_at_calm(struct nvg_machine *m);

#endif
