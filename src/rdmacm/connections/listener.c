/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/listener.h"

#include <string.h>

#include "base/log.h"
#include "device/nic/netdev.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/ports.h"

/* On RoCE's devices, if the ID is not of another one. */
static int listen_for_packets(struct sw_ucm_id *id)
{
    if (sw_ucm_is_iwarp(id) || !sw_netdev_has_kind(SW_NETDEV_ROCE))
        return 0;
    int rc = sw_cm_port_listen(id->port, sw_address_service_id(&id->src, id->port_space));
    return rc ? rc : sw_ucm_service_join(id);
}

int sw_ucm_listener_begin(struct sw_ucm_id *id, int backlog)
{
    sw_rdmacm_assert_locked();
    int rc = sw_ucm_iwarp_listen(id, backlog);
    if (!rc)
        rc = listen_for_packets(id);
    if (rc)
        sw_ucm_iwarp_forget(id);
    return rc;
}

void sw_ucm_listener_follow(struct sw_ucm_id *id, void *unused)
{
    (void)unused;
    sw_rdmacm_assert_locked();
    if (id->state != SW_UCM_LISTEN || id->dev)
        return;
    int rc = sw_ucm_iwarp_follow(id);
    if (!rc && !id->service)
        rc = listen_for_packets(id);
    if (rc)
        sw_warn("port %u is not listened on by new devices: %s", sw_address_port(&id->src),
                strerror(-rc));
}
