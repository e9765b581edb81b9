/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/survey.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "link/direct/process/proof.h"
#include "link/link.h"
#include "link/names/registry.h"

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

static bool survey_is_ready(int fd, uint64_t deadline_ns)
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

static void ask_process(struct asked *asked, enum sw_message_type what, uint32_t id,
                        uint64_t deadline_ns)
{
    const struct sw_message question = {
        .type = what, .version = SW_PUB_VERSION, .slot = asked->slot, .id = id};
    int rc = asked->fd < 0 ? -EBADF : 0;
    while (!rc)
        rc = survey_is_ready(asked->fd, deadline_ns) ? sw_proof_step(&asked->proof, asked->fd)
                                                     : -ETIMEDOUT;
    if (rc < 0 || send(asked->fd, &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question))
        end_call(asked);
}

static void collect_counts(int fd, uint64_t deadline_ns, struct sw_counts *sum)
{
    struct sw_survey_answer answer;
    if (survey_is_ready(fd, deadline_ns) &&
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
            ask_process(&asked[i - from], SW_MESSAGE_SURVEY, info.ifindex, deadline_ns);
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

void sw_survey_answer_connections(int fd, const struct sw_message *asked)
{
    static struct sw_connections_answer answer; /* the engine's */
    memset(&answer, 0, sizeof(answer));
    answer.head = *asked;
    answer.count = sw_connections_read(asked->id, answer.connections, &answer.head.id);
    ssize_t ignored = send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored; /* who asked has gone */
}

/* One answer of a process. Where to go on, or SW_CONNECTIONS_END. */
static uint32_t read_connections(uint32_t slot, uint32_t from, struct sw_connections_answer *answer,
                                 pid_t *pid)
{
    const uint64_t deadline_ns = sw_clock_ns() + ANSWER_NS;
    struct asked asked;
    uint32_t next = SW_CONNECTIONS_END;
    answer->count = 0;
    call_process(&asked, slot);
    ask_process(&asked, SW_MESSAGE_CONNECTIONS, from, deadline_ns);
    if (asked.fd >= 0 && survey_is_ready(asked.fd, deadline_ns) &&
        recv(asked.fd, answer, sizeof(*answer), MSG_TRUNC) == sizeof(*answer) &&
        answer->head.type == SW_MESSAGE_CONNECTIONS && answer->count <= SW_CONNECTIONS_MOST) {
        next = answer->head.id;
        *pid = asked.proof.pid;
    } else {
        answer->count = 0;
    }
    end_call(&asked);
    return next;
}

void sw_connections_each(void (*fn)(void *arg, pid_t pid, const struct sw_connection *connection),
                         void *arg)
{
    uint16_t slots[SW_SLOT_MAX];
    struct sw_connections_answer *answer = malloc(sizeof(*answer));
    const uint32_t count = answer ? sw_registry_announcers("", slots, SW_SLOT_MAX) : 0;
    for (uint32_t i = 0; i < count; i++) {
        pid_t pid = 0;
        for (uint32_t from = 0, next; from != SW_CONNECTIONS_END; from = next) {
            next = read_connections(slots[i], from, answer, &pid);
            for (uint32_t j = 0; j < answer->count; j++)
                fn(arg, pid, &answer->connections[j]);
            if (next <= from)
                break; /* it goes in circles */
        }
    }
    free(answer);
}
