// SPDX-License-Identifier: BSD-2-Clause
// librdmacm, as far as a connection uses it. Events come at once, as if the peer were there.
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_state.hpp"

namespace
{

struct channel {
    rdma_event_channel raw{};
    std::deque<rdma_cm_event> events;
};

struct substitute {
    rdma_cm_event_type wanted = RDMA_CM_EVENT_TIMEWAIT_EXIT, event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
    int status = 0;
};

substitute other;
const unsigned char private_bytes[64] = {0xab};

channel *of(rdma_event_channel *raw)
{
    return reinterpret_cast<channel *>(raw); // its first field
}

void tell(rdma_cm_id *id, rdma_cm_event_type kind)
{
    rdma_event_channel *where = id->channel;
    rdma_cm_event event{};
    uint64_t one = 1;

    event.id = id;
    event.event = kind == other.wanted ? other.event : kind;
    event.status = kind == other.wanted ? other.status : 0;
    event.param.conn.private_data = private_bytes;
    event.param.conn.private_data_len = sizeof(private_bytes);
    of(where)->events.push_back(event);
    (void)!write(where->fd, &one, sizeof(one));
}

rdma_cm_id *new_id(rdma_event_channel *where)
{
    auto *made = new rdma_cm_id();

    made->channel = where;
    fake::is_born("rdma_create_id", made, {where});
    return made;
}

int result(const char *verb)
{
    return fake::fails(verb) ? -1 : 0;
}

} // namespace

void fake::instead_of(rdma_cm_event_type wanted, rdma_cm_event_type event, int status)
{
    other = {wanted, event, status};
}

extern "C" {

rdma_event_channel *rdma_create_event_channel(void)
{
    if (fake::fails("rdma_create_event_channel"))
        return nullptr;
    auto *made = new channel();
    made->raw.fd = eventfd(0, EFD_SEMAPHORE);
    fake::is_born("rdma_create_event_channel", &made->raw, {});
    return &made->raw;
}

void rdma_destroy_event_channel(rdma_event_channel *raw)
{
    if (fake::dies("rdma_destroy_event_channel", raw))
        return;
    close(raw->fd);
    delete of(raw);
}

int rdma_create_id(rdma_event_channel *where, rdma_cm_id **id, void *, rdma_port_space)
{
    if (result("rdma_create_id"))
        return -1;
    *id = new_id(where);
    return 0;
}

int rdma_destroy_id(rdma_cm_id *id)
{
    if (fake::dies("rdma_destroy_id", id)) {
        errno = EBUSY;
        return -1;
    }
    delete id;
    return 0;
}

int rdma_getaddrinfo(const char *, const char *, const rdma_addrinfo *, rdma_addrinfo **found)
{
    if (result("rdma_getaddrinfo"))
        return -1;
    *found = new rdma_addrinfo();
    fake::is_born("rdma_getaddrinfo", *found, {});
    return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo *found)
{
    if (!fake::dies("rdma_freeaddrinfo", found))
        delete found;
}

int rdma_resolve_addr(rdma_cm_id *id, sockaddr *, sockaddr *, int)
{
    if (result("rdma_resolve_addr"))
        return -1;
    id->verbs = fake::own_device();
    tell(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}

int rdma_resolve_route(rdma_cm_id *id, int)
{
    if (result("rdma_resolve_route"))
        return -1;
    tell(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}

int rdma_create_qp(rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *attr)
{
    if (result("rdma_create_qp"))
        return -1;
    fake::be_quiet(true);
    id->qp = ibv_create_qp(pd, attr);
    fake::be_quiet(false);
    return 0;
}

void rdma_destroy_qp(rdma_cm_id *id)
{
    ibv_destroy_qp(id->qp);
    id->qp = nullptr;
}

int rdma_bind_addr(rdma_cm_id *, sockaddr *)
{
    return result("rdma_bind_addr");
}

// A client comes at once.
int rdma_listen(rdma_cm_id *id, int)
{
    if (result("rdma_listen"))
        return -1;
    tell(id, RDMA_CM_EVENT_CONNECT_REQUEST);
    return 0;
}

int rdma_migrate_id(rdma_cm_id *id, rdma_event_channel *where)
{
    if (result("rdma_migrate_id"))
        return -1;
    fake::dies("rdma_migrate_id", id);
    fake::is_born("rdma_create_id", id, {where});
    id->channel = where;
    return 0;
}

int rdma_connect(rdma_cm_id *id, rdma_conn_param *)
{
    if (result("rdma_connect"))
        return -1;
    tell(id, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
}

int rdma_accept(rdma_cm_id *id, rdma_conn_param *)
{
    if (result("rdma_accept"))
        return -1;
    tell(id, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
}

int rdma_reject(rdma_cm_id *, const void *, uint8_t)
{
    return result("rdma_reject");
}

int rdma_disconnect(rdma_cm_id *id)
{
    if (result("rdma_disconnect"))
        return -1;
    tell(id, RDMA_CM_EVENT_DISCONNECTED);
    return 0;
}

int rdma_get_cm_event(rdma_event_channel *raw, rdma_cm_event **event)
{
    uint64_t one;

    if (result("rdma_get_cm_event"))
        return -1;
    if (read(raw->fd, &one, sizeof(one)) < 0)
        return -1;
    *event = new rdma_cm_event(of(raw)->events.front());
    of(raw)->events.pop_front();
    if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        (*event)->listen_id = (*event)->id;
        (*event)->id = new_id(raw);
        (*event)->id->verbs = fake::own_device();
    }
    fake::is_born("rdma_get_cm_event", *event, {(*event)->id});
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event *event)
{
    if (!fake::dies("rdma_ack_cm_event", event))
        delete event;
    return 0;
}

__be16 rdma_get_src_port(rdma_cm_id *)
{
    return 0;
}

ibv_context **rdma_get_devices(int *)
{
    errno = ENODEV;
    return nullptr;
}

void rdma_free_devices(ibv_context **)
{
}

int rdma_create_ep(rdma_cm_id **, rdma_addrinfo *, ibv_pd *, ibv_qp_init_attr *)
{
    errno = ENODEV;
    return -1;
}

void rdma_destroy_ep(rdma_cm_id *)
{
}

const char *rdma_event_str(rdma_cm_event_type)
{
    return "an event";
}

} // extern "C"
