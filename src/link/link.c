/* SPDX-License-Identifier: BSD-2-Clause */
/* The links of the process, and which of them a queue pair uses. */
#include "link/link.h"

#include <pthread.h>

#include "device/nic.h"
#include "link/direct/datagram.h"
#include "link/direct/direct.h"
#include "link/engine.h"
#include "link/faults/live.h"

static int start(void)
{
    sw_faults_start();
    int rc = sw_engine_open();
    if (rc)
        return rc;
    rc = sw_direct_start();
    if (!rc)
        rc = sw_engine_start();
    if (rc)
        sw_engine_close();
    return rc;
}

static void fork_child(void)
{
    if (!sw_engine.running)
        return;
    sw_direct_fork_child();
    sw_engine_close();
}

/* What a queue pair does before it is connected is the same for all links: nothing. */
static const struct sw_qp_ops *choose(struct sw_qp *qp)
{
    (void)qp;
    return sw_faults_live ? &sw_direct_gated_ops : &sw_direct_qp_ops;
}

static const struct sw_link_ops ops = {
    .start = start,
    .choose = choose,
    .receive = sw_datagram_receive,
    .has_datagrams = sw_datagram_any,
    .qp_forget = sw_datagram_forget,
    .group_join = sw_multicast_join,
    .group_leave = sw_multicast_leave,
    .domain_announce = sw_domain_announce,
    .target_open = sw_hold_open,
    .target_call = sw_hold_call,
    .quiesce = sw_inbox_wait_all,
    .segment_gone = sw_attach_segment_gone,
    .fork_child = fork_child,
    .kick = sw_engine_kick,
};

static void set_link(void)
{
    sw_nic_set_link(&ops);
}

void sw_link_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_link);
}
