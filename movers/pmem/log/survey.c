/* SPDX-License-Identifier: BSD-2-Clause */
/* What is seen of a log, and what each of its copies says: also where too few of them answer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "pmem/log/driver.h"
#include "pmem/log/follow.h"

/* For copies that do not answer. Less would call one lost whose server waits for a processor. */
enum { SURVEY_MS = 1000, MS_PER_S = 1000 };

struct survey {
    struct sw_pmem_log_reader *reader;
    uint64_t began_ns;
    struct sw_pmem_error errors[PML_COPIES_MAX];
};

/* Control pages of all copies; bits of those that could not be had. */
static uint32_t read_controls(struct sw_pmem_log_reader *r)
{
    const uint64_t deadline_ns = sw_pmem_deadline_ms(SURVEY_MS);
    uint32_t missing = (1u << r->options.copies_count) - 1, asked = 0;
    for (;;) {
        for (unsigned i = 0; i < r->options.copies_count; i++) {
            const uint32_t bit = 1u << i;
            sw_pmem_poll(r->links[i].pmem);
            if (!(missing & bit) || r->links[i].is_busy)
                continue;
            if (asked & bit && r->links[i].is_fine)
                missing &= ~bit;
            else if (pml_follow_ask_control(r, i))
                asked |= bit;
            else
                asked &= ~bit;
        }
        if (!missing || pml_is_over(deadline_ns))
            return missing;
        pml_follow_nap(r);
    }
}

/* A copy without an answer: its connection was refused or has ended, or nothing is known. */
static enum sw_pmem_log_copy_state tell_missing(struct survey *s, unsigned copy)
{
    struct sw_pmem_error *error = &s->errors[copy];
    const struct sw_pmem *pmem = s->reader->links[copy].pmem;
    const enum sw_pmem_state state = sw_pmem_state_of(pmem);
    if (state == SW_PMEM_LOST || state == SW_PMEM_DEAD) {
        sw_pmem_last_error(pmem, error);
        return SW_PMEM_LOG_COPY_LOST;
    }
    const uint64_t waited_ms = (sw_pmem_deadline_ms(0) - s->began_ns) / NS_PER_MS;
    error->status = SW_PMEM_TIMEOUT;
    snprintf(error->text, sizeof(error->text), "no answer within %" PRIu64 ".%" PRIu64 " s",
             waited_ms / MS_PER_S, waited_ms % MS_PER_S / (MS_PER_S / 10));
    return SW_PMEM_LOG_COPY_SILENT;
}

static enum sw_pmem_log_copy_state survey_copy(const struct sw_pmem_log_reader *r, unsigned copy)
{
    if (r->damaged >> copy & 1 || pml_follow_is_spoilt(r, copy))
        return SW_PMEM_LOG_COPY_DAMAGED;
    return pml_reader_is_current(&r->reader, copy) ? SW_PMEM_LOG_COPY_LIVE
                                                   : SW_PMEM_LOG_COPY_BEHIND;
}

/* A copy that answers where no quorum says which log there is. */
static enum sw_pmem_log_copy_state survey_alone(struct survey *s, unsigned copy)
{
    const struct sw_pmem_log_reader *r = s->reader;
    struct sw_pmem_error *error = &s->errors[copy];
    struct pml_geometry geometry;
    uint16_t which = 0;
    const enum pml_verdict verdict =
        pml_superblock_parse(r->links[copy].look->control, &geometry, &which);
    if (verdict == PML_FINE && which == copy && geometry.copies == r->options.copies_count)
        return SW_PMEM_LOG_COPY_UNSURE;
    error->status = verdict == PML_FINE ? SW_PMEM_OTHER_REGION : SW_PMEM_NO_REGION;
    if (verdict == PML_FINE)
        snprintf(error->text, sizeof(error->text),
                 "there is copy %u of a log of %u, not copy %u of a log of %u", which + 1u,
                 geometry.copies, copy + 1, r->options.copies_count);
    else
        snprintf(error->text, sizeof(error->text), "there is no copy %u of a log of %u", copy + 1,
                 r->options.copies_count);
    return SW_PMEM_LOG_COPY_DAMAGED;
}

