/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/rail.h"
#include "transfer/engine/status.h"
#include "transfer/engine/visitor.h"
#include "transfer/wire/card.h"

enum { DOUBT_MS = 500 };

static struct sw_xfer_lease *transfer_lease_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct sw_xfer_lease, node);
}

static int access_of(uint32_t rights)
{
    return (rights & SW_XFER_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0) |
           (rights & SW_XFER_MAY_WRITE ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
}

/* ---- windows ---- */

static void free_windows(struct sw_xfer_lease *lease)
{
    for (uint32_t i = 0; i < XFE_RAILS_MAX; i++)
        if (lease->windows[i])
            ibv_dealloc_mw(lease->windows[i]);
    memset(lease->windows, 0, sizeof(lease->windows));
    lease->bound = 0;
}

/* A window is of one queue pair. Where there may be another lane to go on with, that of a lane
 * which is made anew has to be bound before the peer may send, which iWARP does not allow. */
static bool can_bind(const struct sw_xfer_agent *agent, const struct xfe_device *device)
{
    return device->has_windows &&
           (agent->rails_count == 1 || device->verbs->device->transport_type == IBV_TRANSPORT_IB);
}

static bool alloc_windows(struct sw_xfer_lease *lease)
{
    const struct sw_xfer_agent *agent = lease->memory->agent;
    for (uint32_t i = 0; i < agent->rails_count; i++) {
        const struct xfe_device *device = &agent->devices[agent->rails[i].device];
        lease->windows[i] =
            can_bind(agent, device) ? ibv_alloc_mw(device->pd, IBV_MW_TYPE_2) : NULL;
        if (!lease->windows[i])
            return false;
        lease->window_keys[i] = ibv_inc_rkey(lease->windows[i]->rkey);
    }
    return true;
}

/* The card is out already, so it is the same key for each queue pair of the lane. */
static int lease_bind_window(struct sw_xfer_lease *lease, struct xfe_visitor *visitor)
{
    const struct sw_xfer_agent *agent = lease->memory->agent;
    const uint32_t lane = xfe_visitor_lane(visitor);
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = lease->windows[lane],
                    .rkey = lease->window_keys[lane],
                    .bind_info = {.mr = lease->memory->mrs[agent->rails[lane].device],
                                  .addr = lease->address,
                                  .length = lease->bytes,
                                  .mw_access_flags =
                                      (unsigned)access_of(lease->rights) &
                                      (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)}},
    };
    const int code = xfe_visitor_window(visitor, &wr);
    if (!code)
        lease->bound |= 1u << lane;
    return code;
}

/* Nothing by them is taken any more. */
static void end_windows(struct sw_xfer_lease *lease)
{
    struct sw_xfer_agent *agent = lease->memory->agent;
    for (uint32_t i = 0; i < agent->rails_count; i++) {
        struct xfe_visitor *visitor = xfe_visitor_at(agent, lease->visitor, i);
        struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
                                 .invalidate_rkey = lease->window_keys[i]};
        if (!visitor || !(lease->bound & 1u << i))
            continue;
        /* Where it cannot be done, the queue pair goes; windows go with it. */
        if (xfe_visitor_window(visitor, &wr))
            xfe_visitor_end(visitor);
    }
    free_windows(lease);
}

/* -EOPNOTSUPP: no windows can be had, and registrations take their place. -EPIPE: no lane is left.
 */
static int grant_windows(struct sw_xfer_lease *lease, uint64_t number)
{
    struct sw_xfer_agent *agent = lease->memory->agent;
    int code = alloc_windows(lease) ? 0 : -EOPNOTSUPP;
    lease->visitor = number;
    for (uint32_t i = 0; !code && i < agent->rails_count; i++) {
        struct xfe_visitor *visitor = xfe_visitor_at(agent, number, i);
        code = visitor ? lease_bind_window(lease, visitor) : 0;
        if (code == -EPIPE) {
            xfe_visitor_end(visitor);
            code = 0; /* its lane is made anew */
        }
    }
    if (!code && lease->bound)
        return 0;
    end_windows(lease);
    lease->visitor = 0;
    return code ? code : -EPIPE;
}

