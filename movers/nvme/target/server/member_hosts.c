/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member of a group whose members are all active: the hosts that it serves. A host is served here
 * from SERVE on, when all members that had it before are fenced. It is given up when none of its
 * controllers is left here and the medium has done its last command: because it has gone, or, with
 * its controllers ended at once, because the group wants it back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/home.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"
#include "nvme/target/server/server.h"

enum { FENCE_MS = 5000, SAY_AGAIN_MS = 300 };

/* By a thread that may wait; the specs last as long as that. */
struct nvr_fencing {
    struct nvt_job job;
    struct nvr_home *home; /* NULL: nobody wants it any more */
    bool is_given_up;      /* the group wants the host back once the fence has ended */
    uint64_t own;
    size_t spec_count;
    const struct nvt_backend_spec *specs[NVG_NAMESPACES_MAX];
    const char *media[NVG_NAMESPACES_MAX]; /* what these were when this member began */
    struct nvr_formers formers;
    int rc;
    char why[NVR_WHY_BYTES];
};

struct nvr_home {
    struct nvr_member *member;
    uint32_t number;
    enum nvr_holding_state state;
    uint64_t epoch;
    struct nvg_host host;
    struct nvr_fencing *fencing; /* NULL: none is under way */
    struct nvr_trouble trouble;
};

static void home_set_ana(const struct nvr_home *home, enum nvme_ana_state state)
{
    nvt_home_set(home->member->subsystem, &home->host.id, home->host.nqn, state, home->epoch);
}

/* ---- giving up ---- */

static bool is_unfenced(const struct nvr_member *member)
{
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++)
        if (member->holdings[nsid].spec && member->holdings[nsid].spec->unfenced)
            return true;
    return false;
}

/* A test shows what happens to a member that does not wait. */
static bool is_quiet_here(const struct nvr_home *home)
{
    const struct nvt_subsystem *subsystem = home->member->subsystem;
    const char *nqn = home->host.nqn;
    return !nvt_home_has_served(subsystem, &home->host.id, nqn) &&
           (is_unfenced(home->member) || !nvt_home_has_commands(subsystem, &home->host.id, nqn));
}

/* It holds nothing of it. */
static void home_is_free(struct nvr_home *home)
{
    home->state = NVR_STANDBY;
    home_set_ana(home, NVME_ANA_STATE_INACCESSIBLE);
    nvg_released(home->member->group, home->number, home->epoch);
}

static void look_at_home(struct nvr_home *home)
{
    const bool is_served = home->state == NVR_SERVING || home->state == NVR_RESTING;
    if (is_served && is_quiet_here(home))
        home_is_free(home);
}

static void home_rest(struct nvr_home *home)
{
    home->state = NVR_RESTING;
    home_set_ana(home, NVME_ANA_STATE_INACCESSIBLE);
    nvt_home_drop(home->member->subsystem, &home->host.id, home->host.nqn);
    look_at_home(home);
}

/* A fence that has begun goes on. */
static void drop_fencing(struct nvr_home *home)
{
    struct nvr_fencing *fencing = home->fencing;
    home->fencing = NULL;
    if (!fencing)
        return;
    if (nvt_worker_cancel(&home->member->fencer, &fencing->job))
        free(fencing);
    else
        fencing->home = NULL;
}

/* The next owner must not meet a fence of ours. */
static void give_up_fencing(struct nvr_home *home)
{
    struct nvr_fencing *fencing = home->fencing;
    if (fencing && !nvt_worker_cancel(&home->member->fencer, &fencing->job)) {
        fencing->is_given_up = true;
        return;
    }
    home->fencing = NULL;
    free(fencing);
    home_is_free(home);
}

static bool shares_device(const struct nvr_member *member)
{
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++)
        if (member->holdings[nsid].spec && nvt_spec_is_device(member->holdings[nsid].spec))
            return !is_unfenced(member);
    return false;
}

/* Another member has the host, and fences this one. By files it would be killed. */
static void home_is_taken(const struct nvr_home *home)
{
    if (home->state != NVR_STANDBY && shares_device(home->member))
        nvr_member_fail(home->member, "the group has given a host of it to another member, which "
                                      "has shut this one out of the device");
}

static void home_release(struct nvr_home *home, const struct nvg_event *event)
{
    if (event->epoch < home->epoch)
        return;
    if (event->is_taken)
        home_is_taken(home);
    switch (home->state) {
    case NVR_TAKEN:
    case NVR_SERVING:
        return home_rest(home);
    case NVR_RESTING: /* the end of that says it */
        return;
    case NVR_TAKING:
        return give_up_fencing(home);
    case NVR_STANDBY:
        home->epoch = event->epoch;
        return home_is_free(home);
    }
}

