/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device list and GID tables against a network namespace of our own, changed with ip(8). The
 * list lives as long as the process, so the tests stand on each other's interfaces; each removes
 * the addresses that it added.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/nic/netdev.h"

#define EVENTS_MAX 64

static struct {
    int count;
    struct {
        struct sw_netdev *dev;
        enum sw_netdev_change change;
    } list[EVENTS_MAX];
} events;

static const char *refusal; /* why there is no namespace to test in */
static bool have_nic;       /* a second interface, "nic0", exists beside the loopback */

static void record(void *arg, struct sw_netdev *dev, enum sw_netdev_change change)
{
    assert_ptr_equal(arg, &events);
    assert_in_range(events.count, 0, EVENTS_MAX - 1);
    events.list[events.count].dev = dev;
    events.list[events.count++].change = change;
}

static int event_count(struct sw_netdev *dev, enum sw_netdev_change change)
{
    int count = 0;
    for (int i = 0; i < events.count; i++)
        count += events.list[i].dev == dev && events.list[i].change == change;
    return count;
}

static void refresh(void)
{
    events.count = 0;
    assert_int_equal(sw_netdev_refresh(record, &events), 0);
}

static int run(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct sw_netdev *find(const char *name)
{
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (!strcmp(info.name, name))
            return sw_netdev_get(i);
    }
    return NULL;
}

/* The index of the RoCE v2 entry of an address, -1 if it has none. Checks that v1 is just before
 * it. */
static int gid_index(struct sw_netdev *dev, const char *address)
{
    union ibv_gid wanted;
    assert_int_equal(inet_pton(AF_INET6, address, wanted.raw), 1);
    for (int i = 1; i < SW_GID_TABLE_LEN; i += 2) {
        struct sw_gid v1, v2;
        assert_true(sw_netdev_gid(dev, i - 1, &v1));
        assert_true(sw_netdev_gid(dev, i, &v2));
        assert_int_equal(v1.valid, v2.valid);
        if (!v2.valid || memcmp(v2.gid.raw, wanted.raw, 16))
            continue;
        assert_memory_equal(v1.gid.raw, wanted.raw, 16);
        assert_int_equal(v1.type, SW_GID_ROCE_V1);
        assert_int_equal(v2.type, SW_GID_ROCE_V2);
        return i;
    }
    return -1;
}

static void need_namespace(void)
{
    if (refusal) {
        print_message("skipped: %s\n", refusal);
        skip();
    }
}

static void need_nic(void)
{
    need_namespace();
    if (!have_nic) {
        print_message("skipped: this kernel makes neither a dummy nor a veth interface\n");
        skip();
    }
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, text, strlen(text));
    (void)ignored;
    close(fd);
}

static void enter_namespace(void)
{
    char map[64];
    snprintf(map, sizeof(map), "0 %d 1", (int)getuid());
    if (unshare(CLONE_NEWNET)) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
            refusal = "unshare of a network namespace is refused";
            return;
        }
        write_file("/proc/self/setgroups", "deny");
        write_file("/proc/self/uid_map",
                   map); /* ip(8) keeps its capabilities only as a mapped root */
    }
    if (run("ip link set lo up 2>/dev/null")) {
        refusal = "ip(8) is missing or may not configure the new network namespace";
        return;
    }
    static const char *const makers[] = {
        "ip link add nic0 type dummy 2>/dev/null",
        "ip link add nic0 type veth peer name nic0peer 2>/dev/null",
    };
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]) && !have_nic; i++)
        have_nic = !run(makers[i]);
    if (have_nic)
        have_nic = !run("ip link set nic0 address 02:11:22:33:44:55 addrgenmode none");
}

