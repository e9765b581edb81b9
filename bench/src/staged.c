/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes to another process's memory the long way: each is a SEND into a staging buffer, which the
 * server's thread copies to where it belongs and answers. Two processes, started apart; the one
 * with an address writes, and prints one JSON object. The server's memory is a file that is mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "endpoint.h"
#include "options.h"

#define PAGE 4096u
#define DEPTH_MAX 64u
#define LOOKS 1024 /* polls between looks at the control connection */
#define ANSWER_BYTES 8u

static struct {
    const char *device, *address, *path;
    uint16_t port;
    uint32_t bytes, depth;
    unsigned long count;
    uint64_t rate;    /* bytes per second at most; 0: as fast as it goes */
    uint64_t next_ns; /* of the next message */
    bool sleeps;
    int control;
    struct bench_endpoint endpoint;
    uint8_t *memory; /* [depth] messages, then [depth] answers */
    uint8_t *place;  /* the server's file */
    size_t place_bytes;
} self = {.bytes = 4096, .depth = 1, .count = 20000};

static __attribute__((noreturn)) void staged_usage(void)
{
    bench_die("usage: staged --port N --file PATH [--device NAME] [--bytes N] [--depth 1..%u] "
              "[--count N] [--rate BYTES] [--sleep] [ADDRESS OF THE SERVER]",
              DEPTH_MAX);
}

static void staged_parse(int argc, char **argv)
{
    const struct bench_option table[] = {
        BENCH_NUMBER_OPTION("port", 'p', self.port),
        BENCH_TEXT_OPTION("file", 'f', self.path),
        BENCH_TEXT_OPTION("device", 'd', self.device),
        BENCH_NUMBER_OPTION("bytes", 's', self.bytes),
        BENCH_NUMBER_OPTION("depth", 'q', self.depth),
        BENCH_NUMBER_OPTION("count", 'n', self.count),
        BENCH_NUMBER_OPTION("rate", 'r', self.rate),
        BENCH_FLAG_OPTION("sleep", 'e', self.sleeps),
    };
    if (!bench_parse_options(argc, argv, table, sizeof(table) / sizeof(table[0])))
        staged_usage();
    self.address = argv[optind];
    if (!self.port || !self.depth || self.depth > DEPTH_MAX || self.bytes < ANSWER_BYTES ||
        !self.count || (!self.address && !self.path))
        staged_usage();
}

