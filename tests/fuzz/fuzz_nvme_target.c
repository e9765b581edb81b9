/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NVMe target under a hostile host: capsules, registers, connections that end, data that comes
 * late or never, and changes to what is served meanwhile. Each step of the input begins with a byte
 * that says what it is. Data stays within its region, each command is answered once at most, and
 * nothing is left in the end.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/backend/standby.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/home.h"
#include "nvme/target/model/memory.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

#define NQN "nqn.x"

enum {
    QUEUES = 3, /* the admin queue, and two more */
    DEPTH = 32,
    CAPSULE_DATA = 4096,
    POOL_BYTES = 2 << 20,
    NAMESPACE_BYTES = 64 << 10,
    READY = 4 << 20 | 6 << 16 | 1, /* of CC */
};

enum step { CAPSULE, FETCHED, GONE, TIME, NAMESPACES, PORT, HOSTS, GROUP };

struct input {
    const uint8_t *at, *end;
};

static struct nvt_target target;
static struct nvt_subsystem *subsystem;
static struct nvt_port *port;
static struct nvt_queue queues[QUEUES];
static uint8_t capsule_data[QUEUES][CAPSULE_DATA],
    places[QUEUES][NVT_PLACES_ADMIN * NVT_PLACE_BYTES];
static struct mover_region capsule_regions[QUEUES];
static struct nvt_request *fetching[QUEUES * DEPTH];
static uint32_t fetching_count, outstanding;
static struct input input;
static struct nvt_nqn served = {NQN};

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static uint8_t take(void)
{
    return input.at < input.end ? *input.at++ : 0;
}

static void check_data(const struct nvt_request *request)
{
    const uint8_t *base = request->region->base;
    uint64_t listed = 0;
    for (uint32_t i = 0; i < request->sgl.count; i++)
        listed += request->sgl.segments[i].len_bytes;
    demand(request->data >= base &&
           request->data + request->data_bytes <= base + request->region->len_bytes);
    demand(request->data_bytes <= NVT_TRANSFER_MAX && listed >= request->data_bytes);
}

static void fetch(struct nvt_request *request)
{
    check_data(request);
    demand(!request->queue->is_gone && fetching_count < QUEUES * DEPTH);
    fetching[fetching_count++] = request;
}

static void answer(struct nvt_request *request)
{
    struct nvf_cqe response;
    if (request->direction == NVT_TO_HOST && !request->status && request->data_bytes) {
        check_data(request);
        static volatile uint8_t sum; /* the sanitizer sees what would go over the wire */
        for (uint32_t i = 0; i < request->data_bytes; i++)
            sum = (uint8_t)(sum + request->data[i]);
    }
    nvt_request_response(request, &response);
    demand(response.cid == request->sqe.cid);
    outstanding--;
    nvt_request_end(request);
    free(request);
}

static void cut(struct nvt_queue *queue)
{
    queue->is_cut = true;
}

static void forget(struct mover_region *region)
{
    (void)region;
}

static const struct nvt_transport transport = {
    .fetch = fetch, .answer = answer, .cut = cut, .drop = cut, .forget = forget};

/* ---- steps ---- */

static void connect_queue(unsigned n)
{
    queues[n] = (struct nvt_queue){.target = &target,
                                   .thread = &target.threads[0],
                                   .port = port,
                                   .qid = (uint16_t)n,
                                   .depth = DEPTH};
    nvt_queue_init(&queues[n]);
    queues[n].own =
        (struct mover_region){.base = places[n], .len_bytes = nvt_places_bytes((uint16_t)n)};
    capsule_regions[n] = (struct mover_region){.base = capsule_data[n], .len_bytes = CAPSULE_DATA};
}

static void send_capsule(unsigned n, const struct nvf_sqe *sqe, uint32_t data_bytes)
{
    struct nvt_queue *queue = &queues[n];
    if (queue->under_way >= DEPTH)
        return;
    struct nvt_request *request = calloc(1, sizeof(*request));
    demand(request);
    request->sqe = *sqe;
    request->in_capsule = capsule_data[n];
    request->in_capsule_bytes = data_bytes;
    request->in_capsule_region = &capsule_regions[n];
    outstanding++;
    nvt_request_begin(queue, request);
}

