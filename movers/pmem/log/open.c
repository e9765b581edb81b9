/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening and closing: handles of all copies, the geometry that a quorum of them has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmem/log/driver.h"

enum {
    CHUNK_BYTES_MIN = 1 << 16,
    CLOSE_MS = 1000,
    PATIENCE_MS = 100, /* for copies that a quorum could do without */
    CHAINS_MIN = 2 * PML_GROUPS_MAX
};

void sw_pmem_log_options_init(struct sw_pmem_log_options *options)
{
    memset(options, 0, sizeof(*options));
    options->window = 1;
}

/* Waits for a quorum of copies that say the same of the log. */
static enum sw_pmem_log_status read_geometry(struct sw_pmem_log *log, uint64_t deadline_ns,
                                             struct pml_geometry *geometry,
                                             struct sw_pmem_error *error)
{
    uint8_t *control = aligned_alloc(PML_CONTROL_BYTES, PML_CONTROL_BYTES);
    struct pml_census census = {.copies = (uint16_t)log->options.copies_count};
    enum pml_verdict verdict = PML_UNDECIDED;
    if (!control)
        return SW_PMEM_LOG_NO_MEMORY;
    for (unsigned i = 0; verdict == PML_UNDECIDED && !pml_is_over(deadline_ns);
         i = (i + 1) % log->options.copies_count) {
        struct sw_pmem *pmem = log->links[i].pmem;
        struct sw_pmem_mem *mem = NULL;
        struct sw_pmem_info info;
        if (sw_pmem_wait_live(pmem, sw_pmem_deadline_ms(1)) != SW_PMEM_OK ||
            sw_pmem_mem_register(pmem, control, PML_CONTROL_BYTES, &mem) != SW_PMEM_OK) {
            sw_pmem_last_error(pmem, error);
            pml_sleep(log);
            continue;
        }
        sw_pmem_info_of(pmem, &info);
        if (sw_pmem_read(pmem, 0, control, PML_CONTROL_BYTES, mem, deadline_ns) == SW_PMEM_OK)
            pml_census_take(&census, i, control, info.bytes);
        sw_pmem_mem_release(mem);
        verdict = pml_census_end(&census, geometry);
    }
    free(control);
    return verdict == PML_FINE        ? SW_PMEM_LOG_OK
           : verdict == PML_UNDECIDED ? SW_PMEM_LOG_TIMEOUT
                                      : SW_PMEM_LOG_NO_LOG;
}

static enum sw_pmem_log_status make_machine(struct sw_pmem_log *log,
                                            const struct pml_geometry *geometry)
{
    const uint64_t record = pml_record_bytes(geometry->payload_max);
    struct pml_config config = {.geometry = *geometry, .window = log->options.window};
    config.stage_bytes =
        log->options.stage_bytes ? log->options.stage_bytes : pml_stage_bytes_of(geometry);
    config.chunk_bytes = record > CHUNK_BYTES_MIN ? record : CHUNK_BYTES_MIN;
    const uint64_t bytes = pml_memory_bytes(&config);
    if (!bytes)
        return SW_PMEM_LOG_INVALID;
    log->memory_bytes =
        (bytes + record + PML_CONTROL_BYTES - 1) / PML_CONTROL_BYTES * PML_CONTROL_BYTES;
    log->memory = aligned_alloc(PML_CONTROL_BYTES, log->memory_bytes);
    if (!log->memory)
        return SW_PMEM_LOG_NO_MEMORY;
    memset(log->memory, 0, log->memory_bytes);
    log->read_buffer = log->memory + bytes;
    pml_init(&log->machine, &config, log->memory);
    return SW_PMEM_LOG_OK;
}

/* The election that did not come: which copy is out of it, so that too few are left. */
static void say_doubted(const struct sw_pmem_log *log, struct sw_pmem_error *error)
{
    for (unsigned i = 0; i < log->machine.config.geometry.copies; i++) {
        const struct pml_copy *copy = &log->machine.copies[i];
        const struct sw_pmem_options *at = &log->options.copies[i];
        if (copy->state == PML_SCANNED && copy->is_doubted) {
            snprintf(error->text, sizeof(error->text),
                     "copy %u (%s%s%s) is damaged: the others do not bear out its words. Without "
                     "it there are too few; start the servers of those that are away",
                     i + 1, at->address, at->port ? " port " : "", at->port ? at->port : "");
            return;
        }
    }
}

