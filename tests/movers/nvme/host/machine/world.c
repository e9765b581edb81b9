/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/units.h"
#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/call.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/memory.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/machine/request.h"
#include "target.h"

enum {
    QUEUES = FABRIC_LINKS - 1, /* of I/O */
    ADMIN_SIZE = 8,
    REQUESTS = 24,
    STEPS = 5000,
    HEALED_STEPS = 20000,
};

enum kind { WRITE_CELL, READ_CELL, COUNT_UP, FLUSH_ALL };

struct request {
    enum kind kind;
    bool is_used; /* no result yet */
    unsigned cell;
    uint64_t version, sequence;
    unsigned happened; /* how often */
    bool is_answered;
};

struct cell {
    bool is_busy, is_unknown;
    uint64_t version;        /* known to be there */
    uint64_t written, asked; /* what has happened; the newest one that was asked for */
};

static struct world {
    uint64_t seed;
    enum fault_on_purpose fault;
    bool healed, runs;
    unsigned fault_rate;
    struct sw_nvme_controller controller;
    struct sw_nvme_queue queues[FABRIC_LINKS];
    struct nvf_sqe sqes[FABRIC_LINKS][64];
    uint8_t scratch[FABRIC_LINKS][NVH_SCRATCH_BYTES];
    uint8_t buffers[REQUESTS][TARGET_CELL_BYTES]; /* a request's each */
    struct sw_nvme_mem mem;
    struct request requests[REQUESTS];
    struct cell cells[TARGET_CELLS];
    uint64_t sequence;
    unsigned admin_waits;           /* commands of the program on the admin queue */
    uint64_t up_ns;                 /* when an I/O queue was up, or the program began */
    uint64_t vain_ns[FABRIC_LINKS]; /* since when each queue tries in vain; 0: it does not */
    struct world_result *result;
} world;

/* ---- what is known from outside ---- */

static void fill_version(uint8_t data[TARGET_CELL_BYTES], uint64_t version)
{
    for (uint64_t i = 0; i < TARGET_CELL_BYTES / 8; i++) {
        const uint64_t word = i ? (version << 8 | i) * 0x9e3779b97f4a7c15u : version;
        memcpy(data + i * 8, &word, 8);
    }
}

/* The version that is there, ~0 where it is torn. */
static uint64_t read_version(const uint8_t data[TARGET_CELL_BYTES])
{
    uint8_t whole[TARGET_CELL_BYTES];
    uint64_t version;
    memcpy(&version, data, sizeof(version));
    fill_version(whole, version);
    return memcmp(whole, data, sizeof(whole)) == 0 ? version : ~0ull;
}

static void note_touch(const void *data)
{
    const uint64_t at = (uint64_t)((const uint8_t *)data - world.buffers[0]);
    if (at >= sizeof(world.buffers) || !world.requests[at / TARGET_CELL_BYTES].is_used)
        fabric_fail("memory is used by a request that has ended");
}

static void check_write(unsigned at)
{
    struct cell *cell = &world.cells[at];
    cell->written = read_version(the_target.cells[at]);
    if (cell->written == ~0ull || cell->written > cell->asked)
        fabric_fail("a cell is torn, or has what nobody wrote");
    if (cell->written < cell->version)
        fabric_fail("an old version comes back");
}

static void note_happened(const struct fabric_command *command)
{
    struct request *r = command->owner;
    r->happened += r->sequence == command->sequence; /* else it is another one by now */
    if (command->sqe.opcode == nvme_cmd_resv_register && r->happened > 1)
        fabric_fail("a reservation has happened twice");
    if (command->sqe.opcode == nvme_cmd_write)
        check_write(le32toh(command->sqe.cdw10));
}

static void note_answer(void *owner)
{
    struct request *r = owner;
    if (r && r->is_used) /* else a command of the admin queue */
        r->is_answered = true;
}

static uint64_t sequence_of(const void *owner)
{
    const struct request *r = owner;
    const uint64_t at = (uint64_t)(r - world.requests);
    return at < REQUESTS ? r->sequence : 0; /* those on the admin queue have none */
}

/* ---- the program ---- */

static void submit_any(struct sw_nvme_queue *queue);

static void settle_write(struct request *r, const struct sw_nvme_result *result)
{
    struct cell *cell = &world.cells[r->cell];
    const bool believes = world.fault == MAYBE_IS_DONE && result->status == SW_NVME_MAYBE_DONE;
    cell->is_busy = false;
    if (result->status == SW_NVME_OK || believes) {
        if (cell->written < r->version)
            fabric_fail("a WRITE is said to be done, and has not happened");
        cell->version = r->version;
    } else {
        cell->is_unknown = true;
    }
}

