/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target on the network: connections by rdma_cm, one queue pair for each NVMe queue, and the
 * threads that serve them. Each queue belongs to one of them: it alone polls for the queue and
 * sends for it. Connections, admin commands, changes and the end of queues are for one thread while
 * the others stand still (gate.h).
 *
 * Work requests name their queue by number and generation, so that a completion of one that is
 * gone is known for what it is.
 */
#ifndef SW_MOVERS_NVME_RDMA_H
#define SW_MOVERS_NVME_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/rdma/listener.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/target.h"
#include "nvme/target/model/worker.h"
#include "nvme/target/server/gate.h"
#include "nvme/target/server/pace.h"

enum {
    NVR_QUEUES_MAX = 4096, /* connections of the server */
    NVR_LISTENERS_MAX = 16,
    NVR_SPARE_SLOTS = 32, /* beyond a queue's depth: answers whose SEND has not completed yet */
    NVR_SHARED_MAX = 8,   /* lots of shared receives of a device: one for each in-capsule size */
    NVR_QPN_CHAINS = 256,
    NVR_OUTBOX = 128,   /* work requests that wait for the end of a turn */
    NVR_GIVEN_MAX = 16, /* receives that are posted in one list */
};

enum nvr_wr_kind {
    NVR_WR_RECEIVE,
    NVR_WR_SHARED,
    NVR_WR_FETCH,
    NVR_WR_ANSWER,
    NVR_WR_SILENT,
    NVR_WR_PROBE
};

/* A descriptor that a thread looks at; its owner has it. */
struct nvr_watch {
    int fd;
    bool is_own; /* ready() touches nothing of others; else they stand still meanwhile */
    void (*ready)(struct nvr_watch *watch); /* there is something to read; must not block */
    void *context;
};

/* Receives for what hosts send: of one queue, or of all I/O queues of a device. */
struct nvr_receives {
    struct nvr_device *device;
    struct ibv_srq *srq; /* NULL: of one queue */
    uint32_t count, in_capsule_bytes;
    uint16_t number;          /* shared: in the device's */
    uint8_t *capsules, *data; /* [count * 64], [count * in_capsule_bytes] */
    struct ibv_mr *capsule_mr;
    struct nvt_region data_region;
    uint32_t taken;                /* by capsules that lie in them */
    size_t copied_bytes;           /* of capsules that do not, since their queue has too many */
    uint16_t given[NVR_GIVEN_MAX]; /* those that are to be posted again */
    uint32_t given_count;
};

/* A device, as one thread has it. */
struct nvr_device {
    struct nvr_watch watch, async_watch; /* of the channel; of the device's events: the first's */
    struct nvr_thread *thread;
    struct ibv_context *verbs;
    struct ibv_pd *pd; /* the first thread's */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int cq_entries, cq_used, index;
    struct nvr_receives *shared[NVR_SHARED_MAX];
    uint32_t shared_count;
    bool has_no_srq;
    struct nvr_queue *by_qpn[NVR_QPN_CHAINS]; /* those whose receives are shared */
};

struct nvr_listener {
    struct mover_listener at;
    struct nvt_port *port;
};

/* NVR_LATER: its command is for when the other threads stand still. NVR_FETCHED: the same, and its
 * data has come. */
enum nvr_slot_state { NVR_FREE, NVR_LATER, NVR_SERVED, NVR_FETCHING, NVR_FETCHED, NVR_ANSWERING };

/* What a host has sent: in a receive, or copied from there. */
struct nvr_capsule {
    uint8_t *copy; /* [len_bytes], NULL: in the receive */
    struct nvt_share
        *share; /* whose copy it is; NULL: the one that its queue may have at any time */
    uint16_t receive, len_bytes;
    bool is_there;
};

/* A command under way. */
struct nvr_slot {
    struct nvt_request request;
    struct list_node node; /* of the queue's free, blocked or answering ones, or the thread's */
    enum nvr_slot_state state;
    struct nvr_capsule capsule;
    uint16_t number, sends; /* work requests made for it */
    uint32_t sent;          /* its place in the order of what the queue sends */
    struct nvf_cqe response;
};

struct nvr_queue {
    struct nvt_queue queue; /* the model's; must be first */
    struct list_node node;  /* of the thread's queues that end */
    struct nvr_server *server;
    struct nvr_thread *thread;
    struct nvr_device *device;
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    uint16_t number, generation;
    uint32_t depth, slot_count, sends_free, answers; /* answers under way */
    struct nvr_receives *receives;                   /* its own, or shared */
    uint32_t receives_given;                         /* of its own */
    struct nvr_queue *next_by_qpn;
    struct ibv_mr *response_mr;
    struct nvr_slot *slots;
    struct list free_slots, blocked, answering; /* blocked: those that wait for room to send */
    struct ibv_send_wr *first_send, *last_send; /* its list in the outbox; NULL: it has none */
    struct list_node sending;                   /* of the queues that have one */
    uint32_t sends_made, silent_bytes;          /* of its list, since a signaled one */
    bool is_inline;                             /* the device takes responses inline */
    uint32_t receives_taken;                    /* by its capsules */
    struct nvr_capsule *held;                   /* those that wait for a slot: a ring of [depth] */
    uint32_t held_first, held_count;
    bool has_copy; /* of a capsule, whatever others have */
    bool is_listed, is_established, is_closing, is_over;
    bool is_expected; /* when it came, its host had a controller that lacked it (crowd.h) */
    bool is_draining, is_drained;     /* shared receives: it takes no more; it has taken its last */
    uint64_t created_ns, close_by_ns; /* closing: no later than that */
    uint64_t drain_by_ns;
};

