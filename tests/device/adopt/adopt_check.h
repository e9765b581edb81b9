/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of page adoption look at and do again and again. */
#ifndef SW_TESTS_ADOPT_CHECK_H
#define SW_TESTS_ADOPT_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/rules/pub.h"

#define PAGE 4096ul
#define MIB (1024ul * 1024)
#define EXTENTS_MAX 16

/* How peers may map what the tests adopt: it lies in an arena; or, where ADOPT_OWN_FILES is set, in
 * files of its own. */
extern enum sw_handed_out adopt_handed;

/* Runs fn in a child process, so that environment, filters and limits end with it. fn returns 0
 * when all is well. The status, or 128 + the signal that killed it; never waits longer than a
 * minute. */
int run_in_child(int (*fn)(void *arg), void *arg);

/* Becomes an ordinary user, if this is root, whose /proc/self is readable. */
void become_nobody(void);

/* Private anonymous memory; each 8-byte word holds a value of its own. */
uint8_t *buffer_new(size_t len);
void words_fill(uint8_t *base, size_t len, uint64_t seed);
/* The first word that differs, as an index; SIZE_MAX if none does. */
size_t words_differ(const uint8_t *base, size_t len, uint64_t seed);

int open_descriptors(void); /* without those of the monitor */
/* How many mappings [base, base + len) consists of, and whether all of them are private anonymous
 * memory. */
int mappings_within(const void *base, size_t len, bool *all_private);
uint64_t file_bytes(int fd); /* that the file takes in memory */

#endif
