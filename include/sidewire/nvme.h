/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host for NVMe over RDMA: reaches any standard controller through verbs and rdma_cm.
 *
 * One thread may use one queue at a time. Everything of a controller is safe from any thread.
 * There are no hidden threads, unless `background` asks for one: the user of a controller calls
 * poll or wait of one of its queues (or of the controller) at least twice per keep-alive time.
 * Nothing on the path of data allocates memory.
 *
 * When a connection is lost, queue pairs are destroyed before anything else, so that nothing can
 * touch the buffers of a request that has ended. Requests that are safe to repeat wait for the
 * connection to come back, and are sent again; see `ctrl_loss_tmo_s`. The others end with
 * SW_NVME_MAYBE_DONE. No request is ever dropped without a result.
 *
 * A child of fork() has no part in its parent's controllers, queues and memory: all that it calls
 * with one says SW_NVME_FORKED, or does nothing. It may close queues, release memory and then
 * disconnect, which frees what the child has of them. The parent does not notice it.
 *
 * Units are in the names. Deadlines are CLOCK_MONOTONIC in nanoseconds: sw_nvme_deadline_ms().
 */
#ifndef SIDEWIRE_NVME_H
#define SIDEWIRE_NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_NVME_PUBLIC __attribute__((visibility("default")))

struct sw_nvme_controller;
struct sw_nvme_queue;
struct sw_nvme_mem;

enum sw_nvme_status {
    SW_NVME_OK = 0,
    SW_NVME_FAILED,         /* the controller says so: see `nvme_status` */
    SW_NVME_AGAIN,          /* the queue is full: poll, then try again */
    SW_NVME_INVALID,        /* an argument is wrong */
    SW_NVME_TOO_LONG,       /* more data than the controller takes in one command */
    SW_NVME_NOT_REGISTERED, /* data that no sw_nvme_mem covers */
    SW_NVME_NO_MEMORY,
    SW_NVME_TIMEOUT,        /* the deadline has passed */
    SW_NVME_ADDRESS,        /* no such address, or no RDMA device leads there */
    SW_NVME_REFUSED,        /* the peer refused the connection */
    SW_NVME_UNREACHABLE,    /* nobody answers, or the controller is away for too long */
    SW_NVME_NOT_DONE,       /* the connection was lost before the request left: nothing happened */
    SW_NVME_MAYBE_DONE,     /* it was lost after the request left: it may have happened */
    SW_NVME_PROTOCOL,       /* the controller broke the protocol */
    SW_NVME_UNSUPPORTED,    /* the controller lacks what is needed, or asks for what is not there */
    SW_NVME_CLOSED,         /* closed by this side */
    SW_NVME_SYSTEM,         /* the operating system or the RDMA device failed */
    SW_NVME_AUTHENTICATION, /* host or controller could not prove who it is */
    SW_NVME_FORKED,         /* the handle belongs to the parent of this process */
};

/* A sentence without its full stop; never NULL. */
SW_NVME_PUBLIC const char *sw_nvme_status_text(enum sw_nvme_status status);
/* "Invalid Field in Command: ..." for a status of NVMe (code type in bits 8-10, DNR in bit 14). */
SW_NVME_PUBLIC const char *sw_nvme_code_text(uint16_t nvme_status);

struct sw_nvme_error {
    enum sw_nvme_status status;
    uint16_t nvme_status; /* where status is SW_NVME_FAILED */
    char text[256];       /* what happened, and why */
};

/* Which of several paths a request takes, among those that are equally good (ANA). */
enum sw_nvme_iopolicy {
    SW_NVME_ROUND_ROBIN, /* each in turn */
    SW_NVME_QUEUE_DEPTH, /* the one with the fewest requests of this queue under way */
    SW_NVME_NUMA,        /* the one whose device is the nearest to the thread that opens a queue */
};

/* Another way to the same subsystem; as the fields of that name of the options. */
struct sw_nvme_address {
    const char *traddr, *trsvcid, *host_traddr;
};

