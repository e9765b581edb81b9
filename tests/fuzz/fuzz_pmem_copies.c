/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Three copies of a log that a writer has written, of which one or two change: words, superblocks
 * and head slots with right checks, any byte. Recovery and a reader come to an end whatever they
 * find. Where one copy alone has changed, both find all that was acknowledged, and the writer
 * appends.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pmem/log/machine.h"
#include "pmem/log/reader.h"

enum {
    COPIES = 3,
    RING_BYTES = 2048,
    IMAGE_BYTES = PML_RING_OFFSET + RING_BYTES,
    PAYLOAD_MAX = 128,
    RECORDS_MAX = 15,
    STEPS_MAX = 20000,
    MEMORY_BYTES = 1 << 16
};

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t images[COPIES][IMAGE_BYTES], memory[MEMORY_BYTES];
static struct pml_log machine;
static struct pml_mark acked[RECORDS_MAX + 2]; /* before each record, and behind the last one */
static unsigned records, first;                /* that there are, and that is not trimmed */

static const struct pml_config ours = {
    .geometry = {.ring_bytes = RING_BYTES, .payload_max = PAYLOAD_MAX, .copies = 3, .quorum = 2},
    .window = 1,
    .stage_bytes = 1024,
    .chunk_bytes = 256};

static void demand(bool holds)
{
    if (!holds)
        abort();
}

/* The next number of the input, zero behind its end. */
static uint64_t take(struct input *in, size_t bytes)
{
    uint64_t value = 0;
    const size_t len = in->size < bytes ? in->size : bytes;
    memcpy(&value, in->data, len);
    in->data += len;
    in->size -= len;
    return value;
}

static void run_op(const struct pml_op *op)
{
    uint8_t *image = images[op->copy];
    demand(op->offset <= IMAGE_BYTES && op->len_bytes <= IMAGE_BYTES - op->offset);
    if (op->verb == PML_READ)
        memcpy(op->data, image + op->offset, op->len_bytes);
    else if (op->verb == PML_WRITE)
        memcpy(image + op->offset, op->data, op->len_bytes);
    else if (op->verb == PML_PUBLISH)
        memcpy(image + op->offset, &op->word, sizeof(op->word));
}

static void run_machine(void)
{
    struct pml_op op;
    for (unsigned steps = 0; pml_next(&machine, &op); steps++) {
        demand(steps < STEPS_MAX);
        run_op(&op);
        if (op.signals)
            pml_done(&machine, op.copy);
    }
}

static void start_machine(void)
{
    demand(pml_memory_bytes(&ours) && pml_memory_bytes(&ours) <= sizeof(memory));
    pml_init(&machine, &ours, memory);
    pml_be_patient(&machine, true);
    for (unsigned i = 0; i < COPIES; i++)
        pml_found(&machine, i);
    run_machine();
    pml_be_patient(&machine, false);
    run_machine();
}

/* False: the ring is full. */
static bool append(unsigned number, uint32_t len)
{
    uint8_t payload[PAYLOAD_MAX];
    struct pml_outcome outcome;
    memset(payload, (int)number, sizeof(payload));
    if (pml_append(&machine, payload, len, number) != PML_OK)
        return false;
    run_machine();
    demand(pml_outcome(&machine, &outcome) && outcome.status == PML_OK);
    acked[number + 1] = outcome.next;
    return true;
}

static void write_log(struct input *in)
{
    for (uint16_t i = 0; i < COPIES; i++) {
        memset(images[i], 0, IMAGE_BYTES);
        pml_control_format(&ours.geometry, i, images[i]);
    }
    start_machine();
    demand(machine.recovered);
    acked[0] = machine.acked;
    records = first = 0;
    for (unsigned wanted = (unsigned)take(in, 1) % (RECORDS_MAX + 1); records < wanted; records++)
        if (!append(records, (uint32_t)take(in, 1) % (PAYLOAD_MAX + 1)))
            break;
    first = records ? (unsigned)take(in, 1) % (records + 1) : 0;
    if (first)
        demand(pml_trim(&machine, &acked[first]) == PML_OK);
    run_machine();
}

/* ---- changes ---- */

static void change_word(struct input *in, uint8_t *image)
{
    static const uint16_t offsets[] = {PML_EPOCH_OFFSET, PML_TAIL_OFFSET, PML_SETTLED_OFFSET,
                                       PML_SHOWN_OFFSET};
    const size_t offset = offsets[take(in, 1) % 4];
    const uint64_t word = take(in, 8);
    memcpy(image + offset, &word, sizeof(word));
}

