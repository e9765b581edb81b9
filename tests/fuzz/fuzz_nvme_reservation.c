/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reservation of a namespace under commands of some hosts, four bytes each: who, which command,
 * Dword 10, keys. Whatever they are, a failure changes nothing, who holds it is registered, and
 * only what the type allows is allowed.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/reservation.h"

enum { HOSTS = 8, KEYS = 8, COMMAND_BYTES = 4 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static struct nvt_host_id host_of(unsigned n)
{
    struct nvt_host_id id = {{0}};
    id.bytes[0] = (uint8_t)n;
    return id;
}

static void check_effect(const struct nvt_reservation *before, const struct nvt_host_id *by,
                         const struct nvt_reservation_effect *effect)
{
    for (size_t i = 0; i < effect->notice_count; i++) {
        demand(memcmp(&effect->notices[i].host, by, sizeof(*by)) != 0);
        demand(nvt_reservation_is_registrant(before, &effect->notices[i].host));
    }
    for (size_t i = 0; i < effect->abort_count; i++)
        demand(nvt_reservation_is_registrant(before, &effect->aborts[i]));
}

static void check_rights(const struct nvt_reservation *r)
{
    const bool excludes = r->rtype && r->rtype % 2 == 0;
    size_t holders = 0;
    for (unsigned n = 0; n < HOSTS; n++) {
        const struct nvt_host_id id = host_of(n);
        const bool holds = nvt_reservation_is_holder(r, &id),
                   registered = nvt_reservation_is_registrant(r, &id);
        const bool reads = nvt_reservation_allows(r, &id, NVT_ACCESS_READ) == 0,
                   writes = nvt_reservation_allows(r, &id, NVT_ACCESS_WRITE) == 0;
        holders += holds;
        demand(!holds || (registered && reads && writes));
        demand(!writes || reads);
        demand(writes == (!r->rtype || holds || (registered && r->rtype >= 3)));
        demand(reads == (writes || !excludes));
        demand(nvt_reservation_allows(r, &id, NVT_ACCESS_OTHER) == 0);
    }
    demand(holders == (!r->rtype ? 0 : r->rtype >= 5 ? r->count : 1));
    demand(!r->rtype || r->count);
}

static void run_command(struct nvt_reservation *r, const uint8_t *bytes)
{
    static struct nvt_reservation_effect effect;
    const struct nvt_reservation before = *r;
    const struct nvt_host_id id = host_of(bytes[0] % HOSTS);
    uint8_t data[NVT_REGISTER_BYTES] = {bytes[3] % KEYS,       0, 0, 0, 0, 0, 0, 0,
                                        bytes[3] / KEYS % KEYS};
    const uint32_t cdw10 = (bytes[1] & 0xfu) | (bytes[2] & 0xfu) << 8 | (bytes[2] & 0xc0u) << 24;
    uint16_t status;
    switch (bytes[1] >> 4 & 3) {
    case 0:
        status = nvt_reservation_register(r, &id, cdw10, data, &effect);
        break;
    case 1:
        status = nvt_reservation_release(r, &id, cdw10, data, &effect);
        break;
    default:
        status = nvt_reservation_acquire(r, &id, cdw10, data, &effect);
    }
    if (status) {
        demand(memcmp(r, &before, sizeof(before)) == 0);
        demand(!effect.notice_count && !effect.abort_count);
    }
    demand(r->generation - before.generation <= 1);
    check_effect(&before, &id, &effect);
    check_rights(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t report[NVT_REPORT_BYTES];
    struct nvt_reservation r;
    size_t len = 0;
    memset(&r, 0, sizeof(r));
    for (; size >= COMMAND_BYTES; size -= COMMAND_BYTES, data += COMMAND_BYTES)
        run_command(&r, data);
    demand(nvt_reservation_report(&r, 1, report, &len) == 0 && len <= sizeof(report));
    return 0;
}
