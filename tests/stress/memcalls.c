/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory is the program's memory: memcalls [--seed N] [--seconds N] [--uring] [--raw]
 * Two mappings, twins, are made and filled alike. One is registered. Then the same random calls are
 * made on both: madvise, mremap, mprotect, mlock, munmap, mmap, fork. After each, result, errno and
 * contents must be the same for both; at the end, with nothing registered, also what
 * /proc/self/smaps says of each page. With --uring the region is deregistered at once, while the
 * process has an io_uring, so that its pages cannot be moved back. With --raw, what discards is a
 * system call that no hook sees.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/apart.h"
#include "verbs_util/pair.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define PAGE 4096u
#define PAGES_MAX 256u
#define CALLS 10

struct twin {
    uint8_t *base;
    uint32_t pages;
};

struct world {
    struct vu_dev dev;
    struct vu_random random;
    struct twin twins[2]; /* the first is registered */
    bool with_uring;
    bool in_pieces;   /* parts of the twins have been mapped anew */
    uint8_t *free;    /* from here on nothing is mapped */
    const char *call; /* the last one */
    uint64_t round;
    uint64_t seed;
};

static uint32_t draw(struct world *w, uint32_t bound)
{
    return vu_random_below(&w->random, bound);
}

static const struct advice {
    const char *name;
    int number;
} advices[] = {
    {"DONTNEED", MADV_DONTNEED},
    {"DONTNEED", MADV_DONTNEED},
    {"FREE", MADV_FREE},
    {"DONTNEED_LOCKED", MADV_DONTNEED_LOCKED},
    {"REMOVE", MADV_REMOVE},
    {"DONTDUMP", MADV_DONTDUMP},
    {"DODUMP", MADV_DODUMP},
    {"DONTFORK", MADV_DONTFORK},
    {"DOFORK", MADV_DOFORK},
    {"WIPEONFORK", MADV_WIPEONFORK},
    {"KEEPONFORK", MADV_KEEPONFORK},
    {"HUGEPAGE", MADV_HUGEPAGE},
    {"NOHUGEPAGE", MADV_NOHUGEPAGE},
    {"COLD", MADV_COLD},
    {"PAGEOUT", MADV_PAGEOUT},
    {"WILLNEED", MADV_WILLNEED},
    {"POPULATE_READ", 22},
    {"POPULATE_WRITE", 23},
    {"MERGEABLE", MADV_MERGEABLE},
    {"UNMERGEABLE", MADV_UNMERGEABLE},
    {"RANDOM", MADV_RANDOM},
    {"NORMAL", MADV_NORMAL},
    {"nonsense", 77},
};

static bool is_raw;

static int advise(const struct world *w, uint8_t *at, size_t len, int advice)
{
    const bool discards = advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED ||
                          advice == MADV_FREE || advice == MADV_REMOVE;
    if (!is_raw || !discards || (advice == MADV_REMOVE && w->with_uring))
        return madvise(at, len, advice);
    const long rc = syscall(SYS_madvise, at, len, advice);
    /* Known gap (docs/adoption.md): of shared memory it is valid; moved back, it keeps its bytes.
     */
    return advice == MADV_REMOVE ? 0 : (int)rc;
}

/* MADV_FREE leaves the old bytes or zeros, as the kernel likes: settled at once. */
static int free_settled(const struct world *w, uint8_t *at, size_t len)
{
    int rc = advise(w, at, len, MADV_FREE), err = errno;
    madvise(at, len, MADV_DONTNEED); /* stops where that did */
    errno = err;
    return rc;
}

struct call {
    enum kind {
        ADVISE,
        REMAP,
        PROTECT,
        LOCK,
        UNLOCK,
        UNMAP,
        MAP_OVER,
        STORE,
        ADVISE_PROCESS,
        CORE,
        KINDS,
    } kind;
    const struct advice *advice;
    uint32_t first, count, grown;
    int variant, prot;
    uint8_t byte;
};

static struct call draw_call(struct world *w)
{
    static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
                                PROT_READ | PROT_WRITE};
    const uint32_t pages = w->twins[0].pages;
    struct call call = {.kind = (enum kind)draw(w, KINDS)};
    /* Which mappings join is up to the kernel, and mremap() grows single ones only. */
    if (call.kind == REMAP && w->in_pieces)
        call.kind = ADVISE;
    /* Known gap (docs/adoption.md): pinned memory cannot move, nor is process_madvise() followed.
     */
    if (w->with_uring && (call.kind == REMAP || call.kind == ADVISE_PROCESS))
        call.kind = ADVISE;
    if (draw(w, 2))
        call.kind = ADVISE;
    call.advice = &advices[draw(w, sizeof(advices) / sizeof(advices[0]))];
    call.first = draw(w, pages);
    call.count = 1 + draw(w, pages - call.first);
    call.grown = 1 + draw(w, PAGES_MAX - 1);
    call.variant = (int)draw(w, 4);
    call.prot = prots[draw(w, 4)];
    call.byte = (uint8_t)(1 + draw(w, 255));
    return call;
}

