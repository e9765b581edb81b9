/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the host share. A queue (the admin queue is one) has one connection, slots for
 * its requests and a queue pair; the queue's thread owns it all. The admin queue and all fields of
 * the controller belong to the thread that holds the controller's lock, but for the atomic ones.
 *
 * A controller that is lost gets a new epoch. Each queue compares it with its own at each poll,
 * and takes itself down when they differ.
 */
#ifndef SW_MOVERS_NVME_HOST_H
#define SW_MOVERS_NVME_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>

#include "common/rdma/connection.h"
#include "nvme/wire/fabrics.h"
#include "nvme/wire/sgl.h"
#include "sidewire/nvme.h"

enum {
    NVH_BATCH = 16, /* completions a poll takes at once; so many receives come on top */
    NVH_QUEUE_MAX = 1024,
    NVH_QUEUES_MAX = 64,
    NVH_CID_INDEX_BITS = 10, /* the rest of a CID counts how often its slot was used */
    NVH_RECEIVE_BYTES = 64,  /* a line of cache for each response of 16 */
    NVH_SCRATCH_BYTES = 4096,
    NVH_EVENTS_MAX = 8,
    NVH_TEND_NS = 5 * 1000 * 1000, /* between two looks at timers and at rdma_cm */
    NVH_NAP_NS = 50 * 1000 * 1000, /* the longest sleep without a look at timers */
    NVH_KEYED_MAX = 0xffffff,      /* a keyed descriptor has 24 bits of length */
    NVH_SENDS_MASK = 0x7fffffff,   /* of the count of sends, in an ID of a work request */
};
#define NVH_MS 1000000ull
#define NVH_S 1000000000ull

enum nvh_slot_state {
    NVH_FREE,
    NVH_PENDING, /* waits for room or for the connection */
    NVH_SENT,
    NVH_DONE, /* the result waits for sw_nvme_queue_take() */
};

struct nvh_slot {
    uint8_t state;
    bool answered;     /* waits for the completion of its SEND only */
    bool send_pending; /* the device may still read what it sends */
    bool replays;      /* may be sent again on a new connection */
    bool is_call;      /* of the library itself: dropped with the connection */
    bool was_sent;     /* at least once */
    bool is_endless;   /* has no timeout: an asynchronous event request */
    uint8_t generation;
    uint32_t capsule_bytes; /* that go in the capsule */
    uint32_t lkey;
    uint32_t send; /* the number of its SEND */
    const void *data;
    sw_nvme_done *done;
    uint64_t sent_ns; /* by the clock of the last tend */
    uint64_t number;  /* the order of submission */
    struct sw_nvme_result result;
};

/* Slots in the order they came: a ring with room for all of them. */
struct nvh_fifo {
    uint16_t *at;
    uint32_t head, tail, mask;
};

/* SENDs that leave together. */
struct nvh_send_list {
    uint32_t count;
    bool is_inline; /* all of them */
    struct ibv_send_wr wrs[NVH_BATCH];
    struct ibv_sge sges[2 * NVH_BATCH];
};

enum nvh_phase {
    NVH_DOWN,
    NVH_LINKING,
    NVH_CONNECTING, /* the Connect command is under way, or authentication */
    NVH_UP,
    NVH_ENDED, /* its controller is dead */
};

struct sw_nvme_queue {
    struct sw_nvme_controller *controller;
    uint16_t qid, cntlid;
    uint32_t size, slots_max; /* entries; slots: one less, and one more for Connect */
    enum nvh_phase phase;
    bool is_broken; /* to be taken down, at the next tend */
    bool was_live;
    bool is_armed;
    uint32_t epoch;
    uint32_t polls, spin_us;
    uint64_t next_tend_ns, tick_ns, next_scan_ns, link_deadline_ns;
    uint64_t number;
    uint32_t finished; /* requests, of all time */

    struct mover_connection connection;
    struct ibv_qp *qp;
    uint32_t inline_bytes; /* that the queue pair takes */
    struct nvh_slot *slots;
    uint16_t *free_slots;
    uint64_t *order; /* room to sort slots in */
    uint32_t free_count, used;
    struct nvh_fifo pending, done, sending; /* sending: of which send_pending is set */
    struct nvh_send_list list;
    bool gathers; /* SENDs wait in the list for the end of a poll */

