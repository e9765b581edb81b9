/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum {
    CELLS = 4,
    SLOT_BYTES = 192,
    SLOT_SPACE = 256, /* slots do not start with a line */
    SLOTS_OFFSET = 4096 + 40,
    REGION_BYTES = 8192,
    STEPS = 1500,
    HEALED_STEPS = 5000,
};

enum doing {
    LOST,    /* it is not known which version is there */
    LOOKING, /* asks for it */
    IDLE,    /* `version` is there */
    STORING, /* `version + 1` */
};

struct cell {
    enum doing doing;
    unsigned under_way; /* chains */
    bool is_unknown;    /* one of them ended without saying whether it was done */
    bool is_done;       /* one of them was */
    bool was_touched;   /* by the device, since its chains were posted */
    uint64_t version;
    uint64_t acknowledged, posted; /* what the oracle knows */
};

/* What requests use, registered as one. */
struct buffers {
    uint64_t seen[CELLS];
    uint8_t slots[CELLS][SLOT_BYTES];
};

static struct world {
    uint64_t seed;
    enum fault_on_purpose fault;
    bool healed;
    unsigned fault_rate;
    struct sw_pmem pmem;
    bool runs; /* the program */
    struct buffers buffers;
    struct sw_pmem_mem mem;
    struct cell cells[CELLS];
    struct world_result *result;
} world;

static uint64_t draw(uint64_t limit)
{
    return random_below(&world.seed, limit);
}

static void fail(const char *why)
{
    if (!world.result->failure)
        world.result->failure = why;
}

static uint64_t word_offset(unsigned cell)
{
    return cell * sizeof(uint64_t);
}

static uint64_t slot_offset(unsigned cell, uint64_t version)
{
    return SLOTS_OFFSET + (cell * 2 + version % 2) * SLOT_SPACE;
}

static void fill_slot(uint8_t slot[SLOT_BYTES], unsigned cell, uint64_t version)
{
    for (uint64_t i = 0; i < SLOT_BYTES; i += sizeof(uint64_t)) {
        const uint64_t word = (version << 16 | cell << 8 | i) * 0x9e3779b97f4a7c15u;
        memcpy(slot + i, &word, sizeof(word));
    }
}

/* ---- the program ---- */

static void settle_store(struct cell *cell)
{
    if (cell->is_unknown) {
        cell->doing = LOST;
        return;
    }
    cell->version++;
    cell->acknowledged = cell->version;
    cell->doing = IDLE;
    world.result->acknowledged++;
}

static void store_done(void *arg, const struct sw_pmem_result *result)
{
    struct cell *cell = arg;
    const enum sw_pmem_status status = result->status;
    cell->under_way--;
    world.result->unknown += status == SW_PMEM_MAYBE_DONE;
    if (status == SW_PMEM_NOT_DONE || status == SW_PMEM_NEW_SESSION) {
        world.result->undone++;
        if (cell->was_touched && !cell->is_done && !cell->is_unknown)
            fail("a chain has happened that is said not to have");
    }
    cell->is_done |= status == SW_PMEM_OK;
    cell->is_unknown |=
        status != SW_PMEM_OK && !(status == SW_PMEM_MAYBE_DONE && world.fault == MAYBE_IS_DONE);
    if (!cell->under_way)
        settle_store(cell);
}

static struct sw_pmem_op transfer_op(enum sw_pmem_opcode opcode, uint64_t offset, void *data,
                                     uint32_t bytes)
{
    return (struct sw_pmem_op){.opcode = opcode,
                               .offset = offset,
                               .pieces = {{data, bytes, &world.mem}},
                               .pieces_count = 1};
}

static struct sw_pmem_op flush_op(uint64_t offset, uint64_t bytes)
{
    return (struct sw_pmem_op){.opcode = SW_PMEM_OP_FLUSH,
                               .flush = SW_PMEM_FLUSH_PERSISTENT,
                               .offset = offset,
                               .bytes = bytes};
}

static bool post_chain(struct cell *cell, const struct sw_pmem_op *ops, uint32_t count,
                       uint32_t flags, uint64_t session, sw_pmem_done *done)
{
    const struct sw_pmem_chain chain = {
        .ops = ops, .count = count, .flags = flags, .session = session, .done = done, .arg = cell};
    const enum sw_pmem_status status = sw_pmem_post(&world.pmem, &chain);
    assert(status != SW_PMEM_INVALID && status != SW_PMEM_DENIED);
    cell->under_way += status == SW_PMEM_OK;
    return status == SW_PMEM_OK;
}

