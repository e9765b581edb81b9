/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of a connection, the connection itself, and what output needs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/command/remote.h"
#include "common/text/endpoint.h"
#include "pmem/command/command.h"

#define REMOTE(member) offsetof(struct pm_remote, member)

/* As `serve --listen` takes it, so that what starts a server also reaches it. */
static void take_server(struct argp_state *state, void *place, char *text)
{
    struct pm_remote *remote = place;
    if (!mover_split_endpoint(text, &remote->options.address, &remote->options.port))
        argp_error(state, "\"%s\" is no address; write 192.0.2.1 or [2001:db8::1]:4430", text);
}

static const struct mover_option options[] = {
    {"address", 'a', "ADDR[:PORT]", 0, "Address of the server", 1, take_server, 0},
    MOVER_OPTION_PORT(REMOTE(options.port), "4430"),
    MOVER_OPTION_REGION(REMOTE(options.region), "the only one"),
    MOVER_OPTION_CONNECT_TIMEOUT(REMOTE(options.connect_timeout_ms), "5000"),
    {"loss-timeout", 0, "MS", 0, "Milliseconds until a lost server is given up (30000)", 2,
     MOVER_TO(struct pm_remote, options.loss_timeout_ms)},
    {"no-flush", 0, NULL, 0, "READs in place of FLUSHes, as on older devices", 2,
     MOVER_TO(struct pm_remote, options.no_flush)},
    {"no-atomic-write", 0, NULL, 0, "WRITEs in place of ATOMIC WRITEs", 2,
     MOVER_TO(struct pm_remote, options.no_atomic_write)},
    MOVER_OPTION_FORMAT(REMOTE(is_json)),
    {0},
};

static void check_remote(struct argp_state *state, void *arguments)
{
    const struct pm_remote *remote = arguments;
    if (!remote->options.address && !remote->may_be_here)
        argp_error(state, "the address of the server is missing (-a ADDR)");
}

const struct mover_options pm_remote_options = {.rows = options, .check = check_remote};

void pm_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments)
{
    static char label[SW_PMEM_NAME_MAX];
    struct pm_remote *remote = arguments;
    sw_pmem_options_init(&remote->options);
    snprintf(label, sizeof(label), "%s, process %d", strchr(mover_front_words(), ' ') + 1,
             getpid());
    remote->options.label = label;
    mover_parse(usage, argc, argv, arguments);
}

int pm_fail_status(const struct pm_remote *remote, const char *what, enum sw_pmem_status status)
{
    struct sw_pmem_error error = {.status = SW_PMEM_OK};
    if (remote->pmem && sw_pmem_state_of(remote->pmem) != SW_PMEM_LIVE)
        sw_pmem_last_error(remote->pmem, &error);
    if (error.status)
        return mover_fail("%s: %s (%s)", what, sw_pmem_status_text(status), error.text);
    return mover_fail("%s: %s", what, sw_pmem_status_text(status));
}

bool pm_remote_lasts(struct mover_patience *patience, const struct sw_pmem_error *error)
{
    return error->status == SW_PMEM_UNREACHABLE && mover_patience_lasts(patience, error->text);
}

int pm_remote_open(struct pm_remote *remote)
{
    struct sw_pmem_error error;
    struct mover_patience patience = mover_patience_begin();
    while (sw_pmem_open(&remote->options, &error, &remote->pmem)) {
        remote->pmem = NULL;
        if (!pm_remote_lasts(&patience, &error))
            return mover_fail("%s", error.text);
    }
    return MOVER_DONE;
}

const char *pm_kind_text(enum sw_pmem_kind kind)
{
    switch (kind) {
    case SW_PMEM_VOLATILE:
        return "volatile";
    case SW_PMEM_FILE:
        return "file";
    case SW_PMEM_DAX_FILE:
        return "dax-file";
    case SW_PMEM_DAX_DEVICE:
        return "dax-device";
    case SW_PMEM_PCI:
        return "pci";
    }
    return "unknown";
}
