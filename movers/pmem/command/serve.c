/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "pmem/command/command.h"
#include "pmem/server/server.h"

struct serve {
    const char *what, *listen, *port, *name;
    uint64_t create_bytes;
    struct pms_server server;
    struct pms_memory memory;
};

static const struct argp_option options[] = {
    {"listen", 'l', "ADDR", 0, "Address to listen at (all)", 1},
    {"port", 's', "PORT", 0, "Port to listen at (4430)", 1},
    {"name", 'n', "NAME", 0, "Name of the region (the last part of its path)", 1},
    {"size", 'S', "BYTES", 0, "Creates the file with this size if it is not there", 1},
    {"allow", 'A', "CLIENT:RANGE:RIGHTS", 0,
     "Gives rights: 192.0.2.1:0-64M:rw; may be repeated. Without it, everybody has all", 2},
    {"verbose", 'v', NULL, 0, "Says who connects and leaves", 3},
    {0},
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct serve *serve = state->input;
    char error[256];
    switch (key) {
    case 'l':
        serve->listen = value;
        return 0;
    case 's':
        serve->port = value;
        return 0;
    case 'n':
        serve->name = value;
        return 0;
    case 'S':
        serve->create_bytes = pm_parse_bytes(state, value);
        return 0;
    case 'A':
        if (pms_rules_add(&serve->server.rules, value, error, sizeof(error)))
            argp_error(state, "%s", error);
        return 0;
    case 'v':
        serve->server.is_verbose = true;
        return 0;
    case ARGP_KEY_ARG:
        if (serve->what)
            argp_error(state, "one region for each server; '%s' is another", value);
        serve->what = value;
        return 0;
    case ARGP_KEY_END:
        if (!serve->what)
            argp_error(state, "what to serve is missing: a PATH, /dev/daxX.Y or pci:ADDRESS/BAR");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int fail(const char *text)
{
    fprintf(stderr, "sidewire pmem serve: %s\n", text);
    return PM_STATUS_FAILED;
}

static bool set_name(struct serve *serve)
{
    const char *slash = strrchr(serve->what, '/');
    const char *name = serve->name ? serve->name : slash ? slash + 1 : serve->what;
    if (!strncmp(serve->what, "pci:", 4) && !serve->name)
        name = serve->what;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    snprintf(serve->server.name, sizeof(serve->server.name), "%s", name);
    return *name && strlen(name) <= SW_PMEM_NAME_MAX;
}

static int open_all(struct serve *serve, char *error, size_t error_bytes)
{
    struct addrinfo *found, hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    if (!serve->server.rules.count)
        pms_rules_add(&serve->server.rules, "*:*:rw", error, error_bytes);
    int code =
        pms_memory_open(serve->what, serve->create_bytes, &serve->memory, error, error_bytes);
    if (!code)
        code = pms_rules_fit(&serve->server.rules, serve->memory.bytes, error, error_bytes);
    if (code)
        return code;
    code = getaddrinfo(serve->listen, serve->port, &hints, &found);
    if (code) {
        snprintf(error, error_bytes, "%s: %s", serve->listen, gai_strerror(code));
        return code;
    }
    serve->server.memory = &serve->memory;
    code = pms_server_start(&serve->server, found->ai_addr, error, error_bytes);
    freeaddrinfo(found);
    return code;
}

int pm_serve(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "PATH|DAXDEV|pci:ADDRESS/BAR",
                                     .doc = "Serves memory that keeps its contents."};
    static struct serve serve = {.port = "4430", .server = {.epoll_fd = -1}};
    char error[300];
    sigset_t set;
    argp_parse(&argp, argc, argv, 0, NULL, &serve);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    const int stop_fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (!set_name(&serve))
        return fail("the name is empty, longer than 47 bytes, or has control characters; --name");
    if (open_all(&serve, error, sizeof(error))) {
        pms_memory_close(&serve.memory);
        return fail(error);
    }
    printf("%s: %" PRIu64 " bytes of kind %s, served as \"%s\" on port %s. Ctrl-C ends it.\n",
           serve.what, serve.memory.bytes, pm_kind_text(serve.memory.kind), serve.server.name,
           serve.port);
    fflush(stdout);
    pms_server_run(&serve.server, stop_fd);
    pms_server_end(&serve.server);
    pms_memory_close(&serve.memory);
    close(stop_fd);
    return PM_STATUS_OK;
}
