/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of a connection, and the connection itself. */
#include "nvme/command/host_commands.h"

#include <stdlib.h>
#include <string.h>

#include "common/command/patience.h"
#include "common/text/number.h"

enum { SECONDS_MAX = 4000000, QUEUES_MAX = 64, ENTRIES_MAX = 1024 };

static uint32_t parse_number(struct argp_state *state, const char *text, uint32_t max)
{
    const char *rest;
    uint64_t value = 0;
    if (!mover_parse_number(text, &value, &rest) || *rest || value > max)
        argp_error(state, "\"%s\" is not a number up to %u", text, max);
    return (uint32_t)value;
}

static void take_queues(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = parse_number(state, text, QUEUES_MAX);
}

static void take_entries(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = parse_number(state, text, ENTRIES_MAX);
}

static void take_seconds(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = parse_number(state, text, SECONDS_MAX);
}

static void take_seconds_as_ms(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = parse_number(state, text, SECONDS_MAX) * 1000;
}

static void take_patience(struct argp_state *state, void *place, char *text)
{
    *(int32_t *)place = strcmp(text, "-1") ? (int32_t)parse_number(state, text, INT32_MAX) : -1;
}

static void take_ms(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = parse_number(state, text, INT32_MAX);
}

static void host_take_format(struct argp_state *state, void *place, char *text)
{
    enum nv_format *format = place;
    *format = !strcmp(text, "json") ? NV_JSON : !strcmp(text, "binary") ? NV_BINARY : NV_NORMAL;
    if (*format == NV_NORMAL && strcmp(text, "normal"))
        argp_error(state, "\"%s\" is not an output format: normal, json, binary", text);
}

static const char *parse_secret(struct argp_state *state, const char *text, char *out)
{
    const char *wrong = nvf_secret_read(text, out);
    if (wrong) /* without a text that may be a secret */
        argp_error(state, "the secret%s%s cannot be read: %s", *text == '@' ? " in " : "",
                   *text == '@' ? text + 1 : "", wrong);
    return out;
}

static void take_own_secret(struct argp_state *state, void *place, char *text)
{
    struct nv_host *host = place;
    host->options.dhchap_secret = parse_secret(state, text, host->secret);
}

static void take_target_secret(struct argp_state *state, void *place, char *text)
{
    struct nv_host *host = place;
    host->options.dhchap_ctrl_secret = parse_secret(state, text, host->ctrl_secret);
}

static void take_transport(struct argp_state *state, void *place, char *text)
{
    (void)place;
    if (strcmp(text, "rdma"))
        argp_error(state, "transport \"%s\" is not spoken here; rdma is", text);
}

static void take_nsid(struct argp_state *state, void *place, char *text)
{
    struct nv_host *host = place;
    host->nsid = parse_number(state, text, UINT32_MAX);
    host->has_nsid = true;
}

static void check_host(struct argp_state *state, void *arguments)
{
    struct nv_host *host = arguments;
    if (!host->options.traddr)
        argp_error(state, "no target is named: -a ADDR");
    if (!host->options.subsysnqn && !host->is_discovery)
        argp_error(state,
                   "no subsystem is named: -n NQN (sidewire nvme discover -a %s "
                   "shows those that are there)",
                   host->options.traddr);
    if (host->discovers && (host->is_discovery || host->addresses_count > 1))
        argp_error(state, "--discover-paths goes with one address, and a subsystem");
    nv_addresses_own(host);
}

#define HOST(member) offsetof(struct nv_host, member)

