/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cross-controller reset (NVMe Base 2.3, 5.1.5; TP8028). A host that has lost a controller asks
 * another one of the subsystem to end it. Once that is said to be done, no command of the lost
 * controller is under way any more, at the medium either: so the host may send again elsewhere what
 * may have been done.
 *
 * A controller is known by its number, and by a random number that its own host has read there.
 * Only a controller of the same host is ended. Commands outlive their controller: queues that have
 * ended with commands at a backend are on target->lingering until these come back.
 *
 * A number outside the subsystem's range is that of another target, which a group asks for
 * (subsystem->resets).
 */
#ifndef SW_MOVERS_NVME_MODEL_RESET_H
#define SW_MOVERS_NVME_MODEL_RESET_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/model/reservation.h"
#include "nvme/wire/fabrics.h"
#include "nvme/wire/quiesce.h"

struct nvt_ctrl;
struct nvt_queue;
struct nvt_request;
struct nvt_subsystem;
struct nvt_target;

enum {
    NVT_RESETS_AT_ONCE = 4, /* that a controller may ask for: CCRL */
    NVT_RESETS_KEPT = 16,   /* entries of its log page */
    NVT_GONE_KEPT = 1024,   /* controllers that have ended, and are known to have been here */
};

/* Which controller that is, whatever comes after it by its number. */
struct nvt_instance {
    uint16_t cntlid;
    uint8_t ciu;
    uint64_t cirn; /* 0: none */
};

/* A controller that is to be reset, and the host that asks for it. */
struct nvt_lost {
    struct nvt_instance instance;
    struct nvt_host_id host_id;
    char host_nqn[NVF_NQN_MAX + 1];
};

enum nvt_quiet {
    NVT_QUIET,         /* none of its commands is under way, and none comes */
    NVT_QUIET_LATER,   /* it ends: ask again */
    NVT_QUIET_UNKNOWN, /* it is none of this process, or was too long ago */
    NVT_QUIET_REFUSED, /* it is another host's, or nobody can tell */
};

/* An entry of a controller's log page: which other one it has asked to reset. */
struct nvt_reset {
    bool is_elsewhere; /* another target has it */
    enum nvf_ccr_status status;
    uint64_t asked_ns;
    struct nvt_instance of; /* cirn 0: the entry is free */
};

/* How a group of targets is asked. */
struct nvt_resets_port {
    /* Asks the group; nvt_reset_elsewhere_done() follows, not at once. 0 or a negative errno. */
    int (*ask)(struct nvt_subsystem *subsystem, const struct nvt_lost *lost);
    void *context;
};

struct nvt_instance nvt_instance_new(struct nvt_subsystem *subsystem, uint16_t cntlid);
static inline bool nvt_instance_is(const struct nvt_instance *a, const struct nvt_instance *b)
{
    return a->cirn && a->cirn == b->cirn && a->cntlid == b->cntlid && a->ciu == b->ciu;
}

/* Ends that controller, if it is here and of that host, and says how far it is. */
enum nvt_quiet nvt_lost_quiesce(struct nvt_subsystem *subsystem, const struct nvt_lost *lost);
/* Ends all controllers up to that serial. True: they are quiet; else ask again. */
bool nvt_ctrls_calm(struct nvt_subsystem *subsystem, uint64_t serial);
/* What another target has made of it. */
void nvt_reset_elsewhere_done(struct nvt_subsystem *subsystem, const struct nvt_instance *of,
                              enum nvt_quiet quiet);
/* Some controller may be quiet now: tells hosts of it. */
void nvt_resets_look(struct nvt_target *target);

/* The command, and its log page. */
void nvt_run_reset(struct nvt_request *request);
void nvt_reset_log(struct nvt_request *request, uint64_t offset);

/* A controller has lost its last queue, and goes. */
void nvt_resets_end(struct nvt_ctrl *ctrl);

#endif
