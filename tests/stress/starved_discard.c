/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that a thread discards by a raw system call read as zeros, also when the thread gets little
 * of its processor: starved_discard. Pages may be pinned, so they cannot become private, and the
 * call is looked for while it is held up. From Linux 6.12 on, a thread that has had more than its
 * share counts as runnable for a while after it has gone to sleep, and who asks what it waits for
 * is told nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define PAGE 4096u
#define PAGES 16u
#define HOGS 3
#define ROUNDS 10

static atomic_bool over;

static void *hog(void *arg)
{
    while (!atomic_load(&over)) {
    }
    return arg;
}

static void use_one_processor(void)
{
    cpu_set_t may, one;
    int cpu = 0;
    VU_EQ(sched_getaffinity(0, sizeof(may), &may), 0);
    while (!CPU_ISSET(cpu, &may))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    VU_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void discard_starved(struct vu_dev *dev, uint8_t *bytes)
{
    uint8_t params[120] = {0};
    memset(bytes, 0x5a, (size_t)PAGES * PAGE);
    struct ibv_mr *mr = vu_reg(dev, bytes, PAGES * PAGE, VU_ACCESS_ALL);
    const int ring = (int)syscall(SYS_io_uring_setup, 4, params); /* from now on they may be */
    if (ring < 0)
        vu_skip("io_uring is refused: %s", strerror(errno));
    VU_EQ(syscall(SYS_madvise, bytes, (size_t)PAGES * PAGE, MADV_DONTNEED), 0);
    for (uint32_t i = 0; i < PAGES * PAGE; i++)
        VU_CHECK(!bytes[i], "byte %u is 0x%x still", i, bytes[i]);
    close(ring);
    VU_EQ(ibv_dereg_mr(mr), 0);
}

int main(void)
{
    pthread_t hogs[HOGS];
    struct vu_dev dev;
    vu_dev_open(&dev);
    uint8_t *bytes = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(bytes != MAP_FAILED);
    memset(bytes, 1, (size_t)PAGES * PAGE);
    VU_EQ(ibv_dereg_mr(vu_reg(&dev, bytes, PAGES * PAGE, VU_ACCESS_ALL)), 0);
    use_one_processor(); /* the library's threads, which are there by now, have the others */
    for (int i = 0; i < HOGS; i++)
        VU_EQ(pthread_create(&hogs[i], NULL, hog, NULL), 0);
    VU_EQ(setpriority(PRIO_PROCESS, 0, 19), 0); /* of this thread */
    for (int i = 0; i < ROUNDS; i++)
        discard_starved(&dev, bytes);
    atomic_store(&over, true);
    for (int i = 0; i < HOGS; i++)
        pthread_join(hogs[i], NULL);
    vu_dev_close(&dev);
    return 0;
}