bool xfe_leases_have_windows(const struct sw_xfer_agent *agent, uint64_t visitor)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        const struct sw_xfer_lease *lease = transfer_lease_of(at);
        if (lease->visitor == visitor && sw_xfer_lease_is_window(lease))
            return true;
    }
    return false;
}

bool xfe_leases_of_lane_bind(struct sw_xfer_agent *agent, struct xfe_visitor *visitor)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = transfer_lease_of(at);
        if (lease->visitor == xfe_visitor_number(visitor) && sw_xfer_lease_is_window(lease) &&
            lease_bind_window(lease, visitor))
            return false;
    }
    return true;
}

void xfe_leases_of_lane_end(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t lane)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = transfer_lease_of(at);
        if (lease->visitor == visitor)
            lease->bound &= ~(1u << lane);
    }
}

void xfe_leases_of_visitor_end(struct sw_xfer_agent *agent, uint64_t visitor)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = transfer_lease_of(at);
        if (lease->visitor == visitor)
            free_windows(lease);
    }
}

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
                                           lease->bytes, access_of(lease->rights));
        const int why = errno;
        if (lease->mrs[at])
            continue;
        deregister_lease(lease);
        return why ? -why : -EIO;
    }
    return 0;
}

/* ---- leases ---- */

uint32_t xfe_lease_key(const struct sw_xfer_lease *lease, uint32_t rail)
{
    const uint32_t device = lease->memory->agent->rails[rail].device;
    if (sw_xfer_lease_is_window(lease))
        return lease->window_keys[rail];
    return lease->mrs[device] ? lease->mrs[device]->rkey : 0;
}

static enum sw_xfer_status lease_check_options(const struct sw_xfer_memory *memory,
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
    const enum sw_xfer_status status = lease_check_options(memory, options, error);
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
    int code = visitor ? grant_windows(lease, options->visitor) : -EOPNOTSUPP;
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
        const struct sw_xfer_lease *other = transfer_lease_of(at);
        if (other->memory == memory && sw_xfer_lease_is_granted(other))
            return SW_XFER_TIMEOUT;
    }
    if (!xfe_memory_renew(memory))
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
        end_windows(lease);
    if (!deregister_lease(lease))
        return SW_XFER_SYSTEM;
    if (mover_now_ns() - begin_ns > DOUBT_MS * NS_PER_MS)
        lease->memory->is_doubtful = true;
    return clear_doubt(lease->memory);
}

bool sw_xfer_lease_is_granted(const struct sw_xfer_lease *lease)
{
    for (uint32_t i = 0; i < XFE_DEVICES_MAX; i++)
        if (lease->mrs[i])
            return true;
    return sw_xfer_lease_is_window(lease);
}

bool sw_xfer_lease_is_window(const struct sw_xfer_lease *lease)
{
    return lease->windows[0];
}

void sw_xfer_lease_release(struct sw_xfer_lease *lease)
{
    sw_xfer_lease_revoke(lease);
    list_remove(&lease->node);
    lease->memory->uses--;
    free(lease);
}

void xfe_leases_timers(struct sw_xfer_agent *agent, uint64_t now_ns)
{
    if (now_ns < agent->lease_wake_ns)
        return;
    agent->lease_wake_ns = UINT64_MAX;
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = transfer_lease_of(at);
        if (!sw_xfer_lease_is_granted(lease))
            continue;
        if (now_ns >= lease->deadline_ns)
            sw_xfer_lease_revoke(lease);
        else if (lease->deadline_ns < agent->lease_wake_ns)
            agent->lease_wake_ns = lease->deadline_ns;
    }
}
