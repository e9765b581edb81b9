/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reservations of a group whose members are all active. The group puts a host's command in order
 * with those of other members; each member carries it out, and says when it holds here.
 */
#include "nvme/target/model/commit.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"

static int ask_for_change(struct nvt_commits *commits, const struct nvt_reservation_change *change,
                          uint64_t id)
{
    const struct nvr_holding *holding = commits->context;
    return nvg_change(holding->member->group, holding->nsid, change, id);
}

static void change_holds(struct nvt_commits *commits, uint64_t number)
{
    const struct nvr_holding *holding = commits->context;
    nvg_applied(holding->member->group, holding->nsid, number);
}

int nvr_reservations_begin(struct nvr_holding *holding, struct nvt_namespace *ns)
{
    return nvt_commits_share(ns, ask_for_change, change_holds, holding);
}

void nvr_reservations_take_event(struct nvr_member *member, const struct nvg_event *event)
{
    const struct nvt_namespace *ns =
        event->nsid <= NVG_NAMESPACES_MAX ? member->subsystem->namespaces[event->nsid] : NULL;
    if (!ns)
        return;
    if (event->kind == NVG_RESERVED)
        nvt_commits_apply(ns->commits, &event->applied);
    else
        nvt_commits_done(ns->commits, event->id, event->status);
}