/* Sixty-four bytes, and as much data as a byte says. */
static void step_capsule(void)
{
    const unsigned n = take() % QUEUES;
    struct nvf_sqe sqe;
    for (size_t i = 0; i < sizeof(sqe); i++)
        ((uint8_t *)&sqe)[i] = take();
    const uint32_t data_bytes = take() * 16u;
    for (uint32_t i = 0; i < 64 && i < data_bytes; i++)
        capsule_data[n][i] = take();
    send_capsule(n, &sqe, data_bytes);
}

static void finish_fetch(uint32_t index, bool is_ok)
{
    struct nvt_request *request = fetching[index];
    fetching[index] = fetching[--fetching_count];
    for (uint32_t i = 0; i < request->data_bytes && i < 2048; i++)
        request->data[i] = i < 1100 ? take() : 0;
    nvt_request_fetched(request, is_ok);
}

static void step_fetched(void)
{
    const uint8_t which = take();
    if (fetching_count)
        finish_fetch(which % fetching_count, which < 240);
}

static void drop_commits(void);

/* A parked request that ends without a word is the transport's to free. */
static void end_queue(unsigned n)
{
    struct nvt_queue *queue = &queues[n];
    drop_commits();
    struct nvt_request *parked[DEPTH];
    uint32_t count = 0;
    for (struct list_node *node = list_first(&queue->requests); node;
         node = list_after(&queue->requests, node)) {
        struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, node);
        bool is_fetching = false;
        for (uint32_t i = 0; i < fetching_count; i++)
            is_fetching = is_fetching || fetching[i] == request;
        if (!is_fetching)
            parked[count++] = request;
    }
    queue->is_gone = true;
    for (uint32_t i = fetching_count; i-- > 0;)
        if (fetching[i]->queue == queue) {
            struct nvt_request *request = fetching[i];
            fetching[i] = fetching[--fetching_count];
            nvt_request_fetched(request, false);
            outstanding--;
            free(request);
        }
    const bool is_over = nvt_queue_gone(queue);
    while (nvt_slices_run(&target.threads[0].slices, NVT_SLICES_NS)) /* what takes long gives up */
        ;
    demand(is_over || !queue->under_way);
    nvt_queue_forget(queue);
    outstanding -= count;
    while (count)
        free(parked[--count]);
}

static void add_namespace(uint32_t nsid, const char *kind)
{
    const struct nvt_backend_setup setup = {.size_bytes = NAMESPACE_BYTES};
    const struct nvt_config_namespace config = {.nsid = nsid, .ana_grpid = 1 + nsid % 3};
    struct nvt_backend *backend;
    char error[128];
    demand(!nvt_backend_find(kind)->open(&setup, &backend, error, sizeof(error)));
    nvt_namespace_add(subsystem, &config, backend, NULL);
}

static void step_namespaces(void)
{
    const uint8_t what = take();
    const uint32_t nsid = 1 + what % 4;
    if (subsystem->namespaces[nsid] && what & 0x80)
        nvt_namespace_remove(subsystem->namespaces[nsid]);
    else if (subsystem->namespaces[nsid])
        nvt_namespace_set_group(subsystem->namespaces[nsid], 1 + what / 4 % 8);
    else
        add_namespace(nsid, what & 0x40 ? "ram" : "null");
}

static void step_port(void)
{
    struct nvt_ana_group groups[] = {{1, NVME_ANA_STATE_OPTIMIZED}, {2, (take() & 3) + 1}};
    struct nvt_config_port config = {.portid = 1,
                                     .in_capsule_bytes = CAPSULE_DATA,
                                     .ana_group_count = 2,
                                     .ana_groups = groups,
                                     .subsystem_count = take() % 8 != 0,
                                     .subsystems = &served};
    nvt_port_update(port, &config);
}

static void step_hosts(void)
{
    struct nvt_nqn host = {"h"};
    const struct nvt_config_subsystem config = {.nqn.text = NQN,
                                                .allow_any_host = take() % 4 != 0,
                                                .host_count = 1,
                                                .hosts = &host,
                                                .qid_max = take() % 3};
    nvt_subsystem_update(subsystem, &config);
}

/* ---- a member of a group of targets ---- */

static int propose(struct nvt_commits *commits, const struct nvt_reservation *proposed, uint64_t id)
{
    demand(id && proposed->count <= NVT_REGISTRANTS_MAX && commits->ns->reservation.persists);
    return take() % 4 ? 0 : -EAGAIN;
}

