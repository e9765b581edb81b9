/* SPDX-License-Identifier: BSD-2-Clause */
/* The client library of pmem without a network: regions in memory, which tests stop and start. The
 * address of a region is its number. */
#ifndef SW_TEST_PMEM_FAKE_H
#define SW_TEST_PMEM_FAKE_H

#include "sidewire/pmem_log.h"

enum { FAKE_REGIONS = 3, FAKE_BYTES = 16384 };

/* All regions are there, and hold nothing. */
void fake_reset(void);
/* Its server is gone: chains under way end as "maybe done", with a part of them done. */
void fake_stop(unsigned region);
void fake_start(unsigned region);
/* So many chains of its clients end yet, and those after them wait. */
void fake_hold(unsigned region, unsigned chains);
void fake_release(unsigned region);
uint8_t *fake_bytes(unsigned region);

#endif