struct sw_nvme_options {
    const char *traddr;      /* IPv4, IPv6 or a name */
    const char *trsvcid;     /* port; NULL: 4420 */
    const char *subsysnqn;   /* NULL: the discovery subsystem */
    const char *hostnqn;     /* NULL: of /etc/nvme/hostnqn, else made of the machine's ID */
    const char *hostid;      /* UUID; NULL: of /etc/nvme/hostid, else that of hostnqn */
    const char *host_traddr; /* the own address; NULL: any */
    /* DH-HMAC-CHAP: "DHHC-1:00:...". The host proves that it knows the first, if it is asked to. */
    const char *dhchap_secret;
    /* The controller has to prove that it knows this one. NULL: it need not. */
    const char *dhchap_ctrl_secret;
    uint32_t nr_io_queues;   /* asked for; the controller may grant fewer */
    uint32_t queue_size;     /* entries of an I/O queue, 2-1024; requests in flight: one less */
    uint32_t keep_alive_ms;  /* 0: none */
    int32_t ctrl_loss_tmo_s; /* reconnection is given up after so long; -1: never; 0: at once */
    uint32_t reconnect_delay_s;
    int32_t fast_io_fail_tmo_s; /* requests stop waiting after so long; -1: with ctrl_loss_tmo */
    uint32_t connect_timeout_ms;
    uint32_t io_timeout_ms; /* a command without answer for so long resets the controller */
    bool background;        /* a thread keeps the controller alive while nobody polls */
    bool no_in_capsule;     /* small writes go by RDMA READ too */
    /* Several paths: below. */
    const struct sw_nvme_address *more; /* ways beside `traddr` */
    uint32_t more_count;                /* up to SW_NVME_PATHS_MAX - 1 */
    enum sw_nvme_iopolicy iopolicy;
    int32_t quiesce_tmo_s;
};

/* The defaults of nvme-cli: 4420, 1 queue of 128, 5 s keep-alive, 600 s loss, 10 s delay. */
SW_NVME_PUBLIC void sw_nvme_options_init(struct sw_nvme_options *options);
/* Reads "round-robin", "queue-depth" or "numa"; INVALID: it is none of these. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_iopolicy_parse(const char *text,
                                                          enum sw_nvme_iopolicy *policy);
SW_NVME_PUBLIC uint64_t sw_nvme_deadline_ms(uint32_t from_now_ms);

/* ---- controllers ---- */

enum sw_nvme_state {
    SW_NVME_CONNECTING,
    SW_NVME_LIVE,
    SW_NVME_LOST, /* until it is back, or given up */
    SW_NVME_DEAD, /* for good: requests end at once */
};

struct sw_nvme_info {
    uint16_t cntlid;
    uint32_t version;      /* 0x10400 is 1.4 */
    uint64_t cap;          /* the property */
    uint32_t queue_size;   /* of I/O queues, as negotiated */
    uint32_t nr_io_queues; /* granted; 0 for a discovery controller */
    uint32_t transfer_max_bytes;
    uint32_t in_capsule_bytes; /* writes up to this length go with their command */
    uint32_t keep_alive_ms;
    bool traffic_keeps_alive; /* TBKAS */
    bool is_discovery;
    uint32_t reconnects; /* how often it was lost and came back */
};

/* Starts to connect and returns at once. Poll or wait for what comes of it. `error` may be NULL
 * here and below. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_start(const struct sw_nvme_options *options,
                                                 struct sw_nvme_error *error,
                                                 struct sw_nvme_controller **controller);
/* Starts, and waits until the controller is live or `connect_timeout_ms` has passed. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_connect(const struct sw_nvme_options *options,
                                                   struct sw_nvme_error *error,
                                                   struct sw_nvme_controller **controller);
SW_NVME_PUBLIC enum sw_nvme_state sw_nvme_poll(struct sw_nvme_controller *controller);
/* Sleeps until the controller is live (OK) or dead (its last error) or the deadline passes. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_wait_live(struct sw_nvme_controller *controller,
                                                     uint64_t deadline_ns);
SW_NVME_PUBLIC enum sw_nvme_state sw_nvme_state_of(struct sw_nvme_controller *controller);
SW_NVME_PUBLIC void sw_nvme_last_error(struct sw_nvme_controller *controller,
                                       struct sw_nvme_error *error);
SW_NVME_PUBLIC void sw_nvme_info_of(struct sw_nvme_controller *controller,
                                    struct sw_nvme_info *info);
/* Shuts the controller down and frees it. INVALID while it has queues or memory. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_disconnect(struct sw_nvme_controller *controller);

/*
 * Several paths. A controller with `more` addresses has a connection to each; all else of this
 * header works on it as on one. Paths have to lead to the same namespaces (serial number, NGUID,
 * UUID, size); one that does not is refused, and the others go on. Requests take optimized paths,
 * else other accessible ones (ANA).
 *
 * When a path is lost, requests that changed nothing go to another one at once. One that may have
 * changed something, and may still do so where the path led, waits until that is impossible:
 * - a target whose medium fences says that another of its members has taken over, or
 * - the target says by another path that it has reset the controller (cross-controller reset), or
 * - the controller has had the time to see the loss, and its command quiesce time besides.
 * It goes to another path then. Where no proof can come it ends with MAYBE_DONE.
 * `quiesce_tmo_s`: it goes after so long without proof, too; 0: at once; -1: never (default).
 *
 * Without any path requests wait for `ctrl_loss_tmo_s`.
 */
