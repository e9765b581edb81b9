/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/nic.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nic_rig.h"

#define PAGE 4096ull
#define ARENA offsetof(struct sw_pub, rq_arena)
#define PAGES (SW_PUB_RQ_BYTES / PAGE)

static void sw_nic_start__once(void **state)
{
    (void)state;
    assert_int_equal(sw_nic_start(), 0);
    assert_int_equal(rig_log.starts, 0); /* opening the device did */
    assert_int_equal(sw_nic.slot, 77);
    assert_int_not_equal(sw_nic.nonce, 0);
    const struct sw_pub_header *header = &sw_nic.pub->header;
    assert_int_equal(header->magic, SW_PUB_MAGIC);
    assert_int_equal(header->version, SW_PUB_VERSION);
    assert_int_equal(header->slot, 77);
    assert_int_equal(header->nonce, sw_nic.nonce);
    assert_int_equal(header->pid, getpid());
}

/* A process that gets the tables' descriptor can neither write nor shrink them. */
static void sw_nic_start__tables_are_sealed(void **state)
{
    (void)state;
    assert_ptr_equal(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, sw_nic.pub_fd, 0),
                     MAP_FAILED);
    assert_int_equal(pwrite(sw_nic.pub_fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(sw_nic.pub_fd, 0), -1);
    void *seen = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, sw_nic.pub_fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(mprotect(seen, PAGE, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(munmap(seen, PAGE), 0);
}

static void in_child(struct rig *rig, void (*check)(struct rig *rig))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        check(rig);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static struct sw_qp *parents_qp;
static struct sw_mr *parents_mr;
static uint64_t parents_nonce;

#define child_needs(condition)         \
    do {                               \
        if (!(condition)) {            \
            _exit(__LINE__ % 255 + 1); \
        }                              \
    } while (0)

static void look_at_child(struct rig *rig)
{
    static uint8_t bytes[8];
    uint8_t *va;
    struct ibv_sge sge = rig_sge(parents_mr, bytes, 8);
    child_needs(rig_log.fork_prepares == 1 && rig_log.forks == 1 && rig_log.fork_parents == 0);
    child_needs(!sw_nic.linked);
    child_needs(pwrite(sw_nic.pub_fd, "x", 1, 0) == -1); /* sealed, as the parent's */
    child_needs(sw_qp_state(parents_qp) == IBV_QPS_ERR);
    child_needs((uint32_t)atomic_load(&parents_qp->pub->bind_word) == 0); /* fresh tables */
    sge.addr = parents_mr ? sw_nic.pub->mrs[parents_mr->index].iova : 0;
    child_needs(sw_sge_resolve(rig->pd->id, &sge, 0, &va)); /* keys go on */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    child_needs(sw_qp_modify(parents_qp, &attr, IBV_QP_STATE) == -EINVAL);

    struct sw_qp *own = rig_qp(rig, 1, 1, NULL);
    child_needs(rig_log.starts == 1 && sw_nic.linked && sw_nic.nonce != parents_nonce);
    child_needs(sw_nic.pub->header.pid == (uint32_t)getpid());
    child_needs(own->index != parents_qp->index);
    rig_take_to(own, IBV_QPS_RTS);
    child_needs((uint32_t)atomic_load(&own->pub->bind_word) == IBV_QPS_RTS);
    child_needs(sw_qp_destroy(own) == 0 && sw_qp_destroy(parents_qp) == 0);
    child_needs(sw_mr_dereg(parents_mr) == 0);
}

static void sw_nic_fork__the_child_has_a_nic_of_its_own(void **state)
{
    struct rig *rig = *state;
    static uint8_t bytes[64];
    parents_qp = rig_qp(rig, 4, 4, NULL);
    parents_mr = rig_mr(rig, bytes, sizeof(bytes), RIG_RIGHTS);
    parents_nonce = sw_nic.nonce;
    rig_take_to(parents_qp, IBV_QPS_RTS);
    uint64_t word = atomic_load(&parents_qp->pub->bind_word);
    in_child(rig, look_at_child);
    assert_int_equal(rig_log.fork_prepares, 1);
    assert_int_equal(rig_log.fork_parents, 1);
    assert_int_equal(rig_log.forks, 0);
    /* The parent's tables are as they were, whatever the child did. */
    assert_int_equal(atomic_load(&parents_qp->pub->bind_word), word);
    assert_int_equal(sw_nic.pub->header.pid, getpid());
    assert_int_not_equal(atomic_load(&sw_nic.pub->mrs[parents_mr->index].key_word), 0);
    assert_int_equal(sw_qp_state(parents_qp), IBV_QPS_RTS);
    sw_qp_destroy(parents_qp);
    sw_mr_dereg(parents_mr);
}

/* The NIC is asked for its objects with its lock. */
static int claim_qp(struct sw_qp *qp)
{
    pthread_mutex_lock(&sw_nic.lock);
    int index = sw_nic_claim_qp(qp);
    pthread_mutex_unlock(&sw_nic.lock);
    return index;
}

static void release_qp(uint32_t index)
{
    pthread_mutex_lock(&sw_nic.lock);
    sw_nic_release_qp(index);
    pthread_mutex_unlock(&sw_nic.lock);
}

static int claim_cq(void)
{
    pthread_mutex_lock(&sw_nic.lock);
    int index = sw_nic_claim_cq();
    pthread_mutex_unlock(&sw_nic.lock);
    return index;
}

static void release_cq(uint32_t index)
{
    pthread_mutex_lock(&sw_nic.lock);
    sw_nic_release_cq(index);
    pthread_mutex_unlock(&sw_nic.lock);
}

static uint64_t rq_alloc(uint64_t len_bytes)
{
    pthread_mutex_lock(&sw_nic.lock);
    uint64_t offset = sw_nic_rq_alloc(len_bytes);
    pthread_mutex_unlock(&sw_nic.lock);
    return offset;
}

static void rq_free(uint64_t offset, uint64_t len_bytes)
{
    pthread_mutex_lock(&sw_nic.lock);
    sw_nic_rq_free(offset, len_bytes);
    pthread_mutex_unlock(&sw_nic.lock);
}

static void sw_nic_claim_qp__does_not_count(void **state)
{
    enum { COUNT = 500 };
    (void)state;
    static struct sw_qp qp;
    int before = -2, counting = 0;
    for (int i = 0; i < COUNT; i++) {
        int index = claim_qp(&qp);
        assert_true(index >= 0);
        counting += index == before + 1;
        before = index;
        release_qp((uint32_t)index);
    }
    assert_true(counting < 80); /* 16 are expected */
}

static void sw_nic_claim_qp__all_and_not_again_at_once(void **state)
{
    struct rig *rig = *state;
    struct sw_qp qp;
    bool *taken = calloc(SW_MAX_QP, sizeof(*taken));
    assert_non_null(taken);
    int first = claim_qp(&qp);
    release_qp((uint32_t)first);
    int second = claim_qp(&qp);
    assert_int_not_equal(first, second); /* a late packet for the first must not meet the second */
    release_qp((uint32_t)second);
    for (uint32_t i = 0; i < SW_MAX_QP; i++) {
        int index = claim_qp(&qp);
        assert_in_range(index, 0, SW_MAX_QP - 1);
        assert_false(taken[index]);
        taken[index] = true;
    }
    for (uint32_t i = 0; i < SW_MAX_QP; i++)
        assert_int_equal(sw_qp_set_next(&sw_nic.qp_set, i), i);
    assert_int_equal(claim_qp(&qp), -ENOMEM);
    struct sw_qp_init init = {
        .type = IBV_QPT_RC, .pd = rig->pd, .send_cq = rig->cq, .recv_cq = rig->cq};
    struct sw_qp *none = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &none), -ENOMEM);
    assert_null(none);
    assert_int_equal(atomic_load(&rig->cq->refs), 0); /* nothing of the failed one is left */
    for (uint32_t i = 0; i < SW_MAX_QP; i++)
        release_qp(i);
    assert_int_equal(sw_nic_first_qp(), SW_MAX_QP);
    free(taken);
}

