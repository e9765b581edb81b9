/* SPDX-License-Identifier: BSD-2-Clause */
/* A copy from or to memory that may be missing (base/fault.h). */
#ifndef SW_BASE_GUARDED_COPY_H
#define SW_BASE_GUARDED_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "base/payload.h"

/* `guarded`: the one of the two that is asked about. False: it is lost. */
static inline bool sw_guarded_copy(void *to, const void *from, uint64_t len_bytes,
                                   const void *guarded)
{
    for (int i = 0; i < SW_FAULT_TRIES; i++) {
        const uint64_t mark = sw_fault_mark();
        sw_payload_copy(to, from, len_bytes);
        const enum sw_fault fault = sw_fault_judge(mark, guarded, len_bytes);
        if (__builtin_expect(fault != SW_FAULT_AGAIN, 1))
            return fault == SW_FAULT_NONE;
    }
    return false;
}

#endif
