/* SPDX-License-Identifier: BSD-2-Clause */
/* Conditions of cases that are functions from nothing to whether all was well. */
#ifndef SW_TESTS_KERNEL_EXPECT_H
#define SW_TESTS_KERNEL_EXPECT_H

#include <stdbool.h>
#include <stdio.h>

#define EXPECT(condition)                   \
    do {                                    \
        if (!(condition)) {                 \
            printf("    %s\n", #condition); \
            return false;                   \
        }                                   \
    } while (0)

#endif
