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
#include "common/command/remote.h"
#include "common/command/server.h"
#include "common/rdma/dial.h"
#include "common/rdma/messages.h"
#include "common/serve/acceptor.h"
#include "common/time/clock.h"

#define PORT "4440"

enum { BYTES_MAX = 65536, RECEIVES = 2, CLIENTS_MAX = 64, RETRIES = 6, PATIENCE_MS = 5000 };

/* ---- the server ---- */

struct client {
    struct mover_watch watch; /* of its queue */
    struct server *server;
    struct rdma_cm_id *id; /* NULL: a free place */
    struct mover_queue queue;
    struct mover_messages messages; /* while one is sent back, the next one is received */
    bool is_sent[RECEIVES];
};

/* The first clients have the places, and keep them: pmem/server/places.c is fairer. */
struct server {
    const char *address, *port;
    struct mover_server base;
    struct mover_acceptor acceptor;
    struct client clients[CLIENTS_MAX];
    json_int_t connections, refused, messages;
};

static void end_client(void *context, void *of)
{
    struct server *server = context;
    struct client *client = of;
    mover_loop_unwatch(&server->base.loop, &client->watch);
    rdma_disconnect(client->id);
    if (client->id->qp)
        rdma_destroy_qp(client->id);
    mover_queue_close(&client->queue);
    mover_messages_close(&client->messages);
    rdma_destroy_id(client->id);
    *client = (struct client){0};
}

/* A message has come, or was sent back from where it lies: that place takes the next one then.
 * False: the connection is over. */
static bool take_completion(struct client *client, const struct ibv_wc *wc)
{
    if (wc->status)
        return false;
    bool *is_sent = &client->is_sent[wc->wr_id];
    *is_sent = !*is_sent;
    client->server->messages += *is_sent;
    return *is_sent ? mover_message_send(&client->messages, wc->wr_id, wc->byte_len)
                    : mover_message_receive(&client->messages, wc->wr_id);
}

static void client_ready(struct mover_watch *watch)
{
    struct client *client = watch->context;
    struct ibv_wc wc;
    bool is_fine = mover_queue_rearm(&client->queue);
    while (is_fine && mover_queue_poll(&client->queue, 1, &wc) > 0)
        is_fine = take_completion(client, &wc);
    if (!is_fine)
        end_client(client->server, client);
}

static bool accept_client(struct client *client, struct rdma_cm_id *id)
{
    struct rdma_conn_param param = {.rnr_retry_count = RETRIES};
    return mover_queue_open(&client->queue, id->verbs, 2 * RECEIVES,
                            client->server->base.loop.epoll_fd, &client->watch) &&
           mover_messages_open(&client->messages, &client->queue, id, id->pd, RECEIVES,
                               BYTES_MAX) &&
           mover_message_receive(&client->messages, 0) &&
           mover_message_receive(&client->messages, 1) && !rdma_accept(id, &param);
}

static void take_request(void *context, const struct mover_arrival *request)
{
    struct server *server = context;
    struct client *client = server->clients, *end = client + CLIENTS_MAX;
    while (client < end && client->id)
        client++;
    server->connections++;
    if (client < end) {
        request->id->context = client;
        *client = (struct client){.watch = {.fd = -1, .ready = client_ready, .context = client},
                                  .server = server,
                                  .id = request->id};
        if (accept_client(client, request->id))
            return;
    }
    server->refused++;
    rdma_reject(request->id, NULL, 0);
    if (client < end)
        end_client(server, client);
    else
        rdma_destroy_id(request->id);
}

static json_t *status_of(void *context)
{
    const struct server *server = context;
    json_int_t clients = 0;
    for (int i = 0; i < CLIENTS_MAX; i++)
        clients += server->clients[i].id != NULL;
    return json_pack("{sI sI sI sI}", "clients", clients, "connections", server->connections,
                     "refused", server->refused, "messages", server->messages);
}

static const struct mover_metric metrics[] = {
    {"clients", "clients", "Connections that are open", MOVER_GAUGE},
    {"messages_total", "messages", "Messages that were sent back", MOVER_COUNTER},
    {0},
};

static int serve(int argc, char **argv)
{
    static const struct mover_option options[] = {
        {"listen", 'l', "ADDR", 0, "Address to listen at (all)", 1, mover_take_text,
         offsetof(struct server, address)},
        MOVER_OPTION_PORT(offsetof(struct server, port), PORT),
        MOVER_OPTION_CONTROL(offsetof(struct server, base.control_path)),
        {0},
    };
    static const struct mover_usage usage = {.about = "Sends back what comes.",
                                             .own = {.rows = options}};
    static struct server server = {.port = PORT};
    const struct mover_control_setup setup = {
        .mover = "echo", .context = &server, .status = status_of, .metrics = metrics};
    char error[400];
    mover_parse(&usage, argc, argv, &server);
    server.acceptor = (struct mover_acceptor){.command = "echo serve",
                                              .backlog = CLIENTS_MAX,
                                              .context = &server,
                                              .request = take_request,
                                              .ended = end_client};
    int code = mover_server_open(&server.base);
    if (!code && mover_acceptor_open_at(&server.acceptor, &server.base.loop, server.address,
                                        server.port, error, sizeof(error)))
        code = mover_fail("%s", error);
    if (!code)
        code = mover_server_control(&server.base, &setup);
    if (!code) {
        printf("echoes on port %s. Ctrl-C ends it.\n", server.port);
        fflush(stdout);
        mover_loop_run(&server.base.loop);
    }
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (server.clients[i].id)
            end_client(&server, &server.clients[i]);
    mover_acceptor_close(&server.acceptor);
    mover_server_close(&server.base);
    return code;
}

