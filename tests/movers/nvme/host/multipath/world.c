/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvme/types.h>

#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/memory.h"
#include "nvme/host/multipath/lanes.h"
#include "nvme/wire/quiesce.h"

enum {
    PATHS = 3,
    BLOCKS = 4,
    COMMANDS = 64,
    DEPTH = 8,
    STEPS = 1500,
    STEPS_TO_END = 20000,
    QUIESCE_MS = 300,
    KEEP_ALIVE_MS = 1000,
    ANA_EVENT = 2 | 3 << 8 | 0x0c << 16,
    PATIENCE_S = 600,
    LINGERS = 20, /* a command whose connection was lost is this much slower */
};

#define MS 1000000ull

/* A command at a target: `held` is NULL when its connection is lost. */
struct command {
    bool is_used, is_executed, is_write;
    struct nvh_held *held;
    uint32_t path, block;
    uint64_t value, dies_ns, owner_epoch;
    struct sw_nvme_result result;
};

struct peer {
    bool is_up;
    uint32_t epoch;
    uint64_t cirn;
    struct sw_nvme_queue queue; /* the lane */
    bool has_ask;
    struct nvh_ask ask;
};

struct block {
    uint64_t medium, acked, writing, next;
    bool is_tainted; /* a write of it may have been done: nobody can tell what is there */
};

struct world {
    enum world_kind kind;
    enum world_fault fault;
    uint64_t seed, now_ns, owner_epoch;
    uint32_t owner;
    const char *failure;
    struct nvh_paths *paths;
    struct nvh_lanes lanes;
    struct sw_nvme_controller controller;
    struct sw_nvme_mem mem;
    uint8_t data[DEPTH * 512];
    struct peer peers[PATHS];
    struct command commands[COMMANDS];
    struct block blocks[BLOCKS];
    uint64_t reads;
    struct world_sums *sums;
};

static struct world *current; /* the clock of the port has no argument */

static uint64_t world_now(void)
{
    return current->now_ns;
}

static uint64_t draw(struct world *w, uint64_t below)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed % below;
}

/* ---- the port ---- */

static enum sw_nvme_status send_command(struct nvh_lanes *lanes, uint32_t path,
                                        struct nvh_held *held)
{
    struct world *w = current;
    (void)lanes;
    if (!w->peers[path].is_up)
        return SW_NVME_UNREACHABLE;
    for (unsigned i = 0; i < COMMANDS; i++) {
        struct command *c = &w->commands[i];
        if (c->is_used)
            continue;
        *c = (struct command){.is_used = true,
                              .is_write = held->kind == NVH_WRITE,
                              .held = held,
                              .path = path,
                              .block = (uint32_t)held->io.lba,
                              .dies_ns = UINT64_MAX,
                              .owner_epoch = w->owner_epoch};
        memcpy(&c->value, held->io.data, sizeof(c->value));
        return SW_NVME_OK;
    }
    return SW_NVME_AGAIN;
}

static void close_path(struct nvh_lanes *lanes, uint32_t path, int ns)
{
    nvh_path_closed(lanes->paths, path, ns);
}

static enum nvh_proof ask_proof(struct nvh_lanes *lanes, const struct nvh_held *held,
                                uint64_t now_ns)
{
    return nvh_paths_proof(lanes->paths, held->path, held->epoch, held->ns, held->changes, now_ns);
}

static const struct nvh_lanes_port port = {
    .now_ns = world_now, .submit = send_command, .closed = close_path, .proof = ask_proof};
static const struct nvh_port queue_port = {.now_ns = world_now};

/* ---- the program ---- */

static void write_done(void *arg, const struct sw_nvme_result *result)
{
    struct block *b = arg;
    struct world *w = current;
    if (result->status == SW_NVME_OK) {
        b->acked = b->writing;
        w->sums->done++;
    } else if (result->status == SW_NVME_MAYBE_DONE) {
        b->is_tainted = true;
        w->sums->maybe++;
    } else if (result->status == SW_NVME_NOT_DONE) {
        w->sums->undone++;
    } else {
        w->failure = "a write failed";
    }
    b->writing = 0;
}

