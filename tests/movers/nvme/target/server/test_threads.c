/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole target with several threads in this process, and hosts with a queue each: what they write
 * is read back, also while the target changes, while other hosts go, and until it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvme/target/backend/guard.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/serving.h"
#include "nvme/target/server/thread.h"
#include "sidewire/nvme.h"
#include "test_port.h"

#define NQN "nqn.2026-01.test:threads"
#define BLOCK 4096u

enum { THREADS = 3, HOSTS = 4, BATCH = 16, ROUNDS = 12, CHANGES = 12, GOES = 6, WAIT_MS = 60000 };

/* ---- the target, and orders to its first thread ---- */

static struct nvr_server server;
static struct nvr_serving serving;
static struct mover_watch orders;
static pthread_t server_thread;
static void (*order)(void);
static sem_t done;
static bool is_stopped; /* nobody takes orders any more */
static char port[8], path[] = "/tmp/sidewire-threads-XXXXXX";
static char said[1024];

static void say(void *context, bool is_bad, const char *line)
{
    (void)context;
    if (is_bad)
        snprintf(said, sizeof(said), "%s", line);
}

static void take_order(struct mover_watch *watch)
{
    eventfd_t count;
    eventfd_read(watch->fd, &count);
    order();
    sem_post(&done);
}

static void give_order(void (*what)(void))
{
    order = what;
    eventfd_write(orders.fd, 1);
    sem_wait(&done);
}

static void edit(const char *add, uint32_t remove)
{
    char error[256] = "";
    uint32_t nsid;
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    if (add && nvt_config_add_namespace(&editor, NQN, add, &nsid))
        snprintf(said, sizeof(said), "%s", error);
    if (remove && nvt_config_remove_namespace(&editor, NQN, remove))
        snprintf(said, sizeof(said), "%s", error);
    nvr_serving_apply(&serving, config);
}

static void first_config(void)
{
    char error[256] = "", at[32], file[64], file2[96];
    uint32_t nsid;
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    if (!*port)
        test_port_claim(port, sizeof(port));
    snprintf(at, sizeof(at), "127.0.0.1:%s", port);
    snprintf(file, sizeof(file), "file:%s", path);
    snprintf(file2, sizeof(file2), "%s,short=50%%", file);
    if (nvt_config_add_subsystem(&editor, NQN) ||
        nvt_config_add_namespace(&editor, NQN, "ram:16M", &nsid) ||
        nvt_config_add_namespace(&editor, NQN, file2, &nsid) ||
        nvt_config_add_port(&editor, at, 4096))
        fail_msg("%s", error);
    assert_int_equal(nvr_serving_apply(&serving, config), 0);
}

static void *run_server(void *arg)
{
    (void)arg;
    nvr_server_run(&server);
    return NULL;
}