    uint32_t sq_tail, sq_head; /* modulo size */
    uint32_t in_flight;        /* slots that are SENT */
    uint32_t sends_posted, sends_retired, sends_max, unsignaled;

    /* Only this side's device touches these; the scratch is the controller's to read and write. */
    struct nvf_sqe *sqes;
    uint8_t *receives;
    uint32_t receives_max, receives_missing;
    uint16_t *missing; /* receives that are to be posted again */
    void *memory, *scratch;
    size_t memory_bytes;
    struct ibv_mr *memory_mr, *scratch_mr;

    int epoll_fd, timer_fd;
    struct sw_nvme_error error; /* why it broke */
    struct nvh_auth *auth;      /* NULL but while the queue authenticates */
};

struct nvh_event_ring {
    uint32_t events[NVH_EVENTS_MAX];
    uint32_t head, tail;
};

enum nvh_setup {
    NVH_SETUP_LINK,
    NVH_SETUP_CAP,
    NVH_SETUP_VERSION,
    NVH_SETUP_ENABLE,
    NVH_SETUP_READY,
    NVH_SETUP_IDENTIFY,
    NVH_SETUP_QUEUES,
    NVH_SETUP_DONE,
};

struct sw_nvme_controller {
    pthread_mutex_t lock;
    _Atomic uint32_t epoch, state, activity;
    _Atomic uint64_t lost_ns;
    _Atomic bool was_lost; /* and no I/O queue is up again */

    struct sockaddr_storage address, source;
    bool has_source;
    char subsysnqn[NVF_NQN_MAX + 1], hostnqn[NVF_NQN_MAX + 1];
    uint8_t hostid[16];
    struct sw_nvme_options options;
    struct nvh_secrets *secrets;
    char *where; /* "ADDR:PORT", for messages */

    struct ibv_context *verbs;
    struct ibv_pd *pd;
    uint32_t reads_max; /* RDMA READs of the peer that the device bears */
    struct sw_nvme_queue admin;
    _Atomic uint32_t queues, mems;
    uint64_t queue_ids; /* those in use */

    enum nvh_setup setup;
    bool setup_waits;       /* for an answer */
    uint64_t setup_next_ns; /* when to ask again */
    uint64_t setup_deadline_ns, ready_deadline_ns;
    uint64_t next_try_ns;
    bool was_live;
    bool gives_up; /* the refusal says that it is useless to try again */
    uint64_t cap;
    uint32_t version;
    bool takes_events;
    struct sw_nvme_info info; /* but for cntlid and reconnects it stays as it first was */

    uint64_t keep_alive_next_ns, keep_alive_sent_ns; /* sent: 0 when answered */
    struct nvh_event_ring events;
    struct sw_nvme_error error;

    pthread_mutex_t bounce_lock; /* taken before `lock` */
    void *bounce;
    struct ibv_mr *bounce_mr;

    pthread_t thread;
    bool has_thread;
    _Atomic bool thread_ends;
};

struct sw_nvme_mem {
    struct sw_nvme_controller *controller;
    struct ibv_mr *mr;
    uint8_t *data;
    size_t bytes;
    bool is_ours;
};

