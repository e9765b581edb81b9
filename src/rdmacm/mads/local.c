/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/fds.h"
#include "base/minmax.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/state.h"
#include "link/engine.h"
#include "link/link.h"
#include "link/names/names.h"
#include "link/names/registry.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/mads/local_service.h"
#include "rdmacm/mads/local_successor.h"
#include "rdmacm/mads/local_table.h"

#define BACKLOG 1024
#define MESSAGES 32u /* read at once */
#define ROUNDS 8u

static const struct sw_local_user *user;
static int own_listener = -1;
static uint64_t missed[SW_SLOT_MAX / 64 + 1]; /* processes that were to be sent something, and are
                                                 not there */

/* ---- sending ---- */

int sw_local_send(uint32_t slot, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    sw_rdmacm_assert_locked();
    if (slot < 1 || slot > SW_SLOT_MAX)
        return -ECONNREFUSED;
    const struct sw_local_message message = sw_local_message_write(path, SW_LOCAL_MAD, mad);
    struct sw_local_connection *connection = sw_local_find(slot);
    int rc = connection ? sw_local_connection_send(connection, &message) : -ECONNRESET;
    if (rc != -ECONNRESET)
        return rc;
    rc = sw_local_connect_to_slot(slot); /* perhaps again: a service may just have closed */
    if (rc == -ECONNREFUSED) {           /* its requests may be read after its end has been told */
        missed[slot / 64] |= 1ull << slot % 64;
        sw_local_want_step();
    }
    return rc ? rc : sw_local_connection_send(sw_local_peer(slot), &message);
}

/* ---- receiving ---- */

/* The other end says who it is. */
static void learn_slot(struct sw_local_connection *connection, uint32_t slot)
{
    connection->slot = slot;
    if (!connection->is_to_service && !connection->is_reserved && !sw_local_peer(slot))
        sw_local_make_peer(connection);
    if (!connection->is_dead)
        sw_local_successor_offer(slot);
}

static void local_take_message(struct sw_local_connection *connection,
                               const struct sw_local_message *message, size_t len)
{
    if (!sw_local_message_is_sound(message, len) || message->slot < 1 ||
        message->slot > SW_SLOT_MAX || message->kind > SW_LOCAL_HANDOVER)
        return;
    sw_local_successor_allowed(message->slot);
    if (!connection->slot)
        learn_slot(connection, message->slot);
    if (message->kind == SW_LOCAL_HELLO || message->kind == SW_LOCAL_HANDOVER)
        return;
    /* Answers come from the service's socket: with its end, the end of that process is told. */
    if (connection->is_to_service && !sw_local_has_peer(connection->slot))
        sw_local_make_peer(connection);
    const struct sw_cm_path path = sw_local_message_path(message);
    user->receive(&path, message->mad);
}

/* From somebody whom nothing is believed that a packet could not say: it may hand on a request of
 * another host, all else is of this one. */
static void take_strange_message(const struct sw_local_message *message, size_t len)
{
    union ibv_gid source;
    uint64_t service_id;
    if (!sw_local_message_is_sound(message, len) || message->kind != SW_LOCAL_PACKET)
        return;
    memcpy(source.raw, message->remote_gid, sizeof(source.raw));
    if (!sw_cm_asks(message->mad, SW_MAD_BYTES, &service_id) && !sw_netdev_is_local_gid(&source))
        return;
    const struct sw_cm_path path = sw_local_message_path(message);
    user->packet(&path, message->mad);
}

/* The first message of a connection may bring a descriptor. */
static bool read_first_message(struct sw_local_connection *connection)
{
    struct sw_local_message message;
    int fd;
    size_t count;
    ssize_t got =
        sw_fd_pass_receive(connection->fd, &message, sizeof(message), &fd, 1, &count, MSG_DONTWAIT);
    if (got < 0)
        return got == -ECONNRESET || got == -EINTR;
    if (got == 0) {
        sw_local_connection_end(connection);
        return false;
    }
    if (got == (ssize_t)sizeof(message) && message.kind == SW_LOCAL_HANDOVER &&
        connection->inherited_fd < 0) {
        connection->inherited_fd = sw_fd_own(fd);
        connection->is_reserved = true;
    } else if (fd >= 0) {
        close(fd);
    }
    local_take_message(connection, &message, (size_t)got);
    return true;
}

