/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs close numbers that they never opened: closing [--seed N] [--seconds N]
 * In the middle of traffic the owner closes every descriptor but those it knows, by close(),
 * closefrom(), close_range() and dup2(), opens files that get the lowest numbers, and goes on. The
 * traffic must go on, too, and nobody must write to the files. At last all is closed by raw system
 * calls, which nobody can hide from: then requests may fail, but the files still are the program's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define BYTES 4096u
#define FILES 64
#define HIGHEST 1023

static int files[FILES];
static uint32_t file_count;

/* Descriptors that the program has from the library by name stay: a program knows those. */
struct known {
    int fds[8];
    int count;
};

static bool is_known(const struct known *known, int fd)
{
    for (int i = 0; i < known->count; i++)
        if (known->fds[i] == fd)
            return true;
    return fd < 3;
}

/* Calls `way` for each run of numbers that the program does not know. */
static void close_unknown(const struct known *known, void (*way)(int first, int last))
{
    int first = 3;
    for (int fd = 3; fd <= HIGHEST + 1; fd++) {
        if (fd <= HIGHEST && !is_known(known, fd))
            continue;
        if (fd > first)
            way(first, fd - 1);
        first = fd + 1;
    }
}

static void by_close(int first, int last)
{
    for (int fd = first; fd <= last; fd++) {
        char path[64], what[128] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, what, sizeof(what) - 1) < 0)
            continue;
        VU_CHECK(close(fd) == -1 && errno == EBADF, "%d, which is %s, was closed", fd, what);
    }
}

static void by_close_range(int first, int last)
{
    VU_EQ(close_range((unsigned int)first, (unsigned int)last, 0), 0);
}

/* The first numbers are below what is known: closefrom() is for the rest. */
static void by_closefrom(int first, int last)
{
    if (last == HIGHEST)
        closefrom(first);
}

static void by_dup2(int first, int last)
{
    for (int fd = first; fd <= last; fd++) {
        int rc = dup2(1, fd);
        VU_TRUE(rc == fd || (rc == -1 && errno == EBADF));
        if (rc == fd)
            VU_EQ(close(fd), 0);
    }
}

static void by_raw_calls(int first, int last)
{
    for (int fd = first; fd <= last; fd++)
        syscall(SYS_close, fd);
}

/* Files in as many of the numbers as there are. */
static void open_files(void)
{
    for (file_count = 0; file_count < FILES; file_count++) {
        char name[] = "/tmp/sidewire-closing-XXXXXX";
        files[file_count] = mkostemp(name, O_CLOEXEC);
        if (files[file_count] < 0)
            break;
        unlink(name);
    }
    VU_TRUE(file_count > 20);
}

static void check_files(void)
{
    for (uint32_t i = 0; i < file_count; i++) {
        VU_CHECK(lseek(files[i], 0, SEEK_END) == 0, "somebody wrote to file %d", files[i]);
        VU_EQ(close(files[i]), 0);
    }
}

/* The other side writes and sends until it is told that this is enough. */
static void traffic(struct vu_ep *ep, struct ibv_mr *mr, uint8_t *bytes, bool may_fail)
{
    struct ibv_wc wc;
    for (int i = 0; i < 50; i++) {
        VU_EQ(vu_post_recv(ep->qp, 7, bytes, BYTES, mr->lkey), 0);
        if (vu_poll(ep->rcq, &wc, 1, 3000) != 1 || wc.status != IBV_WC_SUCCESS) {
            VU_TRUE(may_fail);
            return;
        }
        VU_EQ(bytes[wc.byte_len - 1], (uint8_t)wc.byte_len);
    }
}

static void owner(int sock, void *arg)
{
    static void (*const ways[])(int first, int last) = {by_close, by_close_range, by_closefrom,
                                                        by_dup2, by_raw_calls};
    const struct vu_seeded *options = arg;
    const struct rlimit limit = {HIGHEST + 1, HIGHEST + 1};
    struct vu_dev dev;
    struct vu_ep ep;
    VU_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    VU_EQ(dup2(sock, 3), 3); /* and nothing inherited */
    sock = 3;
    closefrom(4);
    vu_dev_open(&dev);
    struct vu_ep_attr attr = {.channel = true};
    vu_ep_create(&dev, &attr, &ep);
    uint8_t *bytes = aligned_alloc(4096, 16 * BYTES);
    struct ibv_mr *mr = vu_reg(&dev, bytes, 16 * BYTES, VU_ACCESS_ALL);
    const struct known known = {{sock, dev.ctx->cmd_fd, dev.ctx->async_fd, ep.channel->fd}, 4};
    vu_connect(&ep, sock, NULL);
    (void)options;
    for (uint32_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const bool raw = ways[i] == by_raw_calls;
        uint8_t go = (uint8_t)(raw ? 2 : 1);
        vu_put(sock, &go, 1);
        traffic(&ep, mr, bytes, false);
        close_unknown(&known, ways[i]);
        open_files();
        /* The last acknowledgement may be lost with the socket: then the sender has ended. */
        if (!vu_try_put(sock, &go, 1))
            VU_TRUE(raw);
        VU_EQ(ibv_req_notify_cq(ep.rcq, 0), 0); /* a sleeper is rung */
        traffic(&ep, mr, bytes, raw);
        usleep(50000);
        check_files();
    }
    printf("five ways to close, %u files each\n", file_count);
    fflush(stdout);
    _exit(0); /* what a raw close() took cannot be put in order */
}

static bool send_one(struct vu_ep *ep, struct ibv_mr *mr, uint8_t *bytes, uint32_t len)
{
    struct ibv_wc wc;
    bytes[len - 1] = (uint8_t)len;
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .wr_id = 1,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = bytes,
                           .len_bytes = len,
                           .lkey = mr->lkey};
    return !vu_post_send(ep->qp, &send) && vu_poll(ep->scq, &wc, 1, 5000) == 1 &&
           wc.status == IBV_WC_SUCCESS;
}

static void sender(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct vu_random random = {options->seed};
    struct vu_dev dev;
    struct vu_ep ep;
    uint8_t go;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    uint8_t *bytes = calloc(1, BYTES);
    struct ibv_mr *mr = vu_reg(&dev, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    vu_connect(&ep, sock, NULL);
    for (bool gone = false; !gone && vu_try_get(sock, &go, 1, 20000);)
        for (int i = 0; i < 50 && !gone; i++)
            if (!send_one(&ep, mr, bytes, 1 + vu_random_below(&random, BYTES))) {
                VU_TRUE(go == 2);
                gone = true;
            }
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(bytes);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    return vu_seeded_pair("closing", argc, argv, sender, owner);
}