static void read_done(void *arg, const struct sw_nvme_result *result)
{
    (void)arg;
    current->reads--;
    if (result->status != SW_NVME_OK && result->status != SW_NVME_NOT_DONE)
        current->failure = "a read failed";
}

static void submit_one(struct world *w)
{
    const uint32_t at = (uint32_t)draw(w, BLOCKS);
    struct block *b = &w->blocks[at];
    const bool is_read = draw(w, 4) == 0;
    if (!is_read && (b->writing || b->is_tainted))
        return;
    struct sw_nvme_io io = {.nsid = 1,
                            .lba = at,
                            .blocks = 1,
                            .data = w->data + at * 512,
                            .bytes = 512,
                            .mem = &w->mem,
                            .done = is_read ? read_done : write_done,
                            .arg = b};
    if (is_read) {
        w->reads += sw_nvme_read(&w->lanes.queue, &io) == SW_NVME_OK;
        return;
    }
    b->writing = ++b->next;
    memcpy(io.data, &b->writing, sizeof(b->writing));
    if (sw_nvme_write(&w->lanes.queue, &io) != SW_NVME_OK)
        b->writing = 0;
}

/* ---- the targets ---- */

static void check_medium(struct world *w, const struct block *b)
{
    if (!b->is_tainted && b->medium != b->acked && b->medium != b->writing && !w->failure)
        w->failure = "an older write landed over an acknowledged one";
}

static void execute(struct world *w, struct command *c)
{
    const bool serves = w->kind != KIND_FENCED ||
                        (w->owner == c->path &&
                         (c->owner_epoch == w->owner_epoch || w->fault == FAULT_FENCE_LIES)) ||
                        (w->fault == FAULT_FENCE_LIES && !c->held);
    c->is_executed = true;
    c->result = (struct sw_nvme_result){.status = SW_NVME_OK};
    if (!serves)
        c->result = (struct sw_nvme_result){
            .status = SW_NVME_FAILED, .nvme_status = NVME_SCT_PATH << 8 | NVME_SC_ANA_INACCESSIBLE};
    else if (c->is_write) {
        w->blocks[c->block].medium = c->value;
        check_medium(w, &w->blocks[c->block]);
    }
}

static void step_command(struct world *w)
{
    const uint64_t first = draw(w, COMMANDS);
    struct command *c = NULL;
    for (uint64_t i = 0; i < COMMANDS && !c; i++)
        if (w->commands[(first + i) % COMMANDS].is_used)
            c = &w->commands[(first + i) % COMMANDS];
    if (!c || (!c->held && draw(w, LINGERS) != 0))
        return;
    if (!c->held && w->now_ns >= c->dies_ns) {
        c->is_used = false;
    } else if (!c->is_executed) {
        execute(w, c);
    } else {
        struct nvh_held *held = c->held;
        const struct sw_nvme_result result = c->result;
        c->is_used = false;
        if (held)
            nvh_lanes_done(held, &result);
    }
}

static void end_lingering(struct world *w, uint32_t path)
{
    for (unsigned i = 0; i < COMMANDS; i++)
        if (w->commands[i].is_used && !w->commands[i].held && w->commands[i].path == path)
            w->commands[i].is_used = false;
}

static void lose(struct world *w, uint32_t path)
{
    struct peer *peer = &w->peers[path];
    if (!peer->is_up)
        return;
    const uint64_t lasts_ms = 3 * KEEP_ALIVE_MS + QUIESCE_MS;
    const uint64_t late = w->fault == FAULT_LATE ? 4 : 1;
    peer->is_up = peer->has_ask = false;
    peer->queue.phase = NVH_DOWN;
    w->sums->losses++;
    nvh_path_lost(w->paths, path, w->now_ns, false, "lost");
    for (unsigned i = 0; i < COMMANDS; i++) {
        struct command *c = &w->commands[i];
        if (!c->is_used || c->path != path || !c->held)
            continue;
        struct nvh_held *held = c->held;
        const struct sw_nvme_result lost = {.status = SW_NVME_MAYBE_DONE};
        c->held = NULL;
        c->dies_ns = w->kind == KIND_TIME ? w->now_ns + draw(w, lasts_ms * late) * MS : UINT64_MAX;
        nvh_lanes_done(held, &lost);
    }
}

