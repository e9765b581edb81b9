/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/member.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/endpoint.h"
#include "common/time/clock.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/standby.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/discovery.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/server.h"
#include "nvme/target/server/serving.h"

enum {
    LINE_BYTES = 1024,
    EVENTS_OF_TURN = 64,
    LEAVE_MS = 10000, /* a fence at another member, and requests here */
};
static_assert((int)NVG_NAMESPACES_MAX <= (int)NVT_ANA_GROUPS_MAX, "an ANA group for each");

void nvr_member_say(const struct nvr_member *member, bool is_bad, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    member->serving->say(member->serving->context, is_bad, line);
}

/* ---- joining ---- */

static int look_at_media(struct nvr_member *member, const struct nvt_config_subsystem *subsystem,
                         struct nvg_namespace *out, char *error, size_t error_bytes)
{
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        const struct nvt_config_namespace *config = &subsystem->namespaces[i];
        struct nvt_backend_look medium;
        if (config->nsid > NVG_NAMESPACES_MAX) {
            snprintf(error, error_bytes, "namespace %u: %d is the highest number of a group",
                     config->nsid, NVG_NAMESPACES_MAX);
            return -EINVAL;
        }
        struct nvr_holding *holding = &member->holdings[config->nsid];
        *holding = (struct nvr_holding){.member = member, .nsid = config->nsid};
        holding->spec = malloc(sizeof(*holding->spec));
        if (!holding->spec)
            return -ENOMEM;
        const int rc = nvt_backend_spec_parse(config->backend, holding->spec, error, error_bytes);
        holding->spec->is_for_all = member->is_all_active;
        if (rc || (member->is_all_active && nvt_fence_shares(holding->spec, error, error_bytes)) ||
            nvt_fence_look(holding->spec, &medium, error, error_bytes))
            return rc ? rc : -EOPNOTSUPP;
        out[i] = (struct nvg_namespace){.nsid = config->nsid,
                                        .block_bytes = medium.block_bytes,
                                        .size_bytes = medium.size_bytes};
        if (holding->spec->has_uuid)
            memcpy(out[i].uuid, holding->spec->uuid, sizeof(out[i].uuid));
        if (holding->spec->has_nguid)
            memcpy(out[i].nguid, holding->spec->nguid, sizeof(out[i].nguid));
        snprintf(out[i].medium, sizeof(out[i].medium), "%.*s", NVG_MEDIUM_BYTES - 1, medium.medium);
        memcpy(holding->medium, medium.medium, sizeof(holding->medium));
    }
    return 0;
}

static int member_open_group(struct nvr_member *member, const struct nvg_settings *settings,
                             const struct nvt_config_subsystem *subsystem, char *error,
                             size_t error_bytes)
{
    struct nvg_namespace *namespaces = calloc(subsystem->namespace_count + 1, sizeof(*namespaces));
    struct nvg_settings all = *settings;
    int rc =
        namespaces ? look_at_media(member, subsystem, namespaces, error, error_bytes) : -ENOMEM;
    all.nqn = subsystem->nqn.text;
    all.namespaces = namespaces;
    all.namespace_count = (uint32_t)subsystem->namespace_count;
    if (!rc)
        rc = nvg_open(&all, &member->group, error, error_bytes);
    free(namespaces);
    return rc;
}

/* What the members have in common, and what this one has alone. */
static int take_identity_of_group(struct nvr_member *member, struct nvt_config_subsystem *subsystem,
                                  char *error, size_t error_bytes)
{
    const struct nvg_identity *identity = nvg_identity_of(member->group);
    snprintf(subsystem->serial, sizeof(subsystem->serial), "%s", identity->serial);
    subsystem->cntlid_min = (uint16_t)(1 + identity->slot * NVR_CNTLIDS_OF_SLOT);
    subsystem->cntlid_max = (uint16_t)((identity->slot + 1) * NVR_CNTLIDS_OF_SLOT);
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        struct nvt_config_namespace *config = &subsystem->namespaces[i];
        struct nvg_namespace ns;
        if (!nvg_namespace_of(member->group, config->nsid, &ns)) {
            snprintf(error, error_bytes, "namespace %u: the group does not have it", config->nsid);
            return -EINVAL;
        }
        memcpy(config->uuid, ns.uuid, sizeof(config->uuid));
        memcpy(config->nguid, ns.nguid, sizeof(config->nguid));
        config->has_nguid = true;
        config->ana_grpid = config->nsid;
    }
    return 0;
}

