/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/server.h"

#include <inttypes.h>
#include <string.h>

#include "common/command/front.h"

int mover_server_open(struct mover_server *server)
{
    char error[256];
    if (mover_background_begin(server->wish.is_background))
        return MOVER_FAILED;
    const int rc = mover_loop_open(&server->loop);
    server->has_loop = !rc;
    if (rc)
        return mover_fail("epoll: %s", strerror(-rc));
    if (mover_signals_open(&server->signals, &server->loop, error, sizeof(error)))
        return mover_fail("%s", error);
    server->has_signals = true;
    return MOVER_DONE;
}

int mover_server_control(struct mover_server *server, const struct mover_control_setup *setup)
{
    struct mover_control_setup at = *setup;
    char error[512];
    at.path = server->wish.control_path;
    server->has_control =
        !mover_control_open(&server->control, &server->loop, &at, error, sizeof(error));
    if (!server->has_control)
        mover_fail("%s%s", error,
                   at.path ? "" : "; 'status', 'metrics' and 'stop' do not reach this server");
    if (!server->has_control && at.path)
        return MOVER_FAILED;
    return mover_operator_export(&server->wish, &server->exporter, &server->loop, setup);
}

void mover_server_tell_size(const char *what, uint64_t bytes, uint64_t size)
{
    if (size && bytes != size)
        mover_fail("%s has %" PRIu64 " bytes, and stays so: --size makes new files, 'truncate -s' "
                   "changes one",
                   what, bytes);
}

void mover_server_close(struct mover_server *server)
{
    mover_exporter_close(&server->exporter);
    if (server->has_control)
        mover_control_close(&server->control);
    if (server->has_signals)
        mover_signals_close(&server->signals);
    if (server->has_loop)
        mover_loop_close(&server->loop);
    server->has_control = server->has_signals = server->has_loop = false;
}
