/* SPDX-License-Identifier: BSD-2-Clause */
/* A listener that has no descriptor for the next connection is left alone for a while. */
#include "link/engine_pause.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link/direct/process/state.h"
#include "link/names/names.h"
#include "link/names/registry.h"
#include "link_rig.h"

enum { SHORT_MS = 500, ROUNDS_MAX = 500, PATIENCE_MS = 30000 };

static void set_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void call_process(int client)
{
    struct sockaddr_un to;
    socklen_t to_len;
    char name[SW_NAME_BYTES];
    sw_registry_name(sw_nic.slot, "", name);
    assert_true(sw_name_find(name, &to, &to_len));
    set_descriptors(3);
    assert_int_equal(connect(client, (const struct sockaddr *)&to, to_len), 0);
}

static void pause__the_engine_sleeps_where_it_has_no_descriptor(void **state)
{
    struct rig *rig = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    sw_lock_release(&rig->qp->lock);
    sw_lock_release(&rig->other->lock);
    const int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(client >= 0);
    call_process(client);
    const uint32_t turns = (uint32_t)atomic_load(&sw_direct.turns);
    usleep(SHORT_MS * 1000);
    const uint32_t rounds = (uint32_t)atomic_load(&sw_direct.turns) - turns;
    set_descriptors(before.rlim_cur);
    print_message("%u rounds in %u ms\n", rounds, SHORT_MS);
    assert_true(rounds < ROUNDS_MAX);
    /* And then it is let in, and asked for its proof. */
    struct pollfd asked = {.fd = client, .events = POLLIN};
    assert_int_equal(poll(&asked, 1, PATIENCE_MS), 1);
    close(client);
    sw_lock_acquire(&rig->other->lock);
    sw_lock_acquire(&rig->qp->lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(pause__the_engine_sleeps_where_it_has_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
