/* SPDX-License-Identifier: BSD-2-Clause */
/* What proves that nothing of a lost connection can happen any more. */
#include <string.h>

#include <nvme/types.h>

#include "common/time/units.h"
#include "nvme/host/multipath/paths.h"
#include "nvme/wire/quiesce.h"

enum {
    RESET_LOOK_MS = 50,    /* between two looks at how a reset goes on */
    RESET_LASTS_MS = 60000 /* then another path is asked */
};

/* A controller with traffic for keep-alive looks once a period whether there was any: it may take
 * nearly two to see a silence. One more, as what was on its way may come later than this host has
 * seen the end. */
uint32_t nvh_path_quiesce_ms(const struct nvh_path *path)
{
    if (!path->facts.quiesce_ms || !path->keep_alive_ms)
        return 0;
    return path->keep_alive_ms * (path->traffic_keeps_alive ? 3 : 2) + path->facts.quiesce_ms;
}

void nvh_loss_add(struct nvh_paths *paths, uint32_t path, uint64_t now_ns)
{
    struct nvh_path *p = &paths->paths[path];
    const uint32_t quiesce_ms = nvh_path_quiesce_ms(p);
    p->losses[p->losses_at++ % NVH_LOSSES_MAX] = (struct nvh_loss){
        .is_used = true,
        .epoch = p->epoch,
        .lost_at = ++paths->moments,
        .lost_ns = now_ns,
        .quiet_ns = quiesce_ms ? now_ns + quiesce_ms * NS_PER_MS : UINT64_MAX,
        .facts = p->facts,
        .reset = p->facts.cirn ? NVH_RESET_WANTED : NVH_RESET_FAILED,
    };
    /* Another member of the group may be the owner already. */
    for (uint32_t i = 0; i < paths->count; i++)
        paths->paths[i].wants_ana = paths->paths[i].wants_ana || i != path;
}

static const struct nvh_loss *find_loss(const struct nvh_path *p, uint32_t epoch)
{
    for (uint32_t i = 0; i < NVH_LOSSES_MAX; i++)
        if (p->losses[i].is_used && p->losses[i].epoch == epoch)
            return &p->losses[i];
    return NULL;
}

/* Another member behind which the medium fences has become the owner since. */
static bool is_fenced(const struct nvh_paths *paths, const struct nvh_loss *loss, int ns,
                      uint64_t changes)
{
    for (uint32_t i = 0; i < paths->count && ns >= 0 && loss->facts.member >= 0; i++) {
        const struct nvh_path *p = &paths->paths[i];
        const struct nvh_path_namespace *n = &p->namespaces[ns];
        if (atomic_load(&p->used) && p->facts.member >= 0 &&
            p->facts.member != loss->facts.member && n->ana == SW_NVME_ANA_OPTIMIZED &&
            n->changes > changes && n->log_at > loss->lost_at)
            return true;
    }
    return false;
}

/* Whether a path may still be asked to reset the lost controller. The lost one itself may never
 * come back: nobody waits for that. */
static bool may_reset(const struct nvh_paths *paths, uint32_t path, const struct nvh_loss *loss)
{
    if (loss->reset == NVH_RESET_ASKED)
        return true;
    for (uint32_t i = 0; i < paths->count && loss->reset == NVH_RESET_WANTED; i++)
        if (i != path && paths->paths[i].facts.resets_max && !(loss->asked >> i & 1))
            return true;
    return false;
}

/* More connections were lost since than are remembered: what proves one of these proves it, if it
 * is time. */
static enum nvh_proof proof_of_forgotten(const struct nvh_path *p, uint32_t epoch, uint64_t now_ns)
{
    if (p->carried && p->epoch == epoch) /* nobody has seen yet that it is lost */
        return NVH_PROOF_MISSING;
    const struct nvh_loss *oldest = &p->losses[p->losses_at % NVH_LOSSES_MAX];
    if (!oldest->is_used || oldest->quiet_ns == UINT64_MAX)
        return NVH_PROOF_NEVER;
    return now_ns >= oldest->quiet_ns ? NVH_PROOF_HERE : NVH_PROOF_MISSING;
}

enum nvh_proof nvh_paths_proof(const struct nvh_paths *paths, uint32_t path, uint32_t epoch, int ns,
                               uint64_t changes, uint64_t now_ns)
{
    const struct nvh_path *p = &paths->paths[path];
    const struct nvh_loss *loss = find_loss(p, epoch);
    if (!loss)
        return proof_of_forgotten(p, epoch, now_ns);
    const bool has_limit = paths->quiesce_tmo_s >= 0;
    if (loss->reset == NVH_RESET_SUCCEEDED || now_ns >= loss->quiet_ns ||
        (has_limit && now_ns - loss->lost_ns >= (uint64_t)paths->quiesce_tmo_s * NS_PER_S) ||
        is_fenced(paths, loss, ns, changes))
        return NVH_PROOF_HERE;
    return has_limit || loss->quiet_ns != UINT64_MAX || loss->facts.member >= 0 ||
                   may_reset(paths, path, loss)
               ? NVH_PROOF_MISSING
               : NVH_PROOF_NEVER;
}

