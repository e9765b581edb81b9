/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 1, TICK_MS = 10, FAULT_MS = 40, HEAL_MS = 4000, QUIET_MS = 400 };
enum { CUT_MS = 8000, TURNS = 2 };

/* xorshift64* */
uint64_t world_draw(struct world *w, uint64_t below)
{
    w->random ^= w->random >> 12;
    w->random ^= w->random << 25;
    w->random ^= w->random >> 27;
    return (w->random * 0x2545f4914f6cdd1dull >> 16) % below;
}

bool world_chance(struct world *w, uint64_t percent)
{
    return world_draw(w, 100) < percent;
}

void world_fail(struct world *w, const char *fault)
{
    if (!w->fault)
        w->fault = fault;
}

/* ---- the port of a process; its context is its place in the world ---- */

static struct world *the_world;

static int process_of(void *context)
{
    return (int)((struct world_process *)context - the_world->processes);
}

static void port_dial(void *context, uint32_t link, const char *address)
{
    world_dial(the_world, process_of(context), link, address);
}

static void port_send(void *context, uint32_t link, const uint8_t *message, size_t bytes)
{
    world_send(the_world, process_of(context), link, message, bytes);
}

static void port_hang_up(void *context, uint32_t link)
{
    world_hang_up(the_world, process_of(context), link);
}

static void port_read(void *context)
{
    world_order_log(the_world, process_of(context), ORDER_READ, NULL, 0);
}

static void port_open(void *context)
{
    world_order_log(the_world, process_of(context), ORDER_OPEN, NULL, 0);
}

static void port_append(void *context, const uint8_t *record, size_t bytes)
{
    world_order_log(the_world, process_of(context), ORDER_APPEND, record, bytes);
}

static void port_trim(void *context)
{
    (void)context;
    the_world->head = the_world->begin;
    the_world->checkpoints++;
}

static void port_close(void *context)
{
    world_close_log(the_world, process_of(context));
}

static void port_tell(void *context, const struct nvg_event *event)
{
    world_tell(the_world, process_of(context), event);
}

static uint64_t port_draw(void *context)
{
    (void)context;
    return 1 + world_draw(the_world, 1u << 30);
}

/* ---- processes ---- */

static void start_process(struct world *w, int name)
{
    struct world_process *p = NULL;
    for (int i = 0; i < WORLD_PROCESSES && !p; i++)
        if (!w->processes[i].is_used)
            p = &w->processes[i];
    if (!p)
        return;
    struct nvg_machine *machine = p->machine;
    int address = name;
    for (int i = 0; i < WORLD_PROCESSES; i++)
        if (w->processes[i].is_used && w->processes[i].address == address) {
            address += WORLD_NAMES;
            i = -1;
        }
    if (!machine)
        machine = calloc(1, sizeof(*machine));
    else
        memset(machine, 0, sizeof(*machine));
    *p = (struct world_process){.is_used = true,
                                .name = name,
                                .address = address,
                                .number = ++w->starts,
                                .machine = machine,
                                .since = w->now};
    const struct nvg_port port = {.context = p,
                                  .dial = port_dial,
                                  .send = port_send,
                                  .hang_up = port_hang_up,
                                  .journal_read = port_read,
                                  .journal_open = port_open,
                                  .journal_append = port_append,
                                  .journal_trim = port_trim,
                                  .journal_close = port_close,
                                  .tell = port_tell,
                                  .draw = port_draw};
    struct nvg_setup setup = {.nqn = "nqn.2014-08.org.nvmexpress:uuid:world",
                              .namespace_count = WORLD_PLACES,
                              .namespaces = w->namespaces,
                              .is_all_active = w->options.is_all_active,
                              .timeout_ns = (uint64_t)WORLD_TIMEOUT_MS * NVG_MS};
    snprintf(setup.self.who.member, sizeof(setup.self.who.member), "m%d", name);
    snprintf(setup.self.group_address, sizeof(setup.self.group_address), "%d", address);
    setup.self.who.incarnation = w->starts << 32 | (1 + world_draw(w, 1u << 30));
    setup.self.is_here = true;
    nvg_machine_start(machine, &setup, &port, w->now * NVG_MS);
    world_connect(w, (int)(p - w->processes));
}

