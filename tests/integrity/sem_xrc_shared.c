/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: XRC domains that several processes have open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sem.h"

static struct ibv_xrcd *open_domain(struct ibv_context *ctx, int fd, int oflags)
{
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};
    return ibv_open_xrcd(ctx, &init);
}

/* A file without a name, so that nothing is left of it. */
static int make_file(void)
{
    char path[] = "/tmp/sidewire-xrcd-XXXXXX";
    int fd = mkstemp(path);
    VU_TRUE(fd >= 0);
    unlink(path);
    return fd;
}

static void refused(struct ibv_context *ctx, int fd, int oflags, int error)
{
    errno = 0;
    VU_TRUE(!open_domain(ctx, fd, oflags));
    VU_EQ(errno, error);
}

/* ibv_open_xrcd(3): a domain is there as long as any process has it open. */
static void opened_a(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    int fd = make_file();
    vu_put_fd(sock, fd);
    vu_barrier(sock); /* the other side has found none */
    struct ibv_xrcd *xrcd = open_domain(dev.ctx, fd, O_CREAT | O_EXCL);
    VU_TRUE(xrcd);
    vu_barrier(sock);
    vu_barrier(sock); /* the other side has it open, too */
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    refused(dev.ctx, fd, O_CREAT | O_EXCL, EINVAL);
    xrcd = open_domain(dev.ctx, fd, 0);
    VU_TRUE(xrcd);
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    vu_barrier(sock);
    vu_barrier(sock); /* the other side has closed it, which was the last one */
    refused(dev.ctx, fd, 0, EAGAIN);
    close(fd);
    vu_dev_close(&dev);
}

static void opened_b(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    int fd = vu_get_fd(sock);
    refused(dev.ctx, fd, 0, EAGAIN);
    vu_barrier(sock);
    vu_barrier(sock);
    refused(dev.ctx, fd, O_CREAT | O_EXCL, EINVAL);
    struct ibv_xrcd *xrcd = open_domain(dev.ctx, fd, O_CREAT);
    VU_TRUE(xrcd);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    vu_barrier(sock);
    close(fd);
    vu_dev_close(&dev);
}

const struct sem_case sem_xrc_shared[] = {
    {"xrc__domain_of_several_processes", opened_a, opened_b, 0},
    {0},
};