enum { SW_NVME_PATHS_MAX = 8 };

enum sw_nvme_ana {
    SW_NVME_ANA_OPTIMIZED = 1,
    SW_NVME_ANA_NON_OPTIMIZED,
    SW_NVME_ANA_INACCESSIBLE,
    SW_NVME_ANA_PERSISTENT_LOSS,
    SW_NVME_ANA_CHANGE = 15,
};

enum sw_nvme_path_state {
    SW_NVME_PATH_AWAY,     /* not connected: `why` */
    SW_NVME_PATH_CHECKED,  /* connected; it is being asked where it leads to */
    SW_NVME_PATH_USED,     /* as its ANA state allows */
    SW_NVME_PATH_REFUSED,  /* it leads to something else: `why` */
    SW_NVME_PATH_GIVEN_UP, /* for good: `why` */
};

struct sw_nvme_path {
    char address[128]; /* "ADDR:PORT" */
    enum sw_nvme_path_state state;
    enum sw_nvme_ana ana; /* of the namespace that was asked for */
    uint16_t cntlid;
    uint32_t reconnects;
    uint32_t quiesce_ms; /* what a write of it waits for at most when it is lost; 0: no such time */
    uint64_t requests;   /* that took it */
    uint64_t moved;      /* of them, those that went on to another path */
    uint64_t held;       /* of those, the ones that waited for a proof first */
    uint64_t maybe_done; /* those that ended so, for there was no proof */
    char why[256];
};

/* All paths, in the order of their addresses; at most `paths_max`. Returns how many there are: 1 of
 * a controller without `more`. `nsid` 0: the first namespace. */
SW_NVME_PUBLIC uint32_t sw_nvme_paths_of(struct sw_nvme_controller *controller, uint32_t nsid,
                                         struct sw_nvme_path *paths, uint32_t paths_max);
/* The addresses beside `traddr` at which the discovery subsystem there says that `subsysnqn` is, of
 * RDMA and for `more`: up to SW_NVME_PATHS_MAX - 1. Free them with free(). */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_find_paths(const struct sw_nvme_options *options,
                                                      struct sw_nvme_address **addresses,
                                                      uint32_t *count, struct sw_nvme_error *error);
SW_NVME_PUBLIC const char *sw_nvme_path_state_text(enum sw_nvme_path_state state);
/* "optimized", "non-optimized", "inaccessible", "persistent-loss", "change". */
SW_NVME_PUBLIC const char *sw_nvme_ana_text(enum sw_nvme_ana ana);

/* An asynchronous event of the controller, as dword 0 of its completion has it. OK, or AGAIN where
 * there is none. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_take_event(struct sw_nvme_controller *controller,
                                                      uint32_t *event);

/* ---- memory ---- */

/* Lets the controller read and write [data, data + bytes) for as long as it is registered. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_mem_register(struct sw_nvme_controller *controller,
                                                        void *data, size_t bytes,
                                                        struct sw_nvme_mem **mem);
/* Page-aligned zeroed memory, registered; freed with the registration. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_mem_alloc(struct sw_nvme_controller *controller,
                                                     size_t bytes, struct sw_nvme_mem **mem);
SW_NVME_PUBLIC void *sw_nvme_mem_data(const struct sw_nvme_mem *mem);
SW_NVME_PUBLIC size_t sw_nvme_mem_bytes(const struct sw_nvme_mem *mem);
/* No request may be using it. */
SW_NVME_PUBLIC void sw_nvme_mem_release(struct sw_nvme_mem *mem);

/* ---- queues and requests ---- */

struct sw_nvme_result {
    enum sw_nvme_status status;
    uint16_t nvme_status; /* where status is SW_NVME_FAILED */
    uint64_t value;       /* dwords 0 and 1 of the completion */
    void *arg;            /* of the request */
};

/* Called by poll or wait. May submit, must not poll or close. */
typedef void sw_nvme_done(void *arg, const struct sw_nvme_result *result);

