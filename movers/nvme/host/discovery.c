/* SPDX-License-Identifier: BSD-2-Clause */
/* The discovery log, whole and of one generation. Source: NVMe Base 2.0, 5.16.1.23. */
#include <stdlib.h>
#include <string.h>

#include "nvme/host/controller.h"

enum { PAGE = 0x70, RECORD_BYTES = 1024, RECORDS_MAX = 4096, TRIES = 10 };
static_assert(sizeof(struct nvmf_disc_log_entry) == RECORD_BYTES, "a record");
static_assert(sizeof(struct nvmf_discovery_log) == RECORD_BYTES, "the header");

static enum sw_nvme_status explain_status(struct sw_nvme_controller *c, enum sw_nvme_status status,
                                          const struct sw_nvme_result *result,
                                          struct sw_nvme_error *error)
{
    nvh_error(error, status, "the discovery log of %s cannot be read: %s", c->where,
              status == SW_NVME_FAILED ? sw_nvme_code_text(result->nvme_status)
                                       : sw_nvme_status_text(status));
    if (error)
        error->nvme_status = result->nvme_status;
    return status;
}

enum sw_nvme_status sw_nvme_discover(struct sw_nvme_controller *controller, void **log,
                                     uint64_t *records, struct sw_nvme_error *error)
{
    struct nvmf_discovery_log header;
    struct sw_nvme_result result = {0};
    for (unsigned i = 0; i < TRIES; i++) {
        enum sw_nvme_status status =
            sw_nvme_get_log(controller, PAGE, 0, 0, &header, sizeof(header), &result);
        if (status)
            return explain_status(controller, status, &result, error);
        if (le64toh(header.numrec) > RECORDS_MAX)
            return nvh_error(error, SW_NVME_PROTOCOL, "%s speaks of %llu discovery records",
                             controller->where, (unsigned long long)le64toh(header.numrec));
        const uint32_t count = (uint32_t)le64toh(header.numrec);
        struct nvmf_discovery_log *all = calloc(count + 1, RECORD_BYTES);
        if (!all)
            return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for %u records", count);
        status = sw_nvme_get_log(controller, PAGE, 0, 0, all, (count + 1) * RECORD_BYTES, &result);
        /* Pieces of a log that changes do not fit together: look at the generation once more. */
        if (!status)
            status = sw_nvme_get_log(controller, PAGE, 0, 0, &header, sizeof(header), &result);
        if (status) {
            free(all);
            return explain_status(controller, status, &result, error);
        }
        if (header.genctr == all->genctr && le64toh(all->numrec) == count) {
            *log = all;
            *records = count;
            return SW_NVME_OK;
        }
        free(all);
    }
    return nvh_error(error, SW_NVME_AGAIN, "the discovery log of %s changes all the time",
                     controller->where);
}

/* ---- other paths ---- */

struct found_address {
    char traddr[NVMF_TRADDR_SIZE + 1], trsvcid[NVMF_TRSVCID_SIZE + 1];
};

/* A field of a record, which blanks or a zero end. */
static void copy_field(const char *field, size_t bytes, char *out)
{
    size_t len = 0;
    while (len < bytes && field[len] > ' ' && field[len] < 0x7f)
        len++;
    memcpy(out, field, len);
    out[len] = '\0';
}

/* Another way to that subsystem, which is not in the list yet. */
static bool is_another(const struct nvmf_disc_log_entry *record,
                       const struct sw_nvme_options *options, const struct found_address *found,
                       const struct found_address *known, uint32_t count)
{
    const char *port = options->trsvcid && *options->trsvcid ? options->trsvcid : "4420";
    if (record->trtype != NVMF_TRTYPE_RDMA || !*found->traddr ||
        strncmp(record->subnqn, options->subsysnqn, sizeof(record->subnqn)) != 0 ||
        (!strcmp(found->traddr, options->traddr) && !strcmp(found->trsvcid, port)))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!memcmp(&known[i], found, sizeof(*found)))
            return false;
    return true;
}

/* One piece of memory has all of them, so that free() is enough. */
static struct sw_nvme_address *pick_addresses(const struct nvmf_discovery_log *log,
                                              uint64_t records,
                                              const struct sw_nvme_options *options,
                                              uint32_t *count)
{
    enum { MOST = SW_NVME_PATHS_MAX - 1 };
    struct sw_nvme_address *out = calloc(MOST, sizeof(*out) + sizeof(struct found_address));
    struct found_address *known = (struct found_address *)(out + MOST);
    *count = 0;
    for (uint64_t i = 0; out && i < records && *count < MOST; i++) {
        struct found_address found = {0};
        copy_field(log->entries[i].traddr, NVMF_TRADDR_SIZE, found.traddr);
        copy_field(log->entries[i].trsvcid, NVMF_TRSVCID_SIZE, found.trsvcid);
        if (!is_another(&log->entries[i], options, &found, known, *count))
            continue;
        known[*count] = found;
        out[*count] = (struct sw_nvme_address){.traddr = known[*count].traddr,
                                               .trsvcid = known[*count].trsvcid,
                                               .host_traddr = options->host_traddr};
        ++*count;
    }
    return out;
}

enum sw_nvme_status sw_nvme_find_paths(const struct sw_nvme_options *options,
                                       struct sw_nvme_address **addresses, uint32_t *count,
                                       struct sw_nvme_error *error)
{
    struct sw_nvme_options own = *options;
    struct sw_nvme_controller *c;
    void *log;
    uint64_t records;
    if (!options->subsysnqn || !options->traddr)
        return nvh_error(error, SW_NVME_INVALID, "paths are those of an address and a subsystem");
    own.subsysnqn = NULL;
    own.more_count = 0;
    own.background = false;
    own.keep_alive_ms = 0;
    own.dhchap_ctrl_secret = NULL; /* discovery asks for none */
    enum sw_nvme_status status = sw_nvme_connect(&own, error, &c);
    if (status)
        return status;
    status = sw_nvme_discover(c, &log, &records, error);
    sw_nvme_disconnect(c);
    if (status)
        return status;
    struct sw_nvme_address *found = pick_addresses(log, records, options, count);
    free(log);
    if (!found)
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for the paths");
    *addresses = found;
    return SW_NVME_OK;
}
