/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/message.h"

#include <assert.h>
#include <string.h>

static void message_flag(struct nvg_coder *coder, bool *value)
{
    uint8_t byte = *value;
    nvg_code_u8(coder, &byte);
    coder->is_bad |= byte > 1;
    *value = byte == 1;
}

/* All that is left is the record. */
static void code_rest(struct nvg_coder *coder, struct nvg_message *m)
{
    if (!coder->is_put) {
        coder->is_bad |= coder->end - coder->at > NVG_RECORD_MAX || coder->end == coder->at;
        m->record_bytes = coder->is_bad ? 0 : (uint16_t)(coder->end - coder->at);
    }
    nvg_code_bytes(coder, m->record, m->record_bytes);
}

static void code_refuse(struct nvg_coder *coder, struct nvg_message *m)
{
    uint32_t status = (uint32_t)-m->status;
    nvg_code_u64(coder, &m->number);
    nvg_code_u32(coder, &status);
    coder->is_bad |= !status || status > 4095; /* an errno */
    m->status = coder->is_bad ? 0 : -(int)status;
}

static void code_answer(struct nvg_coder *coder, struct nvg_message *m)
{
    nvg_code_u8(coder, &m->role);
    nvg_code_u8(coder, &m->slot);
    nvg_code_u8(coder, &m->leads_slot);
    nvg_code_u64(coder, &m->leads_incarnation);
    coder->is_bad |= m->role > NVG_STOPPED || m->slot > NVG_SLOTS || m->leads_slot > NVG_SLOTS;
}

static void code_controller(struct nvg_coder *coder, struct nvg_controller *controller)
{
    struct nvt_instance *instance = &controller->lost.instance;
    uint32_t cntlid = instance->cntlid;
    nvg_code_u8(coder, &controller->slot);
    nvg_code_u32(coder, &cntlid);
    nvg_code_u8(coder, &instance->ciu);
    nvg_code_u64(coder, &instance->cirn);
    instance->cntlid = (uint16_t)cntlid;
    coder->is_bad |= controller->slot >= NVG_SLOTS || cntlid > UINT16_MAX || !instance->cirn;
}

static void code_ask_quiet(struct nvg_coder *coder, struct nvg_message *m)
{
    struct nvt_lost *lost = &m->controller.lost;
    static_assert(sizeof(lost->host_nqn) == NVG_NQN_BYTES, "an NQN with its NUL");
    code_controller(coder, &m->controller);
    nvg_code_host(coder, &lost->host_id, lost->host_nqn);
}

static void code_tell_quiet(struct nvg_coder *coder, struct nvg_message *m)
{
    code_controller(coder, &m->controller);
    nvg_code_u8(coder, &m->quiet);
    coder->is_bad |=
        m->quiet != NVT_QUIET && m->quiet != NVT_QUIET_UNKNOWN && m->quiet != NVT_QUIET_REFUSED;
}

static void code_move(struct nvg_coder *coder, struct nvg_message *m)
{
    nvg_code_u32(coder, &m->nsid);
    nvg_code_u8(coder, &m->slot);
    nvg_code_u64(coder, &m->epoch);
    coder->is_bad |= !m->nsid || m->nsid > NVG_PLACES_MAX || m->slot >= NVG_SLOTS;
}

static void code_settled(struct nvg_coder *coder, struct nvg_message *m)
{
    nvg_code_u32(coder, &m->nsid);
    nvg_code_u64(coder, &m->number);
    coder->is_bad |= !m->nsid || m->nsid > NVG_NSID_MAX;
}

static void code_presence(struct nvg_coder *coder, struct nvg_message *m)
{
    nvg_code_host(coder, &m->host.id, m->host.nqn);
    if (m->kind == NVG_PLACELESS) {
        message_flag(coder, &m->is_of_origin);
        return;
    }
    if (!coder->is_put) /* members of before do not say it */
        m->has_origin = coder->at < coder->end;
    if (m->has_origin)
        nvg_code_bytes(coder, m->origin, sizeof(m->origin));
}

static void code_call(struct nvg_coder *coder, struct nvg_message *m)
{
    nvg_code_bytes(coder, m->identity, sizeof(m->identity));
    nvg_code_u64(coder, &m->epoch);
}

static void code_message(struct nvg_coder *coder, struct nvg_message *m)
{
    uint8_t version = NVG_MESSAGE_VERSION, kind = (uint8_t)m->kind;
    nvg_code_u8(coder, &version);
    nvg_code_u8(coder, &kind);
    coder->is_bad |= version != NVG_MESSAGE_VERSION || kind < NVG_HELLO || kind > NVG_PLACELESS;
    m->kind = coder->is_bad ? NVG_BYE : (enum nvg_message_kind)kind;
    switch (m->kind) {
    case NVG_HELLO:
        nvg_code_bytes(coder, m->identity, sizeof(m->identity));
        message_flag(coder, &m->is_member);
        nvg_code_join(coder, &m->join);
        return;
    case NVG_ANSWER:
        code_answer(coder, m);
        return;
    case NVG_WELCOME:
        nvg_code_u8(coder, &m->slot);
        coder->is_bad |= m->slot >= NVG_SLOTS;
        return;
    case NVG_PROPOSE:
        nvg_code_u64(coder, &m->number);
        code_rest(coder, m);
        return;
    case NVG_PUSH:
        code_rest(coder, m);
        return;
    case NVG_REFUSE:
        code_refuse(coder, m);
        return;
    case NVG_PING:
        message_flag(coder, &m->is_leaving);
        message_flag(coder, &m->has_quorum);
        return;
    case NVG_HALT:
        nvg_code_text(coder, m->text, sizeof(m->text));
        return;
    case NVG_CALL:
        code_call(coder, m);
        return;
    case NVG_MOVE:
        code_move(coder, m);
        return;
    case NVG_HOST_HERE:
    case NVG_PLACELESS:
        code_presence(coder, m);
        return;
    case NVG_APPLIED:
    case NVG_SETTLED:
        code_settled(coder, m);
        return;
    case NVG_ASK_QUIET:
        code_ask_quiet(coder, m);
        return;
    case NVG_TELL_QUIET:
        code_tell_quiet(coder, m);
        return;
    case NVG_BYE:
        return;
    }
}

size_t nvg_message_put(const struct nvg_message *message, uint8_t out[NVG_MESSAGE_MAX])
{
    struct nvg_coder coder = {.is_put = true, .out = out, .end = NVG_MESSAGE_MAX};
    /* The coder writes to what it puts the same that it has read there. */
    code_message(&coder, (struct nvg_message *)(uintptr_t)message);
    assert(!coder.is_bad);
    return coder.at;
}

bool nvg_message_get(const uint8_t *in, size_t bytes, struct nvg_message *out)
{
    struct nvg_coder coder = {.in = in, .end = bytes};
    memset(out, 0, sizeof(*out));
    code_message(&coder, out);
    return !coder.is_bad && coder.at == bytes;
}
