/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target add|remove|status|metrics|...`: speaks to a target that serves
 * (server/control.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/command/remote.h"
#include "nvme/command/command.h"
#include "nvme/command/secret.h"

struct control_args {
    struct mover_ask ask;
    bool is_remove, is_json;
    json_t *request, *namespaces, *hosts, *listen, *secrets;
};

static void control_take_entry(struct argp_state *state, void *place, char *text)
{
    json_t **list = place;
    (void)state;
    json_array_append_new(*list, json_string(text));
}

/* This folder as a path of a backend has it: a comma is written twice. NULL: it has no name. */
static const char *write_folder(void)
{
    static char folder[PATH_MAX], doubled[2 * PATH_MAX];
    char *to = doubled;
    if (!getcwd(folder, sizeof(folder)))
        return NULL;
    for (const char *at = folder; *at; at++) {
        *to++ = *at;
        if (*at == ',')
            *to++ = *at;
    }
    *to = '\0';
    return doubled;
}

/* A relative path is one of the folder that the user is in, not of the target's. */
static json_t *pack_backend(const char *text)
{
    static const char *const kinds[] = {"file:", "block:", "nvme:", "nvram:"};
    const char *folder = NULL, *path = text;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && path == text; i++)
        path = strncmp(text, kinds[i], strlen(kinds[i])) ? text : text + strlen(kinds[i]);
    if (path != text && *path && *path != '/')
        folder = write_folder();
    return folder ? json_sprintf("%.*s%s/%s", (int)(path - text), text, folder, path)
                  : json_string(text);
}

static void control_take_namespace(struct argp_state *state, void *place, char *text)
{
    json_t **list = place;
    (void)state;
    json_array_append_new(*list, pack_backend(text));
}

static void control_take_subsystem(struct argp_state *state, void *place, char *text)
{
    json_t **request = place;
    (void)state;
    json_object_set_new(*request, "subsysnqn", json_string(text));
}

static void control_take_secret(struct argp_state *state, const struct control_args *args,
                                const char *text, bool of_controller)
{
    char nqn[NVF_NQN_MAX + 1], secret[NVF_SECRET_TEXT_MAX];
    const char *wrong =
        args->is_remove ? "remove the host: --allow HOSTNQN" : nv_secret_split(text, nqn, secret);
    const char *file = nv_secret_file(text);
    if (wrong)
        argp_error(state, "the secret of '%.*s'%s%s: %s", (int)strcspn(text, "="), text,
                   file ? " in " : "", file ? file : "", wrong);
    json_array_append_new(args->secrets, json_pack("{s:s, s:s, s:b}", "host", nqn, "secret", secret,
                                                   "of_controller", (int)of_controller));
    explicit_bzero(secret, sizeof(secret));
}

static void take_host_secret(struct argp_state *state, void *place, char *text)
{
    control_take_secret(state, place, text, false);
}

static void take_ctrl_secret(struct argp_state *state, void *place, char *text)
{
    control_take_secret(state, place, text, true);
}

static void check_change(struct argp_state *state, void *arguments)
{
    const struct control_args *args = arguments;
    if (!json_array_size(args->namespaces) && !json_array_size(args->hosts) &&
        !json_array_size(args->listen) && !json_array_size(args->secrets) &&
        !json_object_get(args->request, "subsysnqn"))
        argp_error(state, "%s what? say e.g. --namespace, --listen, --allow or --subsysnqn",
                   args->is_remove ? "remove" : "add");
}

#define CONTROL(member) offsetof(struct control_args, member)

static const struct mover_option change_options[] = {
    {"namespace", 'n', "BACKEND", 0, "add: one as 'target' takes it; remove: its number", 1,
     control_take_namespace, CONTROL(namespaces)},
    {"listen", 'l', "ADDR[:PORT]", 0, "Address to listen at, port 4420 by default", 1,
     control_take_entry, CONTROL(listen)},
    {"allow", 'A', "HOSTNQN", 0,
     "A host; from the first one on, others are not let in. All three may be repeated", 1,
     control_take_entry, CONTROL(hosts)},
    {"dhchap-secret", 0, "HOSTNQN=SECRET", 0,
     "add: a host, if it proves that it knows the secret, which is DHHC-1:... or @FILE", 1,
     take_host_secret, 0},
    {"dhchap-ctrl-secret", 0, "HOSTNQN=SECRET", 0,
     "add: what the target proves to that host, if the host asks for it", 1, take_ctrl_secret, 0},
    {"subsysnqn", 'N', "NQN", 0,
     "The subsystem (default: the only one). add: makes it if there is none; remove: alone, the "
     "subsystem itself",
     1, control_take_subsystem, CONTROL(request)},
    MOVER_OPTION_FORMAT(CONTROL(is_json)),
    MOVER_OPTION_CONTROL(CONTROL(ask.path)),
    MOVER_OPTION_PID(CONTROL(ask.pid)),
    {0},
};

/* ---- what is shown ---- */

static const char *target_control_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long target_control_number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_namespace(const json_t *ns)
{
    const char *error = target_control_text_of(ns, "disk_error");
    printf("  namespace %-4lld %-32s %lld x %lld  read %lld MiB, written %lld MiB%s%s\n",
           target_control_number_of(ns, "nsid"), target_control_text_of(ns, "backend"),
           target_control_number_of(ns, "blocks"), target_control_number_of(ns, "block_bytes"),
           target_control_number_of(ns, "read_bytes") >> 20,
           target_control_number_of(ns, "written_bytes") >> 20,
           *error ? "; its disk has failed a write: " : "", error);
}

static void print_tier(const json_t *tier)
{
    size_t i;
    const json_t *copy;
    const long long used = target_control_number_of(tier, "used_bytes"),
                    size = target_control_number_of(tier, "log_bytes"),
                    hits = target_control_number_of(tier, "ram_hits"),
                    reads = hits + target_control_number_of(tier, "ram_misses");
    const char *trouble = target_control_text_of(tier, "trouble");
    if (!json_is_object(tier))
        return;
    printf(
        "    tier      %s; log %lld of %lld MiB used (%lld%%), %lld MiB dirty, the oldest for %lld "
        "ms; %lld MiB destaged\n",
        target_control_text_of(tier, "tier_phase"), used >> 20, size >> 20,
        size ? 100 * used / size : 0, target_control_number_of(tier, "dirty_bytes") >> 20,
        target_control_number_of(tier, "oldest_dirty_ms"),
        target_control_number_of(tier, "destaged_bytes") >> 20);
    if (target_control_number_of(tier, "ram_bytes"))
        printf("    ram       %lld MiB, %lld%% of %lld reads\n",
               target_control_number_of(tier, "ram_bytes") >> 20, reads ? 100 * hits / reads : 0,
               reads);
    json_array_foreach(json_object_get(tier, "copies"), i, copy)
        printf("    log       %-32s %s\n", target_control_text_of(copy, "log"),
               target_control_text_of(copy, "copy_state"));
    if (*trouble)
        printf("    trouble   %s\n", trouble);
}

static void print_subsystem(const json_t *subsystem)
{
    size_t i;
    const json_t *one;
    printf("\nsubsystem   %s\n", target_control_text_of(subsystem, "nqn"));
    if (json_is_true(json_object_get(subsystem, "allow_any_host")))
        puts("  hosts     any");
    json_array_foreach(json_object_get(subsystem, "hosts"), i, one)
        printf("  hosts     %s\n", json_string_value(one));
    json_array_foreach(json_object_get(subsystem, "namespaces"), i, one)
    {
        print_namespace(one);
        print_tier(json_object_get(one, "tier"));
    }
    json_array_foreach(json_object_get(subsystem, "controllers"), i, one) printf(
        "  connected %-4lld %s, %lld queues of %lld\n", target_control_number_of(one, "cntlid"),
        target_control_text_of(one, "hostnqn"), target_control_number_of(one, "io_queues"),
        /* "depth" of a target of the release before, which may still run */
        target_control_number_of(one, json_object_get(one, "queue_size") ? "queue_size" : "depth"));
}

static void print_threads(const json_t *threads)
{
    size_t i;
    const json_t *one;
    if (json_array_size(threads) < 2)
        return;
    printf("threads     %zu, with I/O queues:", json_array_size(threads));
    json_array_foreach(threads, i, one) printf(" %lld", target_control_number_of(one, "io_queues"));
    puts("");
}

static void print_member(const json_t *member)
{
    size_t i;
    const json_t *address;
    printf("  member    %-16s%s%s%s", target_control_text_of(member, "name"),
           json_is_true(json_object_get(member, "is_here")) ? "" : " (left)",
           json_is_true(json_object_get(member, "is_leader")) ? " leads" : "",
           json_is_true(json_object_get(member, "is_self")) ? " (this one)" : "");
    json_array_foreach(json_object_get(member, "addresses"), i, address)
        printf(" %s", json_string_value(address));
    puts("");
}

/* The owner of a namespace, or of a host where all members are active. */
static void print_owner(const json_t *one)
{
    printf("%s %s, epoch %lld; here: %s\n", target_control_text_of(one, "phase"),
           *target_control_text_of(one, "owner") ? target_control_text_of(one, "owner") : "-",
           target_control_number_of(one, "epoch"), target_control_text_of(one, "here"));
}

static void print_owners(const json_t *group)
{
    size_t i;
    const json_t *one;
    const bool is_all = !strcmp(target_control_text_of(group, "active"), "all");
    json_array_foreach(json_object_get(group, "owners"), i, one)
    {
        printf("  namespace %-4lld ", target_control_number_of(one, "nsid"));
        if (is_all)
            puts("at all members");
        else
            print_owner(one);
        if (*target_control_text_of(one, "disk_error"))
            printf(
                "            its disk has failed a flush: %s. Check it, then 'sidewire nvme target "
                "clear --namespace %lld'\n",
                target_control_text_of(one, "disk_error"), target_control_number_of(one, "nsid"));
    }
    json_array_foreach(json_object_get(group, "host_owners"), i, one)
    {
        printf("  host      %s ", target_control_text_of(one, "hostnqn"));
        print_owner(one);
    }
}

static void print_group(const json_t *group)
{
    size_t i;
    const json_t *one;
    if (!group)
        return;
    printf("\ngroup       member %s, %s; leader %s%s\n", target_control_text_of(group, "member"),
           target_control_text_of(group, "role"),
           *target_control_text_of(group, "leader") ? target_control_text_of(group, "leader")
                                                    : "unknown",
           json_is_true(json_object_get(group, "has_quorum"))
               ? ""
               : "; no quorum of its log: owners go on, changes are refused");
    json_array_foreach(json_object_get(group, "members"), i, one) print_member(one);
    print_owners(group);
}

static void target_control_print_status(const json_t *status)
{
    size_t i;
    const json_t *one;
    printf("target      process %lld; commands: %lld, of them failed %lld; connections: %lld, "
           "refused %lld, ended %lld\n",
           target_control_number_of(status, "pid"), target_control_number_of(status, "commands"),
           target_control_number_of(status, "errors"),
           target_control_number_of(status, "connected"),
           target_control_number_of(status, "refused"), target_control_number_of(status, "ended"));
    print_threads(json_object_get(status, "threads"));
    json_array_foreach(json_object_get(status, "ports"), i, one) printf(
        "port        %-4lld %s port %s%s\n", target_control_number_of(one, "portid"),
        target_control_text_of(one, "traddr"), target_control_text_of(one, "trsvcid"),
        json_is_false(json_object_get(one, "is_listening")) ? ", not listening: the address is away"
                                                            : "");
    print_group(json_object_get(status, "group"));
    json_array_foreach(json_object_get(status, "subsystems"), i, one) print_subsystem(one);
}

bool nv_is_target_control(const char *word)
{
    static const char *const words[] = {"add",    "remove",  "move", "clear",
                                        "status", "metrics", "stop"};
    for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

long nv_take_nsid(struct argp_state *state, const char *text)
{
    char *end = "";
    if (!text)
        argp_error(state, "say which namespace by --namespace");
    const long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > UINT32_MAX)
        argp_error(state, "--namespace is the number of one, not '%s'", text);
    return number;
}

static int change_target(const struct mover_ask *ask, const char *word, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Changes what a running target serves; hosts are told.\v"
                 "Examples:\n"
                 "  sidewire nvme target add --namespace file:/srv/more.img\n"
                 "  sidewire nvme target remove --namespace 2\n",
        .own = {.rows = change_options, .check = check_change}};
    struct control_args args = {.ask = *ask,
                                .is_remove = !strcmp(word, "remove"),
                                .namespaces = json_array(),
                                .hosts = json_array(),
                                .listen = json_array(),
                                .secrets = json_array()};
    args.request =
        json_pack("{s:s, s:o, s:o, s:o, s:o}", "command", word, "namespaces", args.namespaces,
                  "hosts", args.hosts, "listen", args.listen, "secrets", args.secrets);
    mover_parse(&usage, argc, argv, &args);
    char *text = mover_ask(&args.ask, args.request);
    const int code = text ? mover_control_done(text, args.is_json) : MOVER_FAILED;
    free(text);
    return code;
}

int nv_target_control(int argc, char **argv)
{
    const char *word = argv[0];
    argv[0] = mover_front_enter(word);
    const struct mover_ask ask = {.mover = "nvme",
                                  .command = mover_front_words(),
                                  .noun = "target",
                                  .start = "sidewire nvme target --namespace ram:64M"};
    if (!strcmp(word, "status"))
        return mover_control_status(&ask, target_control_print_status, argc, argv);
    if (!strcmp(word, "metrics"))
        return mover_control_metrics(&ask, argc, argv);
    if (!strcmp(word, "stop"))
        return mover_control_stop(&ask, argc, argv);
    if (!strcmp(word, "move"))
        return nv_target_move(&ask, argc, argv);
    if (!strcmp(word, "clear"))
        return nv_target_clear(&ask, argc, argv);
    return change_target(&ask, word, argc, argv);
}
