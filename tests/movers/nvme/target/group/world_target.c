/* SPDX-License-Identifier: BSD-2-Clause */
/* The target of each member, and the media of their namespaces. */
#include <errno.h>
#include <string.h>

#include "world.h"

void world_name_host(uint32_t index, struct nvg_host *host)
{
    memset(host, 0, sizeof(*host));
    host->nqn[0] = (char)('0' + index);
}

static uint32_t index_of(const struct nvg_event *event)
{
    if (!nvg_is_of_host(event->nsid))
        return event->nsid;
    return (uint32_t)(event->host.nqn[0] - '0');
}

/* A member that leaves while it reads the log anew does not know what a number stands for. */
static uint32_t index_at(const struct world_process *p, const struct nvg_event *event)
{
    for (uint32_t i = 1; i <= WORLD_PLACES && event->kind == NVG_RELEASE; i++)
        if (p->places[i].holding != HAS_NOTHING && p->places[i].number == event->nsid)
            return i;
    return index_of(event);
}

static void fence_all(struct world *w, const struct nvg_event *take)
{
    const uint32_t index = index_of(take);
    for (uint32_t f = 0; f < take->former_count; f++)
        for (int i = 0; i < WORLD_PROCESSES; i++) {
            struct world_process *p = &w->processes[i];
            if (!p->is_used ||
                p->machine->setup.self.who.incarnation != take->formers[f].incarnation)
                continue;
            if (p->places[index].epoch < take->epoch)
                p->places[index].is_fenced = true;
            w->fences++;
        }
}

void world_write(struct world *w, int process)
{
    for (uint32_t nsid = 1; nsid <= WORLD_PLACES; nsid++) {
        struct world_place *place = &w->processes[process].places[nsid];
        if (place->holding != HAS_SERVING || place->is_fenced)
            continue;
        if (place->epoch < w->media[nsid].served_epoch)
            world_fail(w, "a ghost: the medium took a write of an owner that was replaced");
        if (!w->options.is_all_active || nsid == 1) /* whose the controllers are */
            world_note_write(w, process);
    }
}

static void take_serve(struct world *w, int process, struct world_place *place,
                       const struct nvg_event *event)
{
    struct world_medium *medium = &w->media[index_of(event)];
    const uint64_t value = event->reservation.generation;
    if (place->holding != HAS_OPEN || place->epoch != event->epoch)
        world_fail(w, "SERVE of what was not taken");
    place->holding = HAS_SERVING;
    w->serves++;
    if (place->is_fenced)
        return; /* the message is late: the medium knows better */
    if (event->epoch <= medium->served_epoch)
        world_fail(w, "an owner of an old epoch serves");
    if (value < medium->committed)
        world_fail(w, "a reservation that was in the log is lost");
    if (value && medium->fate[value % WORLD_VALUES])
        world_fail(w, "a reservation was refused, and is there");
    medium->served_epoch = event->epoch;
    world_note_serve(w, process, place);
}

static void take_committed(struct world *w, struct world_place *place,
                           const struct nvg_event *event)
{
    struct world_medium *medium = &w->media[event->nsid];
    if (!place->is_asking || event->id != place->asked) {
        world_fail(w, "COMMITTED of what was not asked for");
        return;
    }
    place->is_asking = false;
    if (event->status == 0 && event->id > medium->committed)
        medium->committed = event->id;
    if (event->status == -EAGAIN)
        medium->fate[event->id % WORLD_VALUES] = 1;
    w->commits += event->status == 0;
    w->refusals += event->status != 0;
}

