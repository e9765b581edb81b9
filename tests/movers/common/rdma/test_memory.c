/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of each kind, with a device that the tests play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/rdma/memory.h"

/* ---- the device ---- */

enum { TRIES = 4, PAGES = 3 };

static struct ibv_pd pd;
static struct ibv_mr made;
static int refuses[TRIES]; /* errno of each registration in turn; 0: it is taken */
static struct {
    uint64_t address, bytes, offset;
    int access, fd; /* fd: -1 but for a DMA buffer */
} tried[TRIES];
static uint32_t tries;

static struct ibv_mr *take_registration(uint64_t address, uint64_t bytes, int access)
{
    assert_true(tries < TRIES);
    tried[tries].address = address;
    tried[tries].bytes = bytes;
    tried[tries].access = access;
    tried[tries].fd = -1;
    errno = refuses[tries++];
    return errno ? NULL : &made;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *of, void *address, size_t bytes, int access)
{
    assert_ptr_equal(of, &pd);
    return take_registration((uintptr_t)address, bytes, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *of, void *address, size_t bytes, uint64_t iova,
                                unsigned access)
{
    assert_ptr_equal(of, &pd);
    assert_int_equal(iova, (uintptr_t)address);
    return take_registration(iova, bytes, (int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *of, uint64_t offset, size_t bytes, uint64_t iova,
                                 int fd, int access)
{
    assert_ptr_equal(of, &pd);
    struct ibv_mr *mr = take_registration(iova, bytes, access);
    tried[tries - 1].offset = offset;
    tried[tries - 1].fd = fd;
    return mr;
}

/* ---- files ---- */

static long page;
static char content[PAGES];
static int file_to_read, file_to_write;

static int set_up(void **state)
{
    (void)state;
    char path[] = "/tmp/test_movers_memory_XXXXXX";
    page = sysconf(_SC_PAGESIZE);
    memset(refuses, 0, sizeof(refuses));
    tries = 0;
    file_to_write = mkstemp(path);
    file_to_read = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    for (int i = 0; i < PAGES; i++) {
        content[i] = (char)('a' + i);
        if (pwrite(file_to_write, &content[i], 1, i * page) != 1)
            return -1;
    }
    return file_to_read < 0 || ftruncate(file_to_write, PAGES * page);
}

static int tear_down(void **state)
{
    (void)state;
    close(file_to_read);
    close(file_to_write);
    return 0;
}

/* ---- */

static void pages__are_whole_and_zero(void **state)
{
    (void)state;
    uint8_t *data = mover_pages((size_t)page + 1);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % (uintptr_t)page, 0);
    for (long i = 0; i < 2 * page; i++)
        assert_int_equal(data[i], 0);
    free(data);
}

static void register__asks_for_the_most_first(void **state)
{
    char data[64];
    struct mover_memory memory = mover_memory_host(data, sizeof(data));
    (void)state;
    refuses[0] = EINVAL;
    assert_ptr_equal(mover_memory_register(&memory, &pd, IBV_ACCESS_MW_BIND), &made);
    assert_int_equal(tries, 2);
    assert_int_equal(tried[0].access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    assert_int_equal(tried[1].access, IBV_ACCESS_LOCAL_WRITE);
    assert_int_equal(tried[1].address, (uintptr_t)data);
    assert_int_equal(tried[1].bytes, sizeof(data));
    assert_true(memory.is_writable);
}

static void register__notes_host_memory_that_can_only_be_read(void **state)
{
    char data[64];
    struct mover_memory memory = mover_memory_host(data, sizeof(data));
    (void)state;
    refuses[0] = EFAULT;
    assert_ptr_equal(mover_memory_register(&memory, &pd, 0), &made);
    assert_int_equal(tries, 2);
    assert_int_equal(tried[1].access, 0);
    assert_false(memory.is_writable);
}

static void register__says_why_nothing_helps(void **state)
{
    char data[64];
    struct mover_memory memory = mover_memory_host(data, sizeof(data));
    (void)state;
    refuses[0] = refuses[1] = ENOMEM;
    assert_null(mover_memory_register(&memory, &pd, 0));
    assert_int_equal(errno, ENOMEM);
    assert_true(memory.is_writable); /* that was not why */
}

static void register_part__has_these_rights_alone(void **state)
{
    char data[64];
    const struct mover_memory memory = mover_memory_host(data, sizeof(data));
    (void)state;
    assert_ptr_equal(mover_memory_register_part(&memory, &pd, 8, 16, IBV_ACCESS_REMOTE_READ),
                     &made);
    assert_int_equal(tried[0].address, (uintptr_t)data + 8);
    assert_int_equal(tried[0].bytes, 16);
    assert_int_equal(tried[0].access, IBV_ACCESS_REMOTE_READ);
}

static void file__is_mapped_from_its_page_to_its_end(void **state)
{
    struct mover_memory memory;
    char byte;
    (void)state;
    assert_int_equal(mover_memory_file(&memory, file_to_write, (uint64_t)page, 0, true), 0);
    assert_int_equal(memory.bytes, (PAGES - 1) * page);
    assert_int_equal(*(char *)memory.data, content[1]);
    *(char *)memory.data = 'x'; /* shared with the file */
    assert_int_equal(pread(file_to_read, &byte, 1, page), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(memory.fd, -1);
    mover_memory_close(&memory);
    mover_memory_close(&memory); /* of nothing */
}

static void file__part_that_is_none_of_it(void **state)
{
    struct mover_memory memory;
    const uint64_t whole = (uint64_t)(PAGES * page);
    (void)state;
    assert_int_equal(mover_memory_file(&memory, file_to_read, whole, 0, false), -EINVAL);
    assert_int_equal(mover_memory_file(&memory, file_to_read, 0, whole + 1, false), -EINVAL);
    assert_int_equal(mover_memory_file(&memory, file_to_read, 1, 1, false), -EINVAL);
    assert_int_equal(mover_memory_file(&memory, -1, 0, 0, false), -EBADF);
    assert_int_equal(mover_memory_file(&memory, file_to_read, 0, 0, true), -EACCES);
}

/* As Linux up to 6.1 does with shared pages that are only read. */
static void file__is_mapped_privately_where_the_device_wants_to_write(void **state)
{
    struct mover_memory memory;
    (void)state;
    assert_int_equal(mover_memory_file(&memory, file_to_read, (uint64_t)page, 1, false), 0);
    const void *before = memory.data;
    refuses[0] = EFAULT;
    assert_ptr_equal(mover_memory_register(&memory, &pd, 0), &made);
    assert_int_equal(tries, 2);
    assert_int_equal(tried[1].access, 0);
    assert_ptr_equal(memory.data, before);
    assert_int_equal(*(const char *)memory.data, content[1]);
    tries = 0;
    refuses[0] = ENOMEM; /* which no other mapping would help */
    assert_null(mover_memory_register(&memory, &pd, 0));
    assert_int_equal(tries, 1);
    mover_memory_close(&memory);
}

static void dmabuf__has_its_own_descriptor(void **state)
{
    struct mover_memory memory;
    (void)state;
    assert_int_equal(mover_memory_dmabuf(&memory, -1, 0, 1), -EBADF);
    assert_int_equal(mover_memory_dmabuf(&memory, file_to_read, 0, 0), -EINVAL);
    assert_int_equal(mover_memory_dmabuf(&memory, file_to_read, 4096, 8192), 0);
    const int fd = memory.fd;
    assert_int_not_equal(fd, file_to_read);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_ptr_equal(mover_memory_register_part(&memory, &pd, 100, 200, 0), &made);
    assert_int_equal(tried[0].fd, fd);
    assert_int_equal(tried[0].offset, 4196);
    assert_int_equal(tried[0].address, 4196);
    mover_memory_close(&memory);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void cuda__without_a_driver(void **state)
{
    struct mover_memory memory;
    (void)state;
    const int code = mover_memory_cuda(&memory, 0x10000, 4096);
    assert_true(code == -ENODEV || code == -EOPNOTSUPP);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pages__are_whole_and_zero),
        CASE(register__asks_for_the_most_first),
        CASE(register__notes_host_memory_that_can_only_be_read),
        CASE(register__says_why_nothing_helps),
        CASE(register_part__has_these_rights_alone),
        CASE(file__is_mapped_from_its_page_to_its_end),
        CASE(file__part_that_is_none_of_it),
        CASE(file__is_mapped_privately_where_the_device_wants_to_write),
        CASE(dmabuf__has_its_own_descriptor),
        CASE(cuda__without_a_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
