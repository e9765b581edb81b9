/* SPDX-License-Identifier: BSD-2-Clause */
#include "member.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../preload/namespace.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "wire/bytes.h"
#include "wire/cm_mad.h"

#define CLAIMS 4096

static int reports;          /* in a member, as what follows */
static bool muted;           /* with sw_rdmacm_lock */
static uint32_t heard_count; /* while it was */
static struct sw_cm_port *claims[CLAIMS];
static uint32_t claim_count;

static void say(const struct report *report)
{
    if (write(reports, report, sizeof(*report)) != sizeof(*report))
        _exit(4);
}

static void receive(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    struct report report = {.kind = REPORT_MAD, .value = sw_be32_load(mad + 252), .path = *path};
    heard_count++;
    memcpy(report.mad, mad, SW_MAD_BYTES);
    if (!muted)
        say(&report);
}

static void gone(uint32_t slot)
{
    say(&(struct report){.kind = REPORT_GONE, .value = slot});
}

/* Returns when it has forgotten what is not its own. */
static void start_child(uint32_t seconds)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready))
        _exit(5);
    if (fork() == 0) {
        close(reports);
        if (write(ready[1], &byte, 1) != 1)
            _exit(5);
        sleep(seconds);
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        _exit(5);
}

static void send_many(const struct order *order)
{
    uint8_t mad[SW_MAD_BYTES];
    memcpy(mad, order->mad, sizeof(mad));
    for (uint32_t i = 0; i < order->count; i++) {
        sw_be32_store(mad + 252, order->value + i);
        sw_agent_send(&order->path, mad);
    }
}

static void obey(const struct order *order)
{
    struct report report = {.kind = REPORT_DONE};
    struct sw_cm_port_name name = order->name;
    pthread_mutex_lock(&sw_rdmacm_lock);
    switch (order->kind) {
    case ORDER_CLAIM:
        report.rc = sw_cm_port_claim(&name, &claims[claim_count]);
        claim_count += report.rc == 0;
        report.value = name.port;
        break;
    case ORDER_RELEASE:
        sw_cm_port_release(claims[order->which]);
        break;
    case ORDER_LISTEN:
        report.rc = sw_cm_port_listen(claims[order->which], order->service_id);
        break;
    case ORDER_SEND:
        send_many(order);
        break;
    case ORDER_MUTE:
        muted = true;
        break;
    case ORDER_HEARD:
        report.value = heard_count;
        break;
    case ORDER_FORK:
        break;
    case ORDER_END:
        _exit(0);
    }
    if (order->kind != ORDER_FORK)
        say(&report); /* before what comes of it */
    pthread_mutex_unlock(&sw_rdmacm_lock);
    if (order->kind == ORDER_FORK) {
        start_child(order->which);
        say(&report);
    }
}

static void be_member(int orders)
{
    static const struct sw_agent_user user = {.receive = receive, .gone = gone};
    struct order order;
    if (getenv("MEMBER_STRANGER") && unshare(CLONE_NEWUSER))
        _exit(6);
    pthread_mutex_lock(&sw_rdmacm_lock);
    int rc = sw_netdev_refresh(NULL, NULL);
    rc = rc ? rc : sw_agent_open(&user);
    pthread_mutex_unlock(&sw_rdmacm_lock);
    say(&(struct report){.kind = REPORT_HELLO, .rc = rc, .value = sw_agent_slot()});
    while (read(orders, &order, sizeof(order)) == sizeof(order))
        obey(&order);
    _exit(0);
}

int enter_namespace(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    signal(SIGPIPE, SIG_IGN);
    return rc;
}

struct report member_next(struct member *member)
{
    struct report report;
    struct pollfd wait = {member->reports, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 30000), 1);
    assert_int_equal(read(member->reports, &report, sizeof(report)), sizeof(report));
    return report;
}

void member_fail_with(const struct member *member, const struct report *report)
{
    struct sw_cm_message message;
    if (report->kind == REPORT_MAD &&
        sw_cm_mad_decode(report->mad, SW_MAD_BYTES, &message) == SW_CM_MAD_FAULT_NONE)
        fail_msg("slot %u reports a %s of slot %u", member->slot,
                 sw_cm_attribute_name((uint16_t)message.attribute), report->path.slot);
    fail_msg("slot %u reports %d of %u", member->slot, report->kind, report->value);
}

void member_is_quiet(struct member *member)
{
    struct pollfd wait = {member->reports, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 50), 0);
}

struct member member_start(void)
{
    int orders[2], from[2];
    assert_int_equal(pipe(orders) | pipe(from), 0);
    struct member member = {.pid = fork(), .orders = orders[1], .reports = from[0]};
    if (member.pid == 0) {
        close(orders[1]);
        close(from[0]);
        reports = from[1];
        be_member(orders[0]);
    }
    close(orders[0]);
    close(from[1]);
    struct report hello = member_next(&member);
    assert_int_equal(hello.kind, REPORT_HELLO);
    assert_int_equal(hello.rc, 0);
    member.slot = hello.value;
    return member;
}

static void bury(struct member *member, int expected)
{
    int status;
    assert_int_equal(waitpid(member->pid, &status, 0), member->pid);
    close(member->orders);
    close(member->reports);
    assert_int_equal(status, expected);
}

void member_stop(struct member *member)
{
    struct order end = {.kind = ORDER_END};
    assert_int_equal(write(member->orders, &end, sizeof(end)), sizeof(end));
    bury(member, 0);
}

void member_kill(struct member *member)
{
    assert_int_equal(kill(member->pid, SIGKILL), 0);
    bury(member, SIGKILL);
}

struct report member_do(struct member *member, const struct order *order)
{
    assert_int_equal(write(member->orders, order, sizeof(*order)), sizeof(*order));
    struct report report = member_next(member);
    if (report.kind != REPORT_DONE)
        member_fail_with(member, &report);
    return report;
}

struct in6_addr address(const char *text)
{
    struct in6_addr out = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (!strchr(text, ':'))
        assert_int_equal(inet_pton(AF_INET, text, out.s6_addr + 12), 1);
    else
        assert_int_equal(inet_pton(AF_INET6, text, &out), 1);
    return out;
}

int member_claim(struct member *member, const struct sw_cm_port_name *name, uint16_t *port)
{
    struct report report = member_do(member, &(struct order){.kind = ORDER_CLAIM, .name = *name});
    if (port)
        *port = (uint16_t)report.value;
    return report.rc;
}
