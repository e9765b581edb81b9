/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/reservation.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "nvme/wire/fabrics.h"

/* Fields of Command Dword 10, which the three commands share. */
enum { ACTION_BITS = 0x7, IGNORE_KEY = 1 << 3, RTYPE_SHIFT = 8, PERSIST_SHIFT = 30 };
enum { CNTLID_DYNAMIC = 0xffff, EXTENDED = 1 << 0, NALP_MAX = 255 };

static const uint16_t conflict = NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR;
static const uint16_t invalid_field = NVME_SC_INVALID_FIELD | NVME_SC_DNR;

static uint64_t key_at(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static bool same_host(const struct nvt_host_id *a, const struct nvt_host_id *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool all_hold(uint8_t rtype)
{
    return rtype == NVME_RESERVATION_RTYPE_WEAR || rtype == NVME_RESERVATION_RTYPE_EAAR;
}

/* Types under which registrants have rights that they lose with the reservation. */
static bool registrants_share(uint8_t rtype)
{
    return rtype >= NVME_RESERVATION_RTYPE_WERO;
}

static struct nvt_registrant *find_registrant(const struct nvt_reservation *r,
                                              const struct nvt_host_id *host)
{
    for (size_t i = 0; i < r->count; i++)
        if (same_host(&r->registrants[i].host, host))
            return (struct nvt_registrant *)&r->registrants[i];
    return NULL;
}

bool nvt_reservation_is_registrant(const struct nvt_reservation *r, const struct nvt_host_id *host)
{
    return find_registrant(r, host) != NULL;
}

bool nvt_reservation_is_holder(const struct nvt_reservation *r, const struct nvt_host_id *host)
{
    if (!r->rtype)
        return false;
    return all_hold(r->rtype) ? find_registrant(r, host) != NULL : same_host(&r->holder, host);
}

static void add_notice(struct nvt_reservation_effect *effect, const struct nvt_host_id *host,
                       enum nvme_resv_notify_rnlpt type)
{
    assert(effect->notice_count < sizeof(effect->notices) / sizeof(*effect->notices));
    effect->notices[effect->notice_count++] = (struct nvt_notice){*host, type};
}

static void tell_others(const struct nvt_reservation *r, const struct nvt_host_id *host,
                        enum nvme_resv_notify_rnlpt type, struct nvt_reservation_effect *effect)
{
    for (size_t i = 0; i < r->count; i++)
        if (!same_host(&r->registrants[i].host, host))
            add_notice(effect, &r->registrants[i].host, type);
}

static void set_holder(struct nvt_reservation *r, const struct nvt_host_id *host, uint8_t rtype)
{
    r->rtype = rtype;
    r->holder = *host;
}

/* A reservation of an all-registrants type goes with the last of them. */
static void remove_registrant(struct nvt_reservation *r, struct nvt_registrant *registrant,
                              struct nvt_reservation_effect *effect)
{
    const struct nvt_host_id host = registrant->host;
    const bool held = r->rtype && !all_hold(r->rtype) && same_host(&r->holder, &host);
    const size_t at = (size_t)(registrant - r->registrants);
    assert(at < r->count);
    r->count--;
    memmove(registrant, registrant + 1, (r->count - at) * sizeof(*registrant));
    if (held && registrants_share(r->rtype))
        tell_others(r, &host, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED, effect);
    if (held || !r->count)
        r->rtype = 0;
}

static uint16_t register_new(struct nvt_reservation *r, const struct nvt_host_id *host,
                             uint64_t new_key)
{
    const struct nvt_registrant *mine = find_registrant(r, host);
    if (mine)
        return mine->key == new_key ? 0 : conflict;
    if (r->count == NVT_REGISTRANTS_MAX)
        return NVME_SC_INTERNAL | NVME_SC_DNR;
    r->registrants[r->count++] = (struct nvt_registrant){*host, new_key};
    return 0;
}

uint16_t nvt_reservation_register(struct nvt_reservation *r, const struct nvt_host_id *host,
                                  uint32_t cdw10, const uint8_t data[NVT_REGISTER_BYTES],
                                  struct nvt_reservation_effect *effect)
{
    const uint64_t current_key = key_at(data), new_key = key_at(data + 8);
    const uint32_t persists = cdw10 >> PERSIST_SHIFT;
    *effect = (struct nvt_reservation_effect){0};
    /* It persists or it does not, as RESCAP says: hosts cannot choose. */
    if (persists != NVME_RESERVATION_CPTPL_NO_CHANGE &&
        persists != (r->persists ? NVME_RESERVATION_CPTPL_PERSIST : NVME_RESERVATION_CPTPL_CLEAR))
        return invalid_field;
    struct nvt_registrant *mine = find_registrant(r, host);
    const bool knows_key = mine && (cdw10 & IGNORE_KEY || mine->key == current_key);
    uint16_t status = knows_key ? 0 : conflict;
    switch (cdw10 & ACTION_BITS) {
    case NVME_RESERVATION_RREGA_REGISTER_KEY:
        status = register_new(r, host, new_key);
        break;
    case NVME_RESERVATION_RREGA_UNREGISTER_KEY:
        if (knows_key)
            remove_registrant(r, mine, effect);
        break;
    case NVME_RESERVATION_RREGA_REPLACE_KEY:
        if (knows_key)
            mine->key = new_key;
        break;
    default:
        return invalid_field;
    }
    if (!status)
        r->generation++;
    return status;
}

static uint16_t take_reservation(struct nvt_reservation *r, const struct nvt_host_id *host,
                                 uint8_t rtype)
{
    if (r->rtype)
        return nvt_reservation_is_holder(r, host) && r->rtype == rtype ? 0 : conflict;
    set_holder(r, host, rtype);
    return 0;
}

/* Which registrations a preemption ends: those with a key, or all; the host's own, or not. */
struct preempted {
    uint64_t key;
    bool any_key, own_too;
};

static size_t preempt_registrants(struct nvt_reservation *r, const struct nvt_host_id *host,
                                  struct preempted which, struct nvt_reservation_effect *effect)
{
    size_t ended = 0;
    for (size_t i = 0; i < r->count;) {
        struct nvt_registrant *each = &r->registrants[i];
        const struct nvt_host_id id = each->host;
        const bool own = same_host(&id, host);
        if ((!which.any_key && each->key != which.key) || (own && !which.own_too)) {
            i++;
            continue;
        }
        ended++;
        effect->aborts[effect->abort_count++] = id;
        remove_registrant(r, each, effect);
        if (!own)
            add_notice(effect, &id, NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED);
    }
    return ended;
}

/* s8.19.5: the holder is replaced first, so that nobody else can come between. */
static void preempt_holder(struct nvt_reservation *r, const struct nvt_host_id *host, uint8_t rtype,
                           struct preempted which, struct nvt_reservation_effect *effect)
{
    const uint8_t before = r->rtype;
    set_holder(r, host, rtype);
    preempt_registrants(r, host, which, effect);
    if (before != rtype)
        tell_others(r, host, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED, effect);
}

static uint16_t preempt_key(struct nvt_reservation *r, const struct nvt_host_id *host,
                            uint8_t rtype, uint64_t key, struct nvt_reservation_effect *effect)
{
    if (r->rtype && all_hold(r->rtype) && !key) {
        preempt_holder(r, host, rtype, (struct preempted){.any_key = true}, effect);
        return 0;
    }
    if (r->rtype && !all_hold(r->rtype)) {
        const struct nvt_registrant *holder = find_registrant(r, &r->holder);
        assert(holder);
        if (holder->key == key) {
            preempt_holder(r, host, rtype, (struct preempted){.key = key}, effect);
            return 0;
        }
        if (!key)
            return invalid_field;
    }
    const struct preempted which = {.key = key, .own_too = true};
    return preempt_registrants(r, host, which, effect) ? 0 : conflict;
}

uint16_t nvt_reservation_acquire(struct nvt_reservation *r, const struct nvt_host_id *host,
                                 uint32_t cdw10, const uint8_t data[NVT_ACQUIRE_BYTES],
                                 struct nvt_reservation_effect *effect)
{
    const uint8_t rtype = (uint8_t)(cdw10 >> RTYPE_SHIFT);
    const uint32_t action = cdw10 & ACTION_BITS;
    *effect = (struct nvt_reservation_effect){0};
    if (cdw10 & IGNORE_KEY || rtype < NVME_RESERVATION_RTYPE_WE ||
        rtype > NVME_RESERVATION_RTYPE_EAAR || action > NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT)
        return invalid_field;
    const struct nvt_registrant *mine = find_registrant(r, host);
    if (!mine || mine->key != key_at(data))
        return conflict;
    if (action == NVME_RESERVATION_RACQA_ACQUIRE)
        return take_reservation(r, host, rtype);
    const uint16_t status = preempt_key(r, host, rtype, key_at(data + 8), effect);
    if (!status)
        r->generation++;
    if (action == NVME_RESERVATION_RACQA_PREEMPT)
        effect->abort_count = 0;
    return status;
}

static uint16_t reservation_give_up(struct nvt_reservation *r, const struct nvt_host_id *host,
                                    uint8_t rtype, struct nvt_reservation_effect *effect)
{
    if (!nvt_reservation_is_holder(r, host))
        return 0;
    if (r->rtype != rtype)
        return invalid_field;
    if (registrants_share(r->rtype))
        tell_others(r, host, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED, effect);
    r->rtype = 0;
    return 0;
}

uint16_t nvt_reservation_release(struct nvt_reservation *r, const struct nvt_host_id *host,
                                 uint32_t cdw10, const uint8_t data[NVT_RELEASE_BYTES],
                                 struct nvt_reservation_effect *effect)
{
    const uint32_t action = cdw10 & ACTION_BITS;
    *effect = (struct nvt_reservation_effect){0};
    if (cdw10 & IGNORE_KEY || action > NVME_RESERVATION_RRELA_CLEAR)
        return invalid_field;
    const struct nvt_registrant *mine = find_registrant(r, host);
    if (!mine || mine->key != key_at(data))
        return conflict;
    if (action == NVME_RESERVATION_RRELA_RELEASE)
        return reservation_give_up(r, host, (uint8_t)(cdw10 >> RTYPE_SHIFT), effect);
    tell_others(r, host, NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED, effect);
    r->count = 0;
    r->rtype = 0;
    r->generation++;
    return 0;
}

uint16_t nvt_reservation_change(struct nvt_reservation *r,
                                const struct nvt_reservation_change *change,
                                struct nvt_reservation_effect *effect)
{
    if (change->opcode == nvme_cmd_resv_register)
        return nvt_reservation_register(r, &change->host, change->cdw10, change->data, effect);
    if (change->opcode == nvme_cmd_resv_acquire)
        return nvt_reservation_acquire(r, &change->host, change->cdw10, change->data, effect);
    return nvt_reservation_release(r, &change->host, change->cdw10, change->data, effect);
}

void nvt_reservation_compare(const struct nvt_reservation *before,
                             const struct nvt_reservation *after,
                             struct nvt_reservation_effect *effect)
{
    *effect = (struct nvt_reservation_effect){0};
    for (size_t i = 0; i < before->count; i++) {
        const struct nvt_host_id *host = &before->registrants[i].host;
        if (nvt_reservation_is_registrant(after, host))
            continue;
        effect->aborts[effect->abort_count++] = *host;
        add_notice(effect, host, NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED);
    }
}

uint16_t nvt_reservation_report(const struct nvt_reservation *r, uint32_t cdw11,
                                uint8_t out[NVT_REPORT_BYTES], size_t *len_bytes)
{
    if (!(cdw11 & EXTENDED))
        return NVME_SC_HOSTID_FORMAT | NVME_SC_DNR;
    struct nvme_resv_status header = {
        .gen = htole32(r->generation), .rtype = r->rtype, .ptpls = r->persists};
    header.regctl[0] = (uint8_t)r->count;
    memcpy(out, &header, sizeof(header));
    uint8_t *at = out + sizeof(header);
    for (size_t i = 0; i < r->count; i++) {
        const struct nvt_registrant *registrant = &r->registrants[i];
        struct nvme_registered_ctrl_ext entry = {
            .cntlid = htole16(CNTLID_DYNAMIC),
            .rcsts = nvt_reservation_is_holder(r, &registrant->host),
            .rkey = htole64(registrant->key),
        };
        memcpy(entry.hostid, registrant->host.bytes, sizeof(entry.hostid));
        memcpy(at, &entry, sizeof(entry));
        at += sizeof(entry);
    }
    *len_bytes = (size_t)(at - out);
    return 0;
}

/* Base 2.0 s8.19, the groups of the figure about commands in the presence of a reservation. */
enum nvt_access nvt_access_of_io(uint8_t opcode)
{
    switch (opcode) {
    case nvme_cmd_read:
    case nvme_cmd_compare:
    case nvme_cmd_verify:
        return NVT_ACCESS_READ;
    case nvme_cmd_write:
    case nvme_cmd_flush:
    case nvme_cmd_write_uncor:
    case nvme_cmd_write_zeroes:
    case nvme_cmd_dsm:
    case nvme_cmd_copy: /* reads too, and a host that may write may read */
        return NVT_ACCESS_WRITE;
    default:
        return NVT_ACCESS_OTHER;
    }
}

uint16_t nvt_reservation_allows(const struct nvt_reservation *r, const struct nvt_host_id *host,
                                enum nvt_access access)
{
    const bool stops_reads = r->rtype == NVME_RESERVATION_RTYPE_EA ||
                             r->rtype == NVME_RESERVATION_RTYPE_EARO ||
                             r->rtype == NVME_RESERVATION_RTYPE_EAAR;
    if (!r->rtype || access == NVT_ACCESS_OTHER || (access == NVT_ACCESS_READ && !stops_reads))
        return 0;
    const bool may = registrants_share(r->rtype) ? nvt_reservation_is_registrant(r, host)
                                                 : nvt_reservation_is_holder(r, host);
    return may ? 0 : conflict;
}

void nvt_reservation_log_add(struct nvt_reservation_log *log, uint32_t nsid,
                             enum nvme_resv_notify_rnlpt type)
{
    if (!++log->made)
        log->made = 1; /* 0 is an empty page's */
    if (log->count == NVT_RESERVATION_LOG_MAX) {
        log->first = (log->first + 1) % NVT_RESERVATION_LOG_MAX;
        log->count--;
    }
    log->pages[(log->first + log->count++) % NVT_RESERVATION_LOG_MAX] =
        (struct nvme_resv_notification_log){
            .lpc = htole64(log->made), .rnlpt = (uint8_t)type, .nsid = htole32(nsid)};
}

void nvt_reservation_log_take(struct nvt_reservation_log *log, bool retain,
                              struct nvme_resv_notification_log *out)
{
    *out = (struct nvme_resv_notification_log){0};
    if (!log->count)
        return;
    *out = log->pages[log->first];
    out->nalp = (uint8_t)(log->count - 1 < NALP_MAX ? log->count - 1 : NALP_MAX);
    if (retain)
        return;
    log->first = (log->first + 1) % NVT_RESERVATION_LOG_MAX;
    log->count--;
}
