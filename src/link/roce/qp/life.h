/* SPDX-License-Identifier: BSD-2-Clause */
/* Of which life of a connection packets are. With the QP locked. */
#ifndef SW_LINK_ROCE_QP_LIFE_H
#define SW_LINK_ROCE_QP_LIFE_H

#include <stdbool.h>
#include <stdint.h>

struct sw_qp;
struct sw_roce_qp;

enum { SW_ROCE_LIVES = 6 }; /* former ones, whose packets are dropped: of 16 that are told apart */

/* Which of the port's senders the connection uses: another one each time. */
uint8_t sw_roce_life_source(const struct sw_qp *qp);
/* Before the machines are made, which number what they send by it. */
void sw_roce_life_begin(struct sw_roce_qp *r);
void sw_roce_life_end(const struct sw_roce_qp *r);
/* Whether a packet is of a life before, of a Sidewire peer. */
bool sw_roce_life_is_over(struct sw_roce_qp *r, uint8_t mark, uint64_t now_ns);
/* Whether it is of the life that the peer is in, as far as it was heard of. */
bool sw_roce_life_is_peers(const struct sw_roce_qp *r, uint8_t mark);

#endif
