/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/mailbag.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/shm.h"

enum { ROOMS = SW_MAILBAG_MESSAGES + SW_MAILBAG_SPARE };
#define BAG_BYTES ((size_t)ROOMS * SW_MAILBAG_ROOM)

bool sw_mailbag_open(struct sw_mailbag *bag)
{
    *bag = (struct sw_mailbag){.control_bytes = sizeof(bag->control[0])};
    for (uint8_t i = 0; i < SW_MAILBAG_MESSAGES; i++)
        bag->room[i] = i;
    for (uint8_t i = 0; i < SW_MAILBAG_SPARE; i++)
        bag->spare[i] = (uint8_t)(SW_MAILBAG_MESSAGES + i);
    bag->bytes =
        sw_map_sparse(NULL, BAG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return bag->bytes;
}

void sw_mailbag_close(struct sw_mailbag *bag)
{
    if (bag->bytes)
        munmap(bag->bytes, BAG_BYTES);
    bag->bytes = NULL;
}

static void enter_room(struct sw_mailbag *bag, uint32_t message)
{
    bag->iov[message] =
        (struct iovec){bag->bytes + (size_t)bag->room[message] * SW_MAILBAG_ROOM, SW_MAILBAG_ROOM};
}

static void make_ready(struct sw_mailbag *bag, uint32_t want)
{
    for (uint32_t i = 0; i < bag->used; i++) {
        bag->messages[i].msg_hdr.msg_namelen = sizeof(bag->from[i]);
        bag->messages[i].msg_hdr.msg_controllen = bag->control_bytes;
    }
    bag->used = 0;
    for (uint32_t i = bag->ready; i < want; i++) {
        enter_room(bag, i);
        bag->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &bag->from[i],
            .msg_namelen = sizeof(bag->from[i]),
            .msg_iov = &bag->iov[i],
            .msg_iovlen = 1,
            .msg_control = bag->control[i],
            .msg_controllen = bag->control_bytes,
        };
    }
    bag->ready = want > bag->ready ? want : bag->ready;
}

/* By the bare system call: libc's is a cancellation point, whose bookkeeping costs as much as all
 * else in an idle poll. */
int sw_mailbag_fill(struct sw_mailbag *bag, int fd, uint32_t want)
{
    make_ready(bag, want);
    long count;
    if (want == 1) { /* the same for less */
        count = syscall(SYS_recvmsg, fd, &bag->messages->msg_hdr, MSG_DONTWAIT);
        bag->messages->msg_len = count > 0 ? (uint32_t)count : 0;
        count = count < 0 ? count : 1;
    } else {
        count = syscall(SYS_recvmmsg, fd, bag->messages, want, MSG_DONTWAIT, NULL);
    }
    bag->used = count > 0 ? (uint32_t)count : 0;
    return (int)count;
}

/* Always the first one there is, which is in the cache rather than others. */
static uint8_t *find_spare(struct sw_mailbag *bag)
{
    for (uint8_t *room = bag->spare; room < bag->spare + SW_MAILBAG_SPARE; room++)
        if (!bag->holds[*room].users)
            return room;
    return NULL;
}

struct sw_hold *sw_mailbag_hold(struct sw_mailbag *bag, uint32_t message)
{
    const bool is_worth_it = sw_mailbag_len(bag, message) >= SW_MAILBAG_WORTH;
    return is_worth_it && find_spare(bag) ? &bag->holds[bag->room[message]] : NULL;
}

void sw_mailbag_pass(struct sw_mailbag *bag, uint32_t message)
{
    const uint8_t held = bag->room[message];
    if (!bag->holds[held].users)
        return;
    uint8_t *spare = find_spare(bag); /* one at least, or it would not have been held */
    bag->room[message] = *spare;
    *spare = held;
    enter_room(bag, message);
}
