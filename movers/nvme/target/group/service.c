/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member: the machine, its links and its journal, in a thread. One lock is around all three; the
 * thread lets go of it only to sleep, and the target's thread takes it for each call.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/serve/log.h"
#include "common/serve/thread.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "nvme/target/group/journal.h"
#include "nvme/target/group/links.h"
#include "nvme/target/group/process.h"
#include "nvme/target/group/settings.h"

enum { TICK_MS = 20, TIMEOUT_MS = 5000, OPEN_WAIT_MS = 30000, SAY_MS = 500, HINT_MS = 2000 };

struct nvg_note {
    struct list_node node;
    struct nvg_event event;
};

struct nvg_group {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* it has joined, or stopped */
    int event_fd;           /* readable while there are events */
    _Atomic bool is_over;
    struct list notes; /* for the target */
    struct nvg_event stop;
    struct nvg_identity identity;
    struct nvg_namespace *namespaces; /* of the settings */
    char nqn[NVG_NQN_BYTES];
    struct mover_loop loop;
    struct mover_watch journal_watch;
    struct nvg_links links;
    struct nvg_journal journal;
    struct nvg_machine machine;
};

/* ---- the machine's port ---- */

static void port_dial(void *context, uint32_t link, const char *address)
{
    struct nvg_group *group = context;
    nvg_links_dial(&group->links, link, address);
}

static void port_send(void *context, uint32_t link, const uint8_t *message, size_t bytes)
{
    struct nvg_group *group = context;
    nvg_links_send(&group->links, link, message, bytes);
}

static void port_hang_up(void *context, uint32_t link)
{
    struct nvg_group *group = context;
    nvg_links_hang_up(&group->links, link);
}

static void port_read(void *context)
{
    struct nvg_group *group = context;
    nvg_journal_order(&group->journal, NVG_ORDER_READ, NULL, 0);
}

static void port_open(void *context)
{
    struct nvg_group *group = context;
    nvg_journal_order(&group->journal, NVG_ORDER_OPEN, NULL, 0);
}

static void port_append(void *context, const uint8_t *record, size_t bytes)
{
    struct nvg_group *group = context;
    nvg_journal_order(&group->journal, NVG_ORDER_APPEND, record, bytes);
}

static void port_trim(void *context)
{
    struct nvg_group *group = context;
    nvg_journal_order(&group->journal, NVG_ORDER_TRIM, NULL, 0);
}

static void port_close_log(void *context)
{
    struct nvg_group *group = context;
    nvg_journal_close_log(&group->journal);
}

static void port_tell(void *context, const struct nvg_event *event)
{
    struct nvg_group *group = context;
    const uint64_t one = 1;
    struct nvg_note *note = malloc(sizeof(*note));
    if (!note)
        abort(); /* a target that misses RELEASE would go on */
    note->event = *event;
    list_append(&group->notes, &note->node);
    if (event->kind == NVG_STOP)
        group->stop = *event;
    if (write(group->event_fd, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN);
}

static uint64_t port_draw(void *context)
{
    (void)context;
    return nvg_draw();
}

/* ---- the thread ---- */

static void take_journal(struct mover_watch *watch)
{
    struct nvg_group *group = watch->context;
    struct nvg_journal_result *result;
    while ((result = nvg_journal_next(&group->journal))) {
        if (result->is_event)
            nvg_machine_journal(&group->machine, &result->event);
        else
            nvg_machine_record(&group->machine, result->record, result->bytes);
        free(result);
    }
}

static void *group_run(void *arg)
{
    struct nvg_group *group = arg;
    struct mover_watch *watch;
    while (!group->is_over) {
        mover_loop_wait(&group->loop, TICK_MS);
        pthread_mutex_lock(&group->lock);
        const uint64_t now_ns = mover_now_ns();
        group->machine.now_ns = now_ns;
        while ((watch = mover_loop_next(&group->loop)))
            if (watch->ready)
                watch->ready(watch);
        nvg_machine_tick(&group->machine, now_ns);
        nvg_links_tick(&group->links, now_ns);
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->lock);
    }
    return NULL;
}

/* ---- what the target calls ---- */

