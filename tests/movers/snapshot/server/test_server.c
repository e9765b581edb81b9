/* SPDX-License-Identifier: BSD-2-Clause */
/* A server and its clients in one process: sums that are checked where they lie, room, removal, and
 * strangers that say what they like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rdma/caller.h"
#include "common/rdma/memory.h"
#include "snapshot/core/medium.h"
#include "snapshot/server/server.h"
#include "snapshot/store/leaf.h"

enum { PATIENCE_MS = 20000, MEMORY = 64 << 20, BLOCK = SNAP_BLOCK_BYTES, BLOCKS = 40, ROOM = 64 };

static struct snap_server server;
static struct mover_loop loop;
static struct mover_watch stop_watch;
static pthread_t thread;
static char port[8];

static void server_test_stop(struct mover_watch *watch)
{
    mover_loop_stop(watch->context);
}

static void *server_test_run(void *arg)
{
    (void)arg;
    mover_loop_run(&loop);
    return NULL;
}

static int begin_server(void **state)
{
    char error[512];
    (void)state;
    memset(&server, 0, sizeof(server));
    server.memory_bytes = MEMORY;
    server.may_remove = true;
    assert_int_equal(mover_loop_open(&loop), 0);
    if (snap_server_start(&server, &loop, "127.0.0.1", "0", error, sizeof(error)))
        fail_msg("%s", error);
    snprintf(port, sizeof(port), "%u", mover_listener_port(&server.clients.acceptor.listener));
    stop_watch = (struct mover_watch){
        .fd = eventfd(0, EFD_CLOEXEC), .ready = server_test_stop, .context = &loop};
    assert_int_equal(mover_loop_watch(&loop, &stop_watch), 0);
    return pthread_create(&thread, NULL, server_test_run, NULL);
}

static int end_server(void **state)
{
    (void)state;
    assert_int_equal(eventfd_write(stop_watch.fd, 1), 0);
    pthread_join(thread, NULL);
    close(stop_watch.fd);
    snap_server_end(&server);
    mover_loop_close(&loop);
    return 0;
}

/* ---- a medium ---- */

static struct snap_medium *open_volume(const char *name, uint64_t bytes, bool take_over, int code)
{
    char text[128], error[512] = "";
    struct snap_medium *medium = NULL;
    const struct snap_medium_options options = {.is_writable = true,
                                                .take_over = take_over,
                                                .bytes = bytes,
                                                .writer = "test",
                                                .connect_timeout_ms = PATIENCE_MS,
                                                .stall_timeout_ms = PATIENCE_MS};
    snprintf(text, sizeof(text), "peer:127.0.0.1:%s/%s", port, name);
    const int got = snap_medium_open(text, &options, error, sizeof(error), &medium);
    if (got != code)
        fail_msg("%s: %d, %s", text, got, error);
    return medium;
}

struct outcome {
    bool is_done;
    int result;
};

static void take_done(struct snap_io *io, int result)
{
    struct outcome *outcome = io->context;
    outcome->is_done = true;
    outcome->result = result;
}

static int do_io(struct snap_medium *medium, struct snap_io *io)
{
    struct outcome outcome = {.is_done = false};
    io->done = take_done;
    io->context = &outcome;
    medium->ops->submit(medium, io);
    while (!outcome.is_done) {
        struct pollfd ready = {.fd = medium->fd, .events = POLLIN};
        medium->ops->poll(medium);
        if (!outcome.is_done && medium->ops->arm(medium))
            poll(&ready, 1, PATIENCE_MS);
    }
    return outcome.result;
}

static int write_at(struct snap_medium *medium, uint8_t *data, uint64_t block, uint32_t blocks)
{
    struct snap_io io = {
        .kind = SNAP_IO_WRITE, .offset = block * BLOCK, .bytes = blocks * BLOCK, .data = data};
    return do_io(medium, &io);
}

static int check_at(struct snap_medium *medium, uint64_t block, uint64_t *bad_block)
{
    struct snap_io io = {.kind = SNAP_IO_CHECK, .offset = block * BLOCK, .bytes = BLOCK};
    const int code = do_io(medium, &io);
    *bad_block = io.bad_block;
    return code;
}

/* A leaf at block 2 of blocks from 10 on; each third is of an older snapshot. */
static void make_leaf(uint8_t *data, uint8_t *leaf)
{
    struct snap_sum sums[BLOCKS];
    uint32_t places[BLOCKS];
    uint8_t fresh[(BLOCKS + 7) / 8] = {0};
    for (uint32_t i = 0; i < BLOCKS; i++) {
        memset(data + i * BLOCK, (int)i + 1, BLOCK);
        sums[i] = snap_sum_block(data + i * BLOCK, 77);
        places[i] = 10 + i;
        fresh[i / 8] |= (uint8_t)((i % 3 != 0) << i % 8);
    }
    snap_leaf_encode(leaf, 0, BLOCKS, 77, sums, places, fresh);
}

