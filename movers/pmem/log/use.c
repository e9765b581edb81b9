/* SPDX-License-Identifier: BSD-2-Clause */
/* Appending, reading and trimming a log that is open. */
#include <assert.h>
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/log/driver.h"

static enum sw_pmem_log_status use_status_of(enum pml_status status)
{
    switch (status) {
    case PML_OK:
        return SW_PMEM_LOG_OK;
    case PML_AGAIN:
        return SW_PMEM_LOG_AGAIN;
    case PML_FULL:
        return SW_PMEM_LOG_FULL;
    case PML_TOO_LONG:
        return SW_PMEM_LOG_TOO_LONG;
    case PML_NOT_DONE:
        return SW_PMEM_LOG_NOT_DONE;
    case PML_MAYBE_DONE:
        return SW_PMEM_LOG_MAYBE_DONE;
    case PML_FENCED:
        return SW_PMEM_LOG_FENCED;
    case PML_BROKEN:
        return SW_PMEM_LOG_DAMAGED;
    }
    return SW_PMEM_LOG_DAMAGED;
}

static struct sw_pmem_log_mark use_mark_out(const struct pml_mark *mark)
{
    return (struct sw_pmem_log_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

static struct pml_mark use_mark_in(const struct sw_pmem_log_mark *mark)
{
    return (struct pml_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

enum sw_pmem_log_status sw_pmem_log_post(struct sw_pmem_log *log, const void *record,
                                         uint32_t bytes, uint64_t user)
{
    if (mover_is_forked(&log->guard))
        return SW_PMEM_LOG_FORKED;
    const enum pml_status status = pml_append(&log->machine, record, bytes, user);
    pml_drive(log);
    return use_status_of(status);
}

void sw_pmem_log_poll(struct sw_pmem_log *log)
{
    if (!mover_is_forked(&log->guard))
        pml_drive(log);
}

enum sw_pmem_log_status sw_pmem_log_wait(struct sw_pmem_log *log, uint64_t deadline_ns)
{
    if (mover_is_forked(&log->guard))
        return SW_PMEM_LOG_FORKED;
    for (;;) {
        pml_drive(log);
        if (log->machine.outcome_count)
            return SW_PMEM_LOG_OK;
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_TIMEOUT;
        pml_sleep(log);
    }
}

bool sw_pmem_log_take(struct sw_pmem_log *log, struct sw_pmem_log_result *result)
{
    struct pml_outcome outcome;
    if (mover_is_forked(&log->guard) || !pml_outcome(&log->machine, &outcome))
        return false;
    *result = (struct sw_pmem_log_result){outcome.user, use_status_of(outcome.status),
                                          use_mark_out(&outcome.next)};
    return true;
}

enum sw_pmem_log_status sw_pmem_log_append(struct sw_pmem_log *log, const void *record,
                                           uint32_t bytes, uint64_t deadline_ns,
                                           struct sw_pmem_log_mark *mark)
{
    struct sw_pmem_log_result result;
    enum sw_pmem_log_status status;
    if (mover_is_forked(&log->guard))
        return SW_PMEM_LOG_FORKED;
    if (log->machine.pending_count || log->machine.outcome_count)
        return SW_PMEM_LOG_AGAIN;
    while ((status = sw_pmem_log_post(log, record, bytes, 0)) == SW_PMEM_LOG_AGAIN) {
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_AGAIN; /* nothing happened */
        pml_sleep(log);
    }
    if (status != SW_PMEM_LOG_OK)
        return status;
    status = sw_pmem_log_wait(log, deadline_ns);
    if (status != SW_PMEM_LOG_OK)
        return status;
    sw_pmem_log_take(log, &result);
    if (result.status == SW_PMEM_LOG_OK && mark)
        *mark = result.mark;
    return result.status;
}

void sw_pmem_log_head(const struct sw_pmem_log *log, struct sw_pmem_log_mark *mark)
{
    *mark = use_mark_out(&log->machine.head);
}

static void use_end_read(void *arg, const struct sw_pmem_result *result)
{
    struct pml_link *link = arg;
    link->under_way--;
    link->log->is_reading = false;
    link->log->read_failed = result->status != SW_PMEM_OK;
    link->is_failing |= link->log->read_failed;
}

/* It has all that was acknowledged. */
static bool may_read_from(const struct sw_pmem_log *log, unsigned copy, uint32_t but)
{
    return !(but >> copy & 1) && log->machine.copies[copy].state == PML_LIVE &&
           !log->links[copy].is_failing &&
           log->machine.copies[copy].done >= log->machine.acked.position;
}

/* From the first copy that may be read and is no bit in `but`. */
static bool start_read(struct sw_pmem_log *log, const struct pml_mark *at, uint64_t len,
                       uint32_t but)
{
    const struct pml_log *machine = &log->machine;
    const uint64_t ring = machine->config.geometry.ring_bytes, offset = at->position % ring;
    const uint64_t first = mover_min_u64(len, ring - offset);
    for (unsigned i = 0; i < machine->config.geometry.copies; i++) {
        struct pml_link *link = &log->links[i];
        if (!may_read_from(log, i, but))
            continue;
        struct sw_pmem_op ops[2] = {
            {.opcode = SW_PMEM_OP_READ,
             .offset = PML_RING_OFFSET + offset,
             .bytes = first,
             .pieces = {{log->read_buffer, (uint32_t)first, link->mem}},
             .pieces_count = 1},
            {.opcode = SW_PMEM_OP_READ,
             .offset = PML_RING_OFFSET,
             .bytes = len - first,
             .pieces = {{log->read_buffer + first, (uint32_t)(len - first), link->mem}},
             .pieces_count = 1},
        };
        const struct sw_pmem_chain chain = {.ops = ops,
                                            .count = first < len ? 2 : 1,
                                            .session = link->session,
                                            .done = use_end_read,
                                            .arg = link};
        if (sw_pmem_post(link->pmem, &chain) != SW_PMEM_OK)
            continue;
        link->under_way++;
        log->is_reading = true;
        log->read_from = i;
        return true;
    }
    return false;
}

static bool has_copy_but(const struct sw_pmem_log *log, uint32_t but)
{
    for (unsigned i = 0; i < log->machine.config.geometry.copies; i++)
        if (may_read_from(log, i, but))
            return true;
    return false;
}

/* Fills the read buffer. */
static enum sw_pmem_log_status fetch_record(struct sw_pmem_log *log, const struct pml_mark *at,
                                            uint64_t len, uint32_t but, uint64_t deadline_ns)
{
    bool is_started = false; /* an earlier one that ran into its deadline is waited for first */
    for (;;) {
        if (!log->is_reading && is_started && !log->read_failed)
            return SW_PMEM_LOG_OK;
        if (!log->is_reading) {
            log->read_failed = false;
            is_started = start_read(log, at, len, but);
        }
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_TIMEOUT;
        pml_drive(log);
        if (!is_started || log->is_reading)
            pml_sleep(log);
    }
}

enum sw_pmem_log_status sw_pmem_log_read(struct sw_pmem_log *log, struct sw_pmem_log_mark *mark,
                                         void *record, uint32_t bytes_max, uint32_t *bytes,
                                         uint64_t deadline_ns)
{
    const struct pml_log *machine = &log->machine;
    const struct pml_mark at = use_mark_in(mark);
    struct pml_record found;
    uint64_t need = 0, len = pml_record_bytes(machine->config.geometry.payload_max);
    if (mover_is_forked(&log->guard))
        return SW_PMEM_LOG_FORKED;
    if (at.position < machine->head.position || at.position % PML_LINE_BYTES)
        return SW_PMEM_LOG_INVALID;
    if (at.position >= machine->acked.position)
        return SW_PMEM_LOG_END;
    if (len > machine->acked.position - at.position)
        len = machine->acked.position - at.position;
    for (uint32_t wrong = 0;; wrong |= 1u << log->read_from) {
        if (wrong && !has_copy_but(log, wrong))
            return SW_PMEM_LOG_DAMAGED;
        const enum sw_pmem_log_status status = fetch_record(log, &at, len, wrong, deadline_ns);
        if (status != SW_PMEM_LOG_OK)
            return status;
        if (pml_record_parse(&machine->config.geometry, &at, log->read_buffer, len, &found,
                             &need) == PML_RECORD)
            break;
    }
    if (found.payload_bytes > bytes_max)
        return SW_PMEM_LOG_TOO_LONG;
    memcpy(record, found.payload, found.payload_bytes);
    *bytes = found.payload_bytes;
    *mark = use_mark_out(&found.next);
    return SW_PMEM_LOG_OK;
}

enum sw_pmem_log_status sw_pmem_log_trim(struct sw_pmem_log *log,
                                         const struct sw_pmem_log_mark *mark)
{
    const struct pml_mark to = use_mark_in(mark);
    if (mover_is_forked(&log->guard))
        return SW_PMEM_LOG_FORKED;
    if (to.position > log->machine.acked.position)
        return SW_PMEM_LOG_INVALID;
    const enum pml_status status = pml_trim(&log->machine, &to);
    pml_drive(log);
    return use_status_of(status);
}

static enum sw_pmem_log_copy_state copy_state(const struct pml_copy *copy,
                                              const struct pml_link *link)
{
    if (copy->state == PML_ABSENT)
        return sw_pmem_state_of(link->pmem) == SW_PMEM_CONNECTING ? SW_PMEM_LOG_COPY_SILENT
                                                                  : SW_PMEM_LOG_COPY_LOST;
    if (copy->state == PML_LIVE)
        return SW_PMEM_LOG_COPY_LIVE;
    return copy->state == PML_BAD ? SW_PMEM_LOG_COPY_DAMAGED : SW_PMEM_LOG_COPY_BEHIND;
}

void sw_pmem_log_info_of(const struct sw_pmem_log *log, struct sw_pmem_log_info *info)
{
    const struct pml_log *machine = &log->machine;
    const bool is_ours = !mover_is_forked(&log->guard);
    memset(info, 0, sizeof(*info));
    info->ring_bytes = machine->config.geometry.ring_bytes;
    info->used_bytes = machine->end.position - machine->head.position;
    info->epoch = machine->epoch;
    info->first_sequence = machine->head.sequence;
    info->next_sequence = machine->acked.sequence;
    info->record_bytes = machine->config.geometry.payload_max;
    info->copies = machine->config.geometry.copies;
    info->quorum = machine->config.geometry.quorum;
    info->ready = is_ours && machine->recovered && !machine->fenced && !machine->broken;
    for (unsigned i = 0; i < info->copies; i++)
        info->states[i] =
            is_ours ? copy_state(&machine->copies[i], &log->links[i]) : SW_PMEM_LOG_COPY_LOST;
}

const char *sw_pmem_log_status_text(enum sw_pmem_log_status status)
{
    switch (status) {
    case SW_PMEM_LOG_OK:
        return "it worked";
    case SW_PMEM_LOG_AGAIN:
        return "as many appends are under way as may be, or too few copies are there";
    case SW_PMEM_LOG_FULL:
        return "the log is full: trim it";
    case SW_PMEM_LOG_TOO_LONG:
        return "the record is too long";
    case SW_PMEM_LOG_END:
        return "there are no more records";
    case SW_PMEM_LOG_INVALID:
        return "an argument is not valid";
    case SW_PMEM_LOG_NO_LOG:
        return "there is no log, or one with another number of copies";
    case SW_PMEM_LOG_EXISTS:
        return "there is a log already";
    case SW_PMEM_LOG_TIMEOUT:
        return "the deadline has passed";
    case SW_PMEM_LOG_NOT_DONE:
        return "the record is not in the log, and never will be";
    case SW_PMEM_LOG_MAYBE_DONE:
        return "another writer has the log: it knows whether the record is there";
    case SW_PMEM_LOG_FENCED:
        return "another writer has the log";
    case SW_PMEM_LOG_DAMAGED:
        return "too many copies have lost what they had flushed, or are not of this log";
    case SW_PMEM_LOG_COPY:
        return "a copy cannot be reached";
    case SW_PMEM_LOG_NO_MEMORY:
        return "there is no memory";
    case SW_PMEM_LOG_TRIMMED:
        return "records were trimmed before they were read";
    case SW_PMEM_LOG_FORKED:
        return "the log or reader belongs to the parent of this process";
    }
    return "a status that is not known";
}
