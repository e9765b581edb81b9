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
#define AT_ONCE 250u
#define LOCAL_REGIONS 400u
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

/* How many descriptors the program can still have. */
static uint32_t descriptors_left(void)
{
    static int fds[FDS];
    uint32_t count = 0;
    while (count < FDS && (fds[count] = dup(2)) >= 0)
        count++;
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    return count;
}

/* Every second page, so that each is a region and a mapping of its own. */
static uint8_t *page_of(uint8_t *pages, uint32_t region)
{
    return pages + region * 8192ul;
}

static uint8_t *new_pages(uint32_t count)
{
    void *pages =
        mmap(NULL, count * 8192ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(pages != MAP_FAILED);
    return pages;
}

static void reg_pages(struct vu_dev *dev, uint8_t *pages, int access, uint32_t count,
                      struct ibv_mr **mrs)
{
    for (uint32_t i = 0; i < count; i++)
        mrs[i] = vu_reg(dev, page_of(pages, i), 4096, access);
}

static void dereg_pages(uint8_t *pages, uint32_t count, struct ibv_mr **mrs)
{
    for (uint32_t i = 0; i < count; i++)
        VU_EQ(ibv_dereg_mr(mrs[i]), 0);
    munmap(pages, count * 8192ul);
}

/* What the other side writes to. */
struct offer {
    uint64_t addr;
    uint32_t rkey;
};

static void offer_regions(int sock, void *arg)
{
    static struct ibv_mr *mrs[REGIONS], *local[LOCAL_REGIONS];
    const struct rlimit limit = {FDS, FDS};
    struct offer *offers = arg;
    struct vu_dev dev;
    struct vu_ep ep;
    VU_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    vu_connect(&ep, sock, NULL);
    const uint32_t before = descriptors_left();
    uint8_t *pages = new_pages(REGIONS), *local_pages = new_pages(LOCAL_REGIONS);
    for (uint32_t i = 0; i < REGIONS; i += AT_ONCE) {
        reg_pages(&dev, page_of(pages, i), VU_ACCESS_ALL, AT_ONCE, mrs + i);
        vu_barrier(sock);
    }
    VU_CHECK(descriptors_left() + 32 > before, "%u descriptors left of %u", descriptors_left(),
             before);
    /* Peers may get these one day, with the first receive. */
    reg_pages(&dev, local_pages, IBV_ACCESS_LOCAL_WRITE, LOCAL_REGIONS, local);
    VU_CHECK(descriptors_left() > FDS / 4 * 3, "but %u descriptors left", descriptors_left());
    for (uint32_t i = 0; i < REGIONS; i++)
        offers[i] = (struct offer){(uintptr_t)page_of(pages, i), mrs[i]->rkey};
    vu_barrier(sock);
    vu_barrier(sock);
    for (uint32_t i = 0; i < REGIONS; i++)
        VU_EQ(*(uint32_t *)page_of(pages, i), i + 1);
    dereg_pages(local_pages, LOCAL_REGIONS, local);
    dereg_pages(pages, REGIONS, mrs);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

/* Bytes of this process's mappings of registered memory. */
static uint64_t mapped_bytes(void)
{
    char line[512];
    uint64_t sum = 0, from, to;
    FILE *maps = fopen("/proc/self/maps", "re");
    VU_TRUE(maps);
    while (fgets(line, sizeof(line), maps))
        if (strstr(line, "sidewire-adopted") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            sum += to - from;
    fclose(maps);
    return sum;
}

static void write_all(struct vu_ep *ep, uint32_t *word, uint32_t lkey, const struct offer *offers)
{
    for (uint32_t i = 0; i < REGIONS; i++) {
        struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                               .wr_id = i,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = word,
                               .len_bytes = sizeof(*word),
                               .lkey = lkey,
                               .remote = offers[i].addr,
                               .rkey = offers[i].rkey};
        *word = i + 1;
        VU_EQ(vu_post_send(ep->qp, &send), 0);
        vu_expect(ep->scq, i, IBV_WC_SUCCESS);
    }
}

/* All regions go by the mapped rung, once they have been fetched. */
static void write_to_regions(int sock, void *arg)
{
    const char *link = getenv("SIDEWIRE_LINK");
    const bool by_packets = link && !strcmp(link, "roce");
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(word != MAP_FAILED);
    struct ibv_mr *mr = vu_reg(&dev, word, 4096, IBV_ACCESS_LOCAL_WRITE);
    const uint64_t own = mapped_bytes();
    vu_connect(&ep, sock, NULL);
    for (uint32_t i = 0; i < REGIONS; i += AT_ONCE)
        vu_barrier(sock); /* which waits only so long */
    vu_barrier(sock);
    do
        write_all(&ep, word, mr->lkey, arg);
    while (!by_packets && own && mapped_bytes() < own + REGIONS * 4096ul);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        vu_side_fn passive, fn;
    } cases[] = {{"small files", passive, small_files},
                 {"hard limit", hard_passive, hard_files},
                 {"locked", passive, locked},
                 {"regions", offer_regions, write_to_regions}};
    struct offer *offers = mmap(NULL, REGIONS * sizeof(*offers), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(offers != MAP_FAILED);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        int status = vu_run_pair(VU_PROCESSES, cases[i].passive, cases[i].fn, offers, 90);
        printf("%s: %d\n", cases[i].name, status);
        if (status)
            return status;
    }
    check_hard_ends();
    check_hard_limit();
    return 0;
}