static void settle_read(struct request *r, const struct sw_nvme_result *result)
{
    struct cell *cell = &world.cells[r->cell];
    const uint64_t seen = read_version(world.buffers[r - world.requests]);
    cell->is_busy = false;
    if (result->status != SW_NVME_OK)
        return;
    if (seen == ~0ull || seen < cell->version || seen > cell->asked)
        fabric_fail("a READ finds a version that cannot be there");
    cell->version = seen;
    cell->is_unknown = false;
}

static void request_done(void *arg, const struct sw_nvme_result *result)
{
    struct request *r = arg;
    if (!r->is_used)
        fabric_fail("a request has two results");
    r->is_used = false;
    world.result->ok += result->status == SW_NVME_OK;
    world.result->maybe += result->status == SW_NVME_MAYBE_DONE;
    world.result->undone += result->status == SW_NVME_NOT_DONE;
    world.result->failed += result->status == SW_NVME_FAILED;
    if (result->status == SW_NVME_MAYBE_DONE && r->is_answered)
        fabric_fail("a request has an answer, and is said to be done perhaps");
    if (result->status == SW_NVME_NOT_DONE && r->happened)
        fabric_fail("a request has happened that is said not to have");
    if (r->kind == COUNT_UP && result->status == SW_NVME_OK && r->happened != 1)
        fabric_fail("a reservation is said to be done, and has not happened");
    if (r->kind == WRITE_CELL)
        settle_write(r, result);
    else if (r->kind == READ_CELL)
        settle_read(r, result);
    memset(world.buffers[r - world.requests], 0xdb, TARGET_CELL_BYTES); /* it is the program's */
    if (world.runs && fabric_draw(2))
        submit_any(&world.queues[1 + fabric_draw(QUEUES)]);
}

static struct request *find_free(void)
{
    const uint64_t from = fabric_draw(REQUESTS);
    for (uint64_t i = 0; i < REQUESTS; i++)
        if (!world.requests[(from + i) % REQUESTS].is_used)
            return &world.requests[(from + i) % REQUESTS];
    return NULL;
}

/* A cell has one request at a time, as a program that cares for order has it. */
static bool choose_kind(struct request *r)
{
    struct cell *cell = &world.cells[r->cell];
    r->kind = fabric_draw(5) == 0 ? COUNT_UP : fabric_draw(6) == 0 ? FLUSH_ALL : WRITE_CELL;
    if (r->kind != WRITE_CELL)
        return !world.healed;
    if (cell->is_busy)
        return false;
    if (cell->is_unknown || fabric_draw(3) == 0)
        r->kind = READ_CELL;
    else if (world.healed)
        return false;
    return true;
}

static enum sw_nvme_status submit_request(struct sw_nvme_queue *queue, struct request *r)
{
    const struct sw_nvme_resv resv = {.action = SW_NVME_RESV_REGISTER, .other = 7};
    struct sw_nvme_io io = {.nsid = 1,
                            .lba = r->cell,
                            .blocks = 1,
                            .data = world.buffers[r - world.requests],
                            .bytes = TARGET_CELL_BYTES,
                            .mem = &world.mem,
                            .done = fabric_draw(3) ? request_done : NULL,
                            .arg = r};
    switch (r->kind) {
    case WRITE_CELL:
        r->version = world.cells[r->cell].asked + 1;
        fill_version(io.data, r->version);
        return sw_nvme_write(queue, &io);
    case READ_CELL:
        return sw_nvme_read(queue, &io);
    case COUNT_UP:
        return sw_nvme_resv_register(queue, &io, &resv);
    case FLUSH_ALL:
        break;
    }
    return sw_nvme_flush(queue, &io);
}

static void submit_any(struct sw_nvme_queue *queue)
{
    struct request *r = find_free();
    if (!r || !queue->port) /* the queue is not open yet */
        return;
    *r = (struct request){.cell = (unsigned)fabric_draw(TARGET_CELLS)};
    if (!choose_kind(r))
        return;
    r->is_used = true;
    r->sequence = ++world.sequence;
    const enum sw_nvme_status status = submit_request(queue, r);
    r->is_used = status == SW_NVME_OK;
    if (status) {
        if (status != SW_NVME_AGAIN && status != SW_NVME_UNREACHABLE)
            fabric_fail("a request is not taken");
        return;
    }
    if (r->kind == WRITE_CELL)
        world.cells[r->cell].asked = r->version;
    if (r->kind == WRITE_CELL || r->kind == READ_CELL)
        world.cells[r->cell].is_busy = true;
}

