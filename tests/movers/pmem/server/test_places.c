/* SPDX-License-Identifier: BSD-2-Clause */
/* Callers for the server's places: those who say nothing, and too many of one address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "pmem/server/server.h"
#include "sidewire/pmem.h"

enum { REGION = 1 << 16, SILENT = 40, TOGETHER = 12, PATIENCE_MS = 20000 };
#define HOUR_NS (3600ull * 1000 * NS_PER_MS)

struct world {
    struct pms_region region;
    struct pms_server server;
    pthread_t thread;
    struct mover_loop loop;
    struct mover_watch stop;
    char port[8];
};

static struct world world;

static void take_stop(struct mover_watch *watch)
{
    mover_loop_stop(watch->context);
}

static void *serve(void *arg)
{
    (void)arg;
    mover_loop_run(&world.loop);
    return NULL;
}

static void prepare(const char *rule, const struct pms_limits *limits)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char error[256] = "";
    memset(&world.server, 0, sizeof(world.server));
    world.server.limits = *limits;
    world.server.regions = &world.region;
    world.server.regions_count = 1;
    strcpy(world.region.name, "region");
    assert_int_equal(pms_rules_add(&world.server.rules, rule, error, sizeof(error)), 0);
    assert_int_equal(mover_loop_open(&world.loop), 0);
    if (pms_server_start(&world.server, &world.loop, (struct sockaddr *)&at, error, sizeof(error)))
        fail_msg("%s", error);
    snprintf(world.port, sizeof(world.port), "%u",
             mover_listener_port(&world.server.acceptor.listener));
    world.stop = (struct mover_watch){
        .fd = eventfd(0, EFD_CLOEXEC), .ready = take_stop, .context = &world.loop};
    assert_int_equal(mover_loop_watch(&world.loop, &world.stop), 0);
}

static void run(void)
{
    assert_int_equal(pthread_create(&world.thread, NULL, serve, NULL), 0);
}

static void begin(const char *rule, const struct pms_limits *limits)
{
    prepare(rule, limits);
    run();
}

/* Its thread has ended: what it counted can be looked at. */
static void stop(void)
{
    const uint64_t one = 1;
    assert_int_equal(write(world.stop.fd, &one, sizeof(one)), sizeof(one));
    pthread_join(world.thread, NULL);
    close(world.stop.fd);
}

static void end(void)
{
    pms_server_end(&world.server);
    mover_loop_close(&world.loop);
}

/* `from`: an address of this host. */
static struct rdma_cm_id *call_silently_from(const char *from)
{
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    uint8_t hello[PMF_CONNECT_BYTES];
    struct rdma_conn_param param = {.private_data = hello};
    struct rdma_cm_id *id;
    param.private_data_len = (uint8_t)pmf_put_connect(hello, "silent");
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", world.port, &hints, &found), 0);
    assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        rdma_resolve_addr(id, (struct sockaddr *)&source, found->ai_dst_addr, PATIENCE_MS), 0);
    assert_int_equal(rdma_resolve_route(id, PATIENCE_MS), 0);
    assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
    rdma_freeaddrinfo(found);
    assert_int_equal(rdma_connect(id, &param), 0);
    return id;
}

static struct rdma_cm_id *call_silently(void)
{
    return call_silently_from("127.0.0.1");
}

static void set_options(struct sw_pmem_options *options)
{
    sw_pmem_options_init(options);
    options->address = "127.0.0.1";
    options->port = world.port;
}

static enum sw_pmem_status open_region(struct sw_pmem **pmem, struct sw_pmem_error *error)
{
    struct sw_pmem_options options;
    set_options(&options);
    return sw_pmem_open(&options, error, pmem);
}

