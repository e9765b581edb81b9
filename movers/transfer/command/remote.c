/* SPDX-License-Identifier: BSD-2-Clause */
/* The card, the peer, and what output needs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/command/patience.h"
#include "common/command/remote.h"
#include "transfer/command/command.h"

void xf_take_rail(struct argp_state *state, void *place, char *text)
{
    struct sw_xfer_agent_options *to = place;
    int at = 0;
    while (at < SW_XFER_ADDRESSES_MAX - 1 && to->rails[at])
        at++;
    if (at == SW_XFER_ADDRESSES_MAX - 1)
        argp_error(state, "there are more than %d addresses", SW_XFER_ADDRESSES_MAX);
    to->rails[at] = text;
}

#define REMOTE(member) offsetof(struct xf_remote, member)

static const struct mover_option options[] = {
    {"card", 'c', "PATH", 0, "File with the card of the peer; - is the standard input", 1,
     MOVER_TO(struct xf_remote, card_path)},
    MOVER_OPTION_REGION(REMOTE(region), "the first"),
    MOVER_OPTION_LOCAL(REMOTE(options.address)),
    {"rail", 0, "ADDR", 0, "One more address here, of another RDMA device", 1, xf_take_rail,
     REMOTE(options)},
    MOVER_OPTION_CONNECT_TIMEOUT(REMOTE(options.connect_timeout_ms), "5000"),
    MOVER_OPTION_FORMAT(REMOTE(is_json)),
    {0},
};

static void remote_check(struct argp_state *state, void *arguments)
{
    const struct xf_remote *remote = arguments;
    if (!remote->card_path)
        argp_error(state, "the card of the peer is missing (-c PATH)");
    if (remote->options.rails[0] && !remote->options.address)
        argp_error(state, "the first address is missing (-w ADDR)");
}

const struct mover_options xf_remote_options = {.rows = options, .check = remote_check};

void xf_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments)
{
    struct xf_remote *remote = arguments;
    sw_xfer_agent_options_init(&remote->options);
    mover_parse(usage, argc, argv, arguments);
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

int xf_fail_transfer(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer)
{
    struct sw_xfer_info info;
    struct sw_xfer_error error;
    sw_xfer_info_of(transfer, &info);
    if (sw_xfer_peer_state_of(remote->peer) != SW_XFER_GONE)
        return mover_fail("%s", sw_xfer_status_text(info.status));
    sw_xfer_peer_error(remote->peer, &error);
    return mover_fail("%s (%s)", sw_xfer_status_text(info.status), error.text);
}

/* A server writes its card when it is ready. */
static int open_card(const char *path, struct mover_patience *patience)
{
    char text[512];
    int fd;
    if (!strcmp(path, "-"))
        return STDIN_FILENO;
    snprintf(text, sizeof(text), "%s: the card is not there", path);
    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == ENOENT && mover_patience_lasts(patience, text));
    return fd;
}

static int remote_read_card(struct xf_remote *remote, struct mover_patience *patience)
{
    const int fd = open_card(remote->card_path, patience);
    ssize_t got = -1;
    remote->card_bytes = 0;
    while (fd >= 0 && remote->card_bytes < sizeof(remote->card) &&
           (got = read(fd, remote->card + remote->card_bytes,
                       sizeof(remote->card) - remote->card_bytes)) > 0)
        remote->card_bytes += (size_t)got;
    const int why = errno;
    if (fd > STDIN_FILENO)
        close(fd);
    if (got < 0)
        return mover_fail("%s: %s%s", remote->card_path, strerror(why),
                          why == ENOENT ? "; 'sidewire transfer serve --card' writes it" : "");
    struct sw_xfer_card card;
    const enum sw_xfer_status status = sw_xfer_card_read(remote->card, remote->card_bytes, &card);
    return status ? mover_fail("%s: %s", remote->card_path, sw_xfer_status_text(status))
                  : MOVER_DONE;
}

int xf_remote_card(struct xf_remote *remote)
{
    struct mover_patience patience = mover_patience_begin();
    return remote_read_card(remote, &patience);
}

static int remote_find_region(struct xf_remote *remote)
{
    if (remote->region &&
        sw_xfer_card_find(remote->card, remote->card_bytes, remote->region, &remote->region_index))
        return mover_fail("there is no region \"%s\"; 'sidewire transfer ls' lists them",
                          remote->region);
    if (sw_xfer_card_region(remote->card, remote->card_bytes, remote->region_index, &remote->about))
        return mover_fail("the card has no region");
    return MOVER_DONE;
}

static enum sw_xfer_status remote_connect(struct xf_remote *remote, struct sw_xfer_error *error)
{
    enum sw_xfer_status status = sw_xfer_agent_open(&remote->options, error, &remote->agent);
    if (!status)
        status =
            sw_xfer_connect(remote->agent, remote->card, remote->card_bytes, error, &remote->peer);
    return status ? status : sw_xfer_peer_wait(remote->peer, SW_XFER_NEVER, error);
}

/* The card may be that of a server that has ended, and a new one is about to write its own. */
static bool is_outdated(const struct xf_remote *remote, enum sw_xfer_status status)
{
    return (status == SW_XFER_PEER_GONE || status == SW_XFER_INSTANCE) &&
           strcmp(remote->card_path, "-") != 0;
}

int xf_remote_open(struct xf_remote *remote)
{
    struct sw_xfer_error error;
    struct mover_patience patience = mover_patience_begin();
    for (;;) {
        int code = remote_read_card(remote, &patience);
        if (!code)
            code = remote_find_region(remote);
        if (code)
            return code;
        const enum sw_xfer_status status = remote_connect(remote, &error);
        if (!status)
            return MOVER_DONE;
        if (!is_outdated(remote, status) || !mover_patience_lasts(&patience, error.text))
            return mover_fail("%s", error.text);
        sw_xfer_agent_close(remote->agent);
        remote->agent = NULL;
        remote->peer = NULL;
    }
}
