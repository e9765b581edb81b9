/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/grant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/status.h"
#include "transfer/engine/transfer.h"
#include "transfer/engine/visitor.h"
#include "transfer/engine/window.h"
#include "transfer/wire/card.h"

enum { DOUBT_MS = 500 };

/* ---- registrations ---- */

/* From all devices, as far as they do it. */
static bool deregister_lease(struct sw_xfer_lease *lease)
{
    bool is_over = true;
    for (uint32_t i = 0; i < XFE_DEVICES_MAX; i++) {
        if (!lease->mrs[i])
            continue;
        if (ibv_dereg_mr(lease->mrs[i]))
            is_over = false;
        else
            lease->mrs[i] = NULL;
    }
    return is_over;
}

static int register_lease(struct sw_xfer_lease *lease, uint64_t offset)
{
    struct sw_xfer_agent *agent = lease->memory->agent;
    for (uint32_t i = 0; i < agent->rails_count; i++) {
        const uint32_t at = agent->rails[i].device;
        if (!lease->mrs[at])
            lease->mrs[at] =
                mover_memory_register_part(&lease->memory->at, agent->devices[at].pd, offset,
                                           lease->bytes, xfe_lease_access(lease));
        const int why = errno;
        if (lease->mrs[at])
            continue;
        deregister_lease(lease);
        return why ? -why : -EIO;
    }
    return 0;
}

/* ---- leases ---- */

static enum sw_xfer_status grant_check_options(const struct sw_xfer_memory *memory,
                                               const struct sw_xfer_lease_options *options,
                                               struct sw_xfer_error *error)
{
    const uint64_t bytes = memory->at.bytes;
    if (xfe_is_forked(memory->agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    if (!memory->agent->rails_count)
        return xfe_fail(error, SW_XFER_INVALID, "an agent without an address has no visitors");
    if (options->offset >= bytes || options->bytes > bytes - options->offset)
        return xfe_fail(error, SW_XFER_INVALID, "the lease does not lie within the memory");
    if (!options->rights || options->rights > (SW_XFER_MAY_READ | SW_XFER_MAY_WRITE))
        return xfe_fail(error, SW_XFER_INVALID, "a lease gives the right to read, write or both");
    if (options->rights & SW_XFER_MAY_WRITE && !memory->at.is_writable)
        return xfe_fail(error, SW_XFER_DENIED, "this memory can only be read");
    if (options->name && !xfw_is_name(options->name))
        return xfe_fail(error, SW_XFER_INVALID, "a name has up to %d bytes, all printable",
                        SW_XFER_NAME_MAX);
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_lease_grant(struct sw_xfer_memory *memory,
                                        const struct sw_xfer_lease_options *options,
                                        struct sw_xfer_error *error, struct sw_xfer_lease **out)
{
    struct sw_xfer_agent *agent = memory->agent;
    const enum sw_xfer_status status = grant_check_options(memory, options, error);
    if (status)
        return status;
    struct xfe_visitor *visitor = options->visitor ? xfe_visitor_of(agent, options->visitor) : NULL;
    if (options->visitor && !visitor)
        return xfe_fail(error, SW_XFER_PEER_GONE, "that visitor is gone");
    struct sw_xfer_lease *lease = calloc(1, sizeof(*lease));
    if (!lease)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    snprintf(lease->name, sizeof(lease->name), "%s", options->name ? options->name : "");
    lease->memory = memory;
    lease->address = memory->at.address + options->offset;
    lease->bytes = options->bytes ? options->bytes : memory->at.bytes - options->offset;
    lease->rights = options->rights;
    lease->deadline_ns = options->deadline_ns ? options->deadline_ns : SW_XFER_NEVER;
    int code = visitor ? xfe_windows_grant(lease, options->visitor) : -EOPNOTSUPP;
    if (code == -EOPNOTSUPP)
        code = register_lease(lease, options->offset);
    if (code) {
        free(lease);
        return xfe_fail(error,
                        code == -EPIPE    ? SW_XFER_PEER_GONE
                        : code == -ENOMEM ? SW_XFER_NO_MEMORY
                                          : SW_XFER_SYSTEM,
                        "no lease can be had of the RDMA device: %s", strerror(-code));
    }
    memory->uses++;
    list_append(&agent->leases, &lease->node);
    if (lease->deadline_ns < agent->lease_wake_ns)
        agent->lease_wake_ns = lease->deadline_ns;
    *out = lease;
    return SW_XFER_OK;
}

/*
 * A device that waits long is likely to have waited for a peer that was stopped in the midst of an
 * access, and not for ever: a software device on one host lets it store when it goes on, as long as
 * anything of these pages is registered.
 */
static enum sw_xfer_status clear_doubt(struct sw_xfer_memory *memory)
{
    struct sw_xfer_agent *agent = memory->agent;
    if (!memory->is_doubtful)
        return SW_XFER_OK;
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        const struct sw_xfer_lease *other = xfe_lease_at(at);
        if (other->memory == memory && sw_xfer_lease_is_granted(other))
            return SW_XFER_TIMEOUT;
    }
    if (!xfe_transfers_let_go(agent, memory) || !xfe_memory_renew(memory))
        return SW_XFER_TIMEOUT;
    memory->is_doubtful = false;
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_lease_revoke(struct sw_xfer_lease *lease)
{
    const uint64_t begin_ns = mover_now_ns();
    if (xfe_is_forked(lease->memory->agent))
        return SW_XFER_FORKED;
    if (sw_xfer_lease_is_window(lease))
        xfe_windows_end(lease);
    if (!deregister_lease(lease))
        return SW_XFER_SYSTEM;
    if (mover_now_ns() - begin_ns > DOUBT_MS * NS_PER_MS)
        lease->memory->is_doubtful = true;
    return clear_doubt(lease->memory);
}

void sw_xfer_lease_release(struct sw_xfer_lease *lease)
{
    sw_xfer_lease_revoke(lease);
    list_remove(&lease->node);
    lease->memory->uses--;
    free(lease);
}

void xfe_grants_timers(struct sw_xfer_agent *agent, uint64_t now_ns)
{
    if (now_ns < agent->lease_wake_ns)
        return;
    agent->lease_wake_ns = UINT64_MAX;
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = xfe_lease_at(at);
        if (!sw_xfer_lease_is_granted(lease))
            continue;
        if (now_ns >= lease->deadline_ns)
            sw_xfer_lease_revoke(lease);
        else if (lease->deadline_ns < agent->lease_wake_ns)
            agent->lease_wake_ns = lease->deadline_ns;
    }
}