/* As one chain, or as several of the same session. False: none of them was taken. */
static bool post_ops(struct cell *cell, const struct sw_pmem_op *ops, uint32_t count)
{
    const bool is_one = draw(2) && world.fault != SESSION_IGNORED, repeats = is_one && draw(2);
    const bool has_session = is_one ? !draw(3) : world.fault != SESSION_IGNORED;
    const uint64_t session = has_session ? sw_pmem_session(&world.pmem) : 0;
    uint32_t from = 0;
    world.result->repeated += repeats;
    for (uint32_t to = 1; to <= count; to++) {
        if (to < count && (is_one || draw(2)))
            continue;
        if (!post_chain(cell, ops + from, to - from, repeats ? SW_PMEM_REPEAT : 0, session,
                        store_done)) {
            cell->is_unknown = true;
            return from;
        }
        from = to;
    }
    return true;
}

/* The next version into its slot, and then its number into the word. */
static void store_next(unsigned which)
{
    struct cell *cell = &world.cells[which];
    const uint64_t next = cell->version + 1, slot = slot_offset(which, next);
    uint8_t *data = world.buffers.slots[which];
    struct sw_pmem_op ops[] = {
        transfer_op(SW_PMEM_OP_WRITE, slot, data, SLOT_BYTES),
        flush_op(slot, SLOT_BYTES),
        {.opcode = SW_PMEM_OP_PUBLISH, .offset = word_offset(which), .value = next},
        flush_op(word_offset(which), sizeof(uint64_t)),
    };
    /* In two pieces, where they meet at any word. */
    const uint32_t first = (uint32_t)(draw(SLOT_BYTES / 8 - 1) + 1) * 8;
    ops[0].pieces[0].bytes = first;
    ops[0].pieces[1] = (struct sw_pmem_piece){data + first, SLOT_BYTES - first, &world.mem};
    ops[0].pieces_count = 2;
    fill_slot(data, which, next);
    cell->is_unknown = cell->is_done = cell->was_touched = false;
    cell->doing = STORING;
    if (post_ops(cell, ops, 4))
        cell->posted = next > cell->posted ? next : cell->posted;
    else
        cell->doing = IDLE;
}

static void look_done(void *arg, const struct sw_pmem_result *result)
{
    struct cell *cell = arg;
    const unsigned which = (unsigned)(cell - world.cells);
    const uint64_t seen = world.buffers.seen[which];
    cell->under_way--;
    cell->doing = LOST;
    if (result->status != SW_PMEM_OK)
        return;
    if (seen < cell->acknowledged || seen > cell->posted)
        fail("a READ finds a version that cannot be there");
    cell->doing = IDLE;
    cell->version = cell->acknowledged = seen;
}

/* A version that is seen counts once it is persistent. */
static void look_up(unsigned which)
{
    struct cell *cell = &world.cells[which];
    const struct sw_pmem_op ops[] = {
        flush_op(word_offset(which), sizeof(uint64_t)),
        transfer_op(SW_PMEM_OP_READ, word_offset(which), &world.buffers.seen[which],
                    sizeof(uint64_t)),
    };
    if (post_chain(cell, ops, 2, SW_PMEM_REPEAT, 0, look_done))
        cell->doing = LOOKING;
}

static void use_cell(unsigned which)
{
    struct cell *cell = &world.cells[which];
    if (cell->doing == LOST && !cell->under_way)
        look_up(which);
    else if (cell->doing == IDLE && !world.healed)
        store_next(which);
}

static void start_program(void)
{
    struct sw_pmem_options options;
    memset(&options, 0, sizeof(options));
    options.chains = 1 + (uint32_t)draw(10);
    options.connect_timeout_ms = 1000;
    options.loss_timeout_ms = draw(4) ? 1000000 : 2000;
    options.request_timeout_ms = 3000;
    options.alone = true;
    memset(&world.pmem, 0, sizeof(world.pmem));
    if (!pmc_init(&world.pmem, &device_port, &options))
        abort();
    world.pmem.asks = PMF_OPEN;
    world.runs = true;
    world.result->programs++;
    for (unsigned i = 0; i < CELLS; i++)
        world.cells[i].doing = LOST;
    pmc_connect(&world.pmem);
}

/* It is killed, or gives up: no callback is to come after that. */
static void end_program(void)
{
    if (!world.runs)
        return;
    device_disconnect("the program has ended");
    pmc_dead(&world.pmem);
    for (unsigned i = 0; i < CELLS; i++)
        if (world.cells[i].under_way)
            fail("a chain has no result");
    pmc_free(&world.pmem);
    the_device.pmem = NULL;
    world.runs = false;
}

