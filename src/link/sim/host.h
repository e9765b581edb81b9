/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host of the simulator: memory, keys, and queue pairs. Each is made of the machines in
 * transport/ and of a queue pair of device/, which has its receives and rights. A callback tells
 * what a program would see.
 */
#ifndef SW_LINK_SIM_HOST_H
#define SW_LINK_SIM_HOST_H

#include "link/sim/device.h"
#include "link/sim/net.h"
#include "transport/requester.h"
#include "transport/responder.h"

#define SW_SIM_SENDS 64u
#define SW_SIM_RECEIVES 64u
#define SW_SIM_QPS_MAX 1024u
#define SW_SIM_WINDOWS_MAX 16u

struct sw_sim_receive {
    uint64_t id;
    uint64_t addr;
    uint32_t len_bytes;
    uint32_t cut_bytes; /* so many of them are an element of their own; 0: there is one element */
    uint32_t lkey;      /* 0: that of all of the host's memory */
};

/* What a program is told. */
struct sw_sim_completion {
    bool is_receive;
    uint64_t id;
    enum ibv_wc_status status;
    uint32_t byte_len;
    uint32_t imm;
    bool has_imm;
    uint64_t original; /* of an atomic */
};

struct sw_sim_qp;
typedef void (*sw_sim_complete_fn)(struct sw_sim_qp *qp, const struct sw_sim_completion *wc);

struct sw_sim_send {
    uint64_t id;
    uint64_t addr; /* of the local data */
    uint64_t original;
};

struct sw_sim_qp {
    struct sw_sim_host *host;
    uint32_t qpn, peer_host;
    bool dead;
    struct sw_qp *device;      /* its receives, rights and their completions */
    struct sw_receive receive; /* of the message that is coming in */
    sw_sim_complete_fn complete;
    void *user;
    struct sw_requester requester;
    struct sw_responder responder;
    struct sw_request ring[SW_SIM_SENDS];
    struct sw_sim_send sends[SW_SIM_SENDS];
    uint32_t reported; /* sends whose completion was told */
};

struct sw_sim_host {
    struct sw_sim_net *net;
    uint32_t number;
    uint8_t *memory; /* at address `base` */
    uint64_t base, len_bytes;
    struct sw_pd *pd;
    struct sw_sim_keys keys;
    struct sw_mr *mrs[SW_SIM_KEYS_MAX]; /* the first is all of its memory */
    struct sw_mw *windows[SW_SIM_WINDOWS_MAX];
    uint32_t mr_count, window_count;
    struct sw_srq *srq; /* of its queue pairs that share receives; NULL: none does */
    struct sw_sim_qp **qps;
    uint32_t qp_count, turn;
    struct sw_early_slot *slots;
    struct sw_early_copy *copies;
    struct sw_early_pool pool;
    struct sw_icrc_flow *flows; /* to each other host */
    struct sw_icrc_rewind *rewind;
    uint64_t wake_ns; /* the earliest wake-up asked for */
    uint64_t bad_packets;
    uint64_t bad_failures; /* of QPs that waited for nothing: a machine is wrong */
};

struct sw_sim_host_config {
    uint32_t number;
    uint64_t len_bytes; /* of memory */
    uint32_t early_slots;
};

void sw_sim_host_init(struct sw_sim_host *host, struct sw_sim_net *net,
                      const struct sw_sim_host_config *config);
void sw_sim_host_fini(struct sw_sim_host *host);

/* Registers [addr, addr+len); the key. */
uint32_t sw_sim_host_register(struct sw_sim_host *host, uint64_t addr, uint64_t len_bytes,
                              uint32_t access);
/* The key of all of its memory, for itself alone. */
uint32_t sw_sim_host_key(const struct sw_sim_host *host);
static inline uint8_t *sw_sim_host_at(const struct sw_sim_host *host, uint64_t addr)
{
    return host->memory + (addr - host->base);
}

struct sw_sim_qp_config {
    struct sw_requester_config requester;
    struct sw_responder_config responder;
    uint32_t peer_host;
    uint32_t access;
    bool shares_receives; /* with the others of the host that do */
    sw_sim_complete_fn complete;
    void *user;
};
/* The QPN a host's next QP will have. */
uint32_t sw_sim_host_next_qpn(const struct sw_sim_host *host);
struct sw_sim_qp *sw_sim_qp_create(struct sw_sim_host *host, const struct sw_sim_qp_config *config);

/* false: the queue is full. */
bool sw_sim_post_send(struct sw_sim_qp *qp, const struct sw_request *request, uint64_t id,
                      uint64_t local_addr);
bool sw_sim_post_receive(struct sw_sim_qp *qp, const struct sw_sim_receive *receive);
/* Receives that are posted and that no message has taken. */
uint32_t sw_sim_receive_count(const struct sw_sim_qp *qp);
/* A window of its host's memory that the QP's peer may use; the key. */
uint32_t sw_sim_bind_window(struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                            uint32_t access);

/* Takes a packet from the net. */
void sw_sim_host_receive(struct sw_sim_host *host, const struct sw_sim_packet *packet);
/* Sends what may be sent. */
void sw_sim_host_pump(struct sw_sim_host *host);

#endif
