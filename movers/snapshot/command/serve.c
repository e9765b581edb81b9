/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/command/front.h"
#include "common/command/server.h"
#include "common/text/endpoint.h"
#include "snapshot/command/command.h"
#include "snapshot/command/serve_status.h"
#include "snapshot/server/server.h"
#include "snapshot/store/superblock.h"

struct serve {
    const char *listen, *port;
    struct mover_server base;
    struct snap_server server;
};

static void snapshot_take_listen(struct argp_state *state, void *place, char *text)
{
    struct serve *serve = place;
    if (!mover_split_endpoint(text, &serve->listen, &serve->port))
        argp_error(state, "--listen is ADDR[:PORT], as 192.0.2.1:4460 or [2001:db8::1]:4460");
}

static void snapshot_take_rule(struct argp_state *state, void *place, char *text)
{
    char error[256];
    if (snap_rules_add(place, text, error, sizeof(error)))
        argp_error(state, "%s", error);
}

static void check_snapshot_serve(struct argp_state *state, void *arguments)
{
    const struct serve *serve = arguments;
    if (!serve->server.memory_bytes)
        argp_error(state, "how much memory volumes may have is missing (--memory BYTES)");
    if (serve->server.memory_bytes < SNAP_VOLUME_BLOCKS_MIN * SNAP_BLOCK_BYTES)
        argp_error(state, "no volume fits into %" PRIu64 " bytes: --memory is 64K at least",
                   serve->server.memory_bytes);
}

#define SERVE(member) offsetof(struct serve, member)

static const struct mover_option options[] = {
    {"listen", 'l', "ADDR[:PORT]", 0,
     "Address to listen at (all), port " SNAP_WIRE_PORT " by default", 1, snapshot_take_listen, 0},
    {"port", 's', "PORT", 0, "The port, without an address", 1, MOVER_TO(struct serve, port)},
    {"memory", 'm', "BYTES", 0, "All volumes have so much memory together", 1,
     MOVER_TO(struct serve, server.memory_bytes)},
    {"folder", 0, "DIR", 0,
     "Volumes are files there, NAME.snap, that outlive this server and the power", 1,
     MOVER_TO(struct serve, server.folder)},
    {"allow", 'A', "CLIENT:RIGHTS[@VOLUME]", 0,
     "Gives rights, r or rw: 192.0.2.1:rw; may be repeated. Without it, everybody has all", 2,
     snapshot_take_rule, SERVE(server.rules)},
    {"allow-remove", 0, NULL, 0, "Clients may remove volumes that nobody writes to", 2,
     MOVER_TO(struct serve, server.may_remove)},
    MOVER_OPTIONS_OPERATOR(SERVE(base.wish), "9460"),
    MOVER_OPTION_VERBOSE(),
    {0},
};

static json_t *snapshot_status_of(void *context)
{
    return snap_serve_status(context);
}

/* For the server's own user, who needs no --allow-remove. */
static bool serve_carry_out_remove(struct mover_order *order)
{
    char why[SNAP_WIRE_TEXT_BYTES] = "", line[256];
    const char *name = json_string_value(json_object_get(order->request, "name"));
    const enum snap_wire_status status =
        name ? snap_server_remove(order->context, name, why) : SNAP_WIRE_MALFORMED;
    const bool is_going = status == SNAP_WIRE_WORKING;
    snprintf(line, sizeof(line), "%s: %s", name ? name : "?",
             is_going ? "removed"
             : *why   ? why
                      : snap_wire_status_text(status));
    mover_order_say(order, line);
    return is_going;
}

/* The user's own: what lies in it is the state of programs. */
static int make_folder(const char *folder)
{
    if (!folder)
        return MOVER_DONE;
    if (mkdir(folder, 0700) && errno != EEXIST)
        return mover_fail("%s: %s", folder, strerror(errno));
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || faccessat(AT_FDCWD, folder, W_OK, AT_EACCESS))
        return mover_fail("%s: %s", folder, strerror(errno));
    close(fd);
    return MOVER_DONE;
}

/* Memory is promised to clients: the kernel would end some program for want of it. */
static int look_at_memory(const struct snap_server *server)
{
    const uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return server->folder || server->memory_bytes <= all
               ? MOVER_DONE
               : mover_fail("this host has %" PRIu64 " bytes of memory, and --memory says %" PRIu64,
                            all, server->memory_bytes);
}

static int open_snapshot_server(struct serve *serve)
{
    static const struct mover_control_command orders[] = {{"remove", serve_carry_out_remove}, {0}};
    const struct mover_control_setup setup = {.mover = "snapshot",
                                              .context = &serve->server,
                                              .status = snapshot_status_of,
                                              .commands = orders,
                                              .metrics = snap_serve_metrics,
                                              .metrics_port = "9460"};
    char error[512];
    int code = look_at_memory(&serve->server);
    if (!code)
        code = make_folder(serve->server.folder);
    if (code)
        return code;
    if (snap_server_start(&serve->server, &serve->base.loop, serve->listen, serve->port, error,
                          sizeof(error)))
        return mover_fail("%s", error);
    return mover_server_control(&serve->base, &setup);
}

int snap_serve(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Holds volumes of snapshots for programs on other hosts: in memory, or as files.",
        .own = {.rows = options, .check = check_snapshot_serve}};
    static struct serve serve = {.port = SNAP_WIRE_PORT};
    mover_parse(&usage, argc, argv, &serve);
    int code = mover_server_open(&serve.base);
    if (code)
        return code;
    code = open_snapshot_server(&serve);
    if (!code) {
        printf("%" PRIu64 " bytes for volumes %s%s, on port %u. %s ends it.\n",
               serve.server.memory_bytes, serve.server.folder ? "below " : "in memory",
               serve.server.folder ? serve.server.folder : "",
               mover_listener_port(&serve.server.clients.acceptor.listener),
               mover_background_end());
        fflush(stdout);
        mover_background_ready();
        mover_loop_run(&serve.base.loop);
    }
    snap_server_end(&serve.server);
    mover_server_close(&serve.base);
    return code;
}
