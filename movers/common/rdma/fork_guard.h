/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a handle belongs to the parent of this process. A child of fork() has copies of handles,
 * but the queue pairs and the registered memory are the parent's: what the child does with them
 * would end the parent's connections. So a library looks at the guard of a handle first, says that
 * it is the parent's, and frees in the child only what is memory of the child.
 */
#ifndef SW_MOVERS_FORK_GUARD_H
#define SW_MOVERS_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: not open, and nobody's parent's. */
struct mover_fork_guard {
    uint8_t *alive; /* a page that the kernel clears in a child */
};

/* False and errno: there is no memory for it. */
bool mover_fork_guard_open(struct mover_fork_guard *guard);
void mover_fork_guard_close(struct mover_fork_guard *guard);

/* True: this process is a child of the one that has opened it. */
static inline bool mover_is_forked(const struct mover_fork_guard *guard)
{
    return guard->alive && !*guard->alive;
}

#endif
