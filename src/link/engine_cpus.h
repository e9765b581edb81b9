/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processors the engine runs on. As a thread of the program it is bound to where the program
 * is bound to, and mostly that is best: what it does, the program's thread waits for. But while
 * peers reach for the memory of a program that spins on it, the two would take turns on one
 * processor, and with each turn the program waits for nothing: then the engine keeps off it.
 */
#ifndef SW_LINK_ENGINE_CPUS_H
#define SW_LINK_ENGINE_CPUS_H

#include <sched.h>
#include <stdbool.h>

enum sw_cpus_wish {
    SW_CPUS_AUTO,    /* the program's, and others while it keeps off one */
    SW_CPUS_PROGRAM, /* the program's */
    SW_CPUS_LIST
};

/* Reads "auto", "program" or a list as "0-3,8". False: it is none of them. */
bool sw_cpus_parse(const char *text, enum sw_cpus_wish *wish, cpu_set_t *list);

/* The engine's thread alone, before it does anything: as SIDEWIRE_ENGINE_CPUS says. */
void sw_engine_cpus_start(void);
/* From now on it runs on any processor that ordinary programs use, but that one; -1: where it
 * started. No system call if that is so already. */
void sw_engine_keep_off(int cpu);

#endif
