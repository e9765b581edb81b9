/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/commands/command.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/minmax.h"
#include "link/engine.h"
#include "rdmacm/commands/user.h"
#include "rdmacm/connections/getter.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/rdmacm.h"

#define COMMAND(name, member)                                      \
    {                                                              \
        sw_ucm_##name, sizeof(((union sw_ucm_command *)0)->member) \
    }

static const struct {
    sw_ucm_handler handler;
    size_t size_bytes;
} commands[] = {
    [RDMA_USER_CM_CMD_CREATE_ID] = COMMAND(create_id, create_id),
    [RDMA_USER_CM_CMD_DESTROY_ID] = COMMAND(destroy_id, destroy_id),
    [RDMA_USER_CM_CMD_BIND_IP] = COMMAND(bind_ip, bind_ip),
    [RDMA_USER_CM_CMD_RESOLVE_IP] = COMMAND(resolve_ip, resolve_ip),
    [RDMA_USER_CM_CMD_RESOLVE_ROUTE] = COMMAND(resolve_route, resolve_route),
    [RDMA_USER_CM_CMD_QUERY_ROUTE] = COMMAND(query_route, query),
    [RDMA_USER_CM_CMD_CONNECT] = COMMAND(connect, connect),
    [RDMA_USER_CM_CMD_LISTEN] = COMMAND(listen, listen),
    [RDMA_USER_CM_CMD_ACCEPT] = COMMAND(accept, accept),
    [RDMA_USER_CM_CMD_REJECT] = COMMAND(reject, reject),
    [RDMA_USER_CM_CMD_DISCONNECT] = COMMAND(disconnect, disconnect),
    [RDMA_USER_CM_CMD_INIT_QP_ATTR] = COMMAND(init_qp_attr, init_qp_attr),
    [RDMA_USER_CM_CMD_SET_OPTION] = COMMAND(set_option, set_option),
    [RDMA_USER_CM_CMD_NOTIFY] = COMMAND(notify, notify),
    [RDMA_USER_CM_CMD_JOIN_IP_MCAST] = COMMAND(join_ip_mcast, join_ip_mcast),
    [RDMA_USER_CM_CMD_LEAVE_MCAST] = COMMAND(leave_mcast, destroy_id),
    [RDMA_USER_CM_CMD_MIGRATE_ID] = COMMAND(migrate_id, migrate_id),
    [RDMA_USER_CM_CMD_QUERY] = COMMAND(query, query),
    [RDMA_USER_CM_CMD_BIND] = COMMAND(bind, bind),
    [RDMA_USER_CM_CMD_RESOLVE_ADDR] = COMMAND(resolve_addr, resolve_addr),
    [RDMA_USER_CM_CMD_JOIN_MCAST] = COMMAND(join_mcast, join_mcast),
    [SW_UCM_CMD_RESOLVE_IB_SERVICE] = COMMAND(resolve_ib_service, resolve_ib_service),
    [SW_UCM_CMD_WRITE_CM_EVENT] = COMMAND(write_cm_event, write_cm_event),
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* Gives the oldest event to the program; it stays where it is if the program's memory is bad. */
static int deliver_event(struct sw_ucm_channel *channel, struct sw_ucm_event *event,
                         uint64_t response, size_t out_len)
{
    size_t len = sw_min_u64(out_len, sizeof(event->response));
    if (sw_user_write(response, &event->response, len)) {
        sw_ucm_channel_unread(channel);
        return -EFAULT;
    }
    sw_ucm_channel_pop(channel);
    sw_ucm_getter_leaves(channel);
    event->id->events_reported++;
    if (event->group)
        event->group->events_reported++;
    if (event->response.event == SW_UCM_CONNECT_REQUEST_EVENT)
        event->id->backlog++;
    if (event->request)
        event->request->request = NULL;
    free(event);
    return 0;
}

/* A byte has been read. Returns false if its event was taken back meanwhile; else *rc is told. */
static bool fetch_event(uint64_t inode, const struct rdma_ucm_get_event *command, size_t out_len,
                        int *rc)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    struct sw_ucm_channel *channel = sw_ucm_channel_find(inode);
    struct sw_ucm_event *event = channel ? sw_ucm_channel_peek(channel) : NULL;
    *rc = event ? deliver_event(channel, event, command->response, out_len) : -EBADF;
    pthread_mutex_unlock(&sw_rdmacm_lock);
    return event || !channel;
}

/* The event that is there already: most often one is. */
static bool fetch_now(int fd, uint64_t inode, const struct rdma_ucm_get_event *command,
                      size_t out_len, int *rc)
{
    char byte;
    struct iovec room = {&byte, 1};
    while (preadv2(fd, &room, 1, -1, RWF_NOWAIT) == 1)
        if (fetch_event(inode, command, out_len, rc))
            return true;
    return false;
}