static void kill_process(struct world *w, int i)
{
    struct world_process *p = &w->processes[i];
    if (!p->is_used)
        return;
    world_links_die(w, i);
    if (w->writer == i) {
        /* Its append may still come. */
        if (p->order == ORDER_APPEND && p->is_writer && world_chance(w, 50) && w->has_quorum) {
            w->bytes[w->count] = (uint16_t)p->record_bytes;
            memcpy(w->records[w->count++], p->record, p->record_bytes);
        }
        w->writer = -1;
    }
    struct nvg_machine *machine = p->machine;
    memset(p, 0, sizeof(*p));
    p->machine = machine;
}

static void go_on(struct world *w, int i)
{
    if (w->processes[i].is_stopped)
        world_write(w, i); /* before it hears anything */
    w->processes[i].is_stopped = false;
}

static int any_process(struct world *w)
{
    return (int)world_draw(w, WORLD_PROCESSES);
}

/* A namespace, or a host, is wanted at that member. */
static void move_one(struct world *w, struct world_process *p, int member, uint32_t place)
{
    char to[NVG_NAME_BYTES];
    struct nvg_host host;
    uint64_t epoch;
    struct nvg_moved what = {.nsid = place};
    world_name_host(place, &host);
    what.host = w->options.is_all_active ? &host : NULL;
    snprintf(to, sizeof(to), "m%d", member);
    if (p->is_used && !p->is_stopped)
        w->moves += !nvg_machine_move(p->machine, &what, to, &epoch);
}

static void make_fault(struct world *w)
{
    const uint64_t names = (uint64_t)w->options.names;
    const int i = any_process(w), a = (int)world_draw(w, names), b = (int)world_draw(w, names);
    struct world_process *p = &w->processes[i];
    switch (world_draw(w, 15)) {
    case 0:
        kill_process(w, i);
        return;
    case 1:
        p->is_stopped = p->is_used;
        return;
    case 2:
    case 3:
        go_on(w, i);
        return;
    case 4:
        w->is_cut[a][b] = w->is_cut[b][a] = a != b;
        return;
    case 5:
    case 6:
        w->is_cut[a][b] = w->is_cut[b][a] = false;
        return;
    case 7:
        w->has_quorum = !world_chance(w, 15);
        return;
    case 8:
        p->is_cut_from_log = world_chance(w, 20);
        return;
    case 9:
        if (p->is_used && !p->is_stopped && world_chance(w, 50))
            nvg_machine_leave(p->machine);
        return;
    case 10:
        move_one(w, p, a, 1 + (uint32_t)world_draw(w, WORLD_PLACES));
        return;
    case 11: /* a disk has failed, or somebody has looked at it */
        if (p->is_used && !p->is_stopped)
            (void)nvg_machine_disk(p->machine, 1 + (uint32_t)world_draw(w, WORLD_PLACES),
                                   world_chance(w, 50) ? 5 : 0);
        return;
    default: /* perhaps the second one of that name */
        if (world_chance(w, 40))
            start_process(w, a);
        return;
    }
}

static void step_world(struct world *w)
{
    w->now += STEP_MS;
    world_links_step(w);
    for (int i = 0; i < WORLD_PROCESSES; i++) {
        struct world_process *p = &w->processes[i];
        if (p->is_over)
            kill_process(w, i);
        if (!p->is_used || p->is_stopped)
            continue;
        world_log_step(w, i);
        if (w->now >= p->tick) {
            nvg_machine_tick(p->machine, w->now * NVG_MS);
            p->tick = w->now + TICK_MS;
            if (!p->is_over)
                world_target_step(w, i);
        }
    }
}

/* ---- all goes well again ---- */

static void heal_world(struct world *w)
{
    bool has[WORLD_NAMES] = {false};
    w->has_quorum = w->is_quiet = true;
    memset(w->is_cut, 0, sizeof(w->is_cut));
    for (int i = 0; i < WORLD_PROCESSES; i++) {
        go_on(w, i);
        w->processes[i].is_cut_from_log = false;
        if (w->processes[i].is_used && !w->processes[i].machine->is_leaving)
            has[w->processes[i].name] = true;
    }
    for (int name = 0; name < w->options.names; name++)
        if (!has[name])
            start_process(w, name);
}

