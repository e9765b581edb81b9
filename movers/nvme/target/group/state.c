/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/state.h"

#include <string.h>

static bool is_zero(const uint8_t *bytes, size_t count)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum |= bytes[i];
    return !sum;
}

static bool is_same_process(const struct nvg_former *a, const struct nvg_former *b)
{
    return a->slot == b->slot && a->incarnation == b->incarnation;
}

const struct nvg_join *nvg_state_member(const struct nvg_state *state, const char *name)
{
    for (int i = 0; i < NVG_SLOTS; i++)
        if (state->has_member[i] && !strcmp(state->members[i].who.member, name))
            return &state->members[i];
    return NULL;
}

bool nvg_state_has(const struct nvg_state *state, uint8_t slot, uint64_t incarnation)
{
    return slot < NVG_SLOTS && state->has_member[slot] && state->members[slot].is_here &&
           state->members[slot].who.incarnation == incarnation;
}

uint64_t nvg_state_calm(const struct nvg_state *state, uint8_t slot, uint64_t incarnation)
{
    const struct nvg_calm *calm = &state->calms[slot];
    return calm->incarnation == incarnation ? calm->id : 0;
}

/* A slot of one that has left, and that no medium may still have to refuse. */
static bool slot_is_idle(const struct nvg_state *state, uint8_t slot)
{
    if (state->members[slot].is_here)
        return false;
    for (uint32_t i = 1; i <= NVG_PLACES_MAX; i++) {
        const struct nvg_hold *hold = &state->places[i].hold;
        if (hold->phase != NVG_FREE && hold->owner.slot == slot)
            return false;
    }
    return true;
}

int nvg_state_slot_for(const struct nvg_state *state, const char *name)
{
    const struct nvg_join *known = nvg_state_member(state, name);
    if (known)
        return known->who.slot;
    for (int i = 0; i < NVG_SLOTS; i++)
        if (!state->has_member[i])
            return i;
    for (int i = 0; i < NVG_SLOTS; i++)
        if (slot_is_idle(state, (uint8_t)i))
            return i;
    return -1;
}

const struct nvg_place *nvg_state_place(const struct nvg_state *state, uint32_t nsid)
{
    return nsid && nsid <= NVG_PLACES_MAX && state->places[nsid].is_used ? &state->places[nsid]
                                                                         : NULL;
}

bool nvg_is_same_host(const struct nvg_host *a, const struct nvg_host *b)
{
    return !strcmp(a->nqn, b->nqn) && !memcmp(&a->id, &b->id, sizeof(a->id));
}

uint32_t nvg_state_number_of(const struct nvg_state *state, const struct nvg_host *host)
{
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++)
        if (state->places[i].is_used && nvg_is_same_host(&state->places[i].host, host))
            return i;
    return 0;
}

bool nvg_state_is_owner(const struct nvg_place *place, uint8_t slot, uint64_t incarnation)
{
    return place->hold.phase != NVG_FREE && place->hold.owner.slot == slot &&
           place->hold.owner.incarnation == incarnation;
}

const char *nvg_state_differs(const struct nvg_state *state, const struct nvg_namespace *ns)
{
    const struct nvg_place *place = nvg_state_place(state, ns->nsid);
    if (!place)
        return NULL;
    if (strcmp(place->about.medium, ns->medium))
        return "another medium";
    if (place->about.block_bytes != ns->block_bytes)
        return "another block size";
    if (ns->size_bytes < place->about.size_bytes)
        return "a smaller size";
    if (!is_zero(ns->uuid, sizeof(ns->uuid)) &&
        memcmp(place->about.uuid, ns->uuid, sizeof(ns->uuid)))
        return "another UUID";
    if (!is_zero(ns->nguid, sizeof(ns->nguid)) &&
        memcmp(place->about.nguid, ns->nguid, sizeof(ns->nguid)))
        return "another NGUID";
    return NULL;
}

void nvg_state_serial(const struct nvg_state *state, char serial[NVG_SERIAL_BYTES])
{
    for (int i = 0; i < NVG_SERIAL_BYTES - 1; i++)
        serial[i] = "0123456789abcdef"[state->identity[i / 2] >> (i % 2 ? 0 : 4) & 15];
    serial[NVG_SERIAL_BYTES - 1] = 0;
}

