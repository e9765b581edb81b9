/* SPDX-License-Identifier: BSD-2-Clause */
#include "oracle.h"

#include <string.h>

enum { RECORD_BYTES_MAX = 4096 };

void oracle_init(struct oracle *oracle, const struct pml_geometry *geometry, uint32_t window)
{
    memset(oracle, 0, sizeof(*oracle));
    oracle->geometry = geometry;
    oracle->window = window;
}

bool oracle_has_room(const struct oracle *oracle)
{
    return oracle->count < ORACLE_RECORDS_MAX;
}

static uint8_t payload_byte(uint64_t id, uint32_t at)
{
    return (uint8_t)(id * 37 + at * 11);
}

uint64_t oracle_next(struct oracle *oracle, uint8_t *payload, uint32_t len)
{
    const uint64_t id = oracle->count;
    memcpy(payload, &id, sizeof(id));
    for (uint32_t i = sizeof(id); i < len; i++)
        payload[i] = payload_byte(id, i);
    oracle->next_len = len;
    return id;
}

void oracle_submitted(struct oracle *oracle, uint64_t epoch)
{
    /* A record of a writer that another has replaced is never found. */
    oracle->records[oracle->count++] = (struct oracle_record){
        .fate = epoch < oracle->epoch ? GONE : UNKNOWN, .len = oracle->next_len};
}

void oracle_trimmed(struct oracle *oracle, uint64_t position)
{
    if (position > oracle->trimmed)
        oracle->trimmed = position;
}

const char *oracle_outcome(struct oracle *oracle, const struct pml_outcome *outcome)
{
    struct oracle_record *record = &oracle->records[outcome->user];
    if (outcome->status == PML_OK) {
        if (record->fate == GONE)
            return "an append is acknowledged that is not in the log";
        if (record->fate == ACKNOWLEDGED && record->position != outcome->next.position)
            return "an append is acknowledged at another place";
        record->fate = ACKNOWLEDGED;
        record->position = outcome->next.position;
    } else if (outcome->status == PML_NOT_DONE && record->fate == ACKNOWLEDGED) {
        return "an append is in the log and ends as not done";
    }
    return NULL;
}

static const char *find_record(struct oracle *oracle, const struct pml_record *found, bool *seen,
                               unsigned *extras)
{
    uint64_t id = 0;
    if (found->payload_bytes < sizeof(id))
        return "a record is too short";
    memcpy(&id, found->payload, sizeof(id));
    if (id >= oracle->count || seen[id])
        return "a record is in the log that nobody appended, or twice";
    struct oracle_record *record = &oracle->records[id];
    if (found->payload_bytes != record->len)
        return "a record has another length";
    for (uint32_t i = sizeof(id); i < record->len; i++)
        if (found->payload[i] != payload_byte(id, i))
            return "a record is torn";
    if (record->fate == GONE)
        return "a record is there that an earlier recovery did not find";
    if (record->fate == ACKNOWLEDGED && record->position != found->next.position)
        return "a record has moved";
    *extras += record->fate == UNKNOWN;
    seen[id] = true;
    return NULL;
}

const char *oracle_followed(struct oracle *oracle, const struct pml_record *found)
{
    bool seen[ORACLE_RECORDS_MAX] = {false};
    unsigned extras = 0;
    uint64_t id = 0;
    const char *wrong = find_record(oracle, found, seen, &extras);
    if (wrong)
        return wrong;
    memcpy(&id, found->payload, sizeof(id));
    oracle->records[id].fate = ACKNOWLEDGED;
    oracle->records[id].position = found->next.position;
    return NULL;
}

/* Follows the chain of one copy from head to end, by itself. */
static const char *walk(struct oracle *oracle, const struct pml_log *log, const uint8_t *ring,
                        bool *seen, unsigned *extras)
{
    static uint8_t bytes[RECORD_BYTES_MAX];
    const uint64_t ring_bytes = oracle->geometry->ring_bytes;
    struct pml_mark at = log->head;
    struct pml_record record;
    uint64_t need = 0;
    while (at.position < log->found.position) {
        for (uint64_t i = 0; i < pml_record_bytes(oracle->geometry->payload_max); i++)
            bytes[i] = ring[(at.position + i) % ring_bytes];
        if (pml_record_parse(oracle->geometry, &at, bytes, sizeof(bytes), &record, &need) !=
            PML_RECORD)
            return "a copy that is up to date lacks a record";
        const char *wrong = find_record(oracle, &record, seen, extras);
        if (wrong)
            return wrong;
        at = record.next;
    }
    return NULL;
}

static void settle(struct oracle *oracle, const struct pml_log *log, const uint8_t *ring,
                   const bool *seen)
{
    struct pml_mark at = log->head;
    struct pml_record record;
    static uint8_t bytes[RECORD_BYTES_MAX];
    uint64_t need = 0, id = 0;
    while (at.position < log->found.position) {
        for (uint64_t i = 0; i < pml_record_bytes(oracle->geometry->payload_max); i++)
            bytes[i] = ring[(at.position + i) % oracle->geometry->ring_bytes];
        pml_record_parse(oracle->geometry, &at, bytes, sizeof(bytes), &record, &need);
        memcpy(&id, record.payload, sizeof(id));
        at = record.next;
        oracle->records[id].fate = ACKNOWLEDGED;
        oracle->records[id].position = at.position;
    }
    for (unsigned i = 0; i < oracle->count; i++)
        if (!seen[i] && oracle->records[i].fate == UNKNOWN)
            oracle->records[i].fate = GONE;
}

const char *oracle_recovered(struct oracle *oracle, const struct pml_log *log,
                             const uint8_t *const *images)
{
    bool seen[ORACLE_RECORDS_MAX];
    const uint8_t *any = NULL;
    if (log->epoch <= oracle->epoch)
        return "a writer recovers in an epoch that is over";
    oracle->epoch = log->epoch;
    if (log->head.position > oracle->trimmed)
        return "records are trimmed that nobody trimmed";
    for (unsigned i = 0; i < oracle->geometry->copies; i++) {
        unsigned extras = 0;
        if (!images[i])
            continue;
        any = images[i];
        memset(seen, 0, sizeof(seen));
        const char *wrong = walk(oracle, log, any, seen, &extras);
        if (wrong)
            return wrong;
        if (extras > oracle->window)
            return "more is found than was under way";
        for (unsigned j = 0; j < oracle->count; j++)
            if (oracle->records[j].fate == ACKNOWLEDGED && !seen[j] &&
                oracle->records[j].position > log->head.position)
                return "an acknowledged record is lost";
        oracle->extras += extras;
        settle(oracle, log, any, seen);
    }
    return any ? NULL : "a recovery without a copy";
}