static size_t dump_state(const struct nvg_state *state, uint8_t *out, size_t size)
{
    static struct nvg_record record;
    uint32_t cursor = 0;
    size_t bytes = 0;
    while (nvg_state_dump(state, &cursor, &record) && bytes + NVG_RECORD_MAX <= size)
        bytes += nvg_record_put(&record, out + bytes);
    return bytes;
}

/* A host that has lost a controller hears that it is quiet. */
static bool has_open_question(const struct nvg_machine *m)
{
    for (uint32_t i = 0; i < NVG_QUIETS; i++)
        if (m->quiets[i].is_used)
            return true;
    return false;
}

static const char *look_at_places(const struct world *w)
{
    for (uint32_t nsid = 1; nsid <= WORLD_PLACES; nsid++) {
        int serving = 0;
        for (int i = 0; i < WORLD_PROCESSES; i++)
            serving +=
                w->processes[i].is_used && w->processes[i].places[nsid].holding == HAS_SERVING;
        if (serving != 1)
            return serving ? "two members serve a namespace" : "nobody serves a namespace";
    }
    return NULL;
}

/* NULL: the group is whole. */
static const char *look_at_group(const struct world *w)
{
    static uint8_t first[1 << 16], other[1 << 16];
    int leaders = 0, members = 0;
    size_t bytes = 0;
    for (int i = 0; i < WORLD_PROCESSES; i++) {
        const struct world_process *p = &w->processes[i];
        if (!p->is_used)
            continue;
        if (p->machine->role != NVG_LEADER && p->machine->role != NVG_FOLLOWER)
            return "a member has found no leader";
        for (uint32_t nsid = 1; nsid <= WORLD_PLACES; nsid++)
            if (p->reserved[nsid].asked)
                return "a change of a reservation is not answered";
        if (has_open_question(p->machine))
            return "a host does not hear that its lost controller is quiet";
        leaders += p->machine->role == NVG_LEADER;
        const size_t other_bytes =
            dump_state(&p->machine->replica.now, members ? other : first, sizeof(first));
        if (members++ && (other_bytes != bytes || memcmp(first, other, bytes)))
            return "two members have two states";
        bytes = other_bytes;
    }
    if (leaders != 1)
        return "there is not one leader";
    return members < w->options.names ? "a member is missing" : look_at_places(w);
}

static void make_world(struct world *w, uint64_t seed, const struct world_options *options)
{
    w->options = *options;
    w->random = seed * 0x9e3779b97f4a7c15ull + 1;
    w->now = 1000;
    w->has_quorum = true;
    w->writer = -1;
    for (uint32_t i = 0; i < WORLD_PLACES; i++) {
        w->namespaces[i] = (struct nvg_namespace){
            .nsid = i + 1, .block_bytes = 512, .size_bytes = 1 << 20, .medium = "disk"};
    }
    for (int i = 0; i < 10; i++)
        world_draw(w, 2);
}

static void begin_world(struct world *w, uint64_t seed, const struct world_options *options)
{
    struct nvg_machine *machines[WORLD_PROCESSES];
    uint8_t(*records)[NVG_RECORD_MAX] = w->records;
    for (int i = 0; i < WORLD_PROCESSES; i++)
        machines[i] = w->processes[i].machine;
    for (int i = 0; i < WORLD_PROCESSES; i++)
        kill_process(w, i);
    world_links_clear(w);
    memset(w, 0, sizeof(*w));
    the_world = w;
    w->records = records ? records : calloc(WORLD_RECORDS, NVG_RECORD_MAX);
    for (int i = 0; i < WORLD_PROCESSES; i++)
        w->processes[i].machine = machines[i];
    make_world(w, seed, options);
    for (int name = 0; name < options->names / 2 + 1; name++)
        start_process(w, name);
}

const char *world_run(struct world *w, uint64_t seed, const struct world_options *options)
{
    begin_world(w, seed, options);
    const uint64_t until = w->now + options->chaos_ms;
    for (uint64_t next = w->now + QUIET_MS; w->now < until && !w->fault;) {
        if (w->now >= next) {
            make_fault(w);
            next = w->now + 1 + world_draw(w, FAULT_MS);
        }
        step_world(w);
    }
    heal_world(w);
    const char *why = "";
    for (uint64_t end = w->now + HEAL_MS; why && w->now < end && !w->fault;) {
        for (int i = 0; i < QUIET_MS && !w->fault; i++)
            step_world(w);
        why = look_at_group(w);
        if (why)
            heal_world(w); /* one that had to go may have been the only one of its name */
    }
    return w->fault ? w->fault : why;
}