static void silent__make_room_for_others(void **state)
{
    (void)state;
    const struct pms_limits limits = {.young_ns = 1, .prove_ns = 600ull * 1000 * NS_PER_MS};
    struct rdma_cm_id *ids[SILENT];
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    uint32_t taken = 0;
    begin("*:*:rw", &limits);
    for (uint32_t i = 0; i < SILENT; i++)
        ids[i] = call_silently();
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    stop();
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        taken += world.server.clients[i] != NULL;
    assert_true(taken <= world.server.limits.unproved_of_one + 1);
    assert_true(world.server.let_go >= SILENT - world.server.limits.unproved_of_one);
    sw_pmem_close(pmem);
    for (uint32_t i = 0; i < SILENT; i++)
        rdma_destroy_ep(ids[i]);
    end();
}

/* Silent callers are too young to be let go: one that comes then is not turned away for good. */
static void silent__make_others_wait_a_little(void **state)
{
    (void)state;
    const struct pms_limits limits = {.unproved_of_one = 2, .young_ns = 150ull * NS_PER_MS};
    struct rdma_cm_id *ids[2];
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    begin("*:*:rw", &limits);
    for (uint32_t i = 0; i < 2; i++)
        ids[i] = call_silently();
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    stop();
    assert_true(world.server.refused > 0);
    sw_pmem_close(pmem);
    for (uint32_t i = 0; i < 2; i++)
        rdma_destroy_ep(ids[i]);
    end();
}

/* Those of four addresses have all places, and none of them has had its time. */
static void silent__of_some_addresses_keep_out_no_other(void **state)
{
    (void)state;
    const struct pms_limits limits = {.young_ns = HOUR_NS, .prove_ns = HOUR_NS};
    struct rdma_cm_id *ids[PMS_UNPROVED_MAX];
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    begin("*:*:rw", &limits);
    for (uint32_t i = 0; i < PMS_UNPROVED_MAX; i++) {
        char from[INET_ADDRSTRLEN];
        snprintf(from, sizeof(from), "127.0.0.%u", 2 + i % 4);
        ids[i] = call_silently_from(from);
    }
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    stop();
    assert_int_equal(world.server.refused, 0);
    assert_int_equal(world.server.let_go, 1);
    sw_pmem_close(pmem);
    for (uint32_t i = 0; i < PMS_UNPROVED_MAX; i++)
        rdma_destroy_ep(ids[i]);
    end();
}

static void honest__may_start_together(void **state)
{
    (void)state;
    const struct pms_limits limits = {.unproved_of_one = 2};
    struct sw_pmem *pmems[TOGETHER];
    struct sw_pmem_options options;
    struct sw_pmem_error error;
    uint32_t live = 0;
    begin("*:*:rw", &limits);
    set_options(&options);
    for (uint32_t i = 0; i < TOGETHER; i++)
        assert_int_equal(sw_pmem_start(&options, NULL, &pmems[i]), SW_PMEM_OK);
    while (live < TOGETHER) {
        live = 0;
        for (uint32_t i = 0; i < TOGETHER; i++) {
            sw_pmem_poll(pmems[i]);
            live += sw_pmem_state_of(pmems[i]) == SW_PMEM_LIVE;
            sw_pmem_last_error(pmems[i], &error);
            if (sw_pmem_state_of(pmems[i]) == SW_PMEM_DEAD)
                fail_msg("%u: %s", i, error.text);
        }
        poll(NULL, 0, 1);
    }
    for (uint32_t i = 0; i < TOGETHER; i++)
        sw_pmem_close(pmems[i]);
    stop();
    assert_int_equal(world.server.let_go, 0);
    end();
}

