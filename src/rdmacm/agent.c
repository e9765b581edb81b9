/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/agent.h"

#include <errno.h>
#include <stddef.h>

#include "device/nic.h"
#include "link/link.h"

pthread_mutex_t sw_rdmacm_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct sw_agent_user *user;

int sw_agent_open(const struct sw_agent_user *the_user)
{
    sw_link_init();
    int rc = sw_nic_start();
    if (!rc)
        user = the_user;
    return rc;
}

uint32_t sw_agent_slot(void)
{
    return sw_nic.slot;
}

void sw_agent_send(const struct sw_cm_path *path, const uint8_t mad[SW_AGENT_MAD_BYTES])
{
    (void)path;
    (void)mad;
}

void sw_agent_plan(uint64_t due_ns)
{
    (void)due_ns;
}

int sw_agent_reaches(const struct sw_cm_path *path)
{
    (void)path;
    return user ? 0 : -ENETUNREACH;
}
