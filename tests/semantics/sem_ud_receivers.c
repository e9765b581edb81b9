/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: datagrams for who is asleep, does not poll or gets no processor, and of who ends. Side a
 * sends, side b receives. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ud_side.h"

static void events_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint64_t i = 1; i <= 3; i++) {
        vu_barrier(sock);
        ud_send(&side, &(struct ud_send){
                           .wr_id = i, .len_bytes = 8, .flags = i == 2 ? IBV_SEND_SOLICITED : 0});
        vu_barrier(sock);
    }
    ud_close(&side);
}

static void events_b(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .channel = true, .srq = param});
    for (uint64_t i = 1; i <= 3; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    VU_EQ(ibv_req_notify_cq(side.rcq, 1), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_CHECK(!vu_cq_event(side.channel, UD_QUIET_MS), "an event of what is not solicited");
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_CHECK(vu_cq_event(side.channel, UD_EVENT_MS), "no event of what is solicited");
    vu_expect(side.rcq, 2, IBV_WC_SUCCESS);
    VU_EQ(ibv_req_notify_cq(side.rcq, 0), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_CHECK(vu_cq_event(side.channel, UD_EVENT_MS), "no event of any completion");
    vu_expect(side.rcq, 3, IBV_WC_SUCCESS);
    ud_close(&side);
}

static void last_words_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    memset(side.buf, 0x19, 64);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 64});
    ud_close(&side); /* and this process ends */
}

static void last_words_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_sleep_ms(300); /* longer than anything is kept for a program that does not poll */
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    ud_check(&side, 1, 64, 0x19);
    ud_destroy(&side);
}

/* Lets a stopped process go on after a while, even if this one has ended by then. */
static void continue_later(pid_t peer)
{
    const pid_t pid = fork();
    VU_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid)
        return;
    vu_sleep_ms(200);
    _exit(kill(peer, SIGCONT) != 0);
}

/* The sender has its completion, destroys what it has, and ends at once. */
static void last_words_to_stopped_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    pid_t peer;
    ud_open(&side, sock, NULL);
    vu_get(sock, &peer, sizeof(peer));
    memset(side.buf, 0x19, 64);
    vu_stop(peer);
    continue_later(peer);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 64});
    ud_destroy(&side);
}

static void last_words_to_stopped_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    const pid_t pid = getpid();
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_put(sock, &pid, sizeof(pid));
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    ud_check(&side, 1, 64, 0x19);
    ud_destroy(&side);
}

/* A receiver that neither polls nor posts holds nobody up. */
static void flood_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    uint64_t start_ms = vu_now_ms();
    for (uint32_t i = 0; i < 1000; i++) /* four times what is kept for it */
        ud_send(&side, &(struct ud_send){.wr_id = i, .len_bytes = 4096});
    VU_CHECK(vu_now_ms() - start_ms < 15000, "took too long");
    ud_close(&side);
}

static void flood_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    ud_close(&side);
}

/* A process that is there and does not let the sender in is waited for so long (docs/direct.md). */
enum { LET_IN_MS = 5000 };

/* The receiver is there but gets no processor to let the sender in, for longer than any handshake
 * takes. */
static void slow_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    struct ibv_wc wc;
    pid_t peer;
    char word;
    ud_open(&side, sock, NULL);
    vu_get(sock, &peer, sizeof(peer));
    memset(side.buf, 0xa7, 64);
    vu_stop(peer);
    const struct ud_send send = {.wr_id = 1, .len_bytes = 64};
    const uint64_t posted_ms = vu_now_ms();
    VU_EQ(ud_post(&side, &send), 0);
    int count = 0;
    while (!count && vu_now_ms() < posted_ms + 800) {
        count = ibv_poll_cq(side.scq, 1, &wc);
        VU_TRUE(!count || vu_now_ms() >= posted_ms + LET_IN_MS);
        vu_sleep_ms(1);
    }
    VU_EQ(kill(peer, SIGCONT), 0);
    if (!count)
        vu_expect(side.scq, 1, IBV_WC_SUCCESS);
    /* Where this process got no processor either, the datagram may have been given up. */
    const bool may_be_lost = vu_now_ms() >= posted_ms + LET_IN_MS;
    while (!vu_try_get(sock, &word, 1, 50))
        if (may_be_lost)
            ud_send(&side, &send);
    ud_close(&side);
}

static void slow_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    pid_t pid = getpid();
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 10, UD_GRH + 64);
    vu_put(sock, &pid, sizeof(pid));
    vu_expect(side.rcq, 10, IBV_WC_SUCCESS);
    ud_check(&side, 10, 64, 0xa7);
    vu_put(sock, "r", 1);
    ud_close(&side);
}

const struct sem_case sem_ud_receivers[] = {
    {"ud__events", events_a, events_b, false},
    {"ud__events_srq", events_a, events_b, true},
    {"ud__last_words", last_words_a, last_words_b, SEM_PROCESSES},
    {"ud__last_words_to_who_is_stopped", last_words_to_stopped_a, last_words_to_stopped_b,
     SEM_PROCESSES},
    {"ud__flood", flood_a, flood_b, 0},
    {"ud__receiver_is_slow_to_attach", slow_a, slow_b, SEM_PROCESSES},
    {NULL, NULL, NULL, 0},
};
