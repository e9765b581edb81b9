/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a target is made of: subsystems with namespaces, and the controllers that hosts have there.
 * Nothing here knows the network: a transport (server/, or that of a test) carries requests in and
 * answers out.
 *
 * Each queue belongs to one thread. Several threads may serve the I/O commands of
 * nvt_request_is_shared() at the same time: these read what all threads share, and write what is of
 * their queue and thread alone. All else here is called by one thread while the others stand still
 * (gate.h), or where there is one thread only.
 *
 * The life of a request:
 *
 *   nvt_request_begin -> [fetch: data from the host] -> the command -> answer -> nvt_request_end
 */
#ifndef SW_MOVERS_NVME_MODEL_H
#define SW_MOVERS_NVME_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/list.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/pool.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/config/config.h"
#include "nvme/target/model/auth.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/worker.h"
#include "nvme/wire/fabrics.h"
#include "nvme/wire/sgl.h"

enum {
    NVT_NSID_MAX = 1024,    /* of a subsystem; also how many there are at most */
    NVT_QUEUES_MAX = 65,    /* of a controller, the admin queue included */
    NVT_DEPTH_MAX = 1024,   /* entries of a queue, as CAP.MQES says */
    NVT_AER_MAX = 4,        /* asynchronous event requests that wait */
    NVT_CTRLS_MAX = 1024,   /* of the target */
    NVT_TRANSFER_SHIFT = 8, /* MDTS: 2^8 pages of 4 KiB, 1 MiB */
    NVT_ERRORS_KEPT = 16,   /* entries of the error log */
    NVT_THREADS_MAX = 16,   /* that serve a target */
    NVT_PLACE_BYTES = 4096, /* of a queue's own places for data */
    NVT_PLACES_ADMIN = 4,   /* that an admin queue has */
    NVT_PLACES_IO = 2,      /* that others have */
};

#define NVT_TRANSFER_MAX (4096u << NVT_TRANSFER_SHIFT)
#define NVT_VERSION 0x00010400u /* 1.4 */

struct nvt_request;
struct nvt_queue;
struct nvt_ctrl;

/* What the model asks of its transport. */
struct nvt_transport {
    /* Moves the data of the request's list to request->data. Then nvt_request_fetched(). */
    void (*fetch)(struct nvt_request *request);
    /* Moves request->data to the host (NVT_TO_HOST without an error), and says the response. When
     * the data may be used again: nvt_request_end(). */
    void (*answer)(struct nvt_request *request);
    /* Ends the connection. nvt_queue_gone() follows, not at once. */
    void (*cut)(struct nvt_queue *queue);
    /* Nothing uses the memory any more: forgets the region's registrations. */
    void (*forget)(struct nvt_region *region);
};

/* What a thread has of its own. */
struct nvt_thread {
    uint32_t number; /* in the target's */
    struct nvt_pool pool;
    struct nvt_shares shares;  /* of the pool: what each host has, and who waits for more */
    bool has_freed;            /* memory of the pool, since those that wait were fed */
    struct list to_feed;       /* queues whose requests wait for a place that is free again */
    bool is_fed_alone;         /* some that wait are for when the other threads stand still */
    struct nvt_uring *uring;   /* of backends; NULL where no backend needs it */
    struct nvt_slices slices;  /* operations that take long */
    uint64_t now_ns;           /* as of its loop's last turn */
    uint64_t commands, errors; /* counted */
};

/* What requests of one thread have made of a namespace: a line of the cache for itself. */
struct nvt_tally {
    uint64_t users; /* requests under way; who is removed goes when no thread has one */
    uint64_t reads, writes, read_blocks, written_blocks;
    uint64_t unused[3];
};

struct nvt_namespace {
    struct nvt_target *target;
    struct nvt_subsystem *subsystem; /* not of one that is removed: that may have gone */
    uint32_t nsid, ana_group;
    struct nvt_backend *backend;
    char *opened;             /* what was opened as that: the text of the configuration */
    struct nvt_region region; /* of a backend that lies in memory */
    uint8_t uuid[16], nguid[16];
    uint8_t block_shift;
    uint64_t blocks;
    bool is_read_only, is_removed;
    uint64_t preemptions; /* so far: requests that came before one know it by that */
    struct nvt_reservation reservation;
    struct list preemptors; /* Preempt and Abort commands that wait for earlier requests */
    _Alignas(64) struct nvt_tally tallies[NVT_THREADS_MAX]; /* by thread */
};