static void home_stand_by(struct nvr_home *home, const struct nvg_event *event)
{
    if (event->epoch < home->epoch)
        return;
    if (event->epoch > home->epoch)
        home_is_taken(home);
    if (home->state == NVR_TAKEN || home->state == NVR_SERVING)
        return home_rest(home); /* it was taken from us */
    if (home->state == NVR_RESTING)
        return;
    drop_fencing(home);
    home->epoch = event->epoch;
    home->state = NVR_STANDBY;
    home->host = event->host;
    home_set_ana(home, NVME_ANA_STATE_INACCESSIBLE);
    home->member->hosts_said_ns = 0; /* the group has just learnt of it: is it here? */
}

/* ---- taking ---- */

static void home_fails(struct nvr_home *home, const char *why)
{
    home->state = NVR_STANDBY;
    home_set_ana(home, NVME_ANA_STATE_INACCESSIBLE);
    if (nvr_trouble_is_new(&home->trouble, why))
        nvr_member_say(home->member, true, "host %s: cannot be served: %s", home->host.nqn, why);
    nvg_failed(home->member->group, home->number, home->epoch);
}

static void fencing_work(struct nvt_job *job)
{
    struct nvr_fencing *fencing = (struct nvr_fencing *)job;
    fencing->rc =
        nvt_fence_shared(fencing->specs, fencing->spec_count, fencing->own, fencing->formers.all,
                         fencing->formers.count, FENCE_MS, fencing->why, sizeof(fencing->why));
    for (size_t i = 0; !fencing->rc && i < fencing->spec_count; i++) /* it was looked there */
        fencing->rc = nvt_fence_look_again(fencing->specs[i], fencing->media[i], fencing->why,
                                           sizeof(fencing->why));
}

static void finish_fencing(struct nvr_home *home, const struct nvr_fencing *fencing)
{
    home->fencing = NULL;
    if (fencing->rc == -EBADE) /* it fences nobody any more, and what it sends is refused */
        return nvr_member_fail(home->member, fencing->why);
    if (fencing->is_given_up)
        return home_is_free(home);
    if (fencing->rc)
        return home_fails(home, fencing->why);
    home->state = NVR_TAKEN;
    nvg_taken(home->member->group, home->number, home->epoch, 0);
}

static void fencing_done(struct nvt_job *job)
{
    struct nvr_fencing *fencing = (struct nvr_fencing *)job;
    if (fencing->home)
        finish_fencing(fencing->home, fencing);
    free(fencing);
}

static struct nvr_fencing *plan_fencing(struct nvr_home *home, const struct nvg_event *event)
{
    const struct nvr_member *member = home->member;
    struct nvr_fencing *fencing = calloc(1, sizeof(*fencing));
    if (!fencing)
        return NULL;
    fencing->job = (struct nvt_job){
        .owner = "group", .is_trusted = true, .work = fencing_work, .done = fencing_done};
    fencing->home = home;
    fencing->own = nvg_identity_of(member->group)->incarnation;
    for (uint32_t nsid = 1; nsid <= NVG_NAMESPACES_MAX; nsid++) {
        const struct nvr_holding *holding = &member->holdings[nsid];
        if (!holding->spec)
            continue;
        fencing->media[fencing->spec_count] = holding->medium;
        fencing->specs[fencing->spec_count++] = holding->spec;
    }
    if (!is_unfenced(member))
        nvr_formers_take(&fencing->formers, member, event);
    return fencing;
}

static void home_take(struct nvr_home *home, const struct nvg_event *event)
{
    drop_fencing(home);
    home->epoch = event->epoch;
    if (home->state != NVR_STANDBY && home->state != NVR_TAKING)
        return home_fails(home, "this member has not given it up yet");
    home->host = event->host;
    home->fencing = plan_fencing(home, event);
    if (!home->fencing || !nvt_worker_give(&home->member->fencer, &home->fencing->job)) {
        free(home->fencing);
        home->fencing = NULL;
        return home_fails(home, "no memory");
    }
    home->state = NVR_TAKING;
    home_set_ana(home, NVME_ANA_STATE_CHANGE);
}

static void home_serve(struct nvr_home *home, uint64_t epoch)
{
    if (home->state != NVR_TAKEN || epoch != home->epoch)
        return;
    home->state = NVR_SERVING;
    home->trouble.said_ns = 0;
    home_set_ana(home, NVME_ANA_STATE_OPTIMIZED);
    nvr_member_say(home->member, false, "host           %s is served here, epoch %llu",
                   home->host.nqn, (unsigned long long)home->epoch);
    look_at_home(home); /* it may have gone meanwhile */
}

/* ---- hosts that are here ---- */

static const struct nvr_home *find_home(const struct nvr_member *member, const char *nqn,
                                        const struct nvt_host_id *id)
{
    for (uint32_t i = 0; i < NVG_HOSTS_MAX; i++) {
        const struct nvr_home *home = &member->homes[i];
        if (!strcmp(home->host.nqn, nqn) && !memcmp(&home->host.id, id, sizeof(*id)))
            return home;
    }
    return NULL;
}

/* One that has not proved itself may give itself any name, and has no place in the group. */
static bool is_let_in(const struct nvt_ctrl *ctrl)
{
    return !ctrl->is_ending && ctrl->queues[0] && nvt_queue_is_proven(ctrl->queues[0]);
}

