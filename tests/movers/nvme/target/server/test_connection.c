/* SPDX-License-Identifier: BSD-2-Clause */
/* A whole target in this process, and connections that are made by hand: who is let in beside whom,
 * before a Connect is said. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nvme/target/config/config.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/server/serving.h"
#include "nvme/target/server/thread.h"
#include "sidewire/nvme.h"
#include "test_port.h"

#define NQN "nqn.2026-01.test:connection"

enum { WAIT_MS = 60000, DEPTH = 1024, IO_QUEUES = 64, SENDS = 4 };

/* ---- the target ---- */

static struct nvr_server server;
static struct nvr_serving serving;
static struct mover_watch orders;
static pthread_t server_thread;
static sem_t done;
static bool is_to_stop;
static uint32_t there; /* connections, when it was asked last */
static char port[8];

static void keep_silent(void *context, bool is_bad, const char *line)
{
    (void)context;
    if (is_bad)
        fprintf(stderr, "target: %s\n", line);
}

static void take_order(struct mover_watch *watch)
{
    eventfd_t count;
    eventfd_read(watch->fd, &count);
    there = server.queue_count;
    if (is_to_stop)
        nvr_server_stop(&server);
    sem_post(&done);
}

static uint32_t ask_server(bool stops)
{
    is_to_stop = stops;
    eventfd_write(orders.fd, 1);
    sem_wait(&done);
    return there;
}

static void *run_server(void *arg)
{
    (void)arg;
    nvr_server_run(&server);
    return NULL;
}

static int begin(void **state)
{
    (void)state;
    char error[256] = "", at[32];
    uint32_t nsid;
    const struct nvr_settings settings = {
        .pool_bytes = 1 << 20, .spin_us = 50, .queues_max = 256, .threads = 1};
    sem_init(&done, 0, 0);
    serving.say = keep_silent;
    if (nvr_server_open(&server, &settings) || nvr_serving_open(&serving, &server))
        return -1;
    if (!*port)
        test_port_claim(port, sizeof(port));
    snprintf(at, sizeof(at), "127.0.0.1:%s", port);
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    if (nvt_config_add_subsystem(&editor, NQN) ||
        nvt_config_add_namespace(&editor, NQN, "ram:1M", &nsid) ||
        nvt_config_add_port(&editor, at, 0) || nvr_serving_apply(&serving, config))
        return -1;
    orders = (struct mover_watch){.fd = eventfd(0, EFD_NONBLOCK), .ready = take_order};
    return nvr_server_watch(&server, &orders) ||
           pthread_create(&server_thread, NULL, run_server, NULL);
}

/* ---- connections ---- */

static struct rdma_cm_id *ids[IO_QUEUES + 1];
static uint32_t made;

/* NULL: it was refused. */
static struct rdma_cm_id *connect_one(uint16_t qid, uint16_t host_sends)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct nvf_cm_req req = {
        .qid = htole16(qid), .host_receives = htole16(SENDS), .host_sends = htole16(host_sends)};
    struct rdma_conn_param param = {.private_data = &req,
                                    .private_data_len = sizeof(req),
                                    .initiator_depth = 4,
                                    .responder_resources = 16,
                                    .rnr_retry_count = 7};
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = SENDS, .max_recv_wr = SENDS, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_cm_id *id;
    assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, WAIT_MS), 0);
    assert_int_equal(rdma_resolve_route(id, WAIT_MS), 0);
    assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
    if (!rdma_connect(id, &param))
        return id;
    rdma_destroy_ep(id);
    return NULL;
}

static bool come(uint16_t qid, uint16_t host_sends)
{
    struct rdma_cm_id *id = connect_one(qid, host_sends);
    if (id)
        ids[made++] = id;
    return id;
}

static void leave_all(void)
{
    while (made)
        rdma_destroy_ep(ids[--made]);
}

static int end(void **state)
{
    (void)state;
    leave_all();
    ask_server(true);
    pthread_join(server_thread, NULL);
    nvr_server_close(&server);
    nvr_serving_close(&serving);
    return close(orders.fd);
}

static void request__refused_anyway_sends_nobody_away(void **state)
{
    (void)state;
    assert_true(come(0, 31));
    assert_false(come(0, UINT16_MAX));             /* more entries than all may have */
    assert_false(come(NVT_QUEUES_MAX, DEPTH - 1)); /* nor is there such a queue */
    assert_true(come(0, 31));                      /* the target has had a turn since */
    assert_int_equal(ask_server(false), 2);
}

/* As Linux does it: the connections of all I/O queues, and the first Connect only then. */
static void queues__all_are_there_before_the_first_connect(void **state)
{
    (void)state;
    struct sw_nvme_options options;
    struct sw_nvme_error error = {0};
    struct sw_nvme_controller *controller;
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = port;
    options.subsysnqn = NQN;
    options.hostnqn = NQN ":host";
    options.connect_timeout_ms = options.io_timeout_ms = options.keep_alive_ms = WAIT_MS;
    if (sw_nvme_connect(&options, &error, &controller))
        fail_msg("%s", error.text);
    for (uint16_t qid = 1; qid <= IO_QUEUES; qid++)
        assert_true(come(qid, DEPTH - 1));
    assert_true(come(0, 31));
    assert_int_equal(ask_server(false), IO_QUEUES + 2);
    sw_nvme_disconnect(controller);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(request__refused_anyway_sends_nobody_away),
        CASE(queues__all_are_there_before_the_first_connect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