int nvg_fd(const struct nvg_group *group)
{
    return group->event_fd;
}

bool nvg_next(struct nvg_group *group, struct nvg_event *event)
{
    uint64_t count;
    if (read(group->event_fd, &count, sizeof(count)) < 0)
        assert(errno == EAGAIN);
    pthread_mutex_lock(&group->lock);
    struct list_node *node = list_first(&group->notes);
    if (node)
        list_remove(node);
    const bool is_last = list_is_empty(&group->notes);
    pthread_mutex_unlock(&group->lock);
    if (!node)
        return false;
    struct nvg_note *note = LIST_MEMBER(node, struct nvg_note, node);
    *event = note->event;
    free(note);
    count = 1;
    if (!is_last && write(group->event_fd, &count, sizeof(count)) < 0)
        assert(errno == EAGAIN);
    return true;
}

static struct nvg_machine *enter_group(struct nvg_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->machine.now_ns = mover_now_ns();
    return &group->machine;
}

/* What was asked for leaves at once. */
static void leave_lock(struct nvg_group *group)
{
    nvg_machine_tick(&group->machine, mover_now_ns());
    pthread_mutex_unlock(&group->lock);
}

void nvg_taken(struct nvg_group *group, uint32_t nsid, uint64_t epoch, uint64_t size_bytes)
{
    nvg_machine_taken(enter_group(group), nsid, epoch, size_bytes);
    leave_lock(group);
}

void nvg_released(struct nvg_group *group, uint32_t nsid, uint64_t epoch)
{
    nvg_machine_released(enter_group(group), nsid, epoch);
    leave_lock(group);
}

void nvg_lost(struct nvg_group *group, uint32_t nsid, uint64_t epoch, const char *why)
{
    mover_log(MOVER_LOG_ERROR, "namespace %u is lost: %s", nsid, why);
    nvg_released(group, nsid, epoch);
}

void nvg_resized(struct nvg_group *group, uint32_t nsid, uint64_t epoch, uint64_t size_bytes)
{
    nvg_machine_resized(enter_group(group), nsid, epoch, size_bytes);
    leave_lock(group);
}

int nvg_disk(struct nvg_group *group, uint32_t nsid, uint32_t error)
{
    const int code = nvg_machine_disk(enter_group(group), nsid, error);
    leave_lock(group);
    return code;
}

int nvg_reserve(struct nvg_group *group, uint32_t nsid, uint64_t epoch,
                const struct nvt_reservation *reservation, uint64_t id)
{
    const int code = nvg_machine_reserve(enter_group(group), nsid, epoch, reservation, id);
    leave_lock(group);
    return code;
}

int nvg_change(struct nvg_group *group, uint32_t nsid, const struct nvt_reservation_change *change,
               uint64_t id)
{
    const int code = nvg_machine_change(enter_group(group), nsid, change, id);
    leave_lock(group);
    return code;
}

void nvg_applied(struct nvg_group *group, uint32_t nsid, uint64_t number)
{
    nvg_machine_applied(enter_group(group), nsid, number);
    leave_lock(group);
}

int nvg_quiesce(struct nvg_group *group, const struct nvg_controller *controller)
{
    const int code = nvg_machine_quiesce(enter_group(group), controller);
    leave_lock(group);
    return code;
}

void nvg_quieted(struct nvg_group *group, const struct nvg_controller *controller,
                 enum nvt_quiet quiet)
{
    nvg_machine_quieted(enter_group(group), controller, quiet);
    leave_lock(group);
}

void nvg_calmed(struct nvg_group *group, uint64_t id)
{
    nvg_machine_calmed(enter_group(group), id);
    leave_lock(group);
}

int nvg_move(struct nvg_group *group, const struct nvg_moved *what, const char *to, uint64_t *epoch)
{
    const int code = nvg_machine_move(enter_group(group), what, to, epoch);
    leave_lock(group);
    return code;
}

void nvg_leave(struct nvg_group *group)
{
    nvg_machine_leave(enter_group(group));
    leave_lock(group);
}