/* The group's identity with the number in it: as random as that, and the same at each member. */
static void name_namespace(const struct nvg_state *state, struct nvg_namespace *ns)
{
    uint8_t own[NVG_UUID_BYTES];
    memcpy(own, state->identity, sizeof(own));
    own[14] = (uint8_t)(own[14] ^ ns->nsid >> 8);
    own[15] = (uint8_t)(own[15] ^ ns->nsid);
    if (is_zero(ns->nguid, sizeof(ns->nguid)))
        memcpy(ns->nguid, own, sizeof(own));
    own[6] = (uint8_t)((own[6] & 0x0f) | 0x80); /* RFC 9562 s5.8: version 8 */
    own[8] = (uint8_t)((own[8] & 0x3f) | 0x80);
    if (is_zero(ns->uuid, sizeof(ns->uuid)))
        memcpy(ns->uuid, own, sizeof(own));
}

/* ---- what fits ---- */

/* A new owner has to fence these: the formers so far, and who has it now. */
static uint32_t formers_of_next(const struct nvg_hold *hold, struct nvg_former *formers)
{
    uint32_t count = hold->former_count;
    bool is_there = hold->phase == NVG_FREE;
    for (uint32_t i = 0; i < count; i++) {
        if (formers)
            formers[i] = hold->formers[i];
        is_there |= is_same_process(&hold->formers[i], &hold->owner);
    }
    if (!is_there && count < NVG_FORMERS_MAX && formers)
        formers[count] = hold->owner;
    return count + !is_there;
}

static enum nvg_verdict check_join(const struct nvg_state *state, const struct nvg_join *join,
                                   bool is_filling)
{
    const struct nvg_join *known = nvg_state_member(state, join->who.member);
    if (is_filling)
        return known || state->has_member[join->who.slot] ? NVG_WRONG : NVG_FITS;
    if (known)
        return known->who.slot == join->who.slot ? NVG_FITS : NVG_WRONG;
    return !state->has_member[join->who.slot] || slot_is_idle(state, join->who.slot) ? NVG_FITS
                                                                                     : NVG_NO_ROOM;
}

static enum nvg_verdict check_namespace(const struct nvg_state *state,
                                        const struct nvg_namespace *ns)
{
    struct nvg_namespace named = *ns;
    if (!ns->nsid || ns->nsid > NVG_NSID_MAX)
        return NVG_WRONG;
    name_namespace(state, &named);
    return nvg_state_differs(state, &named) ? NVG_WRONG : NVG_FITS;
}

static enum nvg_verdict check_take(const struct nvg_state *state, const struct nvg_record *record)
{
    const struct nvg_place *place = nvg_state_place(state, record->nsid);
    const struct nvg_former *owner = &record->owner;
    if (!place || nvg_is_of_host(record->nsid) != state->is_all_active)
        return NVG_WRONG;
    if (owner->epoch != place->hold.epoch + 1 ||
        !nvg_state_has(state, owner->slot, owner->incarnation) ||
        nvg_state_calm(state, owner->slot, owner->incarnation))
        return NVG_STALE;
    return formers_of_next(&place->hold, NULL) > NVG_FORMERS_MAX ? NVG_NO_ROOM : NVG_FITS;
}

/* A number goes to another host when no member has that of the first one, or did not let go. */
static enum nvg_verdict check_new_host(const struct nvg_state *state,
                                       const struct nvg_record *record)
{
    const struct nvg_place *place = nvg_state_place(state, record->nsid);
    if (!state->is_all_active || nvg_state_number_of(state, &record->host))
        return NVG_WRONG;
    return place && (place->hold.phase != NVG_FREE || place->hold.former_count) ? NVG_NO_ROOM
                                                                                : NVG_FITS;
}

/* A change that only the owner of that epoch may make. */
static enum nvg_verdict check_owner(const struct nvg_state *state, const struct nvg_record *record,
                                    bool may_take)
{
    const struct nvg_place *place = nvg_state_place(state, record->nsid);
    if (!place)
        return NVG_WRONG;
    if (place->hold.epoch != record->epoch || place->hold.phase == NVG_FREE ||
        (place->hold.phase == NVG_TAKING && !may_take))
        return NVG_STALE;
    return NVG_FITS;
}

