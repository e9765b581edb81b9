/* SPDX-License-Identifier: BSD-2-Clause */
/* What paths have to have in common, the ANA log as any target may send it, and the choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "nvme/host/multipath/ana.h"
#include "nvme/host/multipath/choose.h"
#include "nvme/host/multipath/paths.h"
#include "nvme/wire/quiesce.h"

enum { MS = 1000000, NAMES_AT = 4 };

/* What a target of a test says. */
struct says {
    const char *serial;
    uint8_t blocks, format, nguid, uuid;
    uint8_t ana; /* 0: it has no ANA */
    uint8_t changes;
};

static const struct says usual = {"one", 100, 12, 7, 9, 0, 0};

static void say_page(const struct says *says, const struct nvh_ask *ask, uint8_t *page)
{
    memset(page, 0, NVH_ASK_BYTES);
    if (ask->opcode == nvme_admin_get_log_page) {
        page[8] = 1;
        page[16] = page[16 + 4] = 1;
        page[16 + 8] = says->changes;
        page[16 + 16] = says->ana;
        page[16 + 32] = 1;
        return;
    }
    struct nvme_id_ns *ns = (struct nvme_id_ns *)page;
    switch (ask->cdw10) {
    case NVME_IDENTIFY_CNS_CTRL:
        memcpy(page + 4, says->serial, strlen(says->serial));
        page[76] = says->ana ? 1 << 3 : 0;
        return;
    case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
        page[0] = 1;
        return;
    case NVME_IDENTIFY_CNS_NS:
        ns->nsze = says->blocks;
        ns->lbaf[0].ds = says->format;
        ns->nguid[3] = says->nguid;
        return;
    case NVME_IDENTIFY_CNS_NS_DESC_LIST:
        page[0] = 3;
        page[1] = 16;
        page[NAMES_AT] = says->uuid;
        return;
    default:
        fail();
    }
}

/* Asks until there is nothing left to ask. */
static void ask_all(struct nvh_paths *paths, uint32_t path, const struct says *says,
                    uint64_t now_ns)
{
    static uint8_t page[NVH_ASK_BYTES];
    const struct sw_nvme_result well = {.status = SW_NVME_OK};
    struct nvh_ask ask;
    for (unsigned i = 0; i < 20 && nvh_path_ask(paths, path, now_ns, &ask); i++) {
        say_page(says, &ask, page);
        nvh_path_answered(paths, path, now_ns, &well, page);
    }
}

/* The first path has what is usual; the second one what the test wants. */
static struct nvh_paths *two_paths(const struct says *second)
{
    struct nvh_paths *paths = calloc(1, sizeof(*paths));
    assert_non_null(paths);
    nvh_paths_init(paths, 2, -1);
    nvh_path_live(paths, 0, 1, 5000, true);
    nvh_path_live(paths, 1, 1, 5000, true);
    ask_all(paths, 1, second, MS); /* waits for the first address */
    assert_int_equal(paths->paths[1].state, SW_NVME_PATH_CHECKED);
    ask_all(paths, 0, &usual, MS);
    ask_all(paths, 1, second, MS);
    assert_int_equal(paths->paths[0].state, SW_NVME_PATH_USED);
    return paths;
}

static void refused_for(const struct says *second, const char *why)
{
    struct nvh_paths *paths = two_paths(second);
    const struct nvh_path *p = &paths->paths[1];
    if (p->state != SW_NVME_PATH_REFUSED || !strstr(p->why, why))
        fail_msg("not refused for its %s: %s", why, p->why);
    assert_int_equal(atomic_load(&p->used), 0);
    /* It is looked at again, and used once it is as the others. */
    ask_all(paths, 1, &usual, MS);
    assert_int_equal(p->state, SW_NVME_PATH_REFUSED);
    ask_all(paths, 1, &usual, 5000ull * MS);
    assert_int_equal(p->state, SW_NVME_PATH_USED);
    free(paths);
}

