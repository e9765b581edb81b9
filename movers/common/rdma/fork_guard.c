/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/fork_guard.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t guard_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool mover_fork_guard_open(struct mover_fork_guard *guard)
{
    assert(!guard->alive);
    void *page =
        mmap(NULL, guard_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    guard->alive = page;
    *guard->alive = 1;
    (void)madvise(page, guard_page_bytes(), MADV_WIPEONFORK); /* Linux 4.14 */
    return true;
}

void mover_fork_guard_close(struct mover_fork_guard *guard)
{
    if (guard->alive)
        munmap(guard->alive, guard_page_bytes());
    guard->alive = NULL;
}
