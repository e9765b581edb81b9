// SPDX-License-Identifier: BSD-2-Clause
// An MPI program that looks at all of its data: what its parts share. `mpi_all DEVICE` is run by
// mpi.py.
#pragma once

#include <stdint.h>

enum { RANKS_MAX = 8 };

extern int rank;
extern int ranks;
extern uint64_t sent_bytes; // by this rank to others, at the least

#define check(what, ...) ((what) ? (void)checks++ : end_in_failure(__VA_ARGS__))
extern uint64_t checks;
__attribute__((noreturn, format(printf, 1, 2))) void end_in_failure(const char *format, ...);

// Bytes that tell whose they are and where they belong.
void fill_bytes(unsigned char *data, int whose, int len);
void check_bytes(const unsigned char *data, int whose, int len, const char *what);

void check_sends(void);
void check_one_sided(void);
void check_collectives(void);