struct nvt_host {
    struct list_node node;
    char nqn[NVF_NQN_MAX + 1];
    bool has_policy; /* it has to prove itself */
    struct nvt_auth_policy policy;
};

struct nvt_subsystem {
    struct list_node node; /* of the target */
    struct nvt_target *target;
    char nqn[NVF_NQN_MAX + 1], serial[21], model[41], firmware[9];
    bool allow_any_host, is_discovery, is_removed;
    struct list hosts, ctrls;
    uint16_t next_cntlid, cntlid_min, cntlid_max;
    uint16_t queues_max; /* I/O queues of a controller */
    uint32_t namespace_count;
    struct nvt_namespace *namespaces[NVT_NSID_MAX + 1]; /* by nsid */
};

/* Where hosts connect. It is there until the last connection that came by it has gone. */
struct nvt_port {
    struct list_node node;
    struct nvt_target *target;
    uint16_t id;
    uint8_t adrfam, treq; /* NVMF_ADDR_FAMILY_IP4 or IP6; NVMF_TREQ_* */
    char traddr[NVT_TRADDR_MAX], trsvcid[NVT_TRSVCID_MAX];
    uint32_t in_capsule_bytes;
    uint8_t ana_states[NVT_ANA_GROUPS_MAX + 1]; /* of group [1..]: enum nvme_ana_state */
    size_t referral_count, served_count;
    struct nvt_referral *referrals;
    struct nvt_subsystem **served; /* but the discovery subsystem, which all serve */
    uint32_t users;
    bool is_removed;
};

struct nvt_target {
    const struct nvt_transport *transport;
    struct nvt_worker *worker; /* NULL: what takes long is computed at once */
    uint32_t thread_count;
    struct nvt_thread threads[NVT_THREADS_MAX];
    uint32_t serial; /* not 0: threads serve one after the other, until something rare is over */
    pthread_mutex_t error_lock; /* of the error logs */
    struct list subsystems, ports;
    uint64_t genctr;     /* of discovery */
    uint64_t now_ns;     /* for all but I/O commands */
    uint64_t refresh_ns; /* when to look at the sizes of backends again */
    uint32_t ctrl_count;
    uint64_t ctrl_serial; /* of the last controller that was made */
    uint64_t ana_changes;
    /* A host could not prove itself; may be NULL. */
    void (*refused)(const struct nvt_queue *queue, const char *why);
    /* A connection is ended for what its host does not do; may be NULL. */
    void (*ended)(const struct nvt_queue *queue, const char *why);
    _Atomic uint64_t ended_count;
};

/* Events that a host has been told of, and not yet asked about. Bits. */
enum nvt_event {
    NVT_EVENT_NAMESPACES = 1,
    NVT_EVENT_ANA = 2,
    NVT_EVENT_DISCOVERY = 4,
    NVT_EVENT_RESERVATION = 8,
};

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
    uint16_t cntlid;
    uint64_t serial; /* comes once */
    char host_address[NVT_ADDRESS_MAX];
    char host_nqn[NVF_NQN_MAX + 1];
    struct nvt_host_id host_id;
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
    struct nvt_queue *queues[NVT_QUEUES_MAX];
    struct list pending; /* I/O queues whose host has yet to prove itself */
    uint32_t pending_count;
    bool is_ending;
};

/* One connection. The transport has it, and makes it all zeroes but these: target, thread, port,
 * depth, qid (as the private data of the REQ says), host_address, own; and the lists it inits. */