static void sw_nic_claim_cq__all_of_them(void **state)
{
    struct rig *rig = *state;
    uint32_t free_count = 0;
    static uint16_t claimed[SW_MAX_CQ];
    int index;
    while ((index = claim_cq()) >= 0) {
        assert_int_not_equal(index, rig->cq->index);
        assert_true(free_count < SW_MAX_CQ);
        claimed[free_count++] = (uint16_t)index;
    }
    assert_int_equal(index, -ENOMEM);
    assert_int_equal(free_count, SW_MAX_CQ - 1);
    struct sw_cq *none = NULL;
    assert_int_equal(sw_cq_create(rig->ctx, 1, NULL, NULL, &none), -ENOMEM);
    assert_null(none);
    for (uint32_t i = 0; i < free_count; i++)
        release_cq(claimed[i]);
    struct sw_cq *cq = rig_cq(rig, 1);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

static void sw_nic_rq_alloc__whole_pages_in_the_arena(void **state)
{
    (void)state;
    uint64_t first = rq_alloc(1), second = rq_alloc(PAGE + 1);
    assert_int_equal(first, ARENA);
    assert_int_equal(second, first + PAGE);
    uint64_t third = rq_alloc(PAGE);
    assert_int_equal(third, second + 2 * PAGE);
    rq_free(first, 1);
    rq_free(second, PAGE + 1);
    rq_free(third, PAGE);
}

static void sw_nic_rq_alloc__exhaustion(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(rq_alloc(SW_PUB_RQ_BYTES + 1), 0);
    assert_int_equal(rq_alloc(SW_PUB_RQ_BYTES), ARENA);
    assert_int_equal(rq_alloc(1), 0);
    struct sw_qp_init init = {
        .type = IBV_QPT_RC, .pd = rig->pd, .send_cq = rig->cq, .recv_cq = rig->cq};
    struct sw_qp *none = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &none), -ENOMEM);
    rq_free(ARENA, SW_PUB_RQ_BYTES);
    assert_int_equal(rq_alloc(SW_PUB_RQ_BYTES), ARENA);
    rq_free(ARENA, SW_PUB_RQ_BYTES);
}

