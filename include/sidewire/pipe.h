/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small messages between two processes, of one host or of two: docs/pipe.md has the protocol.
 *
 * Each side has a ring of memory, and the other writes its messages there by one-sided RDMA. A
 * reader polls its own memory for a bounded time, and then sleeps; only then the sender rings a
 * doorbell. So a message costs neither side a completion.
 *
 * One thread may use a pipe at a time. There are no hidden threads. Deadlines are CLOCK_MONOTONIC
 * in nanoseconds: sw_xfer_deadline_ms(). Outputs are set where the status is SW_XFER_OK, and only
 * there.
 */
#ifndef SIDEWIRE_PIPE_H
#define SIDEWIRE_PIPE_H

#include "sidewire/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SW_PIPE_MESSAGE_MAX = 4096, /* bytes of a message; 0 is the least */
    SW_PIPE_TOKEN_BYTES = 16,
};

struct sw_pipe;
struct sw_pipe_listener;

/* At an address of an RDMA device; `port` NULL is a free one. */
SW_XFER_PUBLIC enum sw_xfer_status sw_pipe_listen(const char *address, const char *port,
                                                  struct sw_xfer_error *error,
                                                  struct sw_pipe_listener **listener);
SW_XFER_PUBLIC uint16_t sw_pipe_listener_port(const struct sw_pipe_listener *listener);
/* In a child of fork() it leaves the parent's listener alone. */
SW_XFER_PUBLIC void sw_pipe_listener_close(struct sw_pipe_listener *listener);
/* The next pipe of a peer that says the same token, which both have agreed on. Others are
 * refused. */
SW_XFER_PUBLIC enum sw_xfer_status sw_pipe_accept(struct sw_pipe_listener *listener,
                                                  const uint8_t token[SW_PIPE_TOKEN_BYTES],
                                                  uint64_t deadline_ns, struct sw_xfer_error *error,
                                                  struct sw_pipe **pipe);
SW_XFER_PUBLIC enum sw_xfer_status
sw_pipe_connect(const char *address, const char *port, const uint8_t token[SW_PIPE_TOKEN_BYTES],
                uint64_t deadline_ns, struct sw_xfer_error *error, struct sw_pipe **pipe);

struct sw_pipe_part {
    const void *data;
    size_t bytes;
};

/* The parts one behind the other as one message, copied when this returns; it is on its way then.
 * TIMEOUT: the peer's ring was full until the deadline, and nothing was sent. */
SW_XFER_PUBLIC enum sw_xfer_status sw_pipe_send(struct sw_pipe *pipe,
                                                const struct sw_pipe_part *parts, unsigned count,
                                                uint64_t deadline_ns);
/* The next message. Messages that came before the peer ended are received; then PEER_GONE. INVALID:
 * it is longer than `capacity`, and stays. A deadline of 0 never waits and makes no system call. */
SW_XFER_PUBLIC enum sw_xfer_status sw_pipe_receive(struct sw_pipe *pipe, void *data,
                                                   size_t capacity, uint64_t deadline_ns,
                                                   size_t *bytes);
/* How long waits poll before they sleep; 50 us unless this says otherwise. */
SW_XFER_PUBLIC void sw_pipe_set_spin(struct sw_pipe *pipe, uint32_t spin_us);
/* How often a wait of this pipe has slept. */
SW_XFER_PUBLIC uint64_t sw_pipe_sleeps(const struct sw_pipe *pipe);
/* Until all that was sent is in the peer's memory. */
SW_XFER_PUBLIC enum sw_xfer_status sw_pipe_flush(struct sw_pipe *pipe, uint64_t deadline_ns);
/* Ends it; what was not flushed may be lost. In a child of fork() it leaves the parent's alone. */
SW_XFER_PUBLIC void sw_pipe_close(struct sw_pipe *pipe);

#ifdef __cplusplus
}
#endif

#endif
