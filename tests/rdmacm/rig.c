/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 30000

int rig_command(int fd, uint32_t command, const void *in, size_t in_len, size_t out_len)
{
    struct {
        struct rdma_ucm_cmd_hdr header;
        uint8_t body[1024];
    } message = {.header = {command, (uint16_t)in_len, (uint16_t)out_len}};
    memcpy(message.body, in, in_len);
    size_t len = sizeof(message.header) + in_len;
    ssize_t done = write(fd, &message, len);
    if (done < 0)
        return errno;
    assert_int_equal(done, len);
    return 0;
}

int rig_open(int flags)
{
    int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | flags);
    assert_true(fd >= 0);
    return fd;
}

int rig_create(int fd, uint16_t port_space, uint32_t *id)
{
    struct rdma_ucm_create_id_resp response = {.id = UINT32_MAX};
    struct rdma_ucm_create_id in = {.response = (uintptr_t)&response, .ps = port_space};
    static uint64_t count;
    in.uid = RIG_UID + ++count;
    int rc = rig_command(fd, RDMA_USER_CM_CMD_CREATE_ID, &in, sizeof(in), sizeof(response));
    *id = response.id;
    return rc;
}

int rig_destroy(int fd, uint32_t id, uint32_t *events_reported)
{
    struct rdma_ucm_destroy_id_resp response = {.events_reported = UINT32_MAX};
    struct rdma_ucm_destroy_id in = {.response = (uintptr_t)&response, .id = id};
    int rc = rig_command(fd, RDMA_USER_CM_CMD_DESTROY_ID, &in, sizeof(in), sizeof(response));
    if (events_reported)
        *events_reported = response.events_reported;
    return rc;
}

void rig_address(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    char name[64] = {0};
    memset(out, 0, sizeof(*out));
    size_t len = strcspn(text, "%");
    memcpy(name, text, len);
    struct sockaddr_in *in = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    if (inet_pton(AF_INET, name, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        return;
    }
    assert_int_equal(inet_pton(AF_INET6, name, &in6->sin6_addr), 1);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = text[len] ? if_nametoindex(text + len + 1) : 0;
}

static uint16_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int rig_bind(int fd, uint32_t id, const char *address, uint16_t port)
{
    struct rdma_ucm_bind in = {.id = id};
    struct sockaddr_storage place;
    rig_address(address, port, &place);
    memcpy(&in.addr, &place, sizeof(in.addr));
    in.addr_size = size_of(&place);
    return rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0);
}

int rig_resolve_addr(int fd, uint32_t id, const char *src, const char *dst, uint16_t port)
{
    struct rdma_ucm_resolve_addr in = {.id = id, .timeout_ms = 2000};
    struct sockaddr_storage place;
    if (src) {
        rig_address(src, 0, &place);
        memcpy(&in.src_addr, &place, sizeof(in.src_addr));
        in.src_size = size_of(&place);
    }
    rig_address(dst, port, &place);
    memcpy(&in.dst_addr, &place, sizeof(in.dst_addr));
    in.dst_size = size_of(&place);
    return rig_command(fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, &in, sizeof(in), 0);
}

int rig_resolve_route(int fd, uint32_t id)
{
    struct rdma_ucm_resolve_route in = {.id = id, .timeout_ms = 2000};
    return rig_command(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &in, sizeof(in), 0);
}

int rig_listen(int fd, uint32_t id, uint32_t backlog)
{
    struct rdma_ucm_listen in = {.id = id, .backlog = backlog};
    return rig_command(fd, RDMA_USER_CM_CMD_LISTEN, &in, sizeof(in), 0);
}

static void fill(struct rdma_ucm_conn_param *out, uint32_t id, const void *data, uint8_t len)
{
    *out = (struct rdma_ucm_conn_param){.qp_num = 0x100 + id,
                                        .private_data_len = len,
                                        .responder_resources = 3,
                                        .initiator_depth = 2,
                                        .retry_count = 5,
                                        .rnr_retry_count = 6,
                                        .valid = 1};
    memcpy(out->private_data, data ? data : "", len);
}

struct rdma_ucm_ece rig_ece(uint32_t id)
{
    return (struct rdma_ucm_ece){.vendor_id = 0xabc000 + id, .attr_mod = 0x10203000 + id};
}

