// SPDX-License-Identifier: BSD-2-Clause
// Ranks on two hosts: one of them is killed, or the wire between them is cut. Those that still
// reach each other go on.
//
// usage: test_coll_apart LINK NAMESPACE ADDRESS NAMESPACE ADDRESS. Interfaces are named like these.
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY, GO, RANKS_APART = 4, HOSTS = 2 };

static struct {
    const char *name, *address;
} hosts[HOSTS];

static uint32_t left; // of them, on the side of each

// Ranks 0 and 1 are on the first host.
static void live_on_a_host(struct rank *rank)
{
    const uint32_t host = rank->rank / HOSTS;
    rank_enter(hosts[host].name);
    rank->options.address = hosts[host].address;
}

static void go_on_with_those_in_reach(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    enum sw_coll_status status;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    while (!(status = sum_and_look(rank->coll, MANY, &error)))
        continue;
    need(status == SW_COLL_RANK_GONE);
    keep_words(rank, error.text);
    shrink_now(rank, rank->coll, &shrunk);
    sw_coll_close(rank->coll);
    rank->coll = shrunk;
    need(sw_coll_size(shrunk) == left);
    sum_both_ways(rank, shrunk);
    need_quiet_buffers();
}

static void death__on_another_host(void **state)
{
    struct ranks ranks;
    (void)state;
    left = RANKS_APART - 1;
    ranks_start(&ranks, RANKS_APART, go_on_with_those_in_reach, live_on_a_host);
    flag_await(ranks.shared, READY, RANKS_APART);
    nap_ms(20);
    kill(ranks.pids[2], SIGKILL);
    await_others(&ranks, 1u << 2);
    expect_same(&ranks, 1u << 2, "rank 2 died");
    ranks_end(&ranks, 1u << 2);
}

static void cut_wire(void)
{
    const char *name = hosts[0].name;
    const pid_t pid = fork();
    if (!pid) {
        execlp("ip", "ip", "-n", name, "link", "set", name, "down", (char *)NULL);
        _exit(127);
    }
    int how = -1;
    assert_true(waitpid(pid, &how, 0) == pid && !how);
}

// Each side counts the other one as gone.
static void wire__that_is_cut(void **state)
{
    struct ranks ranks;
    (void)state;
    left = RANKS_APART / HOSTS;
    ranks_start(&ranks, RANKS_APART, go_on_with_those_in_reach, live_on_a_host);
    flag_await(ranks.shared, READY, RANKS_APART);
    nap_ms(20);
    cut_wire();
    await_others(&ranks, 0);
    expect_same(&ranks, 0xc, "ranks 2 and 3 died");
    expect_same(&ranks, 0x3, "ranks 0 and 1 died");
    ranks_end(&ranks, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death__on_another_host),
        cmocka_unit_test(wire__that_is_cut),
    };
    if (argc != 2 + 2 * HOSTS)
        return 2;
    if (!strcmp(argv[1], "iwarp")) // TCP does not give up for many minutes
        cmocka_set_test_filter("death__*");
    for (int i = 0; i < HOSTS; i++) {
        hosts[i].name = argv[2 + 2 * i];
        hosts[i].address = argv[3 + 2 * i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
