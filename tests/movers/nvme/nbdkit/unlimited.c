/* SPDX-License-Identifier: BSD-2-Clause */
/* Beneath the daemon of sanlock, which ends where it may not lock memory without a limit, as in a
 * container, though it is told not to lock any. */
#undef _FILE_OFFSET_BITS /* else the function has another name */
#include <sys/resource.h>

__attribute__((visibility("default"))) int setrlimit(__rlimit_resource_t resource,
                                                     const struct rlimit *limit)
{
    (void)resource;
    (void)limit;
    return 0;
}