static enum nvg_verdict check_reservation(const struct nvg_state *state,
                                          const struct nvg_record *record)
{
    const enum nvg_verdict verdict = check_owner(state, record, false);
    if (verdict == NVG_FITS &&
        nvg_state_place(state, record->nsid)->hold.reservation_id >= record->id)
        return NVG_STALE; /* it was proposed twice */
    return verdict;
}

/* Its number is the one that its member knew to be next, so it fits once. */
static enum nvg_verdict check_reserve(const struct nvg_state *state,
                                      const struct nvg_record *record)
{
    const struct nvg_place *place = nvg_state_place(state, record->nsid);
    if (!place || !state->is_all_active)
        return NVG_WRONG;
    return record->id == place->hold.reservation_id + 1 ? NVG_FITS : NVG_STALE;
}

/* It fits once, as a reservation does. */
static enum nvg_verdict check_disk(const struct nvg_state *state, const struct nvg_record *record)
{
    const struct nvg_place *place = nvg_state_place(state, record->nsid);
    if (!place)
        return NVG_WRONG;
    return record->id == place->disk.number + 1 ? NVG_FITS : NVG_STALE;
}

static enum nvg_verdict check_filling(const struct nvg_state *state,
                                      const struct nvg_record *record)
{
    switch (record->kind) {
    case NVG_JOIN:
        return check_join(state, &record->join, true);
    case NVG_NAMESPACE:
        return nvg_state_place(state, record->about.nsid) ? NVG_WRONG : NVG_FITS;
    case NVG_HOST:
        return nvg_state_place(state, record->nsid) ? NVG_WRONG : check_new_host(state, record);
    case NVG_HOLD:
        return nvg_state_place(state, record->hold.nsid) ? NVG_FITS : NVG_WRONG;
    case NVG_RESERVATION:
    case NVG_DISK:
        return nvg_state_place(state, record->nsid) ? NVG_FITS : NVG_WRONG;
    case NVG_GROUP:
    case NVG_GROUP_ALL:
        return state->has_group ? NVG_WRONG : NVG_FITS;
    case NVG_END:
        return state->has_group ? NVG_FITS : NVG_WRONG;
    case NVG_CALM:
        return state->has_member[record->slot] ? NVG_FITS : NVG_WRONG;
    case NVG_BEGIN: /* another one in its place */
    case NVG_ABANDON:
        return NVG_FITS;
    case NVG_LEAD:
    case NVG_LEAVE:
    case NVG_TAKING_IT:
    case NVG_OWN:
    case NVG_RELEASED_IT:
    case NVG_CALMED:
    case NVG_RESERVE:
        return NVG_WRONG;
    }
    return NVG_WRONG;
}

static enum nvg_verdict check_now(const struct nvg_state *state, const struct nvg_record *record)
{
    if (record->kind == NVG_GROUP || record->kind == NVG_GROUP_ALL)
        return state->has_group ? NVG_NO_GROUP : NVG_FITS;
    if (record->kind == NVG_BEGIN)
        return NVG_FITS;
    if (!state->has_group)
        return NVG_NO_GROUP;
    switch (record->kind) {
    case NVG_LEAD:
    case NVG_LEAVE:
    case NVG_CALM:
        return nvg_state_has(state, record->slot, record->incarnation) ? NVG_FITS : NVG_STALE;
    case NVG_CALMED: /* an older one leaves the newest as it is */
        return nvg_state_calm(state, record->slot, record->incarnation) == record->id ? NVG_FITS
                                                                                      : NVG_STALE;
    case NVG_JOIN:
        return check_join(state, &record->join, false);
    case NVG_NAMESPACE:
        return check_namespace(state, &record->about);
    case NVG_HOST:
        return check_new_host(state, record);
    case NVG_TAKING_IT:
        return check_take(state, record);
    case NVG_OWN: {
        const enum nvg_verdict verdict = check_owner(state, record, true);
        return verdict == NVG_FITS && nvg_state_place(state, record->nsid)->hold.phase == NVG_OWNED
                   ? NVG_STALE
                   : verdict;
    }
    case NVG_RELEASED_IT:
        return check_owner(state, record, true);
    case NVG_RESERVATION:
        return check_reservation(state, record);
    case NVG_RESERVE:
        return check_reserve(state, record);
    case NVG_DISK:
        return check_disk(state, record);
    case NVG_GROUP:
    case NVG_GROUP_ALL:
    case NVG_BEGIN:
    case NVG_HOLD:
    case NVG_END:
    case NVG_ABANDON:
        return NVG_WRONG;
    }
    return NVG_WRONG;
}