/* A page as this process sees it; false: it cannot be read. */
static bool page_read(const uint8_t *at, uint8_t *bytes)
{
    struct iovec to = {bytes, PAGE}, from = {(void *)(uintptr_t)at, PAGE};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE;
}

/* Twins have holes: device/apart.h. */
static uint8_t *map_apart(struct world *w, uint32_t pages, int prot)
{
    uint8_t *at = mmap(w->free, (size_t)pages * PAGE, prot,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    VU_CHECK(at == w->free, "a place for a twin: %s", strerror(errno));
    w->free += (size_t)pages * PAGE;
    return at;
}

/* Room to grow in, or to be moved to. */
static void leave_room(struct world *w)
{
    w->free += (size_t)PAGES_MAX * PAGE;
}

/* The kernel has moved a twin to high addresses. */
static uint8_t *bring_back(struct world *w, uint8_t *from, size_t len)
{
    uint8_t *place = w->free;
    leave_room(w);
    VU_TRUE(mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    return place;
}

/* As another thread does at any time: what it maps must not come to lie in a hole. */
static void map_elsewhere(void)
{
    uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(page != MAP_FAILED);
    *page = 1;
}

/* A call that moves a whole twin, or makes it longer or shorter. */
static long remap(struct world *w, const struct call *call, struct twin *twin)
{
    const size_t old = (size_t)twin->pages * PAGE, len = (size_t)call->grown * PAGE;
    uint8_t *to = MAP_FAILED;
    if (call->variant == 0 && len > old) /* whether there is room behind is no matter of kind */
        return 0;
    if (call->variant == 0) {
        to = mremap(twin->base, old, len, 0);
    } else if (call->variant == 1) {
        to = mremap(twin->base, old, len, MREMAP_MAYMOVE);
        if (to != MAP_FAILED && to != twin->base)
            to = bring_back(w, to, len);
    } else {
        uint8_t *place = map_apart(w, twin->pages, PROT_NONE);
        leave_room(w);
        if (call->variant == 3) /* Linux 6.18 forgets the lock of some mappings */
            munlock(twin->base, old);
        int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (call->variant == 3 ? MREMAP_DONTUNMAP : 0);
        to = mremap(twin->base, old, old, flags, place);
        if (to != MAP_FAILED && call->variant == 3) {
            uint8_t bytes[PAGE];
            for (size_t i = 0; i < old; i += PAGE) /* what stays behind is empty */
                VU_TRUE(!page_read(twin->base + i, bytes) || !bytes[0]);
            munmap(twin->base, old);
        }
        if (to == MAP_FAILED) {
            int err = errno;
            munmap(place, old);
            errno = err;
        }
    }
    if (to == MAP_FAILED)
        return -1;
    twin->pages = (uint32_t)((call->variant < 2 ? len : old) / PAGE);
    twin->base = to;
    return 0;
}

static ssize_t advise_self(const struct call *call, uint8_t *at, size_t len)
{
    struct iovec part = {at, len};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    ssize_t rc = is_raw && call->advice->number == MADV_DONTNEED
                     ? syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0)
                     : process_madvise(self, &part, 1, call->advice->number, 0);
    int err = errno;
    close(self);
    errno = err;
    return rc;
}

static long make_call(struct world *w, const struct call *call, struct twin *twin)
{
    uint8_t *at = twin->base + (size_t)call->first * PAGE;
    size_t len = (size_t)call->count * PAGE - (call->variant == 1 ? 100 : 0);
    unsigned char core[PAGES_MAX];
    switch (call->kind) {
    case ADVISE:
        if (call->advice->number == MADV_FREE)
            return free_settled(w, at, len);
        return advise(w, at + (call->variant == 2 && call->byte < 20), len, call->advice->number);
    case REMAP:
        return remap(w, call, twin);
    case PROTECT:
        return mprotect(at, len, call->prot);
    case LOCK:
        return call->variant ? mlock(at, len) : mlock2(at, len, MLOCK_ONFAULT);
    case UNLOCK:
        return munlock(at, len);
    case UNMAP:
        return call->byte < 60 ? munmap(at, len) : 0;
    case MAP_OVER:
        return mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                    0) == at
                   ? 0
                   : -1;
    case STORE: {
        int from = open("/dev/zero", O_RDONLY); /* faults are errors, not signals */
        long rc = read(from, at, len);
        for (long more = rc; more > 0 && rc<(long)len; rc += more> 0 ? more : 0)
            more = read(from, at + rc, len - (size_t)rc); /* an io_uring interrupts it */
        close(from);
        return rc;
    }
    case ADVISE_PROCESS:
        return call->advice->number == MADV_FREE ? 0 : advise_self(call, at, len);
    case CORE:
        return mincore(at, len, core);
    case KINDS:
        break;
    }
    return 0;
}

