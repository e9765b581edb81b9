/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of a connection, and the connection itself. */
#include "common/text/number.h"
#include "nvme/command/host_commands.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    KEY_FAST_IO_FAIL = 0x1000,
    KEY_TIMEOUT,
    KEY_NO_CAPSULE,
};

static const struct argp_option options[] = {
    {"transport", 't', "rdma", 0, "Transport type: rdma is the only one", 1},
    {"traddr", 'a', "ADDR", 0, "Address of the target", 1},
    {"trsvcid", 's', "PORT", 0, "Port of the target (4420)", 1},
    {"nqn", 'n', "NQN", 0, "Name of the subsystem", 1},
    {"host-traddr", 'w', "ADDR", 0, "Own address to connect from", 1},
    {"hostnqn", 'q', "NQN", 0, "Own name (that of /etc/nvme/hostnqn, else of the machine)", 1},
    {"dhchap-secret", 'S', "SECRET", 0, "Own secret, DHHC-1:... or @FILE, for authentication", 1},
    {"dhchap-ctrl-secret", 'C', "SECRET", 0, "What the target has to prove that it knows", 1},
    {"hostid", 'I', "UUID", 0, "Own ID (that of /etc/nvme/hostid)", 1},
    {"nr-io-queues", 'i', "N", 0, "Queues, each with a thread of its own", 2},
    {"queue-size", 'Q', "N", 0, "Entries of a queue (128)", 2},
    {"keep-alive-tmo", 'k', "S", 0, "Keep-alive timeout in seconds (5)", 2},
    {"reconnect-delay", 'c', "S", 0, "Seconds between two tries to reconnect (10)", 2},
    {"ctrl-loss-tmo", 'l', "S", 0, "Seconds until reconnection is given up (600; -1: never)", 2},
    {"fast_io_fail_tmo", KEY_FAST_IO_FAIL, "S", 0, "Seconds until requests stop waiting for it", 2},
    {"connect-timeout", KEY_TIMEOUT, "MS", 0, "Milliseconds a connection may take (10000)", 2},
    {"no-in-capsule", KEY_NO_CAPSULE, NULL, 0, "Small writes go by RDMA READ too", 2},
    {"namespace-id", 'N', "NSID", 0, "The namespace (the first)", 1},
    {"output-format", 'o', "FORMAT", 0, "normal, json or binary", 3},
    {0},
};

static uint32_t parse_number(struct argp_state *state, const char *text, uint32_t max)
{
    const char *rest;
    uint64_t value = 0;
    if (!mover_parse_number(text, &value, &rest) || *rest || value > max)
        argp_error(state, "\"%s\" is not a number up to %u", text, max);
    return (uint32_t)value;
}

static int32_t parse_timeout(struct argp_state *state, const char *text)
{
    return strcmp(text, "-1") ? (int32_t)parse_number(state, text, INT32_MAX) : -1;
}

static enum nv_format parse_format(struct argp_state *state, const char *text)
{
    if (!strcmp(text, "json"))
        return NV_JSON;
    if (!strcmp(text, "binary"))
        return NV_BINARY;
    if (strcmp(text, "normal"))
        argp_error(state, "\"%s\" is not an output format: normal, json, binary", text);
    return NV_NORMAL;
}

static const char *parse_secret(struct argp_state *state, const char *text, char *out)
{
    const char *wrong = nvf_secret_read(text, out);
    if (wrong) /* without the text: it may be a secret */
        argp_error(state, "a secret cannot be read: %s", wrong);
    return out;
}

