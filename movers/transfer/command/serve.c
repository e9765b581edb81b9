/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/command/server.h"
#include "common/serve/holes.h"
#include "common/serve/json_text.h"
#include "common/serve/log.h"
#include "common/serve/new_file.h"
#include "common/text/endpoint.h"
#include "common/time/clock.h"
#include "transfer/command/command.h"

enum { FILES_MAX = 64, VISITORS_MAX = 64 };

struct serve_visitor {
    uint64_t number; /* 0: none */
    char where[INET6_ADDRSTRLEN];
};

struct serve {
    const char *paths[FILES_MAX], *card_path;
    uint32_t paths_count, files_count;
    int files[FILES_MAX];
    uint64_t memory_bytes, create_bytes;
    uint32_t rights;
    bool is_json, is_shared;
    struct sw_xfer_agent_options options;
    struct sw_xfer_agent *agent;
    struct sw_xfer_lease *leases[FILES_MAX + 1];
    uint32_t leases_count;
    uint64_t bytes;
    void *memory;
    uint32_t lost; /* addresses that are away, a bit for each */
    uint64_t started_ns, notices;
    json_t *regions; /* of the status */
    struct serve_visitor visitors[VISITORS_MAX];
    struct mover_server base;
};

static void serve_take_address(struct argp_state *state, void *place, char *text)
{
    struct sw_xfer_agent_options *agent = place;
    if (!mover_split_endpoint(text, &agent->address, &agent->port))
        argp_error(state, "--listen is ADDR[:PORT], as 192.0.2.1:4440 or [2001:db8::1]:4440");
}

static void take_read_only(struct argp_state *state, void *place, char *text)
{
    uint32_t *rights = place;
    (void)state;
    (void)text;
    *rights = SW_XFER_MAY_READ;
}

static void take_layout(struct argp_state *state, void *place, char *text)
{
    uint64_t *layout = place;
    (void)state;
    *layout = sw_xfer_layout(text, strlen(text));
}

static void serve_take_path(struct argp_state *state, void *arguments, char *text)
{
    struct serve *serve = arguments;
    if (serve->paths_count == FILES_MAX)
        argp_error(state, "there are more than %d files", FILES_MAX);
    serve->paths[serve->paths_count++] = text;
}

static void serve_check(struct argp_state *state, void *arguments)
{
    const struct serve *serve = arguments;
    if (!serve->options.address)
        argp_error(state, "the address to listen at is missing (-l ADDR)");
    if (!serve->card_path)
        argp_error(state, "the file for the card is missing (-c PATH)");
    if (!serve->paths_count && !serve->memory_bytes)
        argp_error(state, "what to serve is missing: files, or --memory BYTES");
}

#define SERVE(member) offsetof(struct serve, member)

static const struct mover_option options[] = {
    {"listen", 'l', "ADDR[:PORT]", 0,
     "Address of the RDMA device to listen at; a free port by default, the card says which", 1,
     serve_take_address, SERVE(options)},
    {"rail", 0, "ADDR", 0, "One more address, of another device; peers use all", 1, xf_take_rail,
     SERVE(options)},
    {"port", 's', "PORT", 0, "The port, without an address", 1,
     MOVER_TO(struct serve, options.port)},
    {"card", 'c', "PATH", 0, "File that the card is written to", 1,
     MOVER_TO(struct serve, card_path)},
    {"memory", 'm', "BYTES", 0, "Serves so much memory, as the region \"memory\"", 2,
     MOVER_TO(struct serve, memory_bytes)},
    {"size", 'S', "BYTES", 0, "Creates files with this size if they are not there, or empty", 2,
     MOVER_TO(struct serve, create_bytes)},
    {"shared", 0, NULL, 0, "Other servers on this host may serve the files, too", 2,
     MOVER_TO(struct serve, is_shared)},
    {"read-only", 0, NULL, 0, "Peers may only read", 2, take_read_only, SERVE(rights)},
    {.letter = 'R', .flags = MOVER_OLD},
    {"layout", 0, "TEXT", 0, "How blocks lie; peers that say otherwise are refused", 2, take_layout,
     SERVE(options.layout)},
    {"output-format", 'o', "FORMAT", 0, "normal or json: how notices are printed", 3,
     mover_take_format, SERVE(is_json)},
    MOVER_OPTIONS_OPERATOR(SERVE(base.wish), "9440"),
    {0},
};

static int add_region(struct serve *serve, struct sw_xfer_memory *memory, const char *name)
{
    struct sw_xfer_error error;
    const struct sw_xfer_lease_options lease = {
        .name = name, .rights = serve->rights, .deadline_ns = SW_XFER_NEVER};
    if (sw_xfer_lease_grant(memory, &lease, &error, &serve->leases[serve->leases_count]))
        return mover_fail("%s: %s", name, error.text);
    json_array_append_new(serve->regions,
                          json_pack("{so sI ss}", "name", mover_json_text(name), "bytes",
                                    (json_int_t)sw_xfer_memory_bytes(memory), "rights",
                                    mover_rights_text(serve->rights)));
    serve->leases_count++;
    serve->bytes += sw_xfer_memory_bytes(memory);
    return MOVER_DONE;
}

