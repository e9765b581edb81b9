/* SPDX-License-Identifier: BSD-2-Clause */
/* Cross-controller resets between members: a host has lost a controller of one, and asks another
 * one to end it. */
#include <errno.h>

#include "nvme/target/model/reset.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"
#include "nvme/target/server/server.h"

static int ask_group_for_reset(struct nvt_subsystem *subsystem, const struct nvt_lost *lost)
{
    const struct nvr_member *member = subsystem->resets.context;
    const uint32_t slot = (lost->instance.cntlid - 1u) / NVR_CNTLIDS_OF_SLOT;
    if (slot >= NVG_SLOTS)
        return -EINVAL;
    const struct nvg_controller of = {.slot = (uint8_t)slot, .lost = *lost};
    return nvg_quiesce(member->group, &of);
}

static void look_again(void *context)
{
    nvr_member_look_at_resets(context);
    nvr_hosts_look(context);
}

void nvr_member_begin_resets(struct nvr_member *member)
{
    struct nvt_target *target = &member->server->target;
    member->subsystem->resets =
        (struct nvt_resets_port){.ask = ask_group_for_reset, .context = member};
    target->calmed = look_again;
    target->calmed_context = member;
}

/* The group goes before the last connections. */
void nvr_member_end_resets(struct nvr_member *member)
{
    member->asked_count = 0;
    member->calm_id = 0;
    member->server->target.calmed = NULL;
    if (member->subsystem)
        member->subsystem->resets.ask = NULL;
}

/* Its connections end at once, and its commands as soon as the medium has done them. */
void nvr_member_look_at_resets(struct nvr_member *member)
{
    for (uint32_t i = 0; i < member->asked_count;) {
        const struct nvg_controller of = member->asked[i];
        const enum nvt_quiet quiet = nvt_lost_quiesce(member->subsystem, &of.lost);
        if (quiet == NVT_QUIET_LATER) {
            i++;
            continue;
        }
        member->asked[i] = member->asked[--member->asked_count];
        if (quiet == NVT_QUIET)
            nvr_member_say(member, false, "controller %-3u ended: its host asked another member",
                           of.lost.instance.cntlid);
        nvg_quieted(member->group, &of, quiet);
    }
    if (!member->calm_id || !nvt_ctrls_calm(member->subsystem, member->calm_serial))
        return;
    nvg_calmed(member->group, member->calm_id);
    member->calm_id = 0;
}

static void add_asked(struct nvr_member *member, const struct nvg_controller *of)
{
    for (uint32_t i = 0; i < member->asked_count; i++)
        if (nvt_instance_is(&member->asked[i].lost.instance, &of->lost.instance))
            return;
    if (member->asked_count < NVR_ASKED_MAX) /* else the group asks again */
        member->asked[member->asked_count++] = *of;
}

void nvr_member_take_reset(struct nvr_member *member, const struct nvg_event *event)
{
    const struct nvg_controller *of = &event->controller;
    if (event->kind == NVG_QUIETED) {
        nvt_reset_elsewhere_done(member->subsystem, &of->lost.instance, event->quiet);
        return;
    }
    if (event->kind == NVG_CALM_DOWN) {
        member->calm_id = event->id;
        member->calm_serial = member->server->target.ctrl_serial;
        nvr_member_say(member, true,
                       "ends all connections of hosts: the group had lost this member, and took it "
                       "for quiet");
    } else {
        add_asked(member, of);
    }
    nvr_member_look_at_resets(member);
}