static void rest_or_wake(struct nvt_namespace *ns)
{
    const struct nvt_backend_setup setup = {.size_bytes = NAMESPACE_BYTES * (1 + take() % 2),
                                            .block_bytes = 1u << ns->block_shift};
    struct nvt_backend *backend;
    char error[128];
    if (ns->is_resting)
        return;
    nvt_subsystem_set_ana(subsystem, ns->ana_group, NVME_ANA_STATE_INACCESSIBLE, take());
    if (strcmp(ns->backend->ops->kind, "standby") != 0) {
        nvt_namespace_rest(ns, nvt_standby_open(NAMESPACE_BYTES, setup.block_bytes, false));
    } else {
        demand(!nvt_backend_find("ram")->open(&setup, &backend, error, sizeof(error)));
        nvt_namespace_wake(ns, backend);
    }
}

/* ---- controllers that a host has lost ---- */

static struct nvt_lost asked; /* of the group, the last one */

static int ask_group(struct nvt_subsystem *of, const struct nvt_lost *lost)
{
    demand(of == subsystem && lost->instance.cirn);
    asked = *lost;
    return take() % 4 ? 0 : -ENOSPC;
}

/* Some are this host's own, some have been here, some are another target's. */
static struct nvt_instance draw_instance(void)
{
    if (queues[0].ctrl && take() % 4 == 0)
        return queues[0].ctrl->instance;
    return (struct nvt_instance){.cntlid = take() % 16, .ciu = take() % 2, .cirn = take() % 4};
}

static void say_reset(void)
{
    const struct nvt_instance of = draw_instance();
    struct nvf_sqe sqe = {.opcode = NVF_ADMIN_CROSS_CTRL_RESET,
                          .cdw10 = htole32(nvf_ccr_cdw10(of.cntlid, of.ciu)),
                          .cdw12 = htole32((uint32_t)of.cirn),
                          .cdw13 = htole32((uint32_t)(of.cirn >> 32))};
    nvf_sgl_set_none(&sqe);
    send_capsule(0, &sqe, 0);
}

static void step_reset(uint8_t what)
{
    static const enum nvt_quiet answers[] = {NVT_QUIET, NVT_QUIET_UNKNOWN, NVT_QUIET_REFUSED};
    struct nvt_lost lost = asked;
    subsystem->resets.ask = what & 2 ? ask_group : NULL;
    switch (what / 4 % 4) {
    case 0:
        say_reset();
        break;
    case 1:
        nvt_reset_elsewhere_done(subsystem, &asked.instance, answers[take() % 3]);
        break;
    case 2: /* another target of the group asks */
        lost.instance = draw_instance();
        nvt_lost_quiesce(subsystem, &lost);
        break;
    case 3:
        nvt_ctrls_calm(subsystem, target.ctrl_serial - take() % 2);
        break;
    }
}

static void host_came(struct nvt_ctrl *ctrl, void *context)
{
    (void)context;
    nvt_home_admit(ctrl, NVME_ANA_STATE_OPTIMIZED, 1);
}

/* All targets are active from now on: the host gets a home here, or loses it. */
static void step_home(uint8_t what)
{
    static const struct nvt_host_id id = {{1}};
    subsystem->homes.came = host_came;
    switch (what / 4 % 4) {
    case 0:
    case 1:
        nvt_home_set(subsystem, &id, "h", NVME_ANA_STATE_OPTIMIZED + take() % 4, take());
        break;
    case 2:
        nvt_home_drop(subsystem, &id, "h");
        break;
    case 3:
        subsystem->homes.came = NULL;
        break;
    }
    const struct nvt_ctrl *ctrl = queues[0].ctrl;
    if (!nvt_home_ctrl(subsystem, &id, "h") && !nvt_home_has_commands(subsystem, &id, "h"))
        demand(!ctrl || strcmp(ctrl->host_nqn, "h") || memcmp(&ctrl->host_id, &id, sizeof(id)));
}

