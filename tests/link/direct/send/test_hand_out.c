/* SPDX-License-Identifier: BSD-2-Clause */
/* What peers get of a region's memory: what its rights say, and nothing that can be made shorter.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/adopt/adopt.h"
#include "link_rig.h"

enum { BYTES = 65536 };

static int hand_out(uint32_t id)
{
    struct sw_segment *segment = sw_segment_find(id);
    assert_non_null(segment);
    int fd = sw_segment_hand_out(segment);
    sw_adopt_put(segment);
    return fd;
}

static void is_handed_out(uint32_t id, int mode)
{
    int fd = hand_out(id);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, mode);
    assert_int_equal(ftruncate(fd, 0), -1);
    void *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(base != MAP_FAILED, mode == O_RDWR);
    if (base != MAP_FAILED)
        munmap(base, 4096);
    close(fd);
}

/* Registers with the rights, and says what is handed out before and after a receive is posted. */
static void check(struct rig *rig, unsigned int access, int before, int after)
{
    struct sw_mr *mr;
    uint8_t *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(sw_mr_reg(rig->pd, bytes, BYTES, (uintptr_t)bytes, access, &mr), 0);
    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(mr))];
    const uint32_t id = entry->extents[0].segment;
    if (entry->extent_count == 0)
        skip(); /* no adoption on this machine */
    if (before < 0)
        assert_int_equal(hand_out(id), -1);
    else
        is_handed_out(id, before);
    struct ibv_sge sge = {(uintptr_t)bytes, 64, sw_mr_key(mr)};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
    uint32_t len_bytes;
    rig_connect(rig, 0);
    sw_lock_acquire(&rig->qp->rq.lock);
    assert_int_equal(sw_rq_append(&rig->qp->rq, &wr, &len_bytes), 0);
    sw_lock_release(&rig->qp->rq.lock);
    rig_drop(rig);
    if (after < 0)
        assert_int_equal(hand_out(id), -1);
    else
        is_handed_out(id, after);
    assert_int_equal(sw_mr_dereg(mr), 0);
    munmap(bytes, BYTES);
}

static void sw_segment_hand_out__by_the_rights_of_the_region(void **state)
{
    (void)state;
    struct rig opened = {0}, *rig = &opened;
    rig_open(rig);
    const unsigned int local = IBV_ACCESS_LOCAL_WRITE;
    check(rig, 0, -1, -1); /* nothing can be received there */
    check(rig, local, -1, O_RDWR);
    check(rig, IBV_ACCESS_REMOTE_READ, O_RDONLY, O_RDONLY);
    check(rig, local | IBV_ACCESS_REMOTE_READ, O_RDONLY, O_RDWR);
    check(rig, local | IBV_ACCESS_REMOTE_WRITE, O_RDWR, O_RDWR);
    check(rig, local | IBV_ACCESS_REMOTE_ATOMIC, O_RDWR, O_RDWR);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_segment_hand_out__by_the_rights_of_the_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
