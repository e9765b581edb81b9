/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The default floating-point environment around a fold: nearest even, subnormals are numbers, no
 * traps. Programs set others (-ffast-math sets flush-to-zero at their start), perhaps on one rank
 * alone. Reading the register takes a nanosecond; it is written only where it differs.
 */
#ifndef SW_COLLECTIVES_FLOAT_ENV_H
#define SW_COLLECTIVES_FLOAT_ENV_H

#if defined(__SSE2__)

#include <xmmintrin.h>

struct float_env {
    unsigned control;
};

/* All exceptions masked; the lowest six bits are flags, which change nothing. */
enum { FLOAT_ENV_DEFAULT = 0x1f80, FLOAT_ENV_FLAGS = 0x3f };

static inline int float_env_differs(struct float_env env)
{
    return (env.control | FLOAT_ENV_FLAGS) != (FLOAT_ENV_DEFAULT | FLOAT_ENV_FLAGS);
}

static inline struct float_env float_env_enter(void)
{
    const struct float_env env = {_mm_getcsr()};
    if (float_env_differs(env))
        _mm_setcsr(FLOAT_ENV_DEFAULT);
    return env;
}

static inline void float_env_leave(struct float_env env)
{
    if (float_env_differs(env))
        _mm_setcsr(env.control);
}

#else

#include <fenv.h>

struct float_env {
    fenv_t saved;
};

static inline struct float_env float_env_enter(void)
{
    struct float_env env;
    fegetenv(&env.saved);
    fesetenv(FE_DFL_ENV);
    return env;
}

static inline void float_env_leave(struct float_env env)
{
    fesetenv(&env.saved);
}

#endif

#endif
