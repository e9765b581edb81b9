/* SPDX-License-Identifier: BSD-2-Clause */
/* What the engine does for the link, and what a forked child lets go of. */
#include "link/iwarp/iwarp.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/minmax.h"
#include "link/engine.h"
#include "link/iwarp/buffers.h"
#include "link/iwarp/connection.h"
#include "link/iwarp/linger.h"

static void (*_Atomic user)(uint64_t cookie, enum sw_iwarp_news news, int status);

void sw_iwarp_set_user(void (*told)(uint64_t cookie, enum sw_iwarp_news news, int status))
{
    atomic_store(&user, told);
}

static void on_socket(uint64_t what)
{
    sw_engine_drive((uint32_t)(what >> 4), &sw_iwarp_qp_ops);
}

static uint64_t iwarp_step_link(uint64_t now_ns)
{
    if (sw_iwarp_has_notes())
        sw_iwarp_tell_notes(atomic_load(&user));
    const uint64_t nudge_ns = sw_iwarp_nudge_peers(now_ns);
    return sw_min_u64(nudge_ns, sw_iwarp_lingers() ? sw_iwarp_linger_step(now_ns) : UINT64_MAX);
}

static bool iwarp_wants_step(void)
{
    return sw_iwarp_has_notes();
}

static const struct sw_engine_part part = {.step = iwarp_step_link, .wants = iwarp_wants_step};

/* They are for networks whose checksums do not do. */
bool sw_iwarp_wants_crc(void)
{
    const char *text = getenv("SIDEWIRE_IWARP_CRC");
    return text && (!strcmp(text, "on") || !strcmp(text, "1"));
}

void sw_iwarp_start(void)
{
    sw_engine_handle(SW_WATCH_IWARP, on_socket);
    sw_engine_add(&part);
}

void sw_iwarp_close_fd(const struct sw_qp *qp)
{
    const struct sw_iwarp_connection *c = qp->link_state;
    if (c)
        close(c->fd);
}

/* The connections are its parent's. Their memory stays: the thread that had it locked is gone. */
void sw_iwarp_fork_child(void)
{
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        const struct sw_qp *qp = sw_nic.qps[i];
        if (qp->link == &sw_iwarp_qp_ops)
            sw_iwarp_close_fd(qp);
    }
    sw_iwarp_buffers_fork_child();
    sw_iwarp_notes_fork_child();
    sw_iwarp_linger_fork_child();
}
