/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands that take long, in the target's model: what they leave of memory, that others are served
 * between their slices, and how they end early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "nvme/target/backend/zeroing.h"
#include "nvme/target/model/ctrl.h"
#include "test_model_host.h"

enum { NSID = 2, BLOCK = 512, PAGE = 4096, RANGES = 256, DATA = 1 << 20 };
#define SIZE ((uint64_t)16 << 20)

static struct nvt_namespace *ns;
static uint8_t *memory;

static int setup_memory(void **state)
{
    const struct nvt_backend_setup open = {.size_bytes = SIZE, .block_bytes = BLOCK};
    const struct nvt_config_namespace config = {.nsid = NSID};
    struct nvt_backend *backend;
    char error[128];
    setup(state);
    assert_int_equal(nvt_backend_find("ram")->open(&open, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_namespace_add(subsystem, &config, backend, &ns), 0);
    memory = backend->memory;
    begin();
    return 0;
}

/* Pages that take memory. */
static int pages_in(uint64_t offset, uint64_t len_bytes)
{
    static uint8_t states[SIZE / PAGE];
    int count = 0;
    assert_int_equal(mincore(memory + offset, len_bytes, states), 0);
    for (uint64_t i = 0; i < len_bytes / PAGE; i++)
        count += states[i] & 1;
    return count;
}

static uint16_t deallocate(uint64_t offset, uint64_t len_bytes, uint32_t ranges)
{
    struct nvf_sqe sqe = command(nvme_cmd_dsm, NSID, DATA, ranges * 16);
    struct nvme_dsm_range *range = (struct nvme_dsm_range *)(host + DATA);
    for (uint32_t i = 0; i < ranges; i++)
        range[i] = (struct nvme_dsm_range){.nlb = htole32((uint32_t)(len_bytes / BLOCK)),
                                           .slba = htole64(offset / BLOCK)};
    sqe.cdw10 = htole32(ranges - 1);
    sqe.cdw11 = htole32(4);
    return say(&io_queue, &sqe);
}

static uint16_t write_zeroes(uint64_t offset, uint64_t len_bytes)
{
    struct nvf_sqe sqe = command(nvme_cmd_write_zeroes, NSID, 0, 0);
    sqe.cdw10 = htole32((uint32_t)(offset / BLOCK));
    sqe.cdw12 = htole32((uint32_t)(len_bytes / BLOCK - 1));
    return say(&io_queue, &sqe);
}

static bool run_slice(void)
{
    return nvt_slices_run(&target.threads[0].slices, 0);
}

static int run_slices(void)
{
    int count = 0;
    while (run_slice())
        count++;
    return count;
}

static bool is_all(uint8_t byte, uint64_t offset, uint64_t len_bytes)
{
    for (uint64_t i = offset; i < offset + len_bytes; i++)
        if (memory[i] != byte)
            return false;
    return true;
}

static void deallocate__what_was_never_written_takes_no_memory(void **state)
{
    (void)state;
    assert_int_equal(deallocate(0, SIZE, 1), 0);
    assert_int_equal(deallocate(BLOCK, SIZE - 2 * BLOCK, RANGES), 0);
    assert_int_equal(write_zeroes(3 * BLOCK, 65536 / 2 * BLOCK - 5 * BLOCK), 0);
    assert_int_equal(pages_in(0, SIZE), 0);
}

static void deallocate__gives_back_whole_pages_and_zeroes_edges(void **state)
{
    (void)state;
    const uint64_t from = PAGE + BLOCK, to = SIZE - PAGE - 3 * BLOCK;
    for (int zeroes = 0; zeroes < 2; zeroes++) {
        memset(memory, 0x5a, SIZE);
        assert_int_equal(pages_in(0, SIZE), SIZE / PAGE);
        assert_int_equal(zeroes ? write_zeroes(from, to - from) : deallocate(from, to - from, 1),
                         0);
        assert_int_equal(pages_in(0, SIZE), 4); /* with the edges in them */
        assert_true(is_all(0x5a, 0, from));
        assert_true(is_all(0, from, to - from));
        assert_true(is_all(0x5a, to, SIZE - to));
    }
}

static void deallocate__keeps_pages_that_a_nic_has_pinned(void **state)
{
    (void)state;
    memset(memory, 0x5a, SIZE);
    mover_region_pin(&ns->region);
    assert_int_equal(deallocate(0, SIZE, 1), 0);
    assert_int_equal(pages_in(0, SIZE), SIZE / PAGE);
    assert_true(is_all(0, 0, SIZE));
}

static void slices__others_are_served_between(void **state)
{
    (void)state;
    const struct nvf_sqe read = transfer(nvme_cmd_read, 0, 1, 4096);
    memset(memory, 0x5a, SIZE);
    slices_wait = true;
    assert_int_equal(deallocate(0, SIZE, RANGES), WAITS);
    const int before = answers;
    for (uint64_t i = 0; i < SIZE / NVT_ZEROING_BYTES; i++) {
        assert_int_equal(answers, before + (int)i);
        assert_int_equal(say(&io_queue, &read), 0);
        assert_true(run_slice());
    }
    assert_int_equal(run_slices(), RANGES - 1); /* holes, in a slice each */
    assert_int_equal(answers, before + (int)(SIZE / NVT_ZEROING_BYTES) + 1);
    assert_int_equal(status_before(0), 0);
    assert_true(is_all(0, 0, SIZE));
}

static void slices__operations_take_turns(void **state)
{
    (void)state;
    memset(memory, 0x5a, SIZE);
    slices_wait = true;
    assert_int_equal(deallocate(0, SIZE, 1), WAITS);
    assert_int_equal(deallocate(SIZE - NVT_ZEROING_BYTES, NVT_ZEROING_BYTES, 1), WAITS);
    const int before = answers;
    assert_true(run_slice());
    assert_int_equal(answers, before);
    assert_true(run_slice());
    assert_int_equal(answers, before + 1); /* of the short one */
    run_slices();
    assert_int_equal(answers, before + 2);
}

/* One host has many under way, which are long. */
static void slices__hosts_take_turns(void **state)
{
    (void)state;
    enum { MANY = 20, TURNS = 3 };
    struct nvt_queue admin2, queue2;
    make_queue(&admin2, 0);
    make_queue(&queue2, 1);
    begin_as(&admin2, &queue2, 2);
    memset(memory, 0x5a, SIZE);
    slices_wait = true;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(write_zeroes(0, SIZE / 2), WAITS);
    struct nvf_sqe sqe = command(nvme_cmd_write_zeroes, NSID, 0, 0);
    sqe.cdw10 = htole32((uint32_t)(SIZE / 2 / BLOCK));
    sqe.cdw12 = htole32(TURNS * NVT_ZEROING_BYTES / BLOCK - 1);
    assert_int_equal(say(&queue2, &sqe), WAITS);
    const int before = answers;
    for (int i = 0; i < 2 * TURNS; i++) {
        assert_int_equal(answers, before);
        assert_true(run_slice());
    }
    assert_int_equal(answers, before + 1);
    assert_true(is_all(0, SIZE / 2, TURNS * NVT_ZEROING_BYTES));
    run_slices();
    assert_int_equal(answers, before + 1 + MANY);
    assert_true(nvt_queue_gone(&queue2));
    assert_true(nvt_queue_gone(&admin2));
}

/* One address has many hosts, each with a long command. */
static void slices__addresses_take_turns(void **state)
{
    (void)state;
    enum { HOSTS = 8, TURNS = 3 };
    static struct nvt_queue admins[HOSTS + 1], queues[HOSTS + 1]; /* too large for a frame */
    struct nvf_sqe sqe = command(nvme_cmd_write_zeroes, NSID, 0, 0);
    memset(memory, 0x5a, SIZE);
    slices_wait = true;
    for (int i = 0; i <= HOSTS; i++) {
        const char *address = i < HOSTS ? "192.0.2.3" : "192.0.2.4";
        make_queue_from(&admins[i], 0, address);
        make_queue_from(&queues[i], 1, address);
        begin_as(&admins[i], &queues[i], (uint8_t)(i + 2));
        sqe.cdw10 = htole32(i < HOSTS ? 0 : SIZE / 2 / BLOCK);
        sqe.cdw12 =
            htole32((i < HOSTS ? (uint32_t)SIZE / 2 : TURNS * NVT_ZEROING_BYTES) / BLOCK - 1);
        assert_int_equal(say(&queues[i], &sqe), WAITS);
    }
    const int before = answers;
    for (int i = 0; i < 2 * TURNS; i++) {
        assert_int_equal(answers, before);
        assert_true(run_slice());
    }
    assert_int_equal(answers, before + 1);
    assert_true(is_all(0, SIZE / 2, TURNS * NVT_ZEROING_BYTES));
    run_slices();
    assert_int_equal(answers, before + 1 + HOSTS);
    for (int i = 0; i <= HOSTS; i++) {
        assert_true(nvt_queue_gone(&queues[i]));
        assert_true(nvt_queue_gone(&admins[i]));
    }
}

static void begin_long_command(void)
{
    memset(memory, 0x5a, SIZE);
    slices_wait = true;
    assert_int_equal(deallocate(0, SIZE, RANGES), WAITS);
    assert_true(run_slice());
}

static void check_it_has_ended(int slices)
{
    assert_int_equal(run_slices(), slices);
    assert_int_equal(io_queue.under_way, 0);
}

static void slices__end_with_their_queue(void **state)
{
    (void)state;
    begin_long_command();
    assert_true(nvt_queue_gone(&io_queue));
    check_it_has_ended(0);
    assert_true(is_all(0x5a, NVT_ZEROING_BYTES, SIZE - NVT_ZEROING_BYTES));
}

static uint32_t looks;

static uint16_t count_look(const struct nvt_io *io)
{
    (void)io;
    looks++;
    return 0;
}

static bool take_place(struct nvt_io *io)
{
    (void)io;
    nvt_lines_take(&target.threads[0].compares.lines);
    return true;
}

/* An address may have a million commands wait at a disk, and end its queues one by one. */
static void queue__that_ends_has_no_others_looked_at(void **state)
{
    (void)state;
    struct nvt_io others[2 * NVT_PARTS_OF_ONE];
    for (int i = 0; i < 2 * NVT_PARTS_OF_ONE; i++) {
        others[i] = (struct nvt_io){.given_up = count_look};
        nvt_parts_add(&target.threads[0].compares, 7, &others[i], take_place);
    }
    begin_long_command();
    looks = 0;
    assert_true(nvt_queue_gone(&io_queue));
    assert_int_equal(looks, 0);
}

static void slices__end_with_their_namespace(void **state)
{
    (void)state;
    begin_long_command();
    nvt_namespace_remove(ns);
    check_it_has_ended(1); /* and the namespace goes: the sanitizer tells */
    assert_int_equal(status_before(0), NVME_SC_INVALID_NS | NVME_SC_DNR);
    assert_int_equal(target.serial, 0);
}

static uint16_t reserve(struct nvt_queue *queue, uint8_t opcode, uint32_t cdw10, uint64_t key,
                        uint64_t other)
{
    const __le64 keys[2] = {htole64(key), htole64(other)};
    struct nvf_sqe sqe = command(opcode, NSID, 0, sizeof(keys));
    sqe.cdw10 = htole32(cdw10);
    memcpy(capsule, keys, sizeof(keys));
    nvf_sgl_set_in_capsule(&sqe, sizeof(keys));
    return say_with(queue, &sqe, sizeof(keys));
}

static void slices__end_when_their_host_is_fenced(void **state)
{
    (void)state;
    enum { WERO = 3, PREEMPT_AND_ABORT = 2 };
    struct nvt_queue admin2, queue2;
    make_queue(&admin2, 0);
    make_queue(&queue2, 1);
    begin_as(&admin2, &queue2, 2);
    assert_int_equal(reserve(&io_queue, nvme_cmd_resv_register, 0, 0, 10), 0);
    assert_int_equal(reserve(&queue2, nvme_cmd_resv_register, 0, 0, 20), 0);
    assert_int_equal(reserve(&queue2, nvme_cmd_resv_acquire, WERO << 8, 20, 0), 0);
    begin_long_command();
    assert_int_equal(reserve(&queue2, nvme_cmd_resv_acquire, PREEMPT_AND_ABORT | WERO << 8, 20, 10),
                     WAITS);
    const int before = answers;
    check_it_has_ended(1);
    assert_int_equal(answers, before + 2);
    assert_true(is_all(0x5a, NVT_ZEROING_BYTES, SIZE - NVT_ZEROING_BYTES));
    assert_true(nvt_queue_gone(&queue2));
    assert_true(nvt_queue_gone(&admin2));
}

static void identify__tells_limits(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    const struct nvme_id_ctrl_nvm *id = (const struct nvme_id_ctrl_nvm *)(host + DATA);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CSI_CTRL);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_equal(id->wzsl, 13);
    assert_int_equal(id->vsl, 13);
    assert_int_equal(id->dmrl, 255);
    assert_int_equal(le32toh(id->dmrsl), 1 << 18);
    assert_int_equal(le64toh(id->dmsl), 1 << 20);
    sqe.cdw11 = htole32(2u << 24); /* zoned */
    assert_int_equal(say(&admin, &sqe), NVME_SC_INVALID_FIELD | NVME_SC_DNR);
}