enum sw_nvme_flags { SW_NVME_FUA = 1, SW_NVME_DEALLOCATE = 2 /* of write zeroes */ };

struct sw_nvme_io {
    uint32_t nsid;
    uint32_t blocks; /* 1-65536 */
    uint64_t lba;
    void *data;              /* inside `mem` */
    uint32_t bytes;          /* of data: blocks times the size of a block */
    uint32_t flags;          /* enum sw_nvme_flags */
    struct sw_nvme_mem *mem; /* in use until the request has ended */
    sw_nvme_done *done;      /* NULL: sw_nvme_queue_take() gives the result */
    void *arg;
};

/* A range of dataset management, in the format of NVMe: 16 bytes, little-endian. */
struct sw_nvme_range {
    uint32_t attributes, blocks;
    uint64_t lba;
};

enum { SW_NVME_SPIN_FOREVER = 0xffffffff };

/* Opens the next free queue of the controller. Waits spin for `spin_us` and then sleep. One that is
 * lost is waited for only if it is tried again within connect_timeout_ms. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_queue_open(struct sw_nvme_controller *controller,
                                                      uint32_t spin_us, struct sw_nvme_error *error,
                                                      struct sw_nvme_queue **queue);
/* The same without waiting: requests wait in the queue until it is connected. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_queue_start(struct sw_nvme_controller *controller,
                                                       uint32_t spin_us,
                                                       struct sw_nvme_error *error,
                                                       struct sw_nvme_queue **queue);
/* Requests still in flight end with NOT_DONE or MAYBE_DONE before it returns. */
SW_NVME_PUBLIC void sw_nvme_queue_close(struct sw_nvme_queue *queue);
/* Requests that may be in flight, and those that are (results not yet taken included). */
SW_NVME_PUBLIC uint32_t sw_nvme_queue_depth(const struct sw_nvme_queue *queue);
SW_NVME_PUBLIC uint32_t sw_nvme_queue_used(const struct sw_nvme_queue *queue);

/* Each returns OK where the request is on its way, and then it gets exactly one result. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_read(struct sw_nvme_queue *queue,
                                                const struct sw_nvme_io *io);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_write(struct sw_nvme_queue *queue,
                                                 const struct sw_nvme_io *io);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_compare(struct sw_nvme_queue *queue,
                                                   const struct sw_nvme_io *io);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_write_zeroes(struct sw_nvme_queue *queue,
                                                        const struct sw_nvme_io *io);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_flush(struct sw_nvme_queue *queue,
                                                 const struct sw_nvme_io *io);
/* `data` are `bytes` / 16 ranges (1-256), which get deallocated. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_dsm(struct sw_nvme_queue *queue,
                                               const struct sw_nvme_io *io);

/*
 * Reservations of a namespace (NVM Express Base 2.0 s8.19). A host registers a key, and one that is
 * registered may reserve the namespace. Keys belong to the host's ID and outlast its connection.
 */
enum sw_nvme_resv_type {
    SW_NVME_RESV_WRITE_EXCLUSIVE = 1,
    SW_NVME_RESV_EXCLUSIVE_ACCESS,
    SW_NVME_RESV_WRITE_EXCLUSIVE_REGISTRANTS,
    SW_NVME_RESV_EXCLUSIVE_ACCESS_REGISTRANTS,
    SW_NVME_RESV_WRITE_EXCLUSIVE_ALL, /* every registrant holds it */
    SW_NVME_RESV_EXCLUSIVE_ACCESS_ALL,
};

enum { SW_NVME_RESV_REGISTER, SW_NVME_RESV_UNREGISTER, SW_NVME_RESV_REPLACE };
enum { SW_NVME_RESV_ACQUIRE, SW_NVME_RESV_PREEMPT, SW_NVME_RESV_PREEMPT_ABORT };
enum { SW_NVME_RESV_RELEASE, SW_NVME_RESV_CLEAR };
enum { SW_NVME_RESV_FORGET = 2, SW_NVME_RESV_KEEP }; /* when power is lost */
enum { SW_NVME_RESV_KEYS_BYTES = 16 };

struct sw_nvme_resv {
    uint32_t action; /* of the command, above */
    uint32_t type;   /* enum sw_nvme_resv_type, of acquire and release */
    uint32_t power;  /* of register; 0: as it is */
    bool ignores_key;
    uint64_t key;   /* this host's, as it is registered */
    uint64_t other; /* of register: the new one; of preempt: whose are to go */
};

