/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ISA-L's code for AVX-512 leaves the upper halves of the vector registers in use, which makes all
 * SSE code after it several times slower (some 400 ns for each packet) until they are given up.
 */
#ifndef SW_WIRE_VECTOR_HALVES_H
#define SW_WIRE_VECTOR_HALVES_H

static inline void sw_vector_halves_release(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper");
#endif
}

#endif
