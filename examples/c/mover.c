/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole small mover, on the floor that all movers stand on (CONTRIBUTING.md, "A new mover"): a
 * server that sends back what comes, its status and its metrics, and a bench.
 *
 *     sidewire echo serve -l 127.0.0.1
 *     sidewire echo bench -a 127.0.0.1
 */
#include <stdio.h>
#include <string.h>

#include "common/command/bench.h"
#include "common/command/control.h"
#include "common/command/front.h"
#include "common/command/patience.h"
#include "common/command/remote.h"
#include "common/command/server.h"
#include "common/rdma/caller.h"
#include "common/serve/clients.h"
#include "common/time/clock.h"

#define PORT "4440"

enum { BYTES_MAX = 65536, PATIENCE_MS = 5000 };

/* ---- the server ---- */

struct server {
    const char *address, *port;
    struct mover_server base;
    struct mover_clients clients; /* who may have a place, and for how long: serve/places.h */
};

/* Whatever comes is its own answer. */
static bool send_back(void *context, uint8_t *message, uint32_t *bytes)
{
    (void)context, (void)message;
    return *bytes > 0;
}

static json_t *status_of(void *context)
{
    const struct server *server = context;
    return mover_clients_status(&server->clients);
}

static const struct mover_metric metrics[] = {
    {"clients", "clients", "Connections that are open", MOVER_GAUGE},
    {"messages_total", "messages", "Messages that were sent back", MOVER_COUNTER},
    {0},
};

static int serve_clients(struct server *server)
{
    const struct mover_control_setup setup = {.mover = "echo",
                                              .context = server,
                                              .status = status_of,
                                              .metrics = metrics,
                                              .metrics_port = "9490"};
    char error[400];
    int code = mover_server_open(&server->base);
    if (code)
        return code;
    if (mover_clients_open(&server->clients, &server->base.loop, server->address, server->port,
                           error, sizeof(error)))
        return mover_fail("%s", error);
    code = mover_server_control(&server->base, &setup);
    if (!code) {
        printf("echoes on port %s. %s ends it.\n", server->port, mover_background_end());
        mover_background_ready();
        mover_loop_run(&server->base.loop);
    }
    return code;
}

static int serve(int argc, char **argv)
{
    static const struct mover_option options[] = {
        {"listen", 'l', "ADDR", 0, "Address to listen at (all)", 1,
         MOVER_TO(struct server, address)},
        MOVER_OPTION_PORT(offsetof(struct server, port), PORT),
        MOVER_OPTIONS_OPERATOR(offsetof(struct server, base.wish), "9490"),
        {0},
    };
    static const struct mover_usage usage = {.about = "Sends back what comes.",
                                             .own = {.rows = options}};
    static struct server server = {
        .port = PORT,
        .clients = {.command = "echo serve", .message_bytes = BYTES_MAX, .answer = send_back}};
    mover_parse(&usage, argc, argv, &server);
    const int code = serve_clients(&server);
    mover_clients_close(&server.clients);
    mover_server_close(&server.base);
    return code;
}

/* ---- what asks the server of this host ---- */

static const struct mover_ask server_of_this_host = {
    .mover = "echo", .command = "echo status", .noun = "server", .start = "sidewire echo serve"};

static int show_status(int argc, char **argv)
{
    return mover_control_status(&server_of_this_host, NULL, argc, argv);
}

static int show_metrics(int argc, char **argv)
{
    return mover_control_metrics(&server_of_this_host, argc, argv);
}

static int stop_server(int argc, char **argv)
{
    return mover_control_stop(&server_of_this_host, argc, argv);
}

/* ---- the bench ---- */

struct bench {
    const char *address, *port;
    bool is_json;
    struct mover_bench requests;
    struct mover_caller caller;
};

static bool ask_once(struct bench *bench)
{
    const uint32_t bytes = (uint32_t)bench->requests.request_bytes;
    uint8_t *question = mover_caller_question(&bench->caller);
    uint32_t answered;
    memset(question, (int)bench->requests.latency.count, bytes);
    const uint8_t *answer = mover_caller_ask(&bench->caller, bytes, PATIENCE_MS, &answered);
    return answer && answered == bytes && !memcmp(question, answer, bytes);
}

static void check_bench(struct argp_state *state, void *arguments)
{
    struct bench *bench = arguments;
    if (!bench->address)
        argp_error(state, "the address of the server is missing (-a ADDR)");
    if (!bench->requests.request_bytes || bench->requests.request_bytes > BYTES_MAX)
        argp_error(state, "a message has 1 to %d bytes", BYTES_MAX);
    bench->caller.message_bytes = (uint32_t)bench->requests.request_bytes;
}

#define BENCH(member) offsetof(struct bench, member)

static int run_bench(int argc, char **argv)
{
    static const struct mover_option options[] = {
        MOVER_OPTION_ADDRESS(BENCH(address)),
        MOVER_OPTION_PORT(BENCH(port), PORT),
        MOVER_OPTION_BS(BENCH(requests.request_bytes), "64"),
        MOVER_OPTION_COUNT(BENCH(requests)),
        MOVER_OPTION_RUNTIME(BENCH(requests)),
        MOVER_OPTION_FORMAT(BENCH(is_json)),
        {0},
    };
    static const struct mover_usage usage = {.about = "Measures messages there and back.",
                                             .own = {.rows = options, .check = check_bench}};
    static struct bench bench = {.port = PORT, .requests = {.request_bytes = 64}};
    char error[MOVER_CONNECTION_SAID];
    bool is_good = true;
    mover_parse(&usage, argc, argv, &bench);
    struct mover_patience patience = mover_patience_begin();
    while (!mover_caller_open(&bench.caller, bench.address, bench.port, error))
        if (!bench.caller.dial.is_absent || !mover_patience_lasts(&patience, error))
            return mover_fail("%s", error);
    mover_bench_begin(&bench.requests);
    while (is_good && mover_bench_goes_on(&bench.requests)) {
        const uint64_t start_ns = mover_now_ns();
        is_good = ask_once(&bench);
        mover_bench_add(&bench.requests, start_ns);
    }
    mover_bench_end(&bench.requests);
    mover_caller_close(&bench.caller);
    return is_good ? mover_bench_print(&bench.requests, bench.is_json, "echo", json_object())
                   : mover_fail("the server does not answer, or not with what was sent");
}

int main(int argc, char **argv)
{
    static const struct mover_command commands[] = {
        {"serve", "sends back what comes", serve},
        {"status", "shows what the server of this host has counted", show_status},
        {"metrics", "writes it as Prometheus reads it", show_metrics},
        {"stop", "ends that server", stop_server},
        {"bench", "measures messages there and back", run_bench},
        {0},
    };
    static const struct mover_front front = {
        .mover = "echo",
        .summary = "Sends messages back, over RDMA.",
        .commands = commands,
        .examples = "  sidewire echo serve -l 127.0.0.1\n  sidewire echo bench -a 127.0.0.1\n"};
    return mover_front_main(&front, argc, argv);
}
