/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mappings of files whose pages may be missing: another process made the file shorter, or the file
 * system has no room for a hole. Touching such a page raises SIGBUS. In a guarded range that does
 * not end the process: the handler puts a page of private memory in the place of that page, the
 * access goes on there, to nowhere, and is judged afterwards. The judge puts the file's page back,
 * so the next access asks the file again. A thread enters (base/sigbus.h) before it accesses one.
 * Memory outside of guarded ranges is the program's.
 *
 *     mark = sw_fault_mark();
 *     ... access ...
 *     verdict = sw_fault_judge(mark, at, len_bytes);
 *
 * An access that did not fault itself may have met the page that another thread's fault left
 * there. It is told so (AGAIN) and is made again; an error is only for the thread that faulted.
 */
#ifndef SW_BASE_FAULT_H
#define SW_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How often an access is made again before it counts as lost. */
#define SW_FAULT_TRIES 100

enum sw_fault {
    SW_FAULT_NONE,
    SW_FAULT_AGAIN, /* it may have gone to nowhere by another's fault; the page is back */
    SW_FAULT_LOST,  /* it faulted */
};

/* False: it cannot be guarded; there are too many. */
bool sw_fault_guard(void *base, size_t len_bytes);
/* Before it is unmapped. Does nothing for a range that is not guarded. */
void sw_fault_unguard(const void *base);

/* Twice the number of times that a page was replaced or put back; odd while one is replaced. */
extern _Atomic uint64_t sw_fault_word;

/* Touches each page, if they are in a guarded range. False: it is lost. For who gives the kernel an
 * address, which says no more than EFAULT. */
bool sw_fault_probe(const void *at, size_t len_bytes);

/* Before the kernel copies from what has been probed since `mark`: no page is replaced until
 * sw_fault_let_go(), and one that is missing is EFAULT to the kernel. False: one was replaced or
 * put back since, or is just being; probe again. The holder touches nothing guarded, and does not
 * wait: a thread that faults waits for it. */
bool sw_fault_hold(uint64_t mark);
void sw_fault_let_go(void);

/* Before an access. */
static inline uint64_t sw_fault_mark(void)
{
    return atomic_load_explicit(&sw_fault_word, memory_order_acquire);
}

/* Whether nothing was replaced anywhere since. */
static inline bool sw_fault_quiet(uint64_t mark)
{
    atomic_signal_fence(memory_order_seq_cst); /* the access has been made, and not only will be */
    const uint64_t now = atomic_load_explicit(&sw_fault_word, memory_order_relaxed);
    return __builtin_expect(now == mark && !(now & 1), 1);
}

enum sw_fault sw_fault_find(uint64_t mark, const void *at, size_t len_bytes);

/* What became of an access since `mark`, which is over. */
static inline enum sw_fault sw_fault_judge(uint64_t mark, const void *at, size_t len_bytes)
{
    return sw_fault_quiet(mark) ? SW_FAULT_NONE : sw_fault_find(mark, at, len_bytes);
}

#endif
