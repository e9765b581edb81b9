/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A group of targets, as one of its members sees it. What the group decides is in a replicated log
 * (<sidewire/pmem_log.h>); docs/shared-storage.md says how. A group has threads of its own, in
 * which log and links may wait. All functions are for one thread of the caller, and none but
 * nvg_open() waits.
 *
 * Each namespace goes this way, as events of one member tell it:
 *
 *     STANDBY --> TAKE --> nvg_taken() --> SERVE --> RELEASE --> nvg_released() --> STANDBY
 *                   `----> nvg_failed()                `-------> nvg_lost()
 *
 * Where all members are active (`--active all`), each has all namespaces open, and what members own
 * are hosts: each host's commands are done by one member at a time. A host goes the same way, with
 * a number behind those of namespaces.
 *
 * The group decides only which member shall own a namespace. What keeps the data whole is the
 * fence: between TAKE and nvg_taken() the member makes the medium refuse all formers.
 */
#ifndef SW_MOVERS_NVME_GROUP_H
#define SW_MOVERS_NVME_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/model/reservation.h"
#include "nvme/target/model/reset.h"

enum {
    NVG_SLOTS = 16, /* members of a group */
    NVG_NAMESPACES_MAX = 128,
    NVG_NSID_MAX = 128,                            /* also of its ANA group */
    NVG_HOSTS_MAX = 64,                            /* of a group whose members are all active */
    NVG_PLACES_MAX = NVG_NSID_MAX + NVG_HOSTS_MAX, /* what members own: namespaces, then hosts */
    NVG_COPIES_MAX = 5,
    NVG_FORMERS_MAX = 16, /* owners of a namespace that are not known to be fenced */
    NVG_NAME_BYTES = 32,  /* of a member, with the NUL */
    NVG_NQN_BYTES = 224,
    NVG_SERIAL_BYTES = 21,
    NVG_ADDRESSES_MAX = 8,
    NVG_ADDRESS_BYTES = 64, /* "192.0.2.1:4420", "[fe80::1%eth0]:4420" */
    NVG_MEDIUM_BYTES = 160, /* what identifies a medium, as text */
    NVG_UUID_BYTES = 16,
    NVG_ORIGIN_BYTES = 16, /* where a host comes from: an IPv6 network, or a mapped address */
    NVG_TEXT_BYTES = 256,
};

/* A namespace as a member was started with it. */
struct nvg_namespace {
    uint32_t nsid, block_bytes;
    uint64_t size_bytes;
    uint8_t uuid[NVG_UUID_BYTES], nguid[NVG_UUID_BYTES]; /* all zero: the group makes them */
    char medium[NVG_MEDIUM_BYTES];
};

/* A host of a group whose members are all active. */
struct nvg_host {
    struct nvt_host_id id;
    char nqn[NVG_NQN_BYTES];
};

/* What is to have another owner. */
struct nvg_moved {
    uint32_t nsid;               /* a namespace, or ... */
    const struct nvg_host *host; /* ... a host; NULL: none */
};

enum nvg_room {
    NVG_HAS_PLACE, /* that host has one */
    NVG_MAY_HAVE,  /* the leader decides */
    NVG_IS_FULL    /* all places are those of hosts that members serve */
};

struct nvg_copy {
    const char *address, *port;
    const char *region; /* NULL: the only one there */
};

struct nvg_settings {
    const char *nqn;
    const char *member; /* its name: letters, digits, ".", "_", "-"; at most 31 */
    uint32_t copy_count;
    struct nvg_copy copies[NVG_COPIES_MAX]; /* of the log, in an order that stays */
    const char *group_address, *group_port; /* where it listens for other members */
    uint32_t address_count;                 /* where hosts find it */
    char addresses[NVG_ADDRESSES_MAX][NVG_ADDRESS_BYTES];
    uint32_t namespace_count;
    const struct nvg_namespace *namespaces;
    bool is_all_active;  /* members own hosts, and no namespaces: all say the same */
    uint32_t timeout_ms; /* after which a silent member is suspected; 0: 5000 */
    uint32_t open_ms;    /* how long nvg_open() tries; 0: 30000 */
};

/* An owner that the medium has to refuse from now on. */
struct nvg_former {
    char member[NVG_NAME_BYTES];
    uint8_t slot;
    uint64_t incarnation, epoch;
    uint8_t boot_id[16]; /* of its kernel: where that is another one, the process is elsewhere */
    int32_t pid;
    uint64_t start_ticks; /* of the process: field 22 of /proc/PID/stat */
};

/* A controller of the member in that slot, which a host has lost and asks another member to end. */
struct nvg_controller {
    uint8_t slot;
    struct nvt_lost lost;
};

