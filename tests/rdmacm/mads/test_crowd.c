/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests by packets from two addresses, of which one asks more than its share. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../rig.h"

static uint64_t crowded(void)
{
    static const char path[] = "/sys/class/infiniband/sw_lo/ports/1/hw_counters/rx_drop_crowded";
    char text[32] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    return strtoull(text, NULL, 10);
}

/* Time for so many requests to be dropped: those dropped before have come again by then. A process
 * that gets no processor for half a second counts for nothing meanwhile: a sum that has fallen
 * tells nothing. */
static void wait_for_drops(uint64_t count)
{
    enum { FIRST = 3 };
    uint64_t start = 0, most = 0;
    for (int i = 0; i < 1000 && (i < FIRST || most - start < count); i++) {
        const uint64_t now = crowded();
        most = now > most ? now : most;
        if (i < FIRST)
            start = most;
        usleep(10000);
    }
    assert_true(most - start >= count);
}

static void ask(int fd, const char *address, uint16_t port)
{
    uint32_t id = rig_active(fd, RDMA_PS_TCP, address, port);
    assert_int_equal(rig_connect(fd, id, NULL, 0), 0);
}

static uint16_t family_of(int fd, uint32_t id)
{
    struct rdma_ucm_query_addr_resp addresses;
    assert_int_equal(rig_query_addr(fd, id, &addresses), 0);
    return ((struct sockaddr *)&addresses.dst_addr)->sa_family;
}

static void listen__keeps_room_for_who_asks_less(void **state)
{
    (void)state;
    enum { ROOM = 3, ASKING = 6 };
    int passive = rig_open(O_NONBLOCK), active = rig_open(O_NONBLOCK);
    uint32_t listener = rig_listener(passive, RDMA_PS_TCP, "::", ROOM);
    uint16_t port = rig_port(passive, listener);
    for (int i = 0; i < ASKING; i++)
        ask(active, "127.0.0.1", port);
    wait_for_drops(ASKING - ROOM);
    ask(active, "::1", port);
    wait_for_drops(ASKING - ROOM + 1);
    struct rdma_ucm_event_resp event;
    int of_the_other = 0;
    for (int i = 0; i < ASKING + 1; i++) { /* all come in the end */
        rig_expect(passive, CONNECT_REQUEST, &event);
        if (i < ROOM)
            of_the_other += family_of(passive, event.id) == AF_INET6;
    }
    assert_int_equal(of_the_other, 1);
    assert_false(rig_has_event(active)); /* nobody was refused */
    close(passive);
    close(active);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(listen__keeps_room_for_who_asks_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
