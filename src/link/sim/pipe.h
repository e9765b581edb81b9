/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a TCP connection in virtual time: bytes come in order, cut and joined as it
 * happens, stall, and are damaged where that is asked for. It may end by a half close or a reset.
 */
#ifndef SW_LINK_SIM_PIPE_H
#define SW_LINK_SIM_PIPE_H

#include "link/sim/world.h"

enum { SW_SIM_PIPE_BYTES = 32768 };

struct sw_sim_pipe_config {
    uint32_t room_bytes; /* sent and not received yet, at most; up to SW_SIM_PIPE_BYTES */
    uint32_t piece_max;  /* bytes received at once */
    uint64_t delay_ns;
    uint32_t stall, flip; /* sw_sim_happens(), for each piece */
    uint64_t stall_ns;
};

/* The receiver and the sender. */
struct sw_sim_pipe_user {
    void *who;
    void (*received)(void *who, const uint8_t *bytes, uint32_t len);
    void (*ended)(void *who, bool is_reset);
    void *sender;
    void (*writable)(void *sender);
};

struct sw_sim_pipe {
    struct sw_sim_world *world;
    struct sw_sim_pipe_config config;
    struct sw_sim_pipe_user user;
    uint64_t head, tail; /* bytes received, and sent */
    bool is_moving, is_closed, is_over, is_reset;
    uint64_t flips;
    uint8_t bytes[SW_SIM_PIPE_BYTES];
};

void sw_sim_pipe_init(struct sw_sim_pipe *pipe, struct sw_sim_world *world,
                      const struct sw_sim_pipe_config *config, const struct sw_sim_pipe_user *user);
/* How many of the bytes there was room for. */
uint32_t sw_sim_pipe_write(struct sw_sim_pipe *pipe, const uint8_t *bytes, uint32_t len);
/* Nothing more is sent; what was sent still comes. */
void sw_sim_pipe_close(struct sw_sim_pipe *pipe);
/* Nothing more comes. */
void sw_sim_pipe_reset(struct sw_sim_pipe *pipe);

#endif
