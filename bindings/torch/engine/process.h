/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that engines live in: it forks, exits, and has threads of theirs. */
#ifndef SW_BINDINGS_TORCH_PROCESS_H
#define SW_BINDINGS_TORCH_PROCESS_H

#include <pthread.h>
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
/* False: there is no room for one. Signals are for the program's own threads. */
bool pge_start_thread(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
