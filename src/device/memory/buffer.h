/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of queues: a program that made its PD a parent domain with allocators of its own
 * (ibv_alloc_parent_domain) chooses where they lie. The receive rings of queue pairs are the
 * exception: peers read them, so they are in the public tables.
 */
#ifndef SW_DEVICE_MEMORY_BUFFER_H
#define SW_DEVICE_MEMORY_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct sw_pd;

/* What a program's allocator is told that the memory is for. */
enum sw_buffer_type { SW_BUFFER_QP = 1, SW_BUFFER_CQ, SW_BUFFER_SRQ };

/* len_bytes, not zeroed, on a cache line of its own; NULL: no memory. `pd` may be NULL. It must
 * live until the memory is freed. */
void *sw_buffer_alloc(struct sw_pd *pd, size_t len_bytes, enum sw_buffer_type type);
void sw_buffer_free(void *bytes); /* or NULL */

#endif