static void netdev_refresh__lists_the_loopback(void **state)
{
    (void)state;
    need_namespace();
    refresh();
    assert_int_equal(events.count, 0);
    assert_int_equal(sw_netdev_count(), 1);
    struct sw_netdev_info info;
    sw_netdev_read(sw_netdev_get(0), &info);
    assert_string_equal(info.name, "sw_lo");
    assert_string_equal(info.ifname, "lo");
    assert_int_equal(info.ifindex, if_nametoindex("lo"));
    assert_int_equal(info.index, 0);
    assert_int_equal(info.mtu_bytes, 65536);
    assert_int_equal(info.speed_mbps, 0);
    assert_true(info.up);
    assert_true(info.guid != 0);
    assert_int_equal(gid_index(sw_netdev_get(0), "::ffff:127.0.0.1"), 1);
    assert_null(sw_netdev_get(1));
    assert_null(sw_netdev_get(-1));
}

static void netdev_gid__rejects_an_index_past_the_table(void **state)
{
    (void)state;
    need_namespace();
    struct sw_gid gid;
    assert_false(sw_netdev_gid(sw_netdev_get(0), SW_GID_TABLE_LEN, &gid));
    assert_false(sw_netdev_gid(sw_netdev_get(0), -1, &gid));
    assert_true(sw_netdev_gid(sw_netdev_get(0), SW_GID_TABLE_LEN - 1, &gid));
    assert_false(gid.valid);
}

static void netdev_gid__keeps_its_index_while_the_address_lives(void **state)
{
    (void)state;
    need_namespace();
    struct sw_netdev *lo = find("sw_lo");
    int base = sw_netdev_gid_count(lo);
    assert_int_equal(run("ip addr add 10.9.0.1/32 dev lo && ip addr add 10.9.0.2/32 dev lo && "
                         "ip addr add 10.9.0.3/32 dev lo"),
                     0);
    refresh();
    assert_int_equal(event_count(lo, SW_NETDEV_GID_CHANGE), 1);
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.1"), base + 1);
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.2"), base + 3);
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.3"), base + 5);

    assert_int_equal(run("ip addr del 10.9.0.2/32 dev lo"), 0);
    refresh();
    assert_int_equal(event_count(lo, SW_NETDEV_GID_CHANGE), 1);
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.2"), -1);
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.3"), base + 5);
    assert_int_equal(sw_netdev_gid_count(lo), base + 6);

    assert_int_equal(run("ip addr add 10.9.0.4/32 dev lo"), 0);
    refresh();
    assert_int_equal(gid_index(lo, "::ffff:10.9.0.4"), base + 3);

    refresh();
    assert_int_equal(events.count, 0);
    assert_int_equal(run("ip addr del 10.9.0.1/32 dev lo && ip addr del 10.9.0.3/32 dev lo && "
                         "ip addr del 10.9.0.4/32 dev lo"),
                     0);
    refresh();
    assert_int_equal(sw_netdev_gid_count(lo), base);
}

static void netdev_refresh__without_a_listener_keeps_the_news_for_one(void **state)
{
    (void)state;
    need_namespace();
    struct sw_netdev *lo = find("sw_lo");
    assert_int_equal(run("ip addr add 10.9.1.1/32 dev lo"), 0);
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    assert_true(gid_index(lo, "::ffff:10.9.1.1") > 0);
    refresh();
    assert_int_equal(event_count(lo, SW_NETDEV_GID_CHANGE), 1);
    assert_int_equal(run("ip addr del 10.9.1.1/32 dev lo"), 0);
    refresh();
}

static void netdev_refresh__fills_a_full_table_and_no_further(void **state)
{
    (void)state;
    need_namespace();
    struct sw_netdev *lo = find("sw_lo");
    int base = sw_netdev_gid_count(lo);
    assert_int_equal(
        run("for i in $(seq 1 80); do ip addr add 10.9.3.$i/32 dev lo || exit 1; done"), 0);
    refresh();
    assert_int_equal(sw_netdev_gid_count(lo), SW_GID_TABLE_LEN);
    union ibv_gid last;
    inet_pton(AF_INET6, "::ffff:10.9.3.80", last.raw);
    assert_int_equal(gid_index(lo, "::ffff:10.9.3.80"), -1);
    assert_true(sw_netdev_is_local_gid(&last));
    assert_int_equal(
        run("for i in $(seq 1 80); do ip addr del 10.9.3.$i/32 dev lo || exit 1; done"), 0);
    refresh();
    assert_int_equal(sw_netdev_gid_count(lo), base);
}

