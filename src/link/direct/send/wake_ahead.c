/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/wake_ahead.h"

#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/peer.h"

static bool is_awaited(const struct sw_direct_qp *d, const struct sw_wqe *wqe)
{
    const uint32_t armed = atomic_load(&d->peer->pub->cqs[d->remote.recv_cq].armed);
    return sw_cq_is_armed_for(armed, wqe->flags & SW_WQE_SOLICITED);
}

void sw_wake_ahead(const struct sw_direct_qp *d, struct sw_wqe *wqe)
{
    const uint32_t left_bytes = wqe->len_bytes - wqe->done_bytes;
    if (wqe->is_announced || left_bytes < SW_WAKE_AHEAD_MIN_BYTES ||
        left_bytes > SW_WAKE_AHEAD_MAX_BYTES || !sw_wqe_takes_receive(wqe) || !is_awaited(d, wqe))
        return;
    wqe->is_announced = 1;
    sw_peer_ring_ahead(d->peer);
}