/* Peers that may only read share it with others that only read. Where peers may write, the file has
 * all its blocks: a full disk found later would end a transfer. */
static int serve_open_file(const struct serve *serve, const char *path, char *error,
                           size_t error_bytes)
{
    const bool is_written = serve->rights & SW_XFER_MAY_WRITE;
    const struct mover_serving how = {.is_shared = serve->is_shared || !is_written,
                                      .is_unwritten = !serve->is_shared && !is_written,
                                      .share_option = "--shared"};
    const int fd = mover_new_file_open(path, is_written ? O_RDWR : O_RDONLY, serve->create_bytes,
                                       &how, error, error_bytes);
    const int code = fd >= 0 && is_written
                         ? mover_holes_fill_all(fd, path, serve->is_shared, error, error_bytes)
                         : 0;
    if (!code)
        return fd;
    close(fd);
    return code;
}

static int add_file(struct serve *serve, const char *path)
{
    struct sw_xfer_error error;
    struct sw_xfer_memory *memory;
    char why[512];
    const char *slash = strrchr(path, '/');
    const int fd = serve_open_file(serve, path, why, sizeof(why));
    if (fd < 0)
        return mover_fail("%s", why);
    serve->files[serve->files_count++] = fd; /* has the lock */
    const enum sw_xfer_status status = sw_xfer_memory_file(
        serve->agent, fd, 0, 0, serve->rights & SW_XFER_MAY_WRITE, &error, &memory);
    if (status)
        return mover_fail("%s: %s", path, error.text);
    mover_server_tell_size(path, sw_xfer_memory_bytes(memory), serve->create_bytes);
    return add_region(serve, memory, slash ? slash + 1 : path);
}

static int serve_add_memory(struct serve *serve)
{
    struct sw_xfer_error error;
    struct sw_xfer_memory *memory;
    serve->memory =
        mmap(NULL, serve->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (serve->memory == MAP_FAILED)
        return mover_fail("memory: %s", strerror(errno));
    if (sw_xfer_memory_host(serve->agent, serve->memory, serve->memory_bytes, &error, &memory))
        return mover_fail("memory: %s", error.text);
    return add_region(serve, memory, "memory");
}

/* As a whole or not at all: a program that waits for the file finds a card in it. Nobody else has
 * made the file that is written, or has it open: the card is what gives access. */
static int serve_write_card(const struct serve *serve)
{
    static char path[4096];
    static uint8_t card[XF_CARD_BYTES_MAX];
    size_t bytes = 0;
    if (sw_xfer_card_make(serve->agent, serve->leases, serve->leases_count, card, sizeof(card),
                          &bytes))
        return mover_fail("%s: %s", serve->card_path, "no card can be made");
    if (snprintf(path, sizeof(path), "%s.new", serve->card_path) >= (int)sizeof(path))
        return mover_fail("%s: %s", serve->card_path, "the path is too long");
    unlink(path); /* of a server that was killed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool is_written = fd >= 0 && write(fd, card, bytes) == (ssize_t)bytes;
    const bool is_there = is_written && !rename(path, serve->card_path);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    return is_there ? MOVER_DONE : mover_fail("%s: %s", serve->card_path, strerror(why));
}

static void print_notices(struct serve *serve)
{
    static struct sw_xfer_notice notice;
    for (; !sw_xfer_notice_take(serve->agent, &notice); serve->notices++) {
        json_t *text = json_stringn((const char *)notice.data, notice.bytes);
        if (serve->is_json) {
            json_t *line = json_pack("{sI so}", "visitor", (json_int_t)notice.visitor, "notice",
                                     text ? text : json_null());
            json_dumpf(line, stdout, JSON_COMPACT);
            json_decref(line);
            putchar('\n');
        } else {
            char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL; /* no bare controls */
            printf("visitor %" PRIu64 ": %s\n", notice.visitor, quoted ? quoted : "(no text)");
            free(quoted);
            json_decref(text);
        }
        fflush(stdout);
    }
}

static void tell_listeners(struct serve *serve)
{
    struct sw_xfer_error text;
    for (uint32_t i = 0; i < sw_xfer_addresses(serve->agent); i++) {
        const uint32_t bit = 1u << i;
        const bool is_lost = !sw_xfer_listens(serve->agent, i, &text);
        if (is_lost != !!(serve->lost & bit))
            mover_fail("%s", text.text);
        serve->lost = is_lost ? serve->lost | bit : serve->lost & ~bit;
    }
}