static void connect_path(struct world *w, uint32_t path)
{
    struct peer *peer = &w->peers[path];
    if (peer->is_up)
        return;
    peer->is_up = true;
    peer->epoch++;
    peer->cirn = w->kind == KIND_RESET ? draw(w, UINT64_MAX - 1) + 1 : 0;
    peer->queue.phase = NVH_UP;
    peer->queue.epoch = peer->epoch;
    nvh_path_live(w->paths, path, peer->epoch, KEEP_ALIVE_MS, true);
}

/* The medium is fenced: nothing that the former owner had lands any more. */
static void take_over(struct world *w)
{
    if (w->kind != KIND_FENCED)
        return;
    const uint32_t former = w->owner;
    w->owner = (w->owner + 1 + (uint32_t)draw(w, PATHS - 1)) % PATHS;
    w->owner_epoch++;
    w->sums->takeovers++;
    if (w->fault != FAULT_FENCE_LIES)
        end_lingering(w, former);
    for (uint32_t i = 0; i < PATHS; i++)
        if (w->peers[i].is_up)
            nvh_path_event(w->paths, i, ANA_EVENT);
}

static void put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof(value));
}

static void put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static void identify_path(const struct world *w, uint32_t path, uint8_t *page)
{
    memcpy(page + 4, "0123456789abcdef    ", 20);
    page[76] = 1 << 3;
    put_u16(page + 78, (uint16_t)(path + 1));
    if (w->kind == KIND_TIME)
        put_u16(page + NVF_ID_CQT, QUIESCE_MS);
    put_u64(page + NVF_ID_CIRN, w->peers[path].cirn);
    page[NVF_ID_CCRL] = w->kind == KIND_RESET;
    if (w->kind == KIND_FENCED) {
        memcpy(page + NVF_ID_FENCED, NVF_FENCED_WORD, 8);
        page[NVF_ID_MEMBER] = (uint8_t)path;
    }
}

static void ana_log(const struct world *w, uint32_t path, uint8_t *page)
{
    const bool is_owner = w->kind != KIND_FENCED || w->owner == path;
    put_u16(page + 8, 1);
    page[16] = page[16 + 4] = 1; /* group 1 with one namespace */
    put_u64(page + 16 + 8, w->fault == FAULT_EPOCH_FROZEN ? 1 : w->owner_epoch);
    page[16 + 16] = is_owner ? SW_NVME_ANA_OPTIMIZED : SW_NVME_ANA_INACCESSIBLE;
    page[16 + 32] = 1;
}

/* Which path's controller is meant: what lingers of it ends, unless the target lies. */
static void reset_other(struct world *w, const struct nvh_ask *ask, struct sw_nvme_result *result)
{
    const uint32_t path = (ask->cdw10 & 0xffff) - 1;
    if (draw(w, 8) == 0) {
        *result = (struct sw_nvme_result){.status = SW_NVME_FAILED, .nvme_status = 2};
        return;
    }
    if (w->fault != FAULT_RESET_LIES)
        end_lingering(w, path);
    result->value = NVF_CCR_IMMEDIATE;
}

static void answer_ask(struct world *w, uint32_t path)
{
    struct peer *peer = &w->peers[path];
    static uint8_t page[NVH_ASK_BYTES];
    struct sw_nvme_result result = {.status = SW_NVME_OK};
    memset(page, 0, sizeof(page));
    peer->has_ask = false;
    if (peer->ask.opcode == nvme_admin_get_log_page)
        ana_log(w, path, page);
    else if (peer->ask.opcode == NVF_ADMIN_CROSS_CTRL_RESET)
        reset_other(w, &peer->ask, &result);
    else if (peer->ask.cdw10 == NVME_IDENTIFY_CNS_CTRL)
        identify_path(w, path, page);
    else if (peer->ask.cdw10 == NVME_IDENTIFY_CNS_NS_ACTIVE_LIST)
        page[0] = 1;
    else if (peer->ask.cdw10 == NVME_IDENTIFY_CNS_NS)
        page[0] = BLOCKS; /* blocks */
    nvh_path_answered(w->paths, path, w->now_ns, &result, page);
}

