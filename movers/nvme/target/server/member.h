/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target as a member of a group: it does what the group decides (group.h), and tells the group
 * what has become of it. The group waits in threads of its own, fences in one of the member's; all
 * else here is done while the threads that serve hosts stand still.
 */
#ifndef SW_MOVERS_NVME_MEMBER_H
#define SW_MOVERS_NVME_MEMBER_H

#include <assert.h>

#include <jansson.h>

#include "common/serve/loop.h"
#include "nvme/target/config/config.h"
#include "nvme/target/group/group.h"
#include "nvme/target/model/worker.h"
#include "nvme/target/server/holding.h"
#include "nvme/target/server/member_rooms.h"

enum {
    NVR_CNTLIDS_OF_SLOT = 4080, /* slot 15 ends at 65280, below NVT_CNTLID_MAX */
    NVR_ASKED_MAX = 64,
};
static_assert(NVG_SLOTS * NVR_CNTLIDS_OF_SLOT <= NVT_CNTLID_MAX, "each member has IDs of its own");

struct nvr_server;
struct nvr_serving;
struct nvt_namespace;
struct nvt_subsystem;

struct nvr_member {
    struct nvr_server *server;
    struct nvr_serving *serving;
    struct nvg_group *group; /* NULL: this target is in none */
    struct nvt_subsystem *subsystem;
    const char *nqn, *name;
    struct nvt_worker fencer;
    struct mover_watch group_watch, fencer_watch;
    struct nvg_event event;                              /* the last one: it is large */
    struct nvg_status status;                            /* as of the last time it was asked for */
    struct nvr_holding holdings[NVG_NAMESPACES_MAX + 1]; /* by nsid */
    bool is_all_active; /* it has all namespaces open, and hosts are what members own */
    uint64_t hosts_said_ns;
    struct nvr_home *homes; /* [NVG_HOSTS_MAX], by number; NULL: one member is active */
    struct nvr_rooms rooms; /* who has no place there */
    uint32_t asked_count;
    struct nvg_controller asked[NVR_ASKED_MAX]; /* that other members want ended */
    uint64_t calm_id, calm_serial; /* the group wants controllers up to that one ended; 0: not */
    uint64_t leave_ns;             /* when it ends although it has not left; 0: it stays */
    bool is_failed;
};

/*
 * Joins by `settings`, whose namespaces are those of the configuration: this function looks at
 * their media. Gives the configuration what the members have in common, and the IDs of controllers
 * that are this one's alone. May wait for the log. Returns 0, or a negative errno and why in
 * `error`.
 */
int nvr_member_join(struct nvr_member *member, struct nvr_serving *serving,
                    const struct nvg_settings *settings, struct nvt_config *config, char *error,
                    size_t error_bytes);
/* The backend of a namespace that is about to be added: it stands by, or is open where all members
 * are active. Returns 0, or a negative errno and why in `error`. */
int nvr_member_open(struct nvr_member *member, uint32_t nsid, struct nvt_backend **out, char *error,
                    size_t error_bytes);
/* A namespace of the configuration has been added. Returns 0 or -ENOMEM. */
int nvr_member_add(struct nvr_member *member, struct nvt_namespace *ns);
/* From now on it does what the group says. Returns 0 or a negative errno. */
int nvr_member_begin(struct nvr_member *member);
/* The disk of a namespace counts as sound again. Returns 0 or a negative errno, and says so. */
int nvr_member_clear(struct nvr_member *member, uint32_t nsid, char *said, size_t said_bytes);
/* It is to go to another member. Returns 0, and says the epoch of the owner that is to give it up;
 * or a negative errno, and says why not. */
int nvr_member_move(struct nvr_member *member, const struct nvg_moved *moved, const char *to,
                    char *said, size_t said_bytes);
/* Gives up all that it has, so that others take it; then the server stops. */
void nvr_member_leave(struct nvr_member *member);
void nvr_member_close(struct nvr_member *member);

/* Cross-controller resets, by the group and for it. */
void nvr_member_begin_resets(struct nvr_member *member);
void nvr_member_end_resets(struct nvr_member *member);
void nvr_member_take_reset(struct nvr_member *member, const struct nvg_event *event);
/* Some controllers that were asked for may be quiet by now. */
void nvr_member_look_at_resets(struct nvr_member *member);

/* Where all members are active: the hosts that the group gives to this one. */
int nvr_hosts_begin(struct nvr_member *member);
void nvr_hosts_take_event(struct nvr_member *member, const struct nvg_event *event);
void nvr_hosts_tick(struct nvr_member *member);
/* Controllers or commands have gone. */
void nvr_hosts_look(struct nvr_member *member);
/* It serves nobody any more. */
void nvr_hosts_end(struct nvr_member *member);
/* What a host that the group has given a number is here. */
const char *nvr_hosts_state_of(const struct nvr_member *member, const struct nvg_host *host);

/* The same: reservations of a namespace, which all members keep. */
int nvr_reservations_begin(struct nvr_holding *holding, struct nvt_namespace *ns);
void nvr_reservations_take_event(struct nvr_member *member, const struct nvg_event *event);

/* What becomes of it, for the operator. */
void nvr_member_say(const struct nvr_member *member, bool is_bad, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* It can be no member any more: the server stops. */
void nvr_member_fail(struct nvr_member *member, const char *why);
/* The group as it is seen here, for `target status`. NULL: no memory, or no group. */
json_t *nvr_member_status(struct nvr_member *member);

#endif
