/* SPDX-License-Identifier: BSD-2-Clause */
/* Parameters of MPI's names as whole words: they are passed on as they came. */
#ifndef SW_BINDINGS_MPI_WORDS_H
#define SW_BINDINGS_MPI_WORDS_H

#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uintptr_t word;

typedef int call_1(word a);
typedef int call_2(word a, word b);
typedef int call_5(word a, word b, word c, word d, word e);
typedef int call_6(word a, word b, word c, word d, word e, word f);
typedef int call_7(word a, word b, word c, word d, word e, word f, word g);
typedef int call_8(word a, word b, word c, word d, word e, word f, word g, word h);
typedef int call_9(word a, word b, word c, word d, word e, word f, word g, word h, word i);
typedef int call_10(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j);

#endif
