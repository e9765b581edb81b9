/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char error[1024], warnings[4096];

static void collect_warning(void *context, const char *text)
{
    (void)context;
    strncat(warnings, text, sizeof(warnings) - strlen(warnings) - 2);
    strcat(warnings, "\n");
}

static const struct nvt_config_source source = {
    .name = "t.json", .machine_id = "0011", .warn = collect_warning};

static int parse(const char *text, struct nvt_config **config)
{
    error[0] = warnings[0] = '\0';
    return nvt_config_parse(text, strlen(text), &source, config, error, sizeof(error));
}

static void refuse(const char *text, const char *why)
{
    struct nvt_config *config = NULL;
    assert_true(parse(text, &config) < 0);
    assert_null(config);
    if (strcmp(error, why) != 0)
        fail_msg("%s\n%s", error, why);
}

/* As nvmetcli 0.8 writes it (Python's json.dumps with sort_keys). */
static const char saved[] =
    "{\"hosts\": [{\"nqn\": \"nqn.host-a\"}, {\"nqn\": \"nqn.host-b\","
    "  \"dhchap_key\": \"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\","
    "  \"dhchap_hash\": \"hmac(sha512)\", \"dhchap_dhgroup\": \"ffdhe4096\"}],"
    "\"ports\": [{\"addr\": {\"adrfam\": \"ipv4\", \"traddr\": \"192.168.122.33\","
    "    \"treq\": \"not specified\", \"trsvcid\": \"4420\", \"trtype\": \"rdma\"},"
    "  \"ana_groups\": [{\"ana\": {\"state\": \"non-optimized\"}, \"grpid\": 2}],"
    "  \"param\": {\"inline_data_size\": \"16384\", \"pi_enable\": \"0\"}, \"portid\": 1,"
    "  \"referrals\": [{\"addr\": {\"adrfam\": \"ipv4\", \"portid\": \"3\","
    "     \"traddr\": \"192.168.122.34\", \"treq\": \"not specified\", \"trsvcid\": \"8009\","
    "     \"trtype\": \"tcp\"}, \"enable\": 1, \"name\": \"second\"}],"
    "  \"subsystems\": [\"nvmet-always\"]}],"
    "\"subsystems\": [{\"allowed_hosts\": [\"nqn.host-a\"],"
    "  \"attr\": {\"allow_any_host\": \"0\", \"cntlid_max\": \"65519\", \"cntlid_min\": \"1\","
    "    \"model\": \"Linux\", \"pi_enable\": \"0\", \"serial\": \"123456789abcdef\","
    "    \"version\": \"1.3\", \"ieee_oui\": \"0x000000\", \"qid_max\": \"128\"},"
    "  \"namespaces\": [{\"ana_grpid\": 2,"
    "    \"device\": {\"nguid\": \"00000000-0000-0000-0000-000000000000\","
    "      \"path\": \"ram:1G,bs=4096,ro\","
    "      \"uuid\": \"d592cdf3-5d1c-44e0-8412-3fcf7d99df27\"}, \"enable\": 1, \"nsid\": 5},"
    "   {\"device\": {\"path\": \"/dev/not-there\"}, \"enable\": 0, \"nsid\": 2}],"
    "  \"nqn\": \"nvmet-always\"}]}";

static void config_parse__saved_by_nvmetcli(void **state)
{
    (void)state;
    struct nvt_config *config = NULL;
    assert_int_equal(parse(saved, &config), 0);
    assert_string_equal(warnings, "");
    const struct nvt_config_port *port = nvt_config_find_port(config, 1);
    assert_string_equal(port->listen.traddr, "192.168.122.33");
    assert_int_equal(port->listen.port, 4420);
    assert_int_equal(port->in_capsule_bytes, 16384);
    assert_int_equal(nvt_config_ana_state(port, 2), NVME_ANA_STATE_NONOPTIMIZED);
    assert_int_equal(nvt_config_ana_state(port, 1), NVME_ANA_STATE_OPTIMIZED);
    assert_int_equal(port->referral_count, 1);
    assert_int_equal(port->referrals[0].trtype, NVMF_TRTYPE_TCP);
    assert_int_equal(port->referrals[0].portid, 3);
    assert_string_equal(port->referrals[0].trsvcid, "8009");
    assert_string_equal(port->referrals[0].subsysnqn.text, NVF_DISCOVERY_NQN);
    assert_int_equal(port->subsystem_count, 1);
    assert_string_equal(port->subsystems[0].text, "nvmet-always");
    const struct nvt_config_host *host = nvt_config_find_host(config, "nqn.host-b");
    assert_int_equal(host->dhchap_hash, 3);
    assert_int_equal(host->dhchap_dhgroup, 3);
    assert_int_equal(strncmp(host->dhchap_key, "DHHC-1:00:", 10), 0);
    nvt_config_free(config);
}

