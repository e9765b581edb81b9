/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of links and of the journal, and what all roles have in common. */
#include "nvme/target/group/machine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PINGS_A_TIMEOUT = 5,
    READ_AGAIN_MS = 500,
    OPEN_AGAIN_MS = 600,
    SLOT_MS = 50,
    NAMING_MS = 1000 /* a leader names one namespace after the other */
};

void nvg_send(struct nvg_machine *m, uint32_t link, const struct nvg_message *message)
{
    uint8_t bytes[NVG_MESSAGE_MAX];
    if (!m->links[link].is_up)
        return;
    m->links[link].said_ns = m->now_ns;
    m->port.send(m->port.context, link, bytes, nvg_message_put(message, bytes));
}

void nvg_hang_up(struct nvg_machine *m, uint32_t link)
{
    if (!m->links[link].is_open)
        return;
    nvg_quiesce_link_lost(m, link);
    memset(&m->links[link], 0, sizeof(m->links[link]));
    m->port.hang_up(m->port.context, link);
}

bool nvg_may_decide(const struct nvg_machine *m)
{
    return (m->role == NVG_LEADER || m->role == NVG_FOLLOWER) && m->has_quorum;
}

bool nvg_is_self(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation)
{
    return m->has_joined && slot == m->slot && incarnation == m->setup.self.who.incarnation;
}

void nvg_close_links(struct nvg_machine *m)
{
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_BYE;
    for (uint32_t i = NVG_LINKS_IN; m->role == NVG_LEADER && i < NVG_LINKS; i++)
        if (m->links[i].is_member)
            nvg_send(m, i, &m->out);
    for (uint32_t i = 0; i < NVG_LINKS; i++)
        nvg_hang_up(m, i);
    m->leader_link = NVG_LINKS;
}

void nvg_stop(struct nvg_machine *m, int status, const char *text, const char *name)
{
    const bool had_log = m->role == NVG_LEADER || m->role == NVG_CANDIDATE;
    if (m->role == NVG_STOPPED)
        return;
    nvg_close_links(m);
    m->role = NVG_STOPPED;
    if (had_log)
        m->port.journal_close(m->port.context);
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_STOP;
    m->event.status = status;
    snprintf(m->event.text, sizeof(m->event.text), text, name);
    m->port.tell(m->port.context, &m->event);
}

/* Members have joined or left; the leader is another one. */
static void tell_members(struct nvg_machine *m)
{
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_MEMBERS;
    m->port.tell(m->port.context, &m->event);
}

void nvg_state_moved(struct nvg_machine *m, uint32_t nsid)
{
    const uint64_t own = m->setup.self.who.incarnation;
    if (!m->is_synced || m->role == NVG_STOPPED)
        return;
    if (!m->has_joined && !nvg_state_has(&m->replica.now, m->slot, own))
        return;
    m->has_joined = true;
    if (!nvg_state_has(&m->replica.now, m->slot, own)) {
        const struct nvg_join *now = &m->replica.now.members[m->slot];
        if (now->who.incarnation == own)
            nvg_stop(m, m->is_leaving ? 0 : -ESTALE, "%s has left the group",
                     m->setup.self.who.member);
        else
            nvg_stop(m, -EEXIST, "another process has joined the group as %s",
                     m->setup.self.who.member);
        return;
    }
    nvg_wish_look_at_calm(m);
    if (!nsid)
        tell_members(m);
    for (uint32_t i = nsid ? nsid : 1; i <= (nsid ? nsid : NVG_PLACES_MAX); i++)
        nvg_wish_look(m, i);
}

/* ---- links ---- */

void nvg_machine_link_up(struct nvg_machine *m, uint32_t link)
{
    struct nvg_link *l = &m->links[link];
    if (!l->is_open || (m->role != NVG_SEEKING && m->role != NVG_LEADER))
        return;
    l->is_up = true;
    l->heard_ns = m->now_ns;
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = m->role == NVG_LEADER ? NVG_CALL : NVG_HELLO;
    m->out.is_member = m->has_joined;
    m->out.epoch = m->log_epoch;
    memcpy(m->out.identity, m->replica.now.identity, sizeof(m->out.identity));
    m->out.join = m->setup.self;
    nvg_send(m, link, &m->out);
    if (m->role == NVG_LEADER)
        nvg_hang_up(m, link);
}

void nvg_machine_link_in(struct nvg_machine *m, uint32_t link)
{
    assert(link >= NVG_LINKS_IN && link < NVG_LINKS && !m->links[link].is_open);
    m->links[link] = (struct nvg_link){.is_open = true,
                                       .is_up = true,
                                       .slot = NVG_SLOTS,
                                       .heard_ns = m->now_ns,
                                       .said_ns = m->now_ns,
                                       .since_ns = m->now_ns};
}

