/* SPDX-License-Identifier: BSD-2-Clause */
/* Hosts, which lose controllers at one member and ask others to end them. */
#include <string.h>

#include "world.h"

static const struct nvt_instance *instance_of(const struct nvg_controller *of)
{
    return &of->lost.instance;
}

void world_connect(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    p->ends_at = 0;
    p->controller = 0;
    if (w->controller_count + 1 == WORLD_CONTROLLERS)
        return;
    p->controller = ++w->controller_count;
    w->controllers[p->controller].process = p->number;
}

void world_note_write(struct world *w, int process)
{
    const struct world_process *p = &w->processes[process];
    if (p->controller && w->controllers[p->controller].is_quiet)
        world_fail(w, "a ghost: a write by a controller that was said to be quiet");
}

/* A host of `p` has lost some controller, perhaps one that is long gone. */
static void lose_controller(struct world *w, struct world_process *p)
{
    const uint64_t back = world_draw(w, w->controller_count < 8 ? w->controller_count : 8);
    const uint32_t number = (uint32_t)(w->controller_count - back);
    const struct world_controller *controller = &w->controllers[number];
    struct nvg_controller of = {
        .slot = controller->slot,
        .lost.instance = {.cntlid = (uint16_t)number, .ciu = 1, .cirn = number}};
    struct nvg_host host;
    world_name_host(1, &host);
    memcpy(of.lost.host_nqn, host.nqn, sizeof(host.nqn));
    if (controller->has_slot && !nvg_machine_quiesce(p->machine, &of))
        w->asks++;
}

void world_take_reset(struct world *w, int process, const struct nvg_event *event)
{
    struct world_process *p = &w->processes[process];
    const struct nvg_controller *of = &event->controller;
    if (event->kind == NVG_QUIETED) {
        if (event->quiet != NVT_QUIET)
            world_fail(w, "a controller that was lost cannot be reset");
        w->controllers[instance_of(of)->cirn].is_quiet = true;
        w->quiets++;
        return;
    }
    if (event->kind == NVG_CALM_DOWN) {
        p->calm_id = event->id;
        p->calms = p->controller;
        w->calms++;
        return;
    }
    if (p->asked_count < WORLD_ASKED)
        p->asked[p->asked_count++] = *of;
}

static void end_controller(struct world *w, struct world_process *p)
{
    if (!p->ends_at)
        p->ends_at = w->now + 1 + world_draw(w, 60);
}

/* How far the target is with one that it is asked for. */
static enum nvt_quiet look_at_asked(struct world *w, struct world_process *p, uint64_t number)
{
    if (w->controllers[number].process != p->number)
        return NVT_QUIET_UNKNOWN;
    if (number != p->controller || !w->options.quiesces)
        return NVT_QUIET;
    end_controller(w, p);
    return NVT_QUIET_LATER;
}

static void calm_down(struct world *w, struct world_process *p)
{
    const uint64_t id = p->calm_id;
    if (id && p->controller && p->controller == p->calms && w->options.quiesces) {
        end_controller(w, p);
    } else if (id) {
        p->calm_id = 0;
        nvg_machine_calmed(p->machine, id);
    }
}

void world_hosts_step(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    if (p->controller && p->machine->has_joined) {
        w->controllers[p->controller].has_slot = true;
        w->controllers[p->controller].slot = p->machine->slot;
    }
    if (p->ends_at && w->now >= p->ends_at)
        world_connect(w, process);
    calm_down(w, p);
    for (uint32_t i = 0; i < p->asked_count;) {
        const struct nvg_controller of = p->asked[i];
        const enum nvt_quiet quiet = look_at_asked(w, p, instance_of(&of)->cirn);
        if (quiet == NVT_QUIET_LATER) {
            i++;
            continue;
        }
        p->asked[i] = p->asked[--p->asked_count];
        nvg_machine_quieted(p->machine, &of, quiet);
    }
    if (!w->is_quiet && w->controller_count && world_chance(w, 3))
        lose_controller(w, p);
}
