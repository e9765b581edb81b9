/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/neighbour.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES 4096
#define ETHERNET_BYTES 6
#define KNOWN (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT)

struct question {
    struct nlmsghdr head;
    struct ndmsg neighbour;
    struct rtattr attr;
    uint8_t address[16];
};

/* A GID that is an IPv4 address has it in its last four bytes. */
static struct question question_of(unsigned int ifindex, const union ibv_gid *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const bool is_v4 = !memcmp(address->raw, mapped, sizeof(mapped));
    const size_t len = is_v4 ? 4 : 16;
    struct question question = {
        .head = {.nlmsg_type = RTM_GETNEIGH, .nlmsg_flags = NLM_F_REQUEST},
        .neighbour = {.ndm_family = is_v4 ? AF_INET : AF_INET6, .ndm_ifindex = (int)ifindex},
        .attr = {.rta_type = NDA_DST, .rta_len = (unsigned short)RTA_LENGTH(len)},
    };
    memcpy(question.address, address->raw + sizeof(address->raw) - len, len);
    question.head.nlmsg_len =
        (uint32_t)(NLMSG_LENGTH(sizeof(question.neighbour)) + RTA_LENGTH(len));
    return question;
}

static bool read_answer(struct nlmsghdr *answer, uint8_t mac[6])
{
    const struct ndmsg *neighbour = NLMSG_DATA(answer);
    if (answer->nlmsg_type != RTM_NEWNEIGH || !(neighbour->ndm_state & KNOWN))
        return false;
    int len = (int)(answer->nlmsg_len - NLMSG_LENGTH(sizeof(*neighbour)));
    struct rtattr *attr = (struct rtattr *)((char *)answer + NLMSG_SPACE(sizeof(struct ndmsg)));
    for (; RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
        if (attr->rta_type != NDA_LLADDR || RTA_PAYLOAD(attr) != ETHERNET_BYTES)
            continue;
        memcpy(mac, RTA_DATA(attr), ETHERNET_BYTES);
        return true;
    }
    return false;
}

bool sw_neighbour_find(unsigned int ifindex, const union ibv_gid *address, uint8_t mac[6])
{
    const struct question question = question_of(ifindex, address);
    union {
        struct nlmsghdr head;
        uint8_t room[ANSWER_BYTES];
    } answer;
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return false;
    ssize_t got = send(fd, &question, question.head.nlmsg_len, 0);
    while (got >= 0 && (got = recv(fd, &answer, sizeof(answer), 0)) < 0 && errno == EINTR)
        got = 0;
    close(fd);
    return got > 0 && NLMSG_OK(&answer.head, (unsigned int)got) && read_answer(&answer.head, mac);
}
