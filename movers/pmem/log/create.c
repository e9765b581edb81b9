/* SPDX-License-Identifier: BSD-2-Clause */
/* A new log: all of it is flushed before its superblock, so there is one or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pmem/log/driver.h"

struct making {
    const struct sw_pmem_log_options *options;
    struct pml_geometry geometry;
    bool replaces, only_looks;
    uint32_t made; /* copies that are of the log, which no writer has had yet */
    uint64_t deadline_ns;
    struct sw_pmem_error *error;
};

/* The copy has no log, or one that no writer has had. The first copy that has one says which log it
 * becomes. */
static bool may_be_made(struct making *m, uint16_t copy, const uint8_t *found, uint8_t *control)
{
    struct pml_geometry there;
    uint16_t which = 0;
    const enum pml_verdict verdict = pml_superblock_parse(found, &there, &which);
    m->made &= ~(1u << copy);
    if (verdict == PML_NO_LOG)
        return true;
    if (verdict != PML_FINE)
        return false;
    if (!m->made)
        memcpy(m->geometry.id, there.id, PML_ID_BYTES);
    pml_control_format(&m->geometry, copy, control);
    if (memcmp(found, control, PML_CONTROL_BYTES) != 0)
        return false;
    m->made |= 1u << copy;
    return true;
}

static enum sw_pmem_log_status write_copy(struct making *m, uint16_t copy, struct sw_pmem *pmem,
                                          struct sw_pmem_mem *mem, uint8_t *control,
                                          uint8_t *before)
{
    const enum sw_pmem_flush flush =
        m->options->visible_only ? SW_PMEM_FLUSH_VISIBLE : SW_PMEM_FLUSH_PERSISTENT;
    enum sw_pmem_status status =
        sw_pmem_read(pmem, 0, before, PML_CONTROL_BYTES, mem, m->deadline_ns);
    if (status == SW_PMEM_OK && !m->replaces && !may_be_made(m, copy, before, control))
        return SW_PMEM_LOG_EXISTS;
    if (status == SW_PMEM_OK && (m->only_looks || m->made >> copy & 1))
        return SW_PMEM_LOG_OK; /* it is as it has to be */
    pml_control_format(&m->geometry, copy, control);
    /* No superblock while the rest is written. */
    memset(before, 0, PML_LINE_BYTES);
    if (status == SW_PMEM_OK)
        status = sw_pmem_write_flush(pmem, 0, before, PML_LINE_BYTES, mem, flush, m->deadline_ns);
    if (status == SW_PMEM_OK)
        status =
            sw_pmem_write_flush(pmem, PML_LINE_BYTES, control + PML_LINE_BYTES,
                                PML_CONTROL_BYTES - PML_LINE_BYTES, mem, flush, m->deadline_ns);
    if (status == SW_PMEM_OK)
        status = sw_pmem_write_flush(pmem, 0, control, PML_LINE_BYTES, mem, flush, m->deadline_ns);
    if (status == SW_PMEM_OK)
        m->made |= 1u << copy;
    return status == SW_PMEM_OK        ? SW_PMEM_LOG_OK
           : status == SW_PMEM_TIMEOUT ? SW_PMEM_LOG_TIMEOUT
                                       : SW_PMEM_LOG_COPY;
}