/* `io->data` has room for SW_NVME_RESV_KEYS_BYTES, and is written by the call. A host that loses
 * its connection meanwhile does not send them again: MAYBE_DONE, and the report tells. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_resv_register(struct sw_nvme_queue *queue,
                                                         const struct sw_nvme_io *io,
                                                         const struct sw_nvme_resv *resv);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_resv_acquire(struct sw_nvme_queue *queue,
                                                        const struct sw_nvme_io *io,
                                                        const struct sw_nvme_resv *resv);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_resv_release(struct sw_nvme_queue *queue,
                                                        const struct sw_nvme_io *io,
                                                        const struct sw_nvme_resv *resv);
/* `data` gets as much of the report as fits: struct nvme_resv_status of libnvme with extended
 * registrants. `bytes`: a multiple of 4. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_resv_report(struct sw_nvme_queue *queue,
                                                       const struct sw_nvme_io *io);

/* Handles what has come; never sleeps. Returns the number of requests that ended. */
SW_NVME_PUBLIC uint32_t sw_nvme_queue_poll(struct sw_nvme_queue *queue);
/* Until at least one request ended (OK), the deadline passed (TIMEOUT) or none is there (AGAIN). */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_queue_wait(struct sw_nvme_queue *queue,
                                                      uint64_t deadline_ns);
/* Results of requests without a callback, oldest first. Returns how many. */
SW_NVME_PUBLIC uint32_t sw_nvme_queue_take(struct sw_nvme_queue *queue,
                                           struct sw_nvme_result *results, uint32_t results_max);
/* For epoll: readable when poll has something to do, once sw_nvme_queue_arm() returned true.
 * False: there is something already, poll first. */
SW_NVME_PUBLIC int sw_nvme_queue_fd(const struct sw_nvme_queue *queue);
SW_NVME_PUBLIC bool sw_nvme_queue_arm(struct sw_nvme_queue *queue);

/* ---- administration: from any thread, waits for the answer ---- */

struct sw_nvme_admin {
    uint8_t opcode;
    bool is_write; /* `data` goes to the controller, else it comes from there */
    uint32_t nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
    void *data; /* any memory, up to 64 KiB */
    uint32_t bytes;
    uint32_t timeout_ms; /* 0: 60 s */
};

enum { SW_NVME_ADMIN_MAX = 65536 };

SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_admin(struct sw_nvme_controller *controller,
                                                 const struct sw_nvme_admin *command,
                                                 struct sw_nvme_result *result);
/* `data` takes 4096 bytes: struct nvme_id_ctrl, nvme_id_ns and so on of libnvme. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_identify(struct sw_nvme_controller *controller,
                                                    uint8_t cns, uint32_t nsid, void *data,
                                                    struct sw_nvme_result *result);
/* `bytes`: a multiple of 4. Longer logs are read in pieces. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_get_log(struct sw_nvme_controller *controller,
                                                   uint8_t page, uint32_t nsid, uint64_t offset,
                                                   void *data, uint32_t bytes,
                                                   struct sw_nvme_result *result);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_get_feature(struct sw_nvme_controller *controller,
                                                       uint8_t feature, uint32_t nsid,
                                                       struct sw_nvme_result *result);
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_set_feature(struct sw_nvme_controller *controller,
                                                       uint8_t feature, uint32_t nsid,
                                                       uint32_t value,
                                                       struct sw_nvme_result *result);

struct sw_nvme_namespace {
    uint32_t nsid;
    uint32_t block_bytes, metadata_bytes;
    uint64_t blocks; /* its size */
};

SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_namespace_of(struct sw_nvme_controller *controller,
                                                        uint32_t nsid,
                                                        struct sw_nvme_namespace *out,
                                                        struct sw_nvme_result *result);
/* Active namespaces above `after`, ascending: up to `nsids_max`, which is 1024 at most. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_list(struct sw_nvme_controller *controller,
                                                uint32_t after, uint32_t *nsids, uint32_t nsids_max,
                                                uint32_t *count, struct sw_nvme_result *result);

/* ---- discovery ---- */

/* The whole log, from a discovery controller: 1024 bytes of header and as many for each record
 * (struct nvmf_discovery_log of libnvme), read again if it changed meanwhile. Free it with free().
 * Records beyond 4096 are not asked for. */
SW_NVME_PUBLIC enum sw_nvme_status sw_nvme_discover(struct sw_nvme_controller *controller,
                                                    void **log, uint64_t *records,
                                                    struct sw_nvme_error *error);

#ifdef __cplusplus
}
#endif
#endif
