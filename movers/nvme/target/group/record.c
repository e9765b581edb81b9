/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each format stands here once: a function names its parts in their order, and the coder puts or
 * gets them. Numbers are little-endian. What is out of its range makes the coder bad.
 */
#include "nvme/target/group/record.h"

#include <string.h>

#include "common/base/bytes.h"

void nvg_code_bytes(struct nvg_coder *coder, void *value, size_t bytes)
{
    if (coder->is_bad || coder->end - coder->at < bytes) {
        coder->is_bad = true;
        return;
    }
    if (coder->is_put)
        memcpy(coder->out + coder->at, value, bytes);
    else
        memcpy(value, coder->in + coder->at, bytes);
    coder->at += bytes;
}

void nvg_code_u8(struct nvg_coder *coder, uint8_t *value)
{
    nvg_code_bytes(coder, value, 1);
}

void nvg_code_u32(struct nvg_coder *coder, uint32_t *value)
{
    uint8_t bytes[4];
    put_le32(bytes, *value);
    nvg_code_bytes(coder, bytes, sizeof(bytes));
    *value = get_le32(bytes);
}

void nvg_code_u64(struct nvg_coder *coder, uint64_t *value)
{
    uint8_t bytes[8];
    put_le64(bytes, *value);
    nvg_code_bytes(coder, bytes, sizeof(bytes));
    *value = get_le64(bytes);
}

static void code_flag(struct nvg_coder *coder, bool *value)
{
    uint8_t byte = *value;
    nvg_code_u8(coder, &byte);
    coder->is_bad |= byte > 1;
    *value = byte == 1;
}

static size_t text_bytes(const char *text, size_t size)
{
    size_t bytes = 0;
    while (bytes < size && text[bytes])
        bytes++;
    return bytes;
}

void nvg_code_text(struct nvg_coder *coder, char *text, size_t size)
{
    uint8_t bytes = coder->is_put ? (uint8_t)text_bytes(text, size) : 0;
    nvg_code_u8(coder, &bytes);
    if (!coder->is_put)
        memset(text, 0, size);
    if (bytes >= size)
        coder->is_bad = true;
    else
        nvg_code_bytes(coder, text, bytes);
    for (uint8_t i = 0; !coder->is_bad && i < bytes; i++)
        coder->is_bad = text[i] < ' ' || text[i] > '~';
}