static void config_parse__subsystem(void **state)
{
    (void)state;
    struct nvt_config *config = NULL;
    assert_int_equal(parse(saved, &config), 0);
    const struct nvt_config_subsystem *subsystem =
        nvt_config_find_subsystem(config, "nvmet-always");
    assert_string_equal(subsystem->serial, "123456789abcdef");
    assert_string_equal(subsystem->model, "Linux");
    assert_int_equal(subsystem->cntlid_max, 65519);
    assert_int_equal(subsystem->qid_max, 128);
    assert_true(nvt_config_allows(subsystem, "nqn.host-a"));
    assert_false(nvt_config_allows(subsystem, "nqn.host-b"));
    assert_int_equal(subsystem->namespace_count, 2);
    assert_int_equal(subsystem->namespaces[0].nsid, 2); /* in order */
    const struct nvt_config_namespace *ns = nvt_config_find_namespace(subsystem, 5);
    assert_string_equal(ns->backend, "ram:1G,bs=4096,ro");
    assert_int_equal(ns->block_bytes, 4096);
    assert_int_equal(ns->ana_grpid, 2);
    assert_true(ns->enable && ns->read_only && !ns->has_nguid);
    assert_int_equal(ns->uuid[15], 0x27);
    assert_false(subsystem->namespaces[0].enable);
    assert_int_equal(subsystem->namespaces[0].uuid[6] >> 4, 8); /* a default */
    assert_null(nvt_config_find_namespace(subsystem, 1));
    nvt_config_free(config);
}

static void config_parse__empty(void **state)
{
    (void)state;
    struct nvt_config *config = NULL;
    assert_int_equal(parse("{}", &config), 0);
    assert_int_equal(config->port_count + config->subsystem_count + config->host_count, 0);
    nvt_config_free(config);
    nvt_config_free(NULL);
}

static void config_parse__warns(void **state)
{
    (void)state;
    struct nvt_config *config = NULL;
    assert_int_equal(parse("{\"color\": 1, \"subsystems\": [{\"nqn\": \"a\", \"attr\": {\"x\": 1,"
                           "\"pi_enable\": \"1\"}}], \"ports\": [{\"portid\": 1, \"addr\":"
                           "{\"trtype\": \"rdma\", \"traddr\": \"::1\"}, \"param\": "
                           "{\"inline_data_size\": 65536}}]}",
                           &config),
                     0);
    assert_string_equal(
        warnings, "t.json: color: not known here, and passed over\n"
                  "t.json: subsystems[0].attr.x: not known here, and passed over\n"
                  "t.json: subsystems[0].attr.pi_enable: protection information is not served, "
                  "and passed over\n"
                  "t.json: ports[0].param.inline_data_size: 16384 is the most, and taken\n"
                  "t.json: subsystems: a allows no host; fill allowed_hosts or set "
                  "allow_any_host\n");
    assert_int_equal(config->ports[0].in_capsule_bytes, 16384);
    assert_int_equal(config->ports[0].listen.adrfam, NVMF_ADDR_FAMILY_IP6);
    assert_int_equal(strlen(config->subsystems[0].serial), 20);
    nvt_config_free(config);
}

#define PORT(type, addr, more)                                                              \
    "{\"ports\": [{\"portid\": 1, \"addr\": {\"trtype\": \"" type "\", \"traddr\": \"" addr \
    "\"}" more "}]}"
#define NAMESPACE(more) "{\"subsystems\": [{\"nqn\": \"a\", \"namespaces\": [" more "]}]}"

