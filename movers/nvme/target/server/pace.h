/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a thread shares its time between hosts and the disk: how much is answered before the next
 * commands are looked for, and for how long it polls before it sleeps. It reads no clock and asks
 * no ring; thread.c tells it.
 */
#ifndef SW_MOVERS_NVME_PACE_H
#define SW_MOVERS_NVME_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct nvt_pace {
    uint64_t spin_us;         /* how long it polls without a disk */
    uint64_t patient_from_ns; /* to wait for long was in vain: not again before then */
    uint64_t yields_until_ns; /* threads of a library want the processor */
};

/* Whether to end more I/O before commands are looked for. `is_prompt`: requests end while they are
 * submitted. `moved_bytes`: of the answers given since. */
bool nvt_pace_ends_more(bool is_prompt, uint64_t moved_bytes);

/* How long it polls in vain before it sleeps, with so many requests at the disk. */
uint64_t nvt_pace_spin_ns(const struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns);

/* What polls is in the way of a library's threads: then one look in vain is enough. */
bool nvt_pace_yields(const struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns);

/* Threads of a library work at requests. */
void nvt_pace_note_library(struct nvt_pace *pace, uint64_t now_ns);

/* There is something again after such a pause, at the beginning of which so many were at the disk.
 */
void nvt_pace_note_pause(struct nvt_pace *pace, uint32_t under_way, uint64_t now_ns,
                         uint64_t pause_ns);

#endif
