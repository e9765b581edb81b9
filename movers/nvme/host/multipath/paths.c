/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/multipath/paths.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <nvme/types.h>

#include "common/time/units.h"
#include "nvme/host/multipath/ana.h"
#include "nvme/wire/quiesce.h"

enum {
    PAGE_BYTES = 4096,
    LOG_ANA = 0x0c,
    LOG_CHANGED = 0x04,
    CMIC_ANA = 1 << 3,
    REFUSED_MS = 2000,     /* between two looks at a path that was refused */
    ANA_PACE_MS = 10,      /* between two looks at the ANA log, whatever the target answers */
    ANA_LOOK_MS = 500,     /* the same without an event, where a namespace is not optimized */
    FIRST_WAITS_MS = 2000, /* for the first address, whose namespaces are the ones that count */
    NOTICE = 2,            /* the type of an event, and what it is about */
    NOTICE_NAMESPACES = 0x00,
    NOTICE_ANA = 0x03,
};

static uint32_t get_log_dword(uint8_t page, uint32_t bytes)
{
    return page | (bytes / 4 - 1) << 16;
}

void nvh_paths_init(struct nvh_paths *paths, uint32_t count, int32_t quiesce_tmo_s)
{
    assert(count && count <= NVH_PATHS_MAX);
    memset(paths, 0, sizeof(*paths));
    paths->count = count;
    paths->quiesce_tmo_s = quiesce_tmo_s;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < NVH_NAMESPACES_MAX; j++)
            atomic_init(&paths->paths[i].namespaces[j].ana, SW_NVME_ANA_INACCESSIBLE);
}

static void copy_why(struct nvh_path *path, const char *why)
{
    const size_t len = strlen(why), most = sizeof(path->why) - 1;
    memcpy(path->why, why, len < most ? len : most);
    path->why[len < most ? len : most] = '\0';
}

static void paths_changed(struct nvh_paths *paths)
{
    atomic_fetch_add(&paths->version, 1);
}

int nvh_paths_find(const struct nvh_paths *paths, uint32_t nsid)
{
    const uint32_t count = atomic_load(&paths->namespaces_count);
    for (uint32_t i = 0; i < count; i++)
        if (paths->namespaces[i].nsid == nsid)
            return (int)i;
    return NVH_NO_NAMESPACE;
}

void nvh_path_live(struct nvh_paths *paths, uint32_t path, uint32_t epoch, uint32_t keep_alive_ms,
                   bool traffic_keeps_alive)
{
    struct nvh_path *p = &paths->paths[path];
    p->state = SW_NVME_PATH_CHECKED;
    p->epoch = epoch;
    p->keep_alive_ms = keep_alive_ms;
    p->traffic_keeps_alive = traffic_keeps_alive;
    p->stage = NVH_ASK_CTRL;
    p->carried = p->waits = p->is_again = p->wants_ana = p->wants_names = p->wants_look = false;
}

void nvh_path_lost(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, bool is_over,
                   const char *why)
{
    struct nvh_path *p = &paths->paths[path];
    if (p->carried)
        nvh_loss_add(paths, path, now_ns);
    p->carried = false;
    if (p->stage == NVH_ASK_RESET || p->stage == NVH_ASK_RESETS) {
        const struct sw_nvme_result lost = {.status = SW_NVME_NOT_DONE};
        nvh_loss_answered(paths, path, now_ns, &lost, NULL);
    }
    p->state = is_over ? SW_NVME_PATH_GIVEN_UP : SW_NVME_PATH_AWAY;
    copy_why(p, why);
    atomic_store(&p->used, 0);
    p->stage = NVH_ASK_NOTHING;
    p->waits = false;
    p->was_tried = true;
    paths_changed(paths);
}

void nvh_path_refuse(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, const char *format,
                     ...)
{
    struct nvh_path *p = &paths->paths[path];
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, sizeof(p->why), format, args);
    va_end(args);
    /* What it has under way ends there, or with its connection. */
    atomic_store(&p->used, 0);
    p->state = SW_NVME_PATH_REFUSED;
    p->stage = NVH_ASK_NOTHING;
    p->was_tried = true;
    p->next_ns = now_ns + REFUSED_MS * NS_PER_MS;
    paths_changed(paths);
}

void nvh_path_event(struct nvh_paths *paths, uint32_t path, uint32_t event)
{
    struct nvh_path *p = &paths->paths[path];
    if ((event & 7) != NOTICE)
        return;
    p->wants_ana = p->wants_ana || (event >> 8 & 0xff) == NOTICE_ANA;
    p->wants_names = p->wants_names || (event >> 8 & 0xff) == NOTICE_NAMESPACES;
}

