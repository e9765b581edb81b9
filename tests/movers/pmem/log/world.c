/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "pmem/log/reader.h"

enum {
    WRITERS = 2,
    NOBODY = -1,
    QUEUE_MAX = 512,
    MARKS = 8,
    PAYLOAD_MAX = 192,
    STEPS = 5000,
    HEALED_STEPS = 20000,
};

struct server {
    struct medium medium;
    int owner; /* whose queue there is */
    struct pml_op queue[QUEUE_MAX];
    unsigned first, count;
    unsigned completed; /* and not yet told */
};

struct writer {
    bool lives, was_recovered;
    struct pml_log log;
    uint8_t *memory;
    struct pml_mark marks[MARKS]; /* of its own appends: it may trim to them */
    unsigned mark_count;
};

/* Somebody who only reads: it never stops, and never touches anything. */
struct follower {
    struct pml_reader reader;
    struct pml_mark mark;
    unsigned looks; /* READs of the view of `copy` that were made */
    unsigned copy;
    uint8_t before[PML_WORDS_BYTES], after[PML_WORDS_BYTES];
    uint64_t tail;
};

struct world {
    uint64_t seed;
    enum fault_on_purpose fault;
    bool healed;
    unsigned fault_rate; /* one step in so many */
    struct pml_config config;
    struct server servers[PML_COPIES_MAX];
    struct writer writers[WRITERS];
    struct oracle oracle;
    struct follower follower;
    struct world_result *result;
};

static uint64_t draw(struct world *world, uint64_t limit)
{
    return random_below(&world->seed, limit);
}

static void fail(struct world *world, const char *why)
{
    if (why && !world->result->failure)
        world->result->failure = why;
}

static void execute(struct world *world, unsigned which)
{
    struct server *server = &world->servers[which];
    if (!server->count)
        return;
    struct pml_op *op = &server->queue[server->first % QUEUE_MAX];
    struct pml_op *behind = &server->queue[(server->first + 1) % QUEUE_MAX];
    if (world->fault == PUBLISH_TOO_EARLY && server->count > 1 && op->verb == PML_FLUSH &&
        behind->verb == PML_PUBLISH) {
        const struct pml_op flush = *op;
        *op = *behind;
        *behind = flush;
    }
    switch (op->verb) {
    case PML_READ:
        memcpy(op->data, server->medium.now + op->offset, op->len_bytes);
        break;
    case PML_WRITE:
        medium_store(&server->medium, op->offset, op->data, op->len_bytes);
        break;
    case PML_FLUSH:
        medium_flush(&server->medium, op->offset, op->len_bytes);
        break;
    case PML_PUBLISH:
        medium_store(&server->medium, op->offset, &op->word, sizeof(op->word));
        break;
    }
    server->completed += op->signals;
    server->first++;
    server->count--;
}

/* The queue between a writer and a copy ends: some of what is under way still happens. */
static void disconnect(struct world *world, unsigned which)
{
    struct server *server = &world->servers[which];
    if (server->owner == NOBODY)
        return;
    struct writer *writer = &world->writers[server->owner];
    for (uint64_t more = draw(world, server->count + 1); more; more--)
        execute(world, which);
    const struct pml_op *op = &server->queue[server->first % QUEUE_MAX];
    if (server->count && op->verb == PML_WRITE)
        medium_store_torn(&server->medium, op->offset, op->data, op->len_bytes);
    server->count = server->completed = 0;
    server->owner = NOBODY;
    world->result->losses++;
    if (writer->lives)
        pml_lost(&writer->log, which);
}

static void cut_power(struct world *world, unsigned which)
{
    disconnect(world, which);
    medium_cut(&world->servers[which].medium);
    world->result->cuts++;
}

static void kill_writer(struct world *world, unsigned which)
{
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        if (world->servers[i].owner == (int)which)
            disconnect(world, i);
    world->writers[which].lives = false;
}

static void start_writer(struct world *world, unsigned which)
{
    struct writer *writer = &world->writers[which];
    if (writer->lives)
        return;
    writer->lives = true;
    writer->was_recovered = false;
    writer->mark_count = 0;
    pml_init(&writer->log, &world->config, writer->memory);
}

