/* SPDX-License-Identifier: BSD-2-Clause */
/* A new log: all of it is flushed before its superblock, so there is one or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pmem/log/driver.h"

static enum sw_pmem_log_status write_copy(const struct sw_pmem_log_options *options, bool replace,
                                          uint64_t deadline_ns, struct sw_pmem *pmem,
                                          struct sw_pmem_mem *mem, uint8_t *control,
                                          uint8_t *before)
{
    const enum sw_pmem_flush flush =
        options->visible_only ? SW_PMEM_FLUSH_VISIBLE : SW_PMEM_FLUSH_PERSISTENT;
    struct pml_geometry geometry;
    uint16_t copy = 0;
    enum sw_pmem_status status = sw_pmem_read(pmem, 0, before, PML_CONTROL_BYTES, mem, deadline_ns);
    if (status == SW_PMEM_OK && !replace &&
        pml_superblock_parse(before, &geometry, &copy) != PML_NO_LOG)
        return SW_PMEM_LOG_EXISTS;
    /* No superblock while the rest is written. */
    memset(before, 0, PML_LINE_BYTES);
    if (status == SW_PMEM_OK)
        status = sw_pmem_write_flush(pmem, 0, before, PML_LINE_BYTES, mem, flush, deadline_ns);
    if (status == SW_PMEM_OK)
        status = sw_pmem_write_flush(pmem, PML_LINE_BYTES, control + PML_LINE_BYTES,
                                     PML_CONTROL_BYTES - PML_LINE_BYTES, mem, flush, deadline_ns);
    if (status == SW_PMEM_OK)
        status = sw_pmem_write_flush(pmem, 0, control, PML_LINE_BYTES, mem, flush, deadline_ns);
    return status == SW_PMEM_OK        ? SW_PMEM_LOG_OK
           : status == SW_PMEM_TIMEOUT ? SW_PMEM_LOG_TIMEOUT
                                       : SW_PMEM_LOG_COPY;
}

static enum sw_pmem_log_status create_copy(const struct sw_pmem_log_options *options,
                                           const struct pml_geometry *geometry, uint16_t copy,
                                           bool replace, uint64_t deadline_ns,
                                           struct sw_pmem_error *error)
{
    uint8_t *buffer = aligned_alloc(PML_CONTROL_BYTES, (size_t)2 * PML_CONTROL_BYTES);
    struct sw_pmem *pmem = NULL;
    struct sw_pmem_mem *mem = NULL;
    struct sw_pmem_info info;
    enum sw_pmem_log_status status = SW_PMEM_LOG_COPY;
    if (!buffer)
        return SW_PMEM_LOG_NO_MEMORY;
    struct sw_pmem_options alone = options->copies[copy];
    alone.alone = true;
    char place[128];
    snprintf(place, sizeof(place), "%.80s%s%.20s", alone.address, alone.port ? " port " : "",
             alone.port ? alone.port : "");
    if (sw_pmem_open(&alone, error, &pmem) != SW_PMEM_OK)
        goto out;
    sw_pmem_info_of(pmem, &info);
    if (info.bytes < PML_RING_OFFSET || info.bytes - PML_RING_OFFSET < geometry->ring_bytes) {
        snprintf(error->text, sizeof(error->text),
                 "copy %u (%s) has %llu bytes, and the log takes %llu: a larger region, or less by "
                 "--ring",
                 copy + 1, place, (unsigned long long)info.bytes,
                 (unsigned long long)(PML_RING_OFFSET + geometry->ring_bytes));
        status = SW_PMEM_LOG_INVALID;
        goto out;
    }
    if (!options->visible_only && !info.persistent) {
        snprintf(error->text, sizeof(error->text),
                 "copy %u (%s): its device or memory has no persistent FLUSH", copy + 1, place);
        status = SW_PMEM_LOG_INVALID;
        goto out;
    }
    error->status = sw_pmem_mem_register(pmem, buffer, (size_t)2 * PML_CONTROL_BYTES, &mem);
    if (error->status != SW_PMEM_OK)
        goto out;
    pml_control_format(geometry, copy, buffer);
    status =
        write_copy(options, replace, deadline_ns, pmem, mem, buffer, buffer + PML_CONTROL_BYTES);
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
    for (uint16_t i = 0; i < full.copies; i++) {
        const enum sw_pmem_log_status status =
            create_copy(options, &full, i, replace, deadline_ns, error);
        if (status != SW_PMEM_LOG_OK)
            return status;
    }
    return SW_PMEM_LOG_OK;
}
