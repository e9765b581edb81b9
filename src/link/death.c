/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/death.h"

#include <stddef.h>

static bool (*tell_loss)(const struct sw_qp *qp);
static bool (*loss_is_heard)(void);
static bool (*tell_process)(const struct in6_addr *address, uint32_t slot);

void sw_death_on_loss(bool (*tell)(const struct sw_qp *qp), bool (*is_heard)(void))
{
    tell_loss = tell;
    loss_is_heard = is_heard;
}

bool sw_death_is_heard(void)
{
    return loss_is_heard && loss_is_heard();
}

bool sw_death_tell(const struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    return tell_loss && tell_loss(qp);
}

void sw_death_on_process(bool (*tell)(const struct in6_addr *address, uint32_t slot))
{
    tell_process = tell;
}

void sw_death_tell_process(const struct in6_addr *address, uint32_t slot)
{
    if (tell_process)
        tell_process(address, slot);
}