bool nvg_name_is_valid(const char *name)
{
    const size_t bytes = text_bytes(name, NVG_NAME_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return bytes && bytes < NVG_NAME_BYTES;
}

static void code_former(struct nvg_coder *coder, struct nvg_former *former)
{
    uint32_t pid = (uint32_t)former->pid;
    nvg_code_text(coder, former->member, sizeof(former->member));
    nvg_code_u8(coder, &former->slot);
    nvg_code_u64(coder, &former->incarnation);
    nvg_code_u64(coder, &former->epoch);
    nvg_code_bytes(coder, former->boot_id, sizeof(former->boot_id));
    nvg_code_u32(coder, &pid);
    nvg_code_u64(coder, &former->start_ticks);
    former->pid = (int32_t)pid;
    coder->is_bad |= former->slot >= NVG_SLOTS || !former->incarnation || former->pid < 0 ||
                     !nvg_name_is_valid(former->member);
}

void nvg_code_join(struct nvg_coder *coder, struct nvg_join *join)
{
    code_former(coder, &join->who);
    code_flag(coder, &join->is_here);
    nvg_code_text(coder, join->group_address, sizeof(join->group_address));
    nvg_code_u32(coder, &join->address_count);
    if (join->address_count > NVG_ADDRESSES_MAX)
        coder->is_bad = true;
    for (uint32_t i = 0; !coder->is_bad && i < join->address_count; i++)
        nvg_code_text(coder, join->addresses[i], sizeof(join->addresses[i]));
}

void nvg_code_host(struct nvg_coder *coder, struct nvt_host_id *id, char nqn[NVG_NQN_BYTES])
{
    nvg_code_bytes(coder, id->bytes, sizeof(id->bytes));
    nvg_code_bytes(coder, nqn, NVG_NQN_BYTES);
    coder->is_bad |= nqn[NVG_NQN_BYTES - 1] != 0;
}

/* The number of a namespace, or of a host. */
static void code_place(struct nvg_coder *coder, uint32_t *number)
{
    nvg_code_u32(coder, number);
    coder->is_bad |= !*number || *number > NVG_PLACES_MAX;
}

static void code_nsid(struct nvg_coder *coder, uint32_t *nsid)
{
    nvg_code_u32(coder, nsid);
    coder->is_bad |= !*nsid || *nsid > NVG_NSID_MAX;
}

static void code_namespace(struct nvg_coder *coder, struct nvg_namespace *ns)
{
    code_nsid(coder, &ns->nsid);
    nvg_code_u32(coder, &ns->block_bytes);
    nvg_code_u64(coder, &ns->size_bytes);
    nvg_code_bytes(coder, ns->uuid, sizeof(ns->uuid));
    nvg_code_bytes(coder, ns->nguid, sizeof(ns->nguid));
    nvg_code_text(coder, ns->medium, sizeof(ns->medium));
}

static void code_hold(struct nvg_coder *coder, struct nvg_hold *hold)
{
    uint8_t phase = (uint8_t)hold->phase, has_owner = hold->epoch > 0;
    code_place(coder, &hold->nsid);
    nvg_code_u8(coder, &phase);
    nvg_code_u64(coder, &hold->epoch);
    nvg_code_u64(coder, &hold->reservation_id);
    nvg_code_u8(coder, &has_owner);
    coder->is_bad |= phase > NVG_OWNED || has_owner != (hold->epoch > 0);
    if (has_owner == 1)
        code_former(coder, &hold->owner);
    nvg_code_u32(coder, &hold->former_count);
    if (hold->former_count > NVG_FORMERS_MAX || (!has_owner && (phase || hold->former_count)))
        coder->is_bad = true;
    for (uint32_t i = 0; !coder->is_bad && i < hold->former_count; i++)
        code_former(coder, &hold->formers[i]);
    hold->phase = coder->is_bad ? NVG_FREE : (enum nvg_phase)phase;
}

static void code_reservation(struct nvg_coder *coder, struct nvt_reservation *r)
{
    uint32_t count = (uint32_t)r->count;
    nvg_code_u32(coder, &r->generation);
    nvg_code_u8(coder, &r->rtype);
    nvg_code_bytes(coder, &r->holder, sizeof(r->holder));
    nvg_code_u32(coder, &count);
    coder->is_bad |= r->rtype > NVME_RESERVATION_RTYPE_EAAR || count > NVT_REGISTRANTS_MAX;
    r->count = coder->is_bad ? 0 : count;
    for (size_t i = 0; i < r->count; i++) {
        nvg_code_bytes(coder, &r->registrants[i].host, sizeof(r->registrants[i].host));
        nvg_code_u64(coder, &r->registrants[i].key);
    }
    /* Commands are carried out on what is read here. */
    coder->is_bad |= r->rtype && r->rtype < NVME_RESERVATION_RTYPE_WEAR &&
                     !nvt_reservation_is_registrant(r, &r->holder);
}

static void code_calm(struct nvg_coder *coder, struct nvg_record *r)
{
    nvg_code_u8(coder, &r->slot);
    nvg_code_u64(coder, &r->incarnation);
    nvg_code_u64(coder, &r->id);
    coder->is_bad |= r->slot >= NVG_SLOTS || !r->id;
}

static void code_reserve(struct nvg_coder *coder, struct nvg_record *r)
{
    struct nvt_reservation_change *change = &r->change;
    code_nsid(coder, &r->nsid);
    nvg_code_u64(coder, &r->incarnation);
    nvg_code_u64(coder, &r->id);
    nvg_code_bytes(coder, &change->host, sizeof(change->host));
    nvg_code_u8(coder, &change->opcode);
    nvg_code_u32(coder, &change->cdw10);
    nvg_code_bytes(coder, change->data, sizeof(change->data));
    coder->is_bad |= change->opcode != nvme_cmd_resv_register &&
                     change->opcode != nvme_cmd_resv_acquire &&
                     change->opcode != nvme_cmd_resv_release;
}

static void code_owned(struct nvg_coder *coder, struct nvg_record *r)
{
    code_place(coder, &r->nsid);
    nvg_code_u64(coder, &r->epoch);
    if (r->kind == NVG_OWN)
        nvg_code_u64(coder, &r->size_bytes);
}

static void code_disk(struct nvg_coder *coder, struct nvg_record *r)
{
    code_nsid(coder, &r->nsid);
    nvg_code_u64(coder, &r->id);
    nvg_code_u32(coder, &r->error);
    coder->is_bad |= !r->id || r->error >= NVG_ERRNO_END;
}

static void code_record_body(struct nvg_coder *coder, struct nvg_record *r)
{
    switch (r->kind) {
    case NVG_GROUP:
    case NVG_GROUP_ALL:
        nvg_code_bytes(coder, r->identity, sizeof(r->identity));
        nvg_code_text(coder, r->nqn, sizeof(r->nqn));
        return;
    case NVG_LEAD:
    case NVG_LEAVE:
    case NVG_END:
        nvg_code_u8(coder, &r->slot);
        nvg_code_u64(coder, &r->incarnation);
        coder->is_bad |= r->slot >= NVG_SLOTS;
        return;
    case NVG_CALM:
    case NVG_CALMED:
        code_calm(coder, r);
        return;
    case NVG_JOIN:
        nvg_code_join(coder, &r->join);
        return;
    case NVG_NAMESPACE:
        code_namespace(coder, &r->about);
        return;
    case NVG_HOST:
        code_place(coder, &r->nsid);
        nvg_code_host(coder, &r->host.id, r->host.nqn);
        coder->is_bad |= r->nsid <= NVG_NSID_MAX;
        return;
    case NVG_TAKING_IT:
        code_place(coder, &r->nsid);
        code_former(coder, &r->owner);
        return;
    case NVG_OWN:
    case NVG_RELEASED_IT:
        code_owned(coder, r);
        return;
    case NVG_RESERVATION:
        code_nsid(coder, &r->nsid);
        nvg_code_u64(coder, &r->epoch);
        nvg_code_u64(coder, &r->id);
        code_reservation(coder, &r->reservation);
        return;
    case NVG_RESERVE:
        code_reserve(coder, r);
        return;
    case NVG_DISK:
        code_disk(coder, r);
        return;
    case NVG_HOLD:
        code_hold(coder, &r->hold);
        return;
    case NVG_BEGIN:
    case NVG_ABANDON:
        return;
    }
    coder->is_bad = true;
}

static void code_record(struct nvg_coder *coder, struct nvg_record *record)
{
    uint8_t version = NVG_RECORD_VERSION, kind = (uint8_t)record->kind;
    nvg_code_u8(coder, &version);
    nvg_code_u8(coder, &kind);
    coder->is_bad |= version != NVG_RECORD_VERSION || kind < NVG_GROUP || kind > NVG_DISK;
    if (coder->is_bad)
        return;
    record->kind = (enum nvg_record_kind)kind;
    code_record_body(coder, record);
}

size_t nvg_record_put(const struct nvg_record *record, uint8_t out[NVG_RECORD_MAX])
{
    struct nvg_coder coder = {.is_put = true, .out = out, .end = NVG_RECORD_MAX};
    /* The coder writes to what it puts the same that it has read there. */
    code_record(&coder, (struct nvg_record *)(uintptr_t)record);
    return coder.is_bad ? 0 : coder.at;
}

bool nvg_record_get(const uint8_t *in, size_t bytes, struct nvg_record *out)
{
    struct nvg_coder coder = {.in = in, .end = bytes};
    memset(out, 0, sizeof(*out));
    if (bytes > NVG_RECORD_MAX)
        return false;
    code_record(&coder, out);
    return !coder.is_bad && coder.at == bytes;
}
