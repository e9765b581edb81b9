/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets out: those of one flow and size leave in one message (tx.c). */
#ifndef SW_LINK_ROCE_PORT_TX_H
#define SW_LINK_ROCE_PORT_TX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct sw_batch;
struct sw_port;
struct sw_roce_path;

/* A packet to be sent: its headers from the BTH on, then the payload. Pad and ICRC are added. */
struct sw_outgoing {
    const struct sw_roce_path *path;
    const uint8_t *header;
    uint32_t header_bytes;
    const struct iovec *pieces; /* the payload */
    uint32_t piece_count;
    uint32_t payload_bytes;
    bool begins_message;  /* it shares none with what was added before it, unless it is joined */
    bool joins;           /* into one packet with others, if the last one is such (wire/joint.h), */
    uint32_t joint_bytes; /* or, not 0, if one of so many bytes fits into its message: begins it */
    bool pairs;           /* rather with one packet before it, if that is alone in its message */
    uint32_t damage;      /* a bit that is turned once it is sealed, + 1; 0: none */
};
#define SW_PACKET_PAYLOAD_MAX 4096u

/* A batch to fill, locked: for a QP that is locked, and briefly. */
struct sw_batch *sw_batch_open(struct sw_port *port);
/* Copies a packet to it. Sends what is in it, if there was no room. */
void sw_batch_add(struct sw_batch *batch, const struct sw_outgoing *packet);
/* A message that is added until the next flush leaves as soon as it fills a long message: nothing
 * else is on its way to the peer, which would wait while more is copied. */
void sw_batch_hurry(struct sw_batch *batch);
/* Sends all that was added. Returns false if there was no room for some for so long that they were
 * dropped. */
bool sw_batch_flush(struct sw_batch *batch);
void sw_batch_close(struct sw_batch *batch); /* flushes, unless the thread gathers */
/* Until sw_batch_gather_end() all that this thread adds goes to one batch, for whatever queue
 * pairs, which may be locked one after the other: nobody that has one locked waits for it. Packets
 * of one flow and size then share messages. With rx_lock held. */
void sw_batch_gather(struct sw_port *port);
void sw_batch_gather_flush(void);
/* A number, not 0, that changes each time that what was gathered has left; any thread. */
uint64_t sw_batch_gather_turn(void);
/* Whether what is added to the batch leaves later only. */
bool sw_batch_gathers(const struct sw_batch *batch);
void sw_batch_gather_end(void);
/* In a forked child: what other threads had begun is their parent's. */
void sw_batch_fork_child(void);

#endif
