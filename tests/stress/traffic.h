/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traffic of every kind over one QP until something goes wrong, for tests in which a side dies,
 * stops or takes its memory away. Every byte that a side sends, writes or leaves to be read is its
 * `mark`, so a byte of any other origin is seen at once.
 */
#ifndef SW_TESTS_INTEGRITY_TRAFFIC_H
#define SW_TESTS_INTEGRITY_TRAFFIC_H

#include "verbs_util/pair.h"

#define TRAFFIC_BYTES (136u * 1024) /* a side's region */
#define TRAFFIC_GUARD 8000u         /* bytes around it that nobody may touch */
#define TRAFFIC_SEND_MAX 20000u
#define TRAFFIC_RECVS 12
#define TRAFFIC_WINDOW 8 /* requests on the way */

/*
 * A side's memory: guard | window that the other side writes | window it reads, with our mark |
 * receive slots | where READs arrive | guard. The region begins and ends at odd addresses, so its
 * edge pages are shared with the guards.
 */
struct traffic {
    struct vu_dev *dev;
    struct vu_ep ep;
    uint8_t *block, *base; /* base: the region */
    struct ibv_mr *mr;
    struct vu_key peer;
    uint8_t mark, peer_mark;
    struct vu_random random;
    unsigned int outstanding, posted;
    uint64_t completed;
    uint8_t retries;           /* 7 */
    enum ibv_wc_status failed; /* the first error seen; IBV_WC_SUCCESS: none */
};

/* Memory and QP in RESET. The memory may be kept over several connections. */
void traffic_memory(struct traffic *traffic, struct vu_dev *dev, uint8_t mark);
/* Trades and connects with this local ACK timeout (IBV_QP_TIMEOUT); false when the other
 * side went away meanwhile (the QP is then destroyed). */
bool traffic_connect(struct traffic *traffic, int sock, uint64_t seed, uint8_t timeout);
/* Posts some requests if there is room, polls, checks what has come. False once an error completion
 * was seen. */
bool traffic_step(struct traffic *traffic, bool initiate);
/* Destroys the QP and checks all memory. */
void traffic_disconnect(struct traffic *traffic);
void traffic_release(struct traffic *traffic);

#endif