static int begin_with(uint32_t shared_receives)
{
    const struct nvr_settings settings = {.pool_bytes = 8 << 20,
                                          .spin_us = 50,
                                          .queues_max = 256,
                                          .threads = THREADS,
                                          .shared_receives = shared_receives};
    *said = 0;
    is_stopped = false;
    strcpy(path + strlen(path) - 6, "XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, 16 << 20))
        return -1;
    close(fd);
    sem_init(&done, 0, 0);
    serving.say = say;
    if (nvr_server_open(&server, &settings) || nvr_serving_open(&serving, &server))
        return -1;
    orders = (struct mover_watch){.fd = eventfd(0, EFD_NONBLOCK), .ready = take_order};
    first_config();
    return nvr_server_watch(&server, &orders) ||
           pthread_create(&server_thread, NULL, run_server, NULL);
}

static int set_up(void **state)
{
    (void)state;
    return begin_with(0);
}

static int set_up_shared(void **state)
{
    (void)state;
    return begin_with(96);
}

static void stop(void)
{
    nvr_server_stop(&server);
    is_stopped = true;
}

static int tear_down(void **state)
{
    (void)state;
    if (!is_stopped)
        give_order(stop);
    pthread_join(server_thread, NULL);
    const uint32_t left = server.queue_count;
    nvr_server_close(&server);
    nvr_serving_close(&serving);
    close(orders.fd);
    sem_destroy(&done);
    unlink(path);
    return left != 0;
}

/* ---- a host ---- */

struct host {
    pthread_t thread;
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    uint8_t *data;
    uint32_t number, nsid, rounds, blocks; /* of a request */
    bool is_other;                         /* than this machine */
    const char *wrong;
    char text[256];
};

static const char *bring_up(struct host *host)
{
    struct sw_nvme_options options;
    struct sw_nvme_error error = {0};
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = port;
    options.subsysnqn = NQN;
    options.nr_io_queues = 1;
    options.connect_timeout_ms = WAIT_MS;
    options.ctrl_loss_tmo_s = 0;
    if (host->is_other) {
        options.hostnqn = "nqn.2026-01.test:other";
        options.hostid = "6f5d0d4e-4a3e-4b61-9d3c-0d8e6a7c1b2f";
    }
    snprintf(host->text, sizeof(host->text), "no memory");
    const bool is_up =
        !sw_nvme_connect(&options, &error, &host->controller) &&
        !sw_nvme_queue_open(host->controller, 0, &error, &host->queue) &&
        !sw_nvme_mem_alloc(host->controller, (size_t)BATCH * host->blocks * BLOCK, &host->mem);
    if (!is_up && *error.text)
        snprintf(host->text, sizeof(host->text), "%s", error.text);
    if (is_up)
        host->data = sw_nvme_mem_data(host->mem);
    return is_up ? NULL : host->text;
}

static void bring_down(struct host *host)
{
    sw_nvme_queue_close(host->queue);
    sw_nvme_mem_release(host->mem);
    sw_nvme_disconnect(host->controller);
}

/* All of a batch under way at once, each in its own place of the disk. */
static const char *begin_batch(struct host *host, bool writes)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint32_t bytes = host->blocks * BLOCK;
        const struct sw_nvme_io io = {.nsid = host->nsid,
                                      .blocks = host->blocks,
                                      .lba = (host->number * BATCH + i) * host->blocks,
                                      .data = host->data + (size_t)i * bytes,
                                      .bytes = bytes,
                                      .mem = host->mem};
        if (writes ? sw_nvme_write(host->queue, &io) : sw_nvme_read(host->queue, &io))
            return "a request does not begin";
    }
    return NULL;
}

static const char *end_batch(struct host *host)
{
    struct sw_nvme_result results[BATCH];
    const uint64_t deadline_ns = sw_nvme_deadline_ms(WAIT_MS);
    for (uint32_t ended = 0; ended < BATCH;) {
        const uint32_t taken = sw_nvme_queue_take(host->queue, results, BATCH);
        for (uint32_t i = 0; i < taken; i++)
            if (results[i].status) {
                snprintf(host->text, sizeof(host->text), "%s, %s",
                         sw_nvme_status_text(results[i].status),
                         sw_nvme_code_text(results[i].nvme_status));
                return host->text;
            }
        ended += taken;
        if (!taken && sw_nvme_queue_wait(host->queue, deadline_ns))
            return "no answer comes";
    }
    return NULL;
}

/* Each word says whose it is, where and from which round. */
static uint64_t word_at(const struct host *host, uint32_t round, size_t at)
{
    return (uint64_t)host->number << 56 | (uint64_t)round << 40 | at;
}

static const char *write_and_read(struct host *host, uint32_t round)
{
    const size_t words = (size_t)BATCH * host->blocks * BLOCK / 8;
    uint64_t *data = (void *)host->data;
    for (size_t i = 0; i < words; i++)
        data[i] = word_at(host, round, i);
    const char *wrong = begin_batch(host, true);
    if (!wrong)
        wrong = end_batch(host);
    memset(data, 0, words * 8);
    if (!wrong)
        wrong = begin_batch(host, false);
    if (!wrong)
        wrong = end_batch(host);
    for (size_t i = 0; i < words && !wrong; i++)
        if (data[i] != word_at(host, round, i))
            wrong = "what is read is not what was written";
    return wrong;
}