static void connect_copy(struct world *world, unsigned which, unsigned copy)
{
    struct writer *writer = &world->writers[which];
    struct server *server = &world->servers[copy];
    if (!writer->lives || writer->log.fenced || server->owner == (int)which)
        return;
    disconnect(world, copy);
    server->owner = (int)which;
    pml_found(&writer->log, copy);
}

static void break_something(struct world *world)
{
    const unsigned copies = world->config.geometry.copies;
    const unsigned copy = (unsigned)draw(world, copies), writer = (unsigned)draw(world, WRITERS);
    switch (draw(world, 8)) {
    case 0:
    case 1:
        cut_power(world, copy);
        break;
    case 2: /* all copies; the writer stays */
        for (unsigned i = 0; i < copies; i++)
            cut_power(world, i);
        break;
    case 3: /* everything */
        for (unsigned i = 0; i < WRITERS; i++)
            kill_writer(world, i);
        for (unsigned i = 0; i < copies; i++)
            cut_power(world, i);
        break;
    case 4:
        kill_writer(world, writer);
        break;
    case 5:
        start_writer(world, writer);
        break;
    default:
        disconnect(world, copy);
    }
}

static void take_outcomes(struct world *world, struct writer *writer)
{
    struct pml_outcome outcome;
    while (pml_outcome(&writer->log, &outcome)) {
        fail(world, oracle_outcome(&world->oracle, &outcome));
        if (outcome.status == PML_OK)
            writer->marks[writer->mark_count++ % MARKS] = outcome.next;
        world->result->acknowledged += outcome.status == PML_OK;
    }
}

static void look_at(struct world *world, struct writer *writer)
{
    struct pml_log *log = &writer->log;
    if (log->recovered && !writer->was_recovered) {
        const uint8_t *images[PML_COPIES_MAX] = {0};
        for (unsigned i = 0; i < world->config.geometry.copies; i++)
            if (log->copies[i].state == PML_LIVE)
                images[i] = world->servers[i].medium.now + PML_RING_OFFSET;
        world->result->recoveries++;
        fail(world, oracle_recovered(&world->oracle, log, images));
    }
    writer->was_recovered = log->recovered;
    take_outcomes(world, writer);
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        if (log->copies[i].state == PML_BAD)
            fail(world, "a copy is taken for damaged");
    if (log->broken)
        fail(world, "copies contradict each other");
    if (world->fault == QUORUM_OF_ONE)
        log->config.geometry.quorum = log->recovered ? 1 : 2;
    if (log->fenced) {
        world->result->fenced++;
        kill_writer(world, (unsigned)(writer - world->writers));
    }
}

/* A copy that has diverged is written again: from the first record that differs on it. */
static void note_rewrite(struct world *world, const struct pml_log *log, unsigned which)
{
    const struct pml_mark *from = &log->copies[which].scan;
    const uint64_t at = PML_RING_OFFSET + from->position % world->config.geometry.ring_bytes;
    const uint8_t *header = world->servers[which].medium.now + at;
    world->result->rewrites++;
    world->result->late_rewrites += from->position > log->head.position;
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        if (i != which && log->copies[i].state == PML_LIVE &&
            log->copies[i].done > from->position && from->position > log->head.position &&
            !memcmp(header, world->servers[i].medium.now + at, PML_LINE_BYTES))
            fail(world, "a copy is written again from before where it differs");
}

static void post_next(struct world *world, struct writer *writer)
{
    struct pml_op op;
    if (!pml_next(&writer->log, &op))
        return;
    if (op.verb == PML_PUBLISH && op.offset == PML_TAIL_OFFSET && !op.word)
        note_rewrite(world, &writer->log, op.copy);
    struct server *server = &world->servers[op.copy];
    assert(server->owner == writer - world->writers && server->count < QUEUE_MAX);
    server->queue[(server->first + server->count++) % QUEUE_MAX] = op;
}

