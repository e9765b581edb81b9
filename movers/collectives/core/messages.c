/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/messages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/compare.h"
#include "collectives/core/moves.h"
#include "collectives/core/unlike.h"

/* ---- errors ---- */

bool coll_fail_operation(struct coll_machine *machine, enum sw_coll_status status,
                         const char *format, ...)
{
    struct sw_coll_error *error = &machine->error;
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* All ranks tell a mismatch in the same words, though they call different kinds. */
    if (status == SW_COLL_MISMATCH)
        snprintf(error->text, sizeof(error->text), "operation %" PRIu64 ": %s", machine->number,
                 text);
    else
        snprintf(error->text, sizeof(error->text), "operation %" PRIu64 " (%s): %s",
                 machine->number, sw_coll_kind_name(machine->call.kind), text);
    error->status = machine->status = status;
    return false;
}

bool coll_lose_rank(struct coll_machine *machine, uint32_t rank)
{
    return coll_fail_operation(machine, SW_COLL_RANK_GONE, "the connection to rank %u has ended",
                               rank);
}

static bool accuse_rank(struct coll_machine *machine, uint32_t rank, const char *what)
{
    return coll_fail_operation(machine, SW_COLL_PROTOCOL, "rank %u broke the protocol: %s", rank,
                               what);
}

/* ---- messages ---- */

/* The payload as one piece. */
static const void *join_payload(struct coll_machine *machine, const struct coll_step *step,
                                uint32_t peer)
{
    const uint8_t *from = coll_local_at(machine, &step->from, peer, 0, 0);
    if (step->leaves == 1 || step->from.leaf == step->bytes)
        return from;
    for (uint32_t leaf = 0; leaf < step->leaves; leaf++)
        memcpy(machine->scratch + leaf * step->bytes, from + leaf * step->from.leaf, step->bytes);
    return machine->scratch;
}

static const void *fill_open(struct coll_machine *machine, const struct coll_step *step,
                             uint32_t peer, struct coll_record *record)
{
    if (coll_plan_has_rounds(machine->table.plan)) {
        record->send_address = machine->shared.address;
        record->send_key = machine->shared.key;
        record->recv_address = machine->recv.address;
        record->recv_key = machine->recv.key;
        return NULL;
    }
    if (machine->table.plan != COLL_PLAN_EAGER) {
        record->send_address = machine->send.address +
                               (step->from.place ? coll_offset_in(&step->from, peer, 0, 0) : 0);
        record->send_key = machine->send.key;
        record->recv_address = machine->recv.address;
        record->recv_key = machine->recv.key;
        if (machine->call.kind == SW_COLL_ALL_TO_ALL && machine->call.counts)
            record->count = machine->call.counts[peer];
        return NULL;
    }
    record->payload_bytes = (uint32_t)(step->bytes * step->leaves);
    if (!record->payload_bytes)
        return NULL;
    const void *payload = join_payload(machine, step, peer);
    if (record->payload_bytes > COLL_INLINE_MAX)
        return payload;
    memcpy(record->payload, payload, record->payload_bytes);
    return NULL;
}

static void fill_done(const struct coll_machine *machine, struct coll_record *record)
{
    if (machine->finding == machine->site.size)
        return;
    record->verdict = COLL_PAIR_DIFFERS;
    record->root = machine->finding;
    record->count = machine->records[machine->finding].count;
    record->digest = machine->call.recv_counts[machine->finding];
}

bool coll_mail_step(struct coll_machine *machine, const struct coll_step *step)
{
    for (uint32_t i = 0; i < step->peers; i++) {
        const uint32_t peer = coll_peer_of(machine, step->peer, i);
        struct coll_record record = machine->records[machine->site.rank];
        const void *payload = NULL;
        if (step->slot == COLL_OPEN)
            payload = fill_open(machine, step, peer, &record);
        else if (step->slot == COLL_DONE)
            fill_done(machine, &record);
        else
            record.mark = ++machine->steps_mailed[peer];
        if (!machine->port->mail(machine->port->context, peer, step->slot, &record, payload))
            return coll_lose_rank(machine, peer);
    }
    return true;
}

static bool hear_open(struct coll_machine *machine, uint32_t peer, const struct coll_mail *mail)
{
    struct coll_record *record = &machine->records[peer];
    *record = *mail->record;
    machine->mails[peer] = *mail;
    if (record->mark != machine->number)
        return accuse_rank(machine, peer, "its message changes");
    if (!coll_record_is_sane(record, machine->site.size))
        return accuse_rank(machine, peer, "its message names what there is not");
    if (record->payload_bytes > machine->site.eager_bytes)
        return accuse_rank(machine, peer, "its payload is too long");
    return true;
}