static const struct mover_option options[] = {
    {"transport", 't', "rdma", 0, "Transport type: rdma is the only one", 1, take_transport, 0},
    {"traddr", 'a', "ADDR[:PORT]", 0,
     "Address of the target; may be repeated: several paths to the same namespaces", 1,
     nv_take_address, 0},
    {"trsvcid", 's', "PORT", 0, "Port of the target (4420)", 1,
     MOVER_TO(struct nv_host, options.trsvcid)},
    {"nqn", 'n', "NQN", 0, "Name of the subsystem", 1, MOVER_TO(struct nv_host, options.subsysnqn)},
    {"host-traddr", 'w', "ADDR", 0, "Own address to connect from", 1,
     MOVER_TO(struct nv_host, options.host_traddr)},
    {"hostnqn", 'q', "NQN", 0, "Own name (that of /etc/nvme/hostnqn, else of the machine)", 1,
     MOVER_TO(struct nv_host, options.hostnqn)},
    {"dhchap-secret", 'S', "SECRET", 0, "Own secret, DHHC-1:... or @FILE, for authentication", 1,
     take_own_secret, 0},
    {"dhchap-ctrl-secret", 'C', "SECRET", 0, "What the target has to prove that it knows", 1,
     take_target_secret, 0},
    {"hostid", 'I', "UUID", 0, "Own ID (that of /etc/nvme/hostid)", 1,
     MOVER_TO(struct nv_host, options.hostid)},
    {"nr-io-queues", 'i', "N", 0, "Queues, each with a thread of its own", 2, take_queues,
     HOST(options.nr_io_queues)},
    {"queue-size", 'Q', "N", 0, "Entries of a queue (128)", 2, take_entries,
     HOST(options.queue_size)},
    {"keep-alive-tmo", 'k', "S", 0, "Keep-alive timeout in seconds (5)", 2, take_seconds_as_ms,
     HOST(options.keep_alive_ms)},
    {"reconnect-delay", 'c', "S", 0, "Seconds between two tries to reconnect (10)", 2, take_seconds,
     HOST(options.reconnect_delay_s)},
    {"ctrl-loss-tmo", 'l', "S", 0, "Seconds until reconnection is given up (600; -1: never)", 2,
     take_patience, HOST(options.ctrl_loss_tmo_s)},
    {"fast_io_fail_tmo", 0, "S", 0, "Seconds until requests stop waiting for it", 2, take_patience,
     HOST(options.fast_io_fail_tmo_s)},
    {"connect-timeout", 0, "MS", 0, "Milliseconds a connection may take (10000)", 2, take_ms,
     HOST(options.connect_timeout_ms)},
    {"iopolicy", 0, "POLICY", 0,
     "Which of several paths a request takes: round-robin, queue-depth or numa (round-robin)", 2,
     nv_take_policy, 0},
    {"quiesce-tmo", 0, "S", 0,
     "Seconds until a write of a lost path goes to another one without proof (-1: never)", 2,
     take_patience, HOST(options.quiesce_tmo_s)},
    {"discover-paths", 0, NULL, 0, "Takes all addresses that the target's discovery log has", 2,
     MOVER_TO(struct nv_host, discovers)},
    {"no-in-capsule", 0, NULL, 0, "Small writes go by RDMA READ too", 2,
     MOVER_TO(struct nv_host, options.no_in_capsule)},
    {"namespace-id", 'N', "NSID", 0, "The namespace (the first)", 1, take_nsid, 0},
    {"output-format", 'o', "FORMAT", 0, "normal, json or binary", 3, host_take_format,
     HOST(format)},
    {0},
};

const struct mover_options nv_host_options = {.rows = options, .check = check_host};
const struct mover_options nv_host_options_below = {
    .rows = options, .header = "Connection:", .check = check_host};

void nv_host_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments)
{
    struct nv_host *host = arguments;
    sw_nvme_options_init(&host->options);
    mover_parse(usage, argc, argv, arguments);
}

void nv_host_parse_alone(const char *about, int argc, char **argv, struct nv_host *host)
{
    const struct mover_usage usage = {.about = about, .shared = &nv_host_options};
    nv_host_parse(&usage, argc, argv, host);
}

int nv_host_connect(struct nv_host *host)
{
    struct sw_nvme_error error;
    struct mover_patience patience = mover_patience_begin();
    if (host->discovers && nv_addresses_discover(host))
        return MOVER_FAILED;
    while (sw_nvme_connect(&host->options, &error, &host->controller))
        if (error.status != SW_NVME_REFUSED || !mover_patience_lasts(&patience, error.text))
            return nv_fail_error(&error);
    nv_paths_told(host);
    return 0;
}

int nv_host_namespace(struct nv_host *host, struct sw_nvme_namespace *ns)
{
    struct sw_nvme_result result;
    uint32_t count = 0;
    if (!host->has_nsid) {
        if (sw_nvme_list(host->controller, 0, &host->nsid, 1, &count, &result))
            return nv_fail_result("the list of namespaces", &result);
        if (!count)
            return mover_fail("the subsystem has no namespace");
    }
    if (sw_nvme_namespace_of(host->controller, host->nsid, ns, &result)) {
        char what[48];
        snprintf(what, sizeof(what), "Identify of namespace %u", host->nsid);
        return nv_fail_result(what, &result);
    }
    if (ns->metadata_bytes)
        return mover_fail("namespace %u has metadata of %u bytes in each block, which this "
                          "host does not move",
                          host->nsid, ns->metadata_bytes);
    return 0;
}

void nv_host_close(struct nv_host *host)
{
    sw_nvme_disconnect(host->controller);
    host->controller = NULL;
    free(host->found);
    host->found = NULL;
}

void nv_host_watch(struct nv_host *host)
{
    struct sw_nvme_error error;
    const enum sw_nvme_state state = sw_nvme_state_of(host->controller);
    nv_paths_watch(host);
    if (host->is_away == (state != SW_NVME_LIVE))
        return;
    host->is_away = !host->is_away;
    sw_nvme_last_error(host->controller, &error);
    if (!host->is_away)
        mover_fail("connected again");
    else if (state == SW_NVME_DEAD)
        mover_fail("given up: %s", error.text);
    else
        mover_fail("%s; trying again for %d s", error.text, host->options.ctrl_loss_tmo_s);
}