/* ---- cross-controller reset ---- */

static void ask_for_reset(struct nvh_path *p, uint32_t path, uint32_t place, struct nvh_loss *loss,
                          struct nvh_ask *ask)
{
    loss->reset = NVH_RESET_ASKED;
    loss->by = path;
    loss->asked |= 1u << path;
    loss->next_ns = UINT64_MAX;
    p->stage = NVH_ASK_RESET;
    p->resets = place;
    *ask = (struct nvh_ask){.opcode = NVF_ADMIN_CROSS_CTRL_RESET,
                            .cdw10 = nvf_ccr_cdw10(loss->facts.cntlid, loss->facts.ciu),
                            .cdw12 = (uint32_t)loss->facts.cirn,
                            .cdw13 = (uint32_t)(loss->facts.cirn >> 32)};
}

static void ask_about_reset(struct nvh_path *p, uint32_t place, struct nvh_ask *ask)
{
    enum { BYTES = 4096, ALL = 0xffffffffu };
    p->stage = NVH_ASK_RESETS;
    p->resets = place;
    *ask = (struct nvh_ask){.opcode = nvme_admin_get_log_page,
                            .nsid = (uint32_t)ALL,
                            .cdw10 = NVF_LOG_CROSS_CTRL_RESET | (BYTES / 4 - 1) << 16,
                            .bytes = BYTES};
}

bool nvh_loss_ask(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, struct nvh_ask *ask)
{
    struct nvh_path *p = &paths->paths[path];
    for (uint32_t i = 0; i < paths->count * NVH_LOSSES_MAX && p->facts.resets_max; i++) {
        struct nvh_loss *loss = &paths->paths[i / NVH_LOSSES_MAX].losses[i % NVH_LOSSES_MAX];
        if (!loss->is_used)
            continue;
        if (loss->reset == NVH_RESET_WANTED && !(loss->asked >> path & 1)) {
            ask_for_reset(p, path, i, loss, ask);
            return true;
        }
        if (loss->reset == NVH_RESET_ASKED && loss->by == path && now_ns >= loss->next_ns) {
            ask_about_reset(p, i, ask);
            return true;
        }
    }
    return false;
}

static enum nvf_ccr_status read_resets(const struct nvh_facts *facts, const uint8_t *data)
{
    enum { ENTRIES = (4096 - sizeof(struct nvf_ccr_log)) / sizeof(struct nvf_ccr_entry) };
    uint16_t count;
    memcpy(&count, data, sizeof(count));
    count = le16toh(count);
    for (uint32_t i = 0; i < count && i < ENTRIES; i++) {
        struct nvf_ccr_entry entry;
        memcpy(&entry, data + sizeof(struct nvf_ccr_log) + i * sizeof(entry), sizeof(entry));
        if (le16toh(entry.icid) == facts->cntlid && entry.ciu == facts->ciu &&
            le64toh(entry.cirn) == facts->cirn)
            return entry.ccrs == NVF_CCR_SUCCESS  ? NVF_CCR_SUCCESS
                   : entry.ccrs == NVF_CCR_FAILED ? NVF_CCR_FAILED
                                                  : NVF_CCR_IN_PROGRESS;
    }
    return NVF_CCR_IN_PROGRESS;
}

void nvh_loss_answered(struct nvh_paths *paths, uint32_t path, uint64_t now_ns,
                       const struct sw_nvme_result *result, const void *data)
{
    enum { CODE = 0x7ff };
    struct nvh_path *p = &paths->paths[path];
    struct nvh_loss *loss =
        &paths->paths[p->resets / NVH_LOSSES_MAX].losses[p->resets % NVH_LOSSES_MAX];
    const bool is_command = p->stage == NVH_ASK_RESET;
    enum nvf_ccr_status status = NVF_CCR_FAILED;
    p->stage = NVH_ASK_NOTHING;
    if (loss->reset != NVH_RESET_ASKED || loss->by != path) /* it was forgotten meanwhile */
        return;
    if (!result->status && is_command)
        status = result->value & NVF_CCR_IMMEDIATE ? NVF_CCR_SUCCESS : NVF_CCR_IN_PROGRESS;
    else if (!result->status)
        status = read_resets(&loss->facts, data);
    else if (is_command && (result->nvme_status & CODE) == NVF_SC_CCR_IN_PROGRESS)
        status = NVF_CCR_IN_PROGRESS;
    if (is_command)
        loss->until_ns = now_ns + RESET_LASTS_MS * NS_PER_MS;
    loss->next_ns = now_ns + RESET_LOOK_MS * NS_PER_MS;
    if (status == NVF_CCR_SUCCESS)
        loss->reset = NVH_RESET_SUCCEEDED;
    else if (status == NVF_CCR_FAILED || now_ns > loss->until_ns)
        loss->reset = NVH_RESET_WANTED;
    if (loss->reset != NVH_RESET_ASKED)
        atomic_fetch_add(&paths->version, 1);
}
