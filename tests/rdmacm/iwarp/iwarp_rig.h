/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection management on iWARP devices: commands as a program of librdmacm gives them, on one
 * channel, and queue pairs by verbs.
 */
#ifndef RDMACM_IWARP_RIG_H
#define RDMACM_IWARP_RIG_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "../rig.h"

#define START_BYTES 20 /* of MPA's frames, without private data */

extern int fd; /* the channel */
int open_channel(void **state);
int close_channel(void **state);

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

struct ibv_context *open_device(const char *name);
void open_end(struct end *end, const char *device); /* a queue pair in INIT */
void close_end(struct end *end);
enum ibv_qp_state state_of(const struct end *end, struct ibv_qp_attr *attr);

struct rdma_ucm_conn_param param_of(const struct end *end, const void *data, uint8_t len);
int connect_id(uint32_t id, const struct end *end, const void *data, uint8_t len);
int accept_id(uint32_t id, const struct end *end, const void *data, uint8_t len);
uint32_t resolved_id(const char *host, uint16_t port);
void destroy_ids(const uint32_t *ids, int count);
void is_quiet(void); /* no event comes */

struct connection {
    uint32_t listener, from, to;
    struct end active, passive;
};

/* Connects this process with itself; the listener is there. */
void make_connection(struct connection *c, const char *host, const char *device);
void end_connection(struct connection *c);

/* Peers that are TCP sockets. */
void read_whole(int peer, uint8_t *bytes, size_t len);
void send_start(int peer, const char *key, uint8_t flags, uint8_t revision, const uint8_t *data,
                uint16_t len);
int tcp_connect(uint16_t port);

/* A listener that a TCP socket asks, and its event. */
struct asking {
    uint32_t listener;
    int peer;
    struct rdma_ucm_event_resp event;
};
void begin_asking(struct asking *asking, uint8_t flags, uint8_t revision, const uint8_t *data,
                  uint16_t len);
void end_asking(struct asking *asking);

#endif
