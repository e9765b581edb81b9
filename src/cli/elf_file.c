/* SPDX-License-Identifier: BSD-2-Clause */
/* System V ABI, chapters 4 (object files) and 5 (program loading). */
#include "cli/elf_file.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#elif defined(__i386__)
#define OWN_MACHINE EM_386
#elif defined(__riscv)
#define OWN_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define OWN_MACHINE EM_PPC64
#elif defined(__s390x__)
#define OWN_MACHINE EM_S390
#endif

static const unsigned char own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
static const unsigned char own_data =
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;

/* Copies `size` bytes from `offset`, if the file has them. */
static bool elf_file_take_bytes(const void *bytes, size_t len_bytes, uint64_t offset, void *out,
                                size_t size)
{
    if (offset > len_bytes || size > len_bytes - offset)
        return false;
    memcpy(out, (const uint8_t *)bytes + offset, size);
    return true;
}

static enum sw_elf_kind kind_of_interpreter(const void *bytes, size_t len_bytes, uint64_t offset,
                                            uint64_t size)
{
    char name[256] = "";
    if (size == 0 || size > sizeof(name) ||
        !elf_file_take_bytes(bytes, len_bytes, offset, name, (size_t)size))
        return SW_ELF_DAMAGED;
    name[size - 1] = '\0';
    return strstr(name, "musl") ? SW_ELF_FOREIGN_LIBC : SW_ELF_DYNAMIC;
}

/* Tells a static-pie from a shared object: both have a dynamic section and no interpreter. */
static bool is_marked_pie(const void *bytes, size_t len_bytes, uint64_t offset, uint64_t size)
{
    ElfW(Dyn) entry;
    for (uint64_t at = 0; at + sizeof(entry) <= size; at += sizeof(entry)) {
        if (!elf_file_take_bytes(bytes, len_bytes, offset + at, &entry, sizeof(entry)) ||
            entry.d_tag == DT_NULL)
            return false;
        if (entry.d_tag == DT_FLAGS_1)
            return (entry.d_un.d_val & DF_1_PIE) != 0;
    }
    return false;
}

enum sw_elf_kind sw_elf_inspect(const void *bytes, size_t len_bytes)
{
    unsigned char ident[EI_NIDENT];
    if (!elf_file_take_bytes(bytes, len_bytes, 0, ident, sizeof(ident)) ||
        memcmp(ident, ELFMAG, SELFMAG))
        return SW_ELF_NOT_ELF;
    if (ident[EI_CLASS] != own_class || ident[EI_DATA] != own_data)
        return SW_ELF_FOREIGN_MACHINE;

    ElfW(Ehdr) head;
    if (!elf_file_take_bytes(bytes, len_bytes, 0, &head, sizeof(head)))
        return SW_ELF_DAMAGED;
#ifdef OWN_MACHINE
    if (head.e_machine != OWN_MACHINE)
        return SW_ELF_FOREIGN_MACHINE;
#endif
    if (head.e_phentsize != sizeof(ElfW(Phdr)))
        return SW_ELF_DAMAGED;

    bool is_library = false;
    for (uint64_t i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) part;
        if (head.e_phoff > len_bytes ||
            !elf_file_take_bytes(bytes, len_bytes, head.e_phoff + i * sizeof(part), &part,
                                 sizeof(part)))
            return SW_ELF_DAMAGED;
        if (part.p_type == PT_INTERP)
            return kind_of_interpreter(bytes, len_bytes, part.p_offset, part.p_filesz);
        if (part.p_type == PT_DYNAMIC && part.p_offset <= len_bytes)
            is_library = !is_marked_pie(bytes, len_bytes, part.p_offset, part.p_filesz);
    }
    return is_library && head.e_type == ET_DYN ? SW_ELF_LIBRARY : SW_ELF_STATIC;
}