static void silent__leave_after_a_while(void **state)
{
    (void)state;
    const struct pms_limits limits = {.prove_ns = NS_PER_S};
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    begin("*:*:rw", &limits);
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    struct rdma_cm_id *id = call_silently();
    struct pollfd fd = {.fd = id->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    /* A client that has asked something stays. */
    sw_pmem_poll(pmem);
    assert_int_equal(sw_pmem_session(pmem), 1);
    assert_int_equal(sw_pmem_state_of(pmem), SW_PMEM_LIVE);
    rdma_destroy_ep(id);
    sw_pmem_close(pmem);
    stop();
    assert_int_equal(world.server.let_go, 1);
    end();
}

/* The first client that comes is made after it has its place. */
static void silent__that_have_no_queue_pair_yet_stay(void **state)
{
    (void)state;
    const struct pms_limits limits = {.prove_ns = 1};
    struct pms_client client = {.since_ns = 1};
    prepare("*:*:rw", &limits);
    world.server.clients[0] = &client;
    pms_places_watch(&world.server);
    assert_int_equal(world.server.let_go, 0);
    assert_true(world.server.sweep.due_ns);
    world.server.clients[0] = NULL;
    close(world.stop.fd);
    end();
}

static void places__of_one_address(void **state)
{
    (void)state;
    const struct pms_limits limits = {.of_one = 4};
    struct sw_pmem_options options;
    struct sw_pmem_error error;
    struct sw_pmem *pmems[2], *third;
    begin("*:*:r", &limits); /* two, as they may only read */
    for (uint32_t i = 0; i < 2; i++)
        if (open_region(&pmems[i], &error))
            fail_msg("%s", error.text);
    set_options(&options);
    options.connect_timeout_ms = 300;
    assert_int_equal(sw_pmem_open(&options, &error, &third), SW_PMEM_REFUSED);
    assert_non_null(strstr(error.text, "too many clients"));
    sw_pmem_close(pmems[0]);
    if (open_region(&third, &error))
        fail_msg("%s", error.text);
    sw_pmem_close(third);
    sw_pmem_close(pmems[1]);
    stop();
    end();
}

static uint32_t fill_places(struct pms_server *server, uint32_t host, bool may_write)
{
    struct in6_addr origin = {.s6_addr = {0x20, 1, 0xd, 0xb8, [7] = (uint8_t)host}};
    uint32_t had = 0, slot = 0;
    while (pms_places_make_room(server, &origin, may_write)) {
        while (server->clients[slot])
            slot++;
        server->clients[slot] = calloc(1, sizeof(struct pms_client));
        assert_non_null(server->clients[slot]);
        *server->clients[slot] =
            (struct pms_client){.origin = origin, .is_proved = true, .may_write = may_write};
        had++;
    }
    return had;
}

static void free_places(struct pms_server *server)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        free(server->clients[i]);
    memset(server->clients, 0, sizeof(server->clients));
}

/* Each takes what it gets, and nobody leaves. */
static void places__of_some_addresses_leave_some_to_others(void **state)
{
    static struct pms_server server;
    (void)state;
    pms_limits_init(&server.limits);
    assert_int_equal(fill_places(&server, 1, true), PMS_CLIENTS_MAX / 2);
    for (uint32_t host = 2; host < 6; host++)
        assert_true(fill_places(&server, host, true));
    free_places(&server);
}

static void places__of_some_readers_leave_some_to_others(void **state)
{
    static struct pms_server server;
    (void)state;
    pms_limits_init(&server.limits);
    for (uint32_t host = 1; host < 6; host++)
        assert_true(fill_places(&server, host, false));
    assert_true(fill_places(&server, 6, true));
    free_places(&server);
}

/* Readers have all their places, some of them in silence. */
static void silent__readers_keep_out_no_other(void **state)
{
    (void)state;
    enum { PROVED = PMS_READERS_MAX - 2 };
    const struct pms_limits limits = {
        .young_ns = HOUR_NS, .prove_ns = HOUR_NS, .probe_ns = HOUR_NS};
    static struct pms_client proved[PROVED];
    struct rdma_cm_id *ids[2];
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    prepare("*:*:r", &limits);
    for (uint32_t i = 0; i < PROVED; i++) {
        proved[i] = (struct pms_client){.is_proved = true, .probed_ns = mover_now_ns()};
        proved[i].origin = (struct in6_addr){.s6_addr = {0x20, 1, [7] = (uint8_t)i}};
        world.server.clients[i] = &proved[i];
    }
    run();
    ids[0] = call_silently_from("127.0.0.2");
    ids[1] = call_silently_from("127.0.0.3");
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    stop();
    memset(world.server.clients, 0, PROVED * sizeof(*world.server.clients));
    assert_int_equal(world.server.let_go, 1);
    sw_pmem_close(pmem);
    for (uint32_t i = 0; i < 2; i++)
        rdma_destroy_ep(ids[i]);
    end();
}

