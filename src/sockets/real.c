/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

void *_Atomic sw_real_table[SW_REAL_COUNT];

static const char *const names[SW_REAL_COUNT] = {
#define SW_REAL_NAME(name) [SW_REAL_##name] = #name,
    SW_REAL_FUNCTIONS(SW_REAL_NAME)
#undef SW_REAL_NAME
};

void *sw_real_resolve(enum sw_real function)
{
    int saved_errno = errno;
    void *found = dlsym(RTLD_NEXT, names[function]);
    if (!found) {
        /* Without it the program's call has no meaning; it must not go on as if it had one. */
        sw_error("this libc has no %s; run without --sockets", names[function]);
        abort();
    }
    atomic_store_explicit(&sw_real_table[function], found, memory_order_relaxed);
    errno = saved_errno;
    return found;
}

/* dlsym takes the loader's lock; afterwards the hooks are as safe in signal handlers as what they
 * stand for. */
__attribute__((constructor(102))) static void resolve_socket_calls(void)
{
    for (int i = 0; i < SW_REAL_COUNT; i++)
        sw_real_resolve((enum sw_real)i);
}
