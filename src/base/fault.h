/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mappings of files that another process may make shorter: what is touched behind the new end
 * raises SIGBUS. In a guarded range it does not end the process. The handler puts private memory in
 * the place of the whole range, and the access goes on there, to nowhere; who has accessed asks
 * afterwards whether that was so. A thread enters (base/sigbus.h) before it accesses one. What is
 * not in a guarded range is the program's.
 */
#ifndef SW_BASE_FAULT_H
#define SW_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* False: it cannot be guarded; there are too many. */
bool sw_fault_guard(void *base, size_t len_bytes);
/* Before it is unmapped. Of a range that is not guarded, nothing. */
void sw_fault_unguard(const void *base);

extern atomic_uint sw_fault_losses; /* ranges that were lost, ever */
bool sw_fault_lost_at(const void *at);

/* Touches each page, if they are in a guarded range. False: it is lost. For who gives the kernel an
 * address, which says no more than EFAULT. */
bool sw_fault_probe(const void *at, size_t len_bytes);

/* Whether any range was lost, ever. */
static inline bool sw_fault_any(void)
{
    atomic_signal_fence(memory_order_seq_cst); /* the access has been made, and not only will be */
    return __builtin_expect(atomic_load_explicit(&sw_fault_losses, memory_order_relaxed) != 0, 0);
}

/* Whether an access at this address, which is over, may have gone to nowhere. */
static inline bool sw_fault_hit(const void *at)
{
    return sw_fault_any() && sw_fault_lost_at(at);
}

#endif
