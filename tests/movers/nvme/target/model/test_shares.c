/* SPDX-License-Identifier: BSD-2-Clause */
/* Hosts that take nothing beside hosts that do: what each may hold, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/memory.h"
#include "test_model_host.h"

/* Blocks of 4 KiB of a request; those of one host that find room in the pool of 4 MiB. */
enum { BLOCKS = 16, HELD_MAX = 48 };
#define SECOND_NS 1000000000ull

/* Beside the host of the test's admin and io_queue. */
struct side_host {
    struct nvt_queue admin, io;
};

static struct side_host near, far;
static struct nvt_request *held[HELD_MAX];

static void add_null(uint64_t bytes)
{
    const struct nvt_backend_setup backing = {.size_bytes = bytes};
    const struct nvt_config_namespace config = {.nsid = 1};
    struct nvt_backend *backend;
    char error[128];
    nvt_namespace_remove(subsystem->namespaces[1]);
    assert_int_equal(nvt_backend_find("null")->open(&backing, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_namespace_add(subsystem, &config, backend, NULL), 0);
}

static void begin_side(struct side_host *side, const char *address, uint8_t host_id)
{
    make_queue_from(&side->admin, 0, address);
    make_queue_from(&side->io, 1, address);
    begin_as(&side->admin, &side->io, host_id);
}

static int setup_hosts(void **state)
{
    setup(state);
    target.threads[0].now_ns = 0;
    add_null(8 << 20);
    begin();
    begin_side(&near, "192.0.2.2", 2);
    begin_side(&far, "192.0.2.3", 3);
    return 0;
}

static void end_side(struct side_host *side)
{
    assert_true(nvt_queue_gone(&side->io));
    assert_true(nvt_queue_gone(&side->admin));
}

static int teardown_hosts(void **state)
{
    end_side(&near);
    end_side(&far);
    return teardown(state);
}

static struct nvf_sqe write_some(void)
{
    return transfer(nvme_cmd_write, 0, BLOCKS, 0);
}

/* The first host writes, and its data does not come, until it finds no memory. */
static int hold_all(void)
{
    const struct nvf_sqe sqe = write_some();
    int count = 0;
    holds = true;
    for (;;) {
        fetching = NULL;
        assert_int_equal(say(&io_queue, &sqe), WAITS);
        if (!fetching)
            return count;
        assert_true(count < HELD_MAX);
        held[count++] = fetching;
    }
}

/* The host's data has come; who waits for memory goes on by that. */
static void data_comes(struct nvt_request *request)
{
    nvt_request_fetched(request, true);
    nvt_thread_feed(&target.threads[0], true);
}

static void let_go(int count)
{
    holds = false;
    for (int i = 0; i < count; i++)
        data_comes(held[i]);
}

static void share__a_host_whose_data_does_not_come_leaves_memory(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = write_some();
    const int count = hold_all();
    holds = false;
    assert_int_equal(count, HELD_MAX);
    assert_int_equal(say(&far.io, &sqe), 0);
    nvt_thread_feed(&target.threads[0], true);
    assert_int_equal(say(&near.io, &sqe), 0); /* at the same address */
    let_go(count);
}

static void share__a_host_that_takes_no_answers_leaves_memory(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, BLOCKS, 0);
    int count = 0;
    holds_answers = true;
    for (answering = NULL; count < HELD_MAX; answering = NULL) {
        assert_int_equal(say(&io_queue, &sqe), WAITS);
        if (!answering)
            break;
        held[count++] = answering;
    }
    holds_answers = false;
    assert_int_equal(say(&far.io, &sqe), 0);
    for (int i = 0; i < count; i++)
        nvt_request_end(held[i]);
}

/* All hosts of one address leave an eighth. */
static void share__hosts_of_one_address_leave_memory_for_others(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = write_some();
    const int count = hold_all();
    struct nvt_request *of_near[HELD_MAX];
    int near_count = 0;
    for (fetching = NULL;; fetching = NULL) {
        assert_int_equal(say(&near.io, &sqe), WAITS);
        if (!fetching)
            break;
        of_near[near_count++] = fetching;
    }
    holds = false;
    assert_in_range(near_count, 1, HELD_MAX / 4);
    assert_true(target.threads[0].pool.free_bytes >= (4 << 20) / 8);
    assert_int_equal(say(&far.io, &sqe), 0);
    let_go(count);
    for (int i = 0; i < near_count; i++)
        data_comes(of_near[i]);
}

