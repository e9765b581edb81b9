/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/addresses.h"

#include <string.h>

#include "common/text/endpoint.h"

static const char *addresses_add_one(struct nvh_addresses *addresses, const char *text, size_t len)
{
    struct sw_nvme_address *address = &addresses->list[addresses->count];
    if (addresses->count == SW_NVME_PATHS_MAX)
        return "there are more than 8 addresses";
    char *copy = addresses->texts[addresses->count];
    if (len >= NVH_ADDRESS_BYTES)
        return "an address is too long";
    memcpy(copy, text, len);
    copy[len] = '\0';
    *address = (struct sw_nvme_address){0};
    if (!mover_split_endpoint(copy, &address->traddr, &address->trsvcid))
        return "an address is ADDR, ADDR:PORT or [ADDR]:PORT";
    addresses->count++;
    return NULL;
}

const char *nvh_addresses_add(struct nvh_addresses *addresses, const char *text)
{
    const char *wrong = NULL;
    for (const char *at = text; at && !wrong;) {
        const char *end = strchrnul(at, ',');
        wrong = addresses_add_one(addresses, at, (size_t)(end - at));
        at = *end ? end + 1 : NULL;
    }
    return wrong;
}

void nvh_addresses_use(struct nvh_addresses *addresses, struct sw_nvme_options *options)
{
    for (uint32_t i = 0; i < addresses->count; i++)
        if (!addresses->list[i].trsvcid)
            addresses->list[i].trsvcid = options->trsvcid;
    options->traddr = addresses->list[0].traddr;
    options->trsvcid = addresses->list[0].trsvcid;
    options->more = addresses->list + 1;
    options->more_count = addresses->count ? addresses->count - 1 : 0;
}
