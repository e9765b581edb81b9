/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/nic.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/held_signals.h"
#include "base/log.h"
#include "base/random.h"
#include "base/shm.h"
#include "device/memory/move_gate.h"
#include "device/memory/mr_impl.h"
#include "device/nic/context_impl.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"
#include "device/serve/mcast.h"

struct sw_nic sw_nic = {.lock = PTHREAD_MUTEX_INITIALIZER, .pub_fd = -1};

/* Free ranges of the receive arena, first fit, page granular; guarded by nic.lock. */
struct rq_range {
    struct rq_range *next;
    uint64_t offset, len_bytes;
};
static struct rq_range *rq_free_list;

#define RQ_GRAIN 4096u

void sw_nic_set_link(const struct sw_link_ops *ops)
{
    pthread_mutex_lock(&sw_nic.lock);
    if (sw_nic.link != ops)
        sw_nic.link = ops;
    pthread_mutex_unlock(&sw_nic.lock);
}

/* A file of *len_bytes, or of less, but not of less than len_min. The mapping is of full size. */
static int create_tables(uint64_t len_min, uint64_t *len_bytes, struct sw_pub **out, int *out_fd)
{
    int fd = sw_fd_own(sw_shm_create_most("sidewire-tables", len_min, len_bytes));
    if (fd < 0) {
        sw_error("no shared memory for the device's tables: %s%s", strerror(-fd),
                 fd == -EFBIG ? "" : " (memfd_create refused and /dev/shm, /tmp not writable)");
        return fd;
    }
    struct sw_pub *pub = sw_shm_map(fd, sizeof(struct sw_pub), true);
    if (!pub) {
        int err = errno;
        sw_error("cannot map the device's tables: %s", strerror(err));
        close(fd);
        return -err;
    }
    *out = pub;
    *out_fd = fd;
    return 0;
}

static void seal_tables(void)
{
    int rc = sw_shm_seal_readonly(sw_nic.pub_fd);
    if (rc)
        sw_debug("tables not sealed: %s", strerror(-rc));
}

static void nic_fill_header(void)
{
    struct sw_pub_header *header = &sw_nic.pub->header;
    header->version = SW_PUB_VERSION;
    header->slot = sw_nic.slot;
    header->nonce = sw_nic.nonce;
    header->pid = (uint32_t)getpid();
    header->magic = SW_PUB_MAGIC;
}

/* Tables live as long as the process; slot and engine are claimed again in a forked child. */
static int start_locked(void)
{
    sw_mutex_assert_held(&sw_nic.lock);
    int rc = 0;
    if (!sw_nic.pub) {
        sw_nic.pub_bytes = sizeof(struct sw_pub);
        rc = create_tables(SW_PUB_BYTES_MIN, &sw_nic.pub_bytes, &sw_nic.pub, &sw_nic.pub_fd);
        if (rc)
            return rc;
        rq_free_list->len_bytes = sw_nic.pub_bytes - offsetof(struct sw_pub, rq_arena);
        seal_tables();
    }
    sw_nic.nonce = sw_random64() | 1;
    rc = sw_nic.link->start();
    if (rc)
        return rc;
    nic_fill_header();
    sw_nic.linked = true;
    return 0;
}

/*
 * A child of a process with a NIC gets its own: fresh tables at the same address (the old ones are
 * the parent's memory, shared), a slot and an engine once it creates a QP or opens a device.
 * Objects of the parent stay the parent's: its QPs are in ERR here for good. Regions keep their
 * keys.
 */
static void nic_renew_in_child(void)
{
    struct sw_pub *fresh;
    int fd;
    sw_nic.link->fork_child();
    uint64_t len_bytes = sw_nic.pub_bytes; /* the receive rings lie where they lay */
    if (create_tables(len_bytes, &len_bytes, &fresh, &fd)) {
        sw_error("a forked child has no tables: its device does not work");
        return;
    }
    sw_mr_fork_child(sw_nic.pub, fresh);
    munmap(fresh, sizeof(*fresh));
    if (!sw_map_sparse(sw_nic.pub, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
        sw_error("a forked child cannot map its tables: its device does not work");
        return;
    }
    close(sw_nic.pub_fd);
    sw_nic.pub_fd = fd;
    seal_tables();
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i))
        sw_qp_fork_child(sw_nic.qps[i]);
    sw_mcast_fork_child();
    sw_xrcd_fork_child();
    sw_counts_fork_child();
    sw_netdev_fork_child();
    sw_nic.linked = false;
}

static sigset_t mask_before_fork; /* under the NIC's lock */

static void nic_fork_child(void)
{
    pthread_mutex_init(&sw_nic.lock, NULL);
    if (sw_nic.pub)
        nic_renew_in_child();
    sw_signals_let_go_held(&mask_before_fork);
}

static void device_nic_fork_prepare(void)
{
    sigset_t mask;
    sw_signals_hold(&mask);
    pthread_mutex_lock(&sw_nic.lock);
    mask_before_fork = mask;
    if (sw_nic.linked && sw_nic.link->fork_prepare)
        sw_nic.link->fork_prepare();
}