static enum sw_pmem_log_status recover_log(struct sw_pmem_log *log, uint64_t deadline_ns,
                                           struct sw_pmem_error *error)
{
    struct pml_log *machine = &log->machine;
    const uint64_t patience_ns = sw_pmem_deadline_ms(PATIENCE_MS);
    for (;;) {
        unsigned bad = 0;
        pml_be_patient(machine, !machine->recovered && !pml_is_over(patience_ns));
        pml_drive(log);
        for (unsigned i = 0; i < machine->config.geometry.copies; i++)
            bad += machine->copies[i].state == PML_BAD;
        if (machine->recovered) {
            pml_be_patient(machine, false);
            return SW_PMEM_LOG_OK;
        }
        if (machine->fenced)
            return SW_PMEM_LOG_FENCED;
        if (machine->broken ||
            bad > machine->config.geometry.copies - (unsigned)machine->config.geometry.quorum)
            return SW_PMEM_LOG_DAMAGED;
        if (pml_is_over(deadline_ns)) {
            say_doubted(log, error);
            return SW_PMEM_LOG_TIMEOUT;
        }
        pml_sleep(log);
    }
}

enum sw_pmem_log_status sw_pmem_log_open(const struct sw_pmem_log_options *options,
                                         uint64_t deadline_ns, struct sw_pmem_error *error,
                                         struct sw_pmem_log **out)
{
    struct sw_pmem_error unused;
    struct pml_geometry geometry;
    if (!error)
        error = &unused;
    memset(error, 0, sizeof(*error));
    if (options->copies_count < 1 || options->copies_count > PML_COPIES_MAX)
        return SW_PMEM_LOG_INVALID;
    struct sw_pmem_log *log = calloc(1, sizeof(*log));
    if (!log)
        return SW_PMEM_LOG_NO_MEMORY;
    log->options = *options;
    enum sw_pmem_log_status status =
        mover_fork_guard_open(&log->guard) ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_MEMORY;
    for (unsigned i = 0; i < options->copies_count && status == SW_PMEM_LOG_OK; i++) {
        struct sw_pmem_options copy = options->copies[i];
        copy.loss_timeout_ms = UINT32_MAX; /* it is the log that decides what to do without it */
        copy.keeps_trying = true;
        copy.alone = true; /* from here on, the writer before this one stores nothing more */
        if (copy.chains < CHAINS_MIN)
            copy.chains = CHAINS_MIN; /* else a slow copy would hold up the others */
        log->links[i].log = log;
        log->links[i].copy = i;
        if (sw_pmem_start(&copy, error, &log->links[i].pmem) != SW_PMEM_OK)
            status = SW_PMEM_LOG_COPY;
    }
    if (status == SW_PMEM_LOG_OK)
        status = read_geometry(log, deadline_ns, &geometry, error);
    if (status == SW_PMEM_LOG_OK)
        status = make_machine(log, &geometry);
    if (status == SW_PMEM_LOG_OK)
        status = recover_log(log, deadline_ns, error);
    if (status != SW_PMEM_LOG_OK) {
        if (!error->text[0])
            snprintf(error->text, sizeof(error->text), "%s", sw_pmem_log_status_text(status));
        sw_pmem_log_close(log);
        return status;
    }
    *out = log;
    return SW_PMEM_LOG_OK;
}

void sw_pmem_log_close(struct sw_pmem_log *log)
{
    if (!log)
        return;
    const bool is_ours = !mover_is_forked(&log->guard);
    for (unsigned i = 0; i < log->options.copies_count; i++) {
        struct pml_link *link = &log->links[i];
        const uint64_t deadline_ns = sw_pmem_deadline_ms(CLOSE_MS);
        link->is_failing = true; /* results that come now are nobody's */
        while (is_ours && link->under_way && !pml_is_over(deadline_ns))
            sw_pmem_wait(link->pmem, deadline_ns);
        if (link->pmem)
            sw_pmem_close(link->pmem); /* and the memory that a chain still uses */
    }
    if (is_ours) /* else the parent's devices have these pages, which a child may lack */
        free(log->memory);
    mover_fork_guard_close(&log->guard);
    free(log);
}
