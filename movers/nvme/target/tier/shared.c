/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tier that a group of targets has. Its FILE is one of this host, so all members are processes of
 * this host, and each one is killed before another goes on (fence.h). Copies of the log that are
 * files are let go of as FILE is. One in a region of a pmem server is the next owner's as soon as
 * that has opened it: its session is alone, so nothing of earlier ones arrives any more, and a
 * greater epoch stands in it.
 *
 * The owner that gives a tier up leaves FILE as it is. The next one finds the rest in the log.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvme/target/backend/fence_process.h"
#include "nvme/target/tier/backend_tier.h"
#include "nvme/target/tier/log.h"
#include "nvme/target/tier/medium.h"

static int refuse_network(const char *log, char *error, size_t error_size)
{
    const char *network = nvt_tier_is_pmem(log) ? NULL : nvt_fence_network_name(log);
    if (!network)
        return 0;
    snprintf(error, error_size,
             "the log %.150s: lies on a file system of several hosts (%s), where nothing here "
             "fences a target that was cut off: use a file of this host, or a pmem server",
             log, network);
    return -EOPNOTSUPP;
}

int nvt_tier_look_at(const struct nvt_backend_setup *setup, struct nvt_backend_look *out,
                     char *error, size_t error_size)
{
    const struct nvt_backend_spec *spec = setup->spec;
    char file[NVT_MEDIUM_BYTES];
    uint32_t logs = 0;
    if (spec->makes_log) {
        snprintf(error, error_size,
                 "leave new-log away: each owner would begin another log, and lose what hosts have "
                 "written. A log that is all zeroes becomes one by itself");
        return -EINVAL;
    }
    int rc = nvt_fence_look_at_file(spec, out, error, error_size);
    for (uint32_t i = 0; i < spec->log_count && !rc; i++) {
        /* A member that names other copies, or these in another order, has another medium. */
        logs =
            nvt_tier_sum(logs, (const uint8_t *)spec->logs[i], (uint32_t)strlen(spec->logs[i]) + 1);
        rc = refuse_network(spec->logs[i], error, error_size);
    }
    memcpy(file, out->medium, sizeof(file));
    snprintf(out->medium, sizeof(out->medium), "tier of %.100s, logs %08x", file, logs);
    return rc;
}

int nvt_tier_await_logs(const struct nvt_backend_setup *setup, char *error, size_t error_size)
{
    const struct nvt_backend_spec *spec = setup->spec;
    for (uint32_t i = 0; i < spec->log_count; i++) {
        const char *log = spec->logs[i];
        if (nvt_tier_is_pmem(log) || access(log, F_OK)) /* one that is not there may be lost */
            continue;
        const int rc = nvt_fence_await_file(log, setup->wait_ms, error, error_size);
        if (rc)
            return rc;
    }
    return 0;
}
