/* SPDX-License-Identifier: BSD-2-Clause */
#include "client_rig.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static void take_stop(struct mover_watch *watch)
{
    mover_loop_stop(watch->context);
}

static void *serve(void *arg)
{
    struct world *w = arg;
    mover_loop_run(&w->loop);
    return NULL;
}

void world_begin(struct world *w, const char *rule)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char error[256] = "";
    memset(&w->server, 0, sizeof(w->server));
    w->server.regions = &w->region;
    w->server.regions_count = 1;
    strcpy(w->region.name, "region");
    assert_int_equal(pms_rules_add(&w->server.rules, rule, error, sizeof(error)), 0);
    assert_int_equal(pms_rules_fit(&w->server.rules, "region", REGION, error, sizeof(error)), 0);
    at.sin_port = htons((uint16_t)atoi(w->port));
    assert_int_equal(mover_loop_open(&w->loop), 0);
    if (pms_server_start(&w->server, &w->loop, (struct sockaddr *)&at, error, sizeof(error)))
        fail_msg("%s", error);
    snprintf(w->port, sizeof(w->port), "%u", mover_listener_port(&w->server.acceptor.listener));
    w->stop = (struct mover_watch){
        .fd = eventfd(0, EFD_CLOEXEC), .ready = take_stop, .context = &w->loop};
    assert_int_equal(mover_loop_watch(&w->loop, &w->stop), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w), 0);
    w->is_serving = true;
}

void world_end(struct world *w)
{
    const uint64_t one = 1;
    if (!w->is_serving)
        return;
    assert_int_equal(write(w->stop.fd, &one, sizeof(one)), sizeof(one));
    pthread_join(w->thread, NULL);
    pms_server_end(&w->server);
    mover_loop_close(&w->loop);
    close(w->stop.fd);
    w->is_serving = false;
}

void connect_client(struct world *w)
{
    struct sw_pmem_error error;
    w->options.port = w->port;
    if (sw_pmem_open(&w->options, &error, &w->pmem))
        fail_msg("%s", error.text);
    assert_int_equal(sw_pmem_mem_register(w->pmem, w->local, LOCAL, &w->mem), SW_PMEM_OK);
}

int world_set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof(*w));
    strcpy(w->port, "0");
    w->region.memory =
        (struct pms_memory){.bytes = REGION, .kind = SW_PMEM_VOLATILE, .identity = {1}};
    w->region.memory.base =
        mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w->local = aligned_alloc(4096, LOCAL);
    assert_true(w->region.memory.base != MAP_FAILED && w->local);
    sw_pmem_options_init(&w->options);
    w->options.address = "127.0.0.1";
    world_begin(w, "*:*:rw");
    *state = w;
    return 0;
}

int world_tear_down(void **state)
{
    struct world *w = *state;
    sw_pmem_mem_release(w->mem);
    if (w->pmem)
        sw_pmem_close(w->pmem);
    world_end(w);
    munmap(w->region.memory.base, REGION);
    free(w->local);
    return 0;
}

/* ---- chains and their results ---- */

void count_result(void *arg, const struct sw_pmem_result *result)
{
    struct tally *tally = arg;
    tally->of[result->status]++;
    tally->sum++;
}

struct sw_pmem_op write_op(struct world *w, uint64_t offset, uint32_t bytes)
{
    return (struct sw_pmem_op){.opcode = SW_PMEM_OP_WRITE,
                               .offset = offset,
                               .pieces = {{w->local, bytes, w->mem}},
                               .pieces_count = 1};
}

enum sw_pmem_status post_write(struct world *w, struct tally *tally, uint32_t flags,
                               uint64_t session)
{
    const struct sw_pmem_op op = write_op(w, 4096, 64);
    const struct sw_pmem_chain chain = {.ops = &op,
                                        .count = 1,
                                        .flags = flags,
                                        .session = session,
                                        .done = count_result,
                                        .arg = tally};
    return sw_pmem_post(w->pmem, &chain);
}

void await(struct world *w, const struct tally *tally, uint32_t sum)
{
    const uint64_t deadline_ns = sw_pmem_deadline_ms(WAIT_MS);
    while (tally->sum < sum && sw_pmem_deadline_ms(0) < deadline_ns)
        sw_pmem_wait(w->pmem, sw_pmem_deadline_ms(50));
    assert_int_equal(tally->sum, sum);
}

void await_state(struct world *w, enum sw_pmem_state state)
{
    const uint64_t deadline_ns = sw_pmem_deadline_ms(WAIT_MS);
    while (sw_pmem_state_of(w->pmem) != state && sw_pmem_deadline_ms(0) < deadline_ns) {
        sw_pmem_poll(w->pmem);
        poll(NULL, 0, 1);
    }
    assert_int_equal(sw_pmem_state_of(w->pmem), state);
}