/* ---- what is known from outside ---- */

static void note_store(void *arg, uint64_t offset)
{
    struct world *w = arg;
    const uint64_t cell = offset < SLOTS_OFFSET ? offset / sizeof(uint64_t)
                                                : (offset - SLOTS_OFFSET) / (2 * SLOT_SPACE);
    w->cells[cell].was_touched = true;
}

/* After a cut: what was acknowledged is there, and whole. */
static void check_medium(void)
{
    uint8_t slot[SLOT_BYTES];
    uint64_t version;
    for (unsigned i = 0; i < CELLS; i++) {
        struct cell *cell = &world.cells[i];
        memcpy(&version, the_device.medium.now + word_offset(i), sizeof(version));
        if (version < cell->acknowledged)
            fail("what was acknowledged is lost");
        if (version > cell->posted)
            fail("there is a version that nobody has stored");
        fill_slot(slot, i, version);
        if (memcmp(slot, the_device.medium.now + slot_offset(i, version), SLOT_BYTES) != 0)
            fail("a version is torn");
    }
}

static void cut_power(void)
{
    device_cut_power();
    check_medium();
    world.result->cuts++;
}

static void break_something(void)
{
    switch (draw(8)) {
    case 0:
    case 1:
    case 2:
        cut_power();
        return;
    case 3:
        device_restart();
        world.result->restarts++;
        return;
    case 4:
        end_program();
        return;
    case 5:
        the_device.is_away = !the_device.is_away;
        return;
    case 6: /* long enough for any timer */
        device_wait_ms(1000 + draw(4000));
        return;
    default:
        device_disconnect("the network is gone");
        world.result->losses++;
    }
}

static void step(void)
{
    if (!world.healed && draw(world.fault_rate) == 0)
        break_something();
    device_wait_ms(draw(3));
    if (!world.runs)
        start_program();
    switch (draw(6)) {
    case 0:
        use_cell((unsigned)draw(CELLS));
        break;
    case 1:
        pmc_timers(&world.pmem);
        break;
    default:
        device_step();
    }
    if (sw_pmem_state_of(&world.pmem) == SW_PMEM_DEAD)
        end_program();
}

static bool is_settled(void)
{
    for (unsigned i = 0; i < CELLS; i++)
        if (world.cells[i].doing != IDLE)
            return false;
    return world.runs;
}

/* A last cut; then nothing fails any more, and the program finds all of its cells. */
static void heal(void)
{
    cut_power();
    the_device.is_away = false;
    world.healed = true;
    for (unsigned i = 0; i < HEALED_STEPS && !world.result->failure; i++) {
        step();
        if (is_settled())
            return;
    }
    fail("the program does not find its cells");
}

static void make_world(uint64_t seed, enum fault_on_purpose fault, struct world_result *out)
{
    memset(out, 0, sizeof(*out));
    memset(&world, 0, sizeof(world));
    memset(&the_device, 0, sizeof(the_device));
    world.seed = seed;
    world.fault = fault;
    world.result = out;
    world.fault_rate = 10 + (unsigned)draw(100);
    world.mem =
        (struct sw_pmem_mem){.data = (char *)&world.buffers, .bytes = sizeof(world.buffers)};
    the_device.seed = &world.seed;
    the_device.stores = note_store;
    the_device.arg = &world;
    the_device.kind.has_flush = fault == FLUSH_LIES || fault == PUBLISH_TOO_EARLY || draw(3);
    the_device.kind.has_atomic = fault == PUBLISH_TOO_EARLY || (fault != FENCE_IGNORED && draw(3));
    the_device.kind.ignores_fences = fault == FENCE_IGNORED;
    the_device.kind.publishes_at_once = fault == PUBLISH_TOO_EARLY;
    medium_init(&the_device.medium, REGION_BYTES, draw(4) ? 64 : 4096, &world.seed);
    memset(the_device.medium.now, 0, SLOTS_OFFSET);
    for (unsigned i = 0; i < CELLS; i++)
        fill_slot(the_device.medium.now + slot_offset(i, 0), i, 0);
    medium_flush(&the_device.medium, 0, REGION_BYTES);
    the_device.medium.flush_lies = fault == FLUSH_LIES;
}

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out)
{
    make_world(seed, fault, out);
    for (unsigned i = 0; i < STEPS && !out->failure; i++)
        step();
    if (!out->failure)
        heal();
    end_program();
    medium_free(&the_device.medium);
}