static void step_group(void)
{
    const uint8_t what = take();
    struct nvt_namespace *ns = subsystem->namespaces[1 + what % 4];
    if (what & 0x40) {
        step_reset(what);
        return;
    }
    if (what & 0x20) {
        step_home(what);
        return;
    }
    if (!ns)
        return;
    subsystem->is_grouped = what & 0x80;
    switch (what / 4 % 4) {
    case 0:
        nvt_subsystem_set_ana(subsystem, ns->ana_group, NVME_ANA_STATE_OPTIMIZED + take() % 4,
                              take());
        break;
    case 1:
        rest_or_wake(ns);
        break;
    case 2:
        if (!ns->commits)
            demand(!nvt_commits_open(ns, propose, NULL));
        break;
    case 3:
        if (ns->commits)
            nvt_commits_done(ns->commits, ns->commits->id, take() % 4 ? 0 : -EAGAIN);
        break;
    }
}

/* So that what waits for a commit is answered. */
static void drop_commits(void)
{
    for (uint32_t nsid = 1; nsid <= 4; nsid++)
        if (subsystem->namespaces[nsid])
            nvt_commits_drop(subsystem->namespaces[nsid]->commits, NVME_SC_NS_NOT_READY);
}

static void run_step(void)
{
    const uint8_t kind = take();
    unsigned n;
    switch ((enum step)(kind % 16 < 8 ? kind % 16 : CAPSULE)) {
    case CAPSULE:
        step_capsule();
        break;
    case FETCHED:
        step_fetched();
        break;
    case GONE:
        n = take() % QUEUES;
        end_queue(n);
        connect_queue(n);
        break;
    case TIME:
        target.now_ns += (uint64_t)take() << 24;
        target.threads[0].now_ns = target.now_ns;
        nvt_target_tick(&target, target.now_ns);
        break;
    case NAMESPACES:
        step_namespaces();
        break;
    case PORT:
        step_port();
        break;
    case HOSTS:
        step_hosts();
        break;
    case GROUP:
        step_group();
        break;
    }
}

/* ---- a host that has got in ---- */

static void say_connect(unsigned n, uint16_t cntlid)
{
    struct nvmf_connect_data data = {
        .hostid = {1}, .cntlid = htole16(cntlid), .subsysnqn = NQN, .hostnqn = "h"};
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .nsid = htole32(NVF_CONNECT),
                          .cdw10 = htole32(n << 16),
                          .cdw11 = htole32(DEPTH - 1)};
    nvf_sgl_set_keyed(&sqe, 0, sizeof(data), 1, false);
    send_capsule(n, &sqe, 0);
    demand(fetching_count == 1);
    struct nvt_request *request = fetching[--fetching_count];
    memcpy(request->data, &data, sizeof(data));
    nvt_request_fetched(request, true);
}

static void get_in(void)
{
    say_connect(0, 0xffff);
    demand(queues[0].ctrl);
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .nsid = htole32(NVF_PROPERTY_SET),
                          .cdw11 = htole32(NVME_REG_CC),
                          .cdw12 = htole32(READY)};
    nvf_sgl_set_none(&sqe);
    send_capsule(0, &sqe, 0);
    say_connect(1, queues[0].ctrl->instance.cntlid);
    demand(queues[1].ctrl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct nvt_config_subsystem config = {.nqn.text = NQN, .allow_any_host = true};
    struct nvt_config_port listened = {.portid = 1,
                                       .in_capsule_bytes = CAPSULE_DATA,
                                       .listen = {.traddr = "192.0.2.1", .port = 4420},
                                       .subsystem_count = 1,
                                       .subsystems = &served};
    input = (struct input){data, data + size};
    fetching_count = outstanding = 0;
    demand(!nvt_target_init(&target, &transport, POOL_BYTES));
    subsystem = nvt_subsystem_add(&target, &config);
    port = nvt_port_add(&target, &listened);
    demand(subsystem && port);
    subsystem->gone[0] = (struct nvt_instance){.cntlid = 9, .ciu = 1, .cirn = 1};
    asked = (struct nvt_lost){0};
    add_namespace(1, "ram");
    add_namespace(2, "null");
    for (unsigned n = 0; n < QUEUES; n++)
        connect_queue(n);
    if (take() % 4)
        get_in();
    while (input.at < input.end) {
        run_step();
        nvt_thread_feed(&target.threads[0], true);
        nvt_slices_run(&target.threads[0].slices, 0);
    }
    for (unsigned n = 0; n < QUEUES; n++)
        end_queue(n);
    demand(!outstanding && !target.ctrl_count && !target.resets_under_way);
    nvt_target_free(&target);
    return 0;
}
