/* SPDX-License-Identifier: BSD-2-Clause */
/* How iWARP's queue pairs are connected: step by step, as both ends may be of one process. */
#include "part.h"

enum step { LISTEN, CALL, ANSWER, CONNECTED, STEPS };

static void take_step(struct part *part, enum step step, int conn, int side)
{
    struct vu_ep *ep = &part->eps[conn][side];
    const struct vu_conn *how = &part->attrs[conn][side].conn;
    if (step == LISTEN && side == 0)
        part->board->ports[conn] = vu_cm_listen(ep);
    else if (step == CALL && side == 1)
        vu_cm_call(ep, part->board->ports[conn], how);
    else if (step == ANSWER && side == 0)
        vu_cm_answer(ep, how);
    else if (step == CONNECTED)
        vu_cm_connected(ep);
}

void part_connect(struct part *part)
{
    for (enum step step = LISTEN; step < STEPS; step++) {
        for (int conn = 0; conn < CONNS; conn++)
            for (int side = 0; side < 2; side++)
                if (part_end(part, conn, side) && part->round.conns[conn].connect)
                    take_step(part, step, conn, side);
        part_meet(part);
    }
}
