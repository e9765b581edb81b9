/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "transfer/engine/engine.h"

enum { BACKLOG = 64, RESOLVE_MS = 2000 };

void sw_xfer_agent_options_init(struct sw_xfer_agent_options *options)
{
    *options = (struct sw_xfer_agent_options){.visitors_max = 64,
                                              .notices_max = 1024,
                                              .queue_depth = 256,
                                              .window_bytes = 8 << 20,
                                              .connect_timeout_ms = 5000,
                                              .stall_timeout_ms = 10000,
                                              .drain_timeout_ms = 50,
                                              .spin_us = 50};
}

static bool are_options(const struct sw_xfer_agent_options *o)
{
    return o->visitors_max && o->visitors_max <= 1024 && o->notices_max &&
           o->notices_max <= 65536 && o->queue_depth >= 64 && o->queue_depth <= 8192 &&
           o->window_bytes;
}

bool xfe_agent_adopt(struct sw_xfer_agent *agent, struct ibv_context *verbs)
{
    struct ibv_device_attr attr;
    if (agent->verbs)
        return agent->verbs == verbs;
    if (ibv_query_device(verbs, &attr))
        return false;
    agent->pieces_max = attr.max_sge < XFC_PIECES_MAX ? (uint32_t)attr.max_sge : XFC_PIECES_MAX;
    agent->reads_max = (uint32_t)attr.max_qp_init_rd_atom;
    agent->has_windows =
        attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    agent->pd = ibv_alloc_pd(verbs);
    bool is_fine = agent->pd;
    for (struct list_node *at = list_first(&agent->memories); is_fine && at;
         at = list_after(&agent->memories, at))
        is_fine = xfe_memory_register(LIST_MEMBER(at, struct sw_xfer_memory, node));
    if (is_fine)
        agent->verbs = verbs;
    return is_fine;
}

static bool watch_fd(struct sw_xfer_agent *agent, int fd, struct xfe_source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return fd >= 0 && !epoll_ctl(agent->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static bool make_inside(struct sw_xfer_agent *agent)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED)
        return false;
    agent->alive = alive;
    *agent->alive = 1;
    madvise(alive, page, MADV_WIPEONFORK);
    agent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    agent->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    agent->visitors = calloc(agent->options.visitors_max, sizeof(struct xfe_visitor *));
    return agent->epoll_fd >= 0 && watch_fd(agent, agent->timer_fd, &agent->timer_source) &&
           agent->visitors && xfe_notices_make(agent) &&
           getrandom(agent->instance, sizeof(agent->instance), 0) == sizeof(agent->instance);
}

/* A loopback address is bound to no device; what leads to it is. */
static struct ibv_context *find_device(struct sw_xfer_agent *agent)
{
    if (agent->listener->verbs)
        return agent->listener->verbs;
    if (rdma_create_id(NULL, &agent->anchor, NULL, RDMA_PS_TCP))
        return NULL;
    return rdma_resolve_addr(agent->anchor, NULL, (struct sockaddr *)&agent->address, RESOLVE_MS)
               ? NULL
               : agent->anchor->verbs;
}

