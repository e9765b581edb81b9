/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "world.h"

static bool is_cut_between(const struct world *w, int a, int b)
{
    return w->is_cut[w->processes[a].name][w->processes[b].name];
}

static bool can_hear(const struct world *w, int process)
{
    const struct world_process *p = &w->processes[process];
    return p->is_used && !p->is_stopped && !p->is_over;
}

static struct world_connection *connection_of(struct world *w, int process, uint32_t link,
                                              int *side)
{
    for (int i = 0; i < WORLD_CONNECTIONS; i++)
        for (*side = 0; *side < 2; (*side)++)
            if (w->connections[i].is_used && w->connections[i].process[*side] == process &&
                w->connections[i].link[*side] == link)
                return &w->connections[i];
    return NULL;
}

static void drop_letters(struct world_connection *c)
{
    for (int side = 0; side < 2; side++)
        while (c->first[side]) {
            struct world_letter *letter = c->first[side];
            c->first[side] = letter->next;
            free(letter);
        }
    memset(c, 0, sizeof(*c));
}

void world_dial(struct world *w, int process, uint32_t link, const char *address)
{
    int to = -1;
    for (int i = 0; i < WORLD_PROCESSES; i++) {
        const struct world_process *p = &w->processes[i];
        if (p->is_used && !p->is_over && p->address == atoi(address))
            to = i;
    }
    for (int i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *c = &w->connections[i];
        if (c->is_used)
            continue;
        *c = (struct world_connection){.is_used = true,
                                       .due = w->now + 1 + world_draw(w, 10),
                                       .process = {process, to},
                                       .link = {link, NVG_LINKS}};
        return;
    }
    world_fail(w, "the world has too many connections");
}

void world_send(struct world *w, int process, uint32_t link, const uint8_t *message, size_t bytes)
{
    int side;
    struct world_connection *c = connection_of(w, process, link, &side);
    if (!c || !c->is_up || c->process[!side] < 0)
        return;
    struct world_letter *letter = calloc(1, sizeof(*letter));
    const struct world_letter *last = c->last[!side];
    letter->due = w->now + 1 + world_draw(w, world_chance(w, 2) ? 200 : 4);
    if (c->first[!side] && last->due > letter->due)
        letter->due = last->due;
    letter->bytes = bytes;
    memcpy(letter->message, message, bytes);
    if (c->first[!side])
        c->last[!side]->next = letter;
    else
        c->first[!side] = letter;
    c->last[!side] = letter;
}

/* The other side hears of it later, behind what was sent. */
static void leave_connection(struct world *w, struct world_connection *c, int side, uint64_t after)
{
    c->process[side] = -1;
    c->lost[!side] = w->now + after;
    if (c->first[!side] && c->last[!side]->due >= c->lost[!side])
        c->lost[!side] = c->last[!side]->due + 1;
    if (c->process[!side] < 0 || c->link[!side] >= NVG_LINKS)
        drop_letters(c);
}

void world_hang_up(struct world *w, int process, uint32_t link)
{
    int side;
    struct world_connection *c = connection_of(w, process, link, &side);
    if (c)
        leave_connection(w, c, side, 1 + world_draw(w, 20));
}

void world_links_die(struct world *w, int process)
{
    for (int i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *c = &w->connections[i];
        for (int side = 0; side < 2; side++)
            if (c->is_used && c->process[side] == process)
                leave_connection(w, c, side, 1 + world_draw(w, 100));
    }
}

static void end_side(struct world *w, struct world_connection *c, int side)
{
    const int process = c->process[side];
    const uint32_t link = c->link[side];
    drop_letters(c);
    nvg_machine_link_lost(w->processes[process].machine, link);
}

static void answer_dial(struct world *w, struct world_connection *c)
{
    const int from = c->process[0], to = c->process[1];
    if (from < 0) {
        drop_letters(c);
        return;
    }
    if (to >= 0 && w->processes[to].is_used && is_cut_between(w, from, to))
        return; /* nobody answers */
    if (to < 0 || !w->processes[to].is_used || w->processes[to].is_over) {
        if (can_hear(w, from))
            end_side(w, c, 0);
        return;
    }
    if (!can_hear(w, to) || !can_hear(w, from))
        return;
    struct nvg_machine *m = w->processes[to].machine;
    int side;
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++) {
        if (m->links[i].is_open || connection_of(w, to, i, &side))
            continue;
        c->link[1] = i;
        c->is_up = true;
        nvg_machine_link_in(m, i);
        nvg_machine_link_up(w->processes[from].machine, c->link[0]);
        return;
    }
    end_side(w, c, 0);
}

static void deliver_letters(struct world *w, struct world_connection *c, int side)
{
    while (c->is_used && c->process[side] >= 0 && can_hear(w, c->process[side]) && c->first[side] &&
           c->first[side]->due <= w->now) {
        struct world_letter *letter = c->first[side];
        c->first[side] = letter->next;
        nvg_machine_message(w->processes[c->process[side]].machine, c->link[side], letter->message,
                            letter->bytes);
        free(letter);
    }
    if (c->is_used && c->process[side] >= 0 && can_hear(w, c->process[side]) && c->lost[side] &&
        c->lost[side] <= w->now)
        end_side(w, c, side);
}

void world_links_step(struct world *w)
{
    for (int i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *c = &w->connections[i];
        if (!c->is_used)
            continue;
        if (!c->is_up && c->process[0] >= 0 && c->due <= w->now)
            answer_dial(w, c);
        if (!c->is_used || !c->is_up)
            continue;
        if (c->process[0] >= 0 && c->process[1] >= 0 &&
            is_cut_between(w, c->process[0], c->process[1]))
            continue;
        for (int side = 0; side < 2 && c->is_used; side++)
            deliver_letters(w, c, side);
    }
}

void world_links_clear(struct world *w)
{
    for (int i = 0; i < WORLD_CONNECTIONS; i++)
        drop_letters(&w->connections[i]);
}
