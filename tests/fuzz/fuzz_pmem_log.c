/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy of a log as a stranger may have made it: a control page and a ring. It is parsed, and then
 * recovered by the machine, which has to come to an end without leaving its memory. A record that
 * is accepted lies within its bytes and continues its chain.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pmem/log/machine.h"

enum { RING_BYTES = 1024, PAYLOAD_MAX = 128, STEPS_MAX = 4096 };

static uint8_t image[PML_RING_OFFSET + RING_BYTES];
static struct pml_log machine;

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static const struct pml_geometry ours = {
    .ring_bytes = RING_BYTES, .payload_max = PAYLOAD_MAX, .copies = 1, .quorum = 1};

static void parse_all(void)
{
    struct pml_geometry geometry;
    struct pml_slot slot;
    struct pml_record record;
    uint16_t copy = 0;
    uint64_t need = 0;
    if (pml_superblock_parse(image, &geometry, &copy) == PML_FINE)
        demand(pml_geometry_is_valid(&geometry) && copy < geometry.copies);
    pml_slot_parse(&ours, image, &slot);
    struct pml_mark at = slot.head;
    uint64_t used = 0;
    while (used < RING_BYTES && pml_record_parse(&ours, &at, image + PML_RING_OFFSET + used,
                                                 RING_BYTES - used, &record, &need) == PML_RECORD) {
        const uint64_t len = record.next.position - at.position;
        demand(len == pml_record_bytes(record.payload_bytes) && len <= RING_BYTES - used);
        demand(record.payload_bytes <= PAYLOAD_MAX && record.next.epoch >= at.epoch);
        used += len;
        at = record.next;
    }
}

static void run_op(const struct pml_op *op)
{
    demand(op->offset <= sizeof(image) && op->len_bytes <= sizeof(image) - op->offset);
    if (op->verb == PML_READ)
        memcpy(op->data, image + op->offset, op->len_bytes);
    else if (op->verb == PML_WRITE)
        memcpy(image + op->offset, op->data, op->len_bytes);
    else if (op->verb == PML_PUBLISH)
        memcpy(image + op->offset, &op->word, sizeof(op->word));
}

static void recover(void)
{
    const struct pml_config config = {
        .geometry = ours, .window = 1, .stage_bytes = 512, .chunk_bytes = 256};
    const uint64_t bytes = pml_memory_bytes(&config);
    uint8_t *memory = calloc(1, bytes);
    struct pml_op op;
    unsigned steps = 0;
    demand(bytes && memory);
    pml_init(&machine, &config, memory);
    pml_found(&machine, 0);
    while (pml_next(&machine, &op)) {
        demand(++steps < STEPS_MAX);
        run_op(&op);
        if (op.signals)
            pml_done(&machine, 0);
    }
    demand(machine.recovered || machine.broken || machine.copies[0].state == PML_BAD);
    free(memory);
}

/* The next number of the input, zero behind its end. */
static uint64_t take(const uint8_t **data, size_t *size, size_t bytes)
{
    uint64_t value = 0;
    const size_t len = *size < bytes ? *size : bytes;
    memcpy(&value, *data, len);
    *data += len;
    *size -= len;
    return value;
}

static void put_word(size_t offset, uint64_t word)
{
    memcpy(image + offset, &word, sizeof(word));
}

/* Slot and records have right checks, since others are given up at once; then bytes change. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t record[PML_LINE_BYTES + PAYLOAD_MAX], payload[PAYLOAD_MAX];
    struct pml_slot slot = {.count = take(&data, &size, 8)};
    memset(image, 0, sizeof(image));
    pml_control_format(&ours, 0, image);
    slot.head = (struct pml_mark){take(&data, &size, 8), take(&data, &size, 8),
                                  take(&data, &size, 8), take(&data, &size, 8)};
    pml_slot_format(&ours, &slot, image + PML_SLOT_OFFSET);
    put_word(PML_EPOCH_OFFSET, take(&data, &size, 8));
    put_word(PML_TAIL_OFFSET, take(&data, &size, 8));
    put_word(PML_SETTLED_OFFSET, take(&data, &size, 8));
    for (struct pml_mark at = slot.head; take(&data, &size, 1) & 1;) {
        const uint32_t len = (uint32_t)take(&data, &size, 1) % (PAYLOAD_MAX + 1);
        const uint64_t from = at.position, epoch = at.epoch + take(&data, &size, 1);
        pml_record_format(&ours, &at, epoch, payload, len, record, &at);
        for (uint64_t i = 0; i < pml_record_bytes(len); i++)
            image[PML_RING_OFFSET + (from + i) % RING_BYTES] = record[i];
    }
    while (size) {
        const size_t at = take(&data, &size, 2) % sizeof(image);
        image[at] ^= (uint8_t)take(&data, &size, 1);
    }
    parse_all();
    recover();
    return 0;
}