/* The process that leads while all others follow, or, with other_than, any other one that leads.
 * -1: there is none within that time. */
static int await_leader(struct world *w, int other_than)
{
    for (const uint64_t end = w->now + HEAL_MS; w->now < end && !w->fault;) {
        int leader = -1, followers = 0;
        step_world(w);
        for (int i = 0; i < WORLD_PROCESSES; i++) {
            if (!w->processes[i].is_used)
                continue;
            if (i != other_than && nvg_lead_counts(w->processes[i].machine))
                leader = i;
            followers += w->processes[i].machine->role == NVG_FOLLOWER;
        }
        if (leader >= 0 && (other_than >= 0 || followers == w->options.names - 1))
            return leader;
    }
    return -1;
}

const char *world_take_turns(struct world *w, uint64_t seed)
{
    const struct world_options options = {
        .is_all_active = true, .is_hostless = true, .names = TURNS};
    begin_world(w, seed, &options);
    for (int turn = 0; turn < TURNS; turn++) {
        const int leader = await_leader(w, -1);
        if (leader < 0)
            return "two members that were silent in turn find no leader";
        w->processes[leader].is_stopped = true;
        if (await_leader(w, leader) < 0)
            return "nobody leads in place of a silent member";
        go_on(w, leader);
    }
    if (await_leader(w, -1) < 0)
        return "two members that were silent in turn have no leader for long";
    const uint64_t leads = w->leads;
    for (int i = 0; i < QUIET_MS; i++)
        step_world(w);
    return w->leads != leads ? "a leader of a quiet world is replaced" : w->fault;
}

static int find_seeker(const struct world *w)
{
    for (int i = 0; i < WORLD_PROCESSES; i++)
        if (w->processes[i].is_used && w->processes[i].machine->role == NVG_SEEKING)
            return i;
    return -1;
}

const char *world_stay_cut(struct world *w, uint64_t seed, bool is_all_active)
{
    const struct world_options options = {.is_all_active = is_all_active,
                                          .fences = true,
                                          .awaits = true,
                                          .quiesces = true,
                                          .names = TURNS};
    begin_world(w, seed, &options);
    if (await_leader(w, -1) < 0)
        return "two members find no leader";
    w->is_cut[0][1] = w->is_cut[1][0] = true;
    for (int i = 0; i < HEAL_MS; i++)
        step_world(w);
    const uint64_t leads = w->leads;
    for (int i = 0; i < CUT_MS; i++)
        step_world(w);
    if (w->writer < 0)
        return "nobody leads where two members are cut off from each other";
    const int seeker = find_seeker(w); /* none: it has owned something, and was fenced */
    const int name = 1 - w->processes[w->writer].name;
    if (seeker >= 0)
        kill_process(w, seeker);
    start_process(w, name);
    for (int i = 0; i < CUT_MS; i++)
        step_world(w);
    if (w->leads != leads)
        return "two members that are cut off from each other take the log in turn";
    heal_world(w);
    return await_leader(w, -1) < 0 ? "two members do not find each other again" : w->fault;
}

static void pass_ms(struct world *w, int ms)
{
    for (int i = 0; i < ms && !w->fault; i++)
        step_world(w);
}

/* Neither members nor the log are reached from there, or all of them are. */
static void cut_off(struct world *w, int process, bool is_cut)
{
    const int name = w->processes[process].name;
    for (int other = 0; other < w->options.names; other++)
        w->is_cut[name][other] = w->is_cut[other][name] = is_cut && other != name;
    w->processes[process].is_cut_from_log = is_cut;
}