/* A pool without a free byte, whoever has it. */
static void share__connect_and_admin_commands_need_none_of_the_pool(void **state)
{
    (void)state;
    struct side_host late;
    uint8_t *pieces[4];
    for (int i = 0; i < 4; i++)
        pieces[i] = mover_pool_take(&target.threads[0].pool, 1 << 20);
    assert_null(mover_pool_take(&target.threads[0].pool, 1));
    begin_side(&late, "192.0.2.4", 4);
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    assert_int_equal(say(&late.admin, &sqe), 0);
    end_side(&late);
    for (int i = 0; i < 4; i++)
        mover_pool_give(&target.threads[0].pool, pieces[i]);
}

/* More of them than the queue has places: they wait for each other. */
static void places__are_taken_in_turn(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    struct nvt_request *identifies[NVT_PLACES_ADMIN];
    holds_answers = true;
    for (int i = 0; i < NVT_PLACES_ADMIN; i++) {
        assert_int_equal(say(&admin, &sqe), WAITS);
        identifies[i] = answering;
    }
    answering = NULL;
    assert_int_equal(say(&admin, &sqe), WAITS);
    assert_null(answering);
    nvt_request_end(identifies[1]);
    nvt_thread_feed(&target.threads[0], true);
    assert_non_null(answering);
    assert_ptr_equal(answering->data, admin.own.base + NVT_PLACE_BYTES);
    holds_answers = false;
    nvt_request_end(answering);
    for (int i = 0; i < NVT_PLACES_ADMIN; i++)
        if (i != 1)
            nvt_request_end(identifies[i]);
}

/* A command of the admin queue that is for when the other threads stand still asks them to do so
 * when there is memory for it, not whenever there is memory for somebody. */
static void turns__stop_no_other_thread_in_vain(void **state)
{
    (void)state;
    struct nvt_thread *thread = &target.threads[0];
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    struct nvt_request *identifies[NVT_PLACES_ADMIN];
    holds_answers = true;
    for (int i = 0; i < NVT_PLACES_ADMIN; i++) {
        assert_int_equal(say(&admin, &sqe), WAITS);
        identifies[i] = answering;
    }
    assert_int_equal(say(&admin, &sqe), WAITS);
    holds_answers = false;
    const struct nvf_sqe write = write_some();
    holds = true;
    assert_int_equal(say(&io_queue, &write), WAITS);
    nvt_request_fetched(fetching, true);
    nvt_thread_feed(thread, false);
    assert_false(thread->is_fed_alone);
    nvt_request_end(identifies[0]);
    nvt_thread_feed(thread, false);
    assert_true(thread->is_fed_alone);
    const int before = answers;
    nvt_thread_feed(thread, true);
    assert_int_equal(answers, before + 1);
    assert_false(thread->is_fed_alone);
    for (int i = 1; i < NVT_PLACES_ADMIN; i++)
        nvt_request_end(identifies[i]);
}

/* Requests of both wait: what becomes free is for the one that has less. */
static void turns__a_host_that_holds_more_comes_later(void **state)
{
    (void)state;
    enum { OF_FAR = 3 };
    const struct nvf_sqe sqe = write_some();
    const int count = hold_all();
    uint8_t *rest[HELD_MAX];
    int rest_count = 0, ended = 0, of_far = 0;
    while ((rest[rest_count] = mover_pool_take(&target.threads[0].pool, 4096 * BLOCKS)))
        rest_count++;
    for (int i = 0; i < OF_FAR; i++) /* one of the first host waits already */
        assert_int_equal(say(&far.io, &sqe), WAITS);
    while (of_far < OF_FAR && ended < count) {
        fetching = NULL;
        data_comes(held[ended++]);
        assert_true(!fetching || fetching->queue == &far.io);
        of_far += fetching != NULL;
    }
    assert_int_equal(of_far, OF_FAR);
    for (int i = 0; i < rest_count; i++)
        mover_pool_give(&target.threads[0].pool, rest[i]);
    holds = false;
    while (ended < count)
        data_comes(held[ended++]);
    struct list_node *node;
    while ((node = list_first(&far.io.with_host)))
        data_comes(LIST_MEMBER(node, struct nvt_request, wait));
}

/* The first request that waits is of a queue that goes: the next one is not held up by it. */
static void turns__go_on_behind_a_queue_that_has_gone(void **state)
{
    (void)state;
    struct nvt_queue second;
    const struct nvf_sqe sqe = write_some();
    make_queue(&second, 2);
    assert_int_equal(connect_as_host(&second, NQN, admin.ctrl->instance.cntlid), 0);
    const int count = hold_all();
    assert_int_equal(say(&second, &sqe), WAITS);
    fetching = NULL;
    data_comes(held[0]); /* its place goes to the one that waited first */
    held[0] = fetching;
    assert_int_equal(say(&io_queue, &sqe), WAITS);
    assert_false(nvt_queue_gone(&io_queue));
    fetching = NULL;
    data_comes(held[1]);
    assert_non_null(fetching);
    assert_ptr_equal(fetching->queue, &second);
    data_comes(fetching);
    data_comes(held[0]);
    for (int i = 2; i < count; i++)
        data_comes(held[i]);
    assert_true(nvt_queue_gone(&second));
}

