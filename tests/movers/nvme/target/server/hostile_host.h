/* SPDX-License-Identifier: BSD-2-Clause */
/* A host that means harm: one life of it, in a process of its own. */
#ifndef TEST_HOSTILE_HOST_H
#define TEST_HOSTILE_HOST_H

#include <stdint.h>

/* Subsystems that it asks for: the second takes only the known host, which has a secret. */
#define HOSTILE_NQN "nqn.2026-01.test:hostile"
#define HOSTILE_LOCKED_NQN "nqn.2026-01.test:locked"
#define HOSTILE_KNOWN_HOST "nqn.2026-01.test:known-host"

/* Its commands, lengths, keys, their order and its end follow from the seed. Does not return. */
void hostile_host_live(const char *port, uint64_t seed) __attribute__((noreturn));

#endif
