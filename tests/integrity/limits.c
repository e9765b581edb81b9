/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process with few resources: limits [CASE]
 * Each case is a process of its own that connects two queue pairs to each other, sends, and looks
 * at what that took: under a limit on the size of files, locked into memory, and with many regions
 * and few descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define REGIONS 2000u
#define FDS 1024u
#define LOCKED_MAX_KB (200ul << 10)
#define FILE_MAX_BYTES (100ul << 10)
#define FILE_HARD_BYTES (64ul << 20) /* less than the tables have otherwise */

/* "VmLck" or the like of /proc/self/status, in KiB. */
static unsigned long status_kb(const char *what)
{
    char line[256];
    unsigned long kb = 0;
    FILE *file = fopen("/proc/self/status", "re");
    VU_TRUE(file);
    while (fgets(line, sizeof(line), file))
        if (!strncmp(line, what, strlen(what)))
            kb = strtoul(line + strlen(what) + 1, NULL, 10);
    fclose(file);
    return kb;
}

static void passive(int sock, void *arg)
{
    struct vu_dev dev;
    struct vu_ep ep;
    uint8_t bytes[4096];
    (void)arg;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    struct ibv_mr *mr = vu_reg(&dev, bytes, sizeof(bytes), VU_ACCESS_ALL);
    vu_connect(&ep, sock, NULL);
    VU_EQ(vu_post_recv(ep.qp, 1, bytes, sizeof(bytes), mr->lkey), 0);
    vu_expect(ep.rcq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
}

/* Opens, connects, sends; then calls `look`. */
static void use_device(int sock, void (*look)(struct vu_dev *dev))
{
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    uint8_t *bytes = calloc(1, 1 << 20);
    struct ibv_mr *mr = vu_reg(&dev, bytes, 1 << 20, VU_ACCESS_ALL);
    vu_connect(&ep, sock, NULL);
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .wr_id = 1,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = bytes,
                           .len_bytes = 4096,
                           .lkey = mr->lkey};
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    vu_expect(ep.scq, 1, IBV_WC_SUCCESS);
    look(&dev);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(bytes);
    vu_dev_close(&dev);
}

static void look_at_limit(struct vu_dev *dev)
{
    struct rlimit limit;
    (void)dev;
    VU_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    VU_EQ(limit.rlim_cur, FILE_MAX_BYTES);
}

/* A soft limit is not in the way, and stays. */
static void small_files(int sock, void *arg)
{
    struct rlimit limit;
    (void)arg;
    VU_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = FILE_MAX_BYTES;
    VU_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    use_device(sock, look_at_limit);
}

/* So that a hard limit is one, for root too. */
static void give_up_raising(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];
    VU_EQ(syscall(SYS_capget, &header, caps), 0);
    caps[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    caps[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    VU_EQ(syscall(SYS_capset, &header, caps), 0);
}

static void limit_hard(unsigned long bytes)
{
    const struct rlimit limit = {bytes, bytes};
    VU_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    give_up_raising();
}

static void look_at_hard_limit(struct vu_dev *dev)
{
    struct rlimit limit;
    (void)dev;
    VU_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    VU_EQ(limit.rlim_max, FILE_HARD_BYTES);
}

/* Both sides, as each must be able to look into the other. */
static void hard_passive(int sock, void *arg)
{
    limit_hard(FILE_HARD_BYTES);
    passive(sock, arg);
}

/* Tables and inboxes are smaller then. */
static void hard_files(int sock, void *arg)
{
    (void)arg;
    limit_hard(FILE_HARD_BYTES);
    use_device(sock, look_at_hard_limit);
}

/* Receive queues find their end where the tables do, and queue pairs where an inbox does. */
static void check_hard_ends(void)
{
    pid_t child = fork();
    if (!child) {
        struct vu_dev dev;
        limit_hard(FILE_HARD_BYTES);
        vu_dev_open(&dev);
        struct ibv_cq *cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0);
        struct ibv_qp_init_attr init = {
            .qp_type = IBV_QPT_RC,
            .send_cq = cq,
            .recv_cq = cq,
            .cap = {.max_recv_wr = 16384, .max_recv_sge = 1, .max_send_wr = 1}};
        unsigned int count = 0;
        while (ibv_create_qp(dev.pd, &init))
            count++;
        VU_EQ(errno, ENOMEM);
        VU_CHECK(count > 8 && count < FILE_HARD_BYTES / (16384 * 32), "%u queue pairs", count);
        _exit(0);
    }
    VU_EQ(vu_reap(child, 20), 0);
}

/* One that leaves no room at all is in the way, but kills nobody: the device does not open. */
static void check_hard_limit(void)
{
    pid_t child = fork();
    if (!child) {
        limit_hard(FILE_MAX_BYTES);
        struct ibv_device **list = ibv_get_device_list(NULL);
        struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
        VU_TRUE(!context);
        VU_EQ(errno, EFBIG);
        _exit(0);
    }
    VU_EQ(vu_reap(child, 20), 0);
}

static void look_at_locked(struct vu_dev *dev)
{
    (void)dev;
    VU_CHECK(status_kb("VmLck:") < LOCKED_MAX_KB, "%lu KiB are locked", status_kb("VmLck:"));
    VU_CHECK(status_kb("VmRSS:") < LOCKED_MAX_KB, "%lu KiB are there", status_kb("VmRSS:"));
}

static void locked(int sock, void *arg)
{
    (void)arg;
    if (mlockall(MCL_FUTURE))
        vu_skip("mlockall is refused: %s", strerror(errno));
    use_device(sock, look_at_locked);
}

static void look_at_descriptors(struct vu_dev *dev)
{
    static struct ibv_mr *mrs[REGIONS];
    uint32_t own = 0;
    /* Every second page, so that each is a region and a mapping of its own. */
    uint8_t *pages =
        mmap(NULL, REGIONS * 8192ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(pages != MAP_FAILED);
    for (uint32_t i = 0; i < REGIONS; i++)
        mrs[i] = vu_reg(dev, pages + i * 8192ul, 4096, VU_ACCESS_ALL);
    while (own < FDS && dup(2) >= 0)
        own++;
    VU_CHECK(own > FDS / 4, "the program has but %u descriptors left", own);
    for (uint32_t i = 0; i < REGIONS; i++)
        VU_EQ(ibv_dereg_mr(mrs[i]), 0);
    munmap(pages, REGIONS * 8192ul);
}

static void few_descriptors(int sock, void *arg)
{
    const struct rlimit limit = {FDS, FDS};
    (void)arg;
    VU_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    use_device(sock, look_at_descriptors);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        vu_side_fn passive, fn;
    } cases[] = {{"small files", passive, small_files},
                 {"hard limit", hard_passive, hard_files},
                 {"locked", passive, locked},
                 {"regions", passive, few_descriptors}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        int status = vu_run_pair(VU_PROCESSES, cases[i].passive, cases[i].fn, NULL, 30);
        printf("%s: %d\n", cases[i].name, status);
        if (status)
            return status;
    }
    check_hard_ends();
    check_hard_limit();
    return 0;
}
