/* SPDX-License-Identifier: BSD-2-Clause */
/* A client that is answered, probed and ended, over a queue that the tests play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/serve/client.h"
#include "common/time/clock.h"

enum { PLACES = 2, BYTES = 64, ROOM = 8 };

static struct mover_loop loop;
static struct ibv_context device;
static struct ibv_qp qp = {.context = &device};
static struct ibv_mr region;
static struct ibv_comp_channel channel;
static struct rdma_cm_id id;
static struct mover_client client;
static uint8_t memory[PLACES * BYTES];
static struct ibv_wc completions[ROOM]; /* that nobody has polled */
static int completions_count, ended, polled, turns;
static bool is_endless; /* a message comes after each answer */
static bool has_no_room, has_answers, is_last;
static struct ibv_qp_attr state_of_qp; /* what a query finds */
static char
    posted[64]; /* in this order: a receive "r0", an answer of 4 bytes "s0:4", a probe "w" */

/* ---- queue and messages ---- */

bool mover_queue_open(struct mover_queue *queue, struct ibv_context *verbs, uint32_t entries,
                      int epoll_fd, void *epoll_data)
{
    assert_ptr_equal(verbs, &device);
    assert_ptr_equal(epoll_data, &client.watch);
    assert_true(entries > 2 * PLACES); /* receives, answers and a probe */
    assert_int_equal(epoll_fd, loop.epoll_fd);
    *queue = (struct mover_queue){.channel = &channel, .has_stash = true};
    return true;
}

bool mover_queue_rearm(struct mover_queue *queue)
{
    return queue->channel;
}

int mover_queue_poll_stash(struct mover_queue *queue, int count, struct ibv_wc *wcs)
{
    assert_int_equal(count, 1);
    assert_true(polled++ < 1000);
    if (is_endless) {
        *wcs = (struct ibv_wc){.opcode = polled % 2 ? IBV_WC_RECV : IBV_WC_SEND, .byte_len = 5};
        return 1;
    }
    if (!queue->channel || !completions_count)
        return 0;
    *wcs = completions[0];
    memmove(completions, completions + 1, (size_t)--completions_count * sizeof(*completions));
    return 1;
}

void mover_queue_close(struct mover_queue *queue)
{
    *queue = (struct mover_queue){0};
}

bool mover_messages_open(struct mover_messages *messages, struct mover_queue *queue,
                         struct rdma_cm_id *of, struct ibv_pd *pd, uint32_t count, uint32_t bytes)
{
    assert_ptr_equal(queue, &client.queue);
    assert_null(pd);
    *messages = (struct mover_messages){
        .qp = &qp, .mr = &region, .places = memory, .count = count, .bytes = bytes};
    of->qp = has_no_room ? NULL : &qp;
    return of->qp;
}

void mover_messages_close(struct mover_messages *messages)
{
    assert_null(id.qp); /* the device may use the places before */
    *messages = (struct mover_messages){0};
}

void mover_loop_unwatch(struct mover_loop *of, struct mover_watch *watch)
{
    assert_ptr_equal(of, &loop);
    assert_int_equal(watch->fd, channel.fd);
}

void mover_loop_call_at(struct mover_loop *of, struct mover_watch *watch, uint64_t due_ns)
{
    assert_ptr_equal(of, &loop);
    assert_ptr_equal(watch, &client.watch);
    assert_in_range(due_ns, 1, mover_now_ns());
    turns++;
}

static void note_post(const char *format, uint64_t place, uint32_t bytes)
{
    const size_t used = strlen(posted);
    snprintf(posted + used, sizeof(posted) - used, format, (unsigned)place, bytes);
}

static int post_receive(struct ibv_qp *of, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)bad;
    assert_ptr_equal(of, &qp);
    assert_int_equal(wr->sg_list->length, BYTES);
    note_post("r%u ", wr->wr_id, 0);
    return 0;
}

static int post_request(struct ibv_qp *of, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)bad;
    assert_ptr_equal(of, &qp);
    if (wr->opcode == IBV_WR_RDMA_WRITE) {
        assert_int_equal(wr->num_sge, 0);
        note_post("w ", 0, 0);
    } else {
        note_post("s%u:%u ", wr->wr_id, wr->sg_list->length);
    }
    return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *of)
{
    of->qp = NULL;
}

int rdma_disconnect(struct rdma_cm_id *of)
{
    assert_non_null(of->qp);
    note_post("d ", 0, 0);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask)
{
    assert_ptr_equal(of, &qp);
    assert_int_equal(mask, IBV_QP_STATE);
    assert_int_equal(attr->qp_state, IBV_QPS_ERR);
    return 0;
}

int ibv_query_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    assert_ptr_equal(of, &qp);
    assert_true(mask & IBV_QP_STATE);
    assert_non_null(init);
    *attr = state_of_qp;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *of)
{
    assert_null(of->qp);
    assert_null(of->context);
    note_post("x ", 0, 0);
    return 0;
}

/* ---- its owner ---- */

/* Adds an exclamation mark. */
static bool answer_loudly(struct mover_client *of, uint8_t *message, uint32_t *bytes)
{
    assert_ptr_equal(of, &client);
    message[(*bytes)++] = '!';
    of->is_over = is_last;
    return has_answers;
}

static void note_end(struct mover_client *of)
{
    assert_ptr_equal(of, &client);
    ended++;
}

static int begin(void **state)
{
    (void)state;
    device.ops.post_recv = post_receive;
    device.ops.post_send = post_request;
    channel.fd = 7;
    id = (struct rdma_cm_id){.verbs = &device, .context = &client};
    client = (struct mover_client){.answer = answer_loudly, .ended = note_end};
    completions_count = ended = polled = turns = 0;
    has_no_room = is_last = is_endless = false;
    has_answers = true;
    *posted = '\0';
    return 0;
}