enum nvg_event_kind {
    NVG_STANDBY = 1, /* another member has the namespace, or none: `member` */
    NVG_TAKE,        /* fence `formers`, open the medium, then nvg_taken() or nvg_failed() */
    NVG_SERVE,       /* it is this member's, with that reservation */
    NVG_RELEASE,     /* drain, close, then nvg_released() */
    NVG_RESIZED,     /* the owner says that it has `size_bytes` now */
    NVG_MEMBERS,     /* members or their addresses have changed */
    NVG_COMMITTED,   /* what nvg_reserve() asked for under `id` is in the log (status 0), or never
                        will be: -EAGAIN no quorum, -EINVAL. -ESTALE: another one is the owner now,
                        and the log may have it or not. What nvg_change() asked for also holds at
                        all members that serve a host, and was told as RESERVED before */
    NVG_DISK_IS,     /* the group knows of the namespace's disk: `disk_error` */
    NVG_RESERVED,    /* of a group whose members are all active: `applied`; then nvg_applied() */
    NVG_QUIESCE,     /* a host has lost that `controller` of this member: end it, then
                        nvg_quieted(). It comes again until that is said */
    NVG_QUIETED,     /* what has become of the `controller` that nvg_quiesce() named: `quiet` */
    NVG_CALM_DOWN,   /* end all controllers that hosts have here now, then nvg_calmed() with `id` */
    NVG_NO_PLACE,    /* the group has no place for that `host`: end its controllers */
    NVG_STOP,        /* this member has no part in the group any more: `text`; the last event */
};

struct nvg_event {
    enum nvg_event_kind kind;
    uint32_t nsid;        /* or the number of the host */
    struct nvg_host host; /* of a host's */
    uint64_t epoch;       /* of the owner */
    uint64_t id;
    int status; /* of STOP 0: it has left as it was asked to */
    uint64_t size_bytes;
    uint32_t disk_error; /* an errno: a flush has failed, of this owner or of one before */
    char member[NVG_NAME_BYTES];
    char text[NVG_TEXT_BYTES];
    uint32_t former_count;
    struct nvg_former formers[NVG_FORMERS_MAX];
    struct nvt_reservation reservation;
    struct nvt_applied applied;
    struct nvg_controller controller;
    enum nvt_quiet quiet;
    bool is_of_origin; /* of NO_PLACE: one more host of its address alone has none */
    bool is_taken;     /* of RELEASE: it is another member's by now, which fences this one */
};

/* What is known once the group is open. */
struct nvg_identity {
    uint8_t identity[16]; /* of the group */
    uint8_t slot;
    uint64_t incarnation;
    char serial[NVG_SERIAL_BYTES];
};

enum nvg_role { NVG_STARTING, NVG_SEEKING, NVG_FOLLOWER, NVG_CANDIDATE, NVG_LEADER, NVG_STOPPED };

struct nvg_member {
    char name[NVG_NAME_BYTES];
    uint8_t slot;
    uint64_t incarnation;
    bool is_here;   /* it has joined and not left; without a lead that may be old */
    bool is_linked; /* to the leader, as the leader sees it: of others false elsewhere */
    bool is_leader, is_self;
    uint64_t silent_ms; /* since it was heard of; only at the leader */
    char group_address[NVG_ADDRESS_BYTES];
    uint32_t address_count;
    char addresses[NVG_ADDRESSES_MAX][NVG_ADDRESS_BYTES];
};

enum nvg_phase { NVG_FREE, NVG_TAKING, NVG_OWNED };

struct nvg_namespace_status {
    struct nvg_namespace about;
    enum nvg_phase phase;
    uint64_t epoch;
    uint8_t slot; /* of who takes or owns it */
    uint32_t disk_error;
    char member[NVG_NAME_BYTES];
};

struct nvg_host_status {
    struct nvg_host about;
    enum nvg_phase phase;
    uint64_t epoch;
    char member[NVG_NAME_BYTES]; /* of who takes or owns it */
};

struct nvg_status {
    enum nvg_role role;
    bool has_quorum; /* changes are taken, as far as this member knows */
    bool is_all_active;
    uint64_t changes;            /* records of the log that this member has seen */
    char leader[NVG_NAME_BYTES]; /* "" where none is known */
    uint32_t member_count, namespace_count, host_count, copy_count;
    struct nvg_member members[NVG_SLOTS];
    struct nvg_namespace_status namespaces[NVG_NAMESPACES_MAX];
    struct nvg_host_status hosts[NVG_HOSTS_MAX];
    uint8_t copy_states[NVG_COPIES_MAX]; /* enum sw_pmem_log_copy_state; at the leader only */
};

struct nvg_group;