void nvg_host_is_here(struct nvg_group *group, const struct nvg_host *host,
                      const uint8_t origin[NVG_ORIGIN_BYTES])
{
    nvg_machine_host_is_here(enter_group(group), host, origin);
    leave_lock(group);
}

enum nvg_room nvg_room_for(struct nvg_group *group, const struct nvg_host *host)
{
    const enum nvg_room room = nvg_machine_room_for(enter_group(group), host);
    pthread_mutex_unlock(&group->lock); /* it has asked for nothing */
    return room;
}

const struct nvg_identity *nvg_identity_of(const struct nvg_group *group)
{
    return &group->identity;
}

bool nvg_namespace_of(struct nvg_group *group, uint32_t nsid, struct nvg_namespace *ns)
{
    pthread_mutex_lock(&group->lock);
    const struct nvg_place *place = nvg_state_place(&group->machine.replica.now, nsid);
    if (place)
        *ns = place->about;
    pthread_mutex_unlock(&group->lock);
    return place;
}

/* ---- what it shows ---- */

static void show_members(const struct nvg_machine *m, struct nvg_status *status)
{
    const struct nvg_state *now = &m->replica.now;
    for (uint8_t i = 0; i < NVG_SLOTS; i++) {
        const struct nvg_join *join = &now->members[i];
        if (!now->has_member[i])
            continue;
        struct nvg_member *out = &status->members[status->member_count++];
        memcpy(out->name, join->who.member, sizeof(out->name));
        memcpy(out->group_address, join->group_address, sizeof(out->group_address));
        memcpy(out->addresses, join->addresses, sizeof(out->addresses));
        out->address_count = join->address_count;
        out->slot = i;
        out->is_here = join->is_here;
        out->is_self = nvg_is_self(m, i, join->who.incarnation);
        out->incarnation = join->who.incarnation;
        out->is_leader = now->lead_slot == i && now->lead_incarnation == join->who.incarnation;
        out->is_linked = out->is_self;
        for (uint32_t l = NVG_LINKS_IN; l < NVG_LINKS; l++) {
            if (!m->links[l].is_member || m->links[l].slot != i)
                continue;
            out->is_linked = true;
            out->silent_ms = m->now_ns > m->links[l].heard_ns
                                 ? (m->now_ns - m->links[l].heard_ns) / NS_PER_MS
                                 : 0;
        }
        if (out->is_leader && (m->role == NVG_LEADER || m->role == NVG_FOLLOWER))
            memcpy(status->leader, out->name, sizeof(status->leader));
    }
}

static void show_namespaces(const struct nvg_state *now, struct nvg_status *status)
{
    for (uint32_t i = 1; i <= NVG_NSID_MAX; i++) {
        const struct nvg_place *place = nvg_state_place(now, i);
        if (!place)
            continue;
        struct nvg_namespace_status *out = &status->namespaces[status->namespace_count++];
        out->about = place->about;
        out->phase = place->hold.phase;
        out->epoch = place->hold.epoch;
        out->slot = place->hold.owner.slot;
        out->disk_error = place->disk.error;
        if (place->hold.phase != NVG_FREE)
            memcpy(out->member, place->hold.owner.member, sizeof(out->member));
    }
}

static void show_hosts(const struct nvg_state *now, struct nvg_status *status)
{
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++) {
        const struct nvg_place *place = nvg_state_place(now, i);
        if (!place)
            continue;
        struct nvg_host_status *out = &status->hosts[status->host_count++];
        out->about = place->host;
        out->phase = place->hold.phase;
        out->epoch = place->hold.epoch;
        if (place->hold.phase != NVG_FREE)
            memcpy(out->member, place->hold.owner.member, sizeof(out->member));
    }
}

void nvg_status_of(struct nvg_group *group, struct nvg_status *status)
{
    memset(status, 0, sizeof(*status));
    pthread_mutex_lock(&group->lock);
    const struct nvg_machine *m = &group->machine;
    status->role = m->role;
    status->has_quorum = m->has_quorum;
    status->changes = m->replica.changes;
    status->copy_count = group->journal.options.copies_count;
    show_members(m, status);
    show_namespaces(&m->replica.now, status);
    show_hosts(&m->replica.now, status);
    status->is_all_active = m->replica.now.is_all_active;
    if (m->role == NVG_LEADER)
        nvg_journal_states(&group->journal, status->copy_states);
    pthread_mutex_unlock(&group->lock);
}

