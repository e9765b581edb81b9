/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The semantics test: one named case for each thing a program can observe of a queue pair. A
 * case is two sides; each opens its own device and runs as a process of its own, or (semantics
 * --threads) both as threads of one process. Expected statuses are those of IBTA Vol1 ch. 9.7.5
 * to 9.9 and 10.6, as the ibv_poll_cq(3) page words them.
 */
#ifndef SW_TESTS_INTEGRITY_SEM_H
#define SW_TESTS_INTEGRITY_SEM_H

#include "verbs_util/pair.h"

struct sem_case {
    const char *name; /* function__case */
    void (*a)(int sock, int param);
    void (*b)(int sock, int param);
    int param; /* | SEM_PROCESSES: makes no sense as threads of one process; | SEM_ALONE: that, and
                  in a network of their own; | SEM_ON_WIRE: over RoCE only */
};
#define SEM_PROCESSES (1 << 24)
#define SEM_ALONE (1 << 25 | SEM_PROCESSES)
#define SEM_ON_WIRE (1 << 26)
/* Tables end with a NULL name. */
extern const struct sem_case sem_requester[], sem_flush[], sem_persist[], sem_pieces[];
extern const struct sem_case sem_errors[], sem_peers[], sem_states[], sem_queues[], sem_events[],
    sem_sleep[], sem_srqs[], sem_data[], sem_order[], sem_memory[], sem_rereg[], sem_windows[],
    sem_windows_inv[], sem_newops[], sem_cqs[], sem_objects[];
extern const struct sem_case sem_uc[], sem_xrc[], sem_xrc_shared[], sem_ud[], sem_ud_receivers[],
    sem_mcast[], sem_counters[], sem_attrs[], sem_pacing[], sem_faults[], sem_faults_ud[],
    sem_lost[], sem_parting[], sem_in_order[];

#define RIG_BYTES (256u * 1024)

/* What most cases start from: a connected QP and one region that the other side may do anything
 * with. */
struct rig {
    int sock;
    struct vu_dev dev;
    struct vu_ep ep;
    uint8_t *buf;
    struct ibv_mr *mr;
    struct vu_key peer; /* the other side's region */
};
struct rig_attr { /* zero: default */
    struct vu_ep_attr ep;
    struct vu_conn conn;
    int access; /* of the region; VU_ACCESS_ALL */
    uint8_t fill;
};
void rig_open(struct rig *rig, int sock, const struct rig_attr *attr);
/* The two steps of rig_open: up to QP in RESET and the region; then trading keys and connecting. */
void rig_prepare(struct rig *rig, int sock, const struct rig_attr *attr);
void rig_connect(struct rig *rig, const struct vu_conn *conn);
/* Trades keys and addresses, to be connected by hand; and those steps in one. */
struct vu_peer rig_trade(struct rig *rig);
void rig_rts(struct rig *rig, const struct vu_peer *peer, const struct vu_conn *conn);
/* Another QP, connected to the other side's second one. */
void rig_second(struct rig *rig, struct vu_ep *second);
void rig_close(struct rig *rig); /* QP and CQs must hold nothing of interest */

/* A request between the same offset of both regions. */
struct vu_send rig_send(struct rig *rig, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
                        uint32_t len_bytes);
void rig_recv(struct rig *rig, uint64_t wr_id, uint32_t offset, uint32_t len_bytes);
void rig_post(struct rig *rig, const struct vu_send *send);
/* `port` is "/sys/class/infiniband/DEVICE/ports/1"; `name` is below it. */
unsigned long long sem_read_counter(const char *port, const char *name);
/* The same, until it is as wanted: a process that gets no processor for half a second does not tell
 * what it has counted. What it was at last. */
unsigned long long sem_wait_counter(const char *port, const char *name, unsigned long long wanted);
#define sem_expect_counter(port, name, wanted) VU_EQ(sem_wait_counter(port, name, wanted), wanted)
/* Faults on purpose (docs/faults.md) of this process, from its first device on. */
void sem_misbehave(const char *script);
/* Whether iWARP has what this case needs: sem_iwarp.c. */
bool sem_iwarp_has(const char *name);
/* The same of a RoCE device over TCP. */
bool sem_tcp_has(const char *name);
/* All bytes of the range have this value. Over iWARP a WRITE may still be on its way, so they get
 * it soon; or have it now. */
void rig_bytes_now(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value);
void rig_bytes(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value);
/* The same of what an unreliable WRITE has brought. Over packets it is complete when it was sent,
 * and is waited for. */
void rig_written(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value);
/* Over packets: what was sent unreliably should have come by then, or never does. */
void rig_settle(void);

/* sem_flush.c: a QP of a side that flushes and admits it; a FLUSH of `key`'s range, and what
 * ibv_wr_complete() returned. */
extern const struct vu_ep_attr flush_ep;
extern const struct vu_conn flush_conn;
int rig_flush(struct rig *rig, uint64_t wr_id, const struct vu_key *key, uint8_t type,
              uint8_t level);

/* A side that is connected and does nothing until the other has done; with a second QP. */
void sem_idle(int sock, int param);
void sem_two_idle(int sock, int param);

#endif
