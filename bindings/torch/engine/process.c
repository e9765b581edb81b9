// SPDX-License-Identifier: BSD-2-Clause
#include "process.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "inside.h"

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t is_prepared = PTHREAD_ONCE_INIT;
static struct pge_engine *engines;
static uint32_t generation; /* of forks: each child has another one than its parent */

/* The threads of the parent's engines are not here, and may have held any lock. */
static void begin_child(void)
{
    pthread_mutex_init(&engines_lock, NULL);
    engines = NULL;
    generation++;
}

static void end_all_engines(void)
{
    pthread_mutex_lock(&engines_lock);
    struct pge_engine *engine = engines;
    engines = NULL;
    pthread_mutex_unlock(&engines_lock);
    while (engine) {
        struct pge_engine *next = engine->process.next;
        pge_abandon(engine);
        engine = next;
    }
}

static void prepare_process(void)
{
    pthread_atfork(NULL, NULL, begin_child);
    atexit(end_all_engines);
}

void pge_process_add(struct pge_engine *engine)
{
    pthread_once(&is_prepared, prepare_process);
    pthread_mutex_lock(&engines_lock);
    engine->process.generation = generation;
    engine->process.next = engines;
    engines = engine;
    pthread_mutex_unlock(&engines_lock);
}

void pge_process_remove(struct pge_engine *engine)
{
    pthread_mutex_lock(&engines_lock);
    for (struct pge_engine **place = &engines; *place; place = &(*place)->process.next)
        if (*place == engine) {
            *place = engine->process.next;
            break;
        }
    pthread_mutex_unlock(&engines_lock);
}

bool pge_is_forked(const struct pge_engine *engine)
{
    return engine->process.generation != generation;
}

/* SIGBUS of the thread's own access is its own: where that is blocked, the kernel ends the process.
 */
bool pge_start_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool is_there = !pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_there;
}