static void append_something(struct world *world, struct writer *writer)
{
    uint8_t payload[PAYLOAD_MAX];
    if (!oracle_has_room(&world->oracle))
        return;
    const uint32_t len =
        (uint32_t)(sizeof(uint64_t) + draw(world, PAYLOAD_MAX - sizeof(uint64_t) + 1));
    const uint64_t id = oracle_next(&world->oracle, payload, len);
    const enum pml_status status = pml_append(&writer->log, payload, len, id);
    if (status == PML_OK)
        oracle_submitted(&world->oracle, writer->log.epoch);
    if (status == PML_FULL && writer->mark_count)
        pml_trim(
            &writer->log,
            &writer->marks[draw(world, writer->mark_count < MARKS ? writer->mark_count : MARKS)]);
    oracle_trimmed(&world->oracle, writer->log.head.position);
}

/* One READ of those that make a view. */
static void look_on(struct world *world)
{
    struct follower *f = &world->follower;
    const uint8_t *now = world->servers[f->copy].medium.now;
    switch (f->looks++) {
    case 0:
        memcpy(f->before, now + PML_WORDS_OFFSET, PML_WORDS_BYTES);
        return;
    case 1:
        f->tail = pml_word_at(now, PML_TAIL_OFFSET);
        return;
    default:
        memcpy(f->after, now + PML_WORDS_OFFSET, PML_WORDS_BYTES);
    }
    if (world->fault == READER_TRUSTS_TAILS)
        memset(f->before, 0, PML_WORDS_BYTES), memset(f->after, 0, PML_WORDS_BYTES);
    pml_reader_view(&f->reader, f->copy, f->before, f->tail, f->after);
    f->looks = 0;
    f->copy = (unsigned)draw(world, world->config.geometry.copies);
}