static void admin_done(void *arg, const struct sw_nvme_result *result)
{
    (void)arg;
    (void)result;
    if (!world.admin_waits--)
        fabric_fail("an admin command has two results");
}

/* By another thread, which waits for the answer. */
static void submit_admin(void)
{
    struct sw_nvme_controller *c = &world.controller;
    const struct nvf_sqe sqe = {.opcode = nvme_admin_get_features, .cdw10 = htole32(7)};
    if (world.admin_waits || fabric_draw(500) || !fabric_port.try_lock(c))
        return;
    if (nvh_admin_submit(c, &sqe, admin_done, NULL) == SW_NVME_OK)
        world.admin_waits++;
    fabric_port.unlock(c);
}

static void open_queue(unsigned qid, uint32_t size)
{
    struct sw_nvme_queue *queue = &world.queues[qid];
    if (!nvh_queue_init(queue, &world.controller, &fabric_port, (uint16_t)qid, size))
        abort();
    queue->sqes = world.sqes[qid];
    queue->scratch = world.scratch[qid];
    queue->scratch_key = FABRIC_KEY;
}

static void start_program(void)
{
    static char where[] = "simulated";
    struct sw_nvme_controller *c = &world.controller;
    memset(c, 0, sizeof(*c));
    c->options = (struct sw_nvme_options){
        .nr_io_queues = QUEUES,
        .queue_size = 2 + (uint32_t)fabric_draw(7),
        .keep_alive_ms = TARGET_KEEP_ALIVE_MS,
        .ctrl_loss_tmo_s = fabric_draw(4) ? 600 : 2,
        .reconnect_delay_s = (uint32_t)fabric_draw(2),
        .fast_io_fail_tmo_s = fabric_draw(3) ? -1 : 1,
        .connect_timeout_ms = 1500,
        .io_timeout_ms = 3000,
    };
    strcpy(c->subsysnqn, "nqn.2014-08.org.example:simulated");
    strcpy(c->hostnqn, "nqn.2014-08.org.example:host");
    c->where = where;
    c->admin = &world.queues[0];
    c->has_secret = the_target.authenticates;
    c->wants_proof = the_target.wants_proof;
    the_target.lies = c->has_secret && !world.healed && fabric_draw(3) == 0;
    open_queue(0, ADMIN_SIZE);
    world.runs = true;
    world.admin_waits = 0;
    world.up_ns = the_fabric.now_ns;
    memset(world.vain_ns, 0, sizeof(world.vain_ns));
    world.result->programs++;
    for (unsigned i = 0; i < TARGET_CELLS; i++)
        world.cells[i].is_unknown = true;
}

static void take_results(struct sw_nvme_queue *queue)
{
    struct sw_nvme_result result;
    while (sw_nvme_queue_take(queue, &result, 1))
        request_done(result.arg, &result);
}

static void close_queue(struct sw_nvme_queue *queue)
{
    if (!queue->port)
        return;
    queue->phase = NVH_ENDED;
    nvh_queue_down(queue, false);
    take_results(queue);
    if (sw_nvme_queue_used(queue))
        fabric_fail("a queue is closed, and has requests");
    nvh_queue_clear(queue);
    world.vain_ns[queue->qid] = 0;
    memset(queue, 0, sizeof(*queue));
}

static void end_program(void)
{
    if (!world.runs)
        return;
    world.runs = false;
    world.result->reconnects += world.controller.info.reconnects;
    for (unsigned i = FABRIC_LINKS; i > 0; i--)
        close_queue(&world.queues[i - 1]);
    for (unsigned i = 0; i < REQUESTS; i++)
        if (world.requests[i].is_used)
            fabric_fail("a request has no result");
    if (world.admin_waits)
        fabric_fail("an admin command has no result");
}

/* ---- what a program's thread does, and faults of the machine ---- */

static void plant_fault(struct sw_nvme_queue *queue)
{
    for (uint32_t i = 0; i < queue->slots_max; i++) {
        struct nvh_slot *slot = &queue->slots[i];
        if (world.fault == CID_STUCK && slot->state == NVH_FREE)
            slot->generation = 0;
        if (world.fault == RESERVATION_REPLAYED && !slot->is_call)
            slot->replays = true;
        if (world.fault == SEND_FORGOTTEN)
            slot->send_pending = false;
        if (world.fault == SENT_FORGOTTEN)
            slot->was_sent = false;
        if (world.fault == ORDER_LOST && slot->state == NVH_SENT)
            slot->number = fabric_draw(1000);
    }
    if (world.fault == SEND_FORGOTTEN)
        queue->sends.pending.head = queue->sends.pending.tail;
    if (world.fault == KEEP_ALIVE_FORGOTTEN)
        world.controller.keep_alive.next_ns = ~0ull;
    if (world.fault == TIMER_FORGOTTEN)
        queue->next_scan_ns = ~0ull;
    if (world.fault == RING_FORGOTTEN)
        queue->ring.head = queue->ring.tail;
}

