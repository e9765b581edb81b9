/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A FLUSH that takes its time: a poll does not wait for it. Requests behind it do, so nothing is
 * read meanwhile, and those that have been read already are kept.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/serve/demand.h"
#include "link/engine.h"
#include "link/iwarp/connection.h"

enum sw_verdict sw_iwarp_serve_flush(struct sw_iwarp_connection *c, const struct sw_demand *demand,
                                     const struct sw_inbound *message)
{
    struct sw_iwarp_parking *parking = &c->parking;
    const struct sw_target_flush flush = sw_demand_flush(demand);
    enum sw_verdict verdict = SW_ACK;
    parking->is_parked = !sw_execute_flush(c->qp, message, flush, &parking->flushing, &verdict);
    if (parking->is_parked && demand != &parking->demand)
        parking->demand = *demand;
    return verdict;
}

int sw_iwarp_park(struct sw_iwarp_connection *c, const struct sw_iwarp_fpdu *fpdu,
                  const uint8_t *bytes, size_t len)
{
    struct sw_iwarp_parking *parking = &c->parking;
    memcpy(parking->ulpdu, fpdu->ulpdu, sizeof(parking->ulpdu)); /* it has exactly so many */
    sw_iwarp_keep(&c->machine, parking->ulpdu);
    if (len) {
        parking->kept = malloc(len);
        if (!parking->kept)
            return -ENOMEM;
        memcpy(parking->kept, bytes, len);
    }
    parking->kept_len = len;
    atomic_store(&c->qp->rx_pending, true);
    sw_qp_rest(c->qp, false);
    sw_engine_nudge();
    return 0;
}

enum sw_iwarp_life sw_iwarp_unpark(struct sw_iwarp_connection *c, bool *moved)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_iwarp_parking *parking = &c->parking;
    enum sw_iwarp_life life = SW_IWARP_ALIVE;
    sw_iwarp_carry_out(c, &parking->demand);
    if (parking->is_parked)
        return SW_IWARP_ALIVE;
    uint8_t *kept = parking->kept;
    *moved = true;
    parking->kept = NULL;
    if (kept)
        life = sw_iwarp_take_bytes(c, kept, parking->kept_len);
    free(kept);
    return life;
}

void sw_iwarp_drop_parking(struct sw_iwarp_connection *c)
{
    sw_flushing_drop(&c->parking.flushing);
    free(c->parking.kept);
    c->parking.kept = NULL;
    c->parking.is_parked = false;
}