static void open_client(void)
{
    assert_true(mover_client_open(&client, &loop, &id, NULL, PLACES, BYTES));
    assert_string_equal(posted, "r0 r1 ");
    *posted = '\0';
}

static void expect_posted(const char *these)
{
    client.watch.ready(&client.watch);
    assert_string_equal(posted, these);
    *posted = '\0';
}

static void complete(enum ibv_wc_opcode opcode, uint64_t wr_id, enum ibv_wc_status status)
{
    assert_true(completions_count < ROOM);
    completions[completions_count++] =
        (struct ibv_wc){.opcode = opcode, .wr_id = wr_id, .status = status, .byte_len = 5};
}

static void message__is_answered_where_it_lies(void **state)
{
    (void)state;
    open_client();
    memcpy(memory + BYTES, "hello", 5);
    complete(IBV_WC_RECV, 1, IBV_WC_SUCCESS);
    expect_posted("s1:6 ");
    assert_memory_equal(memory + BYTES, "hello!", 6);
    assert_true(client.answered_ns);
    complete(IBV_WC_RECV, 0, IBV_WC_SUCCESS); /* before the first answer is taken */
    expect_posted("s0:6 ");
    complete(IBV_WC_SEND, 1, IBV_WC_SUCCESS);
    expect_posted("r1 ");
    assert_true(client.answered_ns); /* it has taken one of two */
    complete(IBV_WC_SEND, 0, IBV_WC_SUCCESS);
    expect_posted("r0 ");
    assert_false(client.answered_ns);
    assert_int_equal(ended + turns, 0);
}

static void client__is_over_once_its_last_answer_has_gone(void **state)
{
    (void)state;
    open_client();
    is_last = true;
    complete(IBV_WC_RECV, 0, IBV_WC_SUCCESS);
    complete(IBV_WC_RECV, 1, IBV_WC_SUCCESS); /* nobody looks at that */
    expect_posted("s0:6 ");
    mover_client_probe(&client);
    expect_posted("");
    assert_int_equal(ended, 0);
    complete(IBV_WC_SEND, 0, IBV_WC_SUCCESS);
    expect_posted("");
    assert_int_equal(ended, 1);
}

static void client__without_an_answer_is_over(void **state)
{
    (void)state;
    open_client();
    has_answers = false;
    complete(IBV_WC_RECV, 0, IBV_WC_SUCCESS);
    complete(IBV_WC_RECV, 1, IBV_WC_SUCCESS);
    expect_posted("");
    assert_int_equal(ended, 1);
    assert_int_equal(completions_count, 1); /* it may be freed: nobody has looked on */
}

static void client__that_writes_with_immediate_data_is_over(void **state)
{
    (void)state;
    open_client();
    complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, IBV_WC_SUCCESS);
    expect_posted("");
    assert_int_equal(ended, 1);
}

static void client__leaves_time_to_others(void **state)
{
    (void)state;
    open_client();
    is_endless = true;
    client.watch.ready(&client.watch);
    assert_int_equal(turns, 1);
    client.watch.ready(&client.watch);
    assert_int_equal(turns, 2);
    is_endless = false;
    client.watch.ready(&client.watch);
    assert_int_equal(turns, 2);
    assert_int_equal(ended, 0);
}

static void client__that_fails_is_over_and_says_why(void **state)
{
    (void)state;
    open_client();
    complete(IBV_WC_RECV, 0, IBV_WC_LOC_LEN_ERR);
    expect_posted("");
    assert_int_equal(ended, 1);
    assert_int_equal(client.status, IBV_WC_LOC_LEN_ERR);
}

static void probe__is_one_at_a_time(void **state)
{
    (void)state;
    open_client();
    mover_client_probe(&client);
    mover_client_probe(&client);
    expect_posted("w ");
    complete(IBV_WC_RDMA_WRITE, 0, IBV_WC_SUCCESS);
    expect_posted(""); /* no place is free by that */
    mover_client_probe(&client);
    expect_posted("w ");
    complete(IBV_WC_RDMA_WRITE, 0, IBV_WC_RETRY_EXC_ERR);
    expect_posted("");
    assert_int_equal(ended, 1);
}

static void client__closes_and_ends(void **state)
{
    (void)state;
    has_no_room = true;
    assert_false(mover_client_open(&client, &loop, &id, NULL, PLACES, BYTES));
    mover_client_close(&client);
    assert_string_equal(posted, "");
    assert_null(client.id);
    begin(NULL);
    open_client();
    mover_client_end(&client);
    assert_string_equal(posted, "d x ");
}

static void client__is_quiet_once_its_peer_is_out_of_its_store(void **state)
{
    (void)state;
    open_client();
    state_of_qp = (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR, .sq_draining = 1};
    assert_false(mover_client_is_quiet(&client));
    state_of_qp.sq_draining = 0;
    assert_true(mover_client_is_quiet(&client));
    /* An adapter whose queue drains is none that was disconnected */
    state_of_qp = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .sq_draining = 1};
    assert_true(mover_client_is_quiet(&client));
    mover_client_close(&client);
    client.id = &id;
    assert_true(mover_client_is_quiet(&client)); /* it has no queue pair any more */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(message__is_answered_where_it_lies),
        CASE(client__is_over_once_its_last_answer_has_gone),
        CASE(client__without_an_answer_is_over),
        CASE(client__that_writes_with_immediate_data_is_over),
        CASE(client__leaves_time_to_others),
        CASE(client__that_fails_is_over_and_says_why),
        CASE(probe__is_one_at_a_time),
        CASE(client__closes_and_ends),
        CASE(client__is_quiet_once_its_peer_is_out_of_its_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
