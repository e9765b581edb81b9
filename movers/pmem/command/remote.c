/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of a connection, the connection itself, and what output needs. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmem/command/command.h"

enum { KEY_TIMEOUT = 0x1000, KEY_LOSS, KEY_NO_FLUSH, KEY_NO_ATOMIC };

static const struct argp_option options[] = {
    {"address", 'a', "ADDR", 0, "Address of the server", 1},
    {"port", 's', "PORT", 0, "Port of the server (4430)", 1},
    {"region", 'r', "NAME", 0, "Name of the region (the only one)", 1},
    {"connect-timeout", KEY_TIMEOUT, "MS", 0, "Milliseconds a connection may take (5000)", 2},
    {"loss-timeout", KEY_LOSS, "MS", 0, "Milliseconds until a lost server is given up (30000)", 2},
    {"no-flush", KEY_NO_FLUSH, NULL, 0, "READs in place of FLUSHes, as on older devices", 2},
    {"no-atomic-write", KEY_NO_ATOMIC, NULL, 0, "WRITEs in place of ATOMIC WRITEs", 2},
    {"output-format", 'o', "FORMAT", 0, "normal or json", 3},
    {0},
};

static error_t pmem_parse_remote(int key, char *value, struct argp_state *state)
{
    struct pm_remote *remote = state->input;
    switch (key) {
    case 'a':
        remote->options.address = value;
        return 0;
    case 's':
        remote->options.port = value;
        return 0;
    case 'r':
        remote->options.region = value;
        return 0;
    case 'o':
        remote->is_json = mover_parse_format(state, value);
        return 0;
    case KEY_TIMEOUT:
        remote->options.connect_timeout_ms = mover_parse_count(state, value);
        return 0;
    case KEY_LOSS:
        remote->options.loss_timeout_ms = mover_parse_count(state, value);
        return 0;
    case KEY_NO_FLUSH:
        remote->options.no_flush = true;
        return 0;
    case KEY_NO_ATOMIC:
        remote->options.no_atomic_write = true;
        return 0;
    case ARGP_KEY_END:
        if (!remote->options.address)
            argp_error(state, "the address of the server is missing (-a ADDR)");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp pm_remote_argp = {.options = options, .parser = pmem_parse_remote};

void pm_remote_parse(const char *command, const struct argp *argp, int argc, char **argv,
                     struct pm_remote *input)
{
    static char label[64];
    input->command = command;
    sw_pmem_options_init(&input->options);
    snprintf(label, SW_PMEM_NAME_MAX, "%s, process %d", command, getpid());
    input->options.label = label;
    argp_parse(argp, argc, argv, 0, NULL, input);
}

int pm_fail(const struct pm_remote *remote, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int code = mover_fail("pmem", remote->command, format, args);
    va_end(args);
    return code;
}

int pm_fail_status(const struct pm_remote *remote, const char *what, enum sw_pmem_status status)
{
    struct sw_pmem_error error = {.status = SW_PMEM_OK};
    if (remote->pmem && sw_pmem_state_of(remote->pmem) != SW_PMEM_LIVE)
        sw_pmem_last_error(remote->pmem, &error);
    if (error.status)
        return pm_fail(remote, "%s: %s (%s)", what, sw_pmem_status_text(status), error.text);
    return pm_fail(remote, "%s: %s", what, sw_pmem_status_text(status));
}

int pm_remote_open(struct pm_remote *remote)
{
    struct sw_pmem_error error;
    if (!sw_pmem_open(&remote->options, &error, &remote->pmem))
        return PM_STATUS_OK;
    remote->pmem = NULL;
    return pm_fail(remote, "%s", error.text);
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

void pm_progress(const struct pm_remote *remote, uint64_t done, uint64_t total)
{
    if (!remote->is_json)
        mover_progress(done, total, done == total);
}