static uint32_t count_lines(FILE *file)
{
    uint32_t lines = 0;
    rewind(file);
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    return lines;
}

/* What a server with this rule writes while somebody tries it several times. */
static void expect_few_lines(const char *rule, void (*try_it)(void))
{
    const struct pms_limits limits = {0};
    const int before = dup(STDERR_FILENO);
    FILE *said = tmpfile();
    assert_non_null(said);
    begin(rule, &limits);
    const uint64_t since_ns = mover_now_ns();
    dup2(fileno(said), STDERR_FILENO);
    for (uint32_t i = 0; i < TOGETHER; i++)
        try_it();
    stop();
    dup2(before, STDERR_FILENO);
    close(before);
    const uint32_t lines = count_lines(said);
    fclose(said);
    assert_in_range(lines, 1, 1 + (mover_now_ns() - since_ns) / NS_PER_S);
}

static void be_refused(void)
{
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    assert_int_equal(open_region(&pmem, &error), SW_PMEM_REFUSED);
}

static void refusals__are_told_of_once_in_a_second(void **state)
{
    (void)state;
    expect_few_lines("192.0.2.1:*:rw", be_refused);
    assert_int_equal(world.server.refused, TOGETHER);
    end();
}

/* Until its connection has ended for that. */
static void send_nonsense(void)
{
    static uint8_t nonsense[PMF_REQUEST_MAX];
    struct rdma_cm_id *id = call_silently();
    struct ibv_mr *mr = rdma_reg_msgs(id, nonsense, sizeof(nonsense));
    struct pollfd fd = {.fd = id->channel->fd, .events = POLLIN};
    assert_non_null(mr);
    assert_int_equal(rdma_post_send(id, NULL, nonsense, sizeof(nonsense), mr, 0), 0);
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
}

static void malformed__are_told_of_once_in_a_second(void **state)
{
    (void)state;
    expect_few_lines("*:*:rw", send_nonsense);
    assert_int_equal(world.server.malformed, TOGETHER);
    end();
}

static void probes__disturb_nobody(void **state)
{
    (void)state;
    const struct pms_limits limits = {.prove_ns = NS_PER_S, .probe_ns = NS_PER_MS};
    struct sw_pmem_error error;
    struct sw_pmem *pmem;
    begin("*:*:rw", &limits);
    if (open_region(&pmem, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < 120; i++) { /* four looks */
        poll(NULL, 0, 10);
        sw_pmem_poll(pmem);
    }
    assert_int_equal(sw_pmem_session(pmem), 1);
    assert_int_equal(sw_pmem_state_of(pmem), SW_PMEM_LIVE);
    sw_pmem_close(pmem);
    stop();
    assert_true(world.server.probes > 1); /* the first has completed */
    assert_int_equal(world.server.let_go, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent__make_room_for_others),
        cmocka_unit_test(silent__make_others_wait_a_little),
        cmocka_unit_test(silent__of_some_addresses_keep_out_no_other),
        cmocka_unit_test(honest__may_start_together),
        cmocka_unit_test(silent__leave_after_a_while),
        cmocka_unit_test(silent__that_have_no_queue_pair_yet_stay),
        cmocka_unit_test(places__of_one_address),
        cmocka_unit_test(places__of_some_addresses_leave_some_to_others),
        cmocka_unit_test(places__of_some_readers_leave_some_to_others),
        cmocka_unit_test(silent__readers_keep_out_no_other),
        cmocka_unit_test(malformed__are_told_of_once_in_a_second),
        cmocka_unit_test(refusals__are_told_of_once_in_a_second),
        cmocka_unit_test(probes__disturb_nobody),
    };
    world.region.memory = (struct pms_memory){.bytes = REGION, .kind = SW_PMEM_VOLATILE};
    world.region.memory.base =
        mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
