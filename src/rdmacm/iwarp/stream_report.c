/* SPDX-License-Identifier: BSD-2-Clause */
/* What is told of connections that begin: link/connections.h. */
#include <pthread.h>
#include <string.h>

#include "link/connections.h"
#include "link/iwarp/describe.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"

static bool describe_stream(const struct sw_ucm_stream *stream, struct sw_connection *out)
{
    const bool calls = stream->role == SW_UCM_STREAM_CALLS;
    if (stream->fd < 0 || (!calls && stream->role != SW_UCM_STREAM_IS_CALLED))
        return false;
    memset(out, 0, sizeof(*out));
    out->link = SW_CONNECTION_IWARP;
    out->stage = calls ? SW_CONNECTION_CALLS : SW_CONNECTION_CALLED;
    if (stream->start.state == SW_IWARP_REQUESTED)
        out->flags = SW_CONNECTION_HAS_ASKED;
    if (calls && stream->id)
        out->qpn = stream->id->qpn;
    sw_iwarp_describe_socket(stream->fd, out);
    if (!out->peer.sin6_family) /* TCP is not connected yet */
        memcpy(&out->peer, &stream->peer, sizeof(out->peer));
    return true;
}

uint32_t sw_ucm_stream_report(uint32_t from, struct sw_connection *out, uint32_t most,
                              uint32_t *next)
{
    uint32_t count = 0;
    pthread_mutex_lock(&sw_rdmacm_lock);
    const struct sw_ucm_stream *stream = sw_ucm_stream_next(from);
    for (; stream && count < most; stream = sw_ucm_stream_next(stream->index + 1))
        count += describe_stream(stream, &out[count]);
    *next = stream ? stream->index : SW_CONNECTIONS_END;
    pthread_mutex_unlock(&sw_rdmacm_lock);
    return count;
}