static void netdev_refresh__adds_an_interface_that_comes_up(void **state)
{
    (void)state;
    need_nic();
    refresh();
    assert_null(find("sw_nic0"));
    run("ip link set nic0peer up 2>/dev/null"); /* a veth gets its carrier from the other end */
    assert_int_equal(
        run("ip addr add 192.0.2.7/24 dev nic0 && ip -6 addr add fd00::7/64 dev nic0 nodad && "
            "ip -6 addr add fe80::7/64 dev nic0 nodad && ip link set nic0 mtu 1400 up"),
        0);
    refresh();
    assert_int_equal(events.count, 0); /* nobody can have had it open */
    struct sw_netdev *nic = find("sw_nic0");
    assert_non_null(nic);
    struct sw_netdev_info info;
    sw_netdev_read(nic, &info);
    assert_int_equal(info.index, 1);
    assert_int_equal(info.mtu_bytes, 1400);
    static const uint8_t mac[6] = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
    static const uint8_t guid[8] = {0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
    assert_memory_equal(info.mac, mac, sizeof(mac));
    assert_memory_equal(&info.guid, guid, sizeof(guid));
    /* The link-local address first although it was configured last. */
    assert_int_equal(gid_index(nic, "fe80::7"), 1);
    assert_int_equal(gid_index(nic, "::ffff:192.0.2.7"), 3);
    assert_int_equal(gid_index(nic, "fd00::7"), 5);
}

static void netdev_refresh__reports_the_port_down_and_up(void **state)
{
    (void)state;
    need_nic();
    struct sw_netdev *nic = find("sw_nic0");
    struct sw_netdev_info info;
    assert_int_equal(run("ip link set nic0 down"), 0);
    refresh();
    assert_int_equal(event_count(nic, SW_NETDEV_PORT_DOWN), 1);
    sw_netdev_read(nic, &info);
    assert_false(info.up);
    assert_int_equal(gid_index(nic, "::ffff:192.0.2.7"),
                     3); /* IPv4 addresses survive, IPv6 ones do not */

    assert_int_equal(run("ip link set nic0 up"), 0);
    refresh();
    sw_netdev_read(nic, &info);
    assert_true(info.up);
    assert_int_equal(event_count(nic, SW_NETDEV_PORT_UP), 1);
}

static void netdev_refresh__keeps_the_device_of_a_vanished_interface(void **state)
{
    (void)state;
    need_nic();
    struct sw_netdev *nic = find("sw_nic0");
    assert_int_equal(run("ip link del nic0"), 0);
    refresh();
    assert_ptr_equal(find("sw_nic0"), nic);
    assert_int_equal(sw_netdev_gid_count(nic), 0);
    struct sw_netdev_info info;
    sw_netdev_read(nic, &info);
    assert_false(info.up);
    assert_int_equal(event_count(nic, SW_NETDEV_GID_CHANGE), 1);
    assert_int_equal(event_count(nic, SW_NETDEV_GONE), 1);
    refresh();
    assert_int_equal(event_count(nic, SW_NETDEV_GONE), 0);
}

static void netdev_refresh__tells_of_an_interface_that_was_replaced(void **state)
{
    (void)state;
    need_nic();
    struct sw_netdev *nic = find("sw_nic0");
    for (int round = 0; round < 2; round++) {
        assert_int_equal(run("ip link add nic0 type veth peer name nic0peer"), 0);
        assert_int_equal(run("ip link set nic0 up"), 0);
        refresh(); /* the first time there was none before */
        assert_ptr_equal(find("sw_nic0"), nic);
        assert_int_equal(event_count(nic, SW_NETDEV_GONE), round);
        assert_int_equal(run("ip link del nic0"), 0);
    }
    refresh();
    assert_int_equal(event_count(nic, SW_NETDEV_GONE), 1);
}

/* A user of the one before is told apart by its number, before and after its end is told of. */
static void netdev_is_interface__is_not_the_one_before(void **state)
{
    (void)state;
    need_nic();
    struct sw_netdev *nic = find("sw_nic0");
    assert_int_equal(run("ip link add nic0 type veth peer name nic0peer"), 0);
    assert_int_equal(run("ip link set nic0 up"), 0);
    refresh();
    const unsigned int first = if_nametoindex("nic0");
    assert_true(sw_netdev_is_interface(nic, first));
    assert_int_equal(run("ip link del nic0"), 0);
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    assert_false(sw_netdev_is_interface(nic, first));
    assert_int_equal(run("ip link add nic0 type veth peer name nic0peer"), 0);
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    assert_true(sw_netdev_is_interface(nic, if_nametoindex("nic0")));
    assert_false(sw_netdev_is_interface(nic, first));
    refresh();
    assert_int_equal(event_count(nic, SW_NETDEV_GONE), 1);
    assert_int_equal(run("ip link del nic0"), 0);
    refresh();
}

static void netdev_is_local_gid__knows_all_addresses_of_the_host(void **state)
{
    (void)state;
    need_namespace();
    union ibv_gid gid;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", gid.raw);
    assert_true(sw_netdev_is_local_gid(&gid));
    inet_pton(AF_INET6, "::ffff:127.200.1.1", gid.raw);
    assert_true(sw_netdev_is_local_gid(&gid));
    inet_pton(AF_INET6, "::ffff:10.9.2.1", gid.raw);
    assert_false(sw_netdev_is_local_gid(&gid));
    assert_int_equal(run("ip addr add 10.9.2.1/32 dev lo"), 0);
    refresh();
    assert_true(sw_netdev_is_local_gid(&gid));
    assert_int_equal(run("ip addr del 10.9.2.1/32 dev lo"), 0);
    refresh();
    assert_false(sw_netdev_is_local_gid(&gid));
}

static void netdev_monitor__wakes_on_a_change(void **state)
{
    (void)state;
    need_namespace();
    int fd = sw_netdev_monitor_fd();
    assert_true(fd >= 0);
    assert_int_equal(sw_netdev_monitor_fd(), fd);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    sw_netdev_monitor_drain();
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    assert_int_equal(run("ip addr add 10.9.4.1/32 dev lo"), 0);
    assert_int_equal(poll(&poll_fd, 1, 5000), 1);
    sw_netdev_monitor_drain();
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    assert_int_equal(run("ip addr del 10.9.4.1/32 dev lo"), 0);
    assert_int_equal(poll(&poll_fd, 1, 5000), 1);
    refresh();
}

static void netdev_fork_child__closes_the_monitor_and_keeps_the_list(void **state)
{
    (void)state;
    need_namespace();
    int fd = sw_netdev_monitor_fd();
    int count = sw_netdev_count();
    pid_t child = fork();
    if (!child) {
        sw_netdev_fork_child();
        bool closed = fcntl(fd, F_GETFD) < 0 && errno == EBADF;
        bool listed = sw_netdev_count() == count && !sw_netdev_refresh(NULL, NULL);
        _exit(!closed + 2 * !listed + 4 * (sw_netdev_monitor_fd() < 0));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(fcntl(fd, F_GETFD) >= 0);
}

static atomic_bool stop;

static void *refresh_and_read(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct sw_netdev_info info;
        struct sw_gid gid;
        if (sw_netdev_refresh(NULL, NULL))
            return "refresh failed";
        for (int i = 0; i < sw_netdev_count(); i++) {
            sw_netdev_read(sw_netdev_get(i), &info);
            if (info.index != i || !sw_netdev_gid(sw_netdev_get(i), 1, &gid))
                return "a device changed its place";
        }
    }
    return NULL;
}

/* A child of a process whose other threads are busy in here must find the locks free and the list
 * whole. */
static void netdev_refresh__works_in_threads_and_forked_children(void **state)
{
    (void)state;
    need_namespace();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, refresh_and_read, NULL), 0);
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(20); /* a deadlock shows as SIGALRM */
            struct sw_netdev_info info;
            int failed = sw_netdev_refresh(NULL, NULL);
            sw_netdev_read(find("sw_lo"), &info);
            _exit(failed || !info.up);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) {
        void *failure;
        assert_int_equal(pthread_join(threads[i], &failure), 0);
        assert_null(failure);
    }
}

