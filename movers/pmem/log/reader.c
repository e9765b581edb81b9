/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/log/reader.h"

#include <string.h>

void pml_reader_init(struct pml_reader *reader, const struct pml_geometry *geometry)
{
    memset(reader, 0, sizeof(*reader));
    reader->copies = geometry->copies;
    reader->quorum = geometry->quorum;
}

static uint64_t reader_word_of(const uint8_t *words, size_t offset)
{
    return pml_word_at(words, offset - PML_WORDS_OFFSET);
}

/* No other writer has begun with the copy: a tail that was read in between is of this one. */
static bool is_of_one_writer(const uint8_t *words, uint64_t epoch)
{
    return reader_word_of(words, PML_EPOCH_OFFSET) == epoch &&
           reader_word_of(words, PML_SETTLED_OFFSET) == epoch &&
           reader_word_of(words, PML_SHOWN_OFFSET) == epoch;
}

void pml_reader_view(struct pml_reader *reader, unsigned copy,
                     const uint8_t before[PML_WORDS_BYTES], uint64_t tail,
                     const uint8_t after[PML_WORDS_BYTES])
{
    struct pml_view *view = &reader->views[copy];
    const uint64_t epoch = reader_word_of(before, PML_EPOCH_OFFSET);
    view->is_known = epoch <= PML_NUMBER_MAX && tail <= PML_NUMBER_MAX &&
                     tail % PML_LINE_BYTES == 0 && is_of_one_writer(before, epoch) &&
                     is_of_one_writer(after, epoch);
    view->epoch = epoch;
    view->tail = tail;
}

void pml_reader_forget(struct pml_reader *reader, unsigned copy)
{
    reader->views[copy].is_known = false;
}

void pml_reader_distrust(struct pml_reader *reader, unsigned copy)
{
    reader->wrong |= 1u << copy;
}

static unsigned count_of_epoch(const struct pml_reader *reader, uint64_t epoch)
{
    unsigned count = 0;
    for (unsigned i = 0; i < reader->copies; i++)
        count += reader->views[i].is_known && reader->views[i].epoch == epoch;
    return count;
}

/* More than half of the copies are of one epoch at most. Copies of other writers say nothing of
 * this one's log: not those before it, nor a single one whose word is greater. */
static bool agreed_epoch(const struct pml_reader *reader, uint64_t *epoch)
{
    for (unsigned i = 0; i < reader->copies; i++) {
        *epoch = reader->views[i].epoch;
        if (reader->views[i].is_known && count_of_epoch(reader, *epoch) >= reader->quorum)
            return true;
    }
    *epoch = 0;
    return false;
}

uint64_t pml_reader_epoch(const struct pml_reader *reader)
{
    uint64_t epoch = 0;
    agreed_epoch(reader, &epoch);
    return epoch;
}

static bool is_of_epoch(const struct pml_reader *reader, unsigned copy, uint64_t epoch)
{
    return reader->views[copy].is_known && reader->views[copy].epoch == epoch;
}

bool pml_reader_is_current(const struct pml_reader *reader, unsigned copy)
{
    uint64_t epoch = 0;
    return agreed_epoch(reader, &epoch) && is_of_epoch(reader, copy, epoch);
}

bool pml_reader_limit(const struct pml_reader *reader, uint64_t *position)
{
    uint64_t epoch = 0;
    bool any = false;
    if (!agreed_epoch(reader, &epoch))
        return false;
    for (unsigned i = 0; i < reader->copies; i++) {
        const uint64_t tail = reader->views[i].tail;
        unsigned have = 0;
        if (!is_of_epoch(reader, i, epoch))
            continue;
        for (unsigned j = 0; j < reader->copies; j++)
            have += is_of_epoch(reader, j, epoch) && reader->views[j].tail >= tail;
        if (have >= reader->quorum && (!any || tail > *position)) {
            *position = tail;
            any = true;
        }
    }
    return any;
}

bool pml_reader_may_go_on(const struct pml_reader *reader, uint64_t position, uint32_t unseen)
{
    const uint64_t epoch = pml_reader_epoch(reader);
    unsigned may = 0;
    for (unsigned i = 0; i < reader->copies; i++)
        may +=
            unseen >> i & 1 || (is_of_epoch(reader, i, epoch) && reader->views[i].tail > position);
    return may >= reader->quorum;
}

static bool find_source(const struct pml_reader *reader, uint32_t but, uint64_t position,
                        unsigned *source)
{
    const uint64_t epoch = pml_reader_epoch(reader);
    bool any = false;
    uint64_t has = position;
    for (unsigned i = 0; i < reader->copies; i++) {
        const uint64_t tail = reader->views[i].tail;
        if (but >> i & 1 || !is_of_epoch(reader, i, epoch) || tail <= position || tail < has)
            continue;
        any = true;
        *source = i;
        has = tail;
    }
    return any;
}

bool pml_reader_source(const struct pml_reader *reader, uint32_t but, uint64_t position,
                       unsigned *source)
{
    return find_source(reader, but | reader->wrong, position, source) ||
           find_source(reader, but, position, source);
}

bool pml_reader_is_trimmed(const struct pml_slot *slot, const struct pml_mark *at)
{
    return slot->head.position > at->position;
}