static void check__finds_the_block_that_differs(void **state)
{
    uint8_t *data = mover_pages(ROOM * BLOCK), *leaf = data + BLOCKS * BLOCK;
    struct snap_medium *medium = open_volume("run", 1 << 20, false, 0);
    uint64_t bad = 0;
    (void)state;
    assert_true(medium->checks && medium->is_new);
    assert_int_equal(medium->ops->use(medium, data, ROOM * BLOCK), 0);
    make_leaf(data, leaf);
    assert_int_equal(write_at(medium, data, 10, BLOCKS), 0);
    assert_int_equal(write_at(medium, leaf, 2, 1), 0);
    assert_int_equal(check_at(medium, 2, &bad), 0);
    for (uint32_t i = 0; i < BLOCKS; i += 7) {
        data[i * BLOCK + i * 13] ^= 4; /* a bit */
        assert_int_equal(write_at(medium, data + i * BLOCK, 10 + i, 1), 0);
        const int code = check_at(medium, 2, &bad);
        if (i % 3) {
            assert_int_equal(code, -EBADMSG);
            assert_int_equal(bad, 10 + i);
        } else {
            assert_int_equal(code, 0); /* it is not fresh */
        }
        data[i * BLOCK + i * 13] ^= 4;
        assert_int_equal(write_at(medium, data + i * BLOCK, 10 + i, 1), 0);
    }
    assert_int_equal(check_at(medium, 2, &bad), 0);
    assert_int_equal(check_at(medium, 10, &bad), -EBADMSG); /* no leaf */
    assert_int_equal(bad, 10);
    assert_int_equal(check_at(medium, 255, &bad), -EBADMSG);
    assert_int_equal(medium->error, 0);
    medium->ops->close(medium);
    free(data);
}

/* Sizes and places that a leaf of a stranger has. */
static void check__leaves_that_lie(void **state)
{
    uint8_t *data = mover_pages(ROOM * BLOCK), *leaf = data + BLOCKS * BLOCK;
    struct snap_medium *medium = open_volume("run", 1 << 20, false, 0);
    static const struct {
        uint32_t at, value;
    } bad[] = {{0, 0},          {12, 0},       {12, UINT32_MAX},       {12, 1025},
               {24 + 640, 256}, {24 + 640, 0}, {24 + 644, UINT32_MAX}, {24 + 640, 1},
               {12, 41}};
    uint64_t block;
    (void)state;
    assert_int_equal(medium->ops->use(medium, data, ROOM * BLOCK), 0);
    make_leaf(data, leaf);
    assert_int_equal(write_at(medium, data, 10, BLOCKS), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        make_leaf(data, leaf);
        leaf[24 + BLOCKS * 20] = 0xff; /* all of the first eight are fresh */
        put_le32(leaf + bad[i].at, bad[i].value);
        assert_int_equal(write_at(medium, leaf, 2, 1), 0);
        assert_int_equal(check_at(medium, 2, &block), -EBADMSG);
    }
    make_leaf(data, leaf); /* at the very end of the volume, where it is cut off */
    assert_int_equal(write_at(medium, leaf, 255, 1), 0);
    put_le32(leaf + 12, 1024);
    assert_int_equal(write_at(medium, leaf, 255, 1), 0);
    assert_int_equal(check_at(medium, 255, &block), -EBADMSG);
    medium->ops->close(medium);
    free(data);
}

static void room__is_bounded(void **state)
{
    (void)state;
    open_volume("huge", 1ull << 62, false, -ENOSPC);
    open_volume("huge", UINT64_MAX - 4095, false, -ENOSPC);
    struct snap_medium *half = open_volume("half", MEMORY / 2, false, 0);
    open_volume("more", MEMORY / 2 + BLOCK, false, -ENOSPC);
    struct snap_medium *rest = open_volume("rest", MEMORY / 2, false, 0);
    open_volume("little", BLOCK, false, -ENOSPC);
    half->ops->close(half);
    rest->ops->close(rest);
}