static const char *told_of_end;

static void note_end(const struct nvt_queue *queue, const char *why)
{
    assert_ptr_equal(queue, &io_queue);
    told_of_end = why;
}

/* Without a keep-alive time, as Connect says in these tests: a host may be silent, but it may not
 * keep what it does not take. */
static void takes__too_late_ends_the_queue(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = write_some();
    target.ended = note_end;
    holds = true;
    assert_int_equal(say(&io_queue, &sqe), WAITS);
    nvt_target_tick(&target, 29 * SECOND_NS);
    assert_int_equal(cuts, 0);
    assert_null(told_of_end);
    nvt_target_tick(&target, 31 * SECOND_NS);
    assert_int_equal(cuts, 1);
    assert_non_null(told_of_end);
    assert_non_null(strstr(told_of_end, "takes no answers"));
    assert_int_equal(target.ended_count, 1);
    assert_true(io_queue.is_cut);
    nvt_request_fetched(fetching, false);
    nvt_target_tick(&target, 24 * 3600 * SECOND_NS);
    assert_int_equal(cuts, 1); /* the others are silent, and hold nothing */
}

/* Many writes, the data of one each ten seconds: nothing is as old as the oldest of the others. */
static void takes__slowly_is_not_too_late(void **state)
{
    (void)state;
    enum { WRITES = 20, EACH_S = 10 };
    const struct nvf_sqe sqe = write_some();
    uint64_t now_ns = 0;
    holds = true;
    for (int i = 0; i < WRITES; i++) {
        assert_int_equal(say(&io_queue, &sqe), WAITS);
        held[i] = fetching;
    }
    for (int i = 0; i < WRITES; i++) {
        now_ns += EACH_S * SECOND_NS;
        target.threads[0].now_ns = now_ns;
        nvt_target_tick(&target, now_ns);
        assert_int_equal(cuts, 0);
        data_comes(held[i]);
    }
}

/* It takes something now and then, and keeps what it does not take. */
static void takes__something_each_time_and_not_all_ends_the_queue(void **state)
{
    (void)state;
    enum { EACH_S = 20, TIMES = 14 };
    const struct nvf_sqe sqe = write_some();
    uint64_t now_ns = 0;
    holds = true;
    assert_int_equal(say(&io_queue, &sqe), WAITS);
    held[0] = fetching;
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(say(&io_queue, &sqe), WAITS);
        now_ns += EACH_S * SECOND_NS;
        target.threads[0].now_ns = now_ns;
        nvt_target_tick(&target, now_ns);
        assert_int_equal(cuts, 0);
        data_comes(fetching);
    }
    nvt_target_tick(&target, now_ns + (EACH_S + 1) * SECOND_NS);
    assert_int_equal(cuts, 1);
    data_comes(held[0]);
}

static void takes__too_late_ends_it_sooner_where_others_wait(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = write_some();
    const int count = hold_all();
    nvt_target_tick(&target, 6 * SECOND_NS); /* one of its own waits: that is its business */
    assert_int_equal(cuts, 0);
    uint8_t *rest[HELD_MAX];
    int rest_count = 0;
    while ((rest[rest_count] = mover_pool_take(&target.threads[0].pool, 4096 * BLOCKS)))
        rest_count++;
    assert_int_equal(say(&far.io, &sqe), WAITS);
    nvt_target_tick(&target, 6 * SECOND_NS);
    assert_int_equal(cuts, 1);
    assert_true(io_queue.is_cut);
    holds = false;
    for (int i = 0; i < rest_count; i++)
        mover_pool_give(&target.threads[0].pool, rest[i]);
    let_go(count);
}

static void takes__an_answer_too_late_ends_the_controller_of_an_admin_queue(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_keep_alive, 0, 0, 0);
    holds_answers = true;
    assert_int_equal(say(&far.admin, &sqe), WAITS);
    holds_answers = false;
    nvt_target_tick(&target, 31 * SECOND_NS);
    assert_int_equal(cuts, 2);
    assert_true(far.io.is_cut && far.admin.is_cut);
    nvt_request_end(answering);
}

