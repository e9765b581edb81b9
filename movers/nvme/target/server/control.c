/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/server/member.h"
#include "nvme/target/server/status.h"

/* A request, while it is carried out. */
struct command {
    const struct nvr_control *control;
    const json_t *request;
    struct mover_order *order;
    struct nvt_config_editor editor;
    char nqn[NVF_NQN_MAX + 1];
};

/* Calls `edit` for each text of a list of the request. */
static int each_entry(struct command *command, const char *key,
                      int (*edit)(struct command *command, const char *text))
{
    const json_t *list = json_object_get(command->request, key);
    int status = 0;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        status = text ? edit(command, text) : -EINVAL;
    }
    return status;
}

static int add_namespace(struct command *command, const char *text)
{
    uint32_t nsid;
    return nvt_config_add_namespace(&command->editor, command->nqn, text, &nsid);
}

static int remove_namespace(struct command *command, const char *text)
{
    char *end;
    const unsigned long nsid = strtoul(text, &end, 10);
    if (end == text || *end || !nsid || nsid > UINT32_MAX) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "'%.64s' is no number of a namespace; 'sidewire nvme target status' lists them",
                 text);
        return -EINVAL;
    }
    return nvt_config_remove_namespace(&command->editor, command->nqn, (uint32_t)nsid);
}

static int add_host(struct command *command, const char *text)
{
    return nvt_config_add_host(&command->editor, command->nqn, text);
}

static int remove_host(struct command *command, const char *text)
{
    return nvt_config_remove_host(&command->editor, command->nqn, text);
}

static int control_add_port(struct command *command, const char *text)
{
    return nvt_config_add_port(&command->editor, text, command->control->in_capsule_bytes);
}

static int control_remove_port(struct command *command, const char *text)
{
    return nvt_config_remove_port(&command->editor, text);
}

/* {"host": NQN, "secret": "DHHC-1:...", "of_controller": true or false} each. */
static int add_secrets(struct command *command)
{
    size_t i;
    const json_t *one;
    int status = 0;
    json_array_foreach(json_object_get(command->request, "secrets"), i, one)
    {
        const char *host = json_string_value(json_object_get(one, "host"));
        const char *secret = json_string_value(json_object_get(one, "secret"));
        if (!status)
            status = host && secret
                         ? nvt_config_admit(&command->editor, command->nqn, host, secret,
                                            json_is_true(json_object_get(one, "of_controller")))
                         : -EINVAL;
    }
    return status;
}

/* Which subsystem is meant: the one that is named, or the only one. */
static int choose_subsystem(struct command *command)
{
    const struct nvt_config *config = command->editor.config;
    const char *nqn = json_string_value(json_object_get(command->request, "subsysnqn"));
    if (!nqn && config->subsystem_count != 1) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "there are %zu subsystems; say which by --subsysnqn", config->subsystem_count);
        return -EINVAL;
    }
    if (nqn && strlen(nqn) > NVF_NQN_MAX) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "an NQN has at most %d characters, and '%.32s...' has %zu", NVF_NQN_MAX, nqn,
                 strlen(nqn));
        return -EINVAL;
    }
    snprintf(command->nqn, sizeof(command->nqn), "%s", nqn ? nqn : config->subsystems[0].nqn.text);
    return 0;
}

static size_t list_size(const struct command *command, const char *key)
{
    return json_array_size(json_object_get(command->request, key));
}

static int edit_to_add(struct command *command)
{
    const bool is_of_subsystem = json_object_get(command->request, "subsysnqn") ||
                                 list_size(command, "namespaces") || list_size(command, "hosts") ||
                                 list_size(command, "secrets");
    int status = is_of_subsystem ? choose_subsystem(command) : 0;
    if (!status && is_of_subsystem &&
        !nvt_config_find_subsystem(command->editor.config, command->nqn))
        status = nvt_config_add_subsystem(&command->editor, command->nqn);
    if (!status)
        status = each_entry(command, "namespaces", add_namespace);
    if (!status)
        status = each_entry(command, "hosts", add_host);
    if (!status)
        status = add_secrets(command);
    return status ? status : each_entry(command, "listen", control_add_port);
}

static int edit_to_remove(struct command *command)
{
    const bool has_lists = list_size(command, "namespaces") || list_size(command, "hosts"),
               has_ports = list_size(command, "listen");
    int status = has_lists || !has_ports ? choose_subsystem(command) : 0;
    if (!status && !has_lists && !has_ports) /* the subsystem itself, which must be named */
        status = json_object_get(command->request, "subsysnqn")
                     ? nvt_config_remove_subsystem(&command->editor, command->nqn)
                     : -EINVAL;
    if (!status)
        status = each_entry(command, "namespaces", remove_namespace);
    if (!status)
        status = each_entry(command, "hosts", remove_host);
    return status ? status : each_entry(command, "listen", control_remove_port);
}

static void say_to_client(void *context, bool is_bad, const char *line)
{
    (void)is_bad;
    mover_order_say(context, line);
}