/* Volumes that their clients only opened make room for one that is wanted now. */
static void room__is_not_held_by_empty_volumes(void **state)
{
    uint8_t *data = mover_pages(BLOCK);
    (void)state;
    struct snap_medium *medium = open_volume("opened", MEMORY / 2, false, 0);
    medium->ops->close(medium);
    medium = open_volume("written", MEMORY / 2, false, 0);
    assert_int_equal(medium->ops->use(medium, data, BLOCK), 0);
    memset(data, 1, BLOCK);
    assert_int_equal(write_at(medium, data, 0, 1), 0);
    medium->ops->close(medium);
    medium = open_volume("next", MEMORY / 2, false, 0);
    open_volume("more", MEMORY / 2, false, -ENOSPC);
    medium->ops->close(medium);
    medium = open_volume("written", MEMORY / 2, false, 0);
    assert_false(medium->is_new);
    medium->ops->close(medium);
    free(data);
}

static void take_over__ends_the_one_before(void **state)
{
    uint8_t *data = mover_pages(BLOCK);
    (void)state;
    struct snap_medium *first = open_volume("run", 1 << 20, false, 0);
    assert_int_equal(first->ops->use(first, data, BLOCK), 0);
    struct snap_medium *second = open_volume("run", 1 << 20, true, 0);
    assert_int_equal(second->epoch, first->epoch + 1);
    assert_int_equal(write_at(first, data, 3, 1), -ESTALE);
    assert_int_equal(first->error, -ESTALE);
    assert_non_null(strstr(first->why, "taken over"));
    first->ops->close(first);
    second->ops->close(second);
    free(data);
}

/* ---- strangers ---- */

static void open_stranger(struct mover_caller *caller)
{
    char error[MOVER_CONNECTION_SAID];
    *caller = (struct mover_caller){.message_bytes = SNAP_WIRE_MESSAGE_MAX};
    if (!mover_caller_open(caller, "127.0.0.1", port, error))
        fail_msg("%s", error);
}

/* The answer, while it is WORKING asked again; its status is -1 where the connection has ended. */
static int ask_stranger(struct mover_caller *caller, const struct snap_wire_request *request,
                        struct snap_wire_answer *answer)
{
    uint32_t bytes = 0;
    for (;;) {
        const size_t asked = snap_wire_put_request(mover_caller_question(caller), request);
        const uint8_t *got = mover_caller_ask(caller, (uint32_t)asked, PATIENCE_MS, &bytes);
        if (!got || !snap_wire_get_answer(got, bytes, answer))
            return -1;
        if (answer->status != SNAP_WIRE_WORKING)
            return (int)answer->status;
        poll(NULL, 0, 1);
    }
}

static void stranger__says_what_it_likes(void **state)
{
    struct mover_caller caller;
    struct snap_wire_answer answer;
    uint32_t bytes;
    (void)state;
    for (uint32_t seed = 1; seed < 40; seed++) {
        open_stranger(&caller);
        uint8_t *question = mover_caller_question(&caller);
        const struct snap_wire_request open = {.type = SNAP_WIRE_OPEN, .name = "run"};
        const size_t length = snap_wire_put_request(question, &open);
        srand(seed);
        for (uint32_t i = 0; i < 1 + seed % 4; i++)
            question[(uint32_t)rand() % (seed % 2 ? 16 : length)] = (uint8_t)rand();
        const uint32_t said = seed % 3 ? (uint32_t)length : (uint32_t)rand() % 4096 + 1;
        const uint8_t *got = mover_caller_ask(&caller, said, PATIENCE_MS, &bytes);
        if (got)
            assert_true(snap_wire_get_answer(got, bytes, &answer));
        mover_caller_close(&caller);
    }
    struct snap_medium *medium = open_volume("run", 1 << 20, false, 0);
    medium->ops->close(medium);
}

/* Each question in the wrong place. */
static void stranger__asks_without_a_volume(void **state)
{
    struct mover_caller caller;
    static struct snap_wire_answer answer;
    struct snap_wire_request request = {
        .type = SNAP_WIRE_CHECK, .leaves_count = 2, .leaves = {0, 4096}};
    (void)state;
    open_stranger(&caller);
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_DENIED);
    request = (struct snap_wire_request){.type = SNAP_WIRE_FLUSH, .ticket = 99};
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_DENIED);
    request = (struct snap_wire_request){.type = SNAP_WIRE_CLOSE};
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_OK);
    request = (struct snap_wire_request){.type = SNAP_WIRE_LIST, .first = UINT32_MAX};
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_OK);
    assert_int_equal(answer.count, 0);
    request = (struct snap_wire_request){.type = SNAP_WIRE_REMOVE, .name = "none"};
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_NOT_FOUND);
    request = (struct snap_wire_request){
        .type = SNAP_WIRE_OPEN, .wishes = SNAP_WIRE_WRITE | SNAP_WIRE_RESUME, .name = "none"};
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_NOT_FOUND);
    request.wishes = SNAP_WIRE_WRITE | SNAP_WIRE_CREATE;
    request.bytes = 1 << 20;
    request.session[0] = 1;
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_OK);
    assert_true(answer.flags & SNAP_WIRE_IS_BLANK);
    strcpy(request.name, "another");
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_MALFORMED);
    mover_caller_close(&caller);
}