int rig_connect(int fd, uint32_t id, const void *data, uint8_t len)
{
    struct rdma_ucm_connect in = {.id = id, .ece = rig_ece(id)};
    fill(&in.conn_param, id, data, len);
    return rig_command(fd, RDMA_USER_CM_CMD_CONNECT, &in, sizeof(in), 0);
}

int rig_accept(int fd, uint32_t id, const void *data, uint8_t len)
{
    struct rdma_ucm_accept in = {.id = id, .uid = RIG_UID + id, .ece = rig_ece(id)};
    fill(&in.conn_param, id, data, len);
    return rig_command(fd, RDMA_USER_CM_CMD_ACCEPT, &in, sizeof(in), 0);
}

int rig_ready(int fd, uint32_t id)
{
    struct rdma_ucm_accept in = {.id = id};
    return rig_command(fd, RDMA_USER_CM_CMD_ACCEPT, &in, sizeof(in), 0);
}

int rig_reject(int fd, uint32_t id, const void *data, uint8_t len)
{
    struct rdma_ucm_reject in = {.id = id, .private_data_len = len};
    memcpy(in.private_data, data ? data : "", len);
    return rig_command(fd, RDMA_USER_CM_CMD_REJECT, &in, sizeof(in), 0);
}

int rig_disconnect(int fd, uint32_t id)
{
    struct rdma_ucm_disconnect in = {.id = id};
    return rig_command(fd, RDMA_USER_CM_CMD_DISCONNECT, &in, sizeof(in), 0);
}

int rig_query_addr(int fd, uint32_t id, struct rdma_ucm_query_addr_resp *out)
{
    struct rdma_ucm_query in = {
        .response = (uintptr_t)out, .id = id, .option = RDMA_USER_CM_QUERY_ADDR};
    return rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(*out));
}

int rig_init_qp_attr(int fd, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *out)
{
    struct rdma_ucm_init_qp_attr in = {.response = (uintptr_t)out, .id = id, .qp_state = state};
    return rig_command(fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, &in, sizeof(in), sizeof(*out));
}

int rig_set_option(int fd, uint32_t id, uint32_t level, uint32_t name, const void *value,
                   uint32_t len)
{
    struct rdma_ucm_set_option in = {
        .optval = (uintptr_t)value, .id = id, .level = level, .optname = name, .optlen = len};
    return rig_command(fd, RDMA_USER_CM_CMD_SET_OPTION, &in, sizeof(in), 0);
}

uint16_t rig_port(int fd, uint32_t id)
{
    struct rdma_ucm_query_addr_resp response;
    assert_int_equal(rig_query_addr(fd, id, &response), 0);
    struct sockaddr_in6 in6; /* sin_port is at the same place */
    memcpy(&in6, &response.src_addr, sizeof(in6));
    return ntohs(in6.sin6_port);
}

int rig_get_event(int fd, struct rdma_ucm_event_resp *out)
{
    struct rdma_ucm_get_event in = {.response = (uintptr_t)out};
    return rig_command(fd, RDMA_USER_CM_CMD_GET_EVENT, &in, sizeof(in), sizeof(*out));
}

static bool wait_event(int fd, int timeout_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, timeout_ms) == 1 && entry.revents == POLLIN;
}

bool rig_has_event(int fd)
{
    return wait_event(fd, 0);
}

void rig_expect(int fd, uint32_t type, struct rdma_ucm_event_resp *out)
{
    struct rdma_ucm_event_resp unused;
    out = out ? out : &unused;
    assert_true(wait_event(fd, PATIENCE_MS));
    assert_int_equal(rig_get_event(fd, out), 0);
    assert_int_equal(out->event, type);
}

uint32_t rig_active(int fd, uint16_t port_space, const char *dst, uint16_t port)
{
    uint32_t id;
    assert_int_equal(rig_create(fd, port_space, &id), 0);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, dst, port), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_resolve_route(fd, id), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
    return id;
}

uint32_t rig_listener(int fd, uint16_t port_space, const char *address, uint32_t backlog)
{
    uint32_t id;
    assert_int_equal(rig_create(fd, port_space, &id), 0);
    assert_int_equal(rig_bind(fd, id, address, 0), 0);
    assert_int_equal(rig_listen(fd, id, backlog), 0);
    return id;
}