/* False also where it is not lost, or may be for ever. */
static bool is_lost_for(const struct sw_nvme_controller *c, int32_t seconds)
{
    return seconds >= 0 && atomic_load(&c->state) == SW_NVME_LOST &&
           the_fabric.now_ns - atomic_load(&c->lost_ns) > (uint64_t)seconds * NS_PER_S;
}

static void note_tries(const struct sw_nvme_queue *queue, bool may_try)
{
    uint64_t *vain_ns = &world.vain_ns[queue->qid];
    if (queue->phase == NVH_UP)
        world.up_ns = the_fabric.now_ns;
    if (queue->phase == NVH_UP)
        *vain_ns = 0;
    else if (may_try && !*vain_ns)
        *vain_ns = the_fabric.now_ns;
}

/* For so long no queue was up, or one of them was tried in vain. */
static void check_end(const struct sw_nvme_controller *c)
{
    const uint64_t limit_ns = (uint64_t)c->options.ctrl_loss_tmo_s * NS_PER_S;
    bool is_late = the_fabric.now_ns - world.up_ns > limit_ns;
    for (unsigned i = 1; i < FABRIC_LINKS; i++)
        is_late |= world.vain_ns[i] && the_fabric.now_ns - world.vain_ns[i] > limit_ns;
    if (c->was_live && !c->gives_up && !is_late)
        fabric_fail("a controller is given up too early");
}

/* As sw_nvme_queue_poll() does it. */
static void poll_queue(struct sw_nvme_queue *queue)
{
    const struct sw_nvme_controller *c = queue->controller;
    const bool was_down = queue->phase == NVH_DOWN && atomic_load(&c->epoch) == queue->epoch;
    const uint32_t epoch = atomic_load(&c->epoch);
    if (queue->phase == NVH_UP && !queue->is_broken && atomic_load(&c->epoch) == queue->epoch)
        fabric_port.drain(queue);
    const bool was_live = atomic_load(&c->state) == SW_NVME_LIVE;
    nvh_tend(queue, the_fabric.now_ns);
    note_tries(queue, was_live || atomic_load(&c->state) == SW_NVME_LIVE);
    take_results(queue);
    if (was_down && atomic_load(&c->epoch) == epoch && sw_nvme_queue_used(queue) &&
        is_lost_for(c, c->options.fast_io_fail_tmo_s))
        fabric_fail("requests wait for a controller that is away for too long");
}

static void poll_controller(void)
{
    struct sw_nvme_controller *c = &world.controller;
    const bool is_due = is_lost_for(c, c->options.ctrl_loss_tmo_s) &&
                        world.queues[0].epoch == atomic_load(&c->epoch);
    fabric_port.lock(c);
    nvh_admin_tend(c, the_fabric.now_ns);
    fabric_port.unlock(c);
    if (is_due && atomic_load(&c->state) == SW_NVME_LOST)
        fabric_fail("a controller that is away for too long is not given up");
}

static void use_queue(unsigned qid)
{
    struct sw_nvme_queue *queue = &world.queues[qid];
    struct sw_nvme_controller *c = &world.controller;
    if (!queue->port) {
        if (atomic_load(&c->state) == SW_NVME_LIVE)
            open_queue(qid, c->info.queue_size);
        return;
    }
    if (fabric_draw(2))
        submit_any(queue);
    poll_queue(queue);
    if (world.fault == BUFFER_EARLY && fabric_draw(50) == 0)
        memset(world.buffers, 0xdb, sizeof(world.buffers));
    plant_fault(queue);
}

/* ---- the world ---- */

static void heal_network(void)
{
    the_fabric.is_away = false;
    the_target.sign_ns = the_fabric.now_ns;
}