static void *use_target(void *arg)
{
    struct host *host = arg;
    host->wrong = bring_up(host);
    for (uint32_t i = 0; i < host->rounds && !host->wrong; i++)
        host->wrong = write_and_read(host, i);
    bring_down(host);
    return NULL;
}

/* Two on each namespace. */
static void start_hosts(struct host *hosts, uint32_t rounds)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        hosts[i] = (struct host){
            .number = i, .nsid = 1 + i % 2, .rounds = rounds, .blocks = i < 2 ? 1 : 16};
        assert_int_equal(pthread_create(&hosts[i].thread, NULL, use_target, &hosts[i]), 0);
    }
}

static void join_hosts(struct host *hosts)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        pthread_join(hosts[i].thread, NULL);
        if (hosts[i].wrong)
            fail_msg("host %u: %s", i, hosts[i].wrong);
    }
    assert_string_equal(said, "");
}

/* All of a batch; how many have failed. */
static uint32_t count_failures(struct host *host)
{
    struct sw_nvme_result results[BATCH];
    uint32_t failures = 0;
    for (uint32_t ended = 0, taken; ended < BATCH; ended += taken) {
        taken = sw_nvme_queue_take(host->queue, results, BATCH);
        for (uint32_t i = 0; i < taken; i++)
            failures += results[i].status != SW_NVME_OK;
        if (!taken && sw_nvme_queue_wait(host->queue, sw_nvme_deadline_ms(WAIT_MS)))
            fail_msg("no answer comes");
    }
    return failures;
}

/* ---- cases ---- */

static uint32_t busy_threads;

static void count_threads(void)
{
    busy_threads = 0;
    for (uint32_t i = 0; i < THREADS; i++)
        busy_threads += server.threads[i].base->commands > 2 * BATCH;
}

static void threads__what_is_written_is_read(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    start_hosts(hosts, ROUNDS);
    join_hosts(hosts);
    give_order(count_threads);
    assert_int_equal(busy_threads, THREADS);
}

static void add_third(void)
{
    edit("ram:1M", 0);
}

static void remove_third(void)
{
    edit(NULL, 3);
}

static void serving__changes_under_load(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    start_hosts(hosts, ROUNDS);
    for (int i = 0; i < CHANGES; i++) {
        struct host user = {.number = 0, .nsid = 3, .blocks = 1};
        give_order(add_third);
        assert_null(bring_up(&user));
        assert_null(write_and_read(&user, 1));
        assert_null(begin_batch(&user, i % 2)); /* they end, one way or the other */
        give_order(remove_third);
        (void)end_batch(&user);
        bring_down(&user);
    }
    join_hosts(hosts);
}

/* They go with a batch under way, as those do that are killed. */
static void queues__end_under_load(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    start_hosts(hosts, ROUNDS);
    for (int i = 0; i < GOES; i++) {
        struct host goes = {.number = HOSTS, .nsid = 1 + (uint32_t)i % 2, .blocks = 16};
        assert_null(bring_up(&goes));
        assert_null(begin_batch(&goes, i % 3));
        bring_down(&goes);
    }
    join_hosts(hosts);
}

static enum sw_nvme_status reserve(struct host *host, bool acquires, uint32_t action, uint64_t key,
                                   uint64_t other)
{
    const struct sw_nvme_io io = {
        .nsid = host->nsid, .data = host->data, .bytes = SW_NVME_RESV_KEYS_BYTES, .mem = host->mem};
    const struct sw_nvme_resv resv = {.action = action,
                                      .type =
                                          acquires ? SW_NVME_RESV_WRITE_EXCLUSIVE_REGISTRANTS : 0,
                                      .key = key,
                                      .other = other};
    struct sw_nvme_result result = {.status = SW_NVME_TIMEOUT};
    const enum sw_nvme_status status = acquires ? sw_nvme_resv_acquire(host->queue, &io, &resv)
                                                : sw_nvme_resv_register(host->queue, &io, &resv);
    while (!status && !sw_nvme_queue_take(host->queue, &result, 1))
        if (sw_nvme_queue_wait(host->queue, sw_nvme_deadline_ms(WAIT_MS)))
            break;
    return status ? status : result.status;
}