enum sw_nvme_status nvh_error(struct sw_nvme_error *error, enum sw_nvme_status status,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

/* connection.c */
bool nvh_link_start(struct sw_nvme_queue *queue, uint64_t now_ns);
void nvh_link_step(struct sw_nvme_queue *queue);
/* Nothing touches the memory of the queue's requests when this returns. */
void nvh_link_destroy(struct sw_nvme_queue *queue);
bool nvh_post_receives(struct sw_nvme_queue *queue);

/* queue.c */
enum sw_nvme_status nvh_queue_init(struct sw_nvme_controller *controller,
                                   struct sw_nvme_queue *queue, uint16_t qid, uint32_t size);
void nvh_queue_free(struct sw_nvme_queue *queue);
bool nvh_queue_memory(struct sw_nvme_queue *queue);
void nvh_queue_break(struct sw_nvme_queue *queue, enum sw_nvme_status status, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* completion.c */
uint32_t nvh_queue_drain(struct sw_nvme_queue *queue);
void nvh_finish(struct sw_nvme_queue *queue, uint32_t index);
/* Asks for an event at the next completion. False: requests have ended meanwhile. */
bool nvh_queue_arm(struct sw_nvme_queue *queue);
/* Sleeps until something may have happened, at most until the deadline. */
void nvh_queue_sleep(struct sw_nvme_queue *queue, uint64_t deadline_ns);

/* send.c */
/* The SQE of the slot is filled in but for its CID. */
void nvh_slot_submit(struct sw_nvme_queue *queue, uint32_t index);
void nvh_pending_send(struct sw_nvme_queue *queue);
/* Posts what the list has. */
void nvh_sends_post(struct sw_nvme_queue *queue);
/* The SEND of that number is done, and all before it. Gives a slot whose SEND this is; false: there
 * is no more of them. */
bool nvh_send_retire(struct sw_nvme_queue *queue, uint32_t send, uint32_t *index);

/* request.c */
int nvh_slot_take(struct sw_nvme_queue *queue, bool is_call);
void nvh_fifo_push(struct nvh_fifo *fifo, uint32_t index);
uint32_t nvh_fifo_pop(struct nvh_fifo *fifo);
static inline bool nvh_fifo_empty(const struct nvh_fifo *fifo)
{
    return fifo->head == fifo->tail;
}
static inline uint32_t nvh_cid(const struct sw_nvme_queue *queue, uint32_t index)
{
    return index | (uint32_t)(queue->slots[index].generation & 63) << NVH_CID_INDEX_BITS;
}

/* setup.c: from the link of the admin queue to a live controller */
void nvh_setup_step(struct sw_nvme_controller *controller, uint64_t now_ns);
/* Sends Connect on a queue whose link is up. */
void nvh_connect_send(struct sw_nvme_queue *queue);
/* May carry commands of its program. */
void nvh_queue_up(struct sw_nvme_queue *queue);
/* A command of the library's own on the admin queue. */
void nvh_call(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe, bool is_endless,
              sw_nvme_done *done);
struct nvf_sqe nvh_property_set(uint32_t offset, uint64_t value);
struct nvf_sqe nvh_property_get(uint32_t offset, bool is_wide);
uint32_t nvh_cc(bool shuts_down);

/* authenticate.c */
enum sw_nvme_status nvh_secrets_take(struct sw_nvme_controller *controller,
                                     const struct sw_nvme_options *options,
                                     struct sw_nvme_error *error);
void nvh_secrets_forget(struct sw_nvme_controller *controller);
/* Authenticates where dword 0 of Connect's completion asks for it. Then: nvh_queue_up(). */
void nvh_auth_start(struct sw_nvme_queue *queue, uint32_t connect_result);
void nvh_auth_stop(struct sw_nvme_queue *queue);
/* The peer ends the connection: says why, if the exchange is the reason. */
void nvh_auth_cut(struct sw_nvme_queue *queue);

/* reconnect.c */
uint32_t nvh_tend(struct sw_nvme_queue *queue, uint64_t now_ns);
uint32_t nvh_queue_down(struct sw_nvme_queue *queue, bool replays);
void nvh_lose(struct sw_nvme_controller *controller, uint32_t epoch,
              const struct sw_nvme_error *error, bool is_recovering);
/* With the lock held. */
void nvh_admin_tend(struct sw_nvme_controller *controller, uint64_t now_ns);

/* keepalive.c */
void nvh_keep_alive(struct sw_nvme_controller *controller, uint64_t now_ns);
void nvh_events_ask(struct sw_nvme_controller *controller);

/* admin.c */
enum sw_nvme_status nvh_call_wait(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe,
                                  uint64_t deadline_ns, struct sw_nvme_result *result);

/* identity.c: who the host is, and where the controller */
enum sw_nvme_status nvh_identity(struct sw_nvme_controller *controller,
                                 const struct sw_nvme_options *options,
                                 struct sw_nvme_error *error);

#endif