void nvh_path_closed(struct nvh_paths *paths, uint32_t path, int ns)
{
    if (ns < 0)
        return;
    atomic_store(&paths->paths[path].namespaces[ns].ana, SW_NVME_ANA_INACCESSIBLE);
    paths->paths[path].wants_ana = true;
}

/* ---- what is asked ---- */

/* The namespaces behind the first address are the ones that count, if it answers soon. */
static bool waits_for_first(struct nvh_paths *paths, uint32_t path, uint64_t now_ns)
{
    if (!paths->born_ns)
        paths->born_ns = now_ns;
    if (paths->has_serial || now_ns - paths->born_ns > FIRST_WAITS_MS * NS_PER_MS)
        return false;
    for (uint32_t i = 0; i < path; i++)
        if (!paths->paths[i].was_tried)
            return true;
    return false;
}

static bool wants_ana_log(const struct nvh_paths *paths, const struct nvh_path *p, uint64_t now_ns)
{
    if (!p->facts.has_ana || now_ns - p->ana_ns < ANA_PACE_MS * NS_PER_MS)
        return false;
    if (p->wants_ana)
        return true;
    if (now_ns - p->ana_ns < ANA_LOOK_MS * NS_PER_MS)
        return false;
    for (uint32_t i = 0; i < paths->namespaces_count; i++)
        if (p->namespaces[i].is_there && p->namespaces[i].ana != SW_NVME_ANA_OPTIMIZED)
            return true;
    return false;
}

/* What a path that has nothing to do begins. */
static void begin_stage(struct nvh_paths *paths, uint32_t path, uint64_t now_ns)
{
    struct nvh_path *p = &paths->paths[path];
    if (p->state == SW_NVME_PATH_REFUSED && now_ns >= p->next_ns) {
        p->is_again = false;
        p->stage = NVH_ASK_CTRL;
    } else if (p->state == SW_NVME_PATH_USED && p->wants_names) {
        p->wants_names = p->wants_look = false;
        p->is_again = true;
        p->stage = NVH_ASK_CHANGED;
    } else if (p->state == SW_NVME_PATH_USED && p->wants_look) {
        p->wants_look = p->is_again = false;
        p->stage = NVH_ASK_LIST;
    } else if (p->state == SW_NVME_PATH_USED && wants_ana_log(paths, p, now_ns)) {
        p->wants_ana = false;
        p->stage = NVH_ASK_ANA;
    }
}

static bool fill_ask(struct nvh_path *p, uint64_t now_ns, struct nvh_ask *ask)
{
    *ask = (struct nvh_ask){.opcode = nvme_admin_identify, .bytes = PAGE_BYTES};
    switch (p->stage) {
    case NVH_ASK_CTRL:
        ask->cdw10 = NVME_IDENTIFY_CNS_CTRL;
        return true;
    case NVH_ASK_LIST:
        ask->cdw10 = NVME_IDENTIFY_CNS_NS_ACTIVE_LIST;
        return true;
    case NVH_ASK_NAMESPACE:
        ask->nsid = p->list[p->list_at];
        ask->cdw10 = NVME_IDENTIFY_CNS_NS;
        return true;
    case NVH_ASK_NAMES:
        ask->nsid = p->list[p->list_at];
        ask->cdw10 = NVME_IDENTIFY_CNS_NS_DESC_LIST;
        return true;
    case NVH_ASK_ANA:
    case NVH_ASK_CHANGED:
        p->ana_ns = p->stage == NVH_ASK_ANA ? now_ns : p->ana_ns;
        ask->opcode = nvme_admin_get_log_page;
        ask->nsid = NVME_NSID_ALL;
        ask->bytes = p->stage == NVH_ASK_ANA ? NVH_ASK_BYTES : PAGE_BYTES;
        ask->cdw10 = get_log_dword(p->stage == NVH_ASK_ANA ? LOG_ANA : LOG_CHANGED, ask->bytes);
        return true;
    case NVH_ASK_NOTHING:
    case NVH_ASK_RESET:
    case NVH_ASK_RESETS:
        return false;
    }
    return false;
}

bool nvh_path_ask(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, struct nvh_ask *ask)
{
    struct nvh_path *p = &paths->paths[path];
    if (p->waits || p->state == SW_NVME_PATH_AWAY || p->state == SW_NVME_PATH_GIVEN_UP)
        return false;
    if (p->stage == NVH_ASK_NOTHING)
        begin_stage(paths, path, now_ns);
    if (p->stage == NVH_ASK_CTRL && waits_for_first(paths, path, now_ns))
        return false;
    const bool asks = fill_ask(p, now_ns, ask) ||
                      (p->state == SW_NVME_PATH_USED && nvh_loss_ask(paths, path, now_ns, ask));
    p->waits = asks;
    if (asks)
        p->asked_at = ++paths->moments;
    return asks;
}

/* ---- answers ---- */

