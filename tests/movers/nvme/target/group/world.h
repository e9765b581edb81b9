/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated world for members of a group: their links, the log, the media of their namespaces,
 * and what goes wrong with all that. One seed is one history. Times are in milliseconds.
 *
 * A medium takes the writes of each process that has opened it and was not fenced. The world finds
 * a write of an owner that it took after a later one had served: a ghost.
 *
 * Hosts have one controller at a time at each process, by which its writes come. They lose some,
 * and have others end them. A write by one that was said to be quiet is a ghost, too.
 */
#ifndef SW_TESTS_GROUP_WORLD_H
#define SW_TESTS_GROUP_WORLD_H

#include "nvme/target/group/machine.h"

enum {
    WORLD_NAMES = 4,
    WORLD_PROCESSES = 8, /* that live at a time */
    WORLD_PLACES = 3,    /* namespaces, or hosts */
    WORLD_CONNECTIONS = 128,
    WORLD_TIMEOUT_MS = 300,
    WORLD_RECORDS = 1 << 14,
    WORLD_VALUES = 4096,
    WORLD_CONTROLLERS = 4096, /* that hosts ever have */
    WORLD_ASKED = 16,         /* of a member at a time */
    WORLD_CROWD = 192,        /* hosts, of several addresses */
};

struct world_options {
    bool is_all_active; /* members own hosts, which come and go; each has a medium of its own */
    bool is_hostless;   /* no host is connected anywhere */
    bool is_crowd;      /* hosts are those of world_crowd.c */
    bool awaits;        /* false: a change of a reservation is said to hold too early. That, too */
    bool quiesces;      /* false: members say that a controller is quiet, and go on. That, too */
    bool fences;        /* false: takers open the medium, and fence nobody. That has to be found */
    uint32_t chaos_ms;
    int names; /* of members; at most WORLD_NAMES */
};

/* A message under way. */
struct world_letter {
    struct world_letter *next;
    uint64_t due;
    size_t bytes;
    uint8_t message[NVG_MESSAGE_MAX];
};

/* A connection, or one that is asked for. */
struct world_connection {
    bool is_used, is_up;
    uint64_t due;   /* when it is up, or refused */
    int process[2]; /* -1: that side is gone */
    uint32_t link[2];
    uint64_t lost[2];                        /* when that side hears that it is over; 0: never */
    struct world_letter *first[2], *last[2]; /* to that side */
};

enum world_holding { HAS_NOTHING, HAS_TAKING, HAS_OPEN, HAS_SERVING, HAS_RELEASING };

struct world_place {
    enum world_holding holding;
    uint64_t epoch, due;
    uint32_t number;       /* by which the group knows it */
    uint64_t absent_until; /* of a host: it is not connected here */
    bool is_fenced;        /* the medium takes none of its writes */
    bool is_open;          /* the medium knows it */
    bool is_asking;        /* a change of the reservation is under way */
    uint64_t asked;
    uint64_t knew[WORLD_PLACES + 1]; /* changes of reservations, when it began to serve */
    struct nvg_event take;
};

/* Where all members are active: the reservation of a namespace, at a member. */
struct world_reserved {
    uint64_t told, held; /* changes: carried out; no earlier command is under way any more */
    uint64_t due;        /* when that one holds */
    uint64_t asked;      /* a change is under way; 0: none */
};

/* One that a host has, or had. Its number is 1 and more. */
struct world_controller {
    uint64_t process; /* its number */
    bool has_slot;
    uint8_t slot;
    bool is_quiet; /* that was said to a host */
};

enum world_order { NO_ORDER, ORDER_READ, ORDER_OPEN, ORDER_APPEND };

struct world_process {
    bool is_used, is_stopped, is_cut_from_log, is_over;
    int name, address; /* of one that has ended the next of its name has the address */
    uint64_t number, tick, since;
    struct nvg_machine *machine;
    /* Its journal. */
    bool is_writer, is_fenced; /* that is told at `fenced_at` */
    bool is_slow;              /* it was told that there is no quorum */
    uint64_t fenced_at;
    enum world_order order;
    uint64_t order_due, order_since;
    uint32_t read_to; /* of a read: so far the records have come; 0: none has */
    size_t record_bytes;
    uint8_t record[NVG_RECORD_MAX];
    struct world_place places[WORLD_PLACES + 1];
    struct world_reserved reserved[WORLD_PLACES + 1];
    uint32_t controller;  /* by which its writes come; 0: the world has had too many */
    uint64_t ends_at;     /* when that has ended; 0: it lives */
    uint64_t calm_id;     /* its controller is to end; 0: no */
    uint32_t calms;       /* and which that is */
    uint32_t asked_count; /* resets that the group asks for, and that are not answered */
    struct nvg_controller asked[WORLD_ASKED];
};

