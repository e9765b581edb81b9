/* SPDX-License-Identifier: BSD-2-Clause */
/* The lives of a connection: which of them a packet belongs to. Called with the QP locked. */
#ifndef SW_LINK_ROCE_QP_LIFE_H
#define SW_LINK_ROCE_QP_LIFE_H

#include <stdbool.h>
#include <stdint.h>

struct sw_qp;
struct sw_roce_qp;

enum { SW_ROCE_LIVES = 6 }; /* earlier ones whose packets are dropped; 16 are told apart */

/* Which of the port's source ports the connection uses: another one in each life. */
uint8_t sw_roce_life_source(const struct sw_qp *qp);
/* Call it before the machines are made: they put the number of the life into each packet. */
void sw_roce_life_begin(struct sw_roce_qp *r);
void sw_roce_life_end(const struct sw_roce_qp *r);
/* Whether a packet of a Sidewire peer belongs to an earlier life. */
bool sw_roce_life_is_over(struct sw_roce_qp *r, uint8_t mark, uint64_t now_ns);
/* Whether it belongs to the life that the peer is in, as far as this side knows. */
bool sw_roce_life_is_peers(const struct sw_roce_qp *r, uint8_t mark);

#endif