/* All of it, or nothing: what cannot be served is taken back. */
static bool apply_config(struct command *command, struct nvt_config *wanted)
{
    struct nvr_serving *serving = command->control->serving;
    const struct nvr_serving before = *serving;
    struct nvt_config *old = nvt_config_copy(serving->config);
    if (!old) {
        nvt_config_free(wanted);
        mover_order_say(command->order, "no memory");
        return false;
    }
    serving->say = say_to_client;
    serving->context = command->order;
    const bool is_good = !nvr_serving_apply(serving, wanted);
    serving->say = before.say;
    serving->context = before.context;
    if (is_good)
        nvt_config_free(old);
    else
        nvr_serving_apply(serving, old);
    return is_good;
}

/* All members serve the same; who may come is each one's own matter. */
static bool control_is_of_group(const struct command *command)
{
    return command->control->serving->member &&
           (list_size(command, "namespaces") || list_size(command, "listen") ||
            !(list_size(command, "hosts") || list_size(command, "secrets")));
}

static bool change_config(struct mover_order *order, int (*edit)(struct command *command))
{
    char error[1024] = "it cannot be read";
    struct command command = {.control = order->context, .request = order->request, .order = order};
    if (control_is_of_group(&command)) {
        mover_order_say(order, "a member of a group serves what the group has, where it was "
                               "started to: only --allow and secrets may change. 'move' gives a "
                               "namespace to another member; to add one, end all members, and "
                               "start them with it");
        return false;
    }
    command.editor =
        (struct nvt_config_editor){.config = nvt_config_copy(command.control->serving->config),
                                   .machine_id = command.control->machine_id,
                                   .error = error,
                                   .error_bytes = sizeof(error)};
    if (command.editor.config && !edit(&command))
        return apply_config(&command, command.editor.config);
    mover_order_say(order, command.editor.config ? error : "no memory");
    nvt_config_free(command.editor.config);
    return false;
}

static bool carry_out_add(struct mover_order *order)
{
    return change_config(order, edit_to_add);
}

static bool carry_out_remove(struct mover_order *order)
{
    return change_config(order, edit_to_remove);
}

/* What `hostnqn` and `hostid` name. False: nothing. */
static bool control_take_host(const json_t *request, struct nvg_host *host)
{
    const char *nqn = json_string_value(json_object_get(request, "hostnqn"));
    const char *id = json_string_value(json_object_get(request, "hostid"));
    *host = (struct nvg_host){0};
    if (!nqn || strlen(nqn) >= sizeof(host->nqn) || !id || nvt_uuid_parse(id, host->id.bytes))
        return false;
    memcpy(host->nqn, nqn, strlen(nqn));
    return true;
}

static bool carry_out_move(struct mover_order *order)
{
    char said[512] = "say which by --namespace or --host, and by --to the member";
    const struct nvr_control *control = order->context;
    struct nvr_member *member = control->serving->member;
    struct nvg_host host;
    struct nvg_moved moved = {0};
    const json_int_t nsid = json_integer_value(json_object_get(order->request, "nsid"));
    const char *to = json_string_value(json_object_get(order->request, "member"));
    if (!member) {
        mover_order_say(order, "this target is in no group: nothing moves");
        return false;
    }
    if (control_take_host(order->request, &host))
        moved.host = &host;
    else if (nsid > 0 && nsid <= UINT32_MAX)
        moved.nsid = (uint32_t)nsid;
    const bool is_fine = to && (moved.host || moved.nsid) &&
                         !nvr_member_move(member, &moved, to, said, sizeof(said));
    mover_order_say(order, said);
    return is_fine;
}

static bool carry_out_clear(struct mover_order *order)
{
    char said[256] = "say which by --namespace";
    const struct nvr_control *control = order->context;
    struct nvr_member *member = control->serving->member;
    const json_int_t nsid = json_integer_value(json_object_get(order->request, "nsid"));
    if (!member) {
        mover_order_say(order, "this target is in no group: remove the namespace, and add it "
                               "again, which forgets what its disk has failed");
        return false;
    }
    const bool is_fine = nsid > 0 && nsid <= UINT32_MAX &&
                         !nvr_member_clear(member, (uint32_t)nsid, said, sizeof(said));
    mover_order_say(order, said);
    return is_fine;
}

static json_t *control_status(void *context)
{
    const struct nvr_control *control = context;
    return nvr_status(control->serving);
}

static void control_stop(void *context)
{
    const struct nvr_control *control = context;
    control->stop(control->stop_context);
}

int nvr_control_open(struct nvr_control *control, const char *path, char *error, size_t error_bytes)
{
    static const struct mover_control_command commands[] = {{"add", carry_out_add},
                                                            {"remove", carry_out_remove},
                                                            {"move", carry_out_move},
                                                            {"clear", carry_out_clear},
                                                            {0}};
    const struct mover_control_setup setup = {.mover = "nvme",
                                              .path = path,
                                              .context = control,
                                              .status = control_status,
                                              .metrics = nvr_metrics,
                                              .metrics_port = NVR_METRICS_PORT,
                                              .stop = control_stop,
                                              .commands = commands};
    struct mover_loop *loop = &control->serving->server->threads[0].loop;
    return mover_control_open(&control->base, loop, &setup, error, error_bytes);
}