void world_tell(struct world *w, int process, const struct nvg_event *event)
{
    struct world_process *p = &w->processes[process];
    const bool is_held = event->kind == NVG_TAKE || event->kind == NVG_SERVE ||
                         event->kind == NVG_RELEASE ||
                         (event->kind == NVG_COMMITTED && !w->options.is_all_active);
    struct world_place *place =
        &p->places[is_held && !w->options.is_crowd ? index_at(p, event) : 0];
    if (w->options.is_crowd && event->kind != NVG_STOP)
        return world_crowd_tell(w, process, event);
    switch (event->kind) {
    case NVG_TAKE:
        if (place->holding != HAS_NOTHING)
            world_fail(w, "TAKE of what is not given back yet");
        place->holding = HAS_TAKING;
        place->epoch = event->epoch;
        place->take = *event;
        place->number = event->nsid;
        place->due = w->now + 1 + world_draw(w, 40);
        place->is_fenced = false;
        return;
    case NVG_SERVE:
        take_serve(w, process, place, event);
        return;
    case NVG_RELEASE:
        if (place->holding == HAS_NOTHING || place->holding == HAS_RELEASING)
            world_fail(w, "RELEASE of nothing");
        place->holding = HAS_RELEASING;
        place->due = w->now + 1 + world_draw(w, 20);
        return;
    case NVG_COMMITTED:
        if (w->options.is_all_active)
            world_take_answer(w, process, event);
        else
            take_committed(w, place, event);
        return;
    case NVG_RESERVED:
        world_take_reserved(w, process, event);
        return;
    case NVG_STOP:
        p->is_over = true;
        return;
    case NVG_QUIESCE:
    case NVG_QUIETED:
    case NVG_CALM_DOWN:
        world_take_reset(w, process, event);
        return;
    case NVG_NO_PLACE:
        world_fail(w, "a host has no place where there are many");
        return;
    case NVG_STANDBY:
    case NVG_DISK_IS:
    case NVG_RESIZED:
    case NVG_MEMBERS:
        return;
    }
}

static void end_take(struct world *w, struct world_process *p, uint32_t nsid)
{
    struct world_place *place = &p->places[nsid];
    if (w->options.fences)
        fence_all(w, &place->take);
    if (world_chance(w, 5)) {
        place->holding = HAS_NOTHING;
        nvg_machine_released(p->machine, place->number, place->epoch);
        return;
    }
    place->holding = HAS_OPEN;
    nvg_machine_taken(p->machine, place->number, place->epoch, 1 << 20);
}

static void ask_change(struct world *w, struct world_process *p, uint32_t nsid)
{
    struct world_place *place = &p->places[nsid];
    struct nvt_reservation reservation = {0};
    if (w->media[nsid].drawn + 1 >= WORLD_VALUES)
        return;
    const uint64_t value = ++w->media[nsid].drawn;
    reservation.generation = (uint32_t)value;
    if (nvg_machine_reserve(p->machine, nsid, place->epoch, &reservation, value)) {
        w->media[nsid].fate[value] = 1;
        return;
    }
    place->is_asking = true;
    place->asked = value;
}

/* Hosts are connected to most members, and leave some. A member gives up whom has left. */
static void step_host(struct world *w, struct world_process *p, uint32_t index)
{
    struct world_place *place = &p->places[index];
    struct nvg_host host;
    if (!w->is_quiet && w->now >= place->absent_until && world_chance(w, 1))
        place->absent_until = w->now + 20 + world_draw(w, 200);
    if (w->now >= place->absent_until) {
        static const uint8_t origin[NVG_ORIGIN_BYTES] = {1};
        world_name_host(index, &host);
        nvg_machine_host_is_here(p->machine, &host, origin);
    } else if (place->holding == HAS_SERVING) {
        place->holding = HAS_NOTHING;
        nvg_machine_released(p->machine, place->number, place->epoch);
    }
}

void world_target_step(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    if (w->options.is_crowd)
        return world_crowd_step(w, process);
    for (uint32_t nsid = 1; nsid <= WORLD_PLACES; nsid++) {
        struct world_place *place = &p->places[nsid];
        if (w->options.is_all_active && !w->options.is_hostless)
            step_host(w, p, nsid);
        if (place->holding == HAS_TAKING && w->now >= place->due) {
            end_take(w, p, nsid);
        } else if (place->holding == HAS_RELEASING && w->now >= place->due) {
            place->holding = HAS_NOTHING;
            nvg_machine_released(p->machine, place->number, place->epoch);
        } else if (place->holding == HAS_SERVING && place->is_fenced) {
            place->holding = HAS_NOTHING; /* a write has found it out */
            nvg_machine_released(p->machine, place->number, place->epoch);
        } else if (place->holding == HAS_SERVING && !w->options.is_all_active && !w->is_quiet &&
                   !place->is_asking && world_chance(w, 20)) {
            ask_change(w, p, nsid);
        }
    }
    world_reserve_step(w, process);
    world_write(w, process);
    world_hosts_step(w, process);
}
