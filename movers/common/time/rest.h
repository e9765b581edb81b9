/* SPDX-License-Identifier: BSD-2-Clause */
/* The pause between two looks at memory that another processor writes. */
#ifndef SW_MOVERS_REST_H
#define SW_MOVERS_REST_H

static inline void mover_rest_shortly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