struct world_medium {
    uint64_t served_epoch;     /* the latest owner */
    uint64_t committed, drawn; /* values of its reservation */
    uint64_t settled; /* the last change that a host was told of, where all members are active */
    uint64_t numbers[WORLD_VALUES]; /* of such changes */
    uint8_t fate[WORLD_VALUES];     /* 1: it was said that it never will be */
};

struct world {
    struct world_options options;
    uint64_t random, now, starts;
    bool is_quiet; /* all is well again, and nobody changes anything */
    bool has_quorum;
    bool is_cut[WORLD_NAMES][WORLD_NAMES];
    struct world_process processes[WORLD_PROCESSES];
    struct world_connection connections[WORLD_CONNECTIONS];
    struct world_medium media[WORLD_PLACES + 1];
    int writer; /* the process that has the log; -1: none */
    uint32_t head, begin, count;
    uint16_t bytes[WORLD_RECORDS];
    uint8_t (*records)[NVG_RECORD_MAX];
    struct nvg_namespace namespaces[WORLD_PLACES];
    uint32_t controller_count;
    struct world_controller controllers[WORLD_CONTROLLERS];
    uint64_t asks, quiets, calms; /* counted */
    const char *fault;            /* NULL: all is well so far */
    uint64_t serves, commits, refusals, leads, fences, checkpoints, moves; /* counted */
};

/* Runs one history: what went wrong, or NULL. */
const char *world_run(struct world *world, uint64_t seed, const struct world_options *options);

/* Two members, each of which leads, is silent while the other one leads, and comes back. Nobody
 * fences them: they own nothing. There is one leader then: what went wrong, or NULL. */
const char *world_take_turns(struct world *world, uint64_t seed);
/* Two members that both reach the log, and no longer each other: one of them leads, and stays. */
const char *world_stay_cut(struct world *world, uint64_t seed, bool is_all_active);

/* A member that reaches neither the others nor the log for a while takes nothing from a leader that
 * is well. */
const char *world_come_back(struct world *world, uint64_t seed);
/* More hosts than places: an address has half of these at most, each host without one hears so,
 * and gets the place of one that has been gone for long. */
const char *world_be_crowded(struct world *world, uint64_t seed);

/* ---- between the files of the world ---- */

uint64_t world_draw(struct world *world, uint64_t below);
bool world_chance(struct world *world, uint64_t percent);
void world_fail(struct world *world, const char *fault);

/* world_links.c */
void world_dial(struct world *world, int process, uint32_t link, const char *address);
void world_send(struct world *world, int process, uint32_t link, const uint8_t *message,
                size_t bytes);
void world_hang_up(struct world *world, int process, uint32_t link);
void world_links_die(struct world *world, int process);
void world_links_step(struct world *world);
void world_links_clear(struct world *world);

/* world_log.c */
void world_order_log(struct world *world, int process, enum world_order order,
                     const uint8_t *record, size_t bytes);
void world_close_log(struct world *world, int process);
void world_log_step(struct world *world, int process);

/* world_target.c */
/* Which of the world's hosts that is, from 1 on. */
void world_name_host(uint32_t index, struct nvg_host *host);
void world_tell(struct world *world, int process, const struct nvg_event *event);
void world_target_step(struct world *world, int process);
/* world_reserve.c */
void world_take_reserved(struct world *world, int process, const struct nvg_event *event);
void world_take_answer(struct world *world, int process, const struct nvg_event *event);
/* It serves that host from now on. */
void world_note_serve(struct world *world, int process, struct world_place *place);
void world_reserve_step(struct world *world, int process);
/* world_crowd.c */
void world_crowd_begin(void);
/* These hosts connect to that process; -1: they leave. */
void world_crowd_connect(uint32_t first, uint32_t count, uint8_t address, int member);
void world_crowd_lose(int process); /* it has died */
void world_crowd_tell(struct world *world, int process, const struct nvg_event *event);
void world_crowd_step(struct world *world, int process);
/* How many of these hosts are served; have heard that there is no place for them, or for their
 * address. */
uint32_t world_crowd_served(uint32_t first, uint32_t count);
bool world_crowd_is_served(uint32_t host);
uint32_t world_crowd_refused(uint32_t first, uint32_t count, bool is_of_address);
/* world_hosts.c */
void world_connect(struct world *world, int process);
void world_take_reset(struct world *world, int process, const struct nvg_event *event);
void world_hosts_step(struct world *world, int process);
/* A medium has taken a write of it. */
void world_note_write(struct world *world, int process);

/* It writes to all that it serves, without a look at anything: what a stopped owner does first. */
void world_write(struct world *world, int process);

#endif