/* One that looks for each number in each list takes long where there are many. */
static void identify__lists_controllers_by_number(void **state)
{
    (void)state;
    struct nvt_queue others[3];
    uint16_t numbers[3], found[3];
    for (int i = 0; i < 3; i++) {
        make_queue(&others[i], 0);
        subsystem->next_cntlid = (uint16_t)(300 - i * 100 - 1); /* they come the other way round */
        assert_int_equal(connect_as(&others[i], NQN, 0xffff, (uint8_t)(i + 2)), 0);
        numbers[i] = others[i].ctrl->instance.cntlid;
    }
    const struct nvme_ctrl_list *list = (const struct nvme_ctrl_list *)(host + DATA);
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL_LIST);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_equal(le16toh(list->num), 4);
    for (int i = 0; i < 3; i++)
        found[i] = le16toh(list->identifier[3 - i]);
    assert_memory_equal(found, numbers, sizeof(found));
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL_LIST | (uint32_t)numbers[1] << 16);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_equal(le16toh(list->num), 2);
    assert_int_equal(le16toh(list->identifier[0]), numbers[1]);
    for (int i = 0; i < 3; i++)
        assert_true(nvt_queue_gone(&others[i]));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_memory, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(deallocate__what_was_never_written_takes_no_memory),
        CASE(deallocate__gives_back_whole_pages_and_zeroes_edges),
        CASE(deallocate__keeps_pages_that_a_nic_has_pinned),
        CASE(slices__others_are_served_between),
        CASE(slices__operations_take_turns),
        CASE(slices__hosts_take_turns),
        CASE(slices__addresses_take_turns),
        CASE(slices__end_with_their_queue),
        CASE(queue__that_ends_has_no_others_looked_at),
        CASE(slices__end_with_their_namespace),
        CASE(slices__end_when_their_host_is_fenced),
        CASE(identify__tells_limits),
        CASE(identify__lists_controllers_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