static const char *const names[] = {"madvise", "mremap", "mprotect", "mlock",           "munlock",
                                    "munmap",  "mmap",   "read",     "process_madvise", "mincore"};

static bool same_contents(const struct world *w, uint32_t *page)
{
    uint8_t bytes[2][PAGE];
    if (w->twins[0].pages != w->twins[1].pages)
        return false;
    for (*page = 0; *page < w->twins[0].pages; ++*page) {
        bool readable[2];
        for (int i = 0; i < 2; i++)
            readable[i] = page_read(w->twins[i].base + (size_t)*page * PAGE, bytes[i]);
        if (readable[0] != readable[1] || (readable[0] && memcmp(bytes[0], bytes[1], PAGE)))
            return false;
    }
    return true;
}

/* How the twins' page differs, for who looks into it. */
static void tell_page(const struct world *w, uint32_t page)
{
    uint8_t bytes[2][PAGE];
    uint32_t at = 0, zeroes[2] = {0};
    bool readable[2];
    for (int i = 0; i < 2; i++) {
        readable[i] = page_read(w->twins[i].base + (size_t)page * PAGE, bytes[i]);
        for (uint32_t j = 0; readable[i] && j < PAGE; j++)
            zeroes[i] += !bytes[i][j];
    }
    while (readable[0] && readable[1] && at + 1 < PAGE && bytes[0][at] == bytes[1][at])
        at++;
    fprintf(stderr,
            "page %u of %u: readable %d %d, zeroes %u %u, first difference at %u: %#x %#x\n", page,
            w->twins[0].pages, readable[0], readable[1], zeroes[0], zeroes[1], at, bytes[0][at],
            bytes[1][at]);
}

static void check_same(const struct world *w, const char *where)
{
    uint32_t page;
    if (!same_contents(w, &page))
        tell_page(w, page);
    VU_CHECK(same_contents(w, &page), "%s: page %u, round %llu of seed %llu, last call %s", where,
             page, (unsigned long long)w->round, (unsigned long long)w->seed, w->call);
}

static void check_fork(const struct world *w)
{
    pid_t child = fork();
    VU_TRUE(child >= 0);
    if (!child) {
        uint32_t page;
        _exit(same_contents(w, &page) ? 0 : 1);
    }
    VU_CHECK(vu_reap(child, 20) == 0, "a child differs, round %llu, last call %s",
             (unsigned long long)w->round, w->call);
}

/* The flags of smaps that belong to the mapping and are the same wherever it came from. */
static void page_flags(const uint8_t *base, uint32_t pages, char (*flags)[64])
{
    static const char *const kept[] = {"rd", "wr", "lo", "dd", "dc", "wf", "hg", "nh", "mg", "rr"};
    char line[512];
    unsigned long start = 0, end = 0, from, to;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    VU_TRUE(smaps);
    while (fgets(line, sizeof(line), smaps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' ')) {
            start = from;
            end = to;
        }
        if (strncmp(line, "VmFlags:", 8))
            continue;
        for (uint32_t i = 0; i < pages; i++) {
            unsigned long at = (unsigned long)(base + (size_t)i * PAGE);
            if (at < start || at >= end)
                continue;
            strcpy(flags[i], "mapped");
            for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++) {
                char word[8];
                snprintf(word, sizeof(word), " %s", kept[k]);
                if (strstr(line, word))
                    strcat(flags[i], word);
            }
        }
    }
    fclose(smaps);
}

static void check_flags(const struct world *w)
{
    static char flags[2][PAGES_MAX][64];
    memset(flags, 0, sizeof(flags));
    for (int i = 0; i < 2; i++)
        page_flags(w->twins[i].base, w->twins[i].pages, flags[i]);
    for (uint32_t i = 0; i < w->twins[0].pages; i++)
        VU_CHECK(!strcmp(flags[0][i], flags[1][i]), "page %u is \"%s\", not \"%s\", round %llu", i,
                 flags[0][i], flags[1][i], (unsigned long long)w->round);
}

