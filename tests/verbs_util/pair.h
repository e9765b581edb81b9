/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two sides of a verbs test, each its own process (or a thread of one process, to test loopback
 * within a process), joined by a SEQPACKET socket over which they trade QP numbers, keys and
 * barriers.
 *
 * Uses only the public verbs API, so the same tests run on any RDMA device: VU_DEVICE names it
 * (default: "sw_lo" or "iw_lo", else the first), VU_GID its GID index (default: the first RoCE v2
 * entry with an IPv4 address, else the first valid one). VU_HOSTS="one,other" puts the sides into
 * network namespaces of these names, on the devices of interfaces of these names. Every function
 * fails the test (check.h) where it does not return a status.
 */
#ifndef SW_TESTS_VERBS_UTIL_PAIR_H
#define SW_TESTS_VERBS_UTIL_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "verbs_util/check.h"

/* --- sides --- */

typedef void (*vu_side_fn)(int sock, void *arg);
enum vu_mode { VU_PROCESSES, VU_THREADS };

/* Runs both sides and waits; they are killed after `timeout_s`. Returns 0, 1 (a side failed, died
 * or hung) or VU_SKIPPED. `arg` is shared in thread mode and copied in process mode. No device may
 * be open in the caller. */
int vu_run_pair(enum vu_mode mode, vu_side_fn a, vu_side_fn b, void *arg, int timeout_s);
/* The whole of a program whose sides take a struct vu_seeded: two processes, and the options --seed
 * and --seconds. Returns its exit status. */
struct vu_seeded {
    uint64_t seed;
    int seconds;
};
int vu_seeded_pair(const char *name, int argc, char **argv, vu_side_fn a, vu_side_fn b);
/* Goes to the first or second host of VU_HOSTS; nothing where that is not set. */
void vu_enter_host(bool is_a);
/* Forks a child that runs `fn` and exits 0. */
pid_t vu_spawn(vu_side_fn fn, int sock, void *arg);
/* Waits for a child; returns its exit status, 128 + signal if killed, or -1 after killing it at the
 * deadline. */
int vu_reap(pid_t pid, int timeout_s);
/* Stops a process; returns when all of its threads stand still. */
void vu_stop(pid_t pid);
void vu_socketpair(int socks[2]);

void vu_put(int sock, const void *buf, size_t len_bytes);
void vu_get(int sock, void *buf, size_t len_bytes); /* fails at EOF or after 20 s */
/* For sides that outlive the other: false at EOF, a broken pipe or the deadline. */
bool vu_try_put(int sock, const void *buf, size_t len_bytes);
bool vu_try_get(int sock, void *buf, size_t len_bytes, unsigned int timeout_ms);
/* Hands a descriptor to another process (our copy stays open) / takes one; -1 at EOF. */
void vu_put_fd(int sock, int fd);
int vu_get_fd(int sock);
/* Both sides have come here. */
void vu_barrier(int sock);

/* --- device --- */

struct vu_dev {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    enum ibv_mtu mtu;
    int gid_index;
    union ibv_gid gid;
};
void vu_dev_open(struct vu_dev *dev); /* skips the test where there is no device */
void vu_dev_close(struct vu_dev *dev);
bool vu_is_iwarp(const struct vu_dev *dev);

/* --- queue pairs --- */

struct vu_ep_attr {              /* zero: default */
    uint32_t send_wr, recv_wr;   /* 64 */
    uint32_t send_sge, recv_sge; /* 4 */
    uint32_t inline_bytes;       /* 0 */
    int cqe;                     /* 256, each CQ */
    enum ibv_qp_type type;       /* IBV_QPT_RC; or IBV_QPT_UC, and so on */
    bool sig_all;
    bool channel;      /* both CQs report to ep.channel */
    bool extended;     /* ibv_create_qp_ex with the send builders */
    uint64_t send_ops; /* extended: these beside those that any device has */
    struct ibv_srq *srq;
    struct ibv_cq *send_cq, *recv_cq; /* shared with others instead of own ones */
};

/* The connection of an iWARP device's queue pair. */
struct vu_cm {
    struct rdma_event_channel *events; /* NULL: not connected */
    struct rdma_cm_id *listener, *id;
    struct vu_ep *other; /* of vu_cm_connect_here() */
};

struct vu_ep {
    struct vu_dev *dev;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    bool own_scq, own_rcq;
    struct ibv_qp *qp;
    uint32_t send_wr, recv_wr, inline_bytes; /* granted */
    struct vu_cm cm;
};
void vu_ep_create(struct vu_dev *dev, const struct vu_ep_attr *attr, struct vu_ep *ep);
void vu_ep_destroy(struct vu_ep *ep);

