/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/survey.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/registry.h"
#include "link/link.h"

#define BATCH 32u /* asked at a time: two descriptors each */

/* A process that is stopped does not answer, and counts for nothing meanwhile. */
#define ANSWER_NS (500 * SW_NS_PER_MS)

struct asked {
    int fd; /* -1: nobody */
    uint32_t slot;
    struct sw_proof proof;
};

static void end_call(struct asked *asked)
{
    if (asked->fd < 0)
        return;
    sw_proof_end(&asked->proof);
    close(asked->fd);
    asked->fd = -1;
}

static void call_process(struct asked *asked, uint32_t slot)
{
    asked->slot = slot;
    asked->fd = sw_registry_connect(slot);
    if (asked->fd < 0 || !sw_proof_begin(&asked->proof, asked->fd))
        return;
    close(asked->fd);
    asked->fd = -1;
}

static bool is_ready(int fd, uint64_t deadline_ns)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count;
    do {
        uint64_t now_ns = sw_clock_ns();
        uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        count = poll(&ready, 1, (int)(left_ns / SW_NS_PER_MS));
    } while (count < 0 && errno == EINTR);
    return count == 1;
}

static void ask_process(struct asked *asked, uint32_t ifindex, uint64_t deadline_ns)
{
    const struct sw_message question = {
        .type = SW_MESSAGE_SURVEY, .version = SW_PUB_VERSION, .slot = asked->slot, .id = ifindex};
    int rc = asked->fd < 0 ? -EBADF : 0;
    while (!rc)
        rc =
            is_ready(asked->fd, deadline_ns) ? sw_proof_step(&asked->proof, asked->fd) : -ETIMEDOUT;
    if (rc < 0 || send(asked->fd, &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question))
        end_call(asked);
}

static void collect_counts(int fd, uint64_t deadline_ns, struct sw_counts *sum)
{
    struct sw_survey_answer answer;
    if (is_ready(fd, deadline_ns) &&
        recv(fd, &answer, sizeof(answer), MSG_TRUNC) == sizeof(answer) &&
        answer.head.type == SW_MESSAGE_SURVEY)
        sw_counts_add(sum, &answer.counts);
}

void sw_link_survey(struct sw_netdev *dev, struct sw_counts *out)
{
    uint16_t slots[SW_SLOT_MAX];
    struct asked asked[BATCH];
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    sw_counts_read(dev, out);
    uint32_t count = sw_registry_announcers("", slots, SW_SLOT_MAX);
    for (uint32_t from = 0; from < count; from += BATCH) {
        uint32_t last = count - from < BATCH ? count : from + BATCH;
        for (uint32_t i = from; i < last; i++) {
            if (sw_nic.linked && slots[i] == sw_nic.slot)
                asked[i - from].fd = -1;
            else
                call_process(&asked[i - from], slots[i]);
        }
        uint64_t deadline_ns = sw_clock_ns() + ANSWER_NS;
        for (uint32_t i = from; i < last; i++)
            ask_process(&asked[i - from], info.ifindex, deadline_ns);
        for (uint32_t i = from; i < last; i++) {
            if (asked[i - from].fd < 0)
                continue;
            collect_counts(asked[i - from].fd, deadline_ns, out);
            end_call(&asked[i - from]);
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
