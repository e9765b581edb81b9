/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of an iWARP connection in virtual time: each runs a program of SENDs, WRITEs, READs and
 * atomics drawn from the seed, over a stream that is cut, joined, stalled, damaged, reset or
 * closed. Looked at from outside: order and number of completions, each byte of memory, what a
 * Terminate says. One in eight seeds, or each with --forge, forges a frame or segment (forge.h),
 * beside a second connection of the same hosts that has to go well.
 *
 *   iwarp --seed N [--seeds COUNT] [--seconds S] [--trace] [--twice] [--forge]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "forge.h"
#include "program.h"

/* ---- a world ---- */

static void connect_sides(struct connection *conn)
{
    struct world *w = conn->world;
    const struct sw_sim_pipe_config path = {
        .room_bytes = 1 + below(w, below(w, 2) ? 400 : SW_SIM_PIPE_BYTES),
        .piece_max = 1 + below(w, below(w, 2) ? 40 : 4096),
        .delay_ns = 1000 + below(w, 20000),
        .stall = sw_sim_ppm(below(w, 20000)),
        .stall_ns = below(w, 3) * MS,
        .flip = w->mode == FLIPS_CRC || w->mode == FLIPS ? sw_sim_ppm(500 + below(w, 20000)) : 0,
    };
    const uint16_t depth = (uint16_t)(1 + below(w, 8));
    struct sw_sim_iwarp_config configs[2];
    for (int i = 0; i < 2; i++)
        configs[i] = (struct sw_sim_iwarp_config){
            .host = &w->hosts[i],
            .is_initiator = i == 0,
            .rejects = w->mode == REJECTED,
            .start = {.revision = 2,
                      .wants_crc = w->mode == FLIPS_CRC || (w->mode != FLIPS && below(w, 2)),
                      .is_peer_to_peer = below(w, 2),
                      .rtr = (uint8_t)(1 + below(w, 7)),
                      .ird = depth,
                      .ord = (uint16_t)(1 + below(w, 8))},
            .fpdu_max = 256 + below(w, 2000),
            .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            .complete = program_complete,
            .forge = w->forge && w->forge->conn == conn && w->forge->from == i ? forge_out : NULL,
            .ended = program_ended,
            .user = &conn->sides[i],
        };
    configs[0].start.revision = below(w, 4) ? 2 : 1;
    configs[1].start.rtr = SW_MPA_RTR_SEND | SW_MPA_RTR_WRITE | SW_MPA_RTR_READ;
    if (configs[0].start.revision == 1) /* nothing is negotiated: both are told */
        configs[0].start.ord = configs[1].start.ord = depth;
    sw_sim_iwarp_connect(conn->ends, configs, conn->pipes, &path);
    w->flip = path.flip;
    if (w->mode == FLIPS_CRC) /* what is said at the start has no CRC */
        conn->pipes[0].config.flip = conn->pipes[1].config.flip = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t j = 0; j < SW_SIM_RECEIVES; j++)
            sw_sim_post_receive(conn->ends[i].qp,
                                &(struct sw_sim_receive){.id = j,
                                                         .addr = conn->sides[i].base + RECEIVE_AT +
                                                                 j * (uint64_t)RECEIVE_BYTES,
                                                         .len_bytes = RECEIVE_BYTES});
}

static void begin_posting(void *who, void *what)
{
    struct side *side = who;
    struct connection *conn = side->conn;
    struct world *w = conn->world;
    const bool are_open =
        conn->ends[0].start.state == SW_IWARP_OPEN && conn->ends[1].start.state == SW_IWARP_OPEN;
    if (are_open || (conn->ends[side->number].is_open && !side->number)) {
        if (are_open)
            conn->pipes[0].config.flip = conn->pipes[1].config.flip = w->flip;
        program_post(side, what);
    } else if (!conn->ends[side->number].is_over)
        sw_sim_at(&w->sim, w->sim.now_ns + (w->sim.now_ns < 20 * MS ? MS / 100 : MS), begin_posting,
                  side, NULL);
}

static void reset_both(void *who, void *what)
{
    struct connection *conn = who;
    (void)what;
    sw_sim_pipe_reset(&conn->pipes[0]);
    sw_sim_pipe_reset(&conn->pipes[1]);
}

static void close_one(void *who, void *what)
{
    struct connection *conn = who;
    (void)what;
    sw_sim_pipe_close(&conn->pipes[below(conn->world, 2)]);
}

static void run_until_quiet(struct world *w, uint64_t until_ns)
{
    uint32_t steps = 0;
    while (sw_sim_step(&w->sim, until_ns))
        if (++steps > 20000000) {
            program_fault(w, "it goes on for ever");
            return;
        }
}

/* ---- what is to hold ---- */

static void check_trespass(struct connection *conn)
{
    struct world *w = conn->world;
    const struct sw_iwarp *bad = &conn->ends[0].machine, *good = &conn->ends[1].machine;
    if (!good->over || good->by_peer || good->terminate.cause != w->trespass_cause)
        program_fault(w, "cause %04x instead of %04x", good->terminate.cause, w->trespass_cause);
    else if (!bad->by_peer || bad->terminate.cause != w->trespass_cause)
        program_fault(w, "the peer hears of %04x instead of %04x", bad->terminate.cause,
                      w->trespass_cause);
}

