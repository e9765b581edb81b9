/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/blocks.h"

const struct snap_blocks_ops *snap_blocks_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &snap_blocks_avx2;
#endif
    return &snap_blocks_plain;
}
