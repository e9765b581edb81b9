/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One side of a pair that is killed and stopped by test_damage.py. Whatever happens to the other
 * side, memory that was given back keeps what its owner writes, and transfers end in time.
 *
 * usage: damage target|initiator CARD SEED
 * Says "ready" once it works, and "bad: ..." with status 1 when something is wrong. SIGTERM ends
 * it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sidewire/transfer.h"

enum { CACHE = 1 << 20, CANARY = 1 << 16, BLOCKS = 64, BLOCK = CACHE / BLOCKS, CARD_MAX = 4096 };
enum { DEADLINE_MS = 300, BOUND_MS = 8000, LATE_MS = 20, KEPT = 0xc3 };

static volatile sig_atomic_t is_over;

static void stop(int number)
{
    (void)number;
    is_over = 1;
}

static void bad(const char *format, ...)
{
    va_list args;
    printf("bad: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

/* Canaries lie on both sides of what transfers may touch. */
static uint8_t *make_memory(void)
{
    uint8_t *all =
        mmap(NULL, CACHE + 2 * CANARY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        bad("no memory");
    memset(all, KEPT, CACHE + 2 * CANARY);
    return all;
}

static void check(const uint8_t *at, size_t bytes, int value, const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value)
            bad("%s has 0x%02x at %zu", what, at[i], i);
}

static void check_canaries(const uint8_t *all)
{
    check(all, CANARY, KEPT, "the canary before");
    check(all + CANARY + CACHE, CANARY, KEPT, "the canary behind");
}

/* The memory is its owner's again: what he writes stays. */
static void own_for_a_while(struct sw_xfer_agent *agent, uint8_t *all, int value, const char *what)
{
    const uint64_t until = sw_xfer_deadline_ms(LATE_MS);
    memset(all + CANARY, value, CACHE);
    while (sw_xfer_deadline_ms(0) < until)
        sw_xfer_run_once(agent, until);
    check(all + CANARY, CACHE, value, what);
    check_canaries(all);
}

static struct sw_xfer_agent *open_agent(const char *address)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_error error;
    struct sw_xfer_agent *agent;
    sw_xfer_agent_options_init(&options);
    options.address = address;
    options.port = getenv("DAMAGE_PORT");
    options.connect_timeout_ms = 2000;
    options.stall_timeout_ms = 2000;
    if (sw_xfer_agent_open(&options, &error, &agent))
        bad("%s", error.text);
    return agent;
}

static void write_card(const struct sw_xfer_agent *agent, struct sw_xfer_lease *lease,
                       const char *path)
{
    uint8_t card[CARD_MAX];
    char fresh[256];
    size_t bytes;
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (sw_xfer_card_make(agent, &lease, 1, card, sizeof(card), &bytes) || fd < 0 ||
        write(fd, card, bytes) != (ssize_t)bytes || rename(fresh, path))
        bad("no card");
    close(fd);
}

static void be_target(const char *path)
{
    struct sw_xfer_agent *agent = open_agent("127.0.0.1");
    static struct sw_xfer_notice notice;
    struct sw_xfer_error error;
    struct sw_xfer_memory *memory;
    struct sw_xfer_lease *lease;
    uint8_t *all = make_memory();
    if (sw_xfer_memory_host(agent, all, CACHE + 2 * CANARY, &error, &memory))
        bad("%s", error.text);
    for (int round = 0; !is_over; round++) {
        const struct sw_xfer_lease_options options = {.offset = CANARY,
                                                      .bytes = CACHE,
                                                      .rights =
                                                          SW_XFER_MAY_READ | SW_XFER_MAY_WRITE,
                                                      .visitor = round % 2 ? notice.visitor : 0,
                                                      .deadline_ns = SW_XFER_NEVER};
        if (sw_xfer_lease_grant(memory, &options, &error, &lease)) {
            if (error.status != SW_XFER_PEER_GONE)
                bad("%s", error.text);
            continue; /* that visitor was killed */
        }
        write_card(agent, lease, path);
        if (!round && printf("ready\n") && fflush(stdout))
            bad("no output");
        const uint64_t until = sw_xfer_deadline_ms(20 + (uint32_t)(rand() % 60));
        while (sw_xfer_deadline_ms(0) < until) {
            sw_xfer_run_once(agent, until);
            while (!sw_xfer_notice_take(agent, &notice))
                ;
        }
        if (sw_xfer_lease_revoke(lease))
            bad("a lease that is the only one is not revoked");
        sw_xfer_lease_release(lease);
        own_for_a_while(agent, all, round & 0xff, "memory whose lease was revoked");
    }
    sw_xfer_agent_close(agent);
}

struct initiator {
    struct sw_xfer_agent *agent;
    struct sw_xfer_memory *memory;
    struct sw_xfer_peer *peer;
    uint8_t card[CARD_MAX], *all;
    size_t card_bytes;
    uint64_t ended[SW_XFER_SYSTEM + 1];
};

static void read_card(struct initiator *me, const char *path)
{
    const int fd = open(path, O_RDONLY);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, me->card, sizeof(me->card));
    if (bytes < 0)
        bad("no card to read");
    me->card_bytes = (size_t)bytes;
    close(fd);
}