int nvr_member_join(struct nvr_member *member, struct nvr_serving *serving,
                    const struct nvg_settings *settings, struct nvt_config *config, char *error,
                    size_t error_bytes)
{
    struct nvt_config_subsystem *subsystem = &config->subsystems[0];
    member->serving = serving;
    member->server = serving->server;
    member->nqn = subsystem->nqn.text;
    member->name = settings->member;
    member->is_all_active = settings->is_all_active;
    int rc = nvt_worker_open(&member->fencer);
    if (rc)
        return rc;
    serving->member = member;
    rc = member_open_group(member, settings, subsystem, error, error_bytes);
    return rc ? rc : take_identity_of_group(member, subsystem, error, error_bytes);
}

/* Keys by which other members have the device, which no member may share. */
static void give_keys_of_others(struct nvr_member *member, struct nvt_backend_spec *spec)
{
    const struct nvg_identity *group = nvg_identity_of(member->group);
    nvg_status_of(member->group, &member->status);
    static_assert((int)NVG_SLOTS <= (int)NVT_SPEC_OTHERS, "room for all");
    spec->other_count = 0;
    for (uint32_t i = 0; i < member->status.member_count; i++) {
        const struct nvg_member *one = &member->status.members[i];
        if (one->is_here && !one->is_self)
            spec->other_keys[spec->other_count++] =
                nvt_device_member_key(group->identity, one->slot, one->incarnation);
    }
}

int nvr_member_open(struct nvr_member *member, uint32_t nsid, struct nvt_backend **out, char *error,
                    size_t error_bytes)
{
    struct nvg_namespace ns;
    snprintf(error, error_bytes, "no memory");
    if (!nvg_namespace_of(member->group, nsid, &ns))
        return -ENOMEM;
    if (!member->is_all_active) {
        *out = nvt_standby_open(ns.size_bytes, ns.block_bytes, false);
        return *out ? 0 : -ENOMEM;
    }
    nvr_holding_give_keys(&member->holdings[nsid], member->holdings[nsid].spec);
    struct nvt_backend_spec spec = *member->holdings[nsid].spec;
    give_keys_of_others(member, &spec);
    spec.block_bytes = ns.block_bytes;
    spec.shares_as = nvg_identity_of(member->group)->incarnation;
    const int rc = nvt_fence_look_again(&spec, member->holdings[nsid].medium, error, error_bytes);
    return rc ? rc
              : nvt_backend_open(&spec, &member->server->threads[0].uring, out, error, error_bytes);
}

int nvr_member_add(struct nvr_member *member, struct nvt_namespace *ns)
{
    struct nvt_subsystem *subsystem = ns->subsystem;
    member->subsystem = subsystem;
    subsystem->is_grouped = true;
    subsystem->slot = nvg_identity_of(member->group)->slot;
    if (member->is_all_active) {
        const int rc = nvr_reservations_begin(&member->holdings[ns->nsid], ns);
        return rc ? rc : nvr_hosts_begin(member);
    }
    nvt_subsystem_set_ana(subsystem, ns->nsid, NVME_ANA_STATE_INACCESSIBLE, 0);
    return nvr_holding_begin(&member->holdings[ns->nsid], ns);
}

/* ---- what the group says ---- */

static void add_peer(struct nvt_referral *peer, const struct nvr_member *member, uint8_t slot,
                     const char *address)
{
    char error[128];
    struct nvt_listen listen;
    if (nvt_listen_parse(address, &listen, error, sizeof(error)))
        return;
    *peer = (struct nvt_referral){
        .trtype = NVMF_TRTYPE_RDMA, .adrfam = listen.adrfam, .enable = true, .portid = slot};
    snprintf(peer->traddr, sizeof(peer->traddr), "%s", listen.traddr);
    snprintf(peer->trsvcid, sizeof(peer->trsvcid), "%u", listen.port);
    snprintf(peer->subsysnqn.text, sizeof(peer->subsysnqn.text), "%s", member->nqn);
}