enum nvg_verdict nvg_replica_allows(const struct nvg_replica *replica,
                                    const struct nvg_record *record)
{
    return replica->is_filling ? check_filling(&replica->next, record)
                               : check_now(&replica->now, record);
}

/* ---- what changes ---- */

static void apply_join(struct nvg_state *state, const struct nvg_join *join)
{
    const uint8_t slot = join->who.slot;
    state->has_member[slot] = true;
    state->members[slot] = *join;
    state->members[slot].who.epoch = 0;
}

static void apply_namespace(struct nvg_state *state, const struct nvg_namespace *ns)
{
    struct nvg_place *place = &state->places[ns->nsid];
    place->is_used = true;
    place->about = *ns;
    place->hold.nsid = ns->nsid;
    name_namespace(state, &place->about);
}

static void apply_host(struct nvg_place *place, const struct nvg_record *record)
{
    place->is_used = true;
    place->about.nsid = place->hold.nsid = record->nsid;
    place->host = record->host;
}

static void apply_take(struct nvg_hold *hold, const struct nvg_former *owner)
{
    hold->former_count = formers_of_next(hold, hold->formers);
    hold->phase = NVG_TAKING;
    hold->epoch = owner->epoch;
    hold->owner = *owner;
}

static void apply_own(struct nvg_place *place, uint64_t size_bytes)
{
    place->hold.phase = NVG_OWNED;
    place->hold.former_count = 0;
    if (size_bytes > place->about.size_bytes)
        place->about.size_bytes = size_bytes;
}

/* One that gives up in its take has fenced nobody for sure. */
static void apply_release(struct nvg_hold *hold)
{
    if (hold->phase == NVG_OWNED)
        hold->former_count = 0;
    hold->phase = NVG_FREE;
}

/* A command that the reservation refuses by now changes nothing but the number. */
static void apply_reserve(struct nvg_place *place, const struct nvg_record *record)
{
    struct nvt_reservation_effect effect;
    place->reservation.persists = true;
    (void)nvt_reservation_change(&place->reservation, &record->change, &effect);
    place->hold.reservation_id = record->id;
    place->reserved_by = record->incarnation;
    place->change = record->change;
}

static void apply_calm(struct nvg_calm *calm, const struct nvg_record *record)
{
    calm->id = record->kind == NVG_CALM ? record->id : 0;
    if (record->kind == NVG_CALM)
        calm->incarnation = record->incarnation;
}

static void apply_to(struct nvg_state *state, const struct nvg_record *record)
{
    struct nvg_place *place = &state->places[record->nsid];
    switch (record->kind) {
    case NVG_GROUP:
    case NVG_GROUP_ALL:
        state->has_group = true;
        state->is_all_active = record->kind == NVG_GROUP_ALL;
        memcpy(state->identity, record->identity, sizeof(state->identity));
        memcpy(state->nqn, record->nqn, sizeof(state->nqn));
        return;
    case NVG_LEAD:
    case NVG_END:
        state->lead_slot = record->slot;
        state->lead_incarnation = record->incarnation;
        return;
    case NVG_JOIN:
        apply_join(state, &record->join);
        return;
    case NVG_LEAVE:
        state->members[record->slot].is_here = false;
        return;
    case NVG_NAMESPACE:
        apply_namespace(state, &record->about);
        return;
    case NVG_HOST:
        apply_host(place, record);
        return;
    case NVG_TAKING_IT:
        apply_take(&place->hold, &record->owner);
        return;
    case NVG_OWN:
        apply_own(place, record->size_bytes);
        return;
    case NVG_RELEASED_IT:
        apply_release(&place->hold);
        return;
    case NVG_RESERVATION:
        place->reservation = record->reservation;
        place->hold.reservation_id = record->id;
        place->reserved_by = state->is_all_active ? record->epoch : 0;
        return;
    case NVG_RESERVE:
        apply_reserve(place, record);
        return;
    case NVG_DISK:
        place->disk = (struct nvg_disk){.number = record->id, .error = record->error};
        return;
    case NVG_HOLD:
        state->places[record->hold.nsid].hold = record->hold;
        return;
    case NVG_CALM:
    case NVG_CALMED:
        apply_calm(&state->calms[record->slot], record);
        return;
    case NVG_BEGIN:
    case NVG_ABANDON:
        return;
    }
}