static void nic_fork_parent(void)
{
    const sigset_t mask = mask_before_fork;
    if (sw_nic.linked && sw_nic.link->fork_parent)
        sw_nic.link->fork_parent();
    pthread_mutex_unlock(&sw_nic.lock);
    sw_signals_let_go_held(&mask);
}

static int allocate_once(void)
{
    if (sw_nic.started)
        return 0;
    sw_nic.qps = calloc(SW_MAX_QP, sizeof(*sw_nic.qps));
    sw_nic.mrs = calloc(SW_MAX_MR, sizeof(*sw_nic.mrs));
    sw_nic.cq_used = calloc(SW_MAX_CQ / 64, sizeof(*sw_nic.cq_used));
    rq_free_list = calloc(1, sizeof(*rq_free_list));
    if (!sw_nic.qps || !sw_nic.mrs || !sw_nic.cq_used || !rq_free_list) {
        free(sw_nic.qps);
        free(sw_nic.mrs);
        free(sw_nic.cq_used);
        free(rq_free_list);
        return -ENOMEM;
    }
    rq_free_list->offset = offsetof(struct sw_pub, rq_arena);
    rq_free_list->len_bytes = SW_PUB_RQ_BYTES;
    sw_draw_start(&sw_nic.qp_draw, SW_MAX_QP);
    sw_draw_start(&sw_nic.mr_draw, SW_MAX_MR);
    sw_draw_start(&sw_nic.srq_draw, SW_MAX_SRQ);
    pthread_atfork(device_nic_fork_prepare, nic_fork_parent, nic_fork_child);
    sw_move_gate_install();
    sw_nic.started = true;
    return 0;
}

int sw_nic_start(void)
{
    pthread_mutex_lock(&sw_nic.lock);
    int rc = sw_nic.linked ? 0 : allocate_once();
    if (!rc && !sw_nic.linked)
        rc = start_locked();
    pthread_mutex_unlock(&sw_nic.lock);
    return rc;
}

int sw_nic_claim_qp(struct sw_qp *qp)
{
    sw_mutex_assert_held(&sw_nic.lock);
    for (uint32_t tried = 0; tried < sw_draw_all(&sw_nic.qp_draw); tried++) {
        uint32_t index = sw_draw(&sw_nic.qp_draw);
        if (!sw_nic.qps[index]) {
            sw_nic.qps[index] = qp;
            sw_qp_set_add(&sw_nic.qp_set, index);
            sw_qp_set_add(&sw_nic.awake, index);
            return (int)index;
        }
    }
    return -ENOMEM;
}

void sw_nic_release_qp(uint32_t index)
{
    sw_mutex_assert_held(&sw_nic.lock);
    sw_nic.qps[index] = NULL;
    sw_qp_set_remove(&sw_nic.qp_set, index);
    sw_qp_set_remove(&sw_nic.awake, index);
}

int sw_nic_claim_cq(void)
{
    sw_mutex_assert_held(&sw_nic.lock);
    for (uint32_t tried = 0; tried < SW_MAX_CQ; tried++) {
        uint32_t index = sw_nic.cq_next++ % SW_MAX_CQ;
        uint64_t bit = 1ull << index % 64;
        if (!(sw_nic.cq_used[index / 64] & bit)) {
            sw_nic.cq_used[index / 64] |= bit;
            return (int)index;
        }
    }
    return -ENOMEM;
}

void sw_nic_release_cq(uint32_t index)
{
    sw_mutex_assert_held(&sw_nic.lock);
    sw_nic.cq_used[index / 64] &= ~(1ull << index % 64);
}

uint64_t sw_nic_rq_alloc(uint64_t len_bytes)
{
    sw_mutex_assert_held(&sw_nic.lock);
    len_bytes = (len_bytes + RQ_GRAIN - 1) & ~(uint64_t)(RQ_GRAIN - 1);
    for (struct rq_range **at = &rq_free_list; *at; at = &(*at)->next) {
        struct rq_range *range = *at;
        if (range->len_bytes < len_bytes)
            continue;
        uint64_t offset = range->offset;
        range->offset += len_bytes;
        range->len_bytes -= len_bytes;
        if (!range->len_bytes && range->next) {
            *at = range->next;
            free(range);
        }
        return offset;
    }
    return 0;
}

void sw_nic_rq_free(uint64_t offset, uint64_t len_bytes)
{
    sw_mutex_assert_held(&sw_nic.lock);
    len_bytes = (len_bytes + RQ_GRAIN - 1) & ~(uint64_t)(RQ_GRAIN - 1);
    struct rq_range **at = &rq_free_list;
    while (*at && (*at)->offset < offset && (*at)->offset + (*at)->len_bytes != offset)
        at = &(*at)->next;
    if (*at && (*at)->offset + (*at)->len_bytes == offset) {
        (*at)->len_bytes += len_bytes;
    } else {
        struct rq_range *range = malloc(sizeof(*range));
        if (!range)
            return; /* the space is lost until exit, nothing else */
        *range = (struct rq_range){*at, offset, len_bytes};
        *at = range;
    }
    struct rq_range *range = *at, *next = range->next;
    if (next && range->offset + range->len_bytes == next->offset) {
        range->len_bytes += next->len_bytes;
        range->next = next->next;
        free(next);
    }
}
