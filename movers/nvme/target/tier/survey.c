/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/survey.h"
#include "common/serve/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEADS_MAX = 4096, FOREIGN_BYTES = 128 << 10 };

struct survey {
    struct nvt_tier *tier;
    const struct nvt_tier_setup *setup;
    char *error;
    size_t error_size;
    bool has_super[NVT_TIER_COPIES_MAX], is_blank[NVT_TIER_COPIES_MAX];
    uint32_t supers, blanks;
};

static int read_slots(struct nvt_tier_copy *copy, const struct nvt_tier_super *super)
{
    uint8_t bytes[NVT_TIER_SLOT_BYTES];
    struct nvt_tier_slot slot;
    for (uint32_t i = 1; i <= 2; i++) {
        const int rc = copy->medium->ops->now(copy->medium, false, (uint64_t)i * NVT_TIER_SLOTS,
                                              bytes, sizeof(bytes));
        if (rc)
            return rc;
        if (nvt_tier_slot_decode(super, bytes, &slot) == NVT_TIER_GOOD &&
            slot.count > copy->slot.count)
            copy->slot = slot;
    }
    return copy->slot.count ? 0 : -EILSEQ;
}

/* The first copy that cannot be had, and why. */
static void tell_absent(const struct survey *survey, char *out, size_t size)
{
    const struct nvt_tier *tier = survey->tier;
    char why[256];
    uint32_t i = 0;
    while (i < tier->copies_count && tier->copies[i].state != NVT_TIER_LOST)
        i++;
    if (i == tier->copies_count) {
        snprintf(out, size, "bring the others back");
        return;
    }
    const struct nvt_tier_copy *copy = &tier->copies[i];
    snprintf(why, sizeof(why), "%s", copy->medium ? strerror(copy->error) : "it is not there");
    if (copy->medium && copy->medium->ops->why)
        copy->medium->ops->why(copy->medium, why, sizeof(why));
    snprintf(out, size, "%s: %s", copy->name, why);
}

/* How many records the log has besides those that say who has written to it, up to `most`, and
 * what they have for FILE. */
static uint32_t count_dirty(const struct nvt_tier_copy *copy, uint32_t most, uint64_t *len_bytes)
{
    uint8_t bytes[NVT_TIER_HEAD_BYTES];
    uint64_t position = copy->slot.head, check = copy->slot.check;
    struct nvt_tier_record record;
    uint32_t found = 0;
    for (uint32_t i = 0; i < HEADS_MAX && found < most; i++) {
        if (copy->medium->ops->now(copy->medium, false,
                                   NVT_TIER_RING + position % copy->super.ring_bytes, bytes,
                                   sizeof(bytes)) ||
            !nvt_tier_record_decode(&copy->super, bytes, &record) || record.position != position ||
            record.before != check)
            return found;
        found += record.kind != NVT_TIER_BEGIN;
        if (len_bytes)
            *len_bytes += record.len_bytes;
        position += nvt_tier_record_bytes(record.payload_bytes);
        check = record.check;
    }
    return found;
}

static int refuse_copy(const struct survey *survey, const struct nvt_tier_copy *copy,
                       const char *why)
{
    snprintf(survey->error, survey->error_size,
             "the log %s %s; new-log makes a new one there, and what it has is lost",
             copy->medium->name, why);
    return -EINVAL;
}

/* What it still has is part of a log: nothing is to be made anew there. */
static int refuse_short(const struct survey *survey, const struct nvt_tier_copy *copy)
{
    snprintf(survey->error, survey->error_size,
             "the log %s has %" PRIu64 " bytes, and had %" PRIu64 " when it was made: it was cut "
             "off. Bring it back as it was",
             copy->name, copy->medium->size_bytes, copy->super.ring_bytes + NVT_TIER_RING);
    return -EINVAL;
}

/* What a new log gives up. */
static void tell_given_up(struct nvt_tier_copy *copy)
{
    uint64_t bytes = 0;
    const uint32_t writes =
        read_slots(copy, &copy->super) ? 0 : count_dirty(copy, HEADS_MAX, &bytes);
    if (writes)
        mover_log(MOVER_LOG_WARNING,
                  "tier: new-log gives up what the log %s has and FILE lacks: %u writes of "
                  "%" PRIu64 " bytes%s",
                  copy->name, writes, bytes, writes == HEADS_MAX ? ", or more" : "");
    copy->slot = (struct nvt_tier_slot){0};
}

