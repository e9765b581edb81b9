/* SPDX-License-Identifier: BSD-2-Clause */
/* ls, info and status. */
#include <inttypes.h>
#include <stdio.h>

#include "common/command/control.h"
#include "common/command/table.h"
#include "pmem/command/command.h"

enum { ENTRIES_MAX = SW_PMEM_REGIONS_MAX };

static json_t *entry_json(const struct sw_pmem_entry *entry)
{
    char identity[33];
    mover_hex(entry->identity, identity);
    return json_pack("{ss sI ss ss sb sb ss}", "name", entry->name, "bytes",
                     (json_int_t)entry->bytes, "kind", pm_kind_text(entry->kind), "identity",
                     identity, "visible", entry->visible, "persistent", entry->persistent, "rights",
                     mover_rights_text(entry->rights));
}

int pm_ls(int argc, char **argv)
{
    static const struct mover_usage usage = {.about = "Lists the regions of a server.",
                                             .shared = &pm_remote_options};
    static const struct mover_column columns[] = {
        {"NAME", "name", .width = -24},           {"BYTES", "bytes", .width = 16},
        {"KIND", "kind", .width = -10, .gap = 1}, {"PERSISTENT", "persistent", .width = -10},
        {"RIGHTS", "rights", .width = 0},         {0}};
    struct pm_remote remote = {0};
    struct sw_pmem_entry entries[ENTRIES_MAX];
    struct sw_pmem_error error;
    struct mover_table table;
    uint32_t count;
    pm_remote_parse(&usage, argc, argv, &remote);
    struct mover_patience patience = mover_patience_begin();
    while (sw_pmem_list(&remote.options, entries, ENTRIES_MAX, &count, &error))
        if (!pm_remote_lasts(&patience, &error))
            return mover_fail("%s", error.text);
    mover_table_open(&table, columns, remote.is_json);
    for (uint32_t i = 0; i < count; i++)
        mover_table_add(&table, NULL, entry_json(&entries[i]));
    return mover_table_close(&table, json_pack("{so}", "regions", table.rows));
}

static int info_json(const struct sw_pmem_info *info)
{
    char identity[33], instance[33];
    json_t *ranges = json_array();
    mover_hex(info->identity, identity);
    mover_hex(info->instance, instance);
    for (uint32_t i = 0; i < info->ranges_count; i++)
        json_array_append_new(ranges,
                              json_pack("{sI sI ss}", "offset", (json_int_t)info->ranges[i].offset,
                                        "bytes", (json_int_t)info->ranges[i].bytes, "rights",
                                        mover_rights_text(info->ranges[i].rights)));
    return mover_print_json(
        json_pack("{ss sI ss ss ss sb sb ss sb so ss}", "name", info->name, "bytes",
                  (json_int_t)info->bytes, "kind", pm_kind_text(info->kind), "identity", identity,
                  "instance", instance, "visible", info->visible, "persistent", info->persistent,
                  "flush", info->flush == SW_PMEM_BY_FLUSH ? "flush" : "read", "atomic_publish",
                  info->atomic_publish, "ranges", ranges, "promise", sw_pmem_promise(info)));
}

static void print_info(const struct sw_pmem_info *info)
{
    char identity[33], instance[33];
    mover_hex(info->identity, identity);
    mover_hex(info->instance, instance);
    printf("name       %s\nbytes      %" PRIu64 "\nkind       %s\n", info->name, info->bytes,
           pm_kind_text(info->kind));
    printf("identity   %s\ninstance   %s\n", identity, instance);
    printf("flush      by %s; visible %s, persistent %s\n",
           info->flush == SW_PMEM_BY_FLUSH ? "FLUSH" : "READ", info->visible ? "yes" : "no",
           info->persistent ? "yes" : "no");
    printf("publish    by %s\n", info->atomic_publish
                                     ? "ATOMIC WRITE"
                                     : "WRITE: whole on the devices that are known, "
                                       "promised by none");
    for (uint32_t i = 0; i < info->ranges_count; i++)
        printf("range      %" PRIu64 "-%" PRIu64 " %s\n", info->ranges[i].offset,
               info->ranges[i].offset + info->ranges[i].bytes,
               mover_rights_text(info->ranges[i].rights));
    printf("promise    %s\n", sw_pmem_promise(info));
}