struct nvt_queue {
    struct nvt_target *target;
    struct nvt_thread *thread;
    struct nvt_port *port;
    struct nvt_ctrl *ctrl;              /* NULL before Connect */
    char local_address[64];             /* where the host has connected to */
    char host_address[NVT_ADDRESS_MAX]; /* and from where: of IPv6 the /64 */
    uint16_t qid, depth;                /* entries */
    uint16_t head;
    bool has_no_flow; /* the host has asked for no SQ head */
    bool is_pending;  /* of its controller's */
    bool has_proven;  /* itself, by Connect and what is asked for; also when it has ended */
    struct list_node pending;
    bool is_gone;       /* the connection has ended */
    bool is_cut;        /* its end was asked for */
    uint32_t under_way; /* requests */
    uint64_t heard_ns;  /* the last command */
    struct list requests;
    struct list with_host; /* requests whose data or answer the host has to take, the first first */
    uint64_t took_ns;      /* when it has taken something */
    struct nvt_region own; /* its places for data: [nvt_places_bytes(qid)] */
    uint32_t taken_places; /* bits */
    struct list waiting_places; /* requests */
    bool is_to_feed;            /* on the thread's list */
    struct list_node feed;
    struct nvt_share *share;     /* of the pool; NULL before Connect */
    struct nvt_queue_auth *auth; /* NULL where the host need not prove itself */
};

enum nvt_direction { NVT_NO_DATA, NVT_FROM_HOST, NVT_TO_HOST };

struct nvt_request {
    struct list_node node; /* of the queue */
    struct list_node wait; /* of those that wait: for memory, the host, an event, as preemptors */
    bool is_starved, is_parked, is_with_host; /* on the list for memory, events, the host */
    bool is_preempted; /* a preemption ends it: it changes nothing any more */
    struct nvt_queue *queue;
    struct nvf_sqe sqe;
    uint8_t *in_capsule; /* the data area that came with the SQE */
    uint32_t in_capsule_bytes;
    struct nvt_region *in_capsule_region;
    const struct nvt_command *command;
    enum nvt_direction direction;
    uint8_t *data; /* [data_bytes], in `region` */
    uint32_t data_bytes, pool_bytes;
    bool has_own_place;      /* the data is in one of the queue's */
    struct nvt_share *share; /* whose piece of the pool it has */
    uint64_t since_ns;       /* is_with_host */
    struct nvt_region *region;
    struct nvt_namespace *ns;
    uint64_t ns_entry; /* the namespace's preemptions when it came */
    struct nvt_io io;
    uint32_t steps_left;   /* of dataset management: ranges; of a preemption: whom it waits for */
    uint64_t result;       /* dword 0 and 1 of the response */
    uint16_t status;       /* of the response, without the phase bit */
    uint16_t error_offset; /* where the command is wrong, for the error log */
    struct nvf_sgl sgl;    /* must be last: its segments need not be cleared */
};

/* Makes it all zeroes, but for segments that nobody looks at. */
static inline void nvt_request_clear(struct nvt_request *request)
{
    memset(request, 0, offsetof(struct nvt_request, sgl) + offsetof(struct nvf_sgl, segments));
}

static inline size_t nvt_places_bytes(uint16_t qid)
{
    return (size_t)(qid ? NVT_PLACES_IO : NVT_PLACES_ADMIN) * NVT_PLACE_BYTES;
}

/* How a command is served. */
struct nvt_command {
    const char *name;
    enum nvt_direction direction;
    /* The bytes of data that it moves. NULL: none. A status ends the request. */
    uint16_t (*measure)(struct nvt_request *request, uint64_t *bytes);
    /* Serves it: ends in nvt_request_finish(), at once or later. */
    void (*run)(struct nvt_request *request);
    bool in_discovery; /* discovery controllers have it, too */
    uint32_t effects;  /* of the log page; 0: not listed */
};

/* ---- requests (request.c) ---- */

/* Other threads may serve at the same time: a plain I/O command of a queue that is at work. */
bool nvt_request_is_shared(const struct nvt_queue *queue, const struct nvf_sqe *sqe);
/* A capsule has come: sqe, in_capsule and in_capsule_bytes are set, all else is clear. */
void nvt_request_begin(struct nvt_queue *queue, struct nvt_request *request);
void nvt_request_fetched(struct nvt_request *request, bool is_ok);
void nvt_request_finish(struct nvt_request *request, uint16_t status);
/* The answer has been said, or cannot be. */
void nvt_request_end(struct nvt_request *request);
/* The response as it goes over the wire. */
void nvt_request_response(struct nvt_request *request, struct nvf_cqe *out);
/* Copies to the data of an NVT_TO_HOST command, from byte `offset` of what the host would see
 * were there no offset; the rest of the data is zero. */
void nvt_request_put(struct nvt_request *request, const void *from, size_t len_bytes,
                     uint64_t offset);

