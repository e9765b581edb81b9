/* SPDX-License-Identifier: BSD-2-Clause */
/* What elf_file.c says of images made up here, and of this test itself; damage never leads it out
 * of the bytes it was given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/elf_file.h"

struct image {
    ElfW(Ehdr) head;
    ElfW(Phdr) parts[2];
    ElfW(Dyn) dynamic[2];
    char interpreter[32];
};

/* A shared object: header, one dynamic section, no interpreter. The bytes after `head` start at
 * this program's own header. */
static struct image make_image(void)
{
    struct image image = {0};
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &image.head, sizeof(image.head)), sizeof(image.head));
    close(fd);
    image.head.e_type = ET_DYN;
    image.head.e_phoff = offsetof(struct image, parts);
    image.head.e_phnum = 2;
    image.parts[0].p_type = PT_NULL;
    image.parts[1] = (ElfW(Phdr)){.p_type = PT_DYNAMIC,
                                  .p_offset = offsetof(struct image, dynamic),
                                  .p_filesz = sizeof(image.dynamic)};
    image.dynamic[0].d_tag = DT_FLAGS_1;
    return image;
}

static void set_interpreter(struct image *image, const char *name)
{
    strcpy(image->interpreter, name);
    image->parts[0] = (ElfW(Phdr)){.p_type = PT_INTERP,
                                   .p_offset = offsetof(struct image, interpreter),
                                   .p_filesz = strlen(name) + 1};
}

static void elf_file__not_elf(void **state)
{
    (void)state;
    assert_int_equal(sw_elf_inspect("", 0), SW_ELF_NOT_ELF);
    assert_int_equal(sw_elf_inspect("#!/bin/sh\nexit 0\n   ", 20), SW_ELF_NOT_ELF);
    assert_int_equal(sw_elf_inspect("\177ELF", 4), SW_ELF_NOT_ELF);
}

static void elf_file__itself(void **state)
{
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    assert_int_equal(sw_elf_inspect(bytes, (size_t)info.st_size), SW_ELF_DYNAMIC);
    munmap(bytes, (size_t)info.st_size);
    close(fd);
}

static void elf_file__library(void **state)
{
    (void)state;
    struct image image = make_image();
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_LIBRARY);
}

static void elf_file__static_pie(void **state)
{
    (void)state;
    struct image image = make_image();
    image.dynamic[0].d_un.d_val = DF_1_PIE;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_STATIC);
}

static void elf_file__static(void **state)
{
    (void)state;
    struct image image = make_image();
    image.head.e_type = ET_EXEC;
    image.parts[1].p_type = PT_LOAD;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_STATIC);
}

static void elf_file__interpreter(void **state)
{
    (void)state;
    struct image image = make_image();
    set_interpreter(&image, "/lib64/ld-linux-x86-64.so.2");
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_DYNAMIC);
    set_interpreter(&image, "/lib/ld-musl-x86_64.so.1");
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_FOREIGN_LIBC);
}

static void elf_file__foreign_machine(void **state)
{
    (void)state;
    struct image image = make_image();
    image.head.e_machine = EM_MIPS;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_FOREIGN_MACHINE);
    image = make_image();
    image.head.e_ident[EI_CLASS] ^= ELFCLASS32 ^ ELFCLASS64;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_FOREIGN_MACHINE);
}

static void elf_file__damaged(void **state)
{
    (void)state;
    struct image image = make_image();
    image.head.e_phoff = UINT64_MAX - 8;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_DAMAGED);
    image = make_image();
    image.head.e_phnum = UINT16_MAX;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_DAMAGED);
    image = make_image();
    set_interpreter(&image, "x");
    image.parts[0].p_offset = sizeof(image);
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_DAMAGED);
    image.parts[0].p_offset = offsetof(struct image, interpreter);
    image.parts[0].p_filesz = UINT64_MAX;
    assert_int_equal(sw_elf_inspect(&image, sizeof(image)), SW_ELF_DAMAGED);
}

/* Each prefix in its own allocation, so that a sanitizer sees a read past the end. */
static void elf_file__cut_anywhere(void **state)
{
    (void)state;
    struct image image = make_image();
    set_interpreter(&image, "/lib64/ld-linux-x86-64.so.2");
    for (size_t len = 0; len < sizeof(image); len++) {
        void *copy = malloc(len ? len : 1);
        assert_non_null(copy);
        memcpy(copy, &image, len);
        enum sw_elf_kind kind = sw_elf_inspect(copy, len);
        free(copy);
        if (len < EI_NIDENT)
            assert_int_equal(kind, SW_ELF_NOT_ELF);
        else if (len < offsetof(struct image, interpreter) + 28)
            assert_int_equal(kind, SW_ELF_DAMAGED);
        else
            assert_int_equal(kind, SW_ELF_DYNAMIC);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elf_file__not_elf),         cmocka_unit_test(elf_file__itself),
        cmocka_unit_test(elf_file__library),         cmocka_unit_test(elf_file__static_pie),
        cmocka_unit_test(elf_file__static),          cmocka_unit_test(elf_file__interpreter),
        cmocka_unit_test(elf_file__foreign_machine), cmocka_unit_test(elf_file__damaged),
        cmocka_unit_test(elf_file__cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
