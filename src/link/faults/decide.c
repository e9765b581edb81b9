/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "base/minmax.h"
#include "base/mix.h"
#include "link/faults/faults.h"

/* The next number after x. */
static uint64_t mix_bits(uint64_t x)
{
    return sw_mix(x + SW_MIX_STEP);
}

/* The packet's random number for one rule: the same in each run with the same seed. */
static uint64_t draw_random(const struct sw_faults *faults, uint32_t rule,
                            const struct sw_fault_packet *packet, uint32_t nth)
{
    uint64_t who = (uint64_t)packet->ordinal << 33 | (uint64_t)packet->received << 32 | nth;
    return mix_bits(mix_bits(faults->seed ^ (uint64_t)rule << 48) ^ who);
}

static bool is_of_qp(const struct sw_fault_rule *rule, uint32_t qpn, uint32_t ordinal)
{
    return rule->qp == 0 || rule->qp == (rule->qp < SW_FAULT_ORDINALS ? ordinal : qpn);
}

static bool is_in_time(const struct sw_fault_rule *rule, uint64_t now_ns)
{
    return now_ns >= rule->from_ns && now_ns < rule->until_ns;
}

static bool matches_packet(const struct sw_fault_rule *rule, const struct sw_fault_packet *packet,
                           uint64_t now_ns)
{
    if (!is_in_time(rule, now_ns))
        return false;
    if (rule->kind == SW_FAULT_CUT)
        return true;
    return rule->received == packet->received && is_of_qp(rule, packet->qpn, packet->ordinal) &&
           (rule->packets == 0 || rule->packets & packet->kind) &&
           (rule->psn < 0 || rule->psn == packet->psn);
}

/* Counts an effect; false: the rule has had all its effects. */
static bool spend_rule(struct sw_fault_rule *rule)
{
    if (rule->times == 0) {
        atomic_fetch_add_explicit(&rule->done, 1, memory_order_relaxed);
        return true;
    }
    uint64_t done = atomic_load_explicit(&rule->done, memory_order_relaxed);
    while (done < rule->times)
        if (atomic_compare_exchange_weak(&rule->done, &done, done + 1))
            return true;
    return false;
}

static bool rule_applies(struct sw_fault_rule *rule, uint64_t random)
{
    uint64_t nth = atomic_fetch_add_explicit(&rule->matched, 1, memory_order_relaxed) + 1;
    if (rule->nth && nth != rule->nth)
        return false;
    return (rule->chance == UINT64_MAX || random < rule->chance) && spend_rule(rule);
}

static void add_action(const struct sw_fault_rule *rule, uint64_t random, uint32_t len_bytes,
                       struct sw_fault_action *out)
{
    switch (rule->kind) {
    case SW_FAULT_DROP:
    case SW_FAULT_CUT:
        out->drop = true;
        break;
    case SW_FAULT_DUPLICATE:
        out->duplicate = true;
        break;
    case SW_FAULT_CORRUPT:
        out->corrupt = len_bytes > 0;
        out->corrupt_bit = len_bytes ? (uint32_t)(mix_bits(random) % (8ull * len_bytes)) : 0;
        break;
    case SW_FAULT_DELAY:
        out->delay_ns += rule->amount_ns;
        break;
    case SW_FAULT_REORDER:
        out->reorder_ns += rule->amount_ns;
        break;
    case SW_FAULT_RNR:
    case SW_FAULT_KINDS:
        break;
    }
}

/* Takes note of packets; returns how many of the QP have passed that way before. */
static uint32_t count_passed(struct sw_faults *faults, bool received, uint32_t ordinal,
                             uint32_t count)
{
    const uint32_t slot = ordinal % (SW_FAULT_ORDINALS + 1);
    atomic_fetch_add_explicit(&faults->seen[received], count, memory_order_relaxed);
    return atomic_fetch_add_explicit(&faults->passed[received][slot], count, memory_order_relaxed);
}

bool sw_faults_spare(struct sw_faults *faults, bool received, uint32_t ordinal, uint32_t count)
{
    for (uint32_t i = 0; i < faults->count; i++) {
        const struct sw_fault_rule *rule = &faults->rules[i];
        if (rule->kind == SW_FAULT_CUT ||
            (rule->kind != SW_FAULT_RNR && rule->received == received))
            return false;
    }
    count_passed(faults, received, ordinal, count);
    return true;
}

bool sw_faults_decide(struct sw_faults *faults, const struct sw_fault_packet *packet,
                      uint64_t now_ns, struct sw_fault_action *out)
{
    memset(out, 0, sizeof(*out));
    const uint32_t nth = count_passed(faults, packet->received, packet->ordinal, 1);
    bool any = false;
    for (uint32_t i = 0; i < faults->count && !out->drop; i++) {
        struct sw_fault_rule *rule = &faults->rules[i];
        if (rule->kind == SW_FAULT_RNR || !matches_packet(rule, packet, now_ns))
            continue;
        uint64_t random = draw_random(faults, i, packet, nth);
        if (rule_applies(rule, random)) {
            add_action(rule, random, packet->len_bytes, out);
            any = true;
        }
    }
    return any;
}

bool sw_faults_withholds(struct sw_faults *faults, uint32_t qpn, uint32_t ordinal, uint64_t now_ns)
{
    for (uint32_t i = 0; i < faults->count; i++) {
        struct sw_fault_rule *rule = &faults->rules[i];
        if (rule->kind != SW_FAULT_RNR || !is_in_time(rule, now_ns) ||
            !is_of_qp(rule, qpn, ordinal))
            continue;
        uint64_t nth = atomic_load_explicit(&rule->matched, memory_order_relaxed);
        struct sw_fault_packet asked = {.qpn = qpn, .ordinal = ordinal, .received = true};
        if (rule_applies(rule, draw_random(faults, i, &asked, (uint32_t)nth)))
            return true;
    }
    return false;
}

bool sw_faults_is_cut(const struct sw_faults *faults, uint64_t now_ns)
{
    for (uint32_t i = 0; i < faults->count; i++)
        if (faults->rules[i].kind == SW_FAULT_CUT && is_in_time(&faults->rules[i], now_ns))
            return true;
    return false;
}

bool sw_faults_has(const struct sw_faults *faults, enum sw_fault_kind kind)
{
    for (uint32_t i = 0; i < faults->count; i++)
        if (faults->rules[i].kind == kind)
            return true;
    return false;
}

int sw_faults_summary(const struct sw_faults *faults, char *out, size_t room)
{
    static const char *const past[SW_FAULT_KINDS] = {
        "dropped",   "duplicated",        "corrupted",    "delayed",
        "reordered", "receives withheld", "lost in a cut"};
    uint64_t done[SW_FAULT_KINDS] = {0};
    for (uint32_t i = 0; i < faults->count; i++)
        done[faults->rules[i].kind] +=
            atomic_load_explicit(&faults->rules[i].done, memory_order_relaxed);
    int len = snprintf(out, room, "%llu packets sent, %llu received",
                       (unsigned long long)atomic_load(&faults->seen[0]),
                       (unsigned long long)atomic_load(&faults->seen[1]));
    for (int kind = 0; kind < SW_FAULT_KINDS; kind++) {
        size_t used = sw_min_u64((size_t)len, room);
        if (done[kind] || sw_faults_has(faults, (enum sw_fault_kind)kind))
            len += snprintf(out + used, room - used, ", %llu %s", (unsigned long long)done[kind],
                            past[kind]);
    }
    return len;
}