/* It has its memory: goes on with its data, or the command. */
void nvt_request_go_on(struct nvt_request *request);
void nvt_request_give_memory(struct nvt_request *request);
/* Is done with its namespace. */
void nvt_request_leave(struct nvt_request *request);

/* The connection has ended: its requests are given up. True: none are under way, it may be freed;
 * else nvt_request_end() of the last one says so by queue->under_way == 0. */
bool nvt_queue_gone(struct nvt_queue *queue);
/* The queue's lists, of one that is all zeroes else. */
void nvt_queue_init(struct nvt_queue *queue);
/* The host takes its data and answers too late. */
bool nvt_queue_is_stuck(const struct nvt_queue *queue, uint64_t now_ns);

/* ---- memory of requests (memory.c) ---- */

/* False: there is none now, and the request waits. */
bool nvt_memory_get(struct nvt_request *request);
/* Its data is not needed any more. Others that wait for it are served by nvt_thread_feed(). */
void nvt_request_give_memory(struct nvt_request *request);
/* A piece that it took of its share beside its data. */
void nvt_memory_give_piece(struct nvt_request *request, uint8_t *piece);

/* ---- commands by opcode; NULL: there is none ---- */

const struct nvt_command *nvt_fabrics_command(uint8_t type);
const struct nvt_command *nvt_admin_command(uint8_t opcode);
const struct nvt_command *nvt_io_command(uint8_t opcode);

/* Namespace of an I/O command; fills request->ns, or gives the status: also that of a path or a
 * reservation that is in the way. */
uint16_t nvt_request_namespace(struct nvt_request *request);

void nvt_identify(struct nvt_request *request);
void nvt_get_log(struct nvt_request *request);
uint16_t nvt_log_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_discovery_log(struct nvt_request *request, uint64_t offset);

/* ---- reservations (reserve.c) ---- */

uint16_t nvt_resv_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_resv_register(struct nvt_request *request);
void nvt_resv_report(struct nvt_request *request);
void nvt_resv_acquire(struct nvt_request *request);
void nvt_resv_release(struct nvt_request *request);
uint16_t nvt_resv_set_mask(struct nvt_request *request);
uint16_t nvt_resv_get_mask(struct nvt_request *request);
uint16_t nvt_resv_persistence(struct nvt_request *request, bool sets);
/* A request that came to the namespace after `entry` preemptions is done. */
void nvt_preemptors_pass(struct nvt_namespace *ns, uint64_t entry);

/* ---- authentication (authenticate.c) ---- */

/* At Connect: is the host to prove itself? */
uint16_t nvt_auth_begin(struct nvt_queue *queue, struct nvt_subsystem *subsystem,
                        const char *host_nqn);
void nvt_auth_end(struct nvt_queue *queue);
/* The queue takes no other command yet. */
bool nvt_auth_is_due(const struct nvt_queue *queue);
bool nvt_auth_is_late(const struct nvt_queue *queue, uint64_t now_ns);
uint16_t nvt_auth_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_auth_run(struct nvt_request *request);

/* ---- who is let in (admission.c) ---- */

/* Its host has a controller, and has proved itself where that is asked of it. */
bool nvt_queue_is_proven(const struct nvt_queue *queue);
/* Whether its host may have one controller more. The oldest that has yet to prove itself may have
 * to go for it. */
bool nvt_ctrl_is_admitted(struct nvt_target *target, const struct nvt_queue *queue);
/* The queue is of the controller from now on, or as soon as it has proved itself. */
void nvt_ctrl_take_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue);
void nvt_ctrl_note_proven(struct nvt_queue *queue);
/* It ends before. */
void nvt_ctrl_forget_pending(struct nvt_queue *queue);

/* ---- controllers (ctrl.c) ---- */

struct nvt_ctrl *nvt_ctrl_create(struct nvt_subsystem *subsystem, struct nvt_queue *queue);
struct nvt_ctrl *nvt_ctrl_find(struct nvt_subsystem *subsystem, uint16_t cntlid);
/* Frees it when its last queue has gone. */
void nvt_ctrl_lose_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue);
/* Ends all its connections. */
void nvt_ctrl_cut(struct nvt_ctrl *ctrl);
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

/* ---- the target (target.c) ---- */

/* With one thread. Returns 0 or a negative errno. */
int nvt_target_init(struct nvt_target *target, const struct nvt_transport *transport,
                    size_t pool_bytes);
