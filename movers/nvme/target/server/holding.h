/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a member of a group of targets has of one namespace: nothing, or the medium. It is the place
 * where a decision of the group (group.h) becomes true: the medium is fenced and opened before
 * hosts are served, and closed before another member hears that it was given up.
 */
#ifndef SW_MOVERS_NVME_HOLDING_H
#define SW_MOVERS_NVME_HOLDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/fence.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/config/spec.h"
#include "nvme/target/group/group.h"
#include "nvme/target/model/worker.h"

enum { NVR_WHY_BYTES = 512 };

struct nvr_member;
struct nvt_namespace;

enum nvr_holding_state {
    NVR_STANDBY, /* another member has it, or none */
    NVR_TAKING,  /* the medium is being fenced */
    NVR_TAKEN,   /* it is open; the group has to say that it is ours */
    NVR_SERVING,
    NVR_RESTING, /* requests end, then the medium is closed */
};

/* Why something could not be taken. It is tried again each second, and said once a minute. */
struct nvr_trouble {
    uint64_t said_ns; /* 0: it is not so any more */
    char why[NVR_WHY_BYTES];
};
bool nvr_trouble_is_new(struct nvr_trouble *trouble, const char *why);

struct nvr_holding {
    struct nvr_member *member;
    uint32_t nsid;
    enum nvr_holding_state state;
    bool is_lost;        /* RESTING: the medium refuses us */
    uint64_t epoch;      /* of the owner, as was heard last */
    uint64_t told_bytes; /* the size that the group knows */
    uint32_t disk_error; /* that the group knows of: an errno; 0: none */
    struct nvt_backend_spec *spec;
    char medium[NVT_MEDIUM_BYTES]; /* what the path led to when this member began */
    /* TAKEN: a tier reads what its log has, and the group is told when that is known. */
    bool is_recovering;
    struct nvt_poller recovery;
    struct nvr_taking *taking; /* the last one; NULL: none is under way */
    struct nvr_trouble trouble;
};

/* The processes that had it before, as a fence wants them. A copy: the event that named them is
 * gone by the time that a thread fences. */
struct nvr_formers {
    size_t count;
    struct nvt_former all[NVG_FORMERS_MAX];
    char names[NVG_FORMERS_MAX][NVG_NAME_BYTES];
};
void nvr_formers_take(struct nvr_formers *formers, const struct nvr_member *member,
                      const struct nvg_event *event);

/* By which the device that is the medium is reserved, if it is one. */
void nvr_holding_give_keys(const struct nvr_holding *holding, struct nvt_backend_spec *spec);

/* What its state is called. */
const char *nvr_holding_state_name(enum nvr_holding_state state);

/* It stands by, in a namespace that was added so. Returns 0 or -ENOMEM. */
int nvr_holding_begin(struct nvr_holding *holding, struct nvt_namespace *ns);
void nvr_holding_take(struct nvr_holding *holding, const struct nvg_event *event);
void nvr_holding_serve(struct nvr_holding *holding, const struct nvg_event *event);
void nvr_holding_release(struct nvr_holding *holding, uint64_t epoch);
/* Another member has it, or none, in that epoch. */
void nvr_holding_stand_by(struct nvr_holding *holding, uint64_t epoch);
/* What the group knows of the disk. */
void nvr_holding_hear_of_disk(struct nvr_holding *holding, uint32_t error);
/* Where this member has the medium open: the group is to know of a flush that has failed here. */
void nvr_holding_look_at_disk(struct nvr_holding *holding);
/* Its owner says that the size has changed. */
void nvr_holding_resize(struct nvr_holding *holding, uint64_t size_bytes);
/* Time has passed: the medium may have grown, or refuse us. */
void nvr_holding_tick(struct nvr_holding *holding);

#endif