/* Bytes of a target, for a message. */
static void copy_printable(const uint8_t *bytes, char *out)
{
    for (unsigned i = 0; i < NVH_SERIAL_BYTES; i++)
        out[i] = bytes[i] > ' ' && bytes[i] < 0x7f ? (char)bytes[i] : '_';
    out[NVH_SERIAL_BYTES] = '\0';
    for (unsigned i = NVH_SERIAL_BYTES; i && out[i - 1] == '_'; i--)
        out[i - 1] = '\0';
}

static void refuse_serial(struct nvh_paths *paths, uint32_t path, uint64_t now_ns)
{
    char there[NVH_SERIAL_BYTES + 1], known[NVH_SERIAL_BYTES + 1];
    copy_printable(paths->paths[path].facts.serial, there);
    copy_printable(paths->serial, known);
    nvh_path_refuse(paths, path, now_ns,
                    "the subsystem there has the serial number %s, and %s behind the other paths",
                    there, known);
}

static void take_ctrl(struct nvh_paths *paths, uint32_t path, uint64_t now_ns, const uint8_t *data)
{
    enum { SERIAL_AT = 4, CMIC_AT = 76, CNTLID_AT = 78 };
    struct nvh_path *p = &paths->paths[path];
    struct nvh_facts *facts = &p->facts;
    uint16_t word;
    *facts = (struct nvh_facts){.member = -1};
    memcpy(facts->serial, data + SERIAL_AT, NVH_SERIAL_BYTES);
    memcpy(&word, data + CNTLID_AT, sizeof(word));
    facts->cntlid = le16toh(word);
    memcpy(&word, data + NVF_ID_CQT, sizeof(word));
    facts->quiesce_ms = le16toh(word);
    facts->ciu = data[NVF_ID_CIU];
    memcpy(&facts->cirn, data + NVF_ID_CIRN, sizeof(facts->cirn));
    facts->cirn = le64toh(facts->cirn);
    facts->resets_max = data[NVF_ID_CCRL];
    facts->has_ana = data[CMIC_AT] & CMIC_ANA;
    if (!memcmp(data + NVF_ID_FENCED, NVF_FENCED_WORD, strlen(NVF_FENCED_WORD)))
        facts->member = data[NVF_ID_MEMBER];
    if (paths->has_serial && memcmp(paths->serial, facts->serial, NVH_SERIAL_BYTES) != 0)
        return refuse_serial(paths, path, now_ns);
    memcpy(paths->serial, facts->serial, NVH_SERIAL_BYTES);
    paths->has_serial = true;
    p->stage = NVH_ASK_LIST;
}

static void take_list(struct nvh_paths *paths, struct nvh_path *p, const uint8_t *data)
{
    p->list_count = p->list_at = 0;
    for (uint32_t i = 0, last = 0; i < NVH_NAMESPACES_MAX; i++) {
        uint32_t nsid;
        memcpy(&nsid, data + i * sizeof(nsid), sizeof(nsid));
        nsid = le32toh(nsid);
        if (nsid <= last) /* ascending, then zeroes */
            break;
        p->list[p->list_count++] = last = nsid;
    }
    for (uint32_t i = 0; i < paths->namespaces_count; i++) {
        bool is_there = false;
        for (uint32_t j = 0; j < p->list_count && !is_there; j++)
            is_there = p->list[j] == paths->namespaces[i].nsid;
        p->namespaces[i].is_there = is_there;
        if (!is_there)
            atomic_store(&p->namespaces[i].ana, SW_NVME_ANA_INACCESSIBLE);
    }
    p->stage = p->list_count ? NVH_ASK_NAMESPACE : NVH_ASK_ANA;
}

static void path_take_namespace(struct nvh_path *p, const uint8_t *data)
{
    const struct nvme_id_ns *id = (const struct nvme_id_ns *)data;
    const struct nvme_lbaf *format = &id->lbaf[(id->flbas & 0xf) | (id->flbas >> 1 & 0x30)];
    p->asked = (struct nvh_namespace){.nsid = p->list[p->list_at],
                                      .blocks = le64toh(id->nsze),
                                      .format = format->ds,
                                      .metadata_bytes = le16toh(format->ms)};
    memcpy(p->asked.nguid, id->nguid, sizeof(p->asked.nguid));
    memcpy(p->asked.eui64, id->eui64, sizeof(p->asked.eui64));
    p->stage = NVH_ASK_NAMES;
}

/* The list of identifiers: type, length, two bytes, the identifier; a length of 0 ends it. */
static void take_names(struct nvh_path *p, const uint8_t *data)
{
    enum { TYPE_UUID = 3, HEAD = 4 };
    for (uint32_t at = 0; at + HEAD < PAGE_BYTES && data[at + 1];) {
        const uint32_t len = data[at + 1];
        if (data[at] == TYPE_UUID && len == sizeof(p->asked.uuid) && at + HEAD + len <= PAGE_BYTES)
            memcpy(p->asked.uuid, data + at + HEAD, len);
        at += HEAD + len;
    }
}