static void change_superblock(struct input *in, uint8_t *image)
{
    static uint8_t control[PML_CONTROL_BYTES];
    struct pml_geometry geometry = ours.geometry;
    geometry.id[0] ^= (uint8_t)take(in, 1);
    geometry.ring_bytes = take(in, 8);
    geometry.payload_max = (uint32_t)take(in, 4);
    geometry.copies = (uint16_t)take(in, 2);
    geometry.quorum = (uint16_t)take(in, 2);
    pml_control_format(&geometry, (uint16_t)take(in, 2), control);
    memcpy(image, control, PML_LINE_BYTES);
}

static void change_slot(struct input *in, uint8_t *image)
{
    const size_t which = 1 + take(in, 1) % 2;
    struct pml_slot slot = {.count = take(in, 8)};
    slot.head = (struct pml_mark){take(in, 8), take(in, 8), take(in, 8), take(in, 8)};
    pml_slot_format(&ours.geometry, &slot, image + which * PML_SLOT_OFFSET);
}

static void change_copy(struct input *in, uint8_t *image)
{
    switch (take(in, 1) % 4) {
    case 0:
        change_word(in, image);
        break;
    case 1:
        change_superblock(in, image);
        break;
    case 2:
        change_slot(in, image);
        break;
    default:
        image[take(in, 2) % IMAGE_BYTES] ^= (uint8_t)take(in, 1);
    }
}

/* ---- what is found ---- */

/* Records from `at` on, as one copy has them, up to `end`. */
static bool has_records(unsigned copy, struct pml_mark at, unsigned number, unsigned end)
{
    static uint8_t bytes[PML_LINE_BYTES + PAYLOAD_MAX];
    struct pml_record record;
    uint64_t need = 0;
    for (; number < end; number++) {
        for (uint64_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = images[copy][PML_RING_OFFSET + (at.position + i) % RING_BYTES];
        if (pml_record_parse(&ours.geometry, &at, bytes, sizeof(bytes), &record, &need) !=
                PML_RECORD ||
            record.next.check != acked[number + 1].check)
            return false;
        for (uint32_t i = 0; i < record.payload_bytes; i++)
            demand(record.payload[i] == number);
        at = record.next;
    }
    return true;
}

static void read_beside(bool claims)
{
    struct pml_census census = {.copies = COPIES};
    struct pml_geometry geometry;
    struct pml_reader reader;
    uint64_t limit = 0, tail;
    for (unsigned i = 0; i < COPIES; i++)
        pml_census_take(&census, i, images[i], IMAGE_BYTES);
    const bool is_found = pml_census_end(&census, &geometry) == PML_FINE;
    demand(is_found || !claims);
    if (is_found)
        demand(pml_geometry_is_same(&geometry, &ours.geometry) || !claims);
    pml_reader_init(&reader, &ours.geometry);
    for (unsigned i = 0; i < COPIES; i++) {
        const uint8_t *words = images[i] + PML_WORDS_OFFSET;
        memcpy(&tail, images[i] + PML_TAIL_OFFSET, sizeof(tail));
        if (census.verdicts[i] == PML_FINE)
            pml_reader_view(&reader, i, words, tail, words);
    }
    const bool is_known = pml_reader_limit(&reader, &limit);
    if (!claims)
        return;
    demand(is_known && limit == acked[records].position);
    unsigned source = 0;
    if (acked[first].position == limit)
        return;
    demand(pml_reader_source(&reader, 0, acked[first].position, &source));
    if (!has_records(source, acked[first], first, records)) {
        pml_reader_distrust(&reader, source);
        demand(pml_reader_source(&reader, 1u << source, acked[first].position, &source));
        demand(has_records(source, acked[first], first, records));
    }
}

static void recover_all(bool claims)
{
    start_machine();
    if (!claims)
        return;
    demand(machine.recovered && !machine.fenced && !machine.broken);
    demand(machine.head.position <= acked[first].position);
    demand(machine.acked.position == acked[records].position);
    demand(machine.acked.check == acked[records].check);
    for (unsigned i = 0; i < COPIES; i++)
        if (machine.copies[i].state == PML_LIVE)
            demand(has_records(i, acked[first], first, records));
    append(records, 1); /* there may be no room */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    const unsigned how = (unsigned)take(&in, 1), bad = how % COPIES;
    const bool is_alone = how < 192;
    write_log(&in);
    for (unsigned i = 0; in.size; i++) {
        uint8_t *image = images[is_alone || i % 2 ? bad : (bad + 1) % COPIES];
        change_copy(&in, image);
    }
    read_beside(is_alone);
    recover_all(is_alone);
    start_machine(); /* and once more, with what that has left */
    demand(machine.recovered || !is_alone);
    return 0;
}