/* 0: it has a log, or nothing, or it cannot be read. */
static int look_at_copy(struct survey *survey, uint32_t i)
{
    struct nvt_tier_copy *copy = &survey->tier->copies[i];
    uint8_t bytes[NVT_TIER_HEAD_BYTES];
    copy->state = NVT_TIER_LOST;
    if (!copy->medium)
        return 0;
    copy->error = -copy->medium->ops->now(copy->medium, false, 0, bytes, sizeof(bytes));
    if (copy->error)
        return 0;
    const enum nvt_tier_verdict verdict = nvt_tier_super_decode(bytes, &copy->super);
    if (verdict == NVT_TIER_GOOD && survey->setup->makes_anew && !survey->blanks)
        tell_given_up(copy);
    if (verdict == NVT_TIER_BLANK || survey->setup->makes_anew) {
        survey->blanks++;
        survey->is_blank[i] = true;
        copy->is_new = true;
        copy->state = NVT_TIER_BEHIND;
        return 0;
    }
    if (verdict == NVT_TIER_FOREIGN)
        return refuse_copy(survey, copy, "has something else");
    if (verdict == NVT_TIER_UNKNOWN)
        return refuse_copy(survey, copy, "is of a version that is not known here");
    if (verdict != NVT_TIER_GOOD)
        return refuse_copy(survey, copy, "has a damaged superblock");
    if (copy->super.ring_bytes + NVT_TIER_RING > copy->medium->size_bytes)
        return refuse_short(survey, copy);
    if (copy->super.copies != survey->tier->copies_count || copy->super.copy != i) {
        snprintf(survey->error, survey->error_size,
                 "the log %s is copy %u of %u: name all of them, in that order", copy->medium->name,
                 copy->super.copy + 1u, copy->super.copies);
        return -EINVAL;
    }
    if (read_slots(copy, &copy->super)) {
        if (survey->tier->copies_count == 1)
            return refuse_copy(survey, copy, "has lost both of its heads");
        copy->is_new = true; /* the others give it all that they have */
        copy->state = NVT_TIER_BEHIND;
        return 0;
    }
    copy->state = NVT_TIER_LIVE;
    survey->has_super[i] = true;
    survey->supers++;
    return 0;
}

/* ---- a new log ---- */

static int write_super(struct survey *survey, uint32_t i)
{
    struct nvt_tier *tier = survey->tier;
    struct nvt_tier_medium *medium = tier->copies[i].medium;
    struct nvt_tier_super super = tier->super;
    uint8_t zeroes[NVT_TIER_SLOT_BYTES] = {0}, bytes[NVT_TIER_SLOT_BYTES];
    struct nvt_tier_slot slot = {.count = 1, .stamp = survey->setup->stamp};
    super.copy = (uint16_t)i;
    nvt_tier_slot_encode(&super, &slot, bytes);
    int rc = medium->ops->now(medium, true, 0, zeroes, NVT_TIER_HEAD_BYTES);
    if (!rc)
        rc = medium->ops->now(medium, true, NVT_TIER_RING, zeroes, NVT_TIER_HEAD_BYTES);
    if (!rc)
        rc = medium->ops->now(medium, true, NVT_TIER_SLOTS, zeroes, sizeof(zeroes));
    if (!rc)
        rc = medium->ops->now(medium, true, 2 * NVT_TIER_SLOTS, bytes, sizeof(bytes));
    nvt_tier_super_encode(&super, bytes);
    if (!rc)
        rc = medium->ops->now(medium, true, 0, bytes, NVT_TIER_HEAD_BYTES);
    tier->copies[i].slot = slot;
    return rc;
}

/* File systems, volume managers and RAIDs leave the first bytes of a disk free, up to 64 KiB. A log
 * that was being made when the power went has a slot there, and no superblock. */
