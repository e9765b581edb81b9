/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/utf8.h"
#include "common/command/control.h"
#include "common/command/server.h"
#include "common/rdma/resolve.h"
#include "common/text/endpoint.h"
#include "pmem/command/command.h"
#include "pmem/server/status.h"

struct serve {
    const char *whats[PMS_REGIONS_MAX], *names[PMS_REGIONS_MAX];
    uint32_t whats_count, names_count;
    const char *listen, *port;
    struct pms_memory_setup setup;
    struct mover_server base;
    struct pms_server server;
    struct pms_region regions[PMS_REGIONS_MAX];
};

static void serve_take_listen(struct argp_state *state, void *place, char *text)
{
    struct serve *serve = place;
    if (!mover_split_endpoint(text, &serve->listen, &serve->port))
        argp_error(state, "--listen is ADDR[:PORT], as 192.0.2.1:4430 or [2001:db8::1]:4430");
}

static void take_name(struct argp_state *state, void *place, char *text)
{
    struct serve *serve = place;
    if (serve->names_count == PMS_REGIONS_MAX)
        argp_error(state, "there are at most %d regions", PMS_REGIONS_MAX);
    serve->names[serve->names_count++] = text;
}

static void take_shared(struct argp_state *state, void *place, char *text)
{
    struct serve *serve = place;
    (void)state;
    (void)text;
    serve->setup.is_shared = serve->server.is_shared = true;
}

static void take_rule(struct argp_state *state, void *place, char *text)
{
    char error[256];
    if (pms_rules_add(place, text, error, sizeof(error)))
        argp_error(state, "%s", error);
}

static void take_of_one(struct argp_state *state, void *place, char *text)
{
    uint32_t *of_one = place;
    mover_take_count(state, of_one, text);
    if (*of_one < 2 || *of_one > PMS_CLIENTS_MAX)
        argp_error(state, "one address may have 2 to %d connections", PMS_CLIENTS_MAX);
}

static void take_what(struct argp_state *state, void *arguments, char *text)
{
    struct serve *serve = arguments;
    if (serve->whats_count == PMS_REGIONS_MAX)
        argp_error(state, "there are at most %d regions", PMS_REGIONS_MAX);
    serve->whats[serve->whats_count++] = text;
}

static void check_serve(struct argp_state *state, void *arguments)
{
    const struct serve *serve = arguments;
    if (!serve->whats_count)
        argp_error(state, "what to serve is missing: a PATH, /dev/daxX.Y or pci:ADDRESS/BAR");
    if (serve->names_count > serve->whats_count)
        argp_error(state, "there are more names than regions");
}

#define SERVE(member) offsetof(struct serve, member)

static const struct mover_option options[] = {
    {"listen", 'l', "ADDR[:PORT]", 0, "Address to listen at (all), port 4430 by default", 1,
     serve_take_listen, 0},
    {"port", 's', "PORT", 0, "The port, without an address", 1, MOVER_TO(struct serve, port)},
    {"name", 0, "NAME", 0,
     "Name of a region (the last part of its path); once for each, in their order", 1, take_name,
     0},
    {.letter = 'n', .flags = MOVER_OLD},
    {"size", 'S', "BYTES", 0, "Creates files with this size if they are not there, or empty", 1,
     MOVER_TO(struct serve, setup.create_bytes)},
    {"shared", 0, NULL, 0,
     "Serves what other servers serve with --shared, too. A log needs a server alone", 1,
     take_shared, 0},
    {"allow", 'A', "CLIENT:RANGE:RIGHTS[@REGION]", 0,
     "Gives rights: 192.0.2.1:0-64M:rw; may be repeated. Without it, everybody has all", 2,
     take_rule, SERVE(server.rules)},
    {"connections-of-one", 0, "N", 0,
     "Connections of one address at most (128 of 256); half as many if it may only read", 2,
     take_of_one, SERVE(server.limits.of_one)},
    {.letter = 'c', .flags = MOVER_OLD},
    MOVER_OPTIONS_OPERATOR(SERVE(base.wish), "9430"),
    MOVER_OPTION_VERBOSE(),
    {0},
};

/* What is wrong with it, or NULL. */
static const char *set_name(struct serve *serve, uint32_t index)
{
    const char *what = serve->whats[index], *slash = strrchr(what, '/');
    const char *name = slash && strncmp(what, "pci:", 4) ? slash + 1 : what;
    if (index < serve->names_count)
        name = serve->names[index];
    if (!mover_text_is_fit(name))
        return "a name has control characters, or is not UTF-8; --name";
    if (!*name || strlen(name) > SW_PMEM_NAME_MAX)
        return "a name is empty, or longer than 47 bytes; --name";
    for (uint32_t i = 0; i < index; i++)
        if (!strcmp(serve->regions[i].name, name))
            return "two regions have the same name; --name for each of them";
    snprintf(serve->regions[index].name, sizeof(serve->regions[index].name), "%s", name);
    return NULL;
}