/* Joins: waits until this member is in the log. 0, or a negative errno and why, as users read it:
 * no quorum of the log, another NQN, another medium behind a namespace, 16 members. */
int nvg_open(const struct nvg_settings *settings, struct nvg_group **group, char *error,
             size_t error_bytes);
const struct nvg_identity *nvg_identity_of(const struct nvg_group *group);
/* The UUID and NGUID of a namespace of the group. False: it has none of that number. */
bool nvg_namespace_of(struct nvg_group *group, uint32_t nsid, struct nvg_namespace *ns);
/* Readable while there are events. */
int nvg_fd(const struct nvg_group *group);
/* The next event. False: none for now. */
bool nvg_next(struct nvg_group *group, struct nvg_event *event);

/* All formers are fenced and the medium is open. It has that size. */
void nvg_taken(struct nvg_group *group, uint32_t nsid, uint64_t epoch, uint64_t size_bytes);
/* It has nothing of it open any more. */
void nvg_released(struct nvg_group *group, uint32_t nsid, uint64_t epoch);
/* It cannot be had: this member holds nothing of it. */
static inline void nvg_failed(struct nvg_group *group, uint32_t nsid, uint64_t epoch)
{
    nvg_released(group, nsid, epoch);
}
/* The medium says that this owner was fenced: nothing of it is open any more. */
void nvg_lost(struct nvg_group *group, uint32_t nsid, uint64_t epoch, const char *why);
/* The medium has grown. */
void nvg_resized(struct nvg_group *group, uint32_t nsid, uint64_t epoch, uint64_t size_bytes);
/* The disk of that namespace has failed a flush here, by that errno: all members hear of it, and
 * each next owner. It may be said again and again. 0: an operator says that the disk is sound.
 * Returns 0, or -ENOENT: there is no such namespace; -EAGAIN: no leader, or no quorum. */
int nvg_disk(struct nvg_group *group, uint32_t nsid, uint32_t error);
/* The owner's next state of the reservation, to be carried out when COMMITTED comes with `id`. One
 * at a time for a namespace. 0, or a negative errno: nothing is under way. */
int nvg_reserve(struct nvg_group *group, uint32_t nsid, uint64_t epoch,
                const struct nvt_reservation *reservation, uint64_t id);

/* The same where all members are active: a host's command. */
int nvg_change(struct nvg_group *group, uint32_t nsid, const struct nvt_reservation_change *change,
               uint64_t id);
/* All changes up to that number hold here. */
void nvg_applied(struct nvg_group *group, uint32_t nsid, uint64_t number);

/* That host is connected here, from there: to be said again each 300 ms as long as it is. A group
 * whose members are all active gives each host that it has heard of within a second to one of the
 * members that say so, or says NO_PLACE. */
void nvg_host_is_here(struct nvg_group *group, const struct nvg_host *host,
                      const uint8_t origin[NVG_ORIGIN_BYTES]);
/* As far as this member knows. */
enum nvg_room nvg_room_for(struct nvg_group *group, const struct nvg_host *host);

/* Asks for a controller to be ended, wherever it is: QUIETED follows, or nothing while the group
 * cannot tell. 0, or a negative errno: too many are asked for. */
int nvg_quiesce(struct nvg_group *group, const struct nvg_controller *controller);
/* How far a controller of this member is: QUIET, UNKNOWN or REFUSED. */
void nvg_quieted(struct nvg_group *group, const struct nvg_controller *controller,
                 enum nvt_quiet quiet);

/* The controllers that were there when CALM_DOWN came with that `id` are quiet. */
void nvg_calmed(struct nvg_group *group, uint64_t id);

/* The leader is to have that member own it: its owner gives it up, and hosts wait. 0: it was asked;
 * -ENOENT: there is no such one; -ESRCH: no such member is there; -EALREADY: that one has it;
 * -EAGAIN: no leader, or no quorum; -EOPNOTSUPP: hosts move where all members are active, and
 * namespaces where one is. `epoch`: of the owner that is to give it up. The next owner, of a
 * greater epoch, is the one that was wanted, or nothing comes of it any more. A member that a host
 * is not connected to does not get it: the leader forgets such a wish after 10 s. */
int nvg_move(struct nvg_group *group, const struct nvg_moved *what, const char *to,
             uint64_t *epoch);
/* A copy, for showing. */
void nvg_status_of(struct nvg_group *group, struct nvg_status *status);
/* Leaves cleanly: RELEASE of what it owns, then STOP with status 0. */
void nvg_leave(struct nvg_group *group);
/* At once, as if it had died: others suspect it. After STOP that changes nothing any more. */
void nvg_close(struct nvg_group *group);

#endif