/* Nobody answers for that process any more. */
static void mark_gone(struct nvg_machine *m, uint8_t slot, uint64_t incarnation)
{
    m->peers[slot].gone = incarnation;
    m->peers[slot].gone_ns = m->now_ns;
}

void nvg_machine_link_lost(struct nvg_machine *m, uint32_t link)
{
    const struct nvg_link was = m->links[link];
    if (!was.is_open)
        return;
    nvg_quiesce_link_lost(m, link);
    memset(&m->links[link], 0, sizeof(m->links[link]));
    if (was.slot >= NVG_SLOTS)
        return;
    if (was.is_member || link < NVG_LINKS_IN)
        mark_gone(m, was.slot, was.incarnation);
    if (link < NVG_LINKS_IN)
        m->peers[link].is_asked = m->peers[link].is_mute = false;
    if (m->role == NVG_FOLLOWER && link == m->leader_link)
        nvg_seek(m);
}

/* ---- messages ---- */

static void take_hello(struct nvg_machine *m, uint32_t link)
{
    const struct nvg_state *now = &m->replica.now;
    const bool knows = now->has_group && !memcmp(m->in.identity, now->identity, 16);
    if (link < NVG_LINKS_IN || m->links[link].is_member || !knows) {
        nvg_hang_up(m, link);
        return;
    }
    if (m->role == NVG_LEADER && m->has_joined) {
        nvg_lead_hello(m, link, &m->in);
        return;
    }
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_ANSWER;
    m->out.role = (uint8_t)m->role;
    m->out.slot = m->has_joined ? m->slot : NVG_SLOTS;
    m->out.leads_slot = NVG_SLOTS;
    if (m->role == NVG_FOLLOWER && m->is_synced) {
        m->out.leads_slot = now->lead_slot;
        m->out.leads_incarnation = now->lead_incarnation;
    }
    nvg_send(m, link, &m->out);
    nvg_hang_up(m, link);
}

static void machine_take_welcome(struct nvg_machine *m, uint32_t link)
{
    m->role = NVG_FOLLOWER;
    m->leader_link = link;
    m->slot = m->in.slot;
    m->is_synced = false;
    m->has_quorum = true;
    m->is_replaced = m->was_cut = false;
    m->shunned = 0;
    m->peers[link].gone = 0;
    for (uint32_t i = 0; i < NVG_LINKS_IN; i++)
        if (i != link)
            nvg_hang_up(m, i);
}

/* Which namespace a record is about; 0: members, or all. */
static uint32_t nsid_of(const struct nvg_record *record)
{
    return record->kind == NVG_NAMESPACE ? record->about.nsid : record->nsid;
}

static void take_push(struct nvg_machine *m, uint32_t link)
{
    if (!nvg_record_get(m->in.record, m->in.record_bytes, &m->record)) {
        nvg_machine_link_lost(m, link);
        m->port.hang_up(m->port.context, link);
        return;
    }
    nvg_wish_note(m, &m->record);
    nvg_replica_take(&m->replica, &m->record);
    if (m->replica.is_filling)
        return;
    const bool is_first = !m->is_synced && m->record.kind == NVG_END;
    m->is_synced |= is_first;
    if (is_first || m->record.kind == NVG_NAMESPACE)
        m->named_ns = m->now_ns;
    nvg_state_moved(m, nsid_of(&m->record));
    if (is_first)
        nvg_wish_anew(m);
}

/* What a leader says to those that follow it, or want to. */
static void hear_leader(struct nvg_machine *m, uint32_t link)
{
    const bool is_leader = m->role == NVG_FOLLOWER && link == m->leader_link;
    if (m->in.kind == NVG_WELCOME && m->role == NVG_SEEKING)
        machine_take_welcome(m, link);
    else if (m->in.kind == NVG_ANSWER && m->role == NVG_SEEKING)
        nvg_seek_answer(m, link, &m->in);
    else if (m->in.kind == NVG_HALT)
        nvg_stop(m, -EEXIST, "%s", m->in.text);
    else if (is_leader && m->in.kind == NVG_PUSH)
        take_push(m, link);
    else if (is_leader && m->in.kind == NVG_REFUSE)
        nvg_wish_refused(m, m->in.number, m->in.status);
    else if (is_leader && m->in.kind == NVG_PING)
        m->has_quorum = m->in.has_quorum;
    else if (is_leader && (m->in.kind == NVG_ASK_QUIET || m->in.kind == NVG_TELL_QUIET))
        nvg_quiesce_hear_leader(m);
    else if (is_leader && m->in.kind == NVG_SETTLED)
        nvg_wish_settled(m, m->in.nsid, m->in.number);
    else if (is_leader && m->in.kind == NVG_PLACELESS)
        nvg_hosts_tell_placeless(m, &m->in.host, m->in.is_of_origin);
    else if (is_leader && m->in.kind == NVG_MOVE)
        nvg_wish_give_up(m, m->in.nsid, m->in.epoch);
    else if (is_leader && m->in.kind == NVG_BYE)
        nvg_machine_link_lost(m, link), m->port.hang_up(m->port.context, link);
}