/* Whether the peer has ended, and nothing of it is left to read. */
static bool is_read_out(int fd)
{
    uint8_t byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Returns whether there may be more. */
static bool read_messages(struct sw_local_connection *connection)
{
    static struct sw_local_message messages[MESSAGES];
    struct iovec iov[MESSAGES];
    struct mmsghdr headers[MESSAGES];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        iov[i] = (struct iovec){&messages[i], sizeof(messages[i])};
        headers[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    int count = recvmmsg(connection->fd, headers, MESSAGES, MSG_DONTWAIT, NULL);
    if (count < 0)
        return errno == ECONNRESET || errno == EINTR; /* told once, then what still waits */
    bool seems_over = false;                          /* last words may follow: base/fd_pass.h */
    for (int i = 0; i < count; i++) {
        if (headers[i].msg_len == 0)
            seems_over = true;
        else if (connection->is_strange)
            take_strange_message(&messages[i], headers[i].msg_len);
        else
            local_take_message(connection, &messages[i], headers[i].msg_len);
    }
    if (seems_over && is_read_out(connection->fd))
        sw_local_connection_end(connection);
    return seems_over || count == (int)MESSAGES;
}

/* ---- the engine ---- */

/* Whether messages may pass. */
static bool prove_connection(struct sw_local_connection *connection)
{
    if (connection->is_judged || connection->is_dead)
        return connection->is_judged;
    int rc = sw_proof_step(&connection->proof, connection->fd);
    if (rc == 0)
        return false;
    sw_proof_end(&connection->proof);
    connection->is_strange = rc == -EACCES && sw_direct.has_packets && !connection->hands_over;
    connection->is_judged = rc > 0 || connection->is_strange;
    if (rc > 0)
        sw_local_uncount_unproven(connection);
    if (connection->is_strange) {
        connection->asked_count = 0; /* whose requests they are, timers see to */
        sw_link_meet_stranger();
    }
    if (rc < 0 && connection->hands_over)
        sw_local_successor_refused(connection->successor_slot);
    if (!connection->is_judged || (connection->hands_over && !sw_local_successor_give(connection)))
        sw_local_connection_end(connection);
    else if (connection->first)
        sw_engine_watch_room(connection->fd, connection, SW_WATCH_CM, true);
    return connection->is_judged;
}

static void serve_connection(struct sw_local_connection *connection)
{
    if (!prove_connection(connection))
        return;
    for (uint32_t round = 0; !connection->is_dead && round < ROUNDS; round++)
        if (!(connection->slot || connection->is_strange ? read_messages(connection)
                                                         : read_first_message(connection)))
            break;
    if (!connection->is_dead)
        sw_local_connection_flush(connection);
}

static void on_connection(uint64_t what)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    serve_connection((struct sw_local_connection *)(uintptr_t)what);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static void local_on_listener(uint64_t what)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    sw_local_accept((int)(what >> 4));
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

/* Tells what the end of a connection means, and frees it. */
static void bury_connection(struct sw_local_connection *connection)
{
    const uint32_t asked = sw_min_u32(connection->asked_count, SW_LOCAL_ASKED_MAX);
    sw_local_unmake_peer(connection);
    const bool is_gone = (connection->is_peer || asked) && !sw_local_lives(connection);
    struct sw_local_connection *peer = sw_local_peer(connection->slot);
    for (uint32_t i = 0; i < asked; i++) {
        if (is_gone)
            user->unanswered(connection->asked[i].local_comm_id, connection->asked[i].peer_gid);
        else if (peer) /* perhaps it is about to end, and closes one socket after another */
            sw_local_connection_note_asked(peer, &connection->asked[i]);
    }
    if (is_gone && connection->is_peer)
        user->gone(connection->slot);
    if (connection->inherited_fd >= 0)
        user->inherit(connection->slot, connection->inherited_fd);
    sw_local_successor_forget(connection);
    sw_local_service_forget(connection);
    sw_local_uncount_unproven(connection);
    sw_local_connection_free(connection);
}

static void tell_missed(void)
{
    for (uint32_t i = 0; i < sizeof(missed) / sizeof(missed[0]); i++)
        for (; missed[i]; missed[i] &= missed[i] - 1) {
            const uint32_t slot = 64 * i + (uint32_t)__builtin_ctzll(missed[i]);
            if (!sw_local_has_peer(slot))
                user->gone(slot);
        }
}

void sw_local_step(void)
{
    sw_rdmacm_assert_locked();
    if (!sw_local_take_wish())
        return;
    struct sw_local_connection *dead = sw_local_take_dead();
    while (dead) {
        struct sw_local_connection *connection = dead;
        dead = connection->next;
        bury_connection(connection);
    }
    tell_missed();
}

/* ---- life ---- */

void sw_local_init(const struct sw_local_user *the_user)
{
    user = the_user;
    sw_engine_handle(SW_WATCH_CM, on_connection);
    sw_engine_handle(SW_WATCH_CM_LISTENER, local_on_listener);
}

int sw_local_open(void)
{
    if (own_listener >= 0)
        return 0;
    char name[SW_NAME_BYTES];
    sw_registry_name(sw_nic.slot, "cm", name);
    int fd = sw_name_bind(SOCK_SEQPACKET, name);
    if (fd < 0)
        return fd;
    if (listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        return -error;
    }
    own_listener = fd;
    sw_local_serve_process(fd);
    return 0;
}

void sw_local_fork_child(void)
{
    sw_local_table_fork_child();
    sw_local_service_fork_child();
    sw_local_successor_fork_child();
    own_listener = -1;
    memset(missed, 0, sizeof(missed));
    sw_local_take_wish();
}
