/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char story[4096];
static int calls_left;

static int tell(void *context, const struct nvt_config_change *change)
{
    static const char *const whats[] = {"+", "-", "~"};
    const char *name = "";
    char number[16] = "";
    (void)context;
    switch (change->of) {
    case NVT_OF_HOST:
        name = (change->new_host ? change->new_host : change->old_host)->nqn.text;
        break;
    case NVT_OF_SUBSYSTEM:
        name = (change->new_subsystem ? change->new_subsystem : change->old_subsystem)->nqn.text;
        break;
    case NVT_OF_NAMESPACE:
        name = (change->new_subsystem ? change->new_subsystem : change->old_subsystem)->nqn.text;
        snprintf(number, sizeof(number), "/%u",
                 (change->new_namespace ? change->new_namespace : change->old_namespace)->nsid);
        break;
    case NVT_OF_PORT:
        snprintf(number, sizeof(number), "port%u",
                 (change->new_port ? change->new_port : change->old_port)->portid);
        break;
    }
    char part[300];
    snprintf(part, sizeof(part), "%s%s%s:%x ", whats[change->what], name, number, change->aspects);
    strcat(story, part);
    return --calls_left < 0 ? -1 : 0;
}

static struct nvt_config *parse(const char *text)
{
    static const struct nvt_config_source source = {.name = "t", .machine_id = "00"};
    struct nvt_config *config = NULL;
    char error[512];
    if (nvt_config_parse(text, strlen(text), &source, &config, error, sizeof(error)))
        fail_msg("%s", error);
    return config;
}

static int diff(const char *old_text, const char *new_text)
{
    struct nvt_config *old = parse(old_text), *new = parse(new_text);
    story[0] = '\0';
    calls_left = calls_left ? calls_left : 1000;
    const int status = nvt_config_diff(old, new, tell, NULL);
    calls_left = 0;
    nvt_config_free(old);
    nvt_config_free(new);
    return status;
}

#define NS(n, path, more) "{\"nsid\":" #n ",\"device\":{\"path\":\"" path "\"}" more "}"
#define SUB(nqn, more, list) "{\"nqn\":\"" nqn "\"" more ",\"namespaces\":[" list "]}"
#define PORT(id, addr, more) \
    "{\"portid\":" #id ",\"addr\":{\"trtype\":\"rdma\",\"traddr\":\"" addr "\"}" more "}"
#define CONFIG(hosts, subs, ports) \
    "{\"hosts\":[" hosts "],\"subsystems\":[" subs "],\"ports\":[" ports "]}"

static void config_diff__same(void **state)
{
    (void)state;
    static const char text[] =
        CONFIG("{\"nqn\":\"h\"}", SUB("s", "", NS(1, "ram:1M", "")), PORT(1, "1.1.1.1", ""));
    assert_int_equal(diff(text, text), 0);
    assert_string_equal(story, "");
}

static void config_diff__all_comes_and_goes(void **state)
{
    (void)state;
    static const char text[] =
        CONFIG("{\"nqn\":\"h\"}", SUB("s", "", NS(1, "ram:1M", "") "," NS(2, "ram:1M", "")),
               PORT(1, "1.1.1.1", ",\"subsystems\":[\"s\"]"));
    assert_int_equal(diff("{}", text), 0);
    assert_string_equal(story, "+h:0 +s:0 +s/1:0 +s/2:0 +port1:0 ");
    assert_int_equal(diff(text, "{}"), 0);
    assert_string_equal(story, "-port1:0 -s/1:0 -s/2:0 -s:0 -h:0 ");
}

static void config_diff__aspects(void **state)
{
    (void)state;
    assert_int_equal(
        diff(CONFIG("{\"nqn\":\"h\"}", SUB("s", "", NS(1, "ram:1M", "") "," NS(2, "ram:1M", "")),
                    PORT(1, "1.1.1.1", "") "," PORT(2, "1.1.1.2", "")),
             CONFIG("{\"nqn\":\"h\",\"dhchap_hash\":\"hmac(sha384)\"}",
                    SUB("s", ",\"attr\":{\"model\":\"m\",\"allow_any_host\":1}",
                        NS(2, "ram:2M", ",\"ana_grpid\":2,\"enable\":1") "," NS(3, "ram:1M", "")),
                    PORT(1, "1.1.1.3", ",\"subsystems\":[\"s\"]") "," PORT(3, "1.1.1.2", ""))),
        0);
    char want[256];
    snprintf(want, sizeof(want), "-port2:0 -s/1:0 ~h:%x ~s:%x ~s/2:%x +s/3:0 ~port1:%x +port3:0 ",
             NVT_KEYS_DIFFER, NVT_IDENTITY_DIFFERS | NVT_ACCESS_DIFFERS,
             NVT_BACKEND_DIFFERS | NVT_ENABLE_DIFFERS | NVT_ANA_DIFFERS,
             NVT_LISTEN_DIFFERS | NVT_SUBSYSTEMS_DIFFER);
    assert_string_equal(story, want);
}

static void config_diff__ends_at_a_failure(void **state)
{
    (void)state;
    calls_left = 1;
    assert_int_equal(diff("{}", CONFIG("{\"nqn\":\"a\"},{\"nqn\":\"b\"},{\"nqn\":\"c\"}", "", "")),
                     -1);
    assert_string_equal(story, "+a:0 +b:0 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_diff__same),
        cmocka_unit_test(config_diff__all_comes_and_goes),
        cmocka_unit_test(config_diff__aspects),
        cmocka_unit_test(config_diff__ends_at_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
