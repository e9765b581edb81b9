/* SPDX-License-Identifier: BSD-2-Clause */
/* The entry of a fuzz target, as libFuzzer calls it. */
#ifndef SW_TESTS_FUZZ_H
#define SW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