/* The next record that is acknowledged for certain; no recovery may lack it from now on. */
static void follow_on(struct world *world)
{
    struct follower *f = &world->follower;
    const struct pml_geometry *geometry = &world->config.geometry;
    uint8_t bytes[PAYLOAD_MAX + PML_LINE_BYTES];
    uint64_t limit = 0, need = 0;
    unsigned source = 0;
    struct pml_record record;
    struct pml_slot slot;
    if (!pml_reader_limit(&f->reader, &limit) || f->mark.position >= limit ||
        !pml_reader_source(&f->reader, 0, f->mark.position, &source))
        return;
    const uint8_t *now = world->servers[source].medium.now;
    for (uint64_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = now[PML_RING_OFFSET + (f->mark.position + i) % geometry->ring_bytes];
    pml_slot_parse(geometry, now, &slot);
    if (pml_reader_is_trimmed(&slot, &f->mark)) {
        f->mark = slot.head;
        world->result->missed++;
    } else if (pml_record_parse(geometry, &f->mark, bytes, sizeof(bytes), &record, &need) ==
               PML_RECORD) {
        fail(world, oracle_followed(&world->oracle, &record));
        f->mark = record.next;
        world->result->followed++;
    } else {
        pml_reader_forget(&f->reader, source); /* it is not any more what it was */
    }
}

static void step(struct world *world)
{
    const unsigned copy = (unsigned)draw(world, world->config.geometry.copies);
    struct server *server = &world->servers[copy];
    const unsigned which = world->healed ? 0 : (unsigned)draw(world, WRITERS);
    struct writer *writer = &world->writers[which];
    if (!world->healed && draw(world, world->fault_rate) == 0)
        break_something(world);
    switch (draw(world, 18)) {
    case 17:
        look_on(world);
        break;
    case 16:
        follow_on(world);
        break;
    case 0:
        if (writer->lives && !world->healed)
            append_something(world, writer);
        break;
    case 1:
        if (server->owner == NOBODY && (world->healed || draw(world, 4) == 0))
            connect_copy(world, which, copy);
        else if (!world->healed && draw(world, 50) == 0)
            connect_copy(world, which, copy); /* takes it from the other one */
        break;
    case 2:
        if (!world->writers[0].lives && !world->writers[1].lives)
            start_writer(world, which);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        if (server->completed && server->owner != NOBODY) {
            server->completed--;
            pml_done(&world->writers[server->owner].log, copy);
        }
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        if (writer->lives)
            post_next(world, writer);
        break;
    default:
        execute(world, copy);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        if (world->writers[i].lives)
            look_at(world, &world->writers[i]);
}

static bool is_converged(const struct world *world)
{
    const struct pml_log *log = &world->writers[0].log;
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        if (log->copies[i].state != PML_LIVE || log->copies[i].done != log->end.position ||
            log->copies[i].group_count)
            return false;
    return log->recovered && !log->pending_count &&
           world->follower.mark.position == log->end.position;
}

static void compare_copies(struct world *world)
{
    const struct pml_log *log = &world->writers[0].log;
    const uint64_t ring = world->config.geometry.ring_bytes;
    const uint8_t *first = world->servers[0].medium.now + PML_RING_OFFSET;
    for (unsigned i = 1; i < world->config.geometry.copies; i++)
        for (uint64_t at = log->head.position; at < log->end.position; at += PML_LINE_BYTES)
            if (memcmp(first + at % ring,
                       world->servers[i].medium.now + PML_RING_OFFSET + at % ring,
                       PML_LINE_BYTES) != 0)
                fail(world, "copies differ after they were brought up to date");
}

/* One last cut of everything; then nothing fails any more. */
static void heal(struct world *world)
{
    for (unsigned i = 0; i < WRITERS; i++)
        kill_writer(world, i);
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        cut_power(world, i);
    world->healed = true;
    start_writer(world, 0);
    for (unsigned i = 0; i < HEALED_STEPS && !world->result->failure; i++) {
        step(world);
        if (is_converged(world)) {
            compare_copies(world);
            return;
        }
    }
    fail(world, "copies do not converge");
}

static void make_world(struct world *world)
{
    static const uint16_t copies[] = {1, 3, 3, 3, 5};
    struct pml_geometry *geometry = &world->config.geometry;
    geometry->copies = world->fault == QUORUM_OF_ONE ? 3 : copies[draw(world, 5)];
    geometry->quorum = geometry->copies / 2 + 1;
    geometry->payload_max = PAYLOAD_MAX;
    geometry->ring_bytes = (uint64_t)1024 << draw(world, 3);
    memset(geometry->id, (int)draw(world, 256), sizeof(geometry->id));
    world->config.window = draw(world, 3) ? 1 : (uint32_t)(2 + draw(world, 7));
    world->config.stage_bytes = (uint64_t)512 << draw(world, 2);
    world->config.chunk_bytes = (uint64_t)256 << draw(world, 3);
    world->fault_rate = (unsigned)(30 + draw(world, draw(world, 2) ? 200 : 2000));
    const uint64_t memory = pml_memory_bytes(&world->config);
    assert(memory);
    for (unsigned i = 0; i < WRITERS; i++) {
        world->writers[i].memory = malloc(memory);
        assert(world->writers[i].memory);
    }
    const uint64_t line = draw(world, 4) ? PML_LINE_BYTES : PML_CONTROL_BYTES;
    const uint64_t bytes = PML_RING_OFFSET + geometry->ring_bytes;
    for (unsigned i = 0; i < geometry->copies; i++) {
        uint8_t control[PML_CONTROL_BYTES];
        struct server *server = &world->servers[i];
        medium_init(&server->medium, (bytes + line - 1) / line * line, line, &world->seed);
        pml_control_format(geometry, (uint16_t)i, control);
        medium_store(&server->medium, 0, control, sizeof(control));
        medium_flush(&server->medium, 0, sizeof(control));
        server->medium.flush_lies = world->fault == FLUSH_LIES;
        server->owner = NOBODY;
    }
    oracle_init(&world->oracle, geometry, world->config.window);
    pml_reader_init(&world->follower.reader, geometry);
    pml_origin(geometry, &world->follower.mark);
}

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out)
{
    struct world *world = calloc(1, sizeof(*world));
    assert(world);
    memset(out, 0, sizeof(*out));
    world->seed = seed;
    world->fault = fault;
    world->result = out;
    make_world(world);
    for (unsigned i = 0; i < STEPS && !out->failure; i++)
        step(world);
    if (!out->failure)
        heal(world);
    out->extras = world->oracle.extras;
    for (unsigned i = 0; i < WRITERS; i++)
        free(world->writers[i].memory);
    for (unsigned i = 0; i < world->config.geometry.copies; i++)
        medium_free(&world->servers[i].medium);
    free(world);
}
