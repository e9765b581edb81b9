/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that answers messages, its clients that ask, and those that say nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rdma/caller.h"
#include "common/serve/clients.h"
#include "common/time/units.h"

enum {
    BYTES = 4096,
    CALLERS = 3,
    QUESTIONS = 100,
    SILENT = MOVER_CLIENTS_MAX / 8,
    PATIENCE_MS = 20000
};

static struct mover_clients clients;
static struct mover_loop loop;
static struct mover_watch stop_watch;
static pthread_t thread;
static char port[8];

/* Doubles a message of text; "no" makes no sense to it. */
static bool say_twice(void *context, uint8_t *message, uint32_t *bytes)
{
    if (context != &clients || *bytes > BYTES / 2 || !memcmp(message, "no", 2))
        return false;
    memcpy(message + *bytes, message, *bytes);
    *bytes *= 2;
    return true;
}

static void take_stop(struct mover_watch *watch)
{
    mover_loop_stop(watch->context);
}

static void *run_loop(void *arg)
{
    (void)arg;
    mover_loop_run(&loop);
    return NULL;
}

static int begin(void **state)
{
    char error[256] = "";
    (void)state;
    clients = (struct mover_clients){
        .command = "test serve", .message_bytes = BYTES, .context = &clients, .answer = say_twice};
    assert_int_equal(mover_loop_open(&loop), 0);
    if (mover_clients_open(&clients, &loop, "127.0.0.1", "0", error, sizeof(error)))
        fail_msg("%s", error);
    snprintf(port, sizeof(port), "%u", mover_listener_port(&clients.acceptor.listener));
    stop_watch =
        (struct mover_watch){.fd = eventfd(0, EFD_CLOEXEC), .ready = take_stop, .context = &loop};
    assert_int_equal(mover_loop_watch(&loop, &stop_watch), 0);
    return 0;
}

static void run(void)
{
    assert_int_equal(pthread_create(&thread, NULL, run_loop, NULL), 0);
}

/* Its thread has ended: what it has counted can be looked at. */
static void stop(void)
{
    assert_int_equal(eventfd_write(stop_watch.fd, 1), 0);
    pthread_join(thread, NULL);
    close(stop_watch.fd);
}

static json_int_t status_of(const char *key)
{
    json_t *status = mover_clients_status(&clients);
    const json_t *value = json_object_get(status, key);
    assert_true(json_is_integer(value));
    const json_int_t number = json_integer_value(value);
    json_decref(status);
    return number;
}

static int end(void **state)
{
    (void)state;
    mover_clients_close(&clients);
    mover_clients_close(&clients); /* does nothing */
    mover_loop_close(&loop);
    return 0;
}

static void open_caller(struct mover_caller *caller)
{
    char error[MOVER_CONNECTION_SAID];
    *caller = (struct mover_caller){.message_bytes = BYTES};
    if (!mover_caller_open(caller, "127.0.0.1", port, error))
        fail_msg("%s", error);
}

static const char *ask_text(struct mover_caller *caller, const char *text)
{
    static char said[BYTES + 1];
    const uint32_t bytes = (uint32_t)strlen(text);
    uint32_t answer_bytes = 0;
    memcpy(mover_caller_question(caller), text, bytes);
    const uint8_t *answer = mover_caller_ask(caller, bytes, PATIENCE_MS, &answer_bytes);
    if (!answer)
        return NULL;
    assert_in_range(answer_bytes, 0, BYTES);
    memcpy(said, answer, answer_bytes);
    said[answer_bytes] = '\0';
    return said;
}

static void clients__are_answered_each(void **state)
{
    struct mover_caller callers[CALLERS];
    char text[16], expected[32];
    (void)state;
    run();
    for (int i = 0; i < CALLERS; i++)
        open_caller(&callers[i]);
    for (int i = 0; i < QUESTIONS; i++) {
        snprintf(text, sizeof(text), "%d", i);
        snprintf(expected, sizeof(expected), "%d%d", i, i);
        assert_string_equal(ask_text(&callers[i % CALLERS], text), expected);
    }
    mover_caller_close(&callers[0]);
    assert_string_equal(ask_text(&callers[1], "ho"), "hoho");
    for (int i = 1; i < CALLERS; i++)
        mover_caller_close(&callers[i]);
    stop();
    assert_int_equal(status_of("messages"), QUESTIONS + 1);
    assert_int_equal(status_of("connected"), CALLERS);
    assert_int_equal(status_of("ended") + status_of("refused"), 0);
}

static void clients__that_make_no_sense_are_ended(void **state)
{
    struct mover_caller good, bad;
    (void)state;
    run();
    open_caller(&good);
    open_caller(&bad);
    assert_string_equal(ask_text(&bad, "ye"), "yeye");
    assert_null(ask_text(&bad, "no"));
    assert_string_equal(ask_text(&good, "ho"), "hoho");
    mover_caller_close(&bad);
    stop();
    assert_int_equal(status_of("clients"), 1);
    assert_int_equal(status_of("messages"), 2);
    mover_caller_close(&good);
}