static bool hear_done(struct coll_machine *machine, uint32_t peer, const struct coll_mail *mail)
{
    const struct coll_record record = *mail->record;
    if (record.mark != machine->number || record.kind != machine->call.kind)
        return accuse_rank(machine, peer, "it has ended what was not begun");
    if (record.verdict == COLL_FINISHED)
        return true;
    if (record.verdict != COLL_PAIR_DIFFERS || record.root >= machine->site.size ||
        machine->call.kind != SW_COLL_ALL_TO_ALL)
        return accuse_rank(machine, peer, "it ends with an unknown verdict");
    if (peer < machine->judge) {
        machine->judge = peer;
        machine->verdict = record;
    }
    return true;
}

static bool hear_step(struct coll_machine *machine, uint32_t peer, const struct coll_mail *mail)
{
    (void)mail;
    machine->steps_heard[peer]++;
    return true;
}

/* ALL_TO_ALL with counts: nothing is moved where some pair differs, and DONE tells which. */
static void sum_digests(struct coll_machine *machine)
{
    const struct coll_site *site = &machine->site;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < site->size; i++)
        sum += machine->records[i].digest;
    for (uint32_t i = site->size; i-- > 0;) {
        if (i != site->rank && machine->records[i].count != machine->call.recv_counts[i])
            machine->finding = i;
    }
    if (machine->finding < site->size) {
        struct coll_record *own = &machine->verdict;
        *own = machine->records[site->rank];
        fill_done(machine, own);
        machine->judge = site->rank;
    }
    if (sum || machine->finding < site->size) {
        machine->is_judged = true;
        machine->chunk = machine->table.chunks;
    }
}

static bool compare_opens(struct coll_machine *machine)
{
    const struct coll_site *site = &machine->site;
    const struct coll_record *own = &machine->records[site->rank];
    for (uint32_t i = 0; i < site->size; i++) {
        if (i != site->rank && !coll_records_are_alike(&machine->records[i], own)) {
            char text[200];
            const uint32_t unlike = coll_mismatch_of_counts(machine->records, site->size);
            if (unlike < site->size)
                return coll_unlike_begin(machine, unlike);
            coll_mismatch_text(machine->records, site->size, text, sizeof(text));
            return coll_fail_operation(machine, SW_COLL_MISMATCH, "%s", text);
        }
    }
    for (uint32_t i = 0; i < site->size; i++) {
        if (i != site->rank && machine->records[i].payload_bytes != machine->mailed[i])
            return accuse_rank(machine, i, "its payload is not as long as its call says");
    }
    if (machine->call.kind == SW_COLL_ALL_TO_ALL && machine->call.counts)
        sum_digests(machine);
    return true;
}

static bool judge_dones(struct coll_machine *machine)
{
    char text[200];
    if (machine->judge < machine->site.size) {
        coll_verdict_text(machine->judge, &machine->verdict, text, sizeof(text));
        return coll_fail_operation(machine, SW_COLL_MISMATCH, "%s", text);
    }
    if (machine->is_judged)
        return coll_fail_operation(machine, SW_COLL_PROTOCOL,
                                   "the ranks' counts differ, and none says which");
    return true;
}

static void show_awaited(struct coll_machine *machine, uint32_t peer)
{
    coll_show_word(&machine->shown->step, machine->steps_heard[peer] + 1);
    coll_show_word(&machine->shown->awaited, peer + 1);
}

bool coll_await_step(struct coll_machine *machine, const struct coll_step *step)
{
    static bool (*const hear[COLL_SLOTS])(struct coll_machine *, uint32_t,
                                          const struct coll_mail *) = {
        [COLL_OPEN] = hear_open, [COLL_DONE] = hear_done, [COLL_STEP] = hear_step};
    const struct coll_port *port = machine->port;
    if (coll_unlike_is_under_way(machine))
        return coll_unlike_go(machine);
    if (!machine->cursor) {
        machine->cursor = 1;
        if (step->slot == COLL_STEP)
            show_awaited(machine, coll_peer_of(machine, step->peer, 0));
        machine->missing_count = step->peers;
        for (uint32_t i = 0; i < step->peers; i++)
            machine->missing[i] = coll_peer_of(machine, step->peer, i);
    }
    for (uint32_t i = machine->missing_count; i-- > 0;) {
        const uint32_t peer = machine->missing[i];
        struct coll_mail mail;
        const uint64_t number =
            step->slot == COLL_STEP ? machine->steps_heard[peer] + 1 : machine->number;
        if (!port->look(port->context, peer, step->slot, number, &mail))
            continue;
        if (!hear[step->slot](machine, peer, &mail))
            return false;
        machine->missing[i] = machine->missing[--machine->missing_count];
    }
    if (machine->missing_count)
        return false;
    machine->cursor = 0;
    if (step->slot == COLL_STEP)
        coll_show_word(&machine->shown->awaited, 0);
    return step->slot == COLL_OPEN   ? compare_opens(machine)
           : step->slot == COLL_DONE ? judge_dones(machine)
                                     : true;
}
