/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The paths to one subsystem, as the machine has them: where each leads to, which of its namespaces
 * it may be used for, and when a request that a lost path has taken may go to another one. It
 * knows no network, no clock and no lock: the caller holds a lock around all of it. The atomic
 * fields may be read without.
 *
 * A path asks its controller one admin command at a time: nvh_path_ask() says which, and
 * nvh_path_answered() takes the answer. What a controller answers is checked here.
 */
#ifndef SW_MOVERS_NVME_HOST_PATHS_MACHINE_H
#define SW_MOVERS_NVME_HOST_PATHS_MACHINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/host/multipath/choose.h"
#include "sidewire/nvme.h"

enum {
    NVH_NAMESPACES_MAX = 1024,
    NVH_LOSSES_MAX = 4,
    NVH_ASK_BYTES = 16384, /* the longest answer: the ANA log */
    NVH_NO_NAMESPACE = -1,
    NVH_SERIAL_BYTES = 20,
    NVH_WHY_BYTES = 256,
};

/* What a namespace is, behind whatever path. */
struct nvh_namespace {
    uint32_t nsid;
    uint64_t blocks;
    uint8_t format, nguid[16], eui64[8], uuid[16]; /* `format`: LBADS and metadata, as they come */
    uint16_t metadata_bytes;
};

/* What a path says of a namespace. Those beside the state are of the group's log. */
struct nvh_path_namespace {
    _Atomic uint8_t ana;      /* enum sw_nvme_ana; INACCESSIBLE where it is not behind the path */
    _Atomic uint64_t changes; /* of its ANA group */
    uint64_t log_at;          /* `moments` when the log was asked for that says so */
    bool is_there;
};

enum nvh_stage { /* what is asked for next */
                 NVH_ASK_NOTHING,
                 NVH_ASK_CTRL,
                 NVH_ASK_LIST,
                 NVH_ASK_NAMESPACE,
                 NVH_ASK_NAMES, /* its UUID */
                 NVH_ASK_ANA,
                 NVH_ASK_RESET,  /* of another path's controller that was lost */
                 NVH_ASK_RESETS, /* how that went on */
                 NVH_ASK_CHANGED,
};

/* What a controller says of itself. */
struct nvh_facts {
    uint8_t serial[NVH_SERIAL_BYTES];
    uint16_t cntlid, quiesce_ms;
    uint8_t ciu, resets_max; /* cross-controller resets at a time */
    uint64_t cirn;
    bool has_ana;
    int member; /* behind which the medium fences; -1: it does not say so */
};

enum nvh_reset { NVH_RESET_WANTED, NVH_RESET_ASKED, NVH_RESET_SUCCEEDED, NVH_RESET_FAILED };

/* A connection that was lost, with what its requests wait for. */
struct nvh_loss {
    bool is_used;
    uint32_t epoch;             /* of the controller's */
    uint64_t lost_at;           /* `moments` then */
    uint64_t lost_ns, quiet_ns; /* quiet: when time alone proves it; UINT64_MAX: never */
    struct nvh_facts facts;
    enum nvh_reset reset;
    uint32_t asked;             /* paths that were asked to reset it: a set */
    uint32_t by;                /* the path that has been asked last */
    uint64_t next_ns, until_ns; /* of asking how far it is */
};

struct nvh_path {
    enum sw_nvme_path_state state;
    char why[NVH_WHY_BYTES];
    uint32_t epoch;        /* of its live controller */
    _Atomic uint64_t used; /* that epoch and one, while requests may take it; else 0 */
    bool carried;          /* requests took it since it is live, so some may be under way */
    uint32_t keep_alive_ms;
    bool traffic_keeps_alive;

    enum nvh_stage stage;
    bool waits;    /* for an answer */
    bool is_again; /* it has said that it changed, so it knows better than what is known */
    bool wants_ana, wants_names;
    bool wants_look;           /* others have something else than when it was asked */
    bool was_tried;            /* it has been used, refused or lost */
    uint64_t next_ns;          /* when to look again at a path that was refused */
    uint64_t asked_at, ana_ns; /* when the last command was sent, and the last for the ANA log */
    uint32_t list[NVH_NAMESPACES_MAX], list_count, list_at;
    struct nvh_namespace asked; /* the one of the list that is being asked for */
    struct nvh_facts facts;
    struct nvh_path_namespace namespaces[NVH_NAMESPACES_MAX];
    struct nvh_loss losses[NVH_LOSSES_MAX];
    uint32_t losses_at; /* where the next one goes */
    uint32_t resets;    /* whose loss it is asked to reset: path and entry */
};

