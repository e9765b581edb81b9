/* SPDX-License-Identifier: BSD-2-Clause */
#include "test_model_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct nvt_target target;
struct nvt_subsystem *subsystem;
struct nvt_queue admin, io_queue;
uint8_t host[HOST_BYTES], capsule[IN_CAPSULE];
struct nvf_cqe response;
int answers, cuts, drops;
bool holds, holds_answers, slices_wait;
struct nvt_request *fetching, *answering;

enum { HISTORY = 8, REQUESTS_MAX = 128, PLACES = 32 };
/* Requests without an answer: once their connection has ended, nobody else frees them. */
static struct nvt_request *requests[REQUESTS_MAX];
static struct nvf_cqe history[HISTORY];
struct nvt_port *port;
static struct mover_region capsule_region = {.base = capsule, .len_bytes = sizeof(capsule)};

/* Moves as a NIC would: host addresses are offsets into `host`. */
static void fetch(struct nvt_request *request)
{
    assert_false(request->queue->is_gone);
    if (holds) {
        fetching = request;
        return;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < request->sgl.count && at < request->data_bytes; i++) {
        const struct nvf_segment *segment = &request->sgl.segments[i];
        const uint32_t left = request->data_bytes - at;
        const uint32_t len = segment->len_bytes < left ? segment->len_bytes : left;
        memcpy(request->data + at, host + segment->addr, len);
        at += len;
    }
    nvt_request_fetched(request, true);
}

static void answer(struct nvt_request *request)
{
    if (holds_answers) {
        answering = request;
        return;
    }
    if (request->direction == NVT_TO_HOST && !request->status)
        memcpy(host + request->sgl.segments[0].addr, request->data, request->data_bytes);
    nvt_request_response(request, &response);
    history[answers++ % HISTORY] = response;
    nvt_request_end(request);
    for (int i = 0; i < REQUESTS_MAX; i++)
        if (requests[i] == request)
            requests[i] = NULL;
    free(request);
}

static void cut(struct nvt_queue *queue)
{
    queue->is_cut = true;
    cuts++;
}

static void drop(struct nvt_queue *queue)
{
    queue->is_cut = true;
    drops++;
}

static void forget(struct mover_region *region)
{
    (void)region;
}

static const struct nvt_transport transport = {
    .fetch = fetch, .answer = answer, .cut = cut, .drop = drop, .forget = forget};

