/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/serving.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/backend/probe.h"
#include "nvme/target/model/auth.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"
#include "nvme/target/server/memory_left.h"

/* One configuration on its way to be served. */
struct step {
    struct nvr_serving *serving;
    struct nvt_config *config;
    int failures;
};

enum { LINE_BYTES = 1024 };

static void tell_user(const struct nvr_serving *serving, bool is_bad, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell_user(const struct nvr_serving *serving, bool is_bad, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (serving->held && !is_bad)
        fprintf(serving->held, "%s\n", line);
    else
        serving->say(serving->context, is_bad, line);
}

/* ---- ports ---- */

static void serving_add_port(struct step *step, const struct nvt_config_port *config)
{
    char error[LINE_BYTES / 2];
    struct nvr_serving *serving = step->serving;
    struct nvt_config_port *mine = nvt_config_find_port(step->config, config->portid);
    mine->is_failed = nvr_server_listen(serving->server, config, error, sizeof(error));
    step->failures += mine->is_failed;
    if (mine->is_failed)
        tell_user(serving, true, "%s", error);
    else
        tell_user(serving, false, "listening      %s port %u", config->listen.traddr,
                  config->listen.port);
}

static void serving_remove_port(struct step *step, const struct nvt_config_port *config)
{
    if (config->is_failed)
        return;
    nvr_server_unlisten(step->serving->server, config->portid);
    tell_user(step->serving, false, "not listening  %s port %u", config->listen.traddr,
              config->listen.port);
}

static void change_port(struct step *step, const struct nvt_config_change *change)
{
    if (change->what == NVT_REMOVED)
        return serving_remove_port(step, change->old_port);
    if (change->what == NVT_CHANGED && !(change->aspects & NVT_LISTEN_DIFFERS)) {
        struct nvt_port *port = nvr_server_port(step->serving->server, change->new_port->portid);
        if (nvt_port_update(port, change->new_port)) {
            tell_user(step->serving, true, "port %u: no memory", change->new_port->portid);
            step->failures++;
        }
        return;
    }
    if (change->what == NVT_CHANGED)
        serving_remove_port(step, change->old_port);
    serving_add_port(step, change->new_port);
}

/* ---- subsystems ---- */

static void change_subsystem(struct step *step, const struct nvt_config_change *change)
{
    struct nvt_target *target = &step->serving->server->target;
    const char *nqn =
        (change->new_subsystem ? change->new_subsystem : change->old_subsystem)->nqn.text;
    struct nvt_subsystem *subsystem = nvt_subsystem_find(target, nqn);
    bool is_good = true;
    if (change->what == NVT_REMOVED && subsystem)
        nvt_subsystem_remove(subsystem);
    else if (change->what != NVT_REMOVED && subsystem)
        is_good = !nvt_subsystem_update(subsystem, change->new_subsystem);
    else if (change->what != NVT_REMOVED)
        is_good = nvt_subsystem_add(target, change->new_subsystem);
    if (!is_good) {
        tell_user(step->serving, true, "subsystem %s: no memory", nqn);
        step->failures++;
    } else if (change->what != NVT_CHANGED) {
        tell_user(step->serving, false, "%s %s",
                  change->what == NVT_ADDED ? "subsystem     " : "removed        subsystem", nqn);
    }
}

/* ---- namespaces ---- */

/* Before hosts are served there is nobody who would wait for the disk. */
static int probe_disk(const struct step *step, const struct nvt_backend_spec *spec, char *error,
                      size_t error_bytes)
{
    const bool is_mapped = spec->kind == NVT_BACKEND_NVRAM;
    if (!step->serving->server->is_running || !*spec->path || spec->kind == NVT_BACKEND_RBD)
        return 0;
    const int rc = nvt_probe(spec->path, is_mapped, is_mapped && !spec->read_only, NVT_PROBE_MS);
    if (rc == -ETIMEDOUT)
        snprintf(error, error_bytes,
                 "%.200s: its disk has not answered within %d s: it hangs, or has much to write; "
                 "add it once 'sync %.100s' has ended",
                 spec->path, NVT_PROBE_MS / 1000, spec->path);
    else if (rc)
        snprintf(error, error_bytes, "%.200s: its disk fails: %s", spec->path, strerror(-rc));
    return rc;
}

static int open_backend(const struct step *step, const struct nvt_config_namespace *config,
                        struct nvt_backend **out, char *error, size_t error_bytes)
{
    if (step->serving->member)
        return nvr_member_open(step->serving->member, config->nsid, out, error, error_bytes);
    struct nvt_backend_spec *spec = malloc(sizeof(*spec)); /* has a path in it */
    if (!spec) {
        snprintf(error, error_bytes, "no memory");
        return -ENOMEM;
    }
    int rc = nvt_backend_spec_parse(config->backend, spec, error, error_bytes);
    if (!rc)
        rc = probe_disk(step, spec, error, error_bytes);
    if (step->serving->server->is_running)
        spec->wait_ms = NVT_PROBE_MS;
    if (!rc)
        rc = nvt_backend_open(spec, &step->serving->server->threads[0].uring, out, error,
                              error_bytes);
    free(spec);
    return rc;
}

/* It goes on, since what was to take its place cannot be served. */
static void keep_namespace(struct step *step, struct nvt_namespace *ns)
{
    if (nvt_claim_stay(ns->backend->claim))
        return;
    tell_user(step->serving, true, "removed        namespace %u: another one has %s now", ns->nsid,
              ns->opened);
    nvt_namespace_remove(ns);
}

/* It is taken as hosts write, and the kernel ends a process that takes more than there is. */
static void warn_of_memory(const struct step *step, const struct nvt_namespace *ns)
{
    const uint64_t left = nvt_memory_left();
    if (ns->backend->ops != &nvt_ram || ns->blocks << ns->block_shift <= left)
        return;
    tell_user(step->serving, true,
              "namespace %u: larger than the %llu MiB of memory that are left here. A host that "
              "writes all of it ends the target: make it smaller, or serve a file",
              ns->nsid, (unsigned long long)(left >> 20));
}

/* The old one serves until the new one can. */
static void serve_namespace(struct step *step, struct nvt_subsystem *subsystem,
                            const struct nvt_config_namespace *config)
{
    char error[LINE_BYTES / 2];
    struct nvt_backend *backend;
    struct nvt_namespace *old = subsystem->namespaces[config->nsid], *ns;
    struct nvt_config_subsystem *mine = nvt_config_find_subsystem(step->config, subsystem->nqn);
    struct nvt_config_namespace *entry = nvt_config_find_namespace(mine, config->nsid);
    int rc = open_backend(step, config, &backend, error, sizeof(error));
    if (!rc) {
        if (old)
            nvt_namespace_remove(old);
        rc = nvt_namespace_add(subsystem, config, backend, &ns);
        if (!rc && step->serving->member)
            rc = nvr_member_add(step->serving->member, ns);
        snprintf(error, sizeof(error), "%s", strerror(-rc));
    }
    entry->is_failed = rc != 0;
    step->failures += entry->is_failed;
    if (rc)
        tell_user(step->serving, true, "namespace %u: %s", config->nsid, error);
    if (rc && subsystem->namespaces[config->nsid])
        keep_namespace(step, old);
    if (!rc)
        tell_user(step->serving, false, "namespace %-4u %-40s %llu blocks of %u bytes",
                  config->nsid, config->backend, (unsigned long long)ns->blocks,
                  1u << ns->block_shift);
    if (!rc)
        warn_of_memory(step, ns);
}

static void change_namespace(struct step *step, const struct nvt_config_change *change)
{
    const struct nvt_config_subsystem *of =
        change->new_subsystem ? change->new_subsystem : change->old_subsystem;
    const struct nvt_config_namespace *config = change->new_namespace;
    const uint32_t nsid = (config ? config : change->old_namespace)->nsid;
    struct nvt_subsystem *subsystem =
        nvt_subsystem_find(&step->serving->server->target, of->nqn.text);
    if (!subsystem || nsid > NVT_NSID_MAX) {
        if (config && config->enable) {
            tell_user(step->serving, true, "namespace %u: %d is the highest number", nsid,
                      NVT_NSID_MAX);
            step->failures++;
        }
        return;
    }
    struct nvt_namespace *ns = subsystem->namespaces[nsid];
    if (!config || !config->enable) {
        if (ns) {
            nvt_namespace_remove(ns);
            tell_user(step->serving, false, "removed        namespace %u", nsid);
        }
    } else if (ns && change->aspects == NVT_ANA_DIFFERS) {
        nvt_namespace_set_group(ns, config->ana_grpid);
    } else {
        serve_namespace(step, subsystem, config);
    }
}

/* Its file may be taken by others: namespaces change places, too. */
static int let_go(void *context, const struct nvt_config_change *change)
{
    const struct step *step = context;
    const struct nvt_config_namespace *old = change->old_namespace, *new = change->new_namespace;
    if (change->of != NVT_OF_NAMESPACE || !old || old->nsid > NVT_NSID_MAX)
        return 0;
    const struct nvt_subsystem *subsystem =
        nvt_subsystem_find(&step->serving->server->target, change->old_subsystem->nqn.text);
    const struct nvt_namespace *ns = subsystem ? subsystem->namespaces[old->nsid] : NULL;
    if (ns && (!new || !new->enable || change->aspects != NVT_ANA_DIFFERS))
        nvt_claim_leave(ns->backend->claim);
    return 0;
}

/* A target that lacks a part of what it was started with ends: nobody shall hear it listen. */
static bool will_not_begin(const struct step *step)
{
    return step->failures && !step->serving->server->is_running;
}

static int make_change(void *context, const struct nvt_config_change *change)
{
    switch (change->of) {
    case NVT_OF_HOST: /* its secrets: set_secrets() */
        break;
    case NVT_OF_SUBSYSTEM:
        change_subsystem(context, change);
        break;
    case NVT_OF_NAMESPACE:
        change_namespace(context, change);
        break;
    case NVT_OF_PORT:
        if (!will_not_begin(context))
            change_port(context, change);
        break;
    }
    return 0;
}

/* ---- secrets ---- */

/* Nobody gets in by a secret that cannot be asked for. */
static void shut_subsystem(struct step *step, struct nvt_subsystem *subsystem,
                           const struct nvt_config_subsystem *config, const char *wrong)
{
    struct nvt_config_subsystem none = *config;
    none.allow_any_host = false;
    none.host_count = 0;
    tell_user(step->serving, true, "%s takes no host: %s", config->nqn.text, wrong);
    step->failures++;
    nvt_subsystem_update(subsystem, &none);
}

static const char *serving_set_secret(struct nvt_subsystem *subsystem,
                                      const struct nvt_config_host *host)
{
    struct nvt_auth_policy policy;
    if (!host || !*host->dhchap_key) {
        nvt_subsystem_authenticate(subsystem, host ? host->nqn.text : "", NULL);
        return NULL;
    }
    const char *wrong = nvt_auth_policy_parse(host->dhchap_key, host->dhchap_ctrl_key,
                                              host->dhchap_hash, host->dhchap_dhgroup, &policy);
    if (!wrong && nvt_subsystem_authenticate(subsystem, host->nqn.text, &policy))
        wrong = "a host is missing";
    explicit_bzero(&policy, sizeof(policy));
    return wrong;
}

/* Sets the secrets of all hosts in all lists: the lists were made anew, or the secrets have
 * changed. */
static void set_secrets(struct step *step)
{
    for (size_t i = 0; i < step->config->subsystem_count; i++) {
        const struct nvt_config_subsystem *config = &step->config->subsystems[i];
        struct nvt_subsystem *subsystem =
            nvt_subsystem_find(&step->serving->server->target, config->nqn.text);
        const char *wrong = NULL;
        for (size_t j = 0; subsystem && j < config->host_count && !wrong; j++)
            wrong = serving_set_secret(subsystem,
                                       nvt_config_find_host(step->config, config->hosts[j].text));
        if (wrong)
            shut_subsystem(step, subsystem, config, wrong);
    }
}

/* ---- all of it ---- */

int nvr_serving_open(struct nvr_serving *serving, struct nvr_server *server)
{
    serving->server = server;
    serving->config = calloc(1, sizeof(*serving->config));
    return serving->config ? 0 : -ENOMEM;
}

void nvr_serving_close(struct nvr_serving *serving)
{
    nvt_config_free(serving->config);
    serving->config = NULL;
}

/* A target that cannot begin says why, and nothing of what it might have served. */
static void tell_held(struct nvr_serving *serving, char *text, bool is_good)
{
    char *rest = text;
    for (const char *line; is_good && rest && (line = strsep(&rest, "\n")) && *line;)
        serving->say(serving->context, false, line);
    free(text);
}

int nvr_serving_apply(struct nvr_serving *serving, struct nvt_config *config)
{
    struct step step = {.serving = serving, .config = config};
    char *text = NULL;
    size_t bytes;
    serving->held = serving->server->is_running ? NULL : open_memstream(&text, &bytes);
    nvt_target_refresh(&serving->server->target, true);
    nvt_config_diff(serving->config, config, let_go, &step);
    nvt_config_diff(serving->config, config, make_change, &step);
    set_secrets(&step);
    nvt_config_free(serving->config);
    serving->config = config;
    if (serving->held)
        fclose(serving->held);
    serving->held = NULL;
    tell_held(serving, text, !step.failures);
    return step.failures;
}
