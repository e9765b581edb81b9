/* SPDX-License-Identifier: BSD-2-Clause */
/* What a test says of a crash: some are so rare that nobody sees them twice. */
#ifndef SW_TESTS_VERBS_UTIL_CRASH_H
#define SW_TESTS_VERBS_UTIL_CRASH_H

/* From now on a process that ends by SIGSEGV or SIGABRT prints the address, its thread and who
 * called whom. It ends by the signal all the same. With a sanitizer, which says so itself, it does
 * nothing. */
void vu_tell_of_crashes(void);

#endif