/* ---- opening and closing ---- */

static void make_setup(struct nvg_group *group, const struct nvg_settings *s,
                       struct nvg_setup *setup)
{
    memset(setup, 0, sizeof(*setup));
    strncpy(group->nqn, s->nqn, sizeof(group->nqn) - 1);
    setup->nqn = group->nqn;
    setup->namespaces = group->namespaces;
    setup->namespace_count = s->namespace_count;
    setup->is_all_active = s->is_all_active;
    setup->timeout_ns = (uint64_t)(s->timeout_ms ? s->timeout_ms : TIMEOUT_MS) * NS_PER_MS;
    nvg_process_describe(&setup->self.who);
    strncpy(setup->self.who.member, s->member, sizeof(setup->self.who.member) - 1);
    setup->self.is_here = true;
    snprintf(setup->self.group_address, sizeof(setup->self.group_address),
             strchr(s->group_address, ':') ? "[%s]:%s" : "%s:%s", s->group_address, s->group_port);
    setup->self.address_count = s->address_count;
    memcpy(setup->self.addresses, s->addresses, sizeof(setup->self.addresses));
    group->identity.incarnation = setup->self.who.incarnation;
}

/* Frees all but the thread. */
static void service_free(struct nvg_group *group)
{
    for (struct list_node *node; (node = list_first(&group->notes));) {
        list_remove(node);
        free(LIST_MEMBER(node, struct nvg_note, node));
    }
    mover_loop_close(&group->loop);
    if (group->event_fd >= 0)
        close(group->event_fd);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group->namespaces);
    free(group);
}

static int start_group(struct nvg_group *group, const struct nvg_settings *settings, char *error,
                       size_t error_bytes)
{
    const struct nvg_port port = {
        .context = group,
        .dial = port_dial,
        .send = port_send,
        .hang_up = port_hang_up,
        .journal_read = port_read,
        .journal_open = port_open,
        .journal_append = port_append,
        .journal_trim = port_trim,
        .journal_close = port_close_log,
        .tell = port_tell,
        .draw = port_draw,
    };
    struct nvg_setup setup;
    int code = nvg_links_open(&group->links, &group->machine, &group->loop, settings->group_address,
                              settings->group_port, error, error_bytes);
    if (code)
        return code;
    code = nvg_journal_start(&group->journal, settings);
    if (code) {
        snprintf(error, error_bytes, "no thread for the group's log: %s", strerror(-code));
        nvg_links_close(&group->links);
        return code;
    }
    group->journal_watch = (struct mover_watch){
        .fd = group->journal.event_fd, .ready = take_journal, .context = group};
    make_setup(group, settings, &setup);
    code = mover_loop_watch(&group->loop, &group->journal_watch);
    if (!code) {
        nvg_machine_start(&group->machine, &setup, &port, mover_now_ns());
        code = -mover_thread_start(&group->thread, group_run, group);
    }
    if (code) {
        snprintf(error, error_bytes, "no thread for the group: %s", strerror(-code));
        nvg_journal_end(&group->journal);
        nvg_links_close(&group->links);
    }
    return code;
}

/* It is in the log, has heard all that is there, and so are its namespaces. */
static bool has_all_joined(const struct nvg_machine *m)
{
    for (uint32_t i = 0; i < m->setup.namespace_count; i++)
        if (!nvg_state_place(&m->replica.now, m->setup.namespaces[i].nsid))
            return false;
    return m->has_joined && m->is_synced;
}

static const char *what_is_awaited(const struct nvg_machine *m)
{
    if (m->trouble[0])
        return m->trouble;
    if (m->role == NVG_STARTING || m->role == NVG_CANDIDATE)
        return "the servers of its log have not answered";
    return m->has_joined ? "its leader has not told all yet" : "no member that leads has answered";
}