static void arena_is_whole(void)
{
    assert_int_equal(rq_alloc(SW_PUB_RQ_BYTES), ARENA);
    rq_free(ARENA, SW_PUB_RQ_BYTES);
}

/* Three neighbours are given back in each order; every time the arena is one piece again. */
static void sw_nic_rq_free__merges_with_both_neighbours(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        uint64_t at[3];
        for (int j = 0; j < 3; j++)
            at[j] = rq_alloc((uint64_t)(j + 1) * PAGE);
        for (int j = 0; j < 3; j++) {
            int which = orders[i][j];
            rq_free(at[which], (uint64_t)(which + 1) * PAGE);
        }
        arena_is_whole();
    }
}

static void sw_nic_rq_free__holes_are_used_again(void **state)
{
    (void)state;
    uint64_t a = rq_alloc(2 * PAGE), b = rq_alloc(PAGE), c = rq_alloc(PAGE);
    rq_free(a, 2 * PAGE);
    assert_int_equal(rq_alloc(3 * PAGE), c + PAGE); /* does not fit in the hole */
    assert_int_equal(rq_alloc(PAGE), a);
    assert_int_equal(rq_alloc(PAGE), a + PAGE);
    assert_int_equal(rq_alloc(PAGE), c + 4 * PAGE);
    rq_free(a, 3 * PAGE); /* with b in one */
    (void)b;
    rq_free(c, 5 * PAGE);
    arena_is_whole();
}

/* The full arena in single pages, given back every second one first. */
static void sw_nic_rq_free__from_full_and_fragmented(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < PAGES; i++)
        assert_int_equal(rq_alloc(PAGE), ARENA + i * PAGE);
    assert_int_equal(rq_alloc(PAGE), 0);
    for (uint64_t i = PAGES - 1; i < PAGES; i -= 2)
        rq_free(ARENA + i * PAGE, PAGE);
    assert_int_equal(rq_alloc(2 * PAGE), 0);
    assert_int_equal(rq_alloc(PAGE), ARENA + PAGE);
    rq_free(ARENA + PAGE, PAGE);
    for (uint64_t i = 0; i < PAGES; i += 2)
        rq_free(ARENA + i * PAGE, PAGE);
    arena_is_whole();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_nic_start__once),
        rig_test(sw_nic_start__tables_are_sealed),
        rig_test(sw_nic_fork__the_child_has_a_nic_of_its_own),
        rig_test(sw_nic_claim_qp__does_not_count),
        rig_test(sw_nic_claim_qp__all_and_not_again_at_once),
        rig_test(sw_nic_claim_cq__all_of_them),
        rig_test(sw_nic_rq_alloc__whole_pages_in_the_arena),
        rig_test(sw_nic_rq_alloc__exhaustion),
        rig_test(sw_nic_rq_free__merges_with_both_neighbours),
        rig_test(sw_nic_rq_free__holes_are_used_again),
        rig_test(sw_nic_rq_free__from_full_and_fragmented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
