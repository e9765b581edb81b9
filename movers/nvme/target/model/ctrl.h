/* SPDX-License-Identifier: BSD-2-Clause */
/* Controllers: what a host has of a subsystem, from Connect to the end of its last queue. */
#ifndef SW_MOVERS_NVME_MODEL_CTRL_H
#define SW_MOVERS_NVME_MODEL_CTRL_H

#include <stdbool.h>
#include <stdint.h>

#include <nvme/types.h>

#include "common/base/list.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/target.h"
#include "nvme/wire/fabrics.h"

enum {
    NVT_QUEUES_MAX = 65,  /* of a controller, the admin queue included */
    NVT_AER_MAX = 4,      /* asynchronous event requests that wait */
    NVT_ERRORS_KEPT = 16, /* entries of the error log */
};

#define NVT_VERSION 0x00010400u /* 1.4 */

struct nvt_port;
struct nvt_subsystem;

struct nvt_error_entry {
    uint64_t count;
    uint16_t qid, cid, status, location;
    uint64_t lba;
    uint32_t nsid;
};

struct nvt_ctrl {
    struct list_node node; /* of the subsystem */
    struct nvt_subsystem *subsystem;
    struct nvt_port *port;
    struct nvt_instance instance;
    uint64_t serial; /* comes once */
    char host_address[NVT_ADDRESS_MAX];
    char host_nqn[NVF_NQN_MAX + 1];
    struct nvt_host_id host_id;
    uint64_t host_hash;  /* of these two */
    uint8_t home_state;  /* where all targets are active (home.h): enum nvme_ana_state */
    bool was_home;       /* it was optimized once, so it may have commands */
    uint64_t home_epoch; /* of the host's owner then */
    uint32_t cc, csts;
    uint32_t keep_alive_ms;
    uint64_t heard_ns;                           /* but by queues that it has: they know */
    uint32_t async_config;                       /* feature 0x0b */
    uint8_t reservation_masks[NVT_NSID_MAX + 1]; /* feature 0x82, by nsid */
    struct nvt_reservation_log reservation_log;
    uint32_t events, unread; /* enum nvt_event: to be told, told and not read */
    struct list
        aers; /* asynchronous event requests: they end with the admin queue, not with this */
    uint32_t aer_count;
    uint32_t changed_count; /* > NVT_NSID_MAX: all */
    uint32_t changed[NVT_NSID_MAX];
    uint64_t error_count;
    struct nvt_error_entry errors[NVT_ERRORS_KEPT];
    struct nvt_reset resets[NVT_RESETS_KEPT]; /* of others, that it was asked for */
    struct nvt_queue *queues[NVT_QUEUES_MAX];
    struct list pending; /* I/O queues whose host has yet to prove itself */
    uint32_t pending_count;
    bool is_ending;
    bool is_told; /* the log has its beginning, and gets its end */
};

struct nvt_ctrl *nvt_ctrl_create(struct nvt_subsystem *subsystem, struct nvt_queue *queue);
struct nvt_ctrl *nvt_ctrl_find(struct nvt_subsystem *subsystem, uint16_t cntlid);
/* Frees it when its last queue has gone. */
void nvt_ctrl_lose_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue);
/* Ends all its connections. */
void nvt_ctrl_cut(struct nvt_ctrl *ctrl);
/* The same at once: its host has no use for answers. */
void nvt_ctrl_drop(struct nvt_ctrl *ctrl);
/* Ends one; that of the admin queue ends all. */
void nvt_ctrl_cut_queue(struct nvt_queue *queue);
/* Ends those whose authentication takes too long, or whose host takes no answers. */
void nvt_ctrl_cut_late(struct nvt_ctrl *ctrl, uint64_t now_ns);
void nvt_ctrl_set_config(struct nvt_ctrl *ctrl, uint32_t cc);
/* An asynchronous event request waits until nvt_request_finish(). */
void nvt_ctrl_park(struct nvt_ctrl *ctrl, struct nvt_request *request);
void nvt_ctrl_unpark(struct nvt_request *request);
uint64_t nvt_ctrl_capabilities(void);
/* Tells the host of an event, now or when it asks next. */
void nvt_ctrl_notify(struct nvt_ctrl *ctrl, enum nvt_event event);
void nvt_ctrl_tell(struct nvt_ctrl *ctrl);
void nvt_ctrl_note_error(struct nvt_request *request);
enum nvme_ana_state nvt_ctrl_ana_state(const struct nvt_ctrl *ctrl, uint32_t group);
bool nvt_ctrl_sees(const struct nvt_ctrl *ctrl, const struct nvt_namespace *ns);

#endif