static int find_foreign(const struct nvt_tier_copy *copy, bool *out)
{
    struct nvt_tier_medium *medium = copy->medium;
    uint8_t bytes[4096];
    *out = false;
    for (uint64_t at = 0; at < FOREIGN_BYTES && at + sizeof(bytes) <= medium->size_bytes && !*out;
         at += sizeof(bytes)) {
        const int rc = medium->ops->now(medium, false, at, bytes, sizeof(bytes));
        if (rc)
            return rc;
        if (at == 2 * NVT_TIER_SLOTS)
            memset(bytes, 0, NVT_TIER_SLOT_BYTES);
        *out = bytes[0] || memcmp(bytes, bytes + 1, sizeof(bytes) - 1) != 0;
    }
    return 0;
}

static int refuse_foreign(const struct survey *survey, const struct nvt_tier_copy *copy)
{
    bool is_foreign;
    const int rc = find_foreign(copy, &is_foreign);
    if (rc)
        snprintf(survey->error, survey->error_size, "the log %s cannot be read: %s", copy->name,
                 strerror(-rc));
    return rc ? rc : is_foreign ? refuse_copy(survey, copy, "has something else") : 0;
}

static int make_log(struct survey *survey)
{
    struct nvt_tier *tier = survey->tier;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        if (tier->copies[i].medium && tier->copies[i].medium->size_bytes < least)
            least = tier->copies[i].medium->size_bytes;
    if (survey->blanks < tier->copies_count) {
        char missing[512];
        tell_absent(survey, missing, sizeof(missing));
        snprintf(survey->error, survey->error_size,
                 "a new log needs all of its %u copies: %u of them can be reached. %s",
                 tier->copies_count, survey->blanks, missing);
        return -ENODEV;
    }
    tier->super.copies = (uint16_t)tier->copies_count;
    memcpy(tier->super.identity, survey->setup->identity, sizeof(tier->super.identity));
    if (!nvt_tier_divide(least, &tier->super.ring_bytes, &tier->super.stage_bytes)) {
        snprintf(survey->error, survey->error_size,
                 "the log is too small: %" PRIu64 " bytes; give it some GiB, 5 MiB at least",
                 least);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < tier->copies_count && !survey->setup->makes_anew; i++) {
        const int rc = refuse_foreign(survey, &tier->copies[i]);
        if (rc)
            return rc;
    }
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const int rc = write_super(survey, i);
        if (rc) {
            snprintf(survey->error, survey->error_size, "the log %s cannot be written: %s",
                     tier->copies[i].medium->name, strerror(-rc));
            return rc;
        }
        tier->copies[i].state = NVT_TIER_LIVE;
        tier->copies[i].is_new = false;
    }
    tier->is_made = true;
    return 0;
}

/* One that was new when its target died has nothing yet that it could vouch for: no writer has left
 * its epoch there. */
static void leave_out_new(struct survey *survey)
{
    struct nvt_tier *tier = survey->tier;
    bool any = false;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        any = any || tier->copies[i].slot.epoch;
    for (uint32_t i = 0; i < tier->copies_count && any; i++) {
        struct nvt_tier_copy *copy = &tier->copies[i];
        if (copy->state != NVT_TIER_LIVE || copy->slot.epoch)
            continue;
        copy->is_new = true;
        copy->state = NVT_TIER_BEHIND;
        survey->supers--;
    }
}

/* What is there belongs to somebody, or to an older log, whatever its first bytes say. */
static bool is_of_others(const struct survey *survey, uint32_t i)
{
    const struct nvt_tier_copy *copy = &survey->tier->copies[i];
    bool is_foreign = false;
    if (!survey->is_blank[i] || (!find_foreign(copy, &is_foreign) && !is_foreign))
        return false;
    mover_log(MOVER_LOG_WARNING,
              "tier: the log %s begins with zeroes, as a new one does, and has something behind "
              "them: it is left out. If that may go, overwrite its first 128 KiB with zeroes, and "
              "start again",
              copy->name);
    return true;
}

