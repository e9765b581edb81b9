/* SPDX-License-Identifier: BSD-2-Clause */
/* A program watches its device while addresses come and go: in a network namespace of its own, with
 * `ip`. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

static void ip(const char *args)
{
    char command[128];
    snprintf(command, sizeof(command), "ip %s", args);
    assert_int_equal(system(command), 0);
}

/* The next event of this type; others of the same change may come before it. */
static void expect_event(struct ibv_context *ctx, enum ibv_event_type type)
{
    struct ibv_async_event event;
    do {
        assert_true(rig_readable(ctx->async_fd, 5000));
        assert_int_equal(ibv_get_async_event(ctx, &event), 0);
        ibv_ack_async_event(&event);
    } while (event.event_type != type);
    assert_int_equal(event.element.port_num, 1);
}

/* The index of the RoCE v2 entry of 127.0.0.last, or -1. */
static int find_gid(struct ibv_context *ctx, uint8_t last)
{
    const uint8_t want[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = last};
    struct ibv_gid_entry entries[16];
    const ssize_t count = ibv_query_gid_table(ctx, entries, 16, 0);
    for (ssize_t i = 0; i < count; i++)
        if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(&entries[i].gid, want, 16))
            return (int)entries[i].gid_index;
    return -1;
}

static void gid_table__follows_the_addresses(void **state)
{
    (void)state;
    ip("link set lo up");
    struct ibv_context *ctx = rig_open();
    const int first = find_gid(ctx, 1);
    assert_true(first >= 0);
    assert_int_equal(find_gid(ctx, 7), -1);

    ip("address add 127.0.0.7/8 dev lo");
    expect_event(ctx, IBV_EVENT_GID_CHANGE);
    const int second = find_gid(ctx, 7);
    assert_true(second >= 0 && second != first);
    assert_int_equal(find_gid(ctx, 1), first); /* others keep their place */

    ip("address del 127.0.0.7/8 dev lo");
    expect_event(ctx, IBV_EVENT_GID_CHANGE);
    assert_int_equal(find_gid(ctx, 7), -1);
    struct ibv_gid_entry entry;
    assert_int_equal(ibv_query_gid_ex(ctx, 1, (uint32_t)second, &entry, 0), ENODATA);
    assert_int_equal(find_gid(ctx, 1), first);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void port__goes_down_and_up(void **state)
{
    (void)state;
    struct ibv_port_attr port;
    ip("link set lo up");
    struct ibv_context *ctx = rig_open();
    assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    ip("link set lo down");
    expect_event(ctx, IBV_EVENT_PORT_ERR);
    assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_DOWN);
    ip("link set lo up");
    expect_event(ctx, IBV_EVENT_PORT_ACTIVE);
    assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(ibv_close_device(ctx), 0);
}

/* An own network, for an ordinary user as root of an own user namespace. */
static bool enter_namespace(void)
{
    char map[32];
    snprintf(map, sizeof(map), "0 %u 1", (unsigned int)getuid());
    if (!unshare(CLONE_NEWNET))
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return false;
    const int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    const bool mapped = write(fd, map, strlen(map)) == (ssize_t)strlen(map);
    close(fd);
    return mapped;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gid_table__follows_the_addresses),
        cmocka_unit_test(port__goes_down_and_up),
    };
    if (!enter_namespace()) {
        puts("SKIP: no network namespace may be made here");
        return 77;
    }
    /* The children need neither the library nor the sanitizer that it may want. */
    unsetenv("LD_PRELOAD");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
