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

/* Copies of earlier writers say nothing of this one's log. */
static uint64_t last_epoch(const struct pml_reader *reader)
{
    uint64_t epoch = 0;
    for (unsigned i = 0; i < reader->copies; i++)
        if (reader->views[i].is_known && reader->views[i].epoch > epoch)
            epoch = reader->views[i].epoch;
    return epoch;
}

static bool is_current(const struct pml_reader *reader, unsigned copy, uint64_t epoch)
{
    return reader->views[copy].is_known && reader->views[copy].epoch == epoch;
}

bool pml_reader_limit(const struct pml_reader *reader, uint64_t *position)
{
    const uint64_t epoch = last_epoch(reader);
    bool any = false;
    for (unsigned i = 0; i < reader->copies; i++) {
        const uint64_t tail = reader->views[i].tail;
        unsigned have = 0;
        if (!is_current(reader, i, epoch))
            continue;
        for (unsigned j = 0; j < reader->copies; j++)
            have += is_current(reader, j, epoch) && reader->views[j].tail >= tail;
        if (have >= reader->quorum && (!any || tail > *position)) {
            *position = tail;
            any = true;
        }
    }
    return any;
}

unsigned pml_reader_source(const struct pml_reader *reader, uint64_t *has)
{
    const uint64_t epoch = last_epoch(reader);
    unsigned source = 0;
    *has = 0;
    for (unsigned i = 0; i < reader->copies; i++)
        if (is_current(reader, i, epoch) && reader->views[i].tail >= *has) {
            source = i;
            *has = reader->views[i].tail;
        }
    return source;
}

bool pml_reader_is_trimmed(const struct pml_slot *slot, const struct pml_mark *at)
{
    return slot->head.position > at->position;
}
