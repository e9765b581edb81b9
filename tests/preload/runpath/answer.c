/* SPDX-License-Identifier: BSD-2-Clause */
/* A library in a folder that only the RUNPATH of test_dlopen names. */
__attribute__((visibility("default"))) int runpath_answer(void);

int runpath_answer(void)
{
    return 42;
}
