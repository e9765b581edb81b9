/* SPDX-License-Identifier: BSD-2-Clause */
/* When the requester gives up, and when not: what its user knows of the peer's process. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

static struct rig rig;

/* The peer lives and does not run: it is asked on, but not often, and not given up. */
static void retry__silence_that_is_excused_does_not_count(void **state)
{
    (void)state;
    struct sw_requester_config config = rig_requester_config();
    config.timeout = 8;
    config.retry_cnt = 1;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    const uint64_t begun_ns = rig.now_ns;
    rig.r.retry.is_excused = true;
    uint32_t sent = rig_drain(&rig);
    while (rig.now_ns < begun_ns + 10000 * MS) {
        rig_tick(&rig);
        assert_int_equal(rig.progress.failure, SW_FAILURE_NONE);
        sent += rig_drain(&rig);
    }
    assert_true(sent >= 20 && sent < 40); /* twice a second */
    rig.r.retry.is_excused = false;
    for (int i = 0; i < 4 && rig.progress.failure == SW_FAILURE_NONE; i++) {
        rig_tick(&rig);
        rig_drain(&rig);
    }
    rig_failed(&rig, SW_FAILURE_RETRY, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry__silence_that_is_excused_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