/* A rule for a region that is not there would be a typing error that takes rights away. */
static int check_rules(const struct serve *serve, char *error, size_t error_bytes)
{
    const struct pms_rules *rules = &serve->server.rules;
    for (uint32_t i = 0; i < rules->count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < serve->whats_count; j++)
            found |= pms_rule_is_of(&rules->rules[i], serve->regions[j].name);
        if (found)
            continue;
        snprintf(error, error_bytes, "rule %u is for \"%s\", which is not served", i + 1,
                 rules->rules[i].region);
        return -1;
    }
    return 0;
}

static int open_regions(struct serve *serve, char *error, size_t error_bytes)
{
    for (uint32_t i = 0; i < serve->whats_count; i++) {
        const char *wrong = set_name(serve, i);
        if (wrong) {
            snprintf(error, error_bytes, "%s", wrong);
            return -1;
        }
    }
    if (check_rules(serve, error, error_bytes))
        return -1;
    for (uint32_t i = 0; i < serve->whats_count; i++) {
        struct pms_region *region = &serve->regions[i];
        if (pms_memory_open(serve->whats[i], &serve->setup, &region->memory, error, error_bytes) ||
            pms_rules_fit(&serve->server.rules, region->name, region->memory.bytes, error,
                          error_bytes))
            return -1;
    }
    return 0;
}

static void close_regions(struct serve *serve)
{
    for (uint32_t i = 0; i < serve->whats_count; i++)
        pms_memory_close(&serve->regions[i].memory);
}

static int pmem_open_all(struct serve *serve, char *error, size_t error_bytes)
{
    struct sockaddr_storage at;
    if (!serve->server.rules.count)
        pms_rules_add(&serve->server.rules, "*:*:rw", error, error_bytes);
    const int code = open_regions(serve, error, error_bytes);
    if (code)
        return code;
    const char *wrong = mover_resolve(serve->listen, serve->port, AI_PASSIVE, &at);
    if (wrong) {
        snprintf(error, error_bytes, "%s, port %s: %s",
                 serve->listen ? serve->listen : "all addresses", serve->port, wrong);
        return -EINVAL;
    }
    serve->server.regions = serve->regions;
    serve->server.regions_count = serve->whats_count;
    return pms_server_start(&serve->server, &serve->base.loop, (struct sockaddr *)&at, error,
                            error_bytes);
}

static json_t *pmem_status_of(void *context)
{
    return pms_status(context);
}

static void print_regions(const struct serve *serve)
{
    for (uint32_t i = 0; i < serve->whats_count; i++) {
        const struct pms_region *region = &serve->regions[i];
        mover_server_tell_size(serve->whats[i], region->memory.bytes, serve->setup.create_bytes);
        const bool is_last = i + 1 == serve->whats_count;
        printf("%s: %" PRIu64 " bytes of kind %s, served as \"%s\" on port %s.%s%s%s\n",
               serve->whats[i], region->memory.bytes, pm_kind_text(region->memory.kind),
               region->name, serve->port, is_last ? " " : "", is_last ? mover_background_end() : "",
               is_last ? " ends it." : "");
    }
}

int pm_serve(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "PATH|DAXDEV|pci:ADDRESS/BAR...",
        .about = "Serves memory that keeps its contents.",
        .own = {.rows = options, .word = take_what, .check = check_serve}};
    static struct serve serve = {.port = "4430"};
    const struct mover_control_setup setup = {.mover = "pmem",
                                              .context = &serve.server,
                                              .status = pmem_status_of,
                                              .metrics = pms_metrics,
                                              .metrics_port = "9430"};
    char error[400];
    mover_parse(&usage, argc, argv, &serve);
    int code = mover_server_open(&serve.base);
    if (code)
        return code;
    if (pmem_open_all(&serve, error, sizeof(error))) {
        close_regions(&serve);
        return mover_fail("%s", error);
    }
    code = mover_server_control(&serve.base, &setup);
    if (!code) {
        print_regions(&serve);
        mover_background_ready();
        mover_loop_run(&serve.base.loop);
    }
    pms_server_end(&serve.server);
    close_regions(&serve);
    mover_server_close(&serve.base);
    return code;
}