/* A host is fenced again and again, with reads under way; those of the others go on. */
static void reservations__preempt_under_load(void **state)
{
    (void)state;
    enum { KEY = 7, FENCED = 9 };
    static struct host hosts[HOSTS];
    struct host user = {.number = HOSTS, .nsid = 1, .blocks = 1},
                other = {.number = HOSTS, .nsid = 1, .blocks = 1, .is_other = true};
    assert_null(bring_up(&user));
    assert_null(bring_up(&other));
    start_hosts(hosts, ROUNDS);
    assert_int_equal(reserve(&user, false, SW_NVME_RESV_REGISTER, 0, KEY), SW_NVME_OK);
    assert_int_equal(reserve(&user, true, SW_NVME_RESV_ACQUIRE, KEY, 0), SW_NVME_OK);
    for (int i = 0; i < CHANGES; i++) {
        assert_int_equal(reserve(&other, false, SW_NVME_RESV_REGISTER, 0, FENCED), SW_NVME_OK);
        assert_null(begin_batch(&other, false));
        assert_int_equal(reserve(&user, true, SW_NVME_RESV_PREEMPT_ABORT, KEY, FENCED), SW_NVME_OK);
        (void)end_batch(&other);
    }
    bring_down(&other);
    bring_down(&user);
    join_hosts(hosts);
    give_order(count_threads);
    assert_int_equal(server.target.serial, 0);
}

/* ---- what hosts may do to memory ---- */

static struct sigaction guard; /* cmocka puts its own in the place, before each test */
static char mapped[] = "/tmp/sidewire-mapped-XXXXXX";

static void add_mapped(void)
{
    char text[64];
    snprintf(text, sizeof(text), "nvram:%s", mapped);
    sigaction(SIGBUS, &guard, NULL);
    edit(text, 0);
}

/* The NIC moves data from and to where the file is mapped. */
static void nvram__a_shorter_file_fails_its_commands_alone(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    struct host user = {.number = 0, .nsid = 3, .blocks = 16};
    const int fd = mkstemp(mapped);
    assert_int_equal(ftruncate(fd, BATCH * 16 * BLOCK), 0);
    give_order(add_mapped);
    assert_string_equal(said, "");
    start_hosts(hosts, ROUNDS);
    assert_null(bring_up(&user));
    assert_null(write_and_read(&user, 1));
    assert_int_equal(ftruncate(fd, 16 * BLOCK), 0);
    for (int writes = 0; writes < 2; writes++) {
        assert_null(begin_batch(&user, writes));
        assert_int_equal(count_failures(&user), BATCH - 1);
    }
    assert_int_equal(ftruncate(fd, BATCH * 16 * BLOCK), 0);
    assert_null(write_and_read(&user, 2)); /* by the same connection */
    bring_down(&user);
    join_hosts(hosts);
    close(fd);
    unlink(mapped);
}

static int resident_pages;

static void count_resident_pages(void)
{
    static uint8_t states[(16 << 20) / BLOCK];
    const struct nvt_subsystem *subsystem = nvt_subsystem_find(&server.target, NQN);
    const struct nvt_backend *backend = subsystem->namespaces[1]->backend;
    mincore(backend->memory, backend->size_bytes, states);
    resident_pages = 0;
    for (size_t i = 0; i < sizeof(states); i++)
        resident_pages += states[i] & 1;
}