/* A user who waits is told why, and again when that changes. */
static void say_what_is_awaited(const struct nvg_machine *m, char said[NVG_TEXT_BYTES])
{
    const char *why = what_is_awaited(m);
    if (!strcmp(said, why))
        return;
    snprintf(said, NVG_TEXT_BYTES, "%s", why);
    mover_log(MOVER_LOG_WARNING, "waits to join the group: %s", why);
}

static void wait_until_joined(struct nvg_group *group, uint64_t until_ns)
{
    const struct nvg_machine *m = &group->machine;
    uint64_t hint_ns = mover_now_ns() + (uint64_t)HINT_MS * NS_PER_MS;
    char said[NVG_TEXT_BYTES] = "";
    while (mover_now_ns() < until_ns && m->role != NVG_STOPPED && !has_all_joined(m)) {
        const uint64_t next_ns = hint_ns < until_ns ? hint_ns : until_ns;
        const struct timespec next = {.tv_sec = (time_t)(next_ns / NS_PER_S),
                                      .tv_nsec = (long)(next_ns % NS_PER_S)};
        pthread_cond_timedwait(&group->changed, &group->lock, &next);
        if (mover_now_ns() < hint_ns || m->role == NVG_STOPPED || has_all_joined(m))
            continue;
        hint_ns += (uint64_t)HINT_MS * NS_PER_MS;
        say_what_is_awaited(m, said);
    }
}

static int wait_for_join(struct nvg_group *group, uint32_t open_ms, char *error, size_t error_bytes)
{
    const struct nvg_machine *m = &group->machine;
    int code = 0;
    pthread_mutex_lock(&group->lock);
    wait_until_joined(group, mover_now_ns() + (uint64_t)open_ms * NS_PER_MS);
    if (m->role == NVG_STOPPED) {
        code = group->stop.status ? group->stop.status : -ECANCELED;
        snprintf(error, error_bytes, "%s", group->stop.text);
    } else if (!has_all_joined(m)) {
        code = -ETIMEDOUT;
        snprintf(error, error_bytes, "the group cannot be joined: %s", what_is_awaited(m));
    } else {
        group->identity.slot = m->slot;
        memcpy(group->identity.identity, m->replica.now.identity, 16);
        nvg_state_serial(&m->replica.now, group->identity.serial);
    }
    pthread_mutex_unlock(&group->lock);
    return code;
}

int nvg_open(const struct nvg_settings *settings, struct nvg_group **out, char *error,
             size_t error_bytes)
{
    pthread_condattr_t attr;
    int code = nvg_settings_check(settings, error, error_bytes);
    if (code)
        return code;
    struct nvg_group *group = calloc(1, sizeof(*group));
    const size_t bytes = settings->namespace_count * sizeof(*group->namespaces);
    if (!group || !(group->namespaces = malloc(bytes + 1))) {
        free(group);
        snprintf(error, error_bytes, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    if (bytes)
        memcpy(group->namespaces, settings->namespaces, bytes);
    list_init(&group->notes);
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&group->changed, &attr);
    pthread_condattr_destroy(&attr);
    group->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    code = group->event_fd < 0 ? -errno : mover_loop_open(&group->loop);
    if (code)
        snprintf(error, error_bytes, "%s", strerror(-code));
    else
        code = start_group(group, settings, error, error_bytes);
    if (code) {
        service_free(group);
        return code;
    }
    code = wait_for_join(group, settings->open_ms ? settings->open_ms : OPEN_WAIT_MS, error,
                         error_bytes);
    if (code)
        nvg_close(group);
    else
        *out = group;
    return code;
}

void nvg_close(struct nvg_group *group)
{
    const uint64_t until_ns = mover_now_ns() + (uint64_t)SAY_MS * NS_PER_MS;
    for (bool is_idle = false; !is_idle && mover_now_ns() < until_ns;) {
        pthread_mutex_lock(&group->lock);
        is_idle = nvg_links_are_idle(&group->links);
        pthread_mutex_unlock(&group->lock);
        usleep(is_idle ? 0 : 1000);
    }
    group->is_over = true;
    pthread_join(group->thread, NULL);
    nvg_links_close(&group->links);
    nvg_journal_end(&group->journal);
    service_free(group);
}
