/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes to a configuration, one at a time. */
#include "nvme/target/config/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NQN "nqn.2026-01.test:one"

static char error[512];
static struct nvt_config *config;
static struct nvt_config_editor editor;

static int setup(void **state)
{
    (void)state;
    config = calloc(1, sizeof(*config));
    editor = (struct nvt_config_editor){config, "0011", error, sizeof(error)};
    assert_int_equal(nvt_config_add_port(&editor, "192.0.2.1", 4096), 0);
    assert_int_equal(nvt_config_add_subsystem(&editor, NQN), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    nvt_config_free(config);
    return 0;
}

static uint32_t add_namespace(const char *backend)
{
    uint32_t nsid = 0;
    if (nvt_config_add_namespace(&editor, NQN, backend, &nsid))
        fail_msg("%s: %s", backend, error);
    return nsid;
}

static void edit__a_subsystem_is_on_all_ports(void **state)
{
    (void)state;
    assert_string_equal(config->ports[0].subsystems[0].text, NQN);
    assert_int_equal(nvt_config_add_port(&editor, "[2001:db8::1]:4421", 0), 0);
    assert_int_equal(config->ports[1].portid, 2);
    assert_int_equal(config->ports[1].listen.port, 4421);
    assert_string_equal(config->ports[1].subsystems[0].text, NQN);
    assert_int_equal(nvt_config_remove_subsystem(&editor, NQN), 0);
    assert_int_equal(config->ports[0].subsystem_count, 0);
    assert_int_equal(config->ports[1].subsystem_count, 0);
    assert_int_equal(config->subsystem_count, 0);
}

static void edit__namespaces_get_the_first_free_number(void **state)
{
    (void)state;
    assert_int_equal(add_namespace("ram:1M"), 1);
    assert_int_equal(add_namespace("ram:2M,nsid=3"), 3);
    assert_int_equal(add_namespace("null:3M,ro"), 2);
    const struct nvt_config_subsystem *subsystem = nvt_config_find_subsystem(config, NQN);
    assert_int_equal(subsystem->namespace_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(subsystem->namespaces[i].nsid, i + 1);
    assert_true(subsystem->namespaces[1].read_only);
    assert_string_equal(subsystem->namespaces[2].backend, "ram:2M,nsid=3");
    assert_int_equal(nvt_config_remove_namespace(&editor, NQN, 2), 0);
    assert_int_equal(nvt_config_remove_namespace(&editor, NQN, 2), -ENOENT);
    assert_int_equal(add_namespace("ram:4M"), 2);
}

static void edit__no_two_are_the_same(void **state)
{
    (void)state;
    uint32_t nsid;
    add_namespace("ram:1M,uuid=d592cdf3-5d1c-44e0-8412-3fcf7d99df27");
    assert_int_equal(nvt_config_add_namespace(&editor, NQN, "ram:1M,nsid=1", &nsid), -EEXIST);
    assert_int_equal(nvt_config_add_namespace(
                         &editor, NQN, "ram:1M,uuid=d592cdf3-5d1c-44e0-8412-3fcf7d99df27", &nsid),
                     -EEXIST);
    assert_int_equal(nvt_config_add_subsystem(&editor, NQN), -EEXIST);
    assert_int_equal(nvt_config_add_port(&editor, "192.0.2.1:4420", 0), -EEXIST);
    assert_int_equal(nvt_config_add_subsystem(&editor, NVF_DISCOVERY_NQN), -EINVAL);
    assert_int_equal(nvt_config_add_namespace(&editor, NQN, "floppy:1M", &nsid), -EINVAL);
}

static void edit__hosts(void **state)
{
    (void)state;
    const struct nvt_config_subsystem *subsystem = nvt_config_find_subsystem(config, NQN);
    assert_true(nvt_config_allows(subsystem, "nqn.host-b"));
    assert_int_equal(nvt_config_add_host(&editor, NQN, "nqn.host-a"), 0);
    assert_int_equal(nvt_config_add_host(&editor, NQN, "nqn.host-a"), -EEXIST);
    assert_true(nvt_config_allows(subsystem, "nqn.host-a"));
    assert_false(nvt_config_allows(subsystem, "nqn.host-b"));
    assert_int_equal(nvt_config_remove_host(&editor, NQN, "nqn.host-b"), -ENOENT);
    assert_int_equal(nvt_config_remove_host(&editor, NQN, "nqn.host-a"), 0);
    assert_false(nvt_config_allows(subsystem, "nqn.host-a")); /* not all of a sudden anybody */
}

static int count_changes(void *context, const struct nvt_config_change *change)
{
    (void)change;
    ++*(int *)context;
    return 0;
}

static void edit__a_copy_is_the_same_and_apart(void **state)
{
    (void)state;
    int changes = 0;
    uint32_t nsid;
    add_namespace("ram:1M");
    assert_int_equal(nvt_config_add_host(&editor, NQN, "nqn.host-a"), 0);
    struct nvt_config *copy = nvt_config_copy(config);
    assert_int_equal(nvt_config_diff(config, copy, count_changes, &changes), 0);
    assert_int_equal(changes, 0);
    const struct nvt_config_editor other = {copy, "0011", error, sizeof(error)};
    assert_int_equal(nvt_config_add_namespace(&other, NQN, "ram:2M", &nsid), 0);
    assert_int_equal(nvt_config_remove_port(&other, "192.0.2.1"), 0);
    assert_int_equal(config->subsystems[0].namespace_count, 1);
    assert_int_equal(config->port_count, 1);
    assert_int_equal(nvt_config_diff(config, copy, count_changes, &changes), 0);
    assert_int_equal(changes, 2);
    nvt_config_free(copy);
}

/* A part that could not be served is told as a change, until it is. */
static void edit__what_failed_is_tried_again(void **state)
{
    (void)state;
    int changes = 0;
    add_namespace("ram:1M");
    struct nvt_config *copy = nvt_config_copy(config);
    config->subsystems[0].namespaces[0].is_failed = config->ports[0].is_failed = true;
    assert_int_equal(nvt_config_diff(config, copy, count_changes, &changes), 0);
    assert_int_equal(changes, 2);
    nvt_config_free(copy);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(edit__a_subsystem_is_on_all_ports),  CASE(edit__namespaces_get_the_first_free_number),
        CASE(edit__no_two_are_the_same),          CASE(edit__hosts),
        CASE(edit__a_copy_is_the_same_and_apart), CASE(edit__what_failed_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