/* Two pieces for one request, where the pool has no more than these. */
static void compare__finds_both_pieces(void **state)
{
    (void)state;
    struct nvf_sqe sqe = transfer(nvme_cmd_compare, 0, 256, 0);
    uint8_t *rest[2];
    memset(host, 0, sizeof(host));
    for (int i = 0; i < 2; i++)
        rest[i] = mover_pool_take(&target.threads[0].pool, 1 << 20);
    assert_int_equal(say(&io_queue, &sqe), 0);
    for (int i = 0; i < 2; i++)
        mover_pool_give(&target.threads[0].pool, rest[i]);
}

/* Where the pool has one piece for it, and never has another. */
static void compare__goes_on_without_a_second_piece(void **state)
{
    (void)state;
    struct nvf_sqe sqe = transfer(nvme_cmd_compare, 0, 256, 0);
    uint8_t *rest[3];
    memset(host, 0, sizeof(host));
    for (int i = 0; i < 3; i++)
        rest[i] = mover_pool_take(&target.threads[0].pool, 1 << 20);
    assert_int_equal(say(&io_queue, &sqe), 0);
    for (uint32_t at = 0; at < 1 << 20; at += NVT_PART_BYTES) {
        host[at] = 1;
        assert_int_equal(say(&io_queue, &sqe), NVF_MEDIA(NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
        host[at] = 0;
        host[at + NVT_PART_BYTES - 1] = 1;
        assert_int_equal(say(&io_queue, &sqe), NVF_MEDIA(NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
        host[at + NVT_PART_BYTES - 1] = 0;
    }
    sqe.cdw12 = htole32(256 - 2); /* whose last part is shorter */
    assert_int_equal(say(&io_queue, &sqe), 0);
    for (int i = 0; i < 3; i++)
        mover_pool_give(&target.threads[0].pool, rest[i]);
    assert_int_equal(target.threads[0].compares.under_way, 0);
}

static struct nvt_io takers[NVT_PARTS_OF_ONE];
static uint8_t *places[NVT_PARTS_OF_ONE];

static bool take_part(struct nvt_io *io)
{
    places[io - takers] = nvt_parts_take(&target.threads[0].compares);
    return true;
}

static void take_parts(int count)
{
    for (int i = 0; i < count; i++)
        nvt_parts_add(&target.threads[0].compares, 0, &takers[i], take_part);
}

/* All places for parts are taken: it waits, and ends where its host or namespace has gone, though
 * none is given back. */
static void compare__waits_for_its_turn(void **state)
{
    (void)state;
    const struct nvf_sqe sqe = transfer(nvme_cmd_compare, 0, 256, 0);
    struct nvt_parts *compares = &target.threads[0].compares;
    uint8_t *rest[3];
    memset(host, 0, sizeof(host));
    for (int i = 0; i < 3; i++)
        rest[i] = mover_pool_take(&target.threads[0].pool, 1 << 20);
    take_parts(NVT_PARTS_OF_ONE);
    assert_int_equal(say(&far.io, &sqe), WAITS);
    const int before = answers;
    nvt_parts_give(compares, places[0]);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    take_parts(1);
    assert_int_equal(say(&far.io, &sqe), WAITS);
    assert_true(nvt_queue_gone(&far.io));
    assert_int_equal(say(&near.io, &sqe), WAITS);
    assert_int_equal(answers, before + 1);
    nvt_namespace_remove(subsystem->namespaces[1]);
    assert_int_equal(answers, before + 2);
    assert_int_equal(le16toh(response.status) >> 1, NVME_SC_INVALID_NS | NVME_SC_DNR);
    for (int i = 0; i < NVT_PARTS_OF_ONE; i++)
        nvt_parts_give(compares, places[i]);
    assert_int_equal(answers, before + 2);
    for (int i = 0; i < 3; i++)
        mover_pool_give(&target.threads[0].pool, rest[i]);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_hosts, teardown_hosts)
    const struct CMUnitTest tests[] = {
        CASE(share__a_host_whose_data_does_not_come_leaves_memory),
        CASE(share__a_host_that_takes_no_answers_leaves_memory),
        CASE(share__hosts_of_one_address_leave_memory_for_others),
        CASE(share__connect_and_admin_commands_need_none_of_the_pool),
        CASE(places__are_taken_in_turn),
        CASE(turns__stop_no_other_thread_in_vain),
        CASE(turns__a_host_that_holds_more_comes_later),
        CASE(turns__go_on_behind_a_queue_that_has_gone),
        CASE(takes__too_late_ends_the_queue),
        CASE(takes__slowly_is_not_too_late),
        CASE(takes__something_each_time_and_not_all_ends_the_queue),
        CASE(takes__too_late_ends_it_sooner_where_others_wait),
        CASE(takes__an_answer_too_late_ends_the_controller_of_an_admin_queue),
        CASE(compare__finds_both_pieces),
        CASE(compare__goes_on_without_a_second_piece),
        CASE(compare__waits_for_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
