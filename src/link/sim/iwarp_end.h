/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of an iWARP connection in the simulator: the machines of transport/iwarp/ between two
 * pipes, and the target side of a simulated queue pair (link/sim/target.h), which decides by the
 * rules of device/ as it does for RoCE.
 */
#ifndef SW_LINK_SIM_IWARP_END_H
#define SW_LINK_SIM_IWARP_END_H

#include "link/sim/host.h"
#include "link/sim/pipe.h"
#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/start.h"
#include "transport/iwarp/stream.h"

struct sw_sim_iwarp;

struct sw_sim_iwarp_config {
    struct sw_sim_host *host;
    bool is_initiator;
    bool rejects; /* responder */
    bool shares_receives;
    struct sw_iwarp_start_config start;
    uint32_t fpdu_max, access;
    sw_sim_complete_fn complete;
    /* Tests. May alter a frame of the start (`len` bytes), or write bytes that are sent before the
     * next FPDU (`len` is 0); returns how many there are then. NULL: nothing is forged. */
    uint32_t (*forge)(struct sw_sim_iwarp *end, uint8_t *bytes, uint32_t len);
    void (*ended)(struct sw_sim_iwarp *end); /* or NULL */
    void *user;
};

struct sw_sim_iwarp {
    struct sw_sim_iwarp_config config;
    struct sw_sim_world *world;
    struct sw_sim_qp *qp; /* its receives, rights and completions */
    struct sw_sim_pipe *out;
    struct sw_iwarp_start start;
    struct sw_iwarp_stream stream;
    struct sw_iwarp machine;
    struct sw_request ring[SW_SIM_SENDS];
    struct sw_sim_send sends[SW_SIM_SENDS];
    uint32_t reported;
    bool is_open; /* the machine is there */
    bool is_closing;
    bool is_over; /* nothing more is sent */
    bool is_torn; /* the peer ended within an FPDU */
    uint32_t out_len, out_at;
    uint8_t out_bytes[SW_FPDU_MAX];
    uint8_t in_bytes[SW_FPDU_MAX];
};

/* Both ends, connected by two pipes. */
void sw_sim_iwarp_connect(struct sw_sim_iwarp ends[2], const struct sw_sim_iwarp_config configs[2],
                          struct sw_sim_pipe pipes[2], const struct sw_sim_pipe_config *path);

/* false: the queue is full, or the connection is over. */
bool sw_sim_iwarp_post(struct sw_sim_iwarp *end, const struct sw_request *request, uint64_t id,
                       uint64_t local_addr);
void sw_sim_iwarp_pump(struct sw_sim_iwarp *end);
/* Sends what was begun, then ends (a move to SQD). */
void sw_sim_iwarp_close(struct sw_sim_iwarp *end);

#endif