static void dsm__gives_back_what_the_nic_has_written(void **state)
{
    (void)state;
    enum { RANGES = 256 };
    struct host user = {.number = 1, .nsid = 1, .blocks = 16};
    struct sw_nvme_result result = {.status = SW_NVME_TIMEOUT};
    assert_null(bring_up(&user));
    assert_null(write_and_read(&user, 1));
    give_order(count_resident_pages);
    assert_true(resident_pages >= BATCH * 16);
    struct nvme_dsm_range *ranges = (struct nvme_dsm_range *)user.data;
    for (int i = 0; i < RANGES; i++)
        ranges[i] = (struct nvme_dsm_range){.nlb = htole32((16 << 20) / BLOCK)};
    const struct sw_nvme_io io = {
        .nsid = 1, .data = user.data, .bytes = RANGES * sizeof(*ranges), .mem = user.mem};
    assert_int_equal(sw_nvme_dsm(user.queue, &io), SW_NVME_OK);
    while (!sw_nvme_queue_take(user.queue, &result, 1))
        assert_int_equal(sw_nvme_queue_wait(user.queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    assert_int_equal(result.status, SW_NVME_OK);
    give_order(count_resident_pages);
    assert_int_equal(resident_pages, 0);
    assert_null(begin_batch(&user, false));
    assert_null(end_batch(&user));
    for (size_t i = 0; i < BATCH * 16 * BLOCK; i++)
        assert_int_equal(user.data[i], 0);
    assert_null(write_and_read(&user, 2));
    bring_down(&user);
}

/* ---- what has data, and is not for several threads at a time ---- */

#define LOCKED_NQN NQN "-locked"
#define OTHER_NQN "nqn.2026-01.test:other"
static const char *const secrets[] = {
    "DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:",
    "DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:"};
static _Atomic int refusals[2]; /* by whether the others stood still */

static void note_refusal(const struct nvt_queue *queue, const char *why)
{
    (void)queue;
    (void)why;
    refusals[server.is_alone]++;
}

static void lock_subsystem(void)
{
    char error[256] = "";
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    if (nvt_config_add_subsystem(&editor, LOCKED_NQN) ||
        nvt_config_admit(&editor, LOCKED_NQN, OTHER_NQN, secrets[0], false) ||
        nvt_config_admit(&editor, LOCKED_NQN, OTHER_NQN, secrets[1], true))
        snprintf(said, sizeof(said), "%s", error);
    nvr_serving_apply(&serving, config);
    server.target.refused = note_refusal;
}

/* The host does not believe the target, and says so by a message that is fetched from it. */
static void command__with_data_finds_the_others_standing_still(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    struct sw_nvme_options options;
    struct sw_nvme_error error = {0};
    struct sw_nvme_controller *controller = NULL;
    refusals[false] = refusals[true] = 0;
    give_order(lock_subsystem);
    start_hosts(hosts, ROUNDS);
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = port;
    options.subsysnqn = LOCKED_NQN;
    options.hostnqn = OTHER_NQN;
    options.dhchap_secret = options.dhchap_ctrl_secret = secrets[0]; /* the second is wrong */
    options.ctrl_loss_tmo_s = 0;
    options.connect_timeout_ms = WAIT_MS;
    assert_int_equal(sw_nvme_connect(&options, &error, &controller), SW_NVME_AUTHENTICATION);
    join_hosts(hosts);
    assert_int_equal(refusals[true], 1);
    assert_int_equal(refusals[false], 0);
}

static void stop__ends_what_is_under_way(void **state)
{
    (void)state;
    static struct host hosts[HOSTS];
    start_hosts(hosts, 100 * ROUNDS);
    usleep(100000);
    give_order(stop);
    for (uint32_t i = 0; i < HOSTS; i++) {
        pthread_join(hosts[i].thread, NULL);
        if (hosts[i].wrong)
            assert_string_not_equal(hosts[i].wrong, "what is read is not what was written");
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define SHARED(name) cmocka_unit_test_setup_teardown(name, set_up_shared, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(threads__what_is_written_is_read),
        SHARED(threads__what_is_written_is_read),
        CASE(serving__changes_under_load),
        CASE(queues__end_under_load),
        SHARED(queues__end_under_load),
        CASE(reservations__preempt_under_load),
        CASE(nvram__a_shorter_file_fails_its_commands_alone),
        CASE(dsm__gives_back_what_the_nic_has_written),
        CASE(command__with_data_finds_the_others_standing_still),
        CASE(stop__ends_what_is_under_way),
    };
    if (nvt_guard_open() || sigaction(SIGBUS, NULL, &guard))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