static bool find_peer(struct initiator *me, const char *path)
{
    struct sw_xfer_error error;
    if (me->peer && sw_xfer_peer_state_of(me->peer) != SW_XFER_GONE)
        return true;
    if (me->peer && sw_xfer_peer_release(me->peer))
        bad("a peer without transfers is busy");
    me->peer = NULL;
    read_card(me, path);
    if (sw_xfer_connect(me->agent, me->card, me->card_bytes, &error, &me->peer))
        bad("%s", error.text);
    const enum sw_xfer_status status =
        sw_xfer_peer_wait(me->peer, sw_xfer_deadline_ms(BOUND_MS), &error);
    if (status == SW_XFER_TIMEOUT)
        bad("a connection did not end in %d ms", BOUND_MS);
    return !status;
}

/* Each block somewhere else. */
static void draw(struct sw_xfer_extent *extents, uint64_t base)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        extents[i] = (struct sw_xfer_extent){
            .offset = base + i * BLOCK, .bytes = 1 + (uint64_t)BLOCK - 1, .count = 1};
    for (uint32_t i = BLOCKS; i > 1; i--) {
        const uint32_t other = (uint32_t)rand() % i;
        const struct sw_xfer_extent kept = extents[i - 1];
        extents[i - 1] = extents[other];
        extents[other] = kept;
    }
}

static void check_end(struct initiator *me, struct sw_xfer_transfer *transfer,
                      enum sw_xfer_status status, uint64_t posted_ns)
{
    struct sw_xfer_info info;
    sw_xfer_info_of(transfer, &info);
    const uint64_t ms = (sw_xfer_deadline_ms(0) - posted_ns) / 1000000;
    if (status == SW_XFER_TIMEOUT || info.state == SW_XFER_POSTED)
        bad("a transfer with a deadline of %d ms has not ended after %d", DEADLINE_MS, (int)ms);
    if (status == SW_XFER_INVALID || status == SW_XFER_SYSTEM || status == SW_XFER_PROTOCOL)
        bad("a transfer ended with: %s", sw_xfer_status_text(status));
    me->ended[status]++;
}

static void move_once(struct initiator *me, const char *path)
{
    struct sw_xfer_extent here[BLOCKS], there[BLOCKS];
    struct sw_xfer_blocks *local, *remote;
    struct sw_xfer_transfer *transfer;
    const enum sw_xfer_op op = rand() % 2 ? SW_XFER_WRITE : SW_XFER_READ;
    read_card(me, path);
    draw(here, CANARY);
    draw(there, 0);
    if (sw_xfer_blocks_local(me->agent, &me->memory, 1, here, BLOCKS, &local))
        bad("no local blocks");
    if (sw_xfer_blocks_remote(me->peer, me->card, me->card_bytes, there, BLOCKS, &remote)) {
        sw_xfer_blocks_release(local); /* the target was started anew */
        sw_xfer_poll(me->agent);
        return;
    }
    if (sw_xfer_prepare(me->peer, op, local, remote, NULL, &transfer))
        bad("prepare");
    for (int i = 0; i < 8 && !is_over; i++) {
        const uint64_t posted_ns = sw_xfer_deadline_ms(0);
        memset(me->all + CANARY, rand(), CACHE);
        enum sw_xfer_status status = sw_xfer_post(
            transfer,
            &(struct sw_xfer_post_options){.notice = "moved",
                                           .notice_bytes = 5,
                                           .deadline_ns = sw_xfer_deadline_ms(DEADLINE_MS)});
        if (status == SW_XFER_PEER_GONE)
            break;
        if (rand() % 4 == 0)
            sw_xfer_cancel(transfer);
        status = sw_xfer_wait(transfer, sw_xfer_deadline_ms(BOUND_MS));
        check_end(me, transfer, status, posted_ns);
        if (status)
            own_for_a_while(me->agent, me->all, rand() & 0xff, "a buffer that was given back");
    }
    sw_xfer_release(transfer);
    sw_xfer_blocks_release(local);
    sw_xfer_blocks_release(remote);
}

static void be_initiator(const char *path)
{
    static struct initiator me;
    struct sw_xfer_error error;
    me.agent = open_agent(NULL);
    me.all = make_memory();
    if (sw_xfer_memory_host(me.agent, me.all, CACHE + 2 * CANARY, &error, &me.memory))
        bad("%s", error.text);
    printf("ready\n");
    fflush(stdout);
    while (!is_over)
        if (find_peer(&me, path))
            move_once(&me, path);
        else
            usleep(20000);
    sw_xfer_agent_close(me.agent);
    check_canaries(me.all);
    for (int i = 0; i <= SW_XFER_SYSTEM; i++)
        if (me.ended[i])
            printf("%llu %s\n", (unsigned long long)me.ended[i],
                   sw_xfer_status_text((enum sw_xfer_status)i));
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    srand((unsigned)atoi(argv[3]));
    signal(SIGTERM, stop);
    if (!strcmp(argv[1], "target"))
        be_target(argv[2]);
    else
        be_initiator(argv[2]);
    return 0;
}
