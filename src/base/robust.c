/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/robust.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel walks the list when the thread ends: one entry, and the word lies so far from it. */
static struct robust_list_head list;
static struct robust_list entry;

bool sw_robust_hold(_Atomic uint32_t *word)
{
    entry.next = &list.list;
    list = (struct robust_list_head){
        .list = {&entry},
        .futex_offset = (long)((intptr_t)word - (intptr_t)&entry),
    };
    atomic_store(word, (uint32_t)syscall(SYS_gettid) & FUTEX_TID_MASK);
    if (syscall(SYS_set_robust_list, &list, sizeof(list)) == 0)
        return true;
    atomic_store(word, 0);
    return false;
}

bool sw_robust_has_ended(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed) & FUTEX_OWNER_DIED;
}
