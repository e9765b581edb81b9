/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes joined by RC queue pairs, through the public verbs interface only. The parent is
 * the initiator, the child the target; a socket pair carries what they must tell each other. Any
 * failure ends the process with a message: these are measuring programs.
 */
#ifndef BENCH_ENDPOINT_H
#define BENCH_ENDPOINT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_LANES_MAX 1024
#define BENCH_DEPTH 256 /* send queue entries of each lane, unless its shape says otherwise */

/* A queue pair and where its completions go. */
struct bench_lane {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

struct bench_shape {
    int lanes;
    uint32_t depth;    /* send queue entries of each; 0: BENCH_DEPTH */
    uint32_t receives; /* receive queue entries of each; 0: one */
    bool one_cq;       /* all lanes share a completion queue; else each has its own */
    bool has_events;   /* bench_lane_sleep() */
    bool largest_mtu;  /* the path MTU is the port's; else 1024 */
};

struct bench_endpoint {
    struct ibv_context *context;
    struct ibv_comp_channel *channel; /* or NULL */
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct bench_lane lanes[BENCH_LANES_MAX];
    struct bench_shape shape;
    enum ibv_mtu mtu;
    uint8_t gid_index;
    bool is_armed;  /* bench_lane_sleep() has armed and not slept yet */
    bool inline_ok; /* short WRITEs may be posted inline */
    /* The other side's region. */
    uint64_t remote_addr;
    uint32_t remote_key;
};

/* Forks. Returns the socket to the other side; *peer is the child in the parent and 0 in the child.
 * The child dies with the parent. */
int bench_pair(pid_t *peer);
/* The same for processes that were started apart, over TCP: a target that listens on any address,
 * an initiator that connects to an IPv4 address. */
int bench_listen(uint16_t port);
int bench_connect(const char *address, uint16_t port);
void bench_send(int socket, const void *data, size_t len_bytes);
/* False when the other side has closed. */
bool bench_receive(int socket, void *data, size_t len_bytes);
/* Whether the other side has closed; does not wait. */
bool bench_has_closed(int socket);

/* Opens `device` (NULL: the first one whose name starts with "sw_", else the first), registers the
 * memory for everything, creates the lanes and joins them to the other side's. Both sides call it
 * with the same shape. */
void bench_endpoint_join(struct bench_endpoint *endpoint, const char *device,
                         const struct bench_shape *shape, void *memory, size_t len_bytes,
                         int socket);
void bench_endpoint_close(struct bench_endpoint *endpoint);

/* Polls until `count` completions have come; a failed one ends the process. */
void bench_lane_wait(struct bench_lane *lane, unsigned int count);
/* Posts a receive of `len_bytes` at that offset of the memory. */
void bench_lane_receive(struct bench_endpoint *endpoint, int lane, uint64_t id, size_t offset,
                        uint32_t len_bytes);
/* Sleeps until the lane has completions, unless it has some already. False: the other side has
 * closed `socket`. */
bool bench_lane_sleep(struct bench_endpoint *endpoint, int lane, int socket);

void bench_pin(int cpu); /* negative: leave it alone */
uint64_t bench_now_ns(void);
__attribute__((noreturn, format(printf, 1, 2))) void bench_die(const char *format, ...);

#endif
