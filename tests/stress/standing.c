/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands still on purpose: standing HOW TEXT DOCTOR...
 * One side sends what the other does not take: it posts no receive (receive), is stopped
 * (stopped), or has not moved its queue pair (meeting). DOCTOR, a command, has to say TEXT of the
 * sender's process meanwhile. With `late` the other side's queue pair goes to RTR before, and no
 * further, and what was sent comes: some times, as the sender may be about to call again just then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_util/pair.h"

enum {
    LATE_ROUNDS = 4,
    LATE_MS = 150,
    BYTES = 4096,
    SAID_MS = 20000,
    LINE_BYTES = 4096,
    COMMAND_BYTES = 2048
};

struct scene {
    const char *how, *text;
    char doctor[COMMAND_BYTES];
};

static const struct vu_conn conn = {.access = VU_ACCESS_REMOTE,
                                    .rd_atomic = 1,
                                    .dest_rd_atomic = 1,
                                    .timeout = 20, /* 4 s */
                                    .retry_cnt = 7,
                                    .rnr_retry = 7,
                                    .min_rnr_timer = 20};

static bool is_how(const struct scene *scene, const char *how)
{
    return strcmp(scene->how, how) == 0;
}

/* Both sides; the other one's queue pair stays in INIT for `meeting` and `late`. */
static struct vu_peer connect_ends(struct vu_ep *ep, int sock, bool is_whole)
{
    struct vu_peer mine = vu_ep_self(ep), other;
    vu_put(sock, &mine, sizeof(mine));
    vu_get(sock, &other, sizeof(other));
    vu_ep_init(ep, &conn);
    if (is_whole) {
        vu_ep_rtr(ep, &other, &conn);
        vu_ep_rts(ep, &conn);
    }
    vu_barrier(sock);
    return other;
}

/* Whether the doctor says it of this process, in the line or lines of one connection. */
static bool is_said(const struct scene *scene)
{
    char line[LINE_BYTES], own[32];
    bool is_own = false, found = false;
    FILE *doctor = popen(scene->doctor, "re");
    VU_TRUE(doctor);
    snprintf(own, sizeof(own), "standing %ld ", (long)getpid());
    while (fgets(line, sizeof(line), doctor)) {
        if (strstr(line, "standing "))
            is_own = strstr(line, own) != NULL;
        found |= is_own && strstr(line, scene->text);
    }
    pclose(doctor);
    return found;
}

/* The request that was posted, and again on new connections; the last one waits. */
static void send_late(struct vu_ep *ep, const struct vu_send *send, int sock)
{
    for (int i = 0; i < LATE_ROUNDS; i++) {
        vu_expect(ep->scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_ep_to(ep, IBV_QPS_RESET);
        connect_ends(ep, sock, true);
        VU_EQ(vu_post_send(ep->qp, send), 0);
    }
}

static void sender(int sock, void *arg)
{
    const struct scene *scene = arg;
    static uint8_t bytes[BYTES];
    struct vu_dev dev;
    struct vu_ep ep;
    char done = 'd';
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    struct ibv_mr *mr = vu_reg(&dev, bytes, sizeof(bytes), VU_ACCESS_ALL);
    connect_ends(&ep, sock, true);
    if (is_how(scene, "stopped"))
        vu_sleep_ms(100); /* it stops itself */
    const struct vu_send send = {.opcode = IBV_WR_SEND,
                                 .wr_id = 1,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = bytes,
                                 .len_bytes = sizeof(bytes),
                                 .lkey = mr->lkey};
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    if (is_how(scene, "late"))
        send_late(&ep, &send, sock);
    const uint64_t end_ms = vu_now_ms() + SAID_MS;
    struct ibv_wc wc;
    while (!is_said(scene)) {
        VU_EQ(ibv_poll_cq(ep.scq, 1, &wc), 0);
        VU_CHECK(vu_now_ms() < end_ms, "the doctor does not say: %s", scene->text);
    }
    VU_EQ(ibv_poll_cq(ep.scq, 1, &wc), 0);
    vu_put(sock, &done, 1);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
}

/* Goes on with this process when the test is over, whoever fails. */
static void stop_oneself(int sock)
{
    const pid_t stopped = getpid(), waker = fork();
    char done;
    VU_TRUE(waker >= 0);
    if (waker == 0) {
        vu_try_get(sock, &done, 1, 2 * SAID_MS);
        kill(stopped, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

static void take_late(struct vu_ep *ep, struct vu_peer sender, int sock)
{
    static uint8_t bytes[BYTES];
    struct ibv_mr *mr = vu_reg(ep->dev, bytes, sizeof(bytes), VU_ACCESS_ALL);
    for (int i = 0; i < LATE_ROUNDS; i++) {
        vu_sleep_ms(LATE_MS + 10 * (unsigned int)i);
        VU_EQ(vu_post_recv(ep->qp, 1, bytes, sizeof(bytes), mr->lkey), 0);
        vu_ep_rtr(ep, &sender, &conn);
        vu_expect(ep->rcq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_ep_to(ep, IBV_QPS_RESET);
        sender = connect_ends(ep, sock, false);
    }
    VU_EQ(ibv_dereg_mr(mr), 0);
}

static void other_side(int sock, void *arg)
{
    const struct scene *scene = arg;
    struct vu_dev dev;
    struct vu_ep ep;
    char done;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    const bool is_late = is_how(scene, "late");
    const struct vu_peer sender = connect_ends(&ep, sock, !is_late && !is_how(scene, "meeting"));
    if (is_late)
        take_late(&ep, sender, sock);
    if (is_how(scene, "stopped"))
        stop_oneself(sock);
    else
        VU_TRUE(vu_try_get(sock, &done, 1, 2 * SAID_MS));
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    struct scene scene = {0};
    VU_CHECK(argc > 3, "usage: standing HOW TEXT DOCTOR...");
    scene.how = argv[1];
    scene.text = argv[2];
    strcpy(scene.doctor, "env -u LD_PRELOAD");
    for (int i = 3; i < argc; i++) {
        strncat(scene.doctor, " ", sizeof(scene.doctor) - strlen(scene.doctor) - 1);
        strncat(scene.doctor, argv[i], sizeof(scene.doctor) - strlen(scene.doctor) - 1);
    }
    return vu_run_pair(VU_PROCESSES, sender, other_side, &scene, 3 * SAID_MS / 1000);
}
