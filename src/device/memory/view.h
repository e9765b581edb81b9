/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions of files that somebody may make shorter. A thread that then accesses them gets SIGBUS,
 * which the program has asked for if it does so itself, but not by a request. So this process
 * executes requests by a view: a second mapping of the same pages, which is guarded (base/fault.h).
 * The program's own mapping stays as it is. Memory that nobody can take away has no view.
 *
 * There is none where a region has parts of both kinds, or may change (on demand), nor of huge
 * pages or private mappings of files.
 */
#ifndef SW_DEVICE_MEMORY_VIEW_H
#define SW_DEVICE_MEMORY_VIEW_H

#include "base/sigbus.h"
#include "device/nic/nic.h"
#include "device/rules/pub.h"

struct ibv_sge;

/* From a region's addresses to those of its view, by index; 0: there is no view. Set while the key
 * is not valid. */
extern int64_t sw_view_shift[SW_MAX_MR];

/* Whether what a key names is accessed by a view. */
static inline bool sw_view_is_of(uint32_t key)
{
    return __builtin_expect(sw_view_shift[sw_key_index(key)] != 0, 0);
}

/* Makes the view of shared mappings and returns its shift; 0: they cannot be taken away, or there
 * can be no view. */
int64_t sw_view_make(uint64_t va, uint64_t len_bytes);
void sw_view_drop(int64_t shift, uint64_t va, uint64_t len_bytes);

/* Where this process accesses what is at `addr` of its own region or window. */
static inline uint8_t *sw_view_at(const struct sw_pub *own, const struct sw_pub_mr *mr,
                                  uint64_t addr)
{
    const int64_t shift = sw_view_shift[mr - own->mrs];
    if (__builtin_expect(shift != 0, 0))
        sw_sigbus_enter();
    return (uint8_t *)(uintptr_t)(mr->va + (addr - mr->iova) + (uint64_t)shift);
}

#endif