static void break_something(void)
{
    switch (fabric_draw(9)) {
    case 0:
        target_restart();
        world.result->restarts++;
        return;
    case 1:
        end_program();
        return;
    case 2:
        the_fabric.is_away = !the_fabric.is_away;
        if (!the_fabric.is_away)
            heal_network();
        return;
    case 3: /* long enough for any timer; the target is away just as long */
        the_fabric.now_ns += (1000 + fabric_draw(3000)) * NS_PER_MS;
        the_target.sign_ns = the_fabric.now_ns;
        return;
    case 4:
        the_fabric.is_tended = true;
        return;
    default:
        fabric_cut();
        world.result->losses++;
    }
}

/* A queue that did not come up once is opened again. */
static void look_at_ends(void)
{
    if (atomic_load(&world.controller.state) == SW_NVME_DEAD) {
        world.result->unproved += world.controller.error.status == SW_NVME_AUTHENTICATION;
        check_end(&world.controller);
        return end_program();
    }
    for (unsigned i = 1; i < FABRIC_LINKS; i++)
        if (world.queues[i].port && world.queues[i].phase == NVH_ENDED)
            close_queue(&world.queues[i]);
}

static void step(void)
{
    if (!world.healed && fabric_draw(world.fault_rate) == 0)
        break_something();
    the_fabric.now_ns += fabric_draw(2001) * NS_PER_US;
    if (the_fabric.is_away)
        the_target.sign_ns = the_fabric.now_ns;
    if (!world.runs)
        start_program();
    switch (fabric_draw(8)) {
    case 0:
    case 1:
        use_queue(1 + (unsigned)fabric_draw(QUEUES));
        break;
    case 2:
        poll_controller();
        break;
    case 3:
        submit_admin();
        break;
    default:
        fabric_step();
    }
    plant_fault(&world.queues[0]);
    target_look();
    look_at_ends();
}

static bool is_settled(void)
{
    for (unsigned i = 0; i < TARGET_CELLS; i++)
        if (world.cells[i].is_busy || world.cells[i].is_unknown)
            return false;
    for (unsigned i = 0; i < REQUESTS; i++)
        if (world.requests[i].is_used)
            return false;
    return world.runs && atomic_load(&world.controller.state) == SW_NVME_LIVE;
}

/* Nothing fails any more: all requests end, and the program finds its cells. */
static void heal(void)
{
    world.healed = true;
    the_fabric.is_hostile = the_fabric.is_tended = the_target.lies = false;
    heal_network();
    for (unsigned i = 0; i < HEALED_STEPS && !the_fabric.failure; i++) {
        step();
        if (is_settled())
            return;
    }
    fabric_fail("the program does not find its cells");
}

static void make_world(uint64_t seed, enum fault_on_purpose fault, struct world_result *out)
{
    memset(out, 0, sizeof(*out));
    memset(&world, 0, sizeof(world));
    memset(&the_fabric, 0, sizeof(the_fabric));
    memset(&the_target, 0, sizeof(the_target));
    world.seed = seed;
    world.fault = the_fabric.fault = fault;
    world.result = out;
    the_fabric.seed = &world.seed;
    the_fabric.now_ns = NS_PER_S;
    the_fabric.answers = note_answer;
    the_fabric.touches = note_touch;
    the_fabric.sequence_of = sequence_of;
    the_target.happens = note_happened;
    world.fault_rate = 100 + (unsigned)fabric_draw(1500);
    world.mem = (struct sw_nvme_mem){.controller = &world.controller,
                                     .data = world.buffers[0],
                                     .bytes = sizeof(world.buffers),
                                     .lkey = FABRIC_KEY,
                                     .rkey = FABRIC_KEY};
    the_fabric.is_hostile = fault == CID_STUCK || fault == TIMER_FORGOTTEN || fabric_draw(4) == 0;
    the_fabric.is_sloppy = fabric_draw(4) == 0;
    the_fabric.inline_bytes = fault == SEND_FORGOTTEN || fault == SEND_READ_LATE
                                  ? 0
                                  : (uint32_t)(uint64_t[]){0, 64, 512}[fabric_draw(3)];
    the_target.has_capsules = fabric_draw(3);
    the_target.traffic_counts = fabric_draw(2);
    the_target.authenticates = fault == PROOF_FORGOTTEN || fabric_draw(3) == 0;
    the_target.wants_proof =
        the_target.authenticates && (fault == PROOF_FORGOTTEN || fabric_draw(2));
    for (unsigned i = 0; i < TARGET_CELLS; i++)
        fill_version(the_target.cells[i], 0);
}

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out)
{
    make_world(seed, fault, out);
    for (unsigned i = 0; i < STEPS && !the_fabric.failure; i++)
        step();
    if (!the_fabric.failure)
        heal();
    end_program();
    out->failure = the_fabric.failure;
}