static void member_show_peers(struct nvr_member *member)
{
    enum { PEERS_MAX = NVG_SLOTS * NVG_ADDRESSES_MAX };
    struct nvt_referral *peers = calloc(PEERS_MAX, sizeof(*peers));
    size_t count = 0;
    nvg_status_of(member->group, &member->status);
    for (uint32_t i = 0; peers && i < member->status.member_count; i++) {
        const struct nvg_member *one = &member->status.members[i];
        for (uint32_t j = 0; j < one->address_count && one->is_here && !one->is_self; j++) {
            add_peer(&peers[count], member, one->slot, one->addresses[j]);
            count += *peers[count].traddr != 0;
        }
    }
    if (!peers || nvt_discovery_set_peers(&member->server->target, peers, count))
        nvr_member_say(member, true, "no memory to list the members of the group");
    free(peers);
}

static void end_membership(struct nvr_member *member, const struct nvg_event *event)
{
    if (event->status)
        nvr_member_say(member, true, "ends: the group says: %s", event->text);
    else
        nvr_member_say(member, false, "left           the group");
    member->is_failed = event->status != 0;
    if (member->is_all_active)
        nvr_hosts_end(member);
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++)
        if (member->subsystem->namespaces[nsid])
            nvt_subsystem_set_ana(member->subsystem, nsid, NVME_ANA_STATE_INACCESSIBLE,
                                  member->holdings[nsid].epoch);
    nvr_server_stop(member->server);
}

static void handle_event_of_namespace(struct nvr_member *member, const struct nvg_event *event)
{
    if (member->is_all_active && (event->kind == NVG_RESERVED || event->kind == NVG_COMMITTED))
        return nvr_reservations_take_event(member, event);
    struct nvr_holding *holding =
        event->nsid <= NVG_NAMESPACES_MAX ? &member->holdings[event->nsid] : NULL;
    const struct nvt_namespace *ns = holding ? member->subsystem->namespaces[event->nsid] : NULL;
    if (event->kind == NVG_DISK_IS && ns)
        return nvr_holding_hear_of_disk(holding, event->disk_error);
    if (member->is_all_active)
        return nvr_hosts_take_event(member, event);
    if (!ns)
        return;
    switch (event->kind) {
    case NVG_STANDBY:
        return nvr_holding_stand_by(holding, event->epoch);
    case NVG_TAKE:
        return nvr_holding_take(holding, event);
    case NVG_SERVE:
        return nvr_holding_serve(holding, event);
    case NVG_RELEASE:
        return nvr_holding_release(holding, event->epoch);
    case NVG_RESIZED:
        return nvr_holding_resize(holding, event->size_bytes);
    case NVG_COMMITTED:
        return nvt_commits_done(ns->commits, event->id, event->status);
    case NVG_DISK_IS:
    case NVG_MEMBERS:
    case NVG_NO_PLACE:
    case NVG_RESERVED:
    case NVG_QUIESCE:
    case NVG_QUIETED:
    case NVG_CALM_DOWN:
    case NVG_STOP:
        return;
    }
}

static void group_ready(struct mover_watch *watch)
{
    struct nvr_member *member = watch->context;
    for (int i = 0; i < EVENTS_OF_TURN && nvg_next(member->group, &member->event); i++) {
        if (member->event.kind == NVG_MEMBERS)
            member_show_peers(member);
        else if (member->event.kind == NVG_STOP)
            end_membership(member, &member->event);
        else if (member->event.kind == NVG_QUIESCE || member->event.kind == NVG_QUIETED ||
                 member->event.kind == NVG_CALM_DOWN)
            nvr_member_take_reset(member, &member->event);
        else
            handle_event_of_namespace(member, &member->event);
    }
}

static void fencer_ready(struct mover_watch *watch)
{
    struct nvr_member *member = watch->context;
    nvr_watch_drain(watch);
    (void)nvt_worker_reap(&member->fencer);
}

/* It cannot join again beside itself: what it holds for hosts would come by a new registration. */
static void member_look_at_device(struct nvr_member *member, const struct nvt_namespace *ns)
{
    char why[LINE_BYTES / 4];
    if (member->is_failed || !nvt_backend_lost(ns->backend))
        return;
    snprintf(why, sizeof(why), "namespace %u: another member has shut this one out of the device",
             ns->nsid);
    nvr_member_fail(member, why);
}