enum nvg_verdict nvg_replica_take(struct nvg_replica *replica, const struct nvg_record *record)
{
    const enum nvg_verdict verdict = nvg_replica_allows(replica, record);
    replica->changes++;
    if (verdict != NVG_FITS)
        return verdict;
    if (record->kind == NVG_BEGIN)
        memset(&replica->next, 0, sizeof(replica->next));
    else if (record->kind != NVG_ABANDON)
        apply_to(replica->is_filling ? &replica->next : &replica->now, record);
    if (record->kind == NVG_END)
        replica->now = replica->next;
    if (record->kind == NVG_BEGIN || record->kind == NVG_END || record->kind == NVG_ABANDON)
        replica->is_filling = record->kind == NVG_BEGIN;
    return NVG_FITS;
}

/* ---- checkpoints ---- */

enum {
    DUMP_MEMBERS = 2,
    DUMP_CALMS = DUMP_MEMBERS + NVG_SLOTS,
    DUMP_PLACES = DUMP_CALMS + NVG_SLOTS,
    DUMP_OF_PLACE = 4,
    DUMP_END = DUMP_PLACES + DUMP_OF_PLACE * (NVG_PLACES_MAX + 1)
};

static bool dump_place(const struct nvg_place *place, uint32_t part, struct nvg_record *record)
{
    if (!place->is_used)
        return false;
    if (part >= 2 && nvg_is_of_host(place->about.nsid))
        return false;
    if (part == 3 && !place->disk.number)
        return false;
    if (part == 0 && nvg_is_of_host(place->about.nsid)) {
        record->kind = NVG_HOST;
        record->nsid = place->about.nsid;
        record->host = place->host;
    } else if (part == 0) {
        record->kind = NVG_NAMESPACE;
        record->about = place->about;
    } else if (part == 1) {
        record->kind = NVG_HOLD;
        record->hold = place->hold;
    } else if (part == 3) {
        record->kind = NVG_DISK;
        record->nsid = place->about.nsid;
        record->id = place->disk.number;
        record->error = place->disk.error;
    } else {
        record->kind = NVG_RESERVATION;
        record->nsid = place->about.nsid;
        record->epoch = place->reserved_by ? place->reserved_by : place->hold.epoch;
        record->id = place->hold.reservation_id;
        record->reservation = place->reservation;
    }
    return true;
}

static bool dump_part(const struct nvg_state *state, uint32_t at, struct nvg_record *record)
{
    if (at >= DUMP_PLACES && at < DUMP_END) {
        const uint32_t part = at - DUMP_PLACES;
        return dump_place(&state->places[part / DUMP_OF_PLACE], part % DUMP_OF_PLACE, record);
    }
    if (at >= DUMP_CALMS && at < DUMP_PLACES) {
        const uint8_t slot = (uint8_t)(at - DUMP_CALMS);
        record->kind = NVG_CALM;
        record->slot = slot;
        record->incarnation = state->members[slot].who.incarnation;
        record->id = nvg_state_calm(state, slot, record->incarnation);
        return state->has_member[slot] && record->id;
    }
    if (at >= DUMP_MEMBERS && at < DUMP_CALMS) {
        record->kind = NVG_JOIN;
        record->join = state->members[at - DUMP_MEMBERS];
        return state->has_member[at - DUMP_MEMBERS];
    }
    if (at == 0) {
        record->kind = NVG_BEGIN;
    } else if (at == 1) {
        record->kind = state->is_all_active ? NVG_GROUP_ALL : NVG_GROUP;
        memcpy(record->identity, state->identity, sizeof(record->identity));
        memcpy(record->nqn, state->nqn, sizeof(record->nqn));
    } else {
        record->kind = NVG_END;
        record->slot = state->lead_slot;
        record->incarnation = state->lead_incarnation;
    }
    return true;
}

bool nvg_state_dump(const struct nvg_state *state, uint32_t *cursor, struct nvg_record *record)
{
    for (; *cursor <= DUMP_END; (*cursor)++) {
        memset(record, 0, sizeof(*record));
        if (dump_part(state, *cursor, record)) {
            (*cursor)++;
            return true;
        }
    }
    return false;
}
