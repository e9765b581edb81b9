/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers, a JSON object a line on the standard output, as soon as each is known: what a program
 * said before it hung or died is not lost. A line is written by one call, so several processes may
 * answer.
 */
#ifndef GPU_COMMON_ANSWER_H
#define GPU_COMMON_ANSWER_H

#include <stddef.h>
#include <stdint.h>

enum { ANSWER_FAILED = 3, ANSWER_SKIPPED = 77 };

/* The line {"what": WHAT, ...}, whose fields are set until answer_end() writes it. */
void answer_begin(const char *what);
void answer_number(const char *key, uint64_t value);
void answer_signed(const char *key, int64_t value);
void answer_real(const char *key, double value);
void answer_text(const char *key, const char *value);
/* A code of CUDA's, as its number, and its name under KEY_name. */
void answer_code(const char *key, int code);
/* A negative errno or 0, by number and name. */
void answer_errno(const char *key, int code);
void answer_end(void);

/* Ends the program: it cannot ask this here. */
_Noreturn void answer_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