static void check_rejection(struct connection *conn)
{
    const struct sw_iwarp_start *start = &conn->ends[0].start;
    if (start->state != SW_IWARP_REJECTED)
        program_fault(conn->world, "the initiator is not told of a rejection");
    if (memcmp(start->peer.private_data, "no", 3) != 0)
        program_fault(conn->world, "the initiator has other private data");
}

/* A program that waits for its connection waits no longer. */
static void check_end(struct connection *conn)
{
    struct world *w = conn->world;
    reset_both(conn, NULL);
    run_until_quiet(w, w->sim.now_ns + 100 * MS);
    for (int i = 0; i < 2; i++) {
        struct side *side = &conn->sides[i];
        if (side->completed != side->posted)
            program_fault(w, "side %d: %u of %u requests completed", i, side->completed,
                          side->posted);
        program_check_memory(side);
    }
    const uint64_t flips = conn->pipes[0].flips + conn->pipes[1].flips;
    for (int i = 0; i < 2; i++)
        if (conn->ends[i].is_torn && w->mode != CLOSED && w->mode != FORGED && flips == 0)
            program_fault(w, "an FPDU is not whole");
    const bool ended = conn->ends[0].machine.over || conn->ends[1].machine.over;
    if (w->mode == FLIPS_CRC && flips == 0 && ended)
        program_fault(w, "a connection ended without damage");
}

static void check_world(struct world *w)
{
    if (w->mode == CLEAN)
        program_check_whole(&w->conns[0]);
    if (w->mode == TRESPASS)
        check_trespass(&w->conns[0]);
    if (w->mode == REJECTED)
        check_rejection(&w->conns[0]);
    if (w->mode == FORGED) {
        forge_check(w->forge);
        program_check_whole(&w->conns[1]);
    }
    for (int i = 0; i < w->conn_count; i++)
        check_end(&w->conns[i]);
}

static void open_connection(struct world *w, int index)
{
    struct connection *conn = &w->conns[index];
    conn->world = w;
    for (int i = 0; i < 2; i++)
        program_init(conn, i, (uint64_t)index * MEMORY_BYTES);
    for (int i = 0; i < 2; i++)
        program_draw(&conn->sides[i]);
    if (w->mode == TRESPASS)
        program_trespass(conn);
    if (index == 0 && w->mode == FORGED)
        w->forge = forge_open(conn);
    connect_sides(conn);
    for (int i = 0; i < 2; i++)
        sw_sim_at(&w->sim, below(w, 100000), begin_posting, &conn->sides[i], NULL);
    if (w->mode == RESET)
        sw_sim_at(&w->sim, below(w, 20 * MS), reset_both, conn, NULL);
    if (w->mode == CLOSED)
        sw_sim_at(&w->sim, below(w, 20 * MS), close_one, conn, NULL);
}

/* Returns the hash over all that happened; 0 if something was wrong. */
static uint64_t run_seed(uint64_t seed, uint64_t kind, bool prints)
{
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    w->seed = seed;
    sw_sim_world_init(&w->sim, seed);
    w->sim.prints = prints;
    w->mode = (enum mode)(kind % MODES);
    w->conn_count = w->mode == FORGED ? 2 : 1;
    sw_sim_net_init(&w->net, &w->sim, &(struct sw_sim_net_config){.hosts = 2}, NULL, NULL);
    for (uint32_t i = 0; i < 2; i++)
        sw_sim_host_init(
            &w->hosts[i], &w->net,
            &(struct sw_sim_host_config){.number = i,
                                         .len_bytes = (uint64_t)w->conn_count * MEMORY_BYTES,
                                         .early_slots = 1});
    for (int i = 0; i < w->conn_count; i++)
        open_connection(w, i);
    run_until_quiet(w, 60000 * MS);
    check_world(w);
    const uint64_t hash = w->failed ? 0 : w->sim.hash;
    for (int i = 0; i < 2; i++)
        sw_sim_host_fini(&w->hosts[i]);
    sw_sim_net_fini(&w->net);
    sw_sim_world_fini(&w->sim);
    forge_close(w->forge);
    free(w);
    return hash;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, seeds = 1;
    double seconds = 3600;
    bool prints = false, twice = false, forges = false;
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--trace") == 0)
            prints = true;
        else if (strcmp(argv[i], "--twice") == 0)
            twice = true;
        else if (strcmp(argv[i], "--forge") == 0)
            forges = true;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seeds") == 0 && has_value)
            seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0 && has_value)
            seconds = strtod(argv[++i], NULL);
        else
            return EXIT_FAILURE;
    }
    const clock_t begun = clock();
    uint64_t done = 0, failed = 0;
    for (; done < seeds && (double)(clock() - begun) / CLOCKS_PER_SEC < seconds; done++) {
        const uint64_t kind = forges ? FORGED : seed + done;
        const uint64_t hash = run_seed(seed + done, kind, prints);
        failed += hash == 0;
        if (twice && run_seed(seed + done, kind, false) != hash) {
            fprintf(stderr, "seed %llu: two runs differ\n", (unsigned long long)(seed + done));
            failed++;
        }
    }
    printf("%llu seeds, %llu failed\n", (unsigned long long)done, (unsigned long long)failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