/* The filter is read once in a process, before everything else: in a child of a process that has
 * not listed yet. */
static int filtered_list(const char *filter, const char *expected)
{
    pid_t child = fork();
    if (!child) {
        setenv("SIDEWIRE_DEVICES", filter, 1);
        char names[256] = "";
        sw_netdev_refresh(NULL, NULL);
        for (int i = 0; i < sw_netdev_count(); i++) {
            struct sw_netdev_info info;
            sw_netdev_read(sw_netdev_get(i), &info);
            strncat(names, info.ifname, sizeof(names) - strlen(names) - 1);
            strcat(names, " ");
        }
        _exit(strcmp(names, expected) != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void netdev_refresh__obeys_the_filter(void **state)
{
    (void)state;
    need_namespace();
    assert_int_equal(filtered_list("lo", "lo "), 0);
    assert_int_equal(filtered_list("eth7,lo", "lo "), 0);
    assert_int_equal(filtered_list("lo0,l,eth7", ""), 0);
    assert_int_equal(filtered_list("", "lo "), 0);
}

static void netdev_refresh__puts_the_loopback_last(void **state)
{
    (void)state;
    need_nic();
    assert_int_equal(run("ip link set nic0 up"), 0);
    assert_int_equal(filtered_list("", "nic0 lo "), 0);
    assert_int_equal(filtered_list("lo,nic0", "nic0 lo "), 0);
    assert_int_equal(run("ip link set nic0 down"), 0);
}

int main(void)
{
    enter_namespace();
    setenv("SIDEWIRE_DEVICES", "lo,nic0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(netdev_refresh__obeys_the_filter), /* these two before anything lists */
        cmocka_unit_test(netdev_refresh__puts_the_loopback_last),
        cmocka_unit_test(netdev_refresh__lists_the_loopback),
        cmocka_unit_test(netdev_gid__rejects_an_index_past_the_table),
        cmocka_unit_test(netdev_gid__keeps_its_index_while_the_address_lives),
        cmocka_unit_test(netdev_refresh__without_a_listener_keeps_the_news_for_one),
        cmocka_unit_test(netdev_refresh__fills_a_full_table_and_no_further),
        cmocka_unit_test(netdev_refresh__adds_an_interface_that_comes_up),
        cmocka_unit_test(netdev_refresh__reports_the_port_down_and_up),
        cmocka_unit_test(netdev_refresh__keeps_the_device_of_a_vanished_interface),
        cmocka_unit_test(netdev_refresh__tells_of_an_interface_that_was_replaced),
        cmocka_unit_test(netdev_is_interface__is_not_the_one_before),
        cmocka_unit_test(netdev_refresh__works_in_threads_and_forked_children),
        cmocka_unit_test(netdev_is_local_gid__knows_all_addresses_of_the_host),
        cmocka_unit_test(netdev_monitor__wakes_on_a_change),
        cmocka_unit_test(netdev_fork_child__closes_the_monitor_and_keeps_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
