/* SPDX-License-Identifier: BSD-2-Clause */
#include "forge.h"

#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"

/* ---- sending it ---- */

/* The frame of MPA around it, which may lie. */
static uint32_t frame_segment(struct forge *f, uint8_t *bytes)
{
    uint8_t *ulpdu = bytes + SW_FPDU_LENGTH_BYTES;
    const uint32_t len = forge_segment(f, ulpdu);
    const bool has_crc = forge_attacker(f)->start.terms.crc;
    if (f->is_raw) {
        memmove(bytes, ulpdu, len);
        return len;
    }
    sw_be16_store(bytes, (uint16_t)(len + f->too_much));
    const uint32_t covered = SW_FPDU_LENGTH_BYTES + len;
    uint32_t crc = has_crc ? sw_crc32c_add(0, bytes, covered) : 0;
    crc ^= f->spoils_crc ? 1u << below(f->conn->world, 32) : 0;
    return covered + sw_fpdu_finish(crc, len, has_crc, bytes + covered);
}

/* A WRITE before its immediate becomes what that one ends: a matter of the attacker alone. */
static bool has_immediate_due(const struct sw_iwarp *w)
{
    return w->is_begun && (w->ring[w->sent & w->mask].flags & SW_REQUEST_IMM);
}

static bool is_moment(const struct forge *f, const struct sw_sim_iwarp *end)
{
    if (f->is_done || !f->is_due || has_immediate_due(&end->machine))
        return false;
    return f->moment != WITHIN || end->machine.is_begun;
}

uint32_t forge_out(struct sw_sim_iwarp *end, uint8_t *bytes, uint32_t len)
{
    const struct side *side = end->config.user;
    struct forge *f = side->conn->world->forge;
    if (len && f->moment == AT_START && !f->is_done) {
        f->is_done = true;
        return forge_start(f, bytes, len);
    }
    if (len || !is_moment(f, end))
        return len;
    f->is_done = true;
    const uint32_t count = frame_segment(f, bytes);
    sw_sim_trace(end->world, f->name, end->qp->qpn, count);
    return count;
}

/* ---- when ---- */

static void become_due(void *who, void *what)
{
    struct forge *f = who;
    (void)what;
    f->is_due = true;
    sw_sim_iwarp_pump(forge_attacker(f));
}

/* No message was ever under way: it comes between two, then. */
static void wait_no_longer(void *who, void *what)
{
    struct forge *f = who;
    if (!f->is_done && f->moment == WITHIN)
        f->moment = BETWEEN;
    become_due(who, what);
}

static void close_victim(void *who, void *what)
{
    struct forge *f = who;
    (void)what;
    sw_sim_iwarp_close(&f->conn->ends[1 - f->from]);
}

struct forge *forge_open(struct connection *conn)
{
    struct world *w = conn->world;
    struct forge *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    f->conn = conn;
    f->from = (int)below(w, 2);
    f->moment = (enum forge_moment)below(w, FORGE_MOMENTS);
    f->is_due = f->moment == AT_FIRST || f->moment == WITHIN;
    if (f->moment != AT_CLOSE && f->moment != AT_START)
        sw_sim_at(&w->sim, 40 * MS, wait_no_longer, f, NULL);
    if (f->moment == BETWEEN)
        sw_sim_at(&w->sim, below(w, 10 * MS), become_due, f, NULL);
    if (f->moment == AT_CLOSE) { /* before the other side hears of it */
        const uint64_t close_ns = below(w, 10 * MS);
        sw_sim_at(&w->sim, close_ns, close_victim, f, NULL);
        sw_sim_at(&w->sim, close_ns + below(w, 20000), become_due, f, NULL);
    }
    return f;
}

void forge_close(struct forge *forge)
{
    free(forge);
}

/* ---- what came of it ---- */

static bool is_one_of(const struct forge *f, uint16_t cause)
{
    for (uint32_t i = 0; i < f->cause_count; i++)
        if (f->causes[i] == cause)
            return true;
    return false;
}

static void check_told(const struct forge *f)
{
    struct world *w = f->conn->world;
    const struct sw_iwarp *victim = &f->conn->ends[1 - f->from].machine;
    const struct sw_iwarp *attacker = &f->conn->ends[f->from].machine;
    const uint16_t cause = victim->terminate.cause;
    if (!victim->over || victim->by_peer || !is_one_of(f, cause))
        program_fault(w, "%s at moment %d: cause %04x instead of %04x", f->name, (int)f->moment,
                      cause, f->causes[0]);
    else if (!attacker->by_peer || attacker->terminate.cause != cause)
        program_fault(w, "%s at moment %d: the peer hears of %04x instead of %04x", f->name,
                      (int)f->moment, attacker->terminate.cause, cause);
}

static void check_heard(const struct forge *f)
{
    const struct sw_iwarp *victim = &f->conn->ends[1 - f->from].machine;
    const struct sw_iwarp *attacker = &f->conn->ends[f->from].machine;
    if (!victim->over || !victim->by_peer || attacker->by_peer)
        program_fault(f->conn->world, "%s at moment %d is answered", f->name, (int)f->moment);
    else if (f->cause_count && !is_one_of(f, victim->terminate.cause))
        program_fault(f->conn->world, "%s: %04x is heard as %04x", f->name, f->causes[0],
                      victim->terminate.cause);
}

static void check_failed(const struct forge *f)
{
    const struct sw_iwarp_start *start = &f->conn->ends[1 - f->from].start;
    if (start->state != SW_IWARP_FAILED ||
        (start->failure != f->failures[0] && start->failure != f->failures[1]))
        program_fault(f->conn->world, "%s: state %d, failure %d instead of %d", f->name,
                      (int)start->state, (int)start->failure, (int)f->failures[0]);
}

void forge_check(const struct forge *f)
{
    struct world *w = f->conn->world;
    if (f->moment == AT_CLOSE) /* it comes before or behind the last that is looked at */
        return;
    if (!f->is_done) {
        program_fault(w, "nothing was forged at moment %d", (int)f->moment);
        return;
    }
    switch (f->end) {
    case GOES_ON:
        program_check_whole(f->conn);
        break;
    case IS_TOLD:
        check_told(f);
        break;
    case IS_HEARD:
        check_heard(f);
        break;
    case FAILS:
        check_failed(f);
        break;
    case IS_REJECTION:
        if (f->conn->ends[1 - f->from].start.state != SW_IWARP_REJECTED)
            program_fault(w, "%s: the start is not over", f->name);
        break;
    case ENDS_ANYHOW:
        break;
    }
}
