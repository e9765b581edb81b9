/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a member finds the leader, or becomes it. It asks all others that the log names. One that
 * follows a leader says so, and then nobody opens the log: a member whose own link to the leader is
 * broken must not fence it. The lowest slot of those that seek goes first, and processes that were
 * in the log before those that are new there: both sides of a question see the same order.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum {
    ROUND_MS = 50,      /* between two questions to one member */
    FRESH_MS = 300,     /* so long an answer is believed */
    ANSWER_MS = 400,    /* so long an answer is waited for */
    FIRST_MS = 1000,    /* the same of one that has just started, or lost the log */
    REREAD_MS = 1000,   /* after which a search looks into the log again */
    LOST_MS = 6000,     /* after which a read that brings nothing is ordered anew */
    PATIENCE_MS = 2000, /* for lower slots that seek, too */
    SLOW_MS = 500,      /* a log that is read within that time was there all the time */
    GROWTH_MS = 3500,   /* so long the log is watched: a leader that misses a member writes often */
};

static bool is_within(const struct nvg_machine *m, uint64_t since_ns, uint64_t ms)
{
    return since_ns && m->now_ns - since_ns < ms * NVG_MS;
}

void nvg_seek(struct nvg_machine *m)
{
    m->role = NVG_SEEKING;
    m->is_synced = false;
    m->is_appending = m->is_dumping = false;
    m->job_count = 0;
    memset(m->quiesces, 0, sizeof(m->quiesces)); /* whoever has asked asks the next leader */
    m->has_quorum = false;
    m->leader_link = NVG_LINKS;
    m->seek_ns = m->now_ns;
    m->round_ns = 0;
    m->read_count = m->grown_ns = m->reread_ns = m->reached_ns = 0;
    m->is_reading = false;
    m->is_replaying = false;
    for (int i = 0; i < NVG_SLOTS; i++) {
        m->peers[i].is_asked = m->peers[i].is_mute = false;
        m->peers[i].answered_ns = m->peers[i].seeking_ns = 0;
    }
}

bool nvg_stops_unfit(struct nvg_machine *m)
{
    const struct nvg_state *now = &m->replica.now;
    char why[NVG_TEXT_BYTES] = "";
    if (!now->has_group)
        return false;
    if (strcmp(now->nqn, m->setup.nqn))
        snprintf(why, sizeof(why), "the log belongs to a group of %.200s", now->nqn);
    if (now->is_all_active != m->setup.is_all_active)
        snprintf(why, sizeof(why), "%s",
                 now->is_all_active
                     ? "all members of the group are active: start this one with --active all, too"
                     : "one member of the group at a time is active, as its first one has said: "
                       "start this one without --active all, or all with a new log");
    if (nvg_state_slot_for(now, m->setup.self.who.member) < 0)
        snprintf(why, sizeof(why), "the group has %d members already", NVG_SLOTS);
    bool has[NVG_NSID_MAX + 1] = {false};
    for (uint32_t i = 0; i < m->setup.namespace_count; i++) {
        const struct nvg_namespace *ns = &m->setup.namespaces[i];
        const char *differs = nvg_state_differs(now, ns);
        has[ns->nsid] = true;
        if (differs)
            snprintf(why, sizeof(why), "namespace %u has %s here than in the group", ns->nsid,
                     differs);
    }
    for (uint32_t i = 1; i <= NVG_NSID_MAX; i++)
        if (nvg_state_place(now, i) && !has[i])
            snprintf(why, sizeof(why), "namespace %u of the group is missing here", i);
    if (why[0])
        nvg_stop(m, -EINVAL, "%s", why);
    return why[0];
}

/* Another process; perhaps one that had this member's name before. */
static bool is_other(const struct nvg_machine *m, int slot)
{
    const struct nvg_state *now = &m->replica.now;
    return now->has_member[slot] && now->members[slot].is_here &&
           now->members[slot].who.incarnation != m->setup.self.who.incarnation;
}

static void ask_members(struct nvg_machine *m)
{
    if (is_within(m, m->round_ns, ROUND_MS))
        return;
    m->round_ns = m->now_ns;
    for (uint32_t i = 0; i < NVG_SLOTS; i++) {
        struct nvg_link *link = &m->links[i];
        const struct nvg_join *member = &m->replica.now.members[i];
        m->peers[i].is_mute |= link->is_open && !is_within(m, link->since_ns, ANSWER_MS);
        if (link->is_open && !is_within(m, link->since_ns, FIRST_MS))
            nvg_hang_up(m, i); /* it does not answer */
        if (link->is_open || !is_other(m, (int)i))
            continue;
        *link = (struct nvg_link){.is_open = true,
                                  .slot = (uint8_t)i,
                                  .incarnation = member->who.incarnation,
                                  .heard_ns = m->now_ns,
                                  .since_ns = m->now_ns};
        m->peers[i].is_asked = true;
        m->port.dial(m->port.context, i, member->group_address);
    }
}

