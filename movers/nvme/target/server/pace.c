/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/pace.h"

#include "common/time/clock.h"

/* While a disk works at few requests, hosts wait, and the next thing comes from it. The fastest
 * ones answer within DISK_SPIN_US; for others a core that polls only keeps the kernel from hearing
 * them. Where more are under way, some disks end them one by one; others, such as those of virtual
 * machines, end all of them at a time, and then wait for the next ones. To sleep and to wake makes
 * that wait longer. So it polls PATIENCE times as long. Where that was in vain, the disk is slow or
 * others want the processor: then it polls no longer than otherwise for a while. */
enum { DISK_SPIN_US = 20, DISK_FEW = 4, PATIENCE = 30, IMPATIENT_MS = 100 };

/* What polls takes a processor from the library's threads, and from a cluster that is on the same
 * machine. After an answer, too: the host's next command goes the same way. */
enum { YIELDS_MS = 1 };

/* Answers of so much data go to hosts before the next commands are looked for: to move them takes
 * longer than the call that submits these. */
enum { MOVED_MAX = 256 << 10 };

bool nvt_pace_ends_more(bool is_prompt, uint64_t moved_bytes)
{
    return is_prompt && moved_bytes < MOVED_MAX;
}

bool nvt_pace_yields(const struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns)
{
    return !under_way && now_ns < pace->yields_until_ns;
}

uint64_t nvt_pace_spin_ns(const struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns)
{
    const uint64_t us = pace->spin_us;
    if (nvt_pace_yields(pace, under_way, now_ns))
        return 0;
    if (under_way > DISK_FEW)
        return us * (now_ns >= pace->patient_from_ns ? PATIENCE : 1) * NS_PER_US;
    return (under_way && us > DISK_SPIN_US ? DISK_SPIN_US : us) * NS_PER_US;
}

void nvt_pace_note_library(struct nvt_pace *pace, uint64_t now_ns)
{
    pace->yields_until_ns = now_ns + YIELDS_MS * NS_PER_MS;
}

void nvt_pace_note_pause(struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns,
                         uint64_t pause_ns)
{
    if (under_way > DISK_FEW && pause_ns > NS_PER_US * PATIENCE * pace->spin_us)
        pace->patient_from_ns = now_ns + IMPATIENT_MS * NS_PER_MS;
}