static struct rdma_cm_id *call_silently(void)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct rdma_cm_id *id;
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", port, &hints, &found), 0);
    assert_int_equal(rdma_create_ep(&id, found, NULL, &attr), 0);
    rdma_freeaddrinfo(found);
    assert_int_equal(rdma_connect(id, NULL), 0);
    return id;
}

/* They have all that one address may have before it has asked, and are too young to be let go. */
static void silent__make_others_wait_a_little(void **state)
{
    struct rdma_cm_id *ids[SILENT];
    struct mover_caller caller;
    (void)state;
    run();
    for (int i = 0; i < SILENT; i++)
        ids[i] = call_silently();
    open_caller(&caller);
    assert_string_equal(ask_text(&caller, "ho"), "hoho");
    stop();
    assert_true(status_of("ended") > 0);
    mover_caller_close(&caller);
    for (int i = 0; i < SILENT; i++)
        rdma_destroy_ep(ids[i]);
}

static void await_end(struct rdma_cm_id *id)
{
    struct pollfd fd = {.fd = id->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
}

/* One says nothing, and one asks and has no room for the answer. One that asks and takes its answer
 * stays, and is probed in the meantime. */
static void silent__leave_after_a_while(void **state)
{
    static uint8_t question[2] = "hi";
    struct mover_caller caller;
    (void)state;
    clients.rules.prove_ns = 2 * NS_PER_S;
    clients.rules.answer_ns = NS_PER_S;
    clients.rules.probe_ns = NS_PER_MS;
    run();
    open_caller(&caller);
    assert_string_equal(ask_text(&caller, "ho"), "hoho");
    struct rdma_cm_id *slow = call_silently();
    struct ibv_mr *mr = rdma_reg_msgs(slow, question, sizeof(question));
    assert_non_null(mr);
    assert_int_equal(rdma_post_send(slow, NULL, question, sizeof(question), mr, 0), 0);
    struct rdma_cm_id *silent = call_silently();
    await_end(slow);
    await_end(silent);
    assert_string_equal(ask_text(&caller, "ha"), "haha");
    stop();
    assert_int_equal(status_of("ended"), 2);
    assert_int_equal(status_of("clients"), 1);
    assert_int_equal(status_of("messages"), 3);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(slow);
    rdma_destroy_ep(silent);
    mover_caller_close(&caller);
}

/* ---- servers whose clients have rights ---- */

static uint32_t came, left;
static _Atomic bool is_closed;

static struct ibv_pd *make_domain(void *context, struct mover_clients_place *place,
                                  struct rdma_cm_id *id)
{
    assert_ptr_equal(context, &clients);
    assert_int_equal(place->number, clients.connected);
    came++;
    return place->own = ibv_alloc_pd(id->verbs);
}

/* The queue pair is gone: else its domain would be in use. */
static void free_domain(void *context, struct mover_clients_place *place)
{
    assert_ptr_equal(context, &clients);
    assert_int_equal(ibv_dealloc_pd(place->own), 0);
    left++;
}

static bool let_in(void *context, const struct sockaddr *peer)
{
    (void)context;
    return peer->sa_family == AF_INET && !is_closed;
}

/* Ends the client before, and itself in vain. */
static bool end_the_first(void *context, uint8_t *message, uint32_t *bytes)
{
    if (!memcmp(message, "end", 3)) {
        mover_clients_end(&clients, 1);
        mover_clients_end(&clients, clients.asking->number);
        mover_clients_end(&clients, 99);
    }
    return say_twice(context, message, bytes);
}

static void clients__have_domains_and_ends(void **state)
{
    struct mover_caller first, second;
    char error[MOVER_CONNECTION_SAID];
    (void)state;
    came = left = 0;
    is_closed = false;
    clients.came = make_domain;
    clients.left = free_domain;
    clients.admits = let_in;
    clients.answer = end_the_first;
    run();
    open_caller(&first);
    assert_string_equal(ask_text(&first, "ho"), "hoho");
    open_caller(&second);
    assert_string_equal(ask_text(&second, "end"), "endend");
    assert_null(ask_text(&first, "ho"));
    assert_string_equal(ask_text(&second, "ho"), "hoho");
    is_closed = true;
    assert_string_equal(ask_text(&second, "ho"), "hoho");
    mover_caller_close(&first);
    first = (struct mover_caller){.message_bytes = BYTES};
    assert_false(mover_caller_open(&first, "127.0.0.1", port, error));
    stop();
    assert_int_equal(status_of("refused"), 1);
    assert_int_equal(status_of("ended"), 1);
    assert_int_equal(status_of("clients"), 1);
    mover_clients_close(&clients);
    assert_int_equal(came, 2);
    assert_int_equal(left, 2);
    mover_caller_close(&second);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(clients__are_answered_each),        CASE(clients__that_make_no_sense_are_ended),
        CASE(silent__make_others_wait_a_little), CASE(silent__leave_after_a_while),
        CASE(clients__have_domains_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
