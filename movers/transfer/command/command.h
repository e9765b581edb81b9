/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-transfer. */
#ifndef SW_MOVERS_TRANSFER_COMMAND_H
#define SW_MOVERS_TRANSFER_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/command/front.h"
#include "common/command/json.h"
#include "common/command/option.h"
#include "sidewire/transfer.h"

enum { XF_CARD_BYTES_MAX = 1 << 15 };

int xf_serve(int argc, char **argv);
int xf_read(int argc, char **argv);
int xf_write(int argc, char **argv);
int xf_ls(int argc, char **argv);
int xf_bench(int argc, char **argv);
int xf_plan(int argc, char **argv);
int xf_status(int argc, char **argv);
int xf_stop(int argc, char **argv);
int xf_metrics(int argc, char **argv);

/* What commands share that use a card: its options, the peer, output. */
struct xf_remote {
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

/* Options for arguments that begin with a struct xf_remote. */
extern const struct mover_options xf_remote_options;

/* Parses by `usage`, which shares xf_remote_options; `arguments` begins with a struct xf_remote,
 * which this fills with defaults. */
void xf_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments);
/* Reads the card; then connects, finding the region. Each says what went wrong, and returns the
 * exit status. */
int xf_remote_card(struct xf_remote *remote);
int xf_remote_open(struct xf_remote *remote);
/* Why a transfer failed: with the error of the peer where that is gone. */
int xf_fail_transfer(const struct xf_remote *remote, const struct sw_xfer_transfer *transfer);

/* One more address of the agent; the place is its struct sw_xfer_agent_options. */
mover_take xf_take_rail;
/* The ways to the peer, and what went over each. */
json_t *xf_rails_json(const struct xf_remote *remote);

#endif