/* ---- its clients ---- */

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

enum { QUESTION, ANSWER, PLACES };

struct bench {
    const char *address, *port;
    bool is_json;
    struct mover_bench requests;
    struct mover_dial dial;
    struct mover_messages messages;
};

static bool open_queue(void *context, struct mover_connection *connection)
{
    struct bench *bench = context;
    return mover_connection_queue(connection, 2 * PLACES) &&
           mover_messages_open(&bench->messages, &connection->queue, connection->id,
                               connection->id->pd, PLACES, (uint32_t)bench->requests.request_bytes);
}

static bool ask_once(struct bench *bench)
{
    const uint32_t bytes = (uint32_t)bench->requests.request_bytes;
    struct ibv_wc wc;
    memset(mover_message_at(&bench->messages, QUESTION), (int)bench->requests.latency.count, bytes);
    if (!mover_message_receive(&bench->messages, ANSWER) ||
        !mover_message_send(&bench->messages, QUESTION, bytes))
        return false;
    for (int i = 0; i < PLACES; i++)
        if (mover_dial_poll(&bench->dial, &wc, PATIENCE_MS) != 1 || wc.status)
            return false;
    return !memcmp(mover_message_at(&bench->messages, QUESTION),
                   mover_message_at(&bench->messages, ANSWER), bytes);
}

static void check_bench(struct argp_state *state, void *arguments)
{
    const struct bench *bench = arguments;
    if (!bench->address)
        argp_error(state, "the address of the server is missing (-a ADDR)");
    if (!bench->requests.request_bytes || bench->requests.request_bytes > BYTES_MAX)
        argp_error(state, "a message has 1 to %d bytes", BYTES_MAX);
}

#define BENCH(member) offsetof(struct bench, member)

static int run_bench(int argc, char **argv)
{
    static const struct mover_option options[] = {
        MOVER_OPTION_ADDRESS(BENCH(address)),
        MOVER_OPTION_PORT(BENCH(port), PORT),
        {"size", 'S', "BYTES", 0, "Of each message (64)", 2, mover_take_bytes,
         BENCH(requests.request_bytes)},
        {"count", 0, "N", 0, "Messages (10000)", 2, mover_take_bench_count, BENCH(requests)},
        {"runtime", 0, "SECONDS", 0, "At most (10)", 2, mover_take_bench_runtime, BENCH(requests)},
        MOVER_OPTION_FORMAT(BENCH(is_json)),
        {0},
    };
    static const struct mover_usage usage = {.about = "Measures messages there and back.",
                                             .own = {.rows = options, .check = check_bench}};
    static struct bench bench = {.port = PORT, .requests = {.request_bytes = 64}};
    char error[MOVER_CONNECTION_SAID];
    mover_parse(&usage, argc, argv, &bench);
    bench.dial = (struct mover_dial){
        .routed = open_queue,
        .context = &bench,
        .param = {.retry_count = RETRIES, .rnr_retry_count = RETRIES},
    };
    bool is_good = mover_dial(&bench.dial, bench.address, bench.port, error);
    if (!is_good) {
        mover_messages_close(&bench.messages);
        return mover_fail("%s", error);
    }
    mover_bench_begin(&bench.requests);
    while (is_good && mover_bench_goes_on(&bench.requests)) {
        const uint64_t start_ns = mover_now_ns();
        is_good = ask_once(&bench);
        mover_bench_add(&bench.requests, start_ns);
    }
    mover_bench_end(&bench.requests);
    mover_hang_up(&bench.dial);
    mover_messages_close(&bench.messages);
    return is_good ? mover_bench_print(&bench.requests, bench.is_json, "echo", json_object())
                   : mover_fail("the server does not answer, or not with what was sent");
}

int main(int argc, char **argv)
{
    static const struct mover_command commands[] = {
        {"serve", "sends back what comes", serve},
        {"status", "shows what the server of this host has counted", show_status},
        {"metrics", "writes it as Prometheus reads it", show_metrics},
        {"bench", "measures messages there and back", run_bench},
        {0},
    };
    static const struct mover_front front = {
        "echo", "Sends messages back, over RDMA.", commands,
        "  sidewire echo serve -l 127.0.0.1\n  sidewire echo bench -a 127.0.0.1\n"};
    return mover_front_main(&front, argc, argv);
}
