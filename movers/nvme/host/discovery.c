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
