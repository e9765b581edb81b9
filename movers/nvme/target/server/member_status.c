/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "common/serve/json_text.h"
#include "nvme/target/server/member.h"

static const char *role_name(enum nvg_role role)
{
    static const char *const names[] = {
        [NVG_STARTING] = "starting",   [NVG_SEEKING] = "seeking", [NVG_FOLLOWER] = "follower",
        [NVG_CANDIDATE] = "candidate", [NVG_LEADER] = "leader",   [NVG_STOPPED] = "stopped"};
    return names[role];
}

static const char *phase_name(enum nvg_phase phase)
{
    static const char *const names[] = {
        [NVG_FREE] = "free", [NVG_TAKING] = "taking", [NVG_OWNED] = "owned"};
    return names[phase];
}

static json_t *one_member(const struct nvg_member *member)
{
    json_t *addresses = json_array();
    for (uint32_t i = 0; i < member->address_count; i++)
        json_array_append_new(addresses, mover_json_text(member->addresses[i]));
    return json_pack("{s:o, s:i, s:b, s:b, s:b, s:b, s:I, s:o, s:o}", "name",
                     mover_json_text(member->name), "slot", (int)member->slot, "is_here",
                     (int)member->is_here, "is_linked", (int)member->is_linked, "is_leader",
                     (int)member->is_leader, "is_self", (int)member->is_self, "silent_ms",
                     (json_int_t)member->silent_ms, "group_address",
                     mover_json_text(member->group_address), "addresses", addresses);
}

static json_t *one_namespace(const struct nvr_member *member, const struct nvg_namespace_status *ns)
{
    const uint32_t nsid = ns->about.nsid <= NVG_NAMESPACES_MAX ? ns->about.nsid : 0;
    const enum nvr_holding_state here =
        member->is_all_active ? NVR_SERVING : member->holdings[nsid].state;
    return json_pack("{s:i, s:s, s:o, s:I, s:o, s:s, s:i, s:s?}", "nsid", (int)ns->about.nsid,
                     "phase", phase_name(ns->phase), "owner", mover_json_text(ns->member), "epoch",
                     (json_int_t)ns->epoch, "medium", mover_json_text(ns->about.medium), "here",
                     nvr_holding_state_name(here), "is_owner", here == NVR_SERVING, "disk_error",
                     ns->disk_error ? strerror((int)ns->disk_error) : NULL);
}

static json_t *one_host(const struct nvr_member *member, const struct nvg_host_status *host)
{
    char id[37];
    nvt_uuid_format(host->about.id.bytes, id);
    return json_pack("{s:o, s:s, s:s, s:o, s:I, s:s}", "hostnqn", mover_json_text(host->about.nqn),
                     "hostid", id, "phase", phase_name(host->phase), "owner",
                     mover_json_text(host->member), "epoch", (json_int_t)host->epoch, "here",
                     nvr_hosts_state_of(member, &host->about));
}

json_t *nvr_member_status(struct nvr_member *member)
{
    struct nvg_status *status = &member->status;
    json_t *members = json_array(), *namespaces = json_array(), *hosts = json_array();
    nvg_status_of(member->group, status);
    uint32_t here = 0;
    for (uint32_t i = 0; i < status->member_count; i++) {
        here += status->members[i].is_here;
        json_array_append_new(members, one_member(&status->members[i]));
    }
    for (uint32_t i = 0; i < status->host_count; i++)
        json_array_append_new(hosts, one_host(member, &status->hosts[i]));
    for (uint32_t i = 0; i < status->namespace_count; i++)
        json_array_append_new(namespaces, one_namespace(member, &status->namespaces[i]));
    return json_pack("{s:s, s:s, s:o, s:b, s:b, s:I, s:i, s:o, s:o, s:s, s:o, s:I}", "member",
                     member->name, "role", role_name(status->role), "leader",
                     mover_json_text(status->leader), "has_quorum", (int)status->has_quorum,
                     "is_leader", (int)(status->role == NVG_LEADER), "changes",
                     (json_int_t)status->changes, "members_here", (int)here, "members", members,
                     "owners", namespaces, "active", status->is_all_active ? "all" : "one",
                     "host_owners", hosts, "hosts_refused", (json_int_t)member->rooms.refused);
}
