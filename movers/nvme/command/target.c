/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target`: serves until it is told to end. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/command/command.h"
#include "nvme/command/secret.h"
#include "nvme/target/rdma.h"
#include "nvme/target/spec.h"

enum {
    KEY_POOL = 256,
    KEY_IN_CAPSULE,
    KEY_SPIN,
    KEY_ALLOW,
    KEY_SECRET,
    KEY_CTRL_SECRET,
    LISTS_MAX = 64
};

struct target_args {
    const char *listen[NVR_LISTENERS_MAX], *namespaces[LISTS_MAX], *hosts[LISTS_MAX], *nqn;
    int listen_count, namespace_count, host_count;
    struct nv_secrets secrets;
    struct nvr_settings settings;
};

static const struct argp_option options[] = {
    {"listen", 'l', "ADDR[:PORT]", 0, "Listen there, 4420 by default; may be repeated", 0},
    {"namespace", 'n', "BACKEND", 0,
     "Serve ram:SIZE, null:SIZE, file:PATH, block:PATH or nvram:PATH, with ,bs=512 and ,ro; may be "
     "repeated",
     0},
    {"subsysnqn", 'N', "NQN", 0, "The subsystem's name", 0},
    {"allow", KEY_ALLOW, "HOSTNQN", 0, "Only these hosts; may be repeated (default: any)", 0},
    {"dhchap-secret", KEY_SECRET, "HOSTNQN=SECRET", 0,
     "This host, if it proves that it knows the secret, which is DHHC-1:... or @FILE; may be "
     "repeated",
     0},
    {"dhchap-ctrl-secret", KEY_CTRL_SECRET, "HOSTNQN=SECRET", 0,
     "What this target proves to that host, if the host asks for it", 0},
    {"in-capsule", KEY_IN_CAPSULE, "BYTES", 0,
     "Data that comes with its command, 0 to 16384 (default 4096)", 0},
    {"pool", KEY_POOL, "MIB", 0, "Memory for data on its way (default 16)", 0},
    {"spin", KEY_SPIN, "US", 0, "How long an idle target polls before it sleeps (default 100)", 0},
    {0},
};

static uint32_t number_of(struct argp_state *state, const char *option, const char *text,
                          uint32_t low, uint32_t high)
{
    char *end;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || end == text || value < low || value > high)
        argp_error(state, "--%s is %u to %u, not '%s'", option, low, high, text);
    return (uint32_t)value;
}

static void add(struct argp_state *state, const char **list, int *count, int most, char *text)
{
    if (*count == most)
        argp_error(state, "too many options: '%s'", text);
    list[(*count)++] = text;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct target_args *args = state->input;
    switch (key) {
    case 'l':
        add(state, args->listen, &args->listen_count, NVR_LISTENERS_MAX, text);
        return 0;
    case 'n':
        add(state, args->namespaces, &args->namespace_count, LISTS_MAX, text);
        return 0;
    case KEY_ALLOW:
        add(state, args->hosts, &args->host_count, LISTS_MAX, text);
        return 0;
    case KEY_SECRET:
        add(state, args->secrets.of_hosts, &args->secrets.host_count, NV_SECRETS_MAX, text);
        return 0;
    case KEY_CTRL_SECRET:
        add(state, args->secrets.of_ctrl, &args->secrets.ctrl_count, NV_SECRETS_MAX, text);
        return 0;
    case 'N':
        args->nqn = text;
        return 0;
    case KEY_IN_CAPSULE:
        args->settings.in_capsule_bytes =
            number_of(state, "in-capsule", text, 0, NVF_IN_CAPSULE_MAX) / 512 * 512;
        return 0;
    case KEY_POOL:
        args->settings.pool_bytes = (size_t)number_of(state, "pool", text, 1, 65536) << 20;
        return 0;
    case KEY_SPIN:
        args->settings.spin_us = number_of(state, "spin", text, 0, 1000000000);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "what is '%s'?", text);
        return 0;
    case ARGP_KEY_END:
        if (!args->namespace_count)
            argp_error(state, "nothing to serve: say e.g. --namespace ram:64M");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Serves namespaces to NVMe over RDMA hosts.\v"
           "Examples:\n"
           "  sidewire nvme target --listen 192.0.2.1 --namespace file:/srv/disk.img\n"
           "  nvme connect -t rdma -a 192.0.2.1 -s 4420 -n nqn.2026-01.io.sidewire:default\n",
};

/* ---- namespaces ---- */

static int open_backend(struct nvr_server *server, const char *text, struct nvt_backend **out,
                        char *error, size_t error_size)
{
    static struct nvt_backend_spec spec; /* has a path in it */
    const int rc = nvt_backend_spec_parse(text, &spec, error, error_size);
    if (rc)
        return rc;
    const struct nvt_backend_ops *ops = nvt_backend_find(nvt_backend_kind_name(spec.kind));
    const bool has_more = spec.has_uuid || spec.has_nguid || spec.nsid || spec.error_ppm ||
                          spec.short_ppm || spec.delay_ns;
    if (!ops || has_more) {
        char kinds[64];
        nvt_backend_kinds(kinds, sizeof(kinds));
        snprintf(error, error_size,
                 "'%s': the kinds are %s by now, the options ro, bs=512 and bs=4096", text, kinds);
        return -EINVAL;
    }
    const struct nvt_backend_setup setup = {.path = spec.path,
                                            .size_bytes = spec.size_bytes,
                                            .block_bytes = spec.block_bytes,
                                            .is_read_only = spec.read_only,
                                            .uring = &server->uring};
    return ops->open(&setup, out, error, error_size);
}

static int add_namespaces(struct nvr_server *server, const struct target_args *args)
{
    char error[512] = "";
    struct nvt_subsystem *subsystem = nvt_subsystem_add(&server->target, args->nqn);
    if (!subsystem) {
        fprintf(stderr, "sidewire nvme target: '%s' is no NQN for a subsystem\n", args->nqn);
        return -EINVAL;
    }
    subsystem->allow_any_host = !args->host_count && !args->secrets.host_count;
    for (int i = 0; i < args->host_count; i++)
        nvt_subsystem_allow(subsystem, args->hosts[i]);
    if (nv_secrets_add(&args->secrets, subsystem))
        return -EINVAL;
    for (int i = 0; i < args->namespace_count; i++) {
        struct nvt_backend *backend;
        struct nvt_namespace *ns;
        int rc = open_backend(server, args->namespaces[i], &backend, error, sizeof(error));
        if (!rc)
            rc = nvt_namespace_add(subsystem, 0, backend, &ns);
        if (rc) {
            fprintf(stderr, "sidewire nvme target: %s\n", *error ? error : strerror(-rc));
            return rc;
        }
        snprintf(ns->spec, sizeof(ns->spec), "%s", args->namespaces[i]);
        printf("namespace %-4u %-40s %llu blocks of %u bytes\n", ns->nsid, ns->spec,
               (unsigned long long)ns->blocks, 1u << ns->block_shift);
    }
    return 0;
}

static int listen_all(struct nvr_server *server, const struct target_args *args)
{
    char error[512];
    for (int i = 0; i < args->listen_count; i++) {
        struct nvt_listen at;
        char service[8];
        if (nvt_listen_parse(args->listen[i], &at, error, sizeof(error))) {
            fprintf(stderr, "sidewire nvme target: %s\n", error);
            return -1;
        }
        snprintf(service, sizeof(service), "%u", at.port);
        if (nvr_server_listen(server, at.traddr, service, NULL, error, sizeof(error))) {
            fprintf(stderr, "sidewire nvme target: %s\n", error);
            return -1;
        }
        printf("listening      %s port %s, as %s\n", at.traddr, service, args->nqn);
    }
    return 0;
}

static struct nvr_server server;

static void say_refused(const struct nvt_queue *queue, const char *why)
{
    fprintf(stderr, "sidewire nvme target: queue %u of %s is refused: %s\n", queue->qid,
            queue->ctrl->host_nqn, why);
}

static void stop(int signal)
{
    (void)signal;
    nvr_server_stop(&server);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int nv_target_main(int argc, char **argv)
{
    struct target_args args = {.nqn = "nqn.2026-01.io.sidewire:default",
                               .settings = {.pool_bytes = (size_t)16 << 20,
                                            .in_capsule_bytes = 4096,
                                            .spin_us = 100,
                                            .queues_max = NVR_QUEUES_MAX}};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    if (!args.listen_count)
        args.listen[args.listen_count++] = "0.0.0.0";
    int rc = nvr_server_open(&server, &args.settings);
    if (rc) {
        fprintf(stderr, "sidewire nvme target: cannot begin: %s\n", strerror(-rc));
        return NV_STATUS_FAILED;
    }
    catch_signals();
    server.target.refused = say_refused;
    rc = add_namespaces(&server, &args) || listen_all(&server, &args);
    if (!rc) {
        puts("ready          end it by SIGTERM or Ctrl-C");
        fflush(stdout);
        nvr_server_run(&server);
    }
    nvr_server_close(&server);
    return rc ? NV_STATUS_FAILED : NV_STATUS_OK;
}