/* Another member writes the log by now. The log would say so, too, but later: its copies have ended
 * this writer's sessions, and it has to connect anew. */
static void take_call(struct nvg_machine *m, uint32_t link)
{
    const struct nvg_state *now = &m->replica.now;
    const bool knows = now->has_group && !memcmp(m->in.identity, now->identity, 16);
    if (knows && m->role == NVG_LEADER && m->in.epoch > m->log_epoch) {
        nvg_close_links(m);
        m->port.journal_close(m->port.context);
        nvg_seek(m);
        m->is_replaced = true;
    }
    nvg_hang_up(m, link);
}

/* What members say to the leader, and whoever calls. */
static void machine_hear_caller(struct nvg_machine *m, uint32_t link)
{
    struct nvg_link *l = &m->links[link];
    if (m->in.kind == NVG_HELLO)
        take_hello(m, link);
    else if (m->in.kind == NVG_CALL)
        take_call(m, link);
    else if (m->role != NVG_LEADER || !l->is_member)
        nvg_hang_up(m, link);
    else if (m->in.kind == NVG_PROPOSE)
        nvg_lead_propose(m, link, m->in.number, m->in.record, m->in.record_bytes);
    else if (m->in.kind == NVG_PING)
        l->is_leaving = m->in.is_leaving;
    else if (m->in.kind == NVG_ASK_QUIET || m->in.kind == NVG_TELL_QUIET)
        nvg_quiesce_hear(m, link);
    else if (m->in.kind == NVG_MOVE)
        nvg_move_wish(m, m->in.nsid, m->in.slot, m->in.epoch);
    else if (m->in.kind == NVG_HOST_HERE)
        nvg_hosts_hear(m, link, &m->in.host, m->in.origin);
    else if (m->in.kind == NVG_APPLIED)
        nvg_settle_hear(m, l->slot, l->incarnation, m->in.nsid, m->in.number);
    else
        nvg_hang_up(m, link);
}

void nvg_machine_message(struct nvg_machine *m, uint32_t link, const uint8_t *message, size_t bytes)
{
    if (!m->links[link].is_up || m->role == NVG_STOPPED)
        return;
    if (!nvg_message_get(message, bytes, &m->in)) {
        nvg_machine_link_lost(m, link);
        m->port.hang_up(m->port.context, link);
        return;
    }
    m->links[link].heard_ns = m->now_ns;
    if (link < NVG_LINKS_IN)
        hear_leader(m, link);
    else
        machine_hear_caller(m, link);
}

/* ---- the journal ---- */

void nvg_machine_record(struct nvg_machine *m, const uint8_t *record, size_t bytes)
{
    if (m->role != NVG_STARTING && m->role != NVG_SEEKING && m->role != NVG_CANDIDATE)
        return;
    if (!m->is_replaying)
        memset(&m->replica, 0, sizeof(m->replica));
    m->is_replaying = true;
    if (nvg_record_get(record, bytes, &m->record)) {
        nvg_wish_note(m, &m->record);
        nvg_replica_take(&m->replica, &m->record);
    } else {
        m->replica.changes++; /* of a later version, or of nobody: it changes nothing */
    }
}

static void journal_has_failed(struct nvg_machine *m, const struct nvg_journal_event *event)
{
    m->is_replaying = false;
    memcpy(m->trouble, event->text, sizeof(m->trouble));
    if (event->is_hopeless && !m->has_joined) {
        nvg_stop(m, -EIO, "%s", event->text);
    } else if (m->role == NVG_STARTING) {
        m->retry_ns = m->now_ns + (uint64_t)READ_AGAIN_MS * NVG_MS;
    } else if (m->role == NVG_CANDIDATE) {
        nvg_seek(m);
        m->was_cut = true;
        m->retry_ns = m->now_ns + (uint64_t)(OPEN_AGAIN_MS + SLOT_MS * m->slot) * NVG_MS;
    }
}