struct nvr_settings {
    size_t pool_bytes; /* for data on its way */
    uint32_t spin_us;  /* how long an idle server polls before it sleeps */
    uint32_t queues_max;
    uint32_t shared_receives; /* of all I/O queues of a device; 0: each queue has its own */
    uint32_t threads;
};

/* Work requests that leave at the end of the turn: a list for each queue that has some. */
struct nvr_outbox {
    struct list queues;
    uint32_t count;
    struct ibv_send_wr wrs[NVR_OUTBOX];
    struct ibv_sge sges[NVR_OUTBOX];
};

/* The first one is the program's: connections, signals, commands and admin queues are its own. */
struct nvr_thread {
    struct nvt_thread *base; /* the model's */
    struct nvr_server *server;
    pthread_t id;
    bool is_started; /* beside the program's */
    struct nvt_uring uring;
    int epoll_fd, wake_fd;
    struct nvr_watch uring_watch, wake_watch;
    uint32_t device_count, io_queues;
    struct nvr_device devices[NVT_REGION_DEVICES];
    struct list ending; /* queues */
    struct list later;  /* slots: NVR_LATER and NVR_FETCHED */
    bool wants_wake;    /* there is something new for it */
    bool has_stopped;   /* the others, for a turn */
    bool is_pool_known; /* to io_uring, or it was refused */
    uint64_t tick_ns;   /* the first one's: when to look at the time again */
    struct nvt_pace pace;
    struct nvr_outbox outbox;
};

struct nvr_server {
    struct nvt_target target;
    struct nvr_settings settings;
    struct nvt_worker worker;
    struct rdma_event_channel *events;
    int memory_fd;       /* -1 until memory is mapped from it */
    uint64_t memory_end; /* its length: what is given back is not used again */
    struct nvr_watch cm_watch, listen_watch, worker_watch;
    uint32_t queue_count, listener_count;
    uint64_t stop_ns;  /* it ends by then; 0: it serves */
    uint64_t probe_ns; /* when to ask next whether idle hosts are there */
    uint32_t thread_count;
    struct nvr_thread *threads; /* [thread_count] */
    struct nvt_gate gate;
    bool is_alone;        /* who asks has all for itself, as always where there is one thread */
    _Atomic bool is_done; /* threads end */
    pthread_mutex_t register_lock; /* of memory that threads share */
    struct nvr_listener listeners[NVR_LISTENERS_MAX];
    /* What becomes of them, in a line; NULL: nobody wants to know. */
    void (*say_listener)(bool is_bad, const char *line);
    struct nvr_queue *queues[NVR_QUEUES_MAX];
    uint16_t generation;
    uint64_t refused, connected; /* counted */
};

/* Returns 0 or a negative errno. */
int nvr_server_open(struct nvr_server *server, const struct nvr_settings *settings);
void nvr_server_close(struct nvr_server *server);

/* Listens where `config` says; `error` says what is wrong. Returns 0 or a negative errno. */
int nvr_server_listen(struct nvr_server *server, const struct nvt_config_port *config, char *error,
                      size_t error_size);
/* Ends the connections that came by the port, too. */
void nvr_server_unlisten(struct nvr_server *server, uint16_t portid);
/* False while its address is away. */
bool nvr_server_is_listening(const struct nvr_server *server, const struct nvt_port *port);
/* NULL: it listens at none of that number. */
struct nvt_port *nvr_server_port(const struct nvr_server *server, uint16_t portid);

/* Returns 0 or a negative errno. Once it is unwatched its owner may free it, except in a call of
 * its own ready(). */
int nvr_thread_watch(struct nvr_thread *thread, struct nvr_watch *watch);
int nvr_server_watch(struct nvr_server *server, struct nvr_watch *watch); /* by the first one */
void nvr_server_unwatch(struct nvr_server *server, struct nvr_watch *watch);

/* Serves until a watch calls nvr_server_stop(), and drains what is under way. Returns 0, or a
 * negative errno where threads cannot be had. */
int nvr_server_run(struct nvr_server *server);
void nvr_server_stop(struct nvr_server *server);

/* ---- among the files of the server ---- */