int pm_info(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows a region, and what a flush promises there.", .shared = &pm_remote_options};
    struct pm_remote remote = {0};
    struct sw_pmem_info info;
    pm_remote_parse(&usage, argc, argv, &remote);
    int code = pm_remote_open(&remote);
    if (code)
        return code;
    sw_pmem_info_of(remote.pmem, &info);
    if (remote.is_json)
        code = info_json(&info);
    else
        print_info(&info);
    sw_pmem_close(remote.pmem);
    return code;
}

static long long count_of(const json_t *status, const char *key)
{
    return json_integer_value(json_object_get(status, key));
}

static void show_print_status(const json_t *status)
{
    static const struct mover_column columns[] = {{"REGION", "name", .width = -24},
                                                  {"OPENED", "opens", .width = 10},
                                                  {"CLIENTS", "clients", .width = 10},
                                                  {"WRITERS", "writers", .width = 10},
                                                  {0}};
    const bool is_here = json_object_get(status, "is_listening");
    printf("up           %lld s\n", count_of(status, "uptime_ms") / 1000);
    printf("clients      %lld of %lld%s\n", count_of(status, "clients"),
           count_of(status, "clients_max"), is_here ? "" : ", this one included");
    printf("connections  %lld, %lld refused, %lld ended for a client that wished to be alone\n",
           count_of(status, "connected"), count_of(status, "refused"), count_of(status, "ended"));
    printf("malformed    %lld messages\n\n", count_of(status, "malformed"));
    mover_table_print(columns, json_object_get(status, "regions"));
}

static int show_counts(const struct sw_pmem_server_info *info, bool is_json)
{
    json_t *regions = json_array();
    for (uint32_t i = 0; i < info->regions_count; i++)
        json_array_append_new(regions, json_pack("{ss sI sI sI}", "name", info->regions[i].name,
                                                 "opens", (json_int_t)info->regions[i].opens,
                                                 "clients", (json_int_t)info->regions[i].clients,
                                                 "writers", (json_int_t)info->regions[i].writers));
    json_t *status = json_pack(
        "{sI sI sI sI sI sI sI sI so}", "uptime_ms", (json_int_t)info->uptime_ms, "clients",
        (json_int_t)info->clients, "clients_max", (json_int_t)info->clients_max, "connected",
        (json_int_t)info->connections, "connections", (json_int_t)info->connections, "refused",
        (json_int_t)info->refused, "ended", (json_int_t)info->ended, "malformed",
        (json_int_t)info->malformed, "regions", regions);
    if (is_json)
        return mover_print_json(status);
    show_print_status(status);
    json_decref(status);
    return fflush(stdout) ? MOVER_FAILED : MOVER_DONE;
}

static struct mover_ask ask_here(void)
{
    return (struct mover_ask){.mover = "pmem",
                              .command = mover_front_words(),
                              .noun = "server",
                              .start = "sidewire pmem serve PATH"};
}

struct status_args {
    struct pm_remote remote;
    struct mover_ask ask;
};

static const struct mover_option status_options[] = {
    MOVER_OPTION_CONTROL(offsetof(struct status_args, ask.path)),
    MOVER_OPTION_PID(offsetof(struct status_args, ask.pid)),
    {0},
};

int pm_status(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows what a server has counted, without --address one of this host. Data is "
                 "not: it never passes through the server.",
        .own = {.rows = status_options},
        .shared = &pm_remote_options};
    struct status_args args = {.remote = {.may_be_here = true}, .ask = ask_here()};
    struct sw_pmem_server_info info;
    struct sw_pmem_error error;
    pm_remote_parse(&usage, argc, argv, &args);
    if (!args.remote.options.address)
        return mover_control_show(&args.ask, show_print_status, args.remote.is_json);
    struct mover_patience patience = mover_patience_begin();
    while (sw_pmem_server(&args.remote.options, &info, &error))
        if (!pm_remote_lasts(&patience, &error))
            return mover_fail("%s", error.text);
    return show_counts(&info, args.remote.is_json);
}

int pm_stop(int argc, char **argv)
{
    const struct mover_ask ask = ask_here();
    return mover_control_stop(&ask, argc, argv);
}

int pm_metrics(int argc, char **argv)
{
    const struct mover_ask ask = ask_here();
    return mover_control_metrics(&ask, argc, argv);
}
