/* SPDX-License-Identifier: BSD-2-Clause */
/* IDs themselves: how they begin, end, move and what may be set on them. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "rdmacm/commands/command.h"
#include "rdmacm/commands/user.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/route.h"

#define OPTION_MAX_BYTES (4u << 20) /* what a kernel would still copy */

int sw_ucm_create_id(struct sw_ucm_request *request)
{
    const struct rdma_ucm_create_id *in = &request->in.create_id;
    struct rdma_ucm_create_id_resp response;
    struct sw_ucm_id *id;
    uint8_t qp_type;
    if (request->out_len < sizeof(response))
        return -ENOSPC;
    switch (in->ps) {
    case RDMA_PS_TCP:
        qp_type = IBV_QPT_RC;
        break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
        qp_type = IBV_QPT_UD;
        break;
    case RDMA_PS_IB:
        qp_type = in->qp_type;
        break;
    default:
        return -EINVAL;
    }
    int rc = sw_ucm_id_create(request->channel, in->ps, qp_type, &id);
    if (rc)
        return rc;
    id->uid = in->uid;
    response.id = id->handle;
    if (!sw_user_write(in->response, &response, sizeof(response)))
        return 0;
    sw_ucm_id_destroy(id);
    return -EFAULT;
}

int sw_ucm_destroy_id(struct sw_ucm_request *request)
{
    const struct rdma_ucm_destroy_id *in = &request->in.destroy_id;
    struct rdma_ucm_destroy_id_resp response;
    struct sw_ucm_id *id;
    if (request->out_len < sizeof(response))
        return -ENOSPC;
    int rc = sw_ucm_id_find_any(request->channel, in->id, &id);
    if (rc)
        return rc;
    response.events_reported = sw_ucm_id_destroy(id);
    return sw_user_write(in->response, &response, sizeof(response));
}

int sw_ucm_migrate_id(struct sw_ucm_request *request)
{
    const struct rdma_ucm_migrate_id *in = &request->in.migrate_id;
    struct rdma_ucm_migrate_resp response;
    struct sw_ucm_id *id;
    if (fcntl((int)in->fd, F_GETFD) < 0)
        return -ENOENT;
    struct sw_ucm_channel *from = sw_ucm_channel_of_fd((int)in->fd);
    int rc = from ? sw_ucm_id_find(from, in->id, &id) : -EINVAL;
    if (rc)
        return rc;
    response.events_reported = id->events_reported;
    sw_ucm_id_move(id, request->channel);
    return sw_user_write(in->response, &response, sizeof(response));
}

static int read_option(const struct rdma_ucm_set_option *in, void *value, size_t size)
{
    if (in->optlen != size)
        return -EINVAL;
    return sw_user_read(value, in->optval, size);
}

static int set_reuse_address(struct sw_ucm_id *id, bool reuse)
{
    if (!(reuse && id->state != SW_UCM_LISTEN) && id->state != SW_UCM_IDLE)
        return -EINVAL;
    id->reuse_address = reuse;
    return 0;
}

static int set_address_family_only(struct sw_ucm_id *id, bool only)
{
    if (id->state != SW_UCM_IDLE && id->state != SW_UCM_ADDR_BOUND)
        return -EINVAL;
    id->address_family_only = only;
    id->address_family_only_set = true;
    return 0;
}

static int set_ack_timeout(struct sw_ucm_id *id, uint8_t timeout)
{
    if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_SEND)
        return -EINVAL;
    id->timeout = timeout;
    id->timeout_set = true;
    return 0;
}

static int set_id_option(struct sw_ucm_id *id, const struct rdma_ucm_set_option *in)
{
    const bool is_byte =
        in->optname == RDMA_OPTION_ID_TOS || in->optname == RDMA_OPTION_ID_ACK_TIMEOUT;
    uint8_t byte = 0;
    int number = 0;
    if (in->optname > RDMA_OPTION_ID_ACK_TIMEOUT)
        return -ENOSYS;
    int rc =
        is_byte ? read_option(in, &byte, sizeof(byte)) : read_option(in, &number, sizeof(number));
    if (rc)
        return rc;
    switch (in->optname) {
    case RDMA_OPTION_ID_REUSEADDR:
        return set_reuse_address(id, number);
    case RDMA_OPTION_ID_AFONLY:
        return set_address_family_only(id, number);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        return set_ack_timeout(id, byte);
    default:
        id->tos = byte;
        id->tos_set = true;
        return 0;
    }
}

/* A path that the program knows, instead of resolving the route. For RoCE the addresses decide
 * where it leads; what else it says is taken over where it makes sense. */
static int set_path(struct sw_ucm_id *id, const struct rdma_ucm_set_option *in)
{
    const uint32_t wanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    struct ib_path_rec_data path = {0};
    uint64_t from = in->optval;
    if (in->optlen % sizeof(path))
        return -EINVAL;
    size_t count = in->optlen / sizeof(path);
    for (; count; count--, from += sizeof(path)) {
        if (sw_user_read(&path, from, sizeof(path)))
            return -EFAULT;
        if (path.flags == wanted)
            break;
    }
    if (!count || !id->dev || id->state != SW_UCM_ADDR_RESOLVED)
        return -EINVAL;
    sw_ucm_route_resolve(id);
    id->state = SW_UCM_ROUTE_RESOLVED;
    sw_ucm_event_tell(id, SW_UCM_ROUTE_RESOLVED_EVENT, 0);
    return 0;
}

int sw_ucm_set_option(struct sw_ucm_request *request)
{
    const struct rdma_ucm_set_option *in = &request->in.set_option;
    struct sw_ucm_id *id;
    if (in->optlen > OPTION_MAX_BYTES)
        return -EINVAL;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    if (rc)
        return rc;
    switch (in->level) {
    case RDMA_OPTION_ID:
        return set_id_option(id, in);
    case RDMA_OPTION_IB:
        return in->optname == RDMA_OPTION_IB_PATH ? set_path(id, in) : -ENOSYS;
    default:
        return -ENOSYS;
    }
}

/* An event of the program's own making, for the reader of the ID's channel. */
int sw_ucm_write_cm_event(struct sw_ucm_request *request)
{
    const struct sw_ucm_write_cm_event *in = &request->in.write_cm_event;
    struct sw_ucm_id *id;
    if (in->event != SW_UCM_USER_EVENT && in->event != SW_UCM_INTERNAL_EVENT)
        return -EINVAL;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    if (rc)
        return rc;
    struct sw_ucm_event *event =
        sw_ucm_event_new(id, (enum sw_ucm_event_type)in->event, (int)in->status);
    if (!event)
        return -ENOMEM;
    memcpy(&event->response.param, &in->param.arg, sizeof(in->param.arg));
    sw_ucm_event_send(event);
    return 0;
}