struct nvh_paths {
    uint32_t count;
    int32_t quiesce_tmo_s; /* as in the options */
    uint64_t born_ns;      /* the first look */
    uint64_t moments;      /* counts commands and losses: several come at one time of the clock */
    bool has_serial;
    uint8_t serial[NVH_SERIAL_BYTES];
    struct nvh_namespace namespaces[NVH_NAMESPACES_MAX];
    _Atomic uint32_t namespaces_count;
    _Atomic uint32_t version; /* counts changes that may let a request go on */
    struct nvh_path paths[NVH_PATHS_MAX];
};

/* An admin command, whose answer has `bytes`. */
struct nvh_ask {
    uint8_t opcode;
    uint32_t nsid, cdw10, cdw11, cdw12, cdw13, bytes;
};

enum nvh_proof {
    NVH_PROOF_MISSING, /* it may come */
    NVH_PROOF_HERE,    /* nothing of the lost connection can happen any more */
    NVH_PROOF_NEVER,
};

void nvh_paths_init(struct nvh_paths *paths, uint32_t count, int32_t quiesce_tmo_s);
/* The path's controller is live: it is asked where it leads to. */
void nvh_path_live(struct nvh_paths *paths, uint32_t path, uint32_t epoch, uint32_t keep_alive_ms,
                   bool traffic_keeps_alive);
/* It is not live any more, or has another epoch. `is_over`: it is given up. */
void nvh_path_lost(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, bool is_over,
                   const char *why);
/* An asynchronous event, as dword 0 of its completion has it. */
void nvh_path_event(struct nvh_paths *paths, uint32_t path, uint32_t event);
/* The target has answered that the namespace cannot be reached by this path. */
void nvh_path_closed(struct nvh_paths *paths, uint32_t path, int ns);
/* The next command of the path: false where there is none. */
bool nvh_path_ask(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, struct nvh_ask *ask);
/* `data` has as many bytes as the command asked for. */
void nvh_path_answered(struct nvh_paths *paths, uint32_t path, uint64_t now_ns,
                       const struct sw_nvme_result *result, const void *data);
/* The index of a namespace, or NVH_NO_NAMESPACE. */
int nvh_paths_find(const struct nvh_paths *paths, uint32_t nsid);
/* Its state by a path for a request, 0 where the path cannot be used. Needs no lock. */
static inline uint8_t nvh_path_ana(const struct nvh_path *path, int ns)
{
    const uint8_t ana = ns < 0
                            ? SW_NVME_ANA_OPTIMIZED
                            : atomic_load_explicit(&path->namespaces[ns].ana, memory_order_relaxed);
    return ana == SW_NVME_ANA_OPTIMIZED || ana == SW_NVME_ANA_NON_OPTIMIZED ? ana : 0;
}

/* Whether a request of `ns`, which a path took in `epoch` of its controller when its ANA group had
 * that count of changes, can still happen there. */
enum nvh_proof nvh_paths_proof(const struct nvh_paths *paths, uint32_t path, uint32_t epoch, int ns,
                               uint64_t changes, uint64_t now_ns);
/* How long time takes to prove it, in milliseconds; 0: it never does. */
uint32_t nvh_path_quiesce_ms(const struct nvh_path *path);

/* ---- among the files of the machine ---- */

void nvh_path_refuse(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));
/* Compares what a path has with what is known of the others, and learns what is new. False: the
 * path is refused. */
bool nvh_path_compare(struct nvh_paths *paths, uint32_t path, uint64_t now_ns);
void nvh_loss_add(struct nvh_paths *paths, uint32_t path, uint64_t now_ns);
/* The next reset of a lost controller that this path is to ask for, or to ask about. */
bool nvh_loss_ask(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, struct nvh_ask *ask);
void nvh_loss_answered(struct nvh_paths *paths, uint32_t path, uint64_t now_ns,
                       const struct sw_nvme_result *result, const void *data);

#endif