static enum sw_pmem_log_status create_copy(struct making *m, uint16_t copy)
{
    uint8_t *buffer = aligned_alloc(PML_CONTROL_BYTES, (size_t)2 * PML_CONTROL_BYTES);
    struct sw_pmem *pmem = NULL;
    struct sw_pmem_mem *mem = NULL;
    struct sw_pmem_info info;
    struct sw_pmem_error *error = m->error;
    enum sw_pmem_log_status status = SW_PMEM_LOG_COPY;
    if (!buffer)
        return SW_PMEM_LOG_NO_MEMORY;
    struct sw_pmem_options options = m->options->copies[copy];
    options.alone = !m->only_looks;
    char place[128];
    snprintf(place, sizeof(place), "%.80s%s%.20s", options.address, options.port ? " port " : "",
             options.port ? options.port : "");
    if (sw_pmem_open(&options, error, &pmem) != SW_PMEM_OK)
        goto out;
    sw_pmem_info_of(pmem, &info);
    if (info.bytes < PML_RING_OFFSET || info.bytes - PML_RING_OFFSET < m->geometry.ring_bytes) {
        snprintf(error->text, sizeof(error->text),
                 "copy %u (%s) has %llu bytes, and the log takes %llu: a larger region, or less by "
                 "--ring",
                 copy + 1, place, (unsigned long long)info.bytes,
                 (unsigned long long)(PML_RING_OFFSET + m->geometry.ring_bytes));
        status = SW_PMEM_LOG_INVALID;
        goto out;
    }
    if (!m->options->visible_only && !info.persistent) {
        snprintf(error->text, sizeof(error->text),
                 "copy %u (%s): its device or memory has no persistent FLUSH", copy + 1, place);
        status = SW_PMEM_LOG_INVALID;
        goto out;
    }
    error->status = sw_pmem_mem_register(pmem, buffer, (size_t)2 * PML_CONTROL_BYTES, &mem);
    if (error->status != SW_PMEM_OK)
        goto out;
    status = write_copy(m, copy, pmem, mem, buffer, buffer + PML_CONTROL_BYTES);
    if (status != SW_PMEM_LOG_OK)
        snprintf(error->text, sizeof(error->text), "copy %u (%s): %s", copy + 1, place,
                 sw_pmem_log_status_text(status));
out:
    if (mem)
        sw_pmem_mem_release(mem);
    if (pmem)
        sw_pmem_close(pmem);
    free(buffer);
    return status;
}

/* Several may make a log at a time, and one may die amid it. Each looks at all copies first. Then
 * all write in the same order, each as the only one that may write to a copy. So they agree which
 * log it becomes, and one goes on where another has stopped. A log that a writer has had is left
 * alone: a copy that is made anew would lack what that writer believes to be there. */
static enum sw_pmem_log_status create_copies(struct making *m)
{
    enum sw_pmem_log_status status = SW_PMEM_LOG_OK;
    m->only_looks = !m->replaces;
    for (uint16_t i = 0; m->only_looks && !status && i < m->geometry.copies; i++)
        status = create_copy(m, i);
    if (!status && m->made == (1u << m->geometry.copies) - 1) {
        snprintf(m->error->text, sizeof(m->error->text), "%s",
                 sw_pmem_log_status_text(SW_PMEM_LOG_EXISTS));
        return SW_PMEM_LOG_EXISTS;
    }
    m->only_looks = false;
    for (uint16_t i = 0; !status && i < m->geometry.copies; i++)
        status = create_copy(m, i);
    return status;
}

enum sw_pmem_log_status sw_pmem_log_create(const struct sw_pmem_log_options *options,
                                           const struct sw_pmem_log_geometry *geometry,
                                           bool replace, uint64_t deadline_ns,
                                           struct sw_pmem_error *error)
{
    struct sw_pmem_error unused;
    struct pml_geometry full;
    if (!error)
        error = &unused;
    memset(error, 0, sizeof(*error));
    memset(&full, 0, sizeof(full));
    if (options->copies_count < 1 || options->copies_count > PML_COPIES_MAX)
        return SW_PMEM_LOG_INVALID;
    full.copies = (uint16_t)options->copies_count;
    full.quorum = (uint16_t)(options->copies_count / 2 + 1);
    full.ring_bytes = geometry->ring_bytes;
    full.payload_max = geometry->record_bytes;
    if (!pml_geometry_is_valid(&full)) {
        snprintf(error->text, sizeof(error->text),
                 "the ring has to be a multiple of 64 bytes, and to hold four of the largest "
                 "records");
        return SW_PMEM_LOG_INVALID;
    }
    if (!pml_stage_bytes_of(&full)) {
        snprintf(error->text, sizeof(error->text),
                 "a ring of %llu bytes cannot be divided into parts of about 1 MiB that hold two "
                 "records, as a writer needs; one of %llu can",
                 (unsigned long long)full.ring_bytes,
                 (unsigned long long)pml_ring_bytes_above(&full));
        return SW_PMEM_LOG_INVALID;
    }
    if (getrandom(full.id, sizeof(full.id), 0) != sizeof(full.id))
        return SW_PMEM_LOG_NO_MEMORY;
    struct making making = {.options = options,
                            .geometry = full,
                            .replaces = replace,
                            .deadline_ns = deadline_ns,
                            .error = error};
    return create_copies(&making);
}
