/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes zeroes of a range of mapped memory, a part at a time. Pages that were never written are a
 * hole and stay one. Written pages may be given back to the system, whole ones.
 */
#ifndef SW_MOVERS_NVME_ZEROING_H
#define SW_MOVERS_NVME_ZEROING_H

#include <stdbool.h>
#include <stdint.h>

enum { NVT_ZEROING_BYTES = 2 << 20 }; /* of one part, which ends at a multiple of it */

struct nvt_zeroing {
    uint8_t *base;   /* where the mapping begins */
    int fd;          /* of the file that is mapped there from its beginning; -1: private memory */
    bool gives_back; /* pages become holes */
};

/* From `at` on, but not behind `end`. Returns how far it has come, or a negative errno. */
int64_t nvt_zeroing_step(const struct nvt_zeroing *zeroing, uint64_t at, uint64_t end);

#endif