static void compare__each_difference(void **state)
{
    (void)state;
    struct says says = usual;
    says.serial = "two\033[1m";
    refused_for(&says, "serial number two_[1m");
    says = usual;
    says.nguid = 8;
    refused_for(&says, "NGUID");
    says = usual;
    says.uuid = 8;
    refused_for(&says, "UUID");
    says = usual;
    says.format = 9;
    refused_for(&says, "format");
    says = usual;
    says.blocks = 99;
    refused_for(&says, "99 blocks, and 100");
}

/* A target without an identifier says nothing of it. */
static void compare__missing_name(void **state)
{
    (void)state;
    struct says says = usual;
    says.nguid = 0;
    struct nvh_paths *paths = two_paths(&says);
    assert_int_equal(paths->paths[1].state, SW_NVME_PATH_USED);
    free(paths);
}

/* One target tells that the namespace has grown before the other one does. */
static void compare__growth(void **state)
{
    (void)state;
    enum { NAMESPACES_CHANGED = 2 | 0x04 << 16 };
    struct says larger = usual;
    larger.blocks = 120;
    struct nvh_paths *paths = two_paths(&usual);
    const struct sw_nvme_result well = {.status = SW_NVME_OK};
    uint8_t *page = calloc(1, NVH_ASK_BYTES);
    struct nvh_ask ask;
    nvh_path_event(paths, 0, NAMESPACES_CHANGED);
    assert_true(nvh_path_ask(paths, 0, 10 * MS, &ask));
    assert_int_equal(ask.cdw10 & 0xff, 0x04); /* the list of changes, so that it tells the next */
    nvh_path_answered(paths, 0, 10 * MS, &well, page);
    ask_all(paths, 0, &larger, 10 * MS);
    assert_int_equal(paths->paths[0].state, SW_NVME_PATH_USED);
    assert_int_equal(paths->namespaces[0].blocks, 120);
    ask_all(paths, 1, &usual, 10 * MS);
    assert_int_equal(paths->paths[1].state, SW_NVME_PATH_REFUSED);
    ask_all(paths, 1, &larger, 5000ull * MS);
    assert_int_equal(paths->paths[1].state, SW_NVME_PATH_USED);
    free(page);
    free(paths);
}

/* A path that is refused still has requests under way: the time counts from the end of its
 * connection. */
static void loss__of_a_path_that_was_refused(void **state)
{
    (void)state;
    enum { QUIET_MS = 3 * 5000 + 1000 };
    struct nvh_paths *paths = two_paths(&usual);
    paths->paths[0].facts.quiesce_ms = 1000;
    nvh_path_refuse(paths, 0, 100ull * MS, "it leads to something else");
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 0, 60000ull * MS), NVH_PROOF_MISSING);
    nvh_path_lost(paths, 0, 70000ull * MS, false, "lost");
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 0, (70000ull + QUIET_MS - 1) * MS),
                     NVH_PROOF_MISSING);
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 0, (70000ull + QUIET_MS) * MS),
                     NVH_PROOF_HERE);
    free(paths);
}

/* The next owner is known before the loss of the old one's path is. It is asked once more, also at
 * the same time of the clock: only what it says then is a proof. */
static void loss__after_the_next_owner_is_known(void **state)
{
    (void)state;
    struct says old = usual, new = usual;
    old.ana = new.ana = SW_NVME_ANA_OPTIMIZED;
    old.changes = 1;
    new.changes = 2;
    struct nvh_paths *paths = two_paths(&new);
    ask_all(paths, 0, &old, 5000ull * MS);
    paths->paths[0].namespaces[0].changes = 1;
    for (int i = 0; i < 2; i++)
        paths->paths[i].facts = (struct nvh_facts){.has_ana = true, .member = i};
    const uint64_t lost_ns = 6000ull * MS;
    paths->paths[1].wants_ana = true;
    ask_all(paths, 1, &new, lost_ns - 20 * MS);
    nvh_path_lost(paths, 0, lost_ns, false, "lost");
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 1, lost_ns), NVH_PROOF_MISSING);
    ask_all(paths, 1, &new, lost_ns);
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 1, lost_ns), NVH_PROOF_HERE);
    assert_int_equal(nvh_paths_proof(paths, 0, 1, 0, 2, lost_ns), NVH_PROOF_MISSING);
    free(paths);
}

