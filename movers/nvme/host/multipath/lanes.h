/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue over several paths: beneath it lies a queue of each path, its lane. It decides which lane
 * a request takes, and what becomes of one whose lane was lost. It has no network and no clock but
 * its port's. One thread uses it, as any queue.
 *
 * A request is SENT on a lane; WAITS for one; or is PARKED: it may have changed something, and may
 * do so still where the lost lane led. It leaves that state by a proof that it cannot
 * (nvh_paths_proof()) alone. A request that was parked happens perhaps twice. So until it has ended
 * no other one of this queue that changes the same blocks is sent.
 */
#ifndef SW_MOVERS_NVME_HOST_LANES_H
#define SW_MOVERS_NVME_HOST_LANES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/queue.h"
#include "nvme/host/multipath/paths.h"
#include "sidewire/nvme.h"

enum nvh_held_state { NVH_HELD_FREE, NVH_HELD_WAITS, NVH_HELD_SENT, NVH_HELD_PARKED };

/* A request, with all that it takes to send it again. */
struct nvh_held {
    struct nvh_lanes *lanes;
    struct sw_nvme_io io;
    struct sw_nvme_resv resv;
    enum nvh_kind kind;
    enum nvh_held_state state;
    bool is_again;        /* it was parked */
    uint8_t tries;        /* that ended by an error of a path */
    uint32_t path, epoch; /* where it was sent */
    int ns;
    uint64_t changes;  /* of its ANA group then */
    uint64_t since_ns; /* since when it has no path, or is parked; 0: it does not wait */
};

/* Counts of one lane, which its thread writes. */
struct nvh_lane_counts {
    _Atomic uint64_t requests, moved, held, maybe_done;
};

struct nvh_lane {
    struct sw_nvme_queue *queue; /* NULL: not open */
    uint32_t distance;           /* of the path's device from the thread that opened it */
    struct nvh_lane_counts counts;
};

struct nvh_lanes_port {
    uint64_t (*now_ns)(void);
    /* Sends the request on a lane. OK: nvh_lanes_done() comes of it. */
    enum sw_nvme_status (*submit)(struct nvh_lanes *lanes, uint32_t path, struct nvh_held *held);
    /* Those of paths.h, with the lock that they need. */
    void (*closed)(struct nvh_lanes *lanes, uint32_t path, int ns);
    enum nvh_proof (*proof)(struct nvh_lanes *lanes, const struct nvh_held *held, uint64_t now_ns);
};

struct nvh_lanes {
    struct sw_nvme_queue queue; /* first: a handle is both; its slots are those of `held` */
    struct nvh_paths *paths;
    const struct nvh_lanes_port *port;
    struct nvh_held *held;
    struct nvh_lane lanes[NVH_PATHS_MAX];
    enum sw_nvme_iopolicy policy;
    int32_t patience_s; /* without a path; -1: for ever */
    uint32_t turn;      /* the path of the last choice */
    uint32_t again;     /* requests that were parked and have not ended */
    uint32_t parked;    /* of these, those that still are */
    uint32_t version;   /* of the paths, when requests that wait were last looked at */
    bool has_room;      /* a lane has some again, or a request that others wait for has ended */
    bool is_closing;
    uint32_t last_nsid; /* and its index */
    int last_ns;
};

/* False: no memory. `queue` of it is for nvh_queue_clear(), `held` for free(). */
bool nvh_lanes_init(struct nvh_lanes *lanes, struct sw_nvme_controller *controller,
                    const struct nvh_port *queue_port, const struct nvh_lanes_port *port,
                    struct nvh_paths *paths, uint32_t size);
/* What came of a request on its lane. */
void nvh_lanes_done(struct nvh_held *held, const struct sw_nvme_result *result);
/* Whether nvh_lanes_look() has something to do besides what time brings. */
static inline bool nvh_lanes_stirs(const struct nvh_lanes *lanes)
{
    return lanes->has_room ||
           lanes->version != atomic_load_explicit(&lanes->paths->version, memory_order_acquire);
}
/* Requests that wait or are parked: those that may go on do, and the patience of others ends. */
void nvh_lanes_look(struct nvh_lanes *lanes, uint64_t now_ns);
/* All requests that wait or are parked end. */
void nvh_lanes_fail(struct nvh_lanes *lanes);

#endif