void nvg_machine_journal(struct nvg_machine *m, const struct nvg_journal_event *event)
{
    switch (event->kind) {
    case NVG_JOURNAL_READ:
        m->is_replaying = false;
        if (m->role == NVG_STARTING && !nvg_stops_unfit(m))
            nvg_seek(m);
        else if (m->role == NVG_SEEKING)
            nvg_seek_has_read(m, event->has_quorum);
        return;
    case NVG_JOURNAL_OPENED:
        m->log_epoch = event->epoch;
        if (m->role == NVG_CANDIDATE)
            nvg_lead_begin(m, event->wants_checkpoint);
        return;
    case NVG_JOURNAL_FAILED:
        journal_has_failed(m, event);
        return;
    case NVG_JOURNAL_DONE:
        if (m->role == NVG_LEADER && m->is_appending)
            nvg_lead_done(m, event->wants_checkpoint);
        return;
    case NVG_JOURNAL_FENCED:
        if (m->role == NVG_LEADER || m->role == NVG_CANDIDATE) {
            nvg_close_links(m);
            nvg_seek(m);
            m->is_replaced = true;
        }
        return;
    case NVG_JOURNAL_QUORUM:
        if (m->role == NVG_LEADER)
            nvg_lead_quorum(m, event->has_quorum);
        return;
    }
}

/* ---- time ---- */

static void ping_link(struct nvg_machine *m, uint32_t link)
{
    struct nvg_link *l = &m->links[link];
    const bool is_heard_here = m->role == NVG_LEADER ? l->is_member : link == m->leader_link;
    if (!l->is_up || !is_heard_here ||
        m->now_ns - l->said_ns < m->setup.timeout_ns / PINGS_A_TIMEOUT)
        return;
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_PING;
    m->out.is_leaving = m->is_leaving;
    m->out.has_quorum = m->has_quorum;
    nvg_send(m, link, &m->out);
}

/* A silent peer, or one that called and does not say who it is. */
static void end_silent(struct nvg_machine *m, uint32_t link)
{
    const struct nvg_link was = m->links[link];
    if (!was.is_open || m->now_ns - was.heard_ns < m->setup.timeout_ns)
        return;
    if (m->role == NVG_FOLLOWER && link == m->leader_link)
        m->shunned = was.incarnation;
    nvg_machine_link_lost(m, link);
    if (link < NVG_LINKS_IN)
        m->peers[link].is_mute = true; /* it has not refused the call */
    m->port.hang_up(m->port.context, link);
}

/* A follower was started with a namespace that its leader does not have. One that leads gives it to
 * the group. */
static void end_surplus(struct nvg_machine *m)
{
    char why[NVG_TEXT_BYTES];
    if (m->role != NVG_FOLLOWER || !m->is_synced ||
        m->now_ns - m->named_ns < (uint64_t)NAMING_MS * NVG_MS)
        return;
    for (uint32_t i = 0; i < m->setup.namespace_count; i++) {
        const uint32_t nsid = m->setup.namespaces[i].nsid;
        if (nvg_state_place(&m->replica.now, nsid))
            continue;
        snprintf(why, sizeof(why),
                 "namespace %u is none of the group: start all its members with the same ones",
                 nsid);
        nvg_stop(m, -EINVAL, "%s", why);
        return;
    }
}

void nvg_machine_tick(struct nvg_machine *m, uint64_t now_ns)
{
    m->now_ns = now_ns;
    if (m->role == NVG_STOPPED)
        return;
    for (uint32_t i = 0; i < NVG_LINKS; i++) {
        end_silent(m, i);
        ping_link(m, i);
    }
    if (m->role == NVG_STARTING && m->retry_ns && now_ns >= m->retry_ns) {
        m->retry_ns = 0;
        m->is_replaying = false;
        m->port.journal_read(m->port.context);
    }
    end_surplus(m);
    if (m->role == NVG_SEEKING)
        nvg_seek_tick(m);
    if (m->role == NVG_LEADER)
        nvg_lead_tick(m);
    if (m->role != NVG_STOPPED) {
        nvg_wish_tick(m);
        nvg_quiesce_tick(m);
    }
}

void nvg_machine_start(struct nvg_machine *m, const struct nvg_setup *setup,
                       const struct nvg_port *port, uint64_t now_ns)
{
    m->setup = *setup;
    m->port = *port;
    m->now_ns = now_ns;
    m->role = NVG_STARTING;
    m->leader_link = NVG_LINKS;
    for (uint32_t i = 0; i < setup->namespace_count; i++)
        m->mine[setup->namespaces[i].nsid].size_bytes = setup->namespaces[i].size_bytes;
    m->port.journal_read(m->port.context);
}