static void session__is_resumed_by_its_number_alone(void **state)
{
    struct mover_caller first, second;
    static struct snap_wire_answer answer;
    struct snap_wire_request request = {.type = SNAP_WIRE_OPEN,
                                        .wishes = SNAP_WIRE_WRITE | SNAP_WIRE_CREATE,
                                        .bytes = 1 << 20,
                                        .session = {1},
                                        .name = "run"};
    (void)state;
    open_stranger(&first);
    assert_int_equal(ask_stranger(&first, &request, &answer), SNAP_WIRE_OK);
    const uint64_t epoch = answer.epoch;
    open_stranger(&second);
    request.session[0] = 2;
    assert_int_equal(ask_stranger(&second, &request, &answer), SNAP_WIRE_BUSY);
    request.wishes |= SNAP_WIRE_RESUME;
    assert_int_equal(ask_stranger(&second, &request, &answer), SNAP_WIRE_FENCED);
    request.session[0] = 1;
    assert_int_equal(ask_stranger(&second, &request, &answer), SNAP_WIRE_OK);
    assert_int_equal(answer.epoch, epoch);
    assert_int_equal(ask_stranger(&first, &request, &answer), -1); /* it was ended */
    mover_caller_close(&first);
    mover_caller_close(&second);
}

static void remove__of_what_nobody_writes(void **state)
{
    struct mover_caller caller;
    static struct snap_wire_answer answer;
    const struct snap_wire_request remove = {.type = SNAP_WIRE_REMOVE, .name = "run"};
    const struct snap_wire_request list = {.type = SNAP_WIRE_LIST};
    (void)state;
    struct snap_medium *medium = open_volume("run", MEMORY, false, 0);
    open_stranger(&caller);
    assert_int_equal(ask_stranger(&caller, &remove, &answer), SNAP_WIRE_BUSY);
    medium->ops->close(medium);
    assert_int_equal(ask_stranger(&caller, &list, &answer), SNAP_WIRE_OK);
    assert_int_equal(answer.total, 1);
    assert_string_equal(answer.volumes[0].name, "run");
    assert_string_equal(answer.volumes[0].writer, "test");
    assert_int_equal(ask_stranger(&caller, &remove, &answer), SNAP_WIRE_NOT_FOUND); /* now */
    assert_int_equal(ask_stranger(&caller, &list, &answer), SNAP_WIRE_OK);
    assert_int_equal(answer.total, 0);
    mover_caller_close(&caller);
    medium = open_volume("next", MEMORY, false, 0); /* there is room again */
    medium->ops->close(medium);
}

/* More than there are places, one after another. */
static void connects__come_and_go(void **state)
{
    struct mover_caller caller;
    static struct snap_wire_answer answer;
    struct snap_wire_request request = {.type = SNAP_WIRE_OPEN,
                                        .wishes = SNAP_WIRE_WRITE | SNAP_WIRE_CREATE |
                                                  SNAP_WIRE_TAKE_OVER,
                                        .bytes = 1 << 20,
                                        .name = "run"};
    (void)state;
    for (uint32_t i = 0; i < MOVER_CLIENTS_MAX + 22; i++) {
        open_stranger(&caller);
        request.session[0] = (uint8_t)i;
        if (i % 2) { /* amid an OPEN */
            const size_t bytes = snap_wire_put_request(mover_caller_question(&caller), &request);
            mover_message_send(&caller.messages, 0, (uint32_t)bytes);
        }
        mover_caller_close(&caller);
    }
    open_stranger(&caller);
    assert_int_equal(ask_stranger(&caller, &request, &answer), SNAP_WIRE_OK);
    mover_caller_close(&caller);
}

int main(void)
{
#define WITH_SERVER(name) cmocka_unit_test_setup_teardown(name, begin_server, end_server)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(check__finds_the_block_that_differs),
        WITH_SERVER(check__leaves_that_lie),
        WITH_SERVER(room__is_bounded),
        WITH_SERVER(room__is_not_held_by_empty_volumes),
        WITH_SERVER(take_over__ends_the_one_before),
        WITH_SERVER(stranger__says_what_it_likes),
        WITH_SERVER(stranger__asks_without_a_volume),
        WITH_SERVER(session__is_resumed_by_its_number_alone),
        WITH_SERVER(remove__of_what_nobody_writes),
        WITH_SERVER(connects__come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
