/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads for functions that may wait. Each function that comes while all threads are busy gets a
 * new one: so one that waits for what another one does never holds that up.
 */
#ifndef SW_BINDINGS_TORCH_LATER_H
#define SW_BINDINGS_TORCH_LATER_H

#include <stdbool.h>

struct pge_later;

/* NULL: no memory. */
struct pge_later *pge_later_open(void);
/* False: no memory, no thread, or it ends. */
bool pge_later_call(struct pge_later *later, void (*run)(void *context), void *context);
/* Waits until all functions have returned, but for one that calls this itself. */
void pge_later_close(struct pge_later *later);

#endif
