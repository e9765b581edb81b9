// SPDX-License-Identifier: BSD-2-Clause
// What a rank shows of its receives: that its program waits for one, or computes beside it.
#include "members.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GONE_ON, SENT, LONG = 30000, SHORTLY_MS = 50 };

static uint8_t data[LONG];
static char folder[] = "/tmp/torch_engine_holds.XXXXXX";

static void open_shown(struct member *member)
{
    setenv("XDG_RUNTIME_DIR", folder, 1);
    unsetenv("SIDEWIRE_COLL_STATUS");
    pge_close(member->engine);
    member->engine = member_open(member, 1, member->size, NULL);
}

// Until the dump of this rank has these words.
static void await_shown(struct member *member, const char *words)
{
    static char text[1 << 20];
    char path[80];
    snprintf(path, sizeof(path), "%s/%u.json", folder, member->rank);
    do {
        struct sw_coll_error error = {.text = ""};
        need(!pge_dump(member->engine, path, &error));
        FILE *file = fopen(path, "r");
        need(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
        nap_ms(2);
    } while (!strstr(text, words));
    unlink(path);
}

static void *hold_and_wait(void *context)
{
    struct member *member = context;
    struct work work;
    work_recv(&work, 1, 0, data, LONG);
    work_submit(member, &work);
    pge_hold(member->engine, &work.operation, true);
    work_end(member, &work, SW_COLL_OK);
    pge_hold(member->engine, &work.operation, false);
    return NULL;
}

static const char computes[] = "\"waits_for\":[],\"blocked_by\":[]}";
static const char waits_for_1[] = "\"waits_for\":[1],\"blocked_by\":[1]}";

static void receive_and_show(struct member *member)
{
    struct sw_coll_error error;
    struct work early, *work = &early;
    pthread_t thread;
    open_shown(member);
    sum_once(member, 1);
    if (member->rank) {
        flag_await(member, GONE_ON, 1);
        for (uint32_t i = 0; member->rank == 1 && i < 2; i++) {
            work_send(work, 0, 0, data, LONG);
            work_submit(member, work);
            work_end(member, work, SW_COLL_OK);
        }
        sum_once(member, 2);
        return;
    }
    work_recv(work, 1, 0, data, LONG);
    work_submit(member, work);
    nap_ms(SHORTLY_MS); /* the engine's thread drives */
    await_shown(member, computes);
    for (uint32_t i = 0; i < 2; i++) { /* a wait that ends without it */
        pge_hold(member->engine, &work->operation, true);
        need(pge_wait(member->engine, &work->operation, sw_coll_deadline_ms(SHORTLY_MS), &error) ==
             SW_COLL_AGAIN);
        await_shown(member, waits_for_1);
        pge_hold(member->engine, &work->operation, false);
        await_shown(member, computes);
    }
    need(!pthread_create(&thread, NULL, hold_and_wait, member));
    await_shown(member, "\"activity\":\"recv\"");
    await_shown(member, waits_for_1);
    flag_raise(member, GONE_ON);
    work_end(member, work, SW_COLL_OK);
    pthread_join(thread, NULL);
    await_shown(member, computes);
    sum_once(member, 2);
}

static void recv__is_shown_while_the_program_waits_for_it(void **state)
{
    (void)state;
    members_run(2, receive_and_show, 0);
    members_run(3, receive_and_show, 0);
}

// Any of several may send: none of them is in the way for sure.
static void receive_any(struct member *member)
{
    struct sw_coll_error error;
    struct work work;
    open_shown(member);
    if (!member->rank) {
        work_recv(&work, 0, 0, data, LONG);
        work.operation.kind = PGE_RECV_ANY;
        work_submit(member, &work);
        pge_hold(member->engine, &work.operation, true);
        pge_wait(member->engine, &work.operation, sw_coll_deadline_ms(SHORTLY_MS), &error);
        await_shown(member,
                    member->size == 2 ? waits_for_1 : "\"waits_for\":[1,2],\"blocked_by\":[]}");
        flag_raise(member, GONE_ON);
        work_end(member, &work, SW_COLL_OK);
        pge_hold(member->engine, &work.operation, false);
    } else if (member->rank == 1) {
        flag_await(member, GONE_ON, 1);
        work_send(&work, 0, 0, data, LONG);
        work_submit(member, &work);
        work_end(member, &work, SW_COLL_OK);
    }
    sum_once(member, 1);
}

static void recv_any__blames_no_rank_alone(void **state)
{
    (void)state;
    members_run(2, receive_any, 0);
    members_run(3, receive_any, 0);
}

// It waits for a sum: what it has sent beside that is under way, and no more.
static void send_and_sum(struct member *member)
{
    const uint64_t mine = 1;
    uint64_t sum = 0;
    struct sw_coll_error error;
    struct work send, work;
    open_shown(member);
    const uint32_t next = (member->rank + 1) % member->size;
    if (!member->rank) {
        work_send(&send, next, 0, data, LONG);
        work_submit(member, &send);
        await_shown(member, "\"waits_for\":[1],\"blocked_by\":[]}");
        pge_hold(member->engine, &send.operation, true);
        pge_wait(member->engine, &send.operation, sw_coll_deadline_ms(SHORTLY_MS), &error);
        await_shown(member, waits_for_1);
        pge_hold(member->engine, &send.operation, false);
        await_shown(member, "\"waits_for\":[1],\"blocked_by\":[]}");
    }
    members_meet(member, SENT);
    if (member->rank == 1) {
        work_recv(&send, 0, 0, data, LONG);
        work_submit(member, &send);
    }
    work_sum(&work, &mine, &sum, 1);
    work_submit(member, &work);
    work_end(member, &work, SW_COLL_OK);
    if (member->rank < 2)
        work_end(member, &send, SW_COLL_OK);
    need(sum == member->size);
}

static void send__blocks_when_it_is_waited_for(void **state)
{
    (void)state;
    members_run(3, send_and_sum, 0);
}

// It opens another group, beside a receive that the engine's thread drives.
static void open_elsewhere(struct member *member)
{
    const bool is_awaited[2] = {false, true};
    struct work work;
    open_shown(member);
    if (member->rank) {
        flag_await(member, GONE_ON, 1);
        work_send(&work, 0, 0, data, LONG);
    } else {
        work_recv(&work, 1, 0, data, LONG);
    }
    work_submit(member, &work);
    if (!member->rank) {
        for (uint32_t i = 0; i < 2; i++) {
            pge_await_ranks(member->engine, is_awaited, sw_coll_deadline_ms(0));
            await_shown(member, "\"activity\":\"open\"");
            await_shown(member, waits_for_1);
            pge_await_ranks(member->engine, NULL, 0);
            await_shown(member, computes);
        }
        flag_raise(member, GONE_ON);
    }
    work_end(member, &work, SW_COLL_OK);
    sum_once(member, 1);
}

static void await_ranks__shows_another_opening(void **state)
{
    (void)state;
    members_run(2, open_elsewhere, 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[80];
    (void)state;
    snprintf(path, sizeof(path), "%s/sidewire-coll", folder);
    rmdir(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recv__is_shown_while_the_program_waits_for_it),
        cmocka_unit_test(recv_any__blames_no_rank_alone),
        cmocka_unit_test(send__blocks_when_it_is_waited_for),
        cmocka_unit_test(await_ranks__shows_another_opening),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
