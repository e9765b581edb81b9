/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * machines OWN GUEST: the machines of src/transport against rdma_rxe, with target.c in the guest.
 * All data is compared, of clean paths and of such that lose packets both ways. Prints a line for
 * each case; the status is 1 if one failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "expect.h"
#include "machine.h"
#include "wire/aeth.h"

enum { LIMIT_S = 60, WORDS = 64, DEPTH = 8 };

static struct peer peer;
static struct machine m;
static uint8_t shadow[TARGET_MEMORY]; /* what the target's memory must be */
static uint8_t expected[MACHINE_ENTRIES][TARGET_MESSAGE_MAX];

static void fill(uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)machine_random(&m);
}

/* Many small ones, some that end with a packet, some odd. */
static uint32_t some_length(void)
{
    uint32_t longest = machine_random(&m) % 4 ? 3000 : TARGET_MESSAGE_MAX;
    uint32_t len = machine_random(&m) % (longest + 1);
    return machine_random(&m) % 4 ? len : len & ~(m.requester.config.mtu_bytes - 1);
}

/* ---- requests of ours ---- */

static struct sw_request request_of(enum sw_request_kind kind, uint64_t offset, uint32_t len)
{
    return (struct sw_request){.kind = (uint8_t)kind,
                               .remote_addr = m.target_addr + offset,
                               .rkey = m.target_rkey,
                               .len_bytes = len};
}

/* The next random request, with its effect on the shadow and what it must bring back. */
static void post_random(void)
{
    uint32_t slot = m.requester.tail % MACHINE_ENTRIES;
    uint32_t len = some_length(), offset = machine_random(&m) % (TARGET_MEMORY - len + 1);
    enum sw_request_kind kind = (enum sw_request_kind)(SW_REQUEST_WRITE + machine_random(&m) % 4);
    if (kind == SW_REQUEST_CMP_SWAP || kind == SW_REQUEST_FETCH_ADD) {
        len = 8;
        offset = machine_random(&m) % WORDS * 8;
    }
    struct sw_request request = request_of(kind, offset, len);
    memcpy(expected[slot], shadow + offset, len);
    uint64_t word;
    memcpy(&word, shadow + offset, sizeof(word));
    if (kind == SW_REQUEST_WRITE) {
        fill(m.data[slot], len);
        memcpy(shadow + offset, m.data[slot], len);
    } else if (kind == SW_REQUEST_READ) {
        memset(m.data[slot], 0xaa, len);
    } else {
        request.compare_add = machine_random(&m) % 2 ? word : machine_random(&m);
        request.swap = (uint64_t)machine_random(&m) << 32 | machine_random(&m);
        if (kind == SW_REQUEST_FETCH_ADD)
            word += request.compare_add;
        else if (word == request.compare_add)
            word = request.swap;
        memcpy(shadow + offset, &word, sizeof(word));
    }
    machine_post(&m, &request);
}

static bool is_right(uint32_t position)
{
    uint32_t slot = position % MACHINE_ENTRIES;
    const struct sw_request *request = &m.ring[slot];
    if (request->kind == SW_REQUEST_READ)
        return memcmp(m.data[slot], expected[slot], request->len_bytes) == 0;
    if (request->kind == SW_REQUEST_WRITE)
        return true;
    return memcmp(&m.original[slot], expected[slot], 8) == 0;
}

static bool requests(uint32_t count)
{
    uint64_t limit_ns = sw_clock_ns() + LIMIT_S * SW_NS_PER_S;
    memset(shadow, 0, sizeof(shadow));
    for (uint32_t done = 0; done < count;) {
        while (m.requester.tail < count && m.requester.tail - done < MACHINE_ENTRIES)
            post_random();
        machine_step(&m);
        EXPECT(m.failure == SW_FAILURE_NONE);
        EXPECT(sw_clock_ns() < limit_ns);
        for (; done != sw_requester_done(&m.requester); done++)
            EXPECT(is_right(done));
    }
    return true;
}

/* ---- messages, and what the target asks for ---- */

static bool post_command(enum target_op op, uint32_t message_len, uint64_t from, uint64_t to,
                         uint64_t len_bytes)
{
    uint8_t *bytes = m.data[m.requester.tail % MACHINE_ENTRIES];
    struct target_command command = {
        .op = op, .rkey = MACHINE_RKEY, .from = from, .to = to, .len_bytes = len_bytes};
    struct sw_request request = {.kind = SW_REQUEST_SEND, .len_bytes = message_len};
    fill(bytes, message_len);
    memcpy(bytes, &command, sizeof(command));
    return machine_post(&m, &request);
}

/* Until message `count` (counted from 1) has come. */
static bool await_message(uint32_t count)
{
    uint64_t limit_ns = sw_clock_ns() + LIMIT_S * SW_NS_PER_S;
    while (m.received_count < count) {
        machine_step(&m);
        EXPECT(m.failure == SW_FAILURE_NONE);
        EXPECT(sw_clock_ns() < limit_ns);
    }
    return true;
}