const char *world_come_back(struct world *w, uint64_t seed)
{
    const struct world_options options = {.is_all_active = true,
                                          .is_hostless = true,
                                          .fences = true,
                                          .awaits = true,
                                          .quiesces = true,
                                          .names = TURNS + seed % 2};
    begin_world(w, seed, &options);
    if (options.names > TURNS)
        start_process(w, TURNS);
    const int leader = await_leader(w, -1);
    if (leader < 0)
        return "members find no leader";
    const int away = leader ? 0 : 1;
    cut_off(w, away, true);
    pass_ms(w, 1000 + (int)world_draw(w, CUT_MS));
    const uint64_t leads = w->leads;
    cut_off(w, away, false);
    if (await_leader(w, -1) < 0)
        return "a member that was cut off finds no leader";
    pass_ms(w, HEAL_MS);
    return w->leads != leads ? "a member that was cut off takes the log from its leader" : w->fault;
}

/* ---- more hosts than places ---- */

enum { OF_A = 0, MORE_OF_A = 32, OF_B = 64, MORE_OF_B = 8, OF_C = 80, MORE_OF_C = 60 };
enum { CROWD_MS = 4000, EARLY_MS = 20000, KEPT_MS = 15000 };

/* Half of the places go to the first address, and the second one finds others: also at a leader
 * that has only just heard of them. */
static const char *fill_half(struct world *w, int leader)
{
    const int other = leader ? 0 : 1;
    world_crowd_connect(OF_A, 2 * MORE_OF_A, 1, other);
    world_crowd_connect(OF_B, MORE_OF_B, 2, other);
    pass_ms(w, CROWD_MS);
    if (world_crowd_served(OF_A, 2 * MORE_OF_A) != NVG_HOSTS_MAX / 2)
        return "an address has not half of the places";
    if (world_crowd_refused(OF_A, 2 * MORE_OF_A, true) != MORE_OF_A)
        return "hosts of an address that has half of the places do not hear so";
    if (world_crowd_served(OF_B, MORE_OF_B) != MORE_OF_B)
        return "an address has taken the places of others";
    kill_process(w, leader);
    world_crowd_lose(leader);
    pass_ms(w, CROWD_MS);
    if (world_crowd_served(OF_A, 2 * MORE_OF_A) != NVG_HOSTS_MAX / 2)
        return "with a new leader an address has not half of the places";
    return w->fault;
}

/* A host that has left keeps its place for a while, but for newcomers of its own address. */
static const char *leave_places(struct world *w)
{
    uint32_t served = 0;
    for (uint32_t i = OF_A; i < OF_A + 2 * MORE_OF_A && served < 4; i++) {
        if (!world_crowd_is_served(i))
            continue;
        served++;
        world_crowd_connect(i, 1, 1, -1);
    }
    world_crowd_connect(OF_B, MORE_OF_B / 2, 2, -1);
    pass_ms(w, EARLY_MS);
    if (world_crowd_served(OF_A, 2 * MORE_OF_A) != NVG_HOSTS_MAX / 2)
        return "newcomers do not get the places that hosts of their address have left";
    if (world_crowd_served(OF_C, MORE_OF_C) != NVG_HOSTS_MAX / 2 - MORE_OF_B)
        return "the places of hosts that may come back are given away";
    pass_ms(w, KEPT_MS);
    if (world_crowd_served(OF_C, MORE_OF_C) != NVG_HOSTS_MAX / 2 - MORE_OF_B / 2)
        return "the places of hosts that are gone are lost";
    return w->fault;
}

const char *world_be_crowded(struct world *w, uint64_t seed)
{
    const struct world_options options = {
        .is_all_active = true, .is_hostless = true, .is_crowd = true, .names = TURNS};
    world_crowd_begin();
    begin_world(w, seed, &options);
    const int leader = await_leader(w, -1);
    if (leader < 0)
        return "two members find no leader";
    const char *why = fill_half(w, leader);
    if (why)
        return why;
    world_crowd_connect(OF_C, MORE_OF_C, 3, leader ? 0 : 1);
    pass_ms(w, CROWD_MS);
    if (world_crowd_served(OF_C, MORE_OF_C) != NVG_HOSTS_MAX / 2 - MORE_OF_B)
        return "places are left empty";
    if (world_crowd_refused(OF_C, MORE_OF_C, false) != MORE_OF_C - NVG_HOSTS_MAX / 2 + MORE_OF_B)
        return "hosts do not hear that there is no place";
    const struct nvg_host nobody = {.nqn = "999"};
    if (nvg_machine_room_for(w->processes[leader ? 0 : 1].machine, &nobody) != NVG_IS_FULL)
        return "a member does not know that all places are in use";
    return leave_places(w);
}
