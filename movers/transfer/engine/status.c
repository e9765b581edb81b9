/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/time/clock.h"

const char *sw_xfer_status_text(enum sw_xfer_status status)
{
    static const char *const texts[] = {
        [SW_XFER_OK] = "done",
        [SW_XFER_AGAIN] = "not now: nothing is there, or a table is full",
        [SW_XFER_TIMEOUT] = "the deadline of the wait has passed",
        [SW_XFER_INVALID] = "an argument is wrong",
        [SW_XFER_BUSY] = "it is in use",
        [SW_XFER_NO_MEMORY] = "out of memory, or the RDMA device has no room",
        [SW_XFER_NOT_SUPPORTED] = "this host, device or build cannot do it",
        [SW_XFER_ADDRESS] = "no RDMA device leads to the address",
        [SW_XFER_CARD] = "the card is damaged, or is none",
        [SW_XFER_VERSION] = "the other side speaks another version of the protocol",
        [SW_XFER_LAYOUT] = "the other side lays its blocks out in another way",
        [SW_XFER_INSTANCE] = "another instance than that of the card is at that address",
        [SW_XFER_REFUSED] = "the other side has no room for this peer",
        [SW_XFER_DENIED] =
            "the lease does not give that right, or was revoked, or the peer's disk is full",
        [SW_XFER_PEER_GONE] = "the peer is gone",
        [SW_XFER_DEADLINE] = "the transfer's deadline has passed",
        [SW_XFER_CANCELLED] = "cancelled by this side",
        [SW_XFER_CORRUPT] = "a block has another sum here than at the peer",
        [SW_XFER_PROTOCOL] = "the other side broke the protocol",
        [SW_XFER_FORKED] = "the handle belongs to the parent of this process",
        [SW_XFER_SYSTEM] = "the operating system or the RDMA device failed",
    };
    const size_t count = sizeof(texts) / sizeof(*texts);
    return (size_t)status < count && texts[status] ? texts[status] : "unknown status";
}

uint64_t sw_xfer_deadline_ms(uint32_t from_now_ms)
{
    return mover_now_ns() + from_now_ms * NS_PER_MS;
}

enum sw_xfer_status xfe_fail(struct sw_xfer_error *error, enum sw_xfer_status status,
                             const char *format, ...)
{
    va_list args;
    if (error) {
        error->status = status;
        va_start(args, format);
        vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
    }
    return status;
}

uint64_t sw_xfer_layout(const void *description, size_t bytes)
{
    const uint8_t *at = description;
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3;
    return hash ? hash : 1;
}
