/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target`: serves until it is told to end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/background.h"
#include "common/command/operator.h"
#include "common/command/option.h"
#include "common/serve/log.h"
#include "common/serve/signals.h"
#include "common/text/size.h"
#include "nvme/command/command.h"
#include "nvme/command/secret.h"
#include "nvme/command/target_group.h"
#include "nvme/target/config/identity.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/server/control.h"
#include "nvme/target/server/member.h"

#define DEFAULT_NQN "nqn.2026-01.io.sidewire:default"

struct target_args {
    struct nv_words listen, namespaces, hosts;
    const char *nqn, *config;
    uint32_t in_capsule_bytes;
    struct mover_operator wish;
    struct nv_secrets secrets;
    struct nv_group_args group;
    struct nvr_settings settings;
};

static void take_word(struct argp_state *state, void *place, char *text)
{
    struct nv_words *words = place;
    if (words->count == NV_WORDS_MAX)
        argp_error(state, "too many options: '%s'", text);
    words->words[words->count++] = text;
}

static void target_take_listen(struct argp_state *state, void *place, char *text)
{
    const struct nv_words *words = place;
    if (words->count == NVT_PORTS_MAX)
        argp_error(state, "too many options: '%s'", text);
    take_word(state, place, text);
}

static uint32_t option_number(struct argp_state *state, const char *option, const char *text,
                              uint32_t low, uint32_t high)
{
    uint64_t value = 0;
    if (!mover_parse_size(text, &value) || value < low || value > high)
        argp_error(state, "--%s is %u to %u, not '%s'", option, low, high, text);
    return (uint32_t)value;
}

static void take_in_capsule(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place =
        option_number(state, "in-capsule", text, 0, NVF_IN_CAPSULE_MAX) / 512 * 512;
}

static void take_pool(struct argp_state *state, void *place, char *text)
{
    *(size_t *)place = (size_t)option_number(state, "pool", text, 1, 65536) << 20;
}

static void take_srq(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = option_number(state, "srq", text, 32, 32768);
}

static void take_threads(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = option_number(state, "threads", text, 1, NVT_THREADS_MAX);
}

static void take_spin(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = option_number(state, "spin", text, 0, 1000000000);
}

/* Without the option. */
static uint32_t threads_wanted(struct argp_state *state)
{
    const char *text = getenv("SIDEWIRE_NVME_THREADS");
    return text && *text
               ? option_number(state, "threads ($SIDEWIRE_NVME_THREADS)", text, 1, NVT_THREADS_MAX)
               : 1;
}

static void check_target(struct argp_state *state, void *arguments)
{
    struct target_args *args = arguments;
    if (args->config && (args->namespaces.count || args->listen.count || args->hosts.count ||
                         args->nqn || args->secrets.of_hosts.count || args->secrets.of_ctrl.count))
        argp_error(state, "--config says it all: leave --listen, --namespace, --subsysnqn, "
                          "--allow and the secrets away");
    if (!args->config && !args->namespaces.count)
        argp_error(state, "nothing to serve: say e.g. --namespace ram:64M");
    if (args->config && nv_group_is_wanted(&args->group))
        argp_error(state, "a member of a group serves what --namespace says: leave --config away");
    nv_group_check(state, &args->group);
    if (!args->settings.threads)
        args->settings.threads = threads_wanted(state);
}

#define TARGET(member) offsetof(struct target_args, member)

static const struct mover_option options[] = {
    {"config", 0, "FILE", 0,
     "Serve what this file says, in the JSON of 'nvmetcli save'; SIGHUP reads it again", 0,
     MOVER_TO(struct target_args, config)},
    {"listen", 'l', "ADDR[:PORT]", 0,
     "Address to listen at (all), port 4420 by default; may be repeated", 0, target_take_listen,
     TARGET(listen)},
    {"namespace", 'n', "BACKEND", 0,
     "Serve ram:SIZE, null:SIZE, file:PATH, block:PATH, nvme:PATH, nvram:PATH, "
     "rbd:POOL/IMAGE or tier:PATH,log=PATH; may be repeated",
     0, take_word, TARGET(namespaces)},
    {"subsysnqn", 'N', "NQN", 0, "The subsystem's name", 0, MOVER_TO(struct target_args, nqn)},
    {"allow", 'A', "HOSTNQN", 0, "Only these hosts; may be repeated (any)", 0, take_word,
     TARGET(hosts)},
    {"dhchap-secret", 0, "HOSTNQN=SECRET", 0,
     "This host, if it proves that it knows the secret, which is DHHC-1:... or @FILE; may be "
     "repeated",
     0, take_word, TARGET(secrets.of_hosts)},
    {"dhchap-ctrl-secret", 0, "HOSTNQN=SECRET", 0,
     "What this target proves to that host, if the host asks for it", 0, take_word,
     TARGET(secrets.of_ctrl)},
    {"in-capsule", 0, "BYTES", 0, "Data that comes with its command, 0 to 16384 (4096)", 0,
     take_in_capsule, TARGET(in_capsule_bytes)},
    {"pool", 0, "MIB", 0, "Memory for data on its way (16)", 0, take_pool,
     TARGET(settings.pool_bytes)},
    {"srq", 0, "RECEIVES", 0,
     "All I/O queues share so many receives, 32 to 32768 (each queue has its own)", 0, take_srq,
     TARGET(settings.shared_receives)},
    {"spin", 0, "US", 0, "How long an idle target polls before it sleeps (100)", 0, take_spin,
     TARGET(settings.spin_us)},
    {"threads", 0, "N", 0,
     "I/O queues are spread over so many threads, 1 to 16 ($SIDEWIRE_NVME_THREADS, or 1)", 0,
     take_threads, TARGET(settings.threads)},
    {"group", 0, "ADDR[:PORT][/REGION]", 0,
     "Serve with the other targets of a group: a pmem server that has a copy of its log; 1 to 5 "
     "times, always in the same order",
     0, nv_group_take_copy, TARGET(group)},
    {"member", 0, "NAME", 0, "What this target is called in its group", 0,
     MOVER_TO(struct target_args, group.member)},
    {"active", 0, "MEMBERS", 0,
     "How many members of the group serve a namespace at a time: one (the default), or all, each "
     "its own hosts (file: alone, without reservations)",
     0, nv_group_take_active, TARGET(group)},
    {"group-listen", 0, "ADDR:PORT", 0,
     "Where the other members find this one (the first --listen, the next port)", 0,
     MOVER_TO(struct target_args, group.listen)},
    {"group-timeout", 0, "S", 0, "After how long a silent member is replaced (5)", 0,
     nv_group_take_timeout, TARGET(group)},
    MOVER_OPTIONS_OPERATOR(TARGET(wish), NVR_METRICS_PORT),
    {0},
};

static const struct mover_usage usage = {
    .about =
        "Serves namespaces to NVMe over RDMA hosts.\v"
        "While it serves, 'sidewire nvme target add', 'remove', 'status', 'metrics' and 'stop' "
        "change and show what it does.\n\n"
        "Examples:\n"
        "  sidewire nvme target --listen 192.0.2.1 --namespace file:/srv/disk.img\n"
        "  sidewire nvme target --config /etc/nvmet/config.json\n"
        "  nvme connect -t rdma -a 192.0.2.1 -s 4420 -n " DEFAULT_NQN "\n",
    .own = {.rows = options, .check = check_target}};

/* ---- what it is to serve ---- */

static void say_line(void *context, bool is_bad, const char *line)
{
    (void)context;
    if (is_bad)
        mover_fail("%s", line);
    else
        puts(line);
    fflush(stdout);
}

static void say_listener(bool is_bad, const char *line)
{
    say_line(NULL, is_bad, line);
}

static void target_warn_of(void *context, const char *text)
{
    say_line(context, true, text);
}

static char machine_id[NVT_MACHINE_ID_BYTES];

static struct nvt_config *read_file(const char *path)
{
    char error[1024];
    const struct nvt_config_source source = {
        .name = path, .machine_id = machine_id, .warn = target_warn_of};
    struct nvt_config *config;
    if (!nvt_config_read(&source, &config, error, sizeof(error)))
        return config;
    say_line(NULL, true, error);
    return NULL;
}

static int edit_config(const struct nvt_config_editor *editor, const struct target_args *args)
{
    const char *nqn = args->nqn ? args->nqn : DEFAULT_NQN;
    uint32_t nsid;
    int rc = nvt_config_add_subsystem(editor, nqn);
    for (int i = 0; i < args->hosts.count && !rc; i++)
        rc = nvt_config_add_host(editor, nqn, args->hosts.words[i]);
    if (!rc)
        rc = nv_secrets_add(&args->secrets, editor, nqn);
    for (int i = 0; i < args->namespaces.count && !rc; i++)
        rc = nvt_config_add_namespace(editor, nqn, args->namespaces.words[i], &nsid);
    if (!args->listen.count && !rc)
        rc = nvt_config_add_port(editor, "0.0.0.0", args->in_capsule_bytes);
    for (int i = 0; i < args->listen.count && !rc; i++)
        rc = nvt_config_add_port(editor, args->listen.words[i], args->in_capsule_bytes);
    return rc;
}

static struct nvt_config *read_arguments(const struct target_args *args)
{
    char error[1024] = "no memory";
    struct nvt_config *config = calloc(1, sizeof(*config));
    const struct nvt_config_editor editor = {config, machine_id, error, sizeof(error)};
    if (config && !edit_config(&editor, args))
        return config;
    say_line(NULL, true, error);
    nvt_config_free(config);
    return NULL;
}

/* ---- serving ---- */

struct program {
    struct target_args *args;
    struct nvr_server server;
    struct nvr_serving serving;
    struct nvr_control control;
    struct nvr_member member;
    struct mover_exporter exporter;
    struct mover_signals signals;
};

static void say_refused(const struct nvt_queue *queue, const char *why)
{
    mover_log(MOVER_LOG_WARNING, "queue %u of %s at %s is refused: %s", queue->qid,
              queue->ctrl->host_nqn, queue->host_address, why);
}

/* Hosts may cause it as often as they like. */
static void say_ended(const struct nvt_queue *queue, const char *why)
{
    static struct mover_told told;
    mover_log_told(&told, MOVER_LOG_WARNING, "queue %u of %s at %s is ended: %s", queue->qid,
                   queue->ctrl->host_nqn, queue->host_address, why);
}

static void reload_config(void *context)
{
    struct program *program = context;
    if (!program->args->config)
        return say_line(NULL, true, "SIGHUP: there is no --config to read again");
    struct nvt_config *config = read_file(program->args->config);
    if (!config)
        return say_line(NULL, true, "the configuration stays as it was");
    const int failures = nvr_serving_apply(&program->serving, config);
    say_line(NULL, false,
             failures ? "configuration  read again, but for what is said above"
                      : "configuration  read again");
}

static void stop_program(void *context)
{
    struct program *program = context;
    if (program->member.group)
        nvr_member_leave(&program->member);
    else
        nvr_server_stop(&program->server);
}

/* Before anything is served: what hosts see of the subsystem is the group's. */
static int target_join_group(struct program *program, struct nvt_config *config)
{
    char error[1024] = "";
    struct nvg_settings settings;
    if (!nv_group_is_wanted(&program->args->group))
        return 0;
    int rc = nv_group_settings(&program->args->group, config, &settings, error, sizeof(error));
    if (!rc)
        rc = nvr_member_join(&program->member, &program->serving, &settings, config, error,
                             sizeof(error));
    if (rc)
        mover_fail("%s", *error ? error : strerror(-rc));
    else
        printf("member         %s of the group\n", settings.member);
    return rc;
}

/* Returns the status of the process. */
static int serve_config(struct program *program, struct nvt_config *config)
{
    char error[1024] = "";
    struct mover_loop *loop = &program->server.threads[0].loop;
    program->signals =
        (struct mover_signals){.stop = stop_program, .reload = reload_config, .context = program};
    program->control = (struct nvr_control){.serving = &program->serving,
                                            .machine_id = machine_id,
                                            .stop = stop_program,
                                            .stop_context = program,
                                            .in_capsule_bytes = program->args->in_capsule_bytes};
    if (mover_signals_open(&program->signals, loop, error, sizeof(error)) ||
        nvr_serving_apply(&program->serving, config) ||
        (program->member.group && nvr_member_begin(&program->member)) ||
        nvr_control_open(&program->control, program->args->wish.control_path, error,
                         sizeof(error)) ||
        mover_operator_export(&program->args->wish, &program->exporter, loop,
                              &program->control.base.setup)) {
        if (*error)
            say_line(NULL, true, error);
        return MOVER_FAILED;
    }
    char line[64];
    snprintf(line, sizeof(line), "ready          end it by %s", mover_background_end());
    say_line(NULL, false, line);
    mover_background_ready();
    const int rc = nvr_server_run(&program->server);
    if (rc)
        mover_fail("cannot start %u threads: %s", program->args->settings.threads, strerror(-rc));
    mover_exporter_close(&program->exporter);
    mover_control_close(&program->control.base);
    return rc || program->member.is_failed ? MOVER_FAILED : MOVER_DONE;
}

int nv_target_main(int argc, char **argv)
{
    static struct program program;
    struct target_args args = {
        .in_capsule_bytes = NVT_IN_CAPSULE_DEFAULT,
        .settings = {.pool_bytes = (size_t)16 << 20, .spin_us = 100, .queues_max = NVR_QUEUES_MAX}};
    if (argc > 1 && nv_is_target_control(argv[1]))
        return nv_target_control(argc - 1, argv + 1);
    mover_parse(&usage, argc, argv, &args);
    if (mover_background_begin(args.wish.is_background))
        return MOVER_FAILED;
    program.args = &args;
    nvt_machine_id(machine_id);
    struct nvt_config *config = args.config ? read_file(args.config) : read_arguments(&args);
    if (!config)
        return MOVER_FAILED;
    program.serving.say = say_line;
    int rc = nvr_server_open(&program.server, &args.settings);
    program.server.target.refused = say_refused;
    program.server.target.ended = say_ended;
    program.server.say_listener = say_listener;
    if (!rc)
        rc = nvr_serving_open(&program.serving, &program.server);
    if (rc) {
        mover_fail("cannot begin: %s", strerror(-rc));
        return MOVER_FAILED;
    }
    rc = target_join_group(&program, config);
    if (rc) {
        nvt_config_free(config);
        rc = MOVER_FAILED;
    } else {
        rc = serve_config(&program, config);
    }
    nvr_member_close(&program.member);
    const bool is_closed = nvr_server_close(&program.server);
    nvr_serving_close(&program.serving);
    if (is_closed)
        return rc;
    mover_fail("a disk does not answer: what was under way there is left");
    fflush(NULL);
    _exit(rc ? rc : MOVER_FAILED); /* threads of libraries still use what exit() would free */
}
