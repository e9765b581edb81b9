/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue (the admin queue is one), as the machine has it: slots for its requests, the ring of the
 * controller, the SENDs, and where its connection stands. The queue's thread owns it all; the admin
 * queue is of the thread that holds the controller's lock.
 */
#ifndef SW_MOVERS_NVME_HOST_MACHINE_QUEUE_H
#define SW_MOVERS_NVME_HOST_MACHINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/authenticate.h"
#include "nvme/host/machine/fifo.h"
#include "nvme/host/machine/port.h"
#include "nvme/host/machine/send.h"
#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

enum { NVH_QUEUE_MAX = 1024, NVH_SCRATCH_BYTES = 4096 };

struct nvh_slot;

enum nvh_kind {
    NVH_READ,
    NVH_WRITE,
    NVH_COMPARE,
    NVH_ZEROES,
    NVH_FLUSH,
    NVH_DSM,
    NVH_RESV_REGISTER,
    NVH_RESV_ACQUIRE,
    NVH_RESV_RELEASE,
    NVH_RESV_REPORT,
};

/* Takes a request of a queue over several paths. */
typedef enum sw_nvme_status nvh_take_over(struct sw_nvme_queue *queue, enum nvh_kind kind,
                                          const struct sw_nvme_io *io,
                                          const struct sw_nvme_resv *resv);

enum nvh_phase {
    NVH_DOWN,
    NVH_LINKING,
    NVH_CONNECTING, /* the Connect command is under way, or authentication */
    NVH_UP,
    NVH_ENDED, /* its controller is dead */
};

struct sw_nvme_queue {
    struct sw_nvme_controller *controller;
    const struct nvh_port *port;
    nvh_take_over *over; /* NULL, but for a queue over several paths */
    uint16_t qid, cntlid;
    uint32_t size, slots_max; /* entries; slots: one less, and one more for Connect */
    enum nvh_phase phase;
    bool is_broken; /* to be taken down, at the next tend */
    bool was_live;
    bool link_is_up; /* accepted by the peer */
    uint32_t epoch;
    uint64_t next_tend_ns, tick_ns, next_scan_ns, link_deadline_ns;
    uint64_t tries_since_ns;    /* to come up, in vain until now; 0: it does not */
    struct sw_nvme_error error; /* why it broke */
    struct nvh_auth auth;

    struct nvh_slot *slots;
    uint16_t *free_slots;
    uint64_t *order; /* room to sort slots in */
    uint32_t free_count, used;
    uint64_t number;
    uint32_t finished; /* requests, of all time */
    struct nvh_fifo pending, done;

    struct nvh_ring ring;
    struct nvh_sends sends;

    /* The port's: commands, one for each slot, which only this side's device reads; and memory for
     * the library's own commands, which the controller may read and write. */
    struct nvf_sqe *sqes;
    void *scratch;
    uint32_t scratch_key;
};

/* Makes room for requests: false where there is no memory. */
bool nvh_queue_init(struct sw_nvme_queue *queue, struct sw_nvme_controller *controller,
                    const struct nvh_port *port, uint16_t qid, uint32_t size);
void nvh_queue_clear(struct sw_nvme_queue *queue);
/* It is of no use any more: the next tend takes it down. */
void nvh_queue_break(struct sw_nvme_queue *queue, enum sw_nvme_status status, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));
/* The peer has accepted the connection. */
void nvh_link_up(struct sw_nvme_queue *queue);
/* The peer has ended it. */
void nvh_link_ended(struct sw_nvme_queue *queue);

#endif