void nvg_seek_answer(struct nvg_machine *m, uint32_t link, const struct nvg_message *message)
{
    struct nvg_peer *peer = &m->peers[link];
    peer->is_asked = peer->is_mute = false;
    peer->gone = 0;
    if (message->role == NVG_FOLLOWER || message->role == NVG_LEADER ||
        message->role == NVG_CANDIDATE)
        peer->answered_ns = m->now_ns;
    if (message->role == NVG_SEEKING)
        peer->seeking_ns = m->now_ns;
    peer->has_joined = message->slot < NVG_SLOTS;
    if (message->role == NVG_FOLLOWER)
        snprintf(m->trouble, sizeof(m->trouble), "%s follows a leader that does not answer here",
                 m->replica.now.members[link].who.member);
    nvg_hang_up(m, link);
    if (m->has_joined && message->role == NVG_FOLLOWER && message->leads_slot == m->slot &&
        message->leads_incarnation != m->setup.self.who.incarnation)
        nvg_stop(m, -EEXIST, "another process has joined the group as %s",
                 m->setup.self.who.member);
}

/* One that answers from a slot's address may be a new process, which its name has there again. */
static bool peer_goes_first(const struct nvg_machine *m, int slot)
{
    const bool has_joined = m->peers[slot].has_joined;
    return has_joined == m->has_joined
               ? slot < nvg_state_slot_for(&m->replica.now, m->setup.self.who.member)
               : has_joined;
}

static bool is_kept_back_by(const struct nvg_machine *m, int slot)
{
    const struct nvg_peer *peer = &m->peers[slot];
    const bool is_shunned = m->shunned == m->replica.now.members[slot].who.incarnation;
    if (is_within(m, peer->answered_ns, FRESH_MS))
        return true;
    if (peer->is_asked && !is_shunned &&
        is_within(m, m->seek_ns, m->has_joined && !m->is_replaced ? ANSWER_MS : FIRST_MS))
        return true;
    return peer_goes_first(m, slot) && is_within(m, peer->seeking_ns, FRESH_MS) &&
           is_within(m, m->seek_ns, PATIENCE_MS);
}

void nvg_seek_has_read(struct nvg_machine *m, bool was_reached)
{
    const uint64_t count = m->replica.changes;
    m->was_cut |= !was_reached || !is_within(m, m->reread_ns, SLOW_MS);
    m->is_reading = false;
    if (was_reached && !m->reached_ns)
        m->reached_ns = m->now_ns;
    if (m->read_count && m->read_count != count)
        m->grown_ns = m->now_ns;
    m->read_count = count;
}

static bool has_mute_member(const struct nvg_machine *m)
{
    bool is_mute = false;
    for (int i = 0; i < NVG_SLOTS; i++)
        is_mute |= is_other(m, i) && m->peers[i].is_mute;
    return is_mute;
}

/* A member that does not answer may be one that leads, and that is cut off from this one alone. The
 * log tells. One that has just lost it, or has just started, looks there first. Otherwise two
 * members that both reach the log, and not each other, take it from each other for ever.
 *
 * Nor is the log opened before it was reached: an open that is under way when a cut heals would
 * take it from a leader that was well all the time. One that was cut off from the log watches it,
 * too. By then a leader that is well has answered. */
static bool log_may_have_writer(const struct nvg_machine *m)
{
    if (is_within(m, m->grown_ns, GROWTH_MS))
        return true;
    if (!has_mute_member(m))
        return false;
    if (m->is_replaced || !m->has_joined)
        return is_within(m, m->seek_ns, GROWTH_MS);
    return !m->reached_ns || (m->was_cut && is_within(m, m->reached_ns, GROWTH_MS));
}

static void look_into_log(struct nvg_machine *m)
{
    m->reread_ns = m->now_ns;
    m->is_reading = true;
    m->is_replaying = false;
    m->port.journal_read(m->port.context);
}

void nvg_seek_tick(struct nvg_machine *m)
{
    ask_members(m);
    /* Others may have come meanwhile, and one of them leads. */
    const bool looks = !is_within(m, m->seek_ns, REREAD_MS) ||
                       (m->has_joined && !m->reached_ns && has_mute_member(m));
    if (looks && !is_within(m, m->reread_ns, m->is_reading ? LOST_MS : REREAD_MS))
        look_into_log(m);
    if (m->retry_ns > m->now_ns || m->is_leaving || m->is_replaying)
        return;
    for (int i = 0; i < NVG_SLOTS; i++)
        if (is_other(m, i) && is_kept_back_by(m, i))
            return;
    if (log_may_have_writer(m))
        return;
    for (uint32_t i = 0; i < NVG_LINKS_IN; i++)
        nvg_hang_up(m, i);
    m->retry_ns = 0;
    m->role = NVG_CANDIDATE;
    m->is_replaying = m->is_reading = false;
    m->port.journal_open(m->port.context);
}
