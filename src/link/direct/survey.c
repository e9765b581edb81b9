/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of this user on this host have counted on a device. Nothing is shared for it:
 * who reads a counter asks each process, over the socket that stands for its slot, and its engine
 * adds up. A process takes its numbers along when it ends.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/netdev.h"
#include "device/nic.h"
#include "link/direct/control.h"
#include "link/direct/direct.h"
#include "link/link.h"

#define BATCH 64u /* asked at a time: a descriptor each */

/* A process that is stopped does not answer, and counts for nothing meanwhile. */
#define ANSWER_NS (500 * SW_NS_PER_MS)

static int ask(uint32_t slot, uint32_t ifindex)
{
    struct sockaddr_un address;
    struct sw_message question = {
        .type = SW_MESSAGE_SURVEY, .version = SW_PUB_VERSION, .slot = slot, .id = ifindex};
    unsigned int len = sw_registry_address(slot, &address);
    pid_t pid;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, len) || !sw_registry_same_user(fd, &pid) ||
        send(fd, &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void collect(int fd, uint64_t deadline_ns, struct sw_counts *sum)
{
    struct sw_survey_answer answer;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count;
    do {
        uint64_t now_ns = sw_clock_ns();
        uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        count = poll(&ready, 1, (int)(left_ns / SW_NS_PER_MS));
    } while (count < 0 && errno == EINTR);
    if (count == 1 && recv(fd, &answer, sizeof(answer), MSG_TRUNC) == sizeof(answer) &&
        answer.head.type == SW_MESSAGE_SURVEY)
        sw_counts_add(sum, &answer.counts);
}

void sw_link_survey(struct sw_netdev *dev, struct sw_counts *out)
{
    uint16_t slots[SW_SLOT_MAX];
    int fds[BATCH];
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    sw_counts_read(dev, out);
    uint32_t count = sw_registry_announcers("", slots, SW_SLOT_MAX);
    for (uint32_t from = 0; from < count; from += BATCH) {
        uint32_t end = count - from < BATCH ? count : from + BATCH;
        for (uint32_t i = from; i < end; i++) {
            bool is_own = sw_nic.linked && slots[i] == sw_nic.slot;
            fds[i - from] = is_own ? -1 : ask(slots[i], info.ifindex);
        }
        uint64_t deadline_ns = sw_clock_ns() + ANSWER_NS;
        for (uint32_t i = from; i < end; i++) {
            if (fds[i - from] < 0)
                continue;
            collect(fds[i - from], deadline_ns, out);
            close(fds[i - from]);
        }
    }
}

void sw_survey_answer(int fd, const struct sw_message *asked)
{
    struct sw_survey_answer answer = {.head = *asked};
    struct sw_netdev *dev = NULL;
    for (int i = 0; i < sw_netdev_count() && !dev; i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (info.ifindex == asked->id)
            dev = sw_netdev_get(i);
    }
    if (!dev)
        return; /* nothing was counted on what is not known here */
    sw_counts_read(dev, &answer.counts);
    ssize_t ignored = send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored; /* who asked has gone */
}
