/* SPDX-License-Identifier: BSD-2-Clause */
/* What the cases about regions share: one side tells its key, and the other tries it. */
#ifndef SW_TESTS_SEMANTICS_SEM_REGION_H
#define SW_TESTS_SEMANTICS_SEM_REGION_H

#include "sem.h"

#define WRITTEN 0xa1
#define LOCAL_AND(rights) (IBV_ACCESS_LOCAL_WRITE | (rights))

/* Writes once 4096 bytes of WRITTEN by this key; how it ended. */
enum ibv_wc_status region_try_write(struct rig *rig, uint64_t wr_id, const struct vu_key *key);
void region_tell_key(int sock, const struct ibv_mr *mr);
struct vu_key region_hear_key(int sock);
/* All bytes there have this value. */
void region_full_bytes(const uint8_t *at, size_t len_bytes, uint8_t value);

#endif
