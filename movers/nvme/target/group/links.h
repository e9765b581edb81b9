/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections between members, as the machine numbers them. What is sent to one that is slow waits
 * in a queue with a bound; beyond that the link is lost. A caller may be a stranger: it has a
 * place for as long as the machine waits for its name, and its address a share of these places
 * (common/serve/places.h).
 */
#ifndef SW_MOVERS_NVME_GROUP_LINKS_H
#define SW_MOVERS_NVME_GROUP_LINKS_H

#include <netinet/in.h>

#include "common/rdma/connection.h"
#include "common/rdma/messages.h"
#include "common/serve/acceptor.h"
#include "common/serve/loop.h"
#include "nvme/target/group/machine.h"

enum {
    NVG_WIRES = NVG_LINKS + 32, /* some are about to end */
    NVG_STRANGERS_MAX = 24,     /* that have not said who they are */
};

struct nvg_links;

struct nvg_wire {
    struct nvg_links *links;
    uint32_t number; /* the machine's; NVG_LINKS: it is about to end */
    bool is_open, is_up, is_caller;
    struct in6_addr origin; /* of a caller */
    uint64_t since_ns;      /* the same: when it came */
    struct mover_connection connection;
    struct mover_messages messages;
    struct mover_watch watch;
    uint64_t end_ns;  /* of one that is about to end */
    uint32_t sending; /* bits: places that the device has */
    uint8_t *queue;   /* of messages that wait, each behind its length */
    size_t queue_at, queue_end, queue_size;
};

struct nvg_links {
    struct nvg_machine *machine;
    struct mover_loop *loop;
    struct mover_acceptor acceptor;
    struct nvg_wire *by_number[NVG_LINKS];
    struct nvg_wire wires[NVG_WIRES];
};

/* Listens there. 0, or a negative errno and why. */
int nvg_links_open(struct nvg_links *links, struct nvg_machine *machine, struct mover_loop *loop,
                   const char *address, const char *port, char *error, size_t error_bytes);
void nvg_links_dial(struct nvg_links *links, uint32_t number, const char *address);
void nvg_links_send(struct nvg_links *links, uint32_t number, const uint8_t *message, size_t bytes);
void nvg_links_hang_up(struct nvg_links *links, uint32_t number);
/* Ends those that had something to send, and take too long. */
void nvg_links_tick(struct nvg_links *links, uint64_t now_ns);
/* All is said: nothing waits to be sent. */
bool nvg_links_are_idle(const struct nvg_links *links);
void nvg_links_close(struct nvg_links *links);

#endif