/* Sleeps in the pipe, as the program's descriptor and signals say, and not with the lock. `fd` is
 * ours: the program's may be closed meanwhile, and its number used for another file. */
static int get_event(int fd, uint64_t inode, const struct rdma_ucm_get_event *command,
                     size_t out_len)
{
    char byte;
    int rc;
    do {
        ssize_t got = read(fd, &byte, 1);
        if (got <= 0)
            return got ? -errno : -EBADF;
    } while (!fetch_event(inode, command, out_len, &rc));
    return rc;
}

/* Descriptors that are held while GET_EVENT sleeps, as a kernel holds the file of a call that is
 * under way. A forked child must not have them. */
#define HELD_MAX 256
static atomic_int held[HELD_MAX]; /* a descriptor and 1; 0: free */

/* A second descriptor of the channel, in *place; -1: then the program's own must do. */
static int hold_fd(int fd, int *place)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    for (*place = 0; own >= 0 && *place < HELD_MAX; ++*place) {
        int none = 0;
        if (atomic_compare_exchange_strong(&held[*place], &none, own + 1))
            return own;
    }
    if (own >= 0)
        close(own);
    return -1;
}

static void command_let_go(int own, int place)
{
    atomic_store(&held[place], 0);
    close(own);
}

static int wait_event(int fd, uint64_t inode, const struct rdma_ucm_get_event *command,
                      size_t out_len)
{
    int place, rc;
    if (out_len < offsetof(struct rdma_ucm_event_resp, reserved))
        return -ENOSPC;
    if (fetch_now(fd, inode, command, out_len, &rc))
        return rc;
    int own = hold_fd(fd, &place);
    inode = sw_ucm_channel_inode(own < 0 ? fd : own);
    sw_ucm_getter_returns(inode);
    rc = inode ? get_event(own < 0 ? fd : own, inode, command, out_len) : -EBADF;
    if (own >= 0)
        command_let_go(own, place);
    return rc;
}

static int execute_command(uint32_t command, uint64_t inode, struct sw_ucm_request *request)
{
    int rc = -EBADF;
    pthread_mutex_lock(&sw_rdmacm_lock);
    request->channel = sw_ucm_channel_find(inode);
    if (request->channel)
        rc = commands[command].handler(request);
    pthread_mutex_unlock(&sw_rdmacm_lock);
    return rc;
}

ssize_t sw_ucm_write(int fd, const void *bytes, size_t len)
{
    struct rdma_ucm_cmd_hdr header;
    struct sw_ucm_request request = {0};
    const uint64_t inode = sw_ucm_channel_inode(fd), from = (uintptr_t)bytes;
    if (!inode)
        return -EBADF;
    if (len < sizeof(header))
        return -EINVAL;
    if (sw_user_read(&header, from, sizeof(header)))
        return -EFAULT;
    const bool is_get_event = header.cmd == RDMA_USER_CM_CMD_GET_EVENT;
    if (header.cmd >= COMMAND_COUNT || header.in + sizeof(header) > len)
        return -EINVAL;
    if (!commands[header.cmd].handler && !is_get_event)
        return -ENOSYS;
    request.in_len = header.in;
    request.out_len = header.out;
    size_t most = is_get_event ? sizeof(request.in.get_event) : commands[header.cmd].size_bytes;
    if (sw_user_read(&request.in, from + sizeof(header), sw_min_u64(header.in, most)))
        return -EFAULT;
    int rc = is_get_event ? wait_event(fd, inode, &request.in.get_event, header.out)
                          : execute_command(header.cmd, inode, &request);
    if (header.cmd == RDMA_USER_CM_CMD_DESTROY_ID)
        sw_ucm_getter_await(inode);
    return rc ? rc : (ssize_t)len;
}

static void command_fork_child(void)
{
    for (int i = 0; i < HELD_MAX; i++) {
        int own = atomic_exchange(&held[i], 0) - 1;
        if (own >= 0)
            close(own);
    }
    sw_ucm_channel_fork_child();
    sw_ucm_service_fork_child();
    sw_ucm_id_fork_child();
}

static void install_handlers(void)
{
    sw_engine_handle(SW_WATCH_CM_CHANNEL, sw_ucm_channel_closed);
    pthread_atfork(NULL, NULL, command_fork_child);
}

int sw_ucm_open(int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int fd = -1;
    pthread_once(&once, install_handlers);
    pthread_mutex_lock(&sw_rdmacm_lock);
    int rc = sw_ucm_service_start();
    if (!rc)
        rc = sw_ucm_channel_create(flags, &fd);
    pthread_mutex_unlock(&sw_rdmacm_lock);
    return rc ? rc : fd;
}