static error_t parse_tuning(int key, char *arg, struct argp_state *state)
{
    struct nv_host *host = state->input;
    struct sw_nvme_options *o = &host->options;
    enum { SECONDS_MAX = 4000000 };
    switch (key) {
    case 'i':
        o->nr_io_queues = parse_number(state, arg, 64);
        return 0;
    case 'Q':
        o->queue_size = parse_number(state, arg, 1024);
        return 0;
    case 'k':
        o->keep_alive_ms = parse_number(state, arg, SECONDS_MAX) * 1000;
        return 0;
    case 'c':
        o->reconnect_delay_s = parse_number(state, arg, SECONDS_MAX);
        return 0;
    case 'l':
        o->ctrl_loss_tmo_s = parse_timeout(state, arg);
        return 0;
    case KEY_FAST_IO_FAIL:
        o->fast_io_fail_tmo_s = parse_timeout(state, arg);
        return 0;
    case KEY_TIMEOUT:
        o->connect_timeout_ms = parse_number(state, arg, INT32_MAX);
        return 0;
    case KEY_NO_CAPSULE:
        o->no_in_capsule = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t host_connection_parse_option(int key, char *arg, struct argp_state *state)
{
    struct nv_host *host = state->input;
    struct sw_nvme_options *o = &host->options;
    switch (key) {
    case 't':
        if (strcmp(arg, "rdma"))
            argp_error(state, "transport \"%s\" is not spoken here; rdma is", arg);
        return 0;
    case 'a':
        o->traddr = arg;
        return 0;
    case 's':
        o->trsvcid = arg;
        return 0;
    case 'n':
        o->subsysnqn = arg;
        return 0;
    case 'w':
        o->host_traddr = arg;
        return 0;
    case 'q':
        o->hostnqn = arg;
        return 0;
    case 'I':
        o->hostid = arg;
        return 0;
    case 'S':
        o->dhchap_secret = parse_secret(state, arg, host->secret);
        return 0;
    case 'C':
        o->dhchap_ctrl_secret = parse_secret(state, arg, host->ctrl_secret);
        return 0;
    case 'N':
        host->nsid = parse_number(state, arg, UINT32_MAX);
        host->has_nsid = true;
        return 0;
    case 'o':
        host->format = parse_format(state, arg);
        return 0;
    case ARGP_KEY_END:
        if (!o->traddr)
            argp_error(state, "no target is named: -a ADDR");
        if (!o->subsysnqn && !host->is_discovery)
            argp_error(state,
                       "no subsystem is named: -n NQN (sidewire nvme discover -a %s "
                       "shows those that are there)",
                       o->traddr);
        return 0;
    default:
        return parse_tuning(key, arg, state);
    }
}

const struct argp nv_host_argp = {.options = options, .parser = host_connection_parse_option};

void nv_host_parse(const char *command, const struct argp *argp, int argc, char **argv,
                   struct nv_host *input)
{
    input->command = command;
    sw_nvme_options_init(&input->options);
    argp_parse(argp, argc, argv, 0, NULL, input);
}

int nv_host_connect(struct nv_host *host)
{
    struct sw_nvme_error error;
    if (sw_nvme_connect(&host->options, &error, &host->controller))
        return nv_fail_error(host, &error);
    return 0;
}

int nv_host_namespace(struct nv_host *host, struct sw_nvme_namespace *ns)
{
    struct sw_nvme_result result;
    uint32_t count = 0;
    if (!host->has_nsid) {
        if (sw_nvme_list(host->controller, 0, &host->nsid, 1, &count, &result))
            return nv_fail_result(host, "the list of namespaces", &result);
        if (!count)
            return nv_fail(host, "the subsystem has no namespace");
    }
    if (sw_nvme_namespace_of(host->controller, host->nsid, ns, &result)) {
        char what[48];
        snprintf(what, sizeof(what), "Identify of namespace %u", host->nsid);
        return nv_fail_result(host, what, &result);
    }
    if (ns->metadata_bytes)
        return nv_fail(host,
                       "namespace %u has metadata of %u bytes in each block, which this "
                       "host does not move",
                       host->nsid, ns->metadata_bytes);
    return 0;
}

void nv_host_close(struct nv_host *host)
{
    sw_nvme_disconnect(host->controller);
    host->controller = NULL;
}

void nv_host_watch(struct nv_host *host)
{
    struct sw_nvme_error error;
    const enum sw_nvme_state state = sw_nvme_state_of(host->controller);
    if (host->is_away == (state != SW_NVME_LIVE))
        return;
    host->is_away = !host->is_away;
    sw_nvme_last_error(host->controller, &error);
    if (!host->is_away)
        fprintf(stderr, "sidewire nvme %s: connected again\n", host->command);
    else if (state == SW_NVME_DEAD)
        nv_fail(host, "given up: %s", error.text);
    else
        nv_fail(host, "%s; trying again for %d s", error.text, host->options.ctrl_loss_tmo_s);
}