static void map_place(void)
{
    int fd = open(self.path, O_RDWR | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

    if (end < (off_t)self.bytes)
        bench_die("%s: %s", self.path, fd < 0 ? strerror(errno) : "it is too short");
    self.place_bytes = (size_t)end / self.bytes * self.bytes;
    self.place = mmap(NULL, (size_t)end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (self.place == MAP_FAILED)
        bench_die("%s: %s", self.path, strerror(errno));
    close(fd);
}

static size_t answers_at(void)
{
    return ((size_t)self.bytes * self.depth + PAGE - 1) / PAGE * PAGE;
}

static void staged_join(void)
{
    const struct bench_shape shape = {.lanes = 1,
                                      .depth = 2 * self.depth,
                                      .receives = self.depth,
                                      .has_events = self.sleeps,
                                      .one_cq = true,
                                      .largest_mtu = true};
    size_t len_bytes = answers_at() + (self.depth * ANSWER_BYTES + PAGE - 1) / PAGE * PAGE;

    self.memory = aligned_alloc(PAGE, len_bytes);
    if (!self.memory)
        bench_die("no memory");
    memset(self.memory, 1, len_bytes);
    bench_endpoint_join(&self.endpoint, self.device, &shape, self.memory, len_bytes, self.control);
}

static size_t place_of(uint32_t slot, bool of_answer)
{
    return of_answer ? answers_at() + slot * ANSWER_BYTES : (size_t)slot * self.bytes;
}

static void staged_post_receive(uint32_t slot)
{
    bench_lane_receive(&self.endpoint, 0, slot, place_of(slot, self.address),
                       self.address ? ANSWER_BYTES : self.bytes);
}

static void post_send(uint32_t slot)
{
    struct ibv_sge sge = {(uintptr_t)self.memory + place_of(slot, !self.address),
                          self.address ? self.bytes : ANSWER_BYTES, self.endpoint.mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = DEPTH_MAX + slot,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};

    if ((errno = ibv_post_send(self.endpoint.lanes[0].qp, &wr, &bad)))
        bench_die("ibv_post_send: %s", strerror(errno));
}

/* Messages that have come: their slots. */
static uint32_t staged_poll_once(uint32_t slots[DEPTH_MAX])
{
    struct ibv_wc wc[DEPTH_MAX];
    int got = ibv_poll_cq(self.endpoint.lanes[0].cq, (int)self.depth, wc);
    uint32_t count = 0;

    for (int i = 0; i < got; i++) {
        if (wc[i].status != IBV_WC_SUCCESS && wc[i].status != IBV_WC_WR_FLUSH_ERR)
            bench_die("a message failed: %s", ibv_wc_status_str(wc[i].status));
        if (wc[i].wr_id < DEPTH_MAX && wc[i].status == IBV_WC_SUCCESS)
            slots[count++] = (uint32_t)wc[i].wr_id;
    }
    return count;
}

/* False: the other side has gone. */
static bool staged_await(uint32_t slots[DEPTH_MAX], uint32_t *count)
{
    for (unsigned long look = 1;; look++) {
        *count = staged_poll_once(slots);
        if (*count)
            return true;
        if (self.sleeps && !bench_lane_sleep(&self.endpoint, 0, self.control))
            return false;
        if (!self.sleeps && look % LOOKS == 0 && bench_has_closed(self.control))
            return false;
    }
}

static void staged_serve(void)
{
    uint32_t slots[DEPTH_MAX], count;
    size_t at = 0;

    while (staged_await(slots, &count)) {
        for (uint32_t i = 0; i < count; i++) {
            memcpy(self.place + at, self.memory + place_of(slots[i], false), self.bytes);
            atomic_thread_fence(memory_order_seq_cst);
            at = (at + self.bytes) % self.place_bytes;
            staged_post_receive(slots[i]);
            post_send(slots[i]);
        }
    }
}

/* Sends no faster than it was told. Lost time is not caught up. */
static void staged_pace(void)
{
    uint64_t now_ns = bench_now_ns();

    if (!self.rate)
        return;
    while (now_ns < self.next_ns)
        now_ns = bench_now_ns();
    self.next_ns = now_ns + self.bytes * UINT64_C(1000000000) / self.rate;
}

/* Returns when all are answered; `ns`: how long each of them took, or NULL. */
static void write_all(unsigned long count, uint32_t *ns)
{
    uint64_t started_ns[DEPTH_MAX];
    uint32_t slots[DEPTH_MAX], got = 0;
    unsigned long begun = 0, ended = 0;

    for (; begun < self.depth && begun < count; begun++)
        slots[got++] = (uint32_t)begun;
    for (;;) {
        for (uint32_t i = 0; i < got; i++) {
            staged_post_receive(slots[i]);
            staged_pace();
            started_ns[slots[i]] = bench_now_ns();
            post_send(slots[i]);
        }
        if (ended == count)
            return;
        if (!staged_await(slots, &got))
            bench_die("the server is gone");
        for (uint32_t i = 0; i < got; i++) {
            if (ns)
                ns[ended] = (uint32_t)(bench_now_ns() - started_ns[slots[i]]);
            ended++;
        }
        got = got < count - begun ? got : (uint32_t)(count - begun);
        begun += got;
    }
}

static int staged_by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void staged_measure(void)
{
    uint32_t *ns = calloc(self.count, sizeof(*ns));
    double sum_ns = 0;

    if (!ns)
        bench_die("no memory");
    write_all(self.count / 10 + 1, NULL);
    const uint64_t started_ns = bench_now_ns();
    write_all(self.count, ns);
    const double seconds = (double)(bench_now_ns() - started_ns) / 1e9;
    for (unsigned long i = 0; i < self.count; i++)
        sum_ns += ns[i];
    qsort(ns, self.count, sizeof(*ns), staged_by_value);
    printf("{\"mean_us\": %.3f, \"p50_us\": %.3f, \"bytes_per_s\": %.0f}\n",
           sum_ns / (double)self.count / 1e3, ns[self.count / 2] / 1e3,
           (double)self.count * self.bytes / seconds);
    free(ns);
}

int main(int argc, char **argv)
{
    staged_parse(argc, argv);
    if (!self.address)
        map_place();
    self.control = self.address ? bench_connect(self.address, self.port) : bench_listen(self.port);
    staged_join();
    for (uint32_t i = 0; !self.address && i < self.depth; i++)
        staged_post_receive(i);
    bench_send(self.control, "", 1);
    if (!bench_receive(self.control, &(char){0}, 1))
        bench_die("the other side is gone");
    if (self.address)
        staged_measure();
    else
        staged_serve();
    close(self.control);
    bench_endpoint_close(&self.endpoint);
    return 0;
}
