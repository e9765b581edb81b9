/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes may be given to `sidewire run` as a program. */
#include "cli/elf_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum sw_elf_kind kind = sw_elf_inspect(data, size);
    if (kind > SW_ELF_DAMAGED || (size < 16 && kind != SW_ELF_NOT_ELF))
        __builtin_trap();
    return 0;
}