static void member_tick(void *context)
{
    struct nvr_member *member = context;
    if (member->is_all_active)
        nvr_hosts_tick(member);
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++) {
        const struct nvt_namespace *ns = member->subsystem->namespaces[nsid];
        if (ns && member->is_all_active) {
            nvt_commits_tick(ns->commits, member->server->target.now_ns);
            nvr_holding_look_at_disk(&member->holdings[nsid]);
            member_look_at_device(member, ns);
        } else if (ns) {
            nvr_holding_tick(&member->holdings[nsid]);
        }
    }
    nvr_member_look_at_resets(member);
    if (member->leave_ns && mover_now_ns() >= member->leave_ns)
        nvr_server_stop(member->server);
}

int nvr_member_begin(struct nvr_member *member)
{
    member->group_watch =
        (struct mover_watch){.fd = nvg_fd(member->group), .ready = group_ready, .context = member};
    member->fencer_watch = (struct mover_watch){
        .fd = member->fencer.event_fd, .ready = fencer_ready, .context = member};
    member->server->tick = member_tick;
    member->server->tick_context = member;
    nvr_member_begin_resets(member);
    member_show_peers(member);
    const int rc = nvr_server_watch(member->server, &member->group_watch);
    return rc ? rc : nvr_server_watch(member->server, &member->fencer_watch);
}

static const char undecided[] =
    "the group decides nothing now: it has no leader, or its log no quorum";

/* `what` moves to `to`, or why it does not. */
static void say_of_move(int rc, const char *what, const char *to, uint64_t epoch, char *said,
                        size_t said_bytes)
{
    switch (rc) {
    case 0:
        snprintf(said, said_bytes, "%llu", (unsigned long long)epoch);
        break;
    case -ENOENT:
        snprintf(said, said_bytes, "the group has no %s", what);
        break;
    case -ESRCH:
        snprintf(said, said_bytes,
                 "the group has no member '%.31s' now; 'sidewire nvme target status' lists them",
                 to);
        break;
    case -EOPNOTSUPP:
        snprintf(said, said_bytes,
                 "%s does not move: with --active all hosts do (--hostnqn), else namespaces", what);
        break;
    case -EALREADY:
        snprintf(said, said_bytes, "%.31s has %s already", to, what);
        break;
    default:
        snprintf(said, said_bytes, "%s", undecided);
        break;
    }
}

int nvr_member_move(struct nvr_member *member, const struct nvg_moved *moved, const char *to,
                    char *said, size_t said_bytes)
{
    char what[NVG_NQN_BYTES + 8];
    uint64_t epoch = 0;
    const int rc = nvg_move(member->group, moved, to, &epoch);
    if (moved->host)
        snprintf(what, sizeof(what), "host %s", moved->host->nqn);
    else
        snprintf(what, sizeof(what), "namespace %u", moved->nsid);
    say_of_move(rc, what, to, epoch, said, said_bytes);
    return rc;
}

int nvr_member_clear(struct nvr_member *member, uint32_t nsid, char *said, size_t said_bytes)
{
    const int rc = nvg_disk(member->group, nsid, 0);
    if (!rc)
        snprintf(said, said_bytes, "namespace %u: its disk counts as sound", nsid);
    else if (rc == -ENOENT)
        snprintf(said, said_bytes, "the group has no namespace %u", nsid);
    else
        snprintf(said, said_bytes, "%s", undecided);
    return rc;
}

/* ---- the end ---- */

void nvr_member_fail(struct nvr_member *member, const char *why)
{
    nvr_member_say(member, true, "ends: %s", why);
    member->is_failed = true;
    nvr_server_stop(member->server);
}

/* A user who asks twice does not wait. */
void nvr_member_leave(struct nvr_member *member)
{
    if (member->leave_ns)
        return nvr_server_stop(member->server);
    member->leave_ns = mover_now_ns() + LEAVE_MS * NS_PER_MS;
    nvg_leave(member->group);
}

void nvr_member_close(struct nvr_member *member)
{
    if (!member->serving)
        return;
    nvr_member_end_resets(member);
    if (member->group)
        nvg_close(member->group);
    nvt_worker_close(&member->fencer);
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++)
        free(member->holdings[nsid].spec);
    free(member->homes);
}