static void ana__states(void **state)
{
    (void)state;
    struct says says = usual;
    for (unsigned ana = 1; ana < 16; ana++) {
        says.ana = (uint8_t)ana;
        struct nvh_paths *paths = two_paths(&says);
        const bool is_open = ana == SW_NVME_ANA_OPTIMIZED || ana == SW_NVME_ANA_NON_OPTIMIZED;
        assert_int_equal(nvh_path_ana(&paths->paths[1], 0), is_open ? ana : 0);
        nvh_path_closed(paths, 1, 0);
        assert_int_equal(nvh_path_ana(&paths->paths[1], 0), 0);
        ask_all(paths, 1, &says, 100 * MS); /* what the log says counts again */
        assert_int_equal(nvh_path_ana(&paths->paths[1], 0), is_open ? ana : 0);
        free(paths);
    }
}

/* Whatever bytes come: it ends, within the page. */
static void ana__any_bytes(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned round = 0; round < 20000; round++) {
        const size_t bytes = round % 600;
        uint8_t *page = malloc(bytes + 1);
        struct nvh_ana_cursor cursor;
        struct nvh_ana_entry entry;
        unsigned count = 0;
        assert_non_null(page);
        for (size_t i = 0; i < bytes; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            page[i] = (uint8_t)(seed >> 56) & (round & 1 ? 0x03 : 0xff);
        }
        nvh_ana_begin(&cursor, page, bytes);
        while (nvh_ana_next(&cursor, &entry))
            count++;
        assert_true(count <= bytes / 4);
        free(page);
    }
}

static void choose__policies(void **state)
{
    (void)state;
    struct nvh_choice paths[3] = {{1, 5, 20}, {1, 3, 10}, {1, 3, 20}};
    uint32_t turn = 0, counts[3] = {0};
    for (unsigned i = 0; i < 30; i++)
        counts[nvh_choose(SW_NVME_ROUND_ROBIN, paths, 3, &turn)]++;
    assert_true(counts[0] == 10 && counts[1] == 10 && counts[2] == 10);
    assert_int_not_equal(nvh_choose(SW_NVME_QUEUE_DEPTH, paths, 3, &turn), 0);
    assert_int_equal(nvh_choose(SW_NVME_NUMA, paths, 3, &turn), 1);
    paths[1].ana = 0; /* those that are equally near take turns */
    assert_int_equal(nvh_choose(SW_NVME_NUMA, paths, 3, &turn), 2);
    assert_int_equal(nvh_choose(SW_NVME_NUMA, paths, 3, &turn), 0);
    paths[0].ana = paths[2].ana = SW_NVME_ANA_NON_OPTIMIZED;
    assert_int_not_equal(nvh_choose(SW_NVME_ROUND_ROBIN, paths, 3, &turn), 1);
    paths[1].ana = SW_NVME_ANA_OPTIMIZED;
    assert_int_equal(nvh_choose(SW_NVME_QUEUE_DEPTH, paths, 3, &turn), 1);
    paths[0].ana = paths[1].ana = paths[2].ana = 0;
    assert_int_equal(nvh_choose(SW_NVME_ROUND_ROBIN, paths, 3, &turn), NVH_NO_PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compare__each_difference),
        cmocka_unit_test(compare__missing_name),
        cmocka_unit_test(loss__of_a_path_that_was_refused),
        cmocka_unit_test(loss__after_the_next_owner_is_known),
        cmocka_unit_test(compare__growth),
        cmocka_unit_test(ana__states),
        cmocka_unit_test(ana__any_bytes),
        cmocka_unit_test(choose__policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