static void survey_copies(struct survey *s, bool is_log_known, struct sw_pmem_log_info *info)
{
    const uint32_t missing = read_controls(s->reader);
    for (unsigned i = 0; i < info->copies; i++)
        info->states[i] = missing >> i & 1 ? tell_missing(s, i)
                          : is_log_known   ? survey_copy(s->reader, i)
                                           : survey_alone(s, i);
}

/* Reads on to where the log's end was. */
static enum sw_pmem_log_status count_records(struct sw_pmem_log_reader *r,
                                             struct sw_pmem_log_mark *mark, uint64_t limit,
                                             struct sw_pmem_log_info *info, uint64_t deadline_ns)
{
    uint32_t bytes;
    enum sw_pmem_log_status status = SW_PMEM_LOG_OK;
    uint8_t *record = malloc(r->geometry.payload_max + 1ul);
    if (!record)
        return SW_PMEM_LOG_NO_MEMORY;
    info->first_sequence = mark->sequence;
    uint64_t from = mark->position;
    while (mark->position < limit && !status) {
        status =
            sw_pmem_log_reader_next(r, mark, record, r->geometry.payload_max, &bytes, deadline_ns);
        if (status != SW_PMEM_LOG_TRIMMED)
            continue;
        info->first_sequence = mark->sequence;
        from = mark->position;
        status = SW_PMEM_LOG_OK;
    }
    free(record);
    info->next_sequence = mark->sequence;
    info->used_bytes = mark->position - from;
    return status;
}

static enum sw_pmem_log_status see_log(struct survey *s, struct sw_pmem_log_info *info,
                                       uint64_t deadline_ns)
{
    struct sw_pmem_log_reader *r = s->reader;
    struct sw_pmem_log_mark mark;
    uint64_t limit = 0;
    memset(info, 0, sizeof(*info));
    info->ring_bytes = r->geometry.ring_bytes;
    info->record_bytes = r->geometry.payload_max;
    info->copies = r->geometry.copies;
    info->quorum = r->geometry.quorum;
    enum sw_pmem_log_status status = sw_pmem_log_reader_head(r, &mark, deadline_ns);
    survey_copies(s, true, info);
    info->ready = !status && pml_follow_limit(r, &limit);
    if (info->ready) {
        info->epoch = pml_reader_epoch(&r->reader);
        status = count_records(r, &mark, limit, info, deadline_ns);
        info->ready = !status;
    }
    return status ? status : info->ready ? SW_PMEM_LOG_OK : SW_PMEM_LOG_TIMEOUT;
}

enum sw_pmem_log_status sw_pmem_log_reader_info_of(struct sw_pmem_log_reader *r,
                                                   struct sw_pmem_log_info *info,
                                                   uint64_t deadline_ns)
{
    struct survey survey = {.reader = r, .began_ns = sw_pmem_deadline_ms(0)};
    if (mover_is_forked(&r->guard)) {
        memset(info, 0, sizeof(*info));
        return SW_PMEM_LOG_FORKED;
    }
    return see_log(&survey, info, deadline_ns);
}

enum sw_pmem_log_status sw_pmem_log_survey(const struct sw_pmem_log_options *options,
                                           uint64_t deadline_ns, struct sw_pmem_log_info *info,
                                           struct sw_pmem_error *errors,
                                           struct sw_pmem_error *error)
{
    struct survey survey = {.began_ns = sw_pmem_deadline_ms(0)};
    struct sw_pmem_error unused;
    memset(info, 0, sizeof(*info));
    enum sw_pmem_log_status status =
        pml_follow_open(options, deadline_ns, error ? error : &unused, &survey.reader);
    if (!survey.reader)
        return status;
    if (status) {
        info->copies = options->copies_count;
        info->quorum = options->copies_count / 2 + 1;
        survey_copies(&survey, false, info);
    } else {
        status = see_log(&survey, info, deadline_ns);
    }
    memcpy(errors, survey.errors, options->copies_count * sizeof(*errors));
    sw_pmem_log_reader_close(survey.reader);
    return status;
}