/* The device of an ID; NULL: it cannot be used. */
struct nvr_device *nvr_device_of(struct nvr_thread *thread, struct ibv_context *verbs);
struct ibv_mr *nvr_device_register(struct nvr_device *device, struct nvt_region *region);
void nvr_region_forget(struct nvt_region *region); /* by all devices */
bool nvr_device_reserve(struct nvr_device *device, int entries);
/* NULL: none of that number shares receives. */
struct nvr_queue *nvr_device_queue(struct nvr_device *device, uint32_t qpn);
void nvr_device_close(struct nvr_device *device);

/* Makes the receives of one queue. NULL: no memory, or the device refuses. */
struct nvr_receives *nvr_receives_create(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t count, uint32_t in_capsule_bytes);
void nvr_receives_free(struct nvr_receives *receives);
/* The receives that all I/O queues of a thread with that in-capsule size share. NULL: each has to
 * have its own. */
struct nvr_receives *nvr_receives_shared(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t in_capsule_bytes);
/* It is to be posted again: by nvr_receives_post(), or now where many are. Shared ones are posted
 * for any host that sends next; `queue` may be NULL. False: the device refuses. */
bool nvr_receive_give(struct nvr_receives *receives, const struct nvr_queue *queue, uint16_t index);
bool nvr_receives_post(struct nvr_receives *receives, const struct nvr_queue *queue);

/* One has come: receive and len_bytes are set. False: there is no place for it. */
bool nvr_capsule_take(struct nvr_queue *queue, struct nvr_capsule *capsule);
/* It is not needed any more; nothing where it has been given. False: the device refuses. */
bool nvr_capsule_give(struct nvr_queue *queue, struct nvr_capsule *capsule);
/* The command, and the data that came with it. */
void nvr_capsule_place(const struct nvr_queue *queue, const struct nvr_capsule *capsule,
                       struct nvt_request *request);
uint64_t nvr_wr_id(const struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index);

/* Before the first I/O: until then the pool has no pages, and without files it needs none there. */
void nvr_pool_register(struct nvr_thread *thread);

/* Memory that is registered for hosts to send to. NULL: there is none. */
void *nvr_memory_map(struct nvr_server *server, size_t len_bytes);
void nvr_memory_unmap(void *memory, size_t len_bytes);

extern const struct nvt_transport nvr_transport;

/* What is wrong with it (enum nvf_cm_status), or 0. */
uint16_t nvr_queue_check(const struct nvf_cm_req *req);
/* The thread that has the next queue of that number. */
struct nvr_thread *nvr_thread_choose(const struct nvr_server *server, uint16_t qid);
/* Makes the queue of a request that is checked. NULL: no memory, or the device refuses. */
struct nvr_queue *nvr_queue_create(struct nvr_server *server, struct nvt_port *port,
                                   struct rdma_cm_id *id, const struct nvf_cm_req *req);
/* Ends it now: nothing is said to its host any more. Frees it as soon as nothing is under way. */
void nvr_queue_end(struct nvr_queue *queue);
/* Nothing more can come for it. With shared receives that takes a while, from the first time that
 * it is asked. */
bool nvr_queue_drain(struct nvr_queue *queue, uint64_t now_ns);
/* Frees what nvr_queue_end() has left. */
void nvr_queue_free(struct nvr_queue *queue);
/* It has broken: ends at the end of this turn of the loop. */
void nvr_queue_fail(struct nvr_queue *queue);
/* Now, or when the other threads stand still. */
bool nvr_slot_is_for_now(const struct nvr_slot *slot);
/* Serves the commands that wait for the other threads to stand still: they do. */
void nvr_queue_run_later(struct nvr_thread *thread);
/* Posts its own receives, so many. False: the device refuses. */
bool nvr_queue_give_receives(struct nvr_queue *queue, uint32_t count);
/* For the next command; perhaps one that waits for a slot. */
void nvr_slot_free(struct nvr_queue *queue, struct nvr_slot *slot);
/* Completions of a device; true: there were some. */
bool nvr_device_poll(struct nvr_server *server, struct nvr_device *device);

/* ---- rdma_send.c ---- */

/* Work requests that may be under way: the data and response of each slot, and one of the most
 * pieces. */
static inline uint32_t nvr_queue_sends_max(const struct nvr_queue *queue)
{
    return 2 * queue->slot_count + NVF_SGL_MAX;
}

void nvr_send_fetch(struct nvt_request *request);
void nvr_send_answer(struct nvt_request *request);
/* Asks the host's device, not the host, whether it is there, if nothing else is on its way that
 * would tell: by a WRITE of no bytes. A queue whose probe has no answer fails. */
void nvr_send_probe(struct nvr_queue *queue);
/* A completion of a READ, of an answer or of a probe. */
void nvr_send_done(struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index);
/* Posts what all queues of the thread have to send. */
void nvr_sends_post(struct nvr_thread *thread);
/* The queue sends nothing any more. */
void nvr_sends_drop(struct nvr_queue *queue);

void nvr_connection_event(struct nvr_server *server, struct rdma_cm_event *event);
/* A ready() of the listeners' timer. */
void nvr_listeners_tick(struct nvr_watch *watch);

#endif
