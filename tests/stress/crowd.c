/* SPDX-License-Identifier: BSD-2-Clause */
#include "crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_util/pair.h"

enum { ADDRESSES = 8, GAP_MS = 5, AGAIN_MAX = 16, TIMEOUT_S = 30 };

static void call_port(const struct crowd_order *order, uint32_t number, struct pollfd *out)
{
    const struct crowd_word *word = &order->words[number % CROWD_WORD_KINDS];
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(order->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + number / CROWD_WORD_KINDS % ADDRESSES)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    VU_TRUE(fd >= 0);
    VU_EQ(bind(fd, (const struct sockaddr *)&from, sizeof(from)), 0);
    (void)!connect(fd, (const struct sockaddr *)&to, sizeof(to));
    if (word->len_bytes)
        send(fd, word->bytes, word->len_bytes, MSG_NOSIGNAL);
    *out = (struct pollfd){.fd = fd, .events = POLLRDHUP};
}

static void leave_all(struct pollfd *callers)
{
    for (uint32_t i = 0; i < CROWD_CALLERS; i++)
        if (callers[i].fd >= 0)
            close(callers[i].fd);
}

static void call_all(const struct crowd_order *order, struct pollfd *callers)
{
    for (uint32_t i = 0; i < CROWD_CALLERS; i++)
        call_port(order, i, &callers[i]);
}

static void call_again(const struct crowd_order *order, struct pollfd *callers)
{
    uint32_t again = 0;
    poll(callers, CROWD_CALLERS, GAP_MS);
    for (uint32_t i = 0; i < CROWD_CALLERS && again < AGAIN_MAX; i++) {
        if (!callers[i].revents)
            continue;
        close(callers[i].fd);
        call_port(order, i, &callers[i]);
        again++;
    }
    if (again)
        vu_sleep_ms(GAP_MS);
}

static void be_strangers(int sock, void *arg)
{
    static struct crowd_order order;
    static struct pollfd callers[CROWD_CALLERS];
    bool is_calling = false;
    close(*(const int *)arg);
    for (;;) {
        struct pollfd asked = {.fd = sock, .events = POLLIN};
        if (poll(&asked, 1, is_calling ? 0 : -1) != 1) {
            call_again(&order, callers);
            continue;
        }
        if (is_calling)
            leave_all(callers);
        if (!vu_try_get(sock, &order, sizeof(order), 0))
            return;
        call_all(&order, callers);
        is_calling = true;
        vu_put(sock, &order.port, sizeof(order.port));
    }
}

void crowd_start(struct crowd *crowd)
{
    int socks[2];
    vu_socketpair(socks);
    crowd->pid = vu_spawn(be_strangers, socks[1], &socks[0]);
    crowd->sock = socks[0];
    close(socks[1]);
}

void crowd_call(const struct crowd *crowd, const struct crowd_order *order)
{
    uint16_t port;
    vu_put(crowd->sock, order, sizeof(*order));
    vu_get(crowd->sock, &port, sizeof(port));
}

void crowd_stop(const struct crowd *crowd)
{
    close(crowd->sock);
    VU_EQ(vu_reap(crowd->pid, TIMEOUT_S), 0);
}
