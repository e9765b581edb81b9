/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/hold.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "device/queue/qp.h"
#include "device/queue/xrc_impl.h"
#include "link/direct/process/control.h"
#include "link/direct/process/proof.h"
#include "link/engine.h"
#include "link/names/registry.h"

/* An owner that is stopped does not answer. */
#define ANSWER_MS 2000

struct call {
    struct sw_message head;
    uint64_t number;
    int32_t mask; /* of a modification; 0: a query */
    int32_t rc;   /* in the answer */
    struct ibv_qp_attr attr;
};

/* ---- who holds ---- */

static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls;

void sw_hold_fork_child(void)
{
    pthread_mutex_init(&calling, NULL);
}

/* The answer to the latest call: an earlier one may have been too late. */
static int receive_answer(int fd, struct call *out)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    const uint64_t deadline_ns = sw_clock_ns() + ANSWER_MS * SW_NS_PER_MS;
    for (;;) {
        uint64_t now_ns = sw_clock_ns();
        int count = now_ns < deadline_ns
                        ? poll(&ready, 1, (int)((deadline_ns - now_ns) / SW_NS_PER_MS) + 1)
                        : 0;
        if (count == 0)
            return -ETIMEDOUT;
        if (count < 0 && errno == EINTR)
            continue;
        ssize_t len = recv(fd, out, sizeof(*out), MSG_DONTWAIT | MSG_TRUNC);
        if (len != sizeof(*out) || out->head.type != SW_MESSAGE_HOLD)
            return -EIO;
        if (out->number == calls)
            return out->rc;
    }
}

static int ask_owner(int fd, const void *message, size_t len_bytes, struct call *out)
{
    return send(fd, message, len_bytes, MSG_NOSIGNAL) == (ssize_t)len_bytes
               ? receive_answer(fd, out)
               : -EIO;
}

int sw_hold_open(const struct sw_pub_domain *domain, uint32_t qpn)
{
    struct sw_message opening = {.type = SW_MESSAGE_HOLD,
                                 .version = SW_PUB_VERSION,
                                 .hold = {.domain = *domain, .qpn = qpn}};
    struct call answer;
    pid_t pid;
    int fd = sw_registry_connect(sw_qpn_slot(qpn)), rc = -EINVAL;
    if (fd < 0)
        return fd == -ECONNREFUSED ? rc : fd;
    pthread_mutex_lock(&calling);
    opening.hold.number = ++calls;
    if (!sw_proof_run(fd, ANSWER_MS, &pid))
        rc = ask_owner(fd, &opening, sizeof(opening), &answer);
    pthread_mutex_unlock(&calling);
    if (rc) {
        close(fd);
        return rc == -EIO ? -EINVAL : rc;
    }
    return fd;
}

int sw_hold_call(int fd, int mask, struct ibv_qp_attr *attr)
{
    struct call call = {
        .head = {.type = SW_MESSAGE_HOLD, .version = SW_PUB_VERSION}, .mask = mask, .attr = *attr};
    pthread_mutex_lock(&calling);
    call.number = ++calls;
    int rc = ask_owner(fd, &call, sizeof(call), &call);
    pthread_mutex_unlock(&calling);
    if (!rc && !mask)
        *attr = call.attr;
    return rc;
}

/* ---- the owner's engine ---- */

struct hold {
    _Alignas(16) int fd;
    struct sw_qp *qp;
};

static void answer_call(int fd, uint64_t number, int rc, const struct ibv_qp_attr *attr)
{
    struct call out = {
        .head = {.type = SW_MESSAGE_HOLD, .version = SW_PUB_VERSION}, .number = number, .rc = rc};
    if (attr)
        out.attr = *attr;
    ssize_t ignored = send(fd, &out, sizeof(out), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored; /* who asked has gone */
}

bool sw_hold_begin(int fd, const struct sw_message *asked)
{
    struct hold *hold = aligned_alloc(16, sizeof(*hold));
    int rc = hold ? sw_xrcd_hold_qp(&asked->hold.domain, asked->hold.qpn, &hold->qp) : -ENOMEM;
    answer_call(fd, asked->hold.number, rc, NULL);
    if (rc) {
        free(hold);
        return false;
    }
    hold->fd = fd;
    sw_engine_rewatch(fd, hold, SW_WATCH_HOLD);
    return true;
}

static void serve_call(struct hold *hold, const struct call *call)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    if (call->mask) {
        answer_call(hold->fd, call->number, sw_qp_modify(hold->qp, &call->attr, call->mask), NULL);
    } else {
        sw_qp_query(hold->qp, &attr, &cap);
        answer_call(hold->fd, call->number, 0, &attr);
    }
}

void sw_hold_ready(uint64_t what)
{
    struct hold *hold = (struct hold *)(uintptr_t)what;
    struct call call;
    ssize_t len = recv(hold->fd, &call, sizeof(call), MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len == sizeof(call) && call.head.type == SW_MESSAGE_HOLD &&
        call.head.version == SW_PUB_VERSION) {
        serve_call(hold, &call);
        return;
    }
    sw_engine_unwatch(hold->fd);
    close(hold->fd);
    sw_xrcd_release_qp(hold->qp);
    free(hold);
}
