/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * machine_cost [SECONDS]: what the machines of transport/ cost a packet, without codec, copies and
 * sockets: a requester and a responder that hand packets to each other in batches of 32. Prints one
 * line for each workload: nanoseconds per packet spent in next(), in admit() and conclude(), and in
 * the answers (of a READ: per response packet).
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "transport/requester.h"
#include "transport/responder.h"

enum { ENTRIES = 256, BATCH = 32, MTU = 4096 };

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct sw_requester requester;
static struct sw_responder responder;
static struct sw_request ring[ENTRIES];
static struct sw_emission emissions[BATCH];

struct workload {
    const char *name;
    enum sw_request_kind kind;
    uint32_t len_bytes;
};

struct cost {
    uint64_t next_ns, admit_ns, answer_ns, packets;
};

static void cost_start(void)
{
    const struct sw_requester_config config = {.first_psn = 1,
                                               .mtu_bytes = MTU,
                                               .timeout = 14,
                                               .retry_cnt = 7,
                                               .rnr_retry = 7,
                                               .max_rd_atomic = 16,
                                               .offer_selective = true};
    const struct sw_responder_config other = {
        .first_psn = 1, .mtu_bytes = MTU, .max_dest_rd_atomic = 16, .offer_selective = true};
    sw_requester_init(&requester, &config, ring, ENTRIES);
    sw_responder_init(&responder, &other, NULL);
}

static uint32_t send_some(uint64_t now_ns)
{
    uint32_t count = 0;
    while (count < BATCH && sw_requester_next(&requester, now_ns, &emissions[count]))
        count++;
    return count;
}

static void take_some(uint32_t count, uint64_t now_ns)
{
    const struct sw_outcome ack = {.syndrome = 0x1f};
    struct sw_demand demand;
    for (uint32_t i = 0; i < count; i++)
        if (sw_responder_admit(&responder, &emissions[i].packet, now_ns, &demand))
            sw_responder_conclude(&responder, &demand, &ack);
}

static uint32_t answer_some(uint64_t now_ns)
{
    struct sw_progress progress;
    struct sw_emission out;
    uint32_t count = 0;
    for (; sw_responder_next(&responder, now_ns, &out); count++)
        sw_requester_receive(&requester, &out.packet, now_ns, &progress);
    return count;
}

static struct cost cost_measure(const struct workload *work, uint64_t length_ns)
{
    const struct sw_request request = {.kind = (uint8_t)work->kind, .len_bytes = work->len_bytes};
    struct cost cost = {0};
    cost_start();
    uint64_t begun = clock_ns(), now = begun;
    while (now - begun < length_ns) {
        while (sw_requester_post(&requester, &request))
            ;
        uint64_t at = clock_ns();
        uint32_t sent = send_some(at);
        uint64_t sent_at = clock_ns();
        take_some(sent, sent_at);
        uint64_t taken_at = clock_ns();
        uint32_t answers = answer_some(taken_at);
        now = clock_ns();
        cost.next_ns += sent_at - at;
        cost.admit_ns += taken_at - sent_at;
        cost.answer_ns += now - taken_at;
        cost.packets += work->kind == SW_REQUEST_READ ? answers : sent;
    }
    return cost;
}

static double per_packet(const struct cost *cost)
{
    return (double)(cost->next_ns + cost->admit_ns + cost->answer_ns) / (double)cost->packets;
}

/* The cheapest of many short runs, since other programs want the processor, too. */
static struct cost measure_best(const struct workload *work, uint64_t length_ns)
{
    enum { RUNS = 100 };
    struct cost best = cost_measure(work, length_ns / RUNS);
    for (int i = 1; i < RUNS; i++) {
        struct cost other = cost_measure(work, length_ns / RUNS);
        if (per_packet(&other) < per_packet(&best))
            best = other;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const struct workload works[] = {
        {"write_64KiB", SW_REQUEST_WRITE, 65536},
        {"write_8B", SW_REQUEST_WRITE, 8},
        {"read_64KiB", SW_REQUEST_READ, 65536},
    };
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++) {
        struct cost cost = measure_best(&works[i], (uint64_t)(seconds * 1e9));
        double packets = (double)cost.packets;
        printf("%s next %.1f admit %.1f answer %.1f ns/packet\n", works[i].name,
               (double)cost.next_ns / packets, (double)cost.admit_ns / packets,
               (double)cost.answer_ns / packets);
    }
    return 0;
}
