/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log on its medium, as docs/pmem-log.md has it: bytes to structs and back. Parsers check
 * everything once; what they hand out is trusted afterwards.
 */
#ifndef SW_MOVERS_PMEM_LOG_LAYOUT_H
#define SW_MOVERS_PMEM_LOG_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PML_COPIES_MAX = 5,
    PML_LINE_BYTES = 64, /* records start at multiples of it */
    PML_ID_BYTES = 16,
    PML_CONTROL_BYTES = 4096,
    PML_SLOT_OFFSET = 256, /* the second is as far behind the first */
    PML_EPOCH_OFFSET = 768,
    PML_TAIL_OFFSET = 1024,
    PML_SETTLED_OFFSET = 1280,
    PML_SHOWN_OFFSET = 1536,
    PML_RING_OFFSET = 4096,
    PML_RING_BYTES_MIN = 1024,
    PML_PAYLOAD_MAX = 1 << 24,
};

/* Bounds positions, epochs and counts: a greater number is damaged, so sums do not overflow. */
#define PML_NUMBER_MAX ((uint64_t)INT64_MAX)

enum pml_verdict {
    PML_FINE,
    PML_NO_LOG,          /* no superblock */
    PML_UNKNOWN_VERSION, /* made by something newer */
    PML_DAMAGED,
    PML_OTHER_LOG,  /* a copy of another log */
    PML_OTHER_COPY, /* another copy of this log */
    PML_UNDECIDED,  /* of a census: too few copies are read */
};

struct pml_geometry {
    uint8_t id[PML_ID_BYTES];
    uint64_t ring_bytes;
    uint32_t payload_max;
    uint16_t copies, quorum;
};

/* A place between two records: all that is needed to go on from there. */
struct pml_mark {
    uint64_t position;
    uint64_t check; /* of the record before, as is `epoch` */
    uint64_t epoch;
    uint64_t sequence; /* of the next record */
};

struct pml_slot {
    uint64_t count; /* 0: none is valid */
    struct pml_mark head;
};

struct pml_record {
    uint32_t payload_bytes;
    const uint8_t *payload;
    struct pml_mark next; /* behind it */
};

/* The length of a record with its header and padding. */
uint64_t pml_record_bytes(uint32_t payload_bytes);
bool pml_geometry_is_valid(const struct pml_geometry *geometry);
bool pml_geometry_is_same(const struct pml_geometry *a, const struct pml_geometry *b);
/* The part of the ring that a writer keeps in memory: it divides the ring and has two of
 * the largest records; about 1 MiB. 0: there is none, so no log can have this ring. Takes a
 * bounded time for any geometry that is valid. */
uint64_t pml_stage_bytes_of(const struct pml_geometry *geometry);
/* A greater ring that has such a part. */
uint64_t pml_ring_bytes_above(const struct pml_geometry *geometry);

/* What copies say of the log that they are of; believed is what a quorum says. */
struct pml_census {
    uint16_t copies;
    enum pml_verdict verdicts[PML_COPIES_MAX];
    struct pml_geometry geometries[PML_COPIES_MAX];
    uint32_t read; /* a bit for each copy */
};

/* A copy's control page, and how many bytes its region has: a log may not be larger. */
void pml_census_take(struct pml_census *census, unsigned copy, const uint8_t *control,
                     uint64_t region_bytes);
/* PML_FINE and the geometry; PML_NO_LOG: no quorum can agree any more; PML_UNDECIDED. */
enum pml_verdict pml_census_end(const struct pml_census *census, struct pml_geometry *geometry);
/* The mark at which a new log starts. */
void pml_origin(const struct pml_geometry *geometry, struct pml_mark *out);

/* Writes the PML_CONTROL_BYTES of a new copy. */
void pml_control_format(const struct pml_geometry *geometry, uint16_t copy, uint8_t *control);
enum pml_verdict pml_superblock_parse(const uint8_t *control, struct pml_geometry *geometry,
                                      uint16_t *copy);
/* PML_LINE_BYTES each. */
void pml_slot_format(const struct pml_geometry *geometry, const struct pml_slot *slot, uint8_t *to);
/* The current one of both slots of a control page; count 0 if there is none. */
void pml_slot_parse(const struct pml_geometry *geometry, const uint8_t *control,
                    struct pml_slot *out);
uint64_t pml_word_at(const uint8_t *control, size_t offset);

/* Writes the record that follows `at` in `epoch`: pml_record_bytes() bytes. `next` is then behind
 * it. */
void pml_record_format(const struct pml_geometry *geometry, const struct pml_mark *at,
                       uint64_t epoch, const void *payload, uint32_t payload_bytes, uint8_t *to,
                       struct pml_mark *next);

enum pml_found {
    PML_END,    /* no record follows `at` here */
    PML_RECORD, /* `out` is set */
    PML_MORE,   /* the bytes end before the record may end; `need` says how many there have to be */
};
/* Looks for the record that follows `at`, in `len` bytes that begin there. */
enum pml_found pml_record_parse(const struct pml_geometry *geometry, const struct pml_mark *at,
                                const uint8_t *bytes, uint64_t len, struct pml_record *out,
                                uint64_t *need);

#endif
