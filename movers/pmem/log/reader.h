/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What somebody who only reads may believe of a log that another one writes: up to where its
 * records are acknowledged, and which copies have them. It knows no network; docs/pmem-log.md has
 * the argument.
 */
#ifndef SW_MOVERS_PMEM_LOG_READER_H
#define SW_MOVERS_PMEM_LOG_READER_H

#include "pmem/log/layout.h"

/* Where the words lie that a reader looks at: epoch, tail, settled and shown. */
enum {
    PML_WORDS_OFFSET = PML_EPOCH_OFFSET,
    PML_WORDS_BYTES = PML_SHOWN_OFFSET + 8 - PML_EPOCH_OFFSET
};

struct pml_view {
    bool is_known;
    uint64_t epoch, tail; /* its writer, and up to where that has made it persistent */
};

struct pml_reader {
    uint16_t copies, quorum;
    uint32_t wrong; /* copies that lacked what their words claim; asked last */
    struct pml_view views[PML_COPIES_MAX];
};

void pml_reader_init(struct pml_reader *reader, const struct pml_geometry *geometry);
/* Three READs of one copy, in this order: its words, the tail word, and its words again. */
void pml_reader_view(struct pml_reader *reader, unsigned copy,
                     const uint8_t before[PML_WORDS_BYTES], uint64_t tail,
                     const uint8_t after[PML_WORDS_BYTES]);
void pml_reader_forget(struct pml_reader *reader, unsigned copy);
/* Its words claim more than it has. */
void pml_reader_distrust(struct pml_reader *reader, unsigned copy);
/* The epoch that a quorum is of, 0 if there is none. One copy cannot raise it by its words. */
uint64_t pml_reader_epoch(const struct pml_reader *reader);
bool pml_reader_is_current(const struct pml_reader *reader, unsigned copy);
/* Up to where records are acknowledged for certain. False: too few copies are known. */
bool pml_reader_limit(const struct pml_reader *reader, uint64_t *position);
/* There may be acknowledged records beyond `position`, as copies that are bits in `unseen` did not
 * answer now. */
bool pml_reader_may_go_on(const struct pml_reader *reader, uint64_t position, uint32_t unseen);
/* The copy that has most of them, of those with more than `position` that are no bits in `but`; one
 * that was wrong comes last. False: there is none. */
bool pml_reader_source(const struct pml_reader *reader, uint32_t but, uint64_t position,
                       unsigned *source);
/* Bytes at `at` on a copy with these slots may be what anybody left there. The slots have to be
 * read after the records. */
bool pml_reader_is_trimmed(const struct pml_slot *slot, const struct pml_mark *at);

#endif
