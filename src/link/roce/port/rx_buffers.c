/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/rx_buffers.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/minmax.h"
#include "base/shm.h"

enum { ROOMS = SW_RX_BUFFERS_MESSAGES + SW_RX_BUFFERS_SPARE };
#define BUFFERS_BYTES ((size_t)ROOMS * SW_RX_BUFFERS_ROOM)

bool sw_rx_buffers_open(struct sw_rx_buffers *buffers)
{
    *buffers = (struct sw_rx_buffers){.control_bytes = sizeof(buffers->control[0])};
    for (uint8_t i = 0; i < SW_RX_BUFFERS_MESSAGES; i++)
        buffers->room[i] = i;
    for (uint8_t i = 0; i < SW_RX_BUFFERS_SPARE; i++)
        buffers->spare[i] = (uint8_t)(SW_RX_BUFFERS_MESSAGES + i);
    buffers->bytes = sw_map_sparse(NULL, BUFFERS_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return buffers->bytes;
}

void sw_rx_buffers_close(struct sw_rx_buffers *buffers)
{
    if (buffers->bytes)
        munmap(buffers->bytes, BUFFERS_BYTES);
    buffers->bytes = NULL;
}

static void enter_room(struct sw_rx_buffers *buffers, uint32_t message)
{
    buffers->iov[message] = (struct iovec){
        buffers->bytes + (size_t)buffers->room[message] * SW_RX_BUFFERS_ROOM, SW_RX_BUFFERS_ROOM};
}

static void make_ready(struct sw_rx_buffers *buffers, uint32_t want, bool names)
{
    for (uint32_t i = 0; i < buffers->used; i++)
        buffers->messages[i].msg_hdr.msg_controllen = buffers->control_bytes;
    buffers->used = 0;
    for (uint32_t i = buffers->ready; i < want; i++) {
        enter_room(buffers, i);
        buffers->messages[i].msg_hdr = (struct msghdr){
            .msg_iov = &buffers->iov[i],
            .msg_iovlen = 1,
            .msg_control = buffers->control[i],
            .msg_controllen = buffers->control_bytes,
        };
    }
    buffers->ready = sw_max_u32(want, buffers->ready);
    for (uint32_t i = 0; i < want; i++) {
        struct msghdr *message = &buffers->messages[i].msg_hdr;
        message->msg_name = names ? &buffers->from[i] : NULL;
        message->msg_namelen = names ? sizeof(buffers->from[i]) : 0;
    }
}

/* By the bare system call: libc's is a cancellation point, whose bookkeeping costs as much as all
 * else in an idle poll. */
int sw_rx_buffers_fill(struct sw_rx_buffers *buffers, int fd, uint32_t want, bool names)
{
    make_ready(buffers, want, names);
    long count;
    if (want == 1) { /* the same for less */
        count = syscall(SYS_recvmsg, fd, &buffers->messages->msg_hdr, MSG_DONTWAIT);
        buffers->messages->msg_len = count > 0 ? (uint32_t)count : 0;
        count = count < 0 ? count : 1;
    } else {
        count = syscall(SYS_recvmmsg, fd, buffers->messages, want, MSG_DONTWAIT, NULL);
    }
    buffers->used = count > 0 ? (uint32_t)count : 0;
    return (int)count;
}

int sw_rx_buffers_fill_bytes(struct sw_rx_buffers *buffers, int fd)
{
    make_ready(buffers, 1, false);
    const long len = syscall(SYS_recvfrom, fd, buffers->iov->iov_base, SW_RX_BUFFERS_ROOM,
                             MSG_DONTWAIT, NULL, NULL);
    if (len < 0)
        return -1;
    buffers->messages->msg_len = (uint32_t)len;
    buffers->messages->msg_hdr.msg_controllen = 0;
    buffers->used = 1;
    return 1;
}

/* Always the first one there is, which is in the cache rather than others. */
static uint8_t *find_spare(struct sw_rx_buffers *buffers)
{
    for (uint8_t *room = buffers->spare; room < buffers->spare + SW_RX_BUFFERS_SPARE; room++)
        if (!buffers->holds[*room].users)
            return room;
    return NULL;
}

struct sw_hold *sw_rx_buffers_hold(struct sw_rx_buffers *buffers, uint32_t message)
{
    const bool is_worth_it = sw_rx_buffers_len(buffers, message) >= SW_RX_BUFFERS_WORTH;
    return is_worth_it && find_spare(buffers) ? &buffers->holds[buffers->room[message]] : NULL;
}

void sw_rx_buffers_pass(struct sw_rx_buffers *buffers, uint32_t message)
{
    const uint8_t held = buffers->room[message];
    if (!buffers->holds[held].users)
        return;
    uint8_t *spare = find_spare(buffers); /* one at least, or it would not have been held */
    buffers->room[message] = *spare;
    *spare = held;
    enter_room(buffers, message);
}