static void path_next_namespace(struct nvh_path *p)
{
    p->list_at++;
    p->stage = p->list_at < p->list_count ? NVH_ASK_NAMESPACE : NVH_ASK_ANA;
}

/* Requests may take the path, if they could not yet. */
static void use_path(struct nvh_paths *paths, struct nvh_path *p)
{
    p->state = SW_NVME_PATH_USED;
    p->was_tried = true;
    p->why[0] = '\0';
    p->stage = NVH_ASK_NOTHING;
    p->carried = true;
    atomic_store(&p->used, p->epoch + 1ull);
    paths_changed(paths);
}

static void take_ana(struct nvh_paths *paths, struct nvh_path *p, const uint8_t *data)
{
    uint8_t seen[NVH_NAMESPACES_MAX] = {0};
    struct nvh_ana_cursor cursor;
    struct nvh_ana_entry entry;
    nvh_ana_begin(&cursor, data, p->facts.has_ana ? NVH_ASK_BYTES : 0);
    while (nvh_ana_next(&cursor, &entry)) {
        const int ns = nvh_paths_find(paths, entry.nsid);
        if (ns < 0 || !p->namespaces[ns].is_there)
            continue;
        seen[ns] = 1;
        p->namespaces[ns].changes = entry.changes;
        p->namespaces[ns].log_at = p->asked_at;
        atomic_store(&p->namespaces[ns].ana, entry.state);
    }
    for (uint32_t i = 0; i < paths->namespaces_count; i++)
        if (!seen[i])
            atomic_store(&p->namespaces[i].ana, p->namespaces[i].is_there && !p->facts.has_ana
                                                    ? SW_NVME_ANA_OPTIMIZED
                                                    : SW_NVME_ANA_INACCESSIBLE);
    use_path(paths, p);
}

/* A command that failed: some may. */
static void path_refusal(struct nvh_paths *paths, uint32_t path, uint64_t now_ns,
                         const struct sw_nvme_result *result)
{
    struct nvh_path *p = &paths->paths[path];
    static const char *const names[] = {
        [NVH_ASK_CTRL] = "Identify Controller",
        [NVH_ASK_LIST] = "the list of namespaces",
        [NVH_ASK_ANA] = "the ANA log",
    };
    switch (p->stage) {
    case NVH_ASK_CTRL:
    case NVH_ASK_LIST:
    case NVH_ASK_ANA:
        return nvh_path_refuse(paths, path, now_ns, "%s fails there: %s", names[p->stage],
                               sw_nvme_code_text(result->nvme_status));
    case NVH_ASK_NAMESPACE: /* it went meanwhile */
        return path_next_namespace(p);
    case NVH_ASK_NAMES: /* it has none, as older controllers */
        if (nvh_path_compare(paths, path, now_ns))
            path_next_namespace(p);
        return;
    case NVH_ASK_CHANGED:
        p->stage = NVH_ASK_LIST;
        return;
    case NVH_ASK_NOTHING:
    case NVH_ASK_RESET:
    case NVH_ASK_RESETS:
        return;
    }
}

void nvh_path_answered(struct nvh_paths *paths, uint32_t path, uint64_t now_ns,
                       const struct sw_nvme_result *result, const void *data)
{
    struct nvh_path *p = &paths->paths[path];
    assert(p->waits);
    p->waits = false;
    if (p->stage == NVH_ASK_RESET || p->stage == NVH_ASK_RESETS)
        return nvh_loss_answered(paths, path, now_ns, result, data);
    if (result->status == SW_NVME_FAILED)
        return path_refusal(paths, path, now_ns, result);
    if (result->status) /* the connection is being lost, which is told by itself */
        return;
    switch (p->stage) {
    case NVH_ASK_CTRL:
        return take_ctrl(paths, path, now_ns, data);
    case NVH_ASK_CHANGED: /* it was read so that the next change is told */
        p->stage = NVH_ASK_LIST;
        return;
    case NVH_ASK_LIST:
        take_list(paths, p, data);
        break;
    case NVH_ASK_NAMESPACE:
        path_take_namespace(p, data);
        return;
    case NVH_ASK_NAMES:
        take_names(p, data);
        if (!nvh_path_compare(paths, path, now_ns))
            return;
        path_next_namespace(p);
        break;
    case NVH_ASK_ANA:
        return take_ana(paths, p, data);
    case NVH_ASK_NOTHING:
    case NVH_ASK_RESET:
    case NVH_ASK_RESETS:
        return;
    }
    if (p->stage == NVH_ASK_ANA && !p->facts.has_ana)
        take_ana(paths, p, NULL);
}
