/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's memory as commands name it. A kernel answers EFAULT where an address is bad; so do
 * we, instead of dying of it.
 */
#ifndef SW_RDMACM_COMMANDS_USER_H
#define SW_RDMACM_COMMANDS_USER_H

#include <stddef.h>
#include <stdint.h>

/* 0 or -EFAULT. */
int sw_user_read(void *to, uint64_t from, size_t len_bytes);
int sw_user_write(uint64_t to, const void *from, size_t len_bytes);

#endif