static enum sw_xfer_status start_listening(struct sw_xfer_agent *agent, struct sw_xfer_error *error)
{
    const char *address = agent->options.address;
    struct addrinfo *found;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *port = agent->options.port ? agent->options.port : "0";
    const int code = getaddrinfo(address, port, &hints, &found);
    if (code)
        return xfe_fail(error, SW_XFER_ADDRESS, "%s port %s: %s", address, port,
                        gai_strerror(code));
    memcpy(&agent->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    agent->events = rdma_create_event_channel();
    if (!agent->events)
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "there is no RDMA device; a software one: sidewire run");
    const int fd = agent->events->fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ||
        !watch_fd(agent, fd, &agent->events_source))
        return xfe_fail(error, SW_XFER_SYSTEM, "epoll: %s", strerror(errno));
    if (rdma_create_id(agent->events, &agent->listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(agent->listener, (struct sockaddr *)&agent->address))
        return xfe_fail(error, SW_XFER_ADDRESS, "no RDMA device has %s, or port %s is taken: %s",
                        address, port, strerror(errno));
    struct ibv_context *verbs = find_device(agent);
    if (!verbs)
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "%s is not the address of one RDMA device; peers need that", address);
    if (!xfe_agent_adopt(agent, verbs))
        return xfe_fail(error, SW_XFER_NO_MEMORY, "the RDMA device has no room");
    if (rdma_listen(agent->listener, BACKLOG))
        return xfe_fail(error, SW_XFER_ADDRESS, "cannot listen at %s port %s: %s", address, port,
                        strerror(errno));
    const uint16_t got = rdma_get_src_port(agent->listener);
    if (agent->address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&agent->address)->sin6_port = got;
    else
        ((struct sockaddr_in *)&agent->address)->sin_port = got;
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_agent_open(const struct sw_xfer_agent_options *options,
                                       struct sw_xfer_error *error, struct sw_xfer_agent **out)
{
    if (!are_options(options))
        return xfe_fail(error, SW_XFER_INVALID, "a number of the options is out of its bounds");
    struct sw_xfer_agent *agent = calloc(1, sizeof(*agent));
    if (!agent)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    agent->options = *options;
    agent->epoll_fd = agent->timer_fd = -1;
    agent->events_source.kind = XFE_EVENTS;
    agent->timer_source.kind = XFE_TIMER;
    agent->lease_wake_ns = UINT64_MAX;
    struct list *const lists[] = {&agent->memories, &agent->leases,    &agent->peers,
                                  &agent->blocks,   &agent->transfers, &agent->ended,
                                  &agent->held,     &agent->held_free};
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        list_init(lists[i]);
    enum sw_xfer_status status = SW_XFER_OK;
    if (!make_inside(agent))
        status = xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory or descriptors");
    if (!status && options->address)
        status = start_listening(agent, error);
    agent->options.address = agent->options.port = NULL; /* the caller's */
    if (status) {
        sw_xfer_agent_close(agent);
        return status;
    }
    *out = agent;
    return SW_XFER_OK;
}

void sw_xfer_agent_instance(const struct sw_xfer_agent *agent,
                            uint8_t instance[SW_XFER_INSTANCE_BYTES])
{
    memcpy(instance, agent->instance, SW_XFER_INSTANCE_BYTES);
}

/* Queue pairs first: once they are gone nothing is touched any more. */
static void free_members(struct sw_xfer_agent *agent)
{
    struct list_node *at;
    for (at = list_first(&agent->peers); at; at = list_after(&agent->peers, at))
        if (!xfe_is_forked(agent))
            xfe_peer_gone(LIST_MEMBER(at, struct sw_xfer_peer, node), SW_XFER_CANCELLED, "closed");
    while ((at = list_first(&agent->transfers)))
        xfe_transfer_free(LIST_MEMBER(at, struct sw_xfer_transfer, node));
    while ((at = list_first(&agent->blocks)))
        xfe_blocks_free(LIST_MEMBER(at, struct sw_xfer_blocks, node));
    while ((at = list_first(&agent->leases)))
        sw_xfer_lease_release(LIST_MEMBER(at, struct sw_xfer_lease, node));
    while ((at = list_first(&agent->peers)))
        xfe_peer_free(LIST_MEMBER(at, struct sw_xfer_peer, node));
    while ((at = list_first(&agent->memories)))
        xfe_memory_free(LIST_MEMBER(at, struct sw_xfer_memory, node));
}

void sw_xfer_agent_close(struct sw_xfer_agent *agent)
{
    const bool is_ours = agent->alive && !xfe_is_forked(agent);
    if (agent->visitors)
        xfe_visitors_end(agent);
    if (agent->alive)
        free_members(agent);
    if (is_ours && agent->listener)
        rdma_destroy_id(agent->listener);
    if (is_ours && agent->pd)
        ibv_dealloc_pd(agent->pd);
    if (is_ours && agent->anchor)
        rdma_destroy_id(agent->anchor);
    if (is_ours && agent->events)
        rdma_destroy_event_channel(agent->events);
    if (agent->epoll_fd >= 0)
        close(agent->epoll_fd);
    if (agent->timer_fd >= 0)
        close(agent->timer_fd);
    if (agent->alive)
        munmap(agent->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(agent->visitors);
    free(agent->held_all);
    free(agent);
}