struct vu_peer {
    uint32_t qpn;
    union ibv_gid gid;
};
struct vu_peer vu_ep_self(const struct vu_ep *ep);

#define VU_ACCESS_REMOTE \
    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define VU_ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | VU_ACCESS_REMOTE)

struct vu_conn {
    int access; /* the QP's rights */
    uint8_t rd_atomic, dest_rd_atomic;
    uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
};
/* All rights, depth 8, 67 ms x 8 tries, RNR 0.64 ms for ever. */
extern const struct vu_conn vu_conn_default;

void vu_ep_init(struct vu_ep *ep, const struct vu_conn *conn);
void vu_ep_rtr(struct vu_ep *ep, const struct vu_peer *peer, const struct vu_conn *conn);
void vu_ep_rts(struct vu_ep *ep, const struct vu_conn *conn);
void vu_ep_to(struct vu_ep *ep, enum ibv_qp_state state); /* RESET or ERR */
enum ibv_qp_state vu_ep_state(const struct vu_ep *ep);
/* Trades addresses and goes RESET -> INIT -> RTR -> RTS; when it returns both sides may send. conn
 * NULL: default. */
void vu_connect(struct vu_ep *ep, int sock, const struct vu_conn *conn);
/* To itself; or, where that cannot be (iWARP), to another queue pair that is made for that. */
void vu_connect_here(struct vu_ep *ep);
/* cm.c: the part of it from INIT on where only rdma_cm connects, which is told the queue pair's
 * number. Ends what was connected before. */
void vu_cm_connect(struct vu_ep *ep, int sock, const struct vu_conn *conn);
/* To another queue pair of this process, which is made for that. */
void vu_cm_connect_here(struct vu_ep *ep);
/* The same in steps, where one process has many ends: one end listens, and says where; the other
 * one calls; the first one answers; both are connected. */
uint16_t vu_cm_listen(struct vu_ep *ep);
void vu_cm_call(struct vu_ep *ep, uint16_t port, const struct vu_conn *conn);
void vu_cm_answer(struct vu_ep *ep, const struct vu_conn *conn);
void vu_cm_connected(struct vu_ep *ep);
void vu_cm_end(struct vu_cm *cm);

/* --- memory --- */

struct vu_key {
    uint64_t addr, len_bytes;
    uint32_t rkey;
};
struct ibv_mr *vu_reg(struct vu_dev *dev, void *addr, size_t len_bytes, int access);
/* Gives our key to the other side and returns its. */
struct vu_key vu_trade_keys(int sock, const struct ibv_mr *mr);

/* --- work --- */

/* One request with at most one element. Returns what ibv_post_send returned. */
struct vu_send {
    enum ibv_wr_opcode opcode;
    uint64_t wr_id;
    unsigned int flags;
    void *addr; /* len_bytes 0 with addr NULL: no element */
    uint32_t len_bytes, lkey;
    uint64_t remote;
    uint32_t rkey;
    uint32_t imm; /* host order; the rkey to invalidate for SEND_WITH_INV */
    uint64_t compare_add, swap;
};
int vu_post_send(struct ibv_qp *qp, const struct vu_send *send);
int vu_post_recv(struct ibv_qp *qp, uint64_t wr_id, void *addr, uint32_t len_bytes, uint32_t lkey);
int vu_post_srq(struct ibv_srq *srq, uint64_t wr_id, void *addr, uint32_t len_bytes, uint32_t lkey);

/* Polls until n completions or the deadline; returns how many. */
int vu_poll(struct ibv_cq *cq, struct ibv_wc *wc, int n, unsigned int timeout_ms);
/* The next completion must have this wr_id and status, within 5 s. Where a refusal is wanted, iWARP
 * has another one, or success: it is told by the end of the connection, which is waited for. */
struct ibv_wc vu_expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
                           enum ibv_wc_status status);
#define vu_expect(cq, wr_id, status) vu_expect_at(__FILE__, __LINE__, cq, wr_id, status)
/* No completion comes for so long. */
void vu_expect_none_at(const char *file, int line, struct ibv_cq *cq, unsigned int ms);
#define vu_expect_none(cq, ms) vu_expect_none_at(__FILE__, __LINE__, cq, ms)

/* Waits for an asynchronous event of this type on the context (others are acknowledged and
 * dropped). */
bool vu_async_event(struct ibv_context *ctx, enum ibv_event_type type, unsigned int timeout_ms);
/* Waits for a completion event on the channel, acknowledges it; false at the deadline. */
bool vu_cq_event(struct ibv_comp_channel *channel, unsigned int timeout_ms);

#endif
