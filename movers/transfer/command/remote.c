/* SPDX-License-Identifier: BSD-2-Clause */
/* The card, the peer, and what output needs. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transfer/command/command.h"

enum { KEY_TIMEOUT = 0x1000, KEY_RAIL };

static const struct argp_option options[] = {
    {"card", 'c', "PATH", 0, "File with the card of the peer; - is the standard input", 1},
    {"region", 'r', "NAME", 0, "Name of the region (the first)", 1},
    {"local", 'w', "ADDR", 0, "Address of the RDMA device here (that which leads there)", 1},
    {"rail", KEY_RAIL, "ADDR", 0, "One more address here, of another RDMA device", 1},
    {"connect-timeout", KEY_TIMEOUT, "MS", 0, "Milliseconds a connection may take (5000)", 2},
    {"output-format", 'o', "FORMAT", 0, "normal or json", 3},
    {0},
};

void xf_add_rail(struct argp_state *state, struct sw_xfer_agent_options *to, const char *address)
{
    int at = 0;
    while (at < SW_XFER_ADDRESSES_MAX - 1 && to->rails[at])
        at++;
    if (at == SW_XFER_ADDRESSES_MAX - 1)
        argp_error(state, "there are more than %d addresses", SW_XFER_ADDRESSES_MAX);
    to->rails[at] = address;
}

json_t *xf_rails_json(const struct xf_remote *remote)
{
    struct sw_xfer_rail rails[SW_XFER_ADDRESSES_MAX];
    const uint32_t count = sw_xfer_peer_rails(remote->peer, rails, SW_XFER_ADDRESSES_MAX);
    json_t *all = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(all, json_pack("{ss sb sI sI}", "address", rails[i].address, "is_up",
                                             rails[i].is_up, "connections",
                                             (json_int_t)rails[i].connections, "bytes",
                                             (json_int_t)rails[i].bytes));
    return all;
}

static error_t transfer_parse_remote(int key, char *value, struct argp_state *state)
{
    struct xf_remote *remote = state->input;
    switch (key) {
    case 'c':
        remote->card_path = value;
        return 0;
    case 'r':
        remote->region = value;
        return 0;
    case 'w':
        remote->options.address = value;
        return 0;
    case 'o':
        remote->is_json = mover_parse_format(state, value);
        return 0;
    case KEY_RAIL:
        xf_add_rail(state, &remote->options, value);
        return 0;
    case KEY_TIMEOUT:
        remote->options.connect_timeout_ms = mover_parse_count(state, value);
        return 0;
    case ARGP_KEY_END:
        if (!remote->card_path)
            argp_error(state, "the card of the peer is missing (-c PATH)");
        if (remote->options.rails[0] && !remote->options.address)
            argp_error(state, "the first address is missing (-w ADDR)");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp xf_remote_argp = {.options = options, .parser = transfer_parse_remote};

void xf_remote_parse(const char *command, const struct argp *argp, int argc, char **argv,
                     struct xf_remote *input)
{
    input->command = command;
    sw_xfer_agent_options_init(&input->options);
    argp_parse(argp, argc, argv, 0, NULL, input);
}

int xf_fail(const struct xf_remote *remote, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int code = mover_fail_as("transfer", remote->command, format, args);
    va_end(args);
    return code;
}

int xf_fail_transfer(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer)
{
    struct sw_xfer_info info;
    struct sw_xfer_error error;
    sw_xfer_info_of(transfer, &info);
    if (sw_xfer_peer_state_of(remote->peer) != SW_XFER_GONE)
        return xf_fail(remote, "%s", sw_xfer_status_text(info.status));
    sw_xfer_peer_error(remote->peer, &error);
    return xf_fail(remote, "%s (%s)", sw_xfer_status_text(info.status), error.text);
}

int xf_remote_card(struct xf_remote *remote)
{
    const bool is_pipe = !strcmp(remote->card_path, "-");
    const int fd = is_pipe ? STDIN_FILENO : open(remote->card_path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    while (fd >= 0 && remote->card_bytes < sizeof(remote->card) &&
           (got = read(fd, remote->card + remote->card_bytes,
                       sizeof(remote->card) - remote->card_bytes)) > 0)
        remote->card_bytes += (size_t)got;
    const int why = errno;
    if (fd > STDIN_FILENO)
        close(fd);
    if (got < 0)
        return xf_fail(remote, "%s: %s", remote->card_path, strerror(why));
    struct sw_xfer_card card;
    const enum sw_xfer_status status = sw_xfer_card_read(remote->card, remote->card_bytes, &card);
    return status ? xf_fail(remote, "%s: %s", remote->card_path, sw_xfer_status_text(status))
                  : XF_STATUS_OK;
}

static int remote_find_region(struct xf_remote *remote)
{
    if (remote->region &&
        sw_xfer_card_find(remote->card, remote->card_bytes, remote->region, &remote->region_index))
        return xf_fail(remote, "there is no region \"%s\"; 'sidewire transfer ls' lists them",
                       remote->region);
    if (sw_xfer_card_region(remote->card, remote->card_bytes, remote->region_index, &remote->about))
        return xf_fail(remote, "the card has no region");
    return XF_STATUS_OK;
}

int xf_remote_open(struct xf_remote *remote)
{
    struct sw_xfer_error error;
    int code = xf_remote_card(remote);
    if (!code)
        code = remote_find_region(remote);
    if (code)
        return code;
    if (sw_xfer_agent_open(&remote->options, &error, &remote->agent) ||
        sw_xfer_connect(remote->agent, remote->card, remote->card_bytes, &error, &remote->peer) ||
        sw_xfer_peer_wait(remote->peer, SW_XFER_NEVER, &error))
        return xf_fail(remote, "%s", error.text);
    return XF_STATUS_OK;
}

void xf_progress(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer)
{
    struct sw_xfer_info info;
    sw_xfer_info_of(transfer, &info);
    if (!remote->is_json)
        mover_progress_show(info.bytes_done, info.bytes, info.state != SW_XFER_POSTED);
}
