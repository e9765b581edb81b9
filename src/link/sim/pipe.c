/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/pipe.h"

#include <string.h>

#include "base/minmax.h"

enum { PIECE_BYTES = 4096 };

void sw_sim_pipe_init(struct sw_sim_pipe *pipe, struct sw_sim_world *world,
                      const struct sw_sim_pipe_config *config, const struct sw_sim_pipe_user *user)
{
    memset(pipe, 0, sizeof(*pipe));
    pipe->world = world;
    pipe->config = *config;
    pipe->user = *user;
}

static void pipe_move_bytes(void *who, void *what);

static void plan_move(struct sw_sim_pipe *pipe)
{
    if (pipe->is_moving || pipe->is_over)
        return;
    uint64_t at_ns = pipe->world->now_ns + pipe->config.delay_ns;
    if (sw_sim_happens(pipe->world, pipe->config.stall))
        at_ns += pipe->config.stall_ns;
    pipe->is_moving = true;
    sw_sim_at(pipe->world, at_ns, pipe_move_bytes, pipe, NULL);
}

static void end_pipe(struct sw_sim_pipe *pipe)
{
    pipe->is_over = true;
    sw_sim_trace(pipe->world, "end", pipe->head, pipe->is_reset);
    pipe->user.ended(pipe->user.who, pipe->is_reset);
}

static void take_piece(struct sw_sim_pipe *pipe, uint32_t len)
{
    uint8_t piece[PIECE_BYTES];
    for (uint32_t i = 0; i < len; i++)
        piece[i] = pipe->bytes[pipe->head++ % SW_SIM_PIPE_BYTES];
    if (sw_sim_happens(pipe->world, pipe->config.flip)) {
        piece[sw_sim_below(pipe->world, len)] ^= (uint8_t)(1u << sw_sim_below(pipe->world, 8));
        pipe->flips++;
    }
    sw_sim_trace(pipe->world, "piece", pipe->head, len);
    pipe->user.received(pipe->user.who, piece, len);
}

static void pipe_move_bytes(void *who, void *what)
{
    struct sw_sim_pipe *pipe = who;
    (void)what;
    pipe->is_moving = false;
    if (pipe->is_over)
        return;
    const uint32_t there = (uint32_t)(pipe->tail - pipe->head);
    if (pipe->is_reset || (there == 0 && pipe->is_closed)) {
        end_pipe(pipe);
        return;
    }
    if (there) {
        const uint32_t most = sw_min_u32(there, sw_min_u32(pipe->config.piece_max, PIECE_BYTES));
        take_piece(pipe, 1 + sw_sim_below(pipe->world, most));
        pipe->user.writable(pipe->user.sender);
    }
    if (pipe->tail != pipe->head || pipe->is_closed)
        plan_move(pipe);
}

uint32_t sw_sim_pipe_write(struct sw_sim_pipe *pipe, const uint8_t *bytes, uint32_t len)
{
    const uint32_t there = (uint32_t)(pipe->tail - pipe->head);
    const uint32_t count = sw_min_u32(len, pipe->config.room_bytes - there);
    if (pipe->is_closed || pipe->is_reset)
        return len; /* as a kernel that has not told yet */
    for (uint32_t i = 0; i < count; i++)
        pipe->bytes[pipe->tail++ % SW_SIM_PIPE_BYTES] = bytes[i];
    if (count)
        plan_move(pipe);
    return count;
}

void sw_sim_pipe_close(struct sw_sim_pipe *pipe)
{
    pipe->is_closed = true;
    plan_move(pipe);
}

void sw_sim_pipe_reset(struct sw_sim_pipe *pipe)
{
    pipe->is_reset = true;
    plan_move(pipe);
}
