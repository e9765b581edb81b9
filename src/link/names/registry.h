/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slot that makes this process known to the others of its host, and what it announces to them.
 */
#ifndef SW_LINK_NAMES_REGISTRY_H
#define SW_LINK_NAMES_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "link/names/names.h"

/* The name of the socket by which a process has `what`; "": of the one that stands for its slot. */
void sw_registry_name(uint32_t slot, const char *what, char out[SW_NAME_BYTES]);

int sw_registry_claim(int *listener, uint32_t *slot);
/* A connection to a slot's process, of our user. Or as sw_name_connect(). */
int sw_registry_connect(uint32_t slot);
/* Whether the other end has our user ID; which processes are trusted, proof.h tells. */
bool sw_registry_same_user(int socket, pid_t *pid);
/* Tells all processes that this one has `what`, until the descriptor is closed. The descriptor, or
 * a negative errno. */
#define SW_ANNOUNCED_BYTES 64u /* of `what`, at most */
int sw_registry_announce(const char *what);
/* The same, but only one process can: -EADDRINUSE. */
int sw_registry_announce_alone(const char *what);
/* Slots of the processes that announce it (of "": of all processes), at most `max`, each once.
 * Their number. */
uint32_t sw_registry_announcers(const char *what, uint16_t *slots, uint32_t max);

#endif