static void say_host(const struct nvr_member *member, const struct nvt_ctrl *ctrl)
{
    uint8_t origin[NVG_ORIGIN_BYTES];
    struct nvg_host host = {.id = ctrl->host_id};
    memcpy(host.nqn, ctrl->host_nqn, sizeof(host.nqn));
    nvr_rooms_origin(ctrl->host_address, origin);
    nvg_host_is_here(member->group, &host, origin);
}

static void host_came(struct nvt_ctrl *ctrl, void *context)
{
    const struct nvr_member *member = context;
    const struct nvr_home *home = find_home(member, ctrl->host_nqn, &ctrl->host_id);
    if (home && home->state == NVR_SERVING)
        nvt_home_admit(ctrl, NVME_ANA_STATE_OPTIMIZED, home->epoch);
    if (is_let_in(ctrl))
        say_host(member, ctrl);
}

static bool host_is_admitted(const struct nvt_host_id *id, const char *nqn, const char *address,
                             void *context)
{
    struct nvr_member *member = context;
    struct nvg_host host = {.id = *id};
    memcpy(host.nqn, nqn, strlen(nqn));
    return nvr_rooms_admit(&member->rooms, nvg_room_for(member->group, &host), &host, address);
}

/* It has connected meanwhile, or there was a place when it did. */
static void host_has_no_place(struct nvr_member *member, const struct nvg_event *event)
{
    const struct nvr_home *home = find_home(member, event->host.nqn, &event->host.id);
    const struct nvt_ctrl *ctrl =
        nvt_home_ctrl(member->subsystem, &event->host.id, event->host.nqn);
    if (!ctrl || ctrl->is_ending || (home && home->state != NVR_STANDBY))
        return;
    nvr_rooms_note(&member->rooms, &event->host, event->is_of_origin ? ctrl->host_address : NULL);
    nvt_home_drop(member->subsystem, &event->host.id, event->host.nqn);
}

void nvr_hosts_take_event(struct nvr_member *member, const struct nvg_event *event)
{
    if (event->kind == NVG_NO_PLACE)
        host_has_no_place(member, event);
    if (event->nsid <= NVG_NSID_MAX || event->nsid > NVG_PLACES_MAX)
        return;
    struct nvr_home *home = &member->homes[event->nsid - NVG_NSID_MAX - 1];
    if (event->kind == NVG_STANDBY)
        home_stand_by(home, event);
    else if (event->kind == NVG_TAKE)
        home_take(home, event);
    else if (event->kind == NVG_SERVE)
        home_serve(home, event->epoch);
    else if (event->kind == NVG_RELEASE)
        home_release(home, event);
}

void nvr_hosts_look(struct nvr_member *member)
{
    for (uint32_t i = 0; member->homes && i < NVG_HOSTS_MAX; i++)
        look_at_home(&member->homes[i]);
}

/* Once for each host, as far as there is room for that: others are said to be here more often. */
void nvr_hosts_tick(struct nvr_member *member)
{
    const struct nvt_ctrl *said[NVG_HOSTS_MAX];
    uint32_t count = 0;
    const uint64_t now_ns = mover_now_ns();
    nvr_hosts_look(member);
    if (now_ns - member->hosts_said_ns < SAY_AGAIN_MS * NS_PER_MS)
        return;
    member->hosts_said_ns = now_ns;
    for (struct list_node *node = list_first(&member->subsystem->ctrls); node;
         node = list_after(&member->subsystem->ctrls, node)) {
        const struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        uint32_t i = 0;
        while (i < count && (said[i]->host_hash != ctrl->host_hash ||
                             !nvt_ctrl_is_of_host(ctrl, &said[i]->host_id, said[i]->host_nqn)))
            i++;
        if (i < count || !is_let_in(ctrl))
            continue;
        if (count < NVG_HOSTS_MAX)
            said[count++] = ctrl;
        say_host(member, ctrl);
    }
}

int nvr_hosts_begin(struct nvr_member *member)
{
    if (member->homes)
        return 0;
    member->homes = calloc(NVG_HOSTS_MAX, sizeof(*member->homes));
    if (!member->homes)
        return -ENOMEM;
    for (uint32_t i = 0; i < NVG_HOSTS_MAX; i++) {
        member->homes[i].member = member;
        member->homes[i].number = NVG_NSID_MAX + 1 + i;
    }
    member->subsystem->homes =
        (struct nvt_homes_port){.came = host_came, .admits = host_is_admitted, .context = member};
    return 0;
}

void nvr_hosts_end(struct nvr_member *member)
{
    for (uint32_t i = 0; member->homes && i < NVG_HOSTS_MAX; i++)
        if (member->homes[i].state != NVR_STANDBY)
            home_set_ana(&member->homes[i], NVME_ANA_STATE_INACCESSIBLE);
}

const char *nvr_hosts_state_of(const struct nvr_member *member, const struct nvg_host *host)
{
    const struct nvr_home *home = member->homes ? find_home(member, host->nqn, &host->id) : NULL;
    return nvr_holding_state_name(home ? home->state : NVR_STANDBY);
}