/* Tells who came and left since the last time. */
static void tell_visitors(struct serve *serve)
{
    for (uint32_t i = 0; i < serve->options.visitors_max; i++) {
        struct serve_visitor *known = &serve->visitors[i];
        struct in6_addr address;
        const uint64_t now = sw_xfer_visitor_in(serve->agent, i, address.s6_addr);
        if (now == known->number)
            continue;
        if (known->number)
            mover_log(MOVER_LOG_INFO, "%s leaves (visitor %" PRIu64 ")", known->where,
                      known->number);
        known->number = now;
        if (!now)
            continue;
        const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
        inet_ntop(is_ipv4 ? AF_INET : AF_INET6, &address.s6_addr[is_ipv4 ? 12 : 0], known->where,
                  sizeof(known->where));
        mover_log(MOVER_LOG_INFO, "%s connects (visitor %" PRIu64 ")", known->where, now);
    }
}

static json_t *transfer_status_of(void *context)
{
    const struct serve *serve = context;
    const struct sw_xfer_agent_options *agent = &serve->options;
    json_t *rails = json_array();
    for (uint32_t i = 0; i < sw_xfer_addresses(serve->agent); i++)
        json_array_append_new(rails, json_pack("{ss sb}", "address",
                                               i ? agent->rails[i - 1] : agent->address, "is_up",
                                               !(serve->lost & 1u << i)));
    return json_pack("{sI si si sI so sO}", "uptime_ms",
                     (json_int_t)((mover_now_ns() - serve->started_ns) / NS_PER_MS), "clients",
                     (int)sw_xfer_visitors(serve->agent), "clients_max", (int)agent->visitors_max,
                     "notices", (json_int_t)serve->notices, "rails", rails, "regions",
                     serve->regions);
}

static int serve_open_control(struct serve *serve)
{
    static const struct mover_metric metrics[] = {
        {"clients", "clients", "Peers that are connected", MOVER_GAUGE},
        {"clients_max", "clients_max", "Peers at most", MOVER_GAUGE},
        {"notices_total", "notices", "Notices of peers", MOVER_COUNTER},
        {"rail_is_up", "rails[address].is_up", "0: the address is away", MOVER_GAUGE},
        {"region_bytes", "regions[name].bytes", "Bytes of a region", MOVER_GAUGE},
        {0},
    };
    const struct mover_control_setup setup = {.mover = "transfer",
                                              .context = serve,
                                              .status = transfer_status_of,
                                              .metrics = metrics,
                                              .metrics_port = "9440"};
    return mover_server_control(&serve->base, &setup);
}

/* The descriptor of the agent only ends the wait: what has come is looked for in each turn. */
static int serve_all(struct serve *serve)
{
    struct mover_watch agent = {.fd = sw_xfer_fd(serve->agent)};
    const int rc = mover_loop_watch(&serve->base.loop, &agent);
    if (rc)
        return mover_fail("agent: %s", strerror(-rc));
    while (!serve->base.loop.is_over) {
        sw_xfer_poll(serve->agent);
        print_notices(serve);
        tell_listeners(serve);
        tell_visitors(serve);
        mover_loop_turn(&serve->base.loop, sw_xfer_arm(serve->agent) ? -1 : 0);
    }
    mover_loop_unwatch(&serve->base.loop, &agent);
    return MOVER_DONE;
}

static int transfer_open_all(struct serve *serve)
{
    struct sw_xfer_error error;
    if (sw_xfer_agent_open(&serve->options, &error, &serve->agent))
        return mover_fail("agent: %s", error.text);
    int code = serve->memory_bytes ? serve_add_memory(serve) : MOVER_DONE;
    for (uint32_t i = 0; !code && i < serve->paths_count; i++)
        code = add_file(serve, serve->paths[i]);
    if (!code)
        code = serve_open_control(serve);
    return code ? code : serve_write_card(serve);
}

int xf_serve(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "[FILE...]",
        .about = "Lets peers that have the card read and write files or memory.",
        .own = {.rows = options, .word = serve_take_path, .check = serve_check}};
    static struct serve serve = {.rights = SW_XFER_MAY_READ | SW_XFER_MAY_WRITE};
    sw_xfer_agent_options_init(&serve.options);
    serve.options.visitors_max = VISITORS_MAX;
    mover_parse(&usage, argc, argv, &serve);
    serve.started_ns = mover_now_ns();
    serve.regions = json_array();
    int code = mover_server_open(&serve.base);
    if (code)
        return code;
    code = transfer_open_all(&serve);
    if (!code) {
        fprintf(stderr, "%u region%s, %" PRIu64 " bytes; the card is in %s. %s ends it.\n",
                serve.leases_count, serve.leases_count == 1 ? "" : "s", serve.bytes,
                serve.card_path, mover_background_end());
        mover_background_ready();
        code = serve_all(&serve);
    }
    if (serve.agent)
        sw_xfer_agent_close(serve.agent);
    for (uint32_t i = 0; i < serve.files_count; i++)
        close(serve.files[i]);
    mover_server_close(&serve.base);
    json_decref(serve.regions);
    return code;
}
