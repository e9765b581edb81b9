/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>

#include "pmem/client/machine.h"

const char *sw_pmem_status_text(enum sw_pmem_status status)
{
    static const char *const texts[] = {
        [SW_PMEM_OK] = "done",
        [SW_PMEM_AGAIN] = "the queue is full, or nothing is under way",
        [SW_PMEM_INVALID] = "an argument is wrong",
        [SW_PMEM_NOT_REGISTERED] = "the data is not in registered memory",
        [SW_PMEM_NO_MEMORY] = "out of memory",
        [SW_PMEM_TIMEOUT] = "the deadline has passed",
        [SW_PMEM_ADDRESS] = "no RDMA device leads to the address",
        [SW_PMEM_REFUSED] = "the server refused",
        [SW_PMEM_UNREACHABLE] = "the server does not answer",
        [SW_PMEM_NO_REGION] = "the server has no region of that name",
        [SW_PMEM_OTHER_REGION] = "the region of that name is another one than before",
        [SW_PMEM_DENIED] =
            "this client has not that right on these bytes, or the server's disk is full",
        [SW_PMEM_NOT_DONE] = "the connection was lost before the request left: nothing happened",
        [SW_PMEM_MAYBE_DONE] = "the connection was lost: the request may have happened",
        [SW_PMEM_NEW_SESSION] = "the request was for an earlier session: nothing happened",
        [SW_PMEM_PROTOCOL] = "the server broke the protocol",
        [SW_PMEM_UNSUPPORTED] = "the memory or the device cannot promise what is asked for",
        [SW_PMEM_CLOSED] = "closed by this side",
        [SW_PMEM_SYSTEM] = "the operating system or the RDMA device failed",
        [SW_PMEM_DISK_FAILED] = "the server could not flush: its disk failed",
        [SW_PMEM_BUSY] = "a writer before is stopped amid a store, and may still finish it",
        [SW_PMEM_FORKED] = "the handle belongs to the parent of this process",
    };
    const size_t count = sizeof(texts) / sizeof(*texts);
    return (size_t)status < count && texts[status] ? texts[status] : "unknown status";
}

const char *sw_pmem_promise(const struct sw_pmem_info *info)
{
    if (info->flush == SW_PMEM_BY_READ && info->kind >= SW_PMEM_DAX_FILE)
        return "Flushes are READs behind the WRITE, as the device has no FLUSH. A persistent one "
               "outlives the server's process and kernel. It outlives the power only if the "
               "platform keeps what its caches hold (eADR) or writes of devices pass them by.";
    switch (info->kind) {
    case SW_PMEM_VOLATILE:
        return "A flush makes bytes visible to every processor of the server's host. They outlive "
               "the server's process. They do not outlive a restart of its host: this memory is "
               "gone with the power.";
    case SW_PMEM_FILE:
        if (info->flush == SW_PMEM_BY_READ || !info->persistent)
            return "A flush makes bytes visible to every processor of the server's host. They "
                   "outlive the server's process. A loss of power may take them: the device or "
                   "the file system has no persistent flush.";
        return "A persistent flush outlives the server's process, its kernel and its power, as "
               "far as its file system and disk keep what msync reports as done. Without a flush, "
               "bytes outlive the process, not the power.";
    case SW_PMEM_DAX_FILE:
    case SW_PMEM_DAX_DEVICE:
        return "A persistent flush outlives the server's process, its kernel and its power: the "
               "bytes have left the processor's caches for the persistent memory. Without a "
               "flush, a loss of power may take them.";
    case SW_PMEM_PCI:
        return info->persistent
                   ? "A persistent flush outlives the server's process, its kernel and its power, "
                     "as far as the card keeps what has reached it. Without a flush, bytes may "
                     "still be on their way to the card."
                   : "A flush makes bytes visible to every processor of the server's host. "
                     "Whether the card keeps them without power is not known here.";
    }
    return "The region is not open.";
}

enum sw_pmem_status pmc_fail(struct sw_pmem_error *error, enum sw_pmem_status status,
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