void add_ram(uint64_t bytes)
{
    const struct nvt_backend_setup setup = {.size_bytes = bytes};
    struct nvt_config_namespace config = {.nsid = 1};
    struct nvt_backend *backend;
    char error[128];
    while (subsystem->namespaces[config.nsid])
        config.nsid++;
    assert_int_equal(nvt_backend_find("ram")->open(&setup, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_namespace_add(subsystem, &config, backend, NULL), 0);
}

void make_queue_from(struct nvt_queue *queue, uint16_t qid, const char *address)
{
    static uint8_t places[PLACES][NVT_PLACES_ADMIN * NVT_PLACE_BYTES];
    static int next_place;
    *queue = (struct nvt_queue){
        .target = &target,
        .thread = &target.threads[0],
        .port = port,
        .qid = qid,
        .depth = DEPTH,
        .own = {.base = places[next_place++ % PLACES], .len_bytes = nvt_places_bytes(qid)}};
    strcpy(queue->host_address, address);
    nvt_queue_init(queue);
}

void make_queue(struct nvt_queue *queue, uint16_t qid)
{
    make_queue_from(queue, qid, "192.0.2.2");
}

int setup(void **state)
{
    (void)state;
    struct nvt_config_subsystem served = {.nqn.text = NQN, .allow_any_host = true};
    struct nvt_config_port listened = {
        .portid = 1,
        .listen = {.traddr = "192.0.2.1", .adrfam = NVMF_ADDR_FAMILY_IP4, .port = 4420},
        .in_capsule_bytes = IN_CAPSULE,
        .subsystem_count = 1,
        .subsystems = &served.nqn};
    assert_int_equal(nvt_target_init(&target, &transport, 4 << 20), 0);
    subsystem = nvt_subsystem_add(&target, &served);
    port = nvt_port_add(&target, &listened);
    add_ram(1 << 20);
    make_queue(&admin, 0);
    make_queue(&io_queue, 1);
    memset(host, 0, sizeof(host));
    answers = cuts = drops = 0;
    holds = holds_answers = slices_wait = false;
    return 0;
}

void free_unanswered(void)
{
    for (int i = 0; i < REQUESTS_MAX; i++) {
        free(requests[i]);
        requests[i] = NULL;
    }
}

int teardown(void **state)
{
    (void)state;
    holds = holds_answers = false;
    assert_true(nvt_queue_gone(&io_queue));
    assert_true(nvt_queue_gone(&admin));
    nvt_target_free(&target);
    free_unanswered();
    return 0;
}

uint16_t say_with(struct nvt_queue *queue, const struct nvf_sqe *sqe, uint32_t data_bytes)
{
    struct nvt_request *request = calloc(1, sizeof(*request));
    const int before = answers;
    int slot = 0;
    while (slot < REQUESTS_MAX && requests[slot])
        slot++;
    assert_true(slot < REQUESTS_MAX);
    requests[slot] = request;
    request->sqe = *sqe;
    request->in_capsule = capsule;
    request->in_capsule_bytes = data_bytes;
    request->in_capsule_region = &capsule_region;
    nvt_request_begin(queue, request);
    while (!slices_wait && nvt_slices_run(&queue->thread->slices, 0)) {
    }
    return answers == before ? WAITS : le16toh(response.status) >> 1;
}

uint16_t status_before(int ago)
{
    assert_true(ago < HISTORY && ago < answers);
    return le16toh(history[(answers - 1 - ago) % HISTORY].status) >> 1;
}

uint16_t say(struct nvt_queue *queue, const struct nvf_sqe *sqe)
{
    return say_with(queue, sqe, 0);
}

struct nvf_sqe command(uint8_t opcode, uint32_t nsid, uint64_t addr, uint32_t len_bytes)
{
    struct nvf_sqe sqe = {.opcode = opcode, .nsid = htole32(nsid)};
    nvf_sgl_set_keyed(&sqe, addr, len_bytes, 1, false);
    return sqe;
}

uint16_t connect_named(struct nvt_queue *queue, const char *nqn, uint16_t cntlid, uint8_t host_id,
                       const char *host_nqn)
{
    struct nvmf_connect_data data = {.cntlid = htole16(cntlid)};
    data.hostid[15] = host_id;
    strcpy(data.subsysnqn, nqn);
    strcpy(data.hostnqn, host_nqn);
    memcpy(host, &data, sizeof(data));
    struct nvf_sqe sqe = command(NVF_OPCODE, NVF_CONNECT, 0, sizeof(data));
    sqe.cdw10 = htole32((uint32_t)queue->qid << 16);
    sqe.cdw11 = htole32(DEPTH - 1);
    return say(queue, &sqe);
}

uint16_t connect_as(struct nvt_queue *queue, const char *nqn, uint16_t cntlid, uint8_t host_id)
{
    return connect_named(queue, nqn, cntlid, host_id, HOST_NQN);
}

uint16_t connect_as_host(struct nvt_queue *queue, const char *nqn, uint16_t cntlid)
{
    return connect_as(queue, nqn, cntlid, 1);
}

uint16_t set_config(struct nvt_queue *queue, uint32_t cc)
{
    struct nvf_sqe sqe = command(NVF_OPCODE, NVF_PROPERTY_SET, 0, 0);
    sqe.cdw11 = htole32(NVME_REG_CC);
    sqe.cdw12 = htole32(cc);
    return say(queue, &sqe);
}

void begin_as(struct nvt_queue *admin_queue, struct nvt_queue *queue, uint8_t host_id)
{
    assert_int_equal(connect_as(admin_queue, NQN, 0xffff, host_id), 0);
    const uint16_t cntlid = (uint16_t)le64toh(response.result);
    assert_int_equal(set_config(admin_queue, CC_ENABLED), 0);
    assert_int_equal(connect_as(queue, NQN, cntlid, host_id), 0);
}

void begin(void)
{
    begin_as(&admin, &io_queue, 1);
}

struct nvf_sqe transfer(uint8_t opcode, uint64_t first, uint16_t count, uint64_t addr)
{
    struct nvf_sqe sqe = command(opcode, 1, addr, (uint32_t)count * 4096);
    sqe.cdw10 = htole32((uint32_t)first);
    sqe.cdw12 = htole32(count - 1u);
    return sqe;
}