/* A copy on new memory, or a new disk, gets all that the others have. */
static void adopt_blank(struct survey *survey, uint32_t i)
{
    struct nvt_tier_copy *copy = &survey->tier->copies[i];
    const struct nvt_tier_super *super = &survey->tier->super;
    if (copy->state != NVT_TIER_BEHIND)
        return;
    if (copy->medium->size_bytes < NVT_TIER_RING + super->ring_bytes || is_of_others(survey, i) ||
        write_super(survey, i))
        copy->state = NVT_TIER_BROKEN;
}

/* ---- FILE ---- */

/* True: another log has writes that FILE lacks. `identity`: of the log; NULL: a new one. */
static bool refuse_owed(const struct survey *survey, const uint8_t *identity)
{
    const struct nvt_owed *owed = survey->setup->owed;
    if (!owed || survey->setup->makes_anew ||
        (identity && !memcmp(owed->identity, identity, sizeof(owed->identity))))
        return false;
    snprintf(survey->error, survey->error_size,
             "the file lacks writes that another log has, and this one is %s. Start it with that "
             "log, or, to lose those writes, add new-log. The log is %s",
             identity ? "not that one" : "new", owed->logs);
    return true;
}

static const char *how_it_differs(const struct nvt_tier_slot *slot,
                                  const struct nvt_tier_stamp *now)
{
    const struct nvt_tier_stamp *then = &slot->stamp;
    if (memcmp(then->identity, now->identity, sizeof(now->identity)) != 0)
        return "it is another file";
    if (then->size_bytes != now->size_bytes)
        return "its size differs";
    if (!slot->is_destaging && then->mtime_ns != now->mtime_ns)
        return "it was written to";
    return NULL;
}

static int compare_file(const struct survey *survey)
{
    struct nvt_tier *tier = survey->tier;
    const struct nvt_tier_copy *newest = NULL;
    bool any = false;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const struct nvt_tier_copy *copy = &tier->copies[i];
        if (copy->state != NVT_TIER_LIVE)
            continue;
        any = any || count_dirty(copy, 1, NULL) > 0;
        if (!newest || copy->slot.epoch > newest->slot.epoch ||
            (copy->slot.epoch == newest->slot.epoch && copy->slot.count > newest->slot.count))
            newest = copy;
    }
    const char *why = how_it_differs(&newest->slot, &survey->setup->stamp);
    if (!any || !why) {
        for (uint32_t i = 0; i < tier->copies_count && !any; i++)
            tier->copies[i].slot.stamp = survey->setup->stamp;
        return 0;
    }
    snprintf(
        survey->error, survey->error_size,
        "the file is not as the tier has left it: %s. The log %s has writes that it lacks, and "
        "would put them over what is there now. Bring the file back, or, to keep it and lose "
        "those writes, add new-log",
        why, newest->medium->name);
    return -ESTALE;
}

int nvt_tier_survey(struct nvt_tier *tier, const struct nvt_tier_setup *setup, char *error,
                    size_t error_size)
{
    struct survey survey = {.tier = tier, .setup = setup, .error = error, .error_size = error_size};
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const int rc = look_at_copy(&survey, i);
        if (rc)
            return rc;
    }
    if (!survey.supers && survey.blanks)
        return refuse_owed(&survey, NULL) ? -EBUSY : make_log(&survey);
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        if (!survey.has_super[i])
            continue;
        const struct nvt_tier_super *mine = &tier->copies[i].super;
        if (!tier->super.copies)
            tier->super = *mine;
        if (memcmp(tier->super.identity, mine->identity, sizeof(mine->identity)) != 0 ||
            tier->super.ring_bytes != mine->ring_bytes)
            return refuse_copy(&survey, &tier->copies[i], "is another log than the others");
    }
    leave_out_new(&survey);
    if (survey.supers < tier->quorum) {
        char missing[512];
        tell_absent(&survey, missing, sizeof(missing));
        snprintf(error, error_size, "%u of %u copies of the log can be read, and it needs %u. %s",
                 survey.supers, tier->copies_count, tier->quorum, missing);
        return -ENODEV;
    }
    if (refuse_owed(&survey, tier->super.identity))
        return -EBUSY;
    const int rc = compare_file(&survey);
    for (uint32_t i = 0; i < tier->copies_count && !rc; i++)
        adopt_blank(&survey, i);
    return rc;
}