static bool echoes(uint32_t count)
{
    static uint32_t lengths[DEPTH];
    uint32_t sent = 0;
    for (uint32_t back = 0; back < count; back++) {
        for (; sent < count && sent < back + DEPTH; sent++) {
            uint32_t len = some_length(), slot = sent % DEPTH;
            lengths[slot] =
                len < sizeof(struct target_command) ? sizeof(struct target_command) : len;
            uint8_t *bytes = m.data[m.requester.tail % MACHINE_ENTRIES];
            EXPECT(post_command(TARGET_ECHO, lengths[slot], 0, 0, 0));
            memcpy(expected[slot], bytes, lengths[slot]);
        }
        EXPECT(await_message(back + 1));
        EXPECT(m.received_len[back % MACHINE_RECEIVES] == lengths[back % DEPTH]);
        EXPECT(memcmp(m.received[back % MACHINE_RECEIVES], expected[back % DEPTH],
                      lengths[back % DEPTH]) == 0);
    }
    return true;
}

static bool copies(uint32_t count)
{
    fill(m.memory, TARGET_MEMORY);
    memcpy(shadow, m.memory, TARGET_MEMORY);
    uint32_t messages = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t len = some_length(), from = machine_random(&m) % (TARGET_MEMORY - len + 1);
        uint32_t to = machine_random(&m) % (TARGET_MEMORY - len + 1);
        EXPECT(post_command(TARGET_COPY, sizeof(struct target_command), MACHINE_BASE + from,
                            MACHINE_BASE + to, len));
        EXPECT(await_message(++messages));
        memmove(shadow + to, shadow + from, len);
        EXPECT(memcmp(m.memory, shadow, TARGET_MEMORY) == 0);

        uint32_t at = machine_random(&m) % WORDS * 8;
        uint64_t word, add = machine_random(&m);
        memcpy(&word, shadow + at, sizeof(word));
        EXPECT(post_command(TARGET_ADD, sizeof(struct target_command), add, MACHINE_BASE + at, 8));
        EXPECT(await_message(++messages));
        EXPECT(memcmp(m.received[(messages - 1) % MACHINE_RECEIVES], &word, 8) == 0);
        word += add;
        memcpy(shadow + at, &word, sizeof(word));
        EXPECT(memcmp(m.memory, shadow, TARGET_MEMORY) == 0);
    }
    return true;
}

/* ---- cases ---- */

static bool bad_key(void)
{
    struct sw_request request = request_of(SW_REQUEST_WRITE, 0, 100);
    request.rkey ^= 0x5500;
    machine_post(&m, &request);
    for (int i = 0; i < 1000 && !m.failure; i++)
        machine_step(&m);
    EXPECT(m.failure == SW_FAILURE_NAK);
    EXPECT(m.syndrome == sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_ACCESS));
    EXPECT(sw_requester_done(&m.requester) == 0);
    return true;
}

static bool run_case(const char *name, bool (*body)(uint32_t), uint32_t count,
                     enum sw_service service, uint32_t mtu_bytes, uint32_t loss)
{
    uint64_t start_ns = sw_clock_ns();
    machine_open(&m, &peer, service, mtu_bytes, loss);
    bool good = body ? body(count) : bad_key();
    const struct sw_requester_counts *counts = &m.requester.counts;
    printf("%s  %s, MTU %u, loss %u/1000: %llu packets (%llu again, %llu timeouts), %llu taken, "
           "%.1f s\n",
           good ? "ok" : "NOT OK", name, mtu_bytes, loss, (unsigned long long)counts->packets,
           (unsigned long long)counts->resent, (unsigned long long)counts->timeouts,
           (unsigned long long)m.responder.counts.packets,
           (double)(sw_clock_ns() - start_ns) / SW_NS_PER_S);
    machine_close(&m);
    return good && peer.bad == 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_FAILURE;
    setlinebuf(stdout);
    peer_open(&peer, argv[1], argv[2]);
    bool good = true;
    static const uint32_t mtus[] = {1024, 4096};
    for (int i = 0; i < 2; i++) {
        good &= run_case("requests", requests, 300, SW_SERVICE_RC, mtus[i], 0);
        good &= run_case("echoes", echoes, 100, SW_SERVICE_RC, mtus[i], 0);
        good &= run_case("copies", copies, 50, SW_SERVICE_RC, mtus[i], 0);
        good &= run_case("UC echoes", echoes, 100, SW_SERVICE_UC, mtus[i], 0);
    }
    good &= run_case("bad key", NULL, 0, SW_SERVICE_RC, 1024, 0);
    good &= run_case("requests", requests, 100, SW_SERVICE_RC, 1024, 10);
    good &= run_case("echoes", echoes, 50, SW_SERVICE_RC, 1024, 10);
    good &= run_case("copies", copies, 20, SW_SERVICE_RC, 1024, 10);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