/* One thread more, while none serves. Returns 0 or a negative errno. */
int nvt_target_add_thread(struct nvt_target *target, size_t pool_bytes);
void nvt_target_free(struct nvt_target *target);
/* Time has passed: keep-alive, files that have grown. Returns when to call again at the latest. */
uint64_t nvt_target_tick(struct nvt_target *target, uint64_t now_ns);
/* Goes on with requests that wait for memory, if some has become free. Only whoever runs the thread
 * calls it, between other things: what gives memory back may be ending a queue, and must not find
 * that its requests have begun again meanwhile. `is_alone`: the other threads stand still. Whether
 * there were any. */
bool nvt_thread_feed(struct nvt_thread *thread, bool is_alone);

/* Backends may have grown: tells hosts. `asks_far`: also where that may take long. */
void nvt_target_refresh(struct nvt_target *target, bool asks_far);

/* NULL: there is one of that name, or no memory. Its namespaces are added one by one. */
struct nvt_subsystem *nvt_subsystem_add(struct nvt_target *target,
                                        const struct nvt_config_subsystem *config);
struct nvt_subsystem *nvt_subsystem_find(struct nvt_target *target, const char *nqn);
/* Sets its identity and which hosts it takes; hosts that are no longer let in lose their
 * connections. Returns 0 or -ENOMEM. */
int nvt_subsystem_update(struct nvt_subsystem *subsystem,
                         const struct nvt_config_subsystem *config);
/* Takes no host any more. Ends its controllers, and goes with the last of them. */
void nvt_subsystem_remove(struct nvt_subsystem *subsystem);
void nvt_subsystem_release(struct nvt_subsystem *subsystem); /* a controller less */
/* NULL: it is not in the list. */
struct nvt_host *nvt_subsystem_host(const struct nvt_subsystem *subsystem, const char *host_nqn);
/* A host in the list has to prove itself on each queue that it connects from now on, as the policy
 * says, whose names are filled in here. NULL: it need not. -ENOENT: it is not in the list. */
int nvt_subsystem_authenticate(struct nvt_subsystem *subsystem, const char *host_nqn,
                               const struct nvt_auth_policy *policy);
bool nvt_subsystem_admits(const struct nvt_subsystem *subsystem, const char *host_nqn);

/* Owns the backend from then on, also if it fails (negative errno). */
int nvt_namespace_add(struct nvt_subsystem *subsystem, const struct nvt_config_namespace *config,
                      struct nvt_backend *backend, struct nvt_namespace **out);
void nvt_namespace_remove(struct nvt_namespace *ns);
/* What all threads have made of it. */
struct nvt_tally nvt_namespace_sum(const struct nvt_namespace *ns);
/* Its backend may have grown: tells hosts. */
void nvt_namespace_refresh(struct nvt_namespace *ns);
/* A user less, of that thread. */
void nvt_namespace_release(struct nvt_namespace *ns, const struct nvt_thread *thread);
void nvt_namespace_set_group(struct nvt_namespace *ns, uint32_t ana_group);

/* ---- ports (port.c) ---- */

/* NULL: no memory. */
struct nvt_port *nvt_port_add(struct nvt_target *target, const struct nvt_config_port *config);
/* What it serves, its referrals and ANA states. Returns 0 or -ENOMEM. */
int nvt_port_update(struct nvt_port *port, const struct nvt_config_port *config);
/* No longer shown; it goes when nobody uses it. */
void nvt_port_remove(struct nvt_port *port);
void nvt_port_hold(struct nvt_port *port);
void nvt_port_release(struct nvt_port *port);
bool nvt_port_serves(const struct nvt_port *port, const struct nvt_subsystem *subsystem);
void nvt_port_forget(struct nvt_port *port, const struct nvt_subsystem *subsystem);

/* What one controller is told of: an event, for all to whom `concerns` says so. */
void nvt_target_notify(struct nvt_target *target, enum nvt_event event,
                       bool (*concerns)(const struct nvt_ctrl *ctrl, const void *what),
                       const void *what);
void nvt_target_each_ctrl(struct nvt_target *target,
                          void (*visit)(struct nvt_ctrl *ctrl, void *arg), void *arg);
/* The log page of discovery has changed. */
void nvt_discovery_changed(struct nvt_target *target);

#endif