static void step_asks(struct world *w)
{
    const uint32_t path = (uint32_t)draw(w, PATHS);
    struct peer *peer = &w->peers[path];
    if (!peer->is_up)
        return;
    if (peer->has_ask)
        answer_ask(w, path);
    else
        peer->has_ask = nvh_path_ask(w->paths, path, w->now_ns, &peer->ask);
}

/* ---- the run ---- */

static void step_world(struct world *w)
{
    const uint64_t what = draw(w, 1000);
    w->now_ns += draw(w, 2 * MS);
    if (what < 300)
        submit_one(w);
    else if (what < 700)
        step_command(w);
    else if (what < 900)
        step_asks(w);
    else if (what < 930)
        w->now_ns += draw(w, 200 * MS);
    else if (what < 940)
        lose(w, (uint32_t)draw(w, PATHS));
    else if (what < 970)
        connect_path(w, (uint32_t)draw(w, PATHS));
    else if (what < 980)
        take_over(w);
    else if (what < 983)
        w->now_ns += 5000 * MS;
    nvh_lanes_look(&w->lanes, w->now_ns);
}

/* Faults heal, and all that is under way ends. */
static void end_world(struct world *w)
{
    for (unsigned i = 0; i < STEPS_TO_END && w->lanes.queue.used && !w->failure; i++) {
        for (uint32_t p = 0; p < PATHS; p++)
            connect_path(w, p);
        step_asks(w);
        step_command(w);
        w->now_ns += i > STEPS_TO_END / 2 ? 100 * MS : MS;
        nvh_lanes_look(&w->lanes, w->now_ns);
    }
    if (w->lanes.queue.used && !w->failure)
        w->failure = "a request never ended";
    for (unsigned i = 0; i < BLOCKS; i++)
        check_medium(w, &w->blocks[i]);
}

const char *world_run(uint64_t seed, enum world_kind kind, enum world_fault fault,
                      struct world_sums *sums)
{
    struct world *w = calloc(1, sizeof(*w));
    assert(w);
    w->paths = calloc(1, sizeof(*w->paths));
    assert(w->paths);
    current = w;
    w->kind = kind;
    w->fault = fault;
    w->sums = sums;
    w->seed = seed * 0x9e3779b97f4a7c15u + 1;
    w->now_ns = 1000 * MS;
    w->owner_epoch = 1;
    w->mem = (struct sw_nvme_mem){
        .controller = &w->controller, .data = w->data, .bytes = sizeof(w->data)};
    atomic_store(&w->controller.state, SW_NVME_LIVE);
    nvh_paths_init(w->paths, PATHS, fault == FAULT_AT_ONCE ? 0 : -1);
    assert(nvh_lanes_init(&w->lanes, &w->controller, &queue_port, &port, w->paths, DEPTH));
    w->lanes.patience_s = PATIENCE_S;
    for (uint32_t i = 0; i < PATHS; i++)
        w->lanes.lanes[i].queue = &w->peers[i].queue;
    for (unsigned i = 0; i < STEPS && !w->failure; i++)
        step_world(w);
    if (!w->failure)
        end_world(w);
    const char *failure = w->failure;
    for (uint32_t i = 0; i < PATHS; i++) {
        sums->moved += w->lanes.lanes[i].counts.moved;
        sums->held += w->lanes.lanes[i].counts.held;
        sums->refused += w->paths->paths[i].state == SW_NVME_PATH_REFUSED;
    }
    nvh_queue_clear(&w->lanes.queue);
    free(w->lanes.held);
    free(w->paths);
    free(w);
    return failure;
}
