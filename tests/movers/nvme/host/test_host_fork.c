/* SPDX-License-Identifier: BSD-2-Clause */
/* A child of fork() that uses its parent's controller, and what the parent notices of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_world.h"

enum { REQUESTS = 20, ROUNDS = 4 };

static bool are_requests_refused(struct world *w)
{
    const struct sw_nvme_io io = {
        .nsid = 1, .blocks = 1, .data = w->data, .bytes = PLAYED_BLOCK, .mem = w->mem};
    const struct sw_nvme_resv resv = {.type = SW_NVME_RESV_WRITE_EXCLUSIVE};
    struct sw_nvme_result result;
    return sw_nvme_read(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_write(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_flush(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_write_zeroes(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_dsm(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_resv_acquire(w->queue, &io, &resv) == SW_NVME_FORKED &&
           sw_nvme_resv_report(w->queue, &io) == SW_NVME_FORKED &&
           sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(WAIT_MS)) == SW_NVME_FORKED &&
           !sw_nvme_queue_poll(w->queue) && sw_nvme_queue_arm(w->queue) &&
           !sw_nvme_queue_take(w->queue, &result, 1);
}

static bool is_controller_refused(struct world *w)
{
    struct sw_nvme_queue *queue = NULL;
    struct sw_nvme_mem *mem = NULL;
    struct sw_nvme_result result = {0};
    struct sw_nvme_info info;
    uint32_t event;
    uint8_t page[4096];
    uint64_t records;
    void *log = NULL;
    sw_nvme_info_of(w->controller, &info);
    return info.nr_io_queues == 1 && sw_nvme_poll(w->controller) == SW_NVME_DEAD &&
           sw_nvme_state_of(w->controller) == SW_NVME_DEAD &&
           sw_nvme_wait_live(w->controller, sw_nvme_deadline_ms(WAIT_MS)) == SW_NVME_FORKED &&
           sw_nvme_take_event(w->controller, &event) == SW_NVME_FORKED &&
           sw_nvme_queue_open(w->controller, 0, &w->error, &queue) == SW_NVME_FORKED &&
           w->error.status == SW_NVME_FORKED && !queue &&
           sw_nvme_mem_register(w->controller, page, sizeof(page), &mem) == SW_NVME_FORKED &&
           sw_nvme_mem_alloc(w->controller, sizeof(page), &mem) == SW_NVME_FORKED && !mem &&
           sw_nvme_identify(w->controller, NVME_IDENTIFY_CNS_CTRL, 0, page, &result) ==
               SW_NVME_FORKED &&
           result.status == SW_NVME_FORKED &&
           sw_nvme_discover(w->controller, &log, &records, &w->error) == SW_NVME_FORKED;
}

/* In the child, which has no cmocka: what failed, as its exit status. */
static int use_in_child(struct world *w, struct tally *tally, bool closes)
{
    struct sw_nvme_error error;
    const unsigned ended = tally->ended;
    if (!are_requests_refused(w))
        return 1;
    if (!is_controller_refused(w))
        return 2;
    sw_nvme_last_error(w->controller, &error);
    if (error.status != SW_NVME_FORKED || !strstr(error.text, "parent"))
        return 3;
    if (!closes)
        return 0;
    if (sw_nvme_disconnect(w->controller) != SW_NVME_INVALID)
        return 4;
    sw_nvme_queue_close(w->queue);
    sw_nvme_mem_release(w->mem);
    if (sw_nvme_disconnect(w->controller) != SW_NVME_OK)
        return 5;
    return tally->ended == ended ? 0 : 6; /* no request of the parent has ended in the child */
}

/* A request without a callback, whose result nobody has taken yet. */
static void leave_result(struct world *w)
{
    const struct sw_nvme_io io = {.nsid = 1};
    assert_int_equal(sw_nvme_flush(w->queue, &io), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
}

static void fork_rounds(struct world *w)
{
    world_bring_up(w);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct tally tally = {0};
        struct sw_nvme_result result;
        leave_result(w);
        tally_submit(w, &tally, REQUESTS);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            alarm(WAIT_MS / 1000);
            _exit(use_in_child(w, &tally, round % 2));
        }
        int how = -1;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_int_equal(how, 0);
        assert_int_equal(sw_nvme_queue_take(w->queue, &result, 1), 1);
        tally_wait(w, &tally);
        assert_int_equal(tally.ok, REQUESTS);
        world_check_moves(w);
    }
    struct sw_nvme_info info;
    sw_nvme_info_of(w->controller, &info);
    assert_int_equal(info.reconnects, 0);
}

static void fork__the_child_has_no_part_in_it(void **state)
{
    fork_rounds(*state);
}

/* The thread is the parent's alone: in the child nobody waits for it, nor for a lock it held. */
static void fork__beside_the_thread_that_keeps_alive(void **state)
{
    struct world *w = *state;
    w->options.background = true;
    fork_rounds(w);
}

static void fork__of_several_paths(void **state)
{
    struct world *w = *state;
    const struct sw_nvme_address again = {.traddr = w->options.traddr,
                                          .trsvcid = w->options.trsvcid};
    w->options.more = &again;
    w->options.more_count = 1;
    w->options.background = true;
    fork_rounds(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fork__the_child_has_no_part_in_it),
        CASE(fork__beside_the_thread_that_keeps_alive),
        CASE(fork__of_several_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
