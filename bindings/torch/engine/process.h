/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that engines live in: it forks, and it exits. */
#ifndef SW_BINDINGS_TORCH_PROCESS_H
#define SW_BINDINGS_TORCH_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct pge_engine;

struct pge_process { /* an engine's entry */
    struct pge_engine *next;
    uint32_t generation;
};

/* Engines that are known here end with the process. */
void pge_process_add(struct pge_engine *engine);
void pge_process_remove(struct pge_engine *engine);
/* This process is a child of the one that has made the engine. */
bool pge_is_forked(const struct pge_engine *engine);

#endif