static void config_parse__faults(void **state)
{
    (void)state;
    static const char *const faults[][2] = {
        {PORT("tcp", "1.2.3.4", ""), "t.json: ports[0].addr.trtype: \"tcp\" is not served, only "
                                     "\"rdma\" is; write that, or remove the port"},
        {PORT("rdma", "host.example", ""), "t.json: ports[0].addr.traddr: \"host.example\" is no "
                                           "IP address; write one in numbers"},
        {PORT("rdma", "1.2.3.4", ", \"subsystems\": [\"b\"]"),
         "t.json: ports: 1 serves b, which is no subsystem here; add or remove it"},
        {PORT("rdma", "1.2.3.4", ", \"subsystems\": [7]"),
         "t.json: ports[0].subsystems[0]: not a string; write an NQN in quotes"},
        {"{\"ports\": [{}]}", "t.json: ports[0]: \"portid\" is missing; add it"},
        {"{\"ports\": {}}", "t.json: ports: not a list; write [...]"},
        {"{\"ports\": [{\"portid\": 65536}]}",
         "t.json: ports[0].portid: not a number of 0 to 65535; write one"},
        {"[]", "t.json: not an object; write {...}"},
        {"{\"a\": 1, \"a\": 2}", "t.json: line 1: no JSON: duplicate object key near '\"a\"'; "
                                 "mend it there"},
        {"{\"subsystems\": [{\"nqn\": \"a\"}, {\"nqn\": \"a\"}]}",
         "t.json: subsystems: a is there twice; remove one"},
        {"{\"subsystems\": [{\"nqn\": \"" NVF_DISCOVERY_NQN "\"}]}",
         "t.json: subsystems[0].nqn: the discovery subsystem is there by itself; remove it"},
        {"{\"hosts\": [{\"nqn\": \"a\"}, {\"nqn\": \"a\"}]}",
         "t.json: hosts: a is there twice; remove one"},
        {"{\"hosts\": [{\"nqn\": \"a\\u0007\"}]}",
         "t.json: hosts[0].nqn: has control characters; remove them"},
        {"{\"hosts\": [{\"nqn\": \"a\", \"dhchap_hash\": \"md5\"}]}",
         "t.json: hosts[0].dhchap_hash: \"md5\" is none of hmac(sha256), hmac(sha384), "
         "hmac(sha512); write one of them"},
        {"{\"hosts\": [{\"nqn\": \"a\", \"dhchap\": {\"key\": \"DHHC-1:00:AAAA:\"}}]}",
         "t.json: hosts[0].dhchap.key: not 32, 48 or 64 bytes in base64; make one with `nvme "
         "gen-dhchap-key`"},
        {NAMESPACE("{\"nsid\": 0, \"device\": {}}"),
         "t.json: subsystems[0].namespaces[0].nsid: 0 is no namespace; use 1 or more"},
        {NAMESPACE("{\"nsid\": 1, \"enable\": 1, \"device\": {}}"),
         "t.json: subsystems[0].namespaces[0].device: \"path\" is missing; add it"},
        {NAMESPACE("{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"/dev/not-there\"}}"),
         "t.json: subsystems[0].namespaces[0].device.path: /dev/not-there: No such file or "
         "directory; write the path of a block device or a file"},
        {NAMESPACE("{\"nsid\": 1, \"device\": {\"path\": \"ram:1M,nsid=2\"}}"),
         "t.json: subsystems[0].namespaces[0].device.path: says nsid=2 of namespace 1; remove it"},
        {NAMESPACE("{\"nsid\": 1, \"device\": {\"path\": \"ram:1M\", \"uuid\": \"x\"}}"),
         "t.json: subsystems[0].namespaces[0].device.uuid: not 32 hexadecimal digits; write such, "
         "or remove it"},
        {NAMESPACE("{\"nsid\": 1, \"device\": {}}, {\"nsid\": 1, \"device\": {}}"),
         "t.json: subsystems: a has nsid 1 twice; change one"},
        {NAMESPACE("{\"nsid\": 1, \"ana_grpid\": 129, \"device\": {}}"),
         "t.json: subsystems[0].namespaces[0].ana_grpid: not a number of 0 to 128; write one"},
        {"{\"subsystems\": [{\"nqn\": \"a\", \"attr\": {\"cntlid_min\": 9, \"cntlid_max\": 8}}]}",
         "t.json: subsystems[0].attr.cntlid_min: 9 to 8 is no range; use 1 to 65519"},
        {"{\"subsystems\": [{\"nqn\": \"a\", \"attr\": {\"serial\": \"123456789012345678901\"}}]}",
         "t.json: subsystems[0].attr.serial: longer than 20 bytes; shorten it"},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        refuse(faults[i][0], faults[i][1]);
}

static void config_parse__one_too_many(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    size_t at = (size_t)sprintf(text, "{\"subsystems\": [{\"nqn\": \"a\", \"namespaces\": [");
    for (int i = 0; i <= NVT_NAMESPACES_MAX; i++)
        at += (size_t)sprintf(text + at, "%s{\"nsid\": %d, \"device\": {\"path\": \"ram:1M\"}}",
                              i ? "," : "", i + 1);
    strcpy(text + at, "]}]}");
    refuse(text, "t.json: subsystems[0].namespaces: 1025 entries; at most 1024 are served");
    free(text);
}

static void config_read__file(void **state)
{
    (void)state;
    char path[] = "/tmp/config-XXXXXX";
    const int fd = mkstemp(path);
    struct nvt_config_source file = source;
    struct nvt_config *config = NULL;
    file.name = path;
    assert_int_equal(write(fd, saved, strlen(saved)), strlen(saved));
    close(fd);
    assert_int_equal(nvt_config_read(&file, &config, error, sizeof(error)), 0);
    assert_int_equal(config->subsystem_count, 1);
    nvt_config_free(config);
    unlink(path);
    assert_int_equal(nvt_config_read(&file, &config, error, sizeof(error)), -ENOENT);
    assert_non_null(strstr(error, "No such file"));
    file.name = "/dev/zero";
    assert_int_equal(nvt_config_read(&file, &config, error, sizeof(error)), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_parse__saved_by_nvmetcli),
        cmocka_unit_test(config_parse__subsystem),
        cmocka_unit_test(config_parse__empty),
        cmocka_unit_test(config_parse__warns),
        cmocka_unit_test(config_parse__faults),
        cmocka_unit_test(config_parse__one_too_many),
        cmocka_unit_test(config_read__file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
