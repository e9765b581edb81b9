/* SPDX-License-Identifier: BSD-2-Clause */
/* What an ELF file says about whether a library can be preloaded into it. Pure: works on bytes,
 * trusts none of them. */
#ifndef SW_CLI_ELF_FILE_H
#define SW_CLI_ELF_FILE_H

#include <stddef.h>

enum sw_elf_kind {
    SW_ELF_NOT_ELF,
    SW_ELF_DYNAMIC, /* has an interpreter of the C library that this command runs on */
    SW_ELF_LIBRARY, /* a shared object; also the dynamic loader itself */
    SW_ELF_STATIC,
    SW_ELF_FOREIGN_MACHINE, /* other word size or processor than this command */
    SW_ELF_FOREIGN_LIBC,    /* another C library's loader, such as musl's */
    SW_ELF_DAMAGED,
};

enum sw_elf_kind sw_elf_inspect(const void *bytes, size_t len_bytes);

#endif
