/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/ece.h"

#include <errno.h>

#include "device/queue/qp_impl.h"
#include "device/rules/device_limits.h"

uint32_t sw_ece_offer(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        return SW_ECE_SELECTIVE_REPEAT;
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
        break;
    }
    return 0; /* nothing is repeated */
}

uint32_t sw_ece_query(struct sw_qp *qp)
{
    sw_lock_acquire(&qp->lock);
    uint32_t options = qp->ece_is_set ? qp->ece_options : sw_ece_offer(qp->type);
    sw_lock_release(&qp->lock);
    return options;
}

int sw_ece_set(struct sw_qp *qp, uint32_t vendor_id, uint32_t *options)
{
    sw_lock_acquire(&qp->lock);
    bool in_time = !qp->orphan && (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT);
    if (in_time) {
        qp->ece_is_set = true;
        qp->ece_options = vendor_id == SW_VENDOR_ID ? *options & sw_ece_offer(qp->type) : 0;
        *options = qp->ece_options;
    }
    sw_lock_release(&qp->lock);
    return in_time ? 0 : -EINVAL;
}
