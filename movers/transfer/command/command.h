/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-transfer. Each gets its arguments from its own name on, and returns the
 * status of the process: 0 done, 1 failed, 2 wrong usage. */
#ifndef SW_MOVERS_TRANSFER_COMMAND_H
#define SW_MOVERS_TRANSFER_COMMAND_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/command/command.h"
#include "sidewire/transfer.h"

enum { XF_STATUS_OK = 0, XF_STATUS_FAILED = 1, XF_STATUS_USAGE = 2, XF_CARD_BYTES_MAX = 1 << 15 };

int xf_serve(int argc, char **argv);
int xf_read(int argc, char **argv);
int xf_write(int argc, char **argv);
int xf_ls(int argc, char **argv);
int xf_bench(int argc, char **argv);
int xf_plan(int argc, char **argv);

/* What commands share that use a card: its options, the peer, output. */
struct xf_remote {
    const char *command; /* for messages */
    const char *card_path, *region;
    struct sw_xfer_agent_options options;
    struct sw_xfer_agent *agent;
    struct sw_xfer_peer *peer;
    uint8_t card[XF_CARD_BYTES_MAX];
    size_t card_bytes;
    uint32_t region_index;
    struct sw_xfer_region about; /* the region */
    bool is_json;
};

/* A child for argp; its input is a struct xf_remote. */
extern const struct argp xf_remote_argp;

/* `argp` has xf_remote_argp as its first child, and `input` begins with a struct xf_remote, which
 * this fills with defaults. */
void xf_remote_parse(const char *command, const struct argp *argp, int argc, char **argv,
                     struct xf_remote *input);
/* Reads the card; then connects, finding the region. Each says what went wrong, and returns the
 * exit status. */
int xf_remote_card(struct xf_remote *remote);
int xf_remote_open(struct xf_remote *remote);
int xf_fail(const struct xf_remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Why a transfer failed: with the error of the peer where that is gone. */
int xf_fail_transfer(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer);

/* One more address of the agent. */
void xf_add_rail(struct argp_state *state, struct sw_xfer_agent_options *to, const char *address);
/* The ways to the peer, and what went over each. */
json_t *xf_rails_json(const struct xf_remote *remote);

/* A line on a terminal that says how far it is; nothing elsewhere. */
void xf_progress(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer);

#endif
