/* SPDX-License-Identifier: BSD-2-Clause */
/* What a log has to hold, known from outside. Each function returns what is wrong, or NULL. */
#ifndef SW_TEST_PMEM_ORACLE_H
#define SW_TEST_PMEM_ORACLE_H

#include "pmem/log/machine.h"

enum { ORACLE_RECORDS_MAX = 1024 };

enum fate {
    UNKNOWN,      /* it may be found once */
    ACKNOWLEDGED, /* it is found each time */
    GONE,         /* it is never found */
};

struct oracle_record {
    enum fate fate;
    uint64_t position; /* of an acknowledged one: where it ends */
    uint32_t len;
};

struct oracle {
    const struct pml_geometry *geometry;
    uint32_t window;
    uint64_t epoch; /* of the last recovery */
    uint64_t trimmed;
    unsigned count, extras;
    struct oracle_record records[ORACLE_RECORDS_MAX];
    uint32_t next_len;
};

void oracle_init(struct oracle *oracle, const struct pml_geometry *geometry, uint32_t window);
bool oracle_has_room(const struct oracle *oracle);
/* Makes the payload of the next record; returns its number. */
uint64_t oracle_next(struct oracle *oracle, uint8_t *payload, uint32_t len);
/* It was taken by the writer of that epoch. */
void oracle_submitted(struct oracle *oracle, uint64_t epoch);
void oracle_trimmed(struct oracle *oracle, uint64_t position);
const char *oracle_outcome(struct oracle *oracle, const struct pml_outcome *outcome);
/* Somebody has read it. */
const char *oracle_followed(struct oracle *oracle, const struct pml_record *found);
/* `images`: the rings of the copies that are up to date, or NULL. */
const char *oracle_recovered(struct oracle *oracle, const struct pml_log *log,
                             const uint8_t *const *images);

#endif
