/* SPDX-License-Identifier: BSD-2-Clause */
/* Statuses, and how they come from the errnos of media. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/time/clock.h"
#include "snapshot/session/status.h"

const char *sw_snap_status_text(enum sw_snap_status status)
{
    static const char *const texts[] = {
        [SW_SNAP_OK] = "done",
        [SW_SNAP_AGAIN] = "not yet",
        [SW_SNAP_TIMEOUT] = "the deadline has passed",
        [SW_SNAP_INVALID] = "an argument is wrong",
        [SW_SNAP_BUSY] = "the snapshot before is still under way",
        [SW_SNAP_SKIPPED] = "the snapshot was given up at the gate",
        [SW_SNAP_TORN] = "the state was written while it was captured",
        [SW_SNAP_NO_MEMORY] = "no memory, or no room in the RDMA device",
        [SW_SNAP_NO_ROOM] = "a sink has not so much room",
        [SW_SNAP_NO_QUORUM] = "too few sinks have it",
        [SW_SNAP_ADDRESS] = "no such address, file or namespace",
        [SW_SNAP_REFUSED] = "the sink refused this program",
        [SW_SNAP_FENCED] = "another program has taken over that name",
        [SW_SNAP_LOST] = "a sink does not answer any more",
        [SW_SNAP_CORRUPT] = "bytes are not what they were",
        [SW_SNAP_FORMAT] = "what is there is no volume of snapshots, or a damaged one",
        [SW_SNAP_VERSION] = "it is of another version",
        [SW_SNAP_NOT_FOUND] = "there is no such snapshot, or entry",
        [SW_SNAP_OTHER_STATE] = "name, type or shape are others than in the snapshot",
        [SW_SNAP_OTHER_RANK] = "a rank has failed, or has begun another step",
        [SW_SNAP_NOT_SUPPORTED] = "this host, sink or build cannot do it",
        [SW_SNAP_FORKED] = "the handle belongs to the parent of this process",
        [SW_SNAP_SYSTEM] = "the operating system or the RDMA device failed",
    };
    const size_t at = (size_t)status;
    return at < sizeof(texts) / sizeof(*texts) && texts[at] ? texts[at] : "unknown status";
}

uint64_t sw_snap_deadline_ms(uint32_t from_now_ms)
{
    return mover_now_ns() + from_now_ms * NS_PER_MS;
}

enum sw_snap_status snap_error_set(struct sw_snap_error *error, enum sw_snap_status status,
                                   const char *format, ...)
{
    if (!error)
        return status;
    va_list arguments;
    error->status = status;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return status;
}

enum sw_snap_status snap_error_at(struct sw_snap_error *error, enum sw_snap_status status,
                                  const char *where, const char *why)
{
    const size_t length = strlen(where);
    if (strncmp(why, where, length) == 0 && why[length] == ':')
        return snap_error_set(error, status, "%.510s", why);
    return snap_error_set(error, status, "%.128s: %.360s", where, why);
}

enum sw_snap_status snap_error_plain(struct sw_snap_error *error, enum sw_snap_status status)
{
    return snap_error_set(error, status, "%s", sw_snap_status_text(status));
}

enum sw_snap_status snap_status_of(int result)
{
    switch (-result) {
    case 0:
        return SW_SNAP_OK;
    case ENOMEM:
        return SW_SNAP_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return SW_SNAP_NO_ROOM;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EADDRNOTAVAIL:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNREFUSED:
        return SW_SNAP_ADDRESS;
    case EBUSY:
    case EACCES:
    case EPERM:
    case EROFS:
        return SW_SNAP_REFUSED;
    case ESTALE:
        return SW_SNAP_FENCED;
    case EBADMSG:
        return SW_SNAP_CORRUPT;
    case EPROTO:
    case EILSEQ:
        return SW_SNAP_FORMAT;
    case EPROTONOSUPPORT:
        return SW_SNAP_VERSION;
    case EOPNOTSUPP:
        return SW_SNAP_NOT_SUPPORTED;
    case EINVAL:
        return SW_SNAP_INVALID;
    case ETIMEDOUT:
    case ECONNRESET:
    case ECONNABORTED:
    case ENODEV:
    case ENOTCONN:
    case EIO:
    case EPIPE:
        return SW_SNAP_LOST;
    default:
        return SW_SNAP_SYSTEM;
    }
}