static void make_twins(struct world *w)
{
    const uint32_t pages = 2 + draw(w, PAGES_MAX / 2);
    const uint32_t lower = draw(w, 2); /* cannot grow in place */
    w->free = APART;
    for (uint32_t i = 0; i < 2; i++)
        w->twins[i ^ lower] = (struct twin){map_apart(w, pages, PROT_READ | PROT_WRITE), pages};
    leave_room(w);
    for (uint32_t i = 0; i < pages; i++) {
        const uint8_t byte = (uint8_t)(draw(w, 4) ? 1 + draw(w, 255) : 0);
        for (int k = 0; byte && k < 2; k++)
            memset(w->twins[k].base + (size_t)i * PAGE, byte, PAGE);
    }
    if (draw(w, 3) == 0) {
        const struct call early = {
            .kind = ADVISE, .advice = &advices[5 + draw(w, 8)], .count = pages};
        for (int k = 0; k < 2; k++)
            make_call(w, &early, &w->twins[k]);
        if (draw(w, 2))
            mlock(w->twins[0].base, pages * PAGE), mlock(w->twins[1].base, pages * PAGE);
    }
}

static int uring_open(void)
{
    uint8_t params[120] = {0};
    return (int)syscall(SYS_io_uring_setup, 4, params);
}

static void run_round(struct world *w)
{
    make_twins(w);
    w->call = "none";
    w->in_pieces = false;
    const uint32_t first = draw(w, 2) ? 0 : draw(w, w->twins[0].pages);
    const uint32_t count = w->twins[0].pages - first;
    struct ibv_mr *mr =
        vu_reg(&w->dev, w->twins[0].base + (size_t)first * PAGE, count * PAGE, VU_ACCESS_ALL);
    int ring = -1;
    if (w->with_uring) {
        ring = uring_open();
        VU_EQ(ibv_dereg_mr(mr), 0);
    }
    for (int i = 0; i < CALLS; i++) {
        const struct call call = draw_call(w);
        w->in_pieces |= call.kind == UNMAP || call.kind == MAP_OVER;
        long rc[2];
        int err[2];
        w->call = call.kind == ADVISE || call.kind == ADVISE_PROCESS ? call.advice->name
                                                                     : names[call.kind];
        for (int k = 0; k < 2; k++) {
            errno = 0;
            rc[k] = make_call(w, &call, &w->twins[k]);
            err[k] = errno;
        }
        if (call.kind == UNMAP)
            map_elsewhere();
        VU_CHECK(rc[0] == rc[1] && (rc[0] != -1 || err[0] == err[1]),
                 "%s %s (variant %d) of pages %u+%u of %u is %ld (%s), of private memory %ld (%s), "
                 "round %llu",
                 names[call.kind], w->call, call.variant, call.first, call.count, w->twins[0].pages,
                 rc[0], strerror(err[0]), rc[1], strerror(err[1]), (unsigned long long)w->round);
        check_same(w, "after a call");
        for (int k = 0; k < 2; k++) { /* a store that follows stays */
            uint8_t *at = w->twins[k].base + (size_t)(call.first % w->twins[k].pages) * PAGE;
            struct iovec from = {(void *)(uintptr_t)&call.byte, 1}, to = {at + 17, 1};
            process_vm_writev(getpid(), &from, 1, &to, 1, 0);
        }
        check_same(w, "after a store");
        if (draw(w, 8) == 0)
            check_fork(w);
    }
    if (w->with_uring)
        close(ring);
    else
        VU_EQ(ibv_dereg_mr(mr), 0);
    /* Pages that could not be moved back are tried again when somebody registers. */
    static uint8_t other[2 * PAGE];
    for (int i = 0; w->with_uring && i < 3; i++)
        VU_EQ(ibv_dereg_mr(vu_reg(&w->dev, other, sizeof(other), VU_ACCESS_ALL)), 0);
    check_same(w, "when nothing is registered");
    check_flags(w);
    check_fork(w);
    for (int k = 0; k < 2; k++)
        munmap(w->twins[k].base, (size_t)w->twins[k].pages * PAGE);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"uring", no_argument, NULL, 'u'},
                                            {"raw", no_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    struct world w = {.seed = vu_now_ms()};
    int seconds = 3;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            w.seed = strtoull(optarg, NULL, 0);
        else if (c == 't')
            seconds = atoi(optarg);
        else if (c == 'r')
            is_raw = true;
        else
            w.with_uring = true;
    }
    int ring = w.with_uring ? uring_open() : 0;
    if (ring < 0)
        vu_skip("io_uring is refused: %s", strerror(errno));
    if (ring)
        close(ring);
    printf("seed %llu\n", (unsigned long long)w.seed);
    fflush(stdout);
    w.random.state = w.seed;
    vu_dev_open(&w.dev);
    for (uint64_t end = vu_now_ms() + (uint64_t)seconds * 1000; vu_now_ms() < end; w.round++)
        run_round(&w);
    printf("%llu rounds\n", (unsigned long long)w.round);
    VU_TRUE(w.round > 2);
    vu_dev_close(&w.dev);
    return 0;
}
