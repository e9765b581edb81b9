/* SPDX-License-Identifier: BSD-2-Clause */
/* A host that means harm: one life of it, in a process of its own. */
#ifndef TEST_HOSTILE_HOST_H
#define TEST_HOSTILE_HOST_H

#include <stdint.h>

/* Its commands, lengths, keys, their order and its end follow from the seed. Does not return. */
void hostile_host_live(const char *port, const char *nqn, uint64_t seed) __attribute__((noreturn));

#endif
