/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JSON of nvmetcli: one object for each folder of the kernel's configfs, whose attributes are
 * grouped by the first word of their name ("addr_traddr" is addr.traddr).
 */
#include "nvme/target/config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/config/config_json.h"
#include "nvme/target/config/identity.h"
#include "nvme/wire/dhchap_crypto.h"

struct name_value {
    const char *name;
    uint8_t value;
};

#define LOOK_UP(json, key, names, text, out) \
    look_up_name(json, key, names, sizeof(names) / sizeof(*(names)), text, out)

static int look_up_name(struct nvt_json *json, const char *key, const struct name_value *names,
                        size_t count, const char *text, uint8_t *out)
{
    char all[128] = "";
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].name, text) == 0) {
            *out = names[i].value;
            return 0;
        }
        strncat(all, i ? ", " : "", sizeof(all) - strlen(all) - 1);
        strncat(all, names[i].name, sizeof(all) - strlen(all) - 1);
    }
    return nvt_json_fail(json, key, "\"%.64s\" is none of %s; write one of them", text, all);
}

static int take_nqn(struct nvt_json *json, json_t *element, void *into)
{
    struct nvt_nqn *nqn = into;
    const char *text = json_string_value(element);
    if (!text)
        return nvt_json_fail(json, NULL, "not a string; write an NQN in quotes");
    const size_t len = strlen(text);
    if (!len || len > NVF_NQN_MAX)
        return nvt_json_fail(json, NULL, "an NQN has 1 to %d bytes, not %zu; write such a one",
                             NVF_NQN_MAX, len);
    memcpy(nqn->text, text, len + 1);
    return 0;
}

static int take_object(struct nvt_json *json, json_t *element)
{
    return json_is_object(element) ? 0 : nvt_json_fail(json, NULL, "not an object; write {...}");
}

static const struct name_value families[] = {{"ipv4", NVMF_ADDR_FAMILY_IP4},
                                             {"ipv6", NVMF_ADDR_FAMILY_IP6}};

static const struct name_value treqs[] = {{"not specified", NVMF_TREQ_NOT_SPECIFIED},
                                          {"required", NVMF_TREQ_REQUIRED},
                                          {"not required", NVMF_TREQ_NOT_REQUIRED}};

static int take_ana_group(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {"ana", "grpid", NULL};
    static const struct name_value states[] = {{"optimized", NVME_ANA_STATE_OPTIMIZED},
                                               {"non-optimized", NVME_ANA_STATE_NONOPTIMIZED},
                                               {"inaccessible", NVME_ANA_STATE_INACCESSIBLE},
                                               {"persistent-loss", NVME_ANA_STATE_PERSISTENT_LOSS},
                                               {"change", NVME_ANA_STATE_CHANGE}};
    struct nvt_ana_group *group = into;
    uint64_t grpid = 0;
    json_t *ana = NULL;
    char state[32] = "optimized";
    int status = take_object(json, element);
    if (status)
        return status;
    nvt_json_warn_unknown(json, element, known);
    if ((status =
             nvt_json_number(json, element, "grpid", NVT_REQUIRED, NVT_ANA_GROUPS_MAX, &grpid)) ||
        (status = nvt_json_object(json, element, "ana", NVT_OPTIONAL, &ana)))
        return status;
    if (!grpid)
        return nvt_json_fail(json, "grpid", "0 is no group; use 1 to %d", NVT_ANA_GROUPS_MAX);
    group->grpid = (uint32_t)grpid;
    const size_t at = nvt_json_enter(json, "ana", 0);
    if (!(status = nvt_json_text(json, ana, "state", NVT_OPTIONAL, state, sizeof(state))))
        status = LOOK_UP(json, "state", states, state, &group->state);
    nvt_json_leave(json, at);
    return status;
}

static int take_referral_addr(struct nvt_json *json, json_t *addr, struct nvt_referral *referral)
{
    static const char *const known[] = {"adrfam",  "portid", "traddr", "treq",
                                        "trsvcid", "trtype", "tsas",   NULL};
    static const struct name_value types[] = {
        {"rdma", NVMF_TRTYPE_RDMA}, {"tcp", NVMF_TRTYPE_TCP}, {"fc", NVMF_TRTYPE_FC}};
    static const struct name_value all_families[] = {{"ipv4", NVMF_ADDR_FAMILY_IP4},
                                                     {"ipv6", NVMF_ADDR_FAMILY_IP6},
                                                     {"ib", NVMF_ADDR_FAMILY_IB},
                                                     {"fc", NVMF_ADDR_FAMILY_FC}};
    uint64_t portid = 0;
    char type[16] = "rdma", family[16] = "ipv4";
    int status;
    nvt_json_warn_unknown(json, addr, known);
    if ((status = nvt_json_text(json, addr, "trtype", NVT_OPTIONAL, type, sizeof(type))) ||
        (status = LOOK_UP(json, "trtype", types, type, &referral->trtype)) ||
        (status = nvt_json_text(json, addr, "adrfam", NVT_OPTIONAL, family, sizeof(family))) ||
        (status = LOOK_UP(json, "adrfam", all_families, family, &referral->adrfam)) ||
        (status = nvt_json_number(json, addr, "portid", NVT_OPTIONAL, UINT16_MAX, &portid)) ||
        (status = nvt_json_text(json, addr, "trsvcid", NVT_OPTIONAL, referral->trsvcid,
                                sizeof(referral->trsvcid))))
        return status;
    referral->portid = (uint16_t)portid;
    return nvt_json_text(json, addr, "traddr", NVT_REQUIRED, referral->traddr,
                         sizeof(referral->traddr));
}

static int take_referral(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {"addr", "enable", "name", "subnqn", NULL};
    struct nvt_referral *referral = into;
    json_t *addr = NULL;
    int status = take_object(json, element);
    if (status)
        return status;
    *referral = (struct nvt_referral){.enable = true, .subsysnqn = {NVF_DISCOVERY_NQN}};
    strcpy(referral->trsvcid, "4420");
    nvt_json_warn_unknown(json, element, known);
    if ((status = nvt_json_text(json, element, "name", NVT_REQUIRED, referral->name,
                                sizeof(referral->name))) ||
        (status = nvt_json_flag(json, element, "enable", &referral->enable)) ||
        (status = nvt_json_text(json, element, "subnqn", NVT_OPTIONAL, referral->subsysnqn.text,
                                sizeof(referral->subsysnqn.text))) ||
        (status = nvt_json_object(json, element, "addr", NVT_REQUIRED, &addr)))
        return status;
    const size_t at = nvt_json_enter(json, "addr", 0);
    status = take_referral_addr(json, addr, referral);
    nvt_json_leave(json, at);
    return status;
}

static int take_listen(struct nvt_json *json, json_t *addr, struct nvt_listen *listen)
{
    char traddr[NVT_TRADDR_MAX] = "", service[NVT_TRSVCID_MAX] = "4420", family[16] = "";
    int status;
    if ((status = nvt_json_text(json, addr, "adrfam", NVT_OPTIONAL, family, sizeof(family))) ||
        (status = nvt_json_text(json, addr, "traddr", NVT_REQUIRED, traddr, sizeof(traddr))) ||
        (status = nvt_json_text(json, addr, "trsvcid", NVT_OPTIONAL, service, sizeof(service))))
        return status;
    if (*family && (status = LOOK_UP(json, "adrfam", families, family, &listen->adrfam)))
        return status;
    if (nvt_addr_parse(traddr, listen->adrfam, listen))
        return nvt_json_fail(json, "traddr", "\"%.64s\" is no %s address; write one in numbers",
                             traddr, *family ? family : "IP");
    listen->port = nvt_port_parse(service);
    if (!listen->port)
        return nvt_json_fail(json, "trsvcid", "\"%.32s\" is not a port; use 1 to 65535, as 4420",
                             service);
    return 0;
}

static int take_port_addr(struct nvt_json *json, json_t *addr, struct nvt_config_port *port)
{
    static const char *const known[] = {"adrfam", "traddr", "treq", "trsvcid",
                                        "trtype", "tsas",   NULL};
    char type[32] = "", treq[32] = "not specified";
    int status;
    nvt_json_warn_unknown(json, addr, known);
    if ((status = nvt_json_text(json, addr, "trtype", NVT_REQUIRED, type, sizeof(type))))
        return status;
    if (strcmp(type, "rdma") != 0)
        return nvt_json_fail(json, "trtype",
                             "\"%s\" is not served, only \"rdma\" is; write that, or remove "
                             "the port",
                             type);
    if ((status = nvt_json_text(json, addr, "treq", NVT_OPTIONAL, treq, sizeof(treq))) ||
        (status = LOOK_UP(json, "treq", treqs, treq, &port->treq)))
        return status;
    return take_listen(json, addr, &port->listen);
}

static int take_port_param(struct nvt_json *json, json_t *param, struct nvt_config_port *port)
{
    static const char *const known[] = {"inline_data_size", "max_queue_size", "pi_enable", NULL};
    char text[32] = "-1"; /* how the kernel writes "not set" */
    bool protects = false;
    uint64_t bytes = NVT_IN_CAPSULE_DEFAULT;
    int status;
    nvt_json_warn_unknown(json, param, known);
    if ((status =
             nvt_json_text(json, param, "inline_data_size", NVT_OPTIONAL, text, sizeof(text))) ||
        (status = nvt_json_flag(json, param, "pi_enable", &protects)))
        return status;
    if (strcmp(text, "-1") != 0 && (status = nvt_json_number(json, param, "inline_data_size",
                                                             NVT_OPTIONAL, UINT32_MAX, &bytes)))
        return status;
    if (protects)
        nvt_json_warn(json, "pi_enable", "protection information is not served, and passed over");
    if (bytes > NVF_IN_CAPSULE_MAX) {
        nvt_json_warn(json, "inline_data_size", "%d is the most, and taken", NVF_IN_CAPSULE_MAX);
        bytes = NVF_IN_CAPSULE_MAX;
    }
    port->in_capsule_bytes = (uint32_t)bytes;
    return 0;
}

static int take_port(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {"addr",      "ana_groups", "param", "portid",
                                        "referrals", "subsystems", NULL};
    struct nvt_config_port *port = into;
    json_t *addr = NULL, *param = NULL;
    uint64_t portid = 0;
    int status = take_object(json, element);
    if (status)
        return status;
    nvt_json_warn_unknown(json, element, known);
    if ((status = nvt_json_number(json, element, "portid", NVT_REQUIRED, UINT16_MAX, &portid)) ||
        (status = nvt_json_object(json, element, "addr", NVT_REQUIRED, &addr)) ||
        (status = nvt_json_object(json, element, "param", NVT_OPTIONAL, &param)))
        return status;
    port->portid = (uint16_t)portid;
    size_t at = nvt_json_enter(json, "addr", 0);
    status = take_port_addr(json, addr, port);
    nvt_json_leave(json, at);
    if (status)
        return status;
    at = nvt_json_enter(json, "param", 0);
    status = take_port_param(json, param, port);
    nvt_json_leave(json, at);
    if (status ||
        (status =
             nvt_json_list(json, element, "referrals", NVT_REFERRALS_MAX, sizeof(*port->referrals),
                           &port->referrals, &port->referral_count, take_referral)) ||
        (status = nvt_json_list(json, element, "ana_groups", NVT_ANA_GROUPS_MAX,
                                sizeof(*port->ana_groups), &port->ana_groups,
                                &port->ana_group_count, take_ana_group)))
        return status;
    return nvt_json_list(json, element, "subsystems", NVT_SUBSYSTEMS_MAX, sizeof(struct nvt_nqn),
                         &port->subsystems, &port->subsystem_count, take_nqn);
}

static int take_backend(struct nvt_json *json, json_t *device, struct nvt_config_namespace *ns,
                        struct nvt_backend_spec *spec)
{
    char error[512];
    ns->backend = calloc(1, NVT_SPEC_MAX);
    if (!ns->backend)
        return -ENOMEM;
    const int status = nvt_json_text(json, device, "path", ns->enable ? NVT_REQUIRED : NVT_OPTIONAL,
                                     ns->backend, NVT_SPEC_MAX);
    char *fitted = realloc(ns->backend, strlen(ns->backend) + 1);
    if (fitted)
        ns->backend = fitted;
    if (status || !*ns->backend)
        return status;
    /* The device of one that is not enabled need not be there. */
    if (nvt_backend_spec_split(ns->backend, spec, error, sizeof(error)) ||
        (ns->enable && nvt_backend_spec_resolve(spec, error, sizeof(error))))
        return nvt_json_fail(json, "path", "%s", error);
    if (spec->nsid && spec->nsid != ns->nsid)
        return nvt_json_fail(json, "path", "says nsid=%u of namespace %u; remove it", spec->nsid,
                             ns->nsid);
    return 0;
}

/* All zeroes is the kernel's "none". */
static int take_identifier(struct nvt_json *json, json_t *device, const char *key, bool *has,
                           uint8_t id[NVT_UUID_BYTES])
{
    static const uint8_t none[NVT_UUID_BYTES];
    uint8_t found[NVT_UUID_BYTES] = {0};
    char text[64] = "";
    const int status = nvt_json_text(json, device, key, NVT_OPTIONAL, text, sizeof(text));
    if (status)
        return status;
    if (*text && nvt_uuid_parse(text, found))
        return nvt_json_fail(json, key, "not 32 hexadecimal digits; write such, or remove it");
    if (memcmp(found, none, sizeof(none)) != 0) {
        memcpy(id, found, sizeof(found));
        *has = true;
    }
    return 0;
}

static int take_device(struct nvt_json *json, json_t *device, struct nvt_config_namespace *ns)
{
    static const char *const known[] = {"nguid", "path", "uuid", NULL};
    struct nvt_backend_spec spec = {0};
    nvt_json_warn_unknown(json, device, known);
    int status = take_backend(json, device, ns, &spec);
    if (!status)
        status = take_identifier(json, device, "uuid", &spec.has_uuid, spec.uuid);
    if (!status)
        status = take_identifier(json, device, "nguid", &spec.has_nguid, spec.nguid);
    nvt_config_describe(ns, &spec);
    return status;
}

static int take_group(struct nvt_json *json, json_t *element, struct nvt_config_namespace *ns)
{
    uint64_t grpid = 1;
    json_t *ana = NULL;
    int status;
    if ((status = nvt_json_object(json, element, "ana", NVT_OPTIONAL, &ana)) ||
        (status = nvt_json_number(json, ana, "grpid", NVT_OPTIONAL, NVT_ANA_GROUPS_MAX, &grpid)) ||
        (status =
             nvt_json_number(json, element, "ana_grpid", NVT_OPTIONAL, NVT_ANA_GROUPS_MAX, &grpid)))
        return status;
    if (!grpid)
        return nvt_json_fail(json, "ana_grpid", "0 is no group; use 1 to %d", NVT_ANA_GROUPS_MAX);
    ns->ana_grpid = (uint32_t)grpid;
    return 0;
}

static int take_namespace(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {"ana", "ana_grpid", "device", "enable", "nsid", NULL};
    struct nvt_config_namespace *ns = into;
    json_t *device = NULL;
    uint64_t nsid = 0;
    int status = take_object(json, element);
    if (status)
        return status;
    nvt_json_warn_unknown(json, element, known);
    if ((status = nvt_json_number(json, element, "nsid", NVT_REQUIRED, UINT32_MAX - 1, &nsid)) ||
        (status = nvt_json_flag(json, element, "enable", &ns->enable)) ||
        (status = take_group(json, element, ns)) ||
        (status = nvt_json_object(json, element, "device", NVT_REQUIRED, &device)))
        return status;
    if (!nsid)
        return nvt_json_fail(json, "nsid", "0 is no namespace; use 1 or more");
    ns->nsid = (uint32_t)nsid;
    const size_t at = nvt_json_enter(json, "device", 0);
    status = take_device(json, device, ns);
    nvt_json_leave(json, at);
    return status;
}

static int take_attr(struct nvt_json *json, json_t *attr, struct nvt_config_subsystem *subsystem)
{
    static const char *const known[] = {"allow_any_host", "cntlid_max", "cntlid_min", "firmware",
                                        "ieee_oui",       "model",      "pi_enable",  "qid_max",
                                        "serial",         "version",    NULL};
    uint64_t cntlid_min = 1, cntlid_max = NVT_CNTLID_MAX, qid_max = 0;
    bool protects = false;
    int status;
    nvt_json_warn_unknown(json, attr, known);
    if ((status = nvt_json_flag(json, attr, "allow_any_host", &subsystem->allow_any_host)) ||
        (status = nvt_json_flag(json, attr, "pi_enable", &protects)) ||
        (status = nvt_json_number(json, attr, "cntlid_min", NVT_OPTIONAL, NVT_CNTLID_MAX,
                                  &cntlid_min)) ||
        (status = nvt_json_number(json, attr, "cntlid_max", NVT_OPTIONAL, NVT_CNTLID_MAX,
                                  &cntlid_max)) ||
        (status = nvt_json_number(json, attr, "qid_max", NVT_OPTIONAL, UINT16_MAX, &qid_max)) ||
        (status = nvt_json_text(json, attr, "serial", NVT_OPTIONAL, subsystem->serial,
                                sizeof(subsystem->serial))) ||
        (status = nvt_json_text(json, attr, "model", NVT_OPTIONAL, subsystem->model,
                                sizeof(subsystem->model))) ||
        (status = nvt_json_text(json, attr, "firmware", NVT_OPTIONAL, subsystem->firmware,
                                sizeof(subsystem->firmware))))
        return status;
    if (!cntlid_min || cntlid_min > cntlid_max)
        return nvt_json_fail(json, "cntlid_min", "%u to %u is no range; use 1 to %d",
                             (unsigned)cntlid_min, (unsigned)cntlid_max, NVT_CNTLID_MAX);
    if (protects)
        nvt_json_warn(json, "pi_enable", "protection information is not served, and passed over");
    subsystem->cntlid_min = (uint16_t)cntlid_min;
    subsystem->cntlid_max = (uint16_t)cntlid_max;
    subsystem->qid_max = (uint16_t)qid_max;
    return 0;
}

static int take_subsystem(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {"allowed_hosts", "attr", "namespaces", "nqn", NULL};
    struct nvt_config_subsystem *subsystem = into;
    json_t *attr = NULL;
    int status = take_object(json, element);
    if (status)
        return status;
    nvt_json_warn_unknown(json, element, known);
    strcpy(subsystem->model, "Sidewire");
    if ((status = nvt_json_text(json, element, "nqn", NVT_REQUIRED, subsystem->nqn.text,
                                sizeof(subsystem->nqn.text))) ||
        (status = nvt_json_object(json, element, "attr", NVT_OPTIONAL, &attr)))
        return status;
    if (strcmp(subsystem->nqn.text, NVF_DISCOVERY_NQN) == 0)
        return nvt_json_fail(json, "nqn", "the discovery subsystem is there by itself; remove it");
    const size_t at = nvt_json_enter(json, "attr", 0);
    status = take_attr(json, attr, subsystem);
    nvt_json_leave(json, at);
    if (status || (status = nvt_json_list(json, element, "allowed_hosts", NVT_HOSTS_MAX,
                                          sizeof(struct nvt_nqn), &subsystem->hosts,
                                          &subsystem->host_count, take_nqn)))
        return status;
    return nvt_json_list(json, element, "namespaces", NVT_NAMESPACES_MAX,
                         sizeof(*subsystem->namespaces), &subsystem->namespaces,
                         &subsystem->namespace_count, take_namespace);
}

static int config_parse_take_secret(struct nvt_json *json, json_t *object, const char *key,
                                    char text[NVT_KEY_MAX])
{
    struct nvf_secret secret;
    const int status = nvt_json_text(json, object, key, NVT_OPTIONAL, text, NVT_KEY_MAX);
    if (status || !*text)
        return status;
    const char *fault = nvf_secret_parse(text, &secret);
    explicit_bzero(&secret, sizeof(secret));
    return fault ? nvt_json_fail(json, key, "%s", fault) : 0;
}

static int take_secrets(struct nvt_json *json, json_t *object, const char *prefix,
                        struct nvt_config_host *host)
{
    static const struct name_value hashes[] = {
        {"hmac(sha256)", 1}, {"hmac(sha384)", 2}, {"hmac(sha512)", 3}};
    static const struct name_value groups[] = {{"null", 0},      {"ffdhe2048", 1},
                                               {"ffdhe3072", 2}, {"ffdhe4096", 3},
                                               {"ffdhe6144", 4}, {"ffdhe8192", 5}};
    char key[32], hash[32] = "", group[32] = "";
    int status;
    snprintf(key, sizeof(key), "%skey", prefix);
    if ((status = config_parse_take_secret(json, object, key, host->dhchap_key)))
        return status;
    snprintf(key, sizeof(key), "%sctrl_key", prefix);
    if ((status = config_parse_take_secret(json, object, key, host->dhchap_ctrl_key)))
        return status;
    snprintf(key, sizeof(key), "%shash", prefix);
    if ((status = nvt_json_text(json, object, key, NVT_OPTIONAL, hash, sizeof(hash))) ||
        (*hash && (status = LOOK_UP(json, key, hashes, hash, &host->dhchap_hash))))
        return status;
    snprintf(key, sizeof(key), "%sdhgroup", prefix);
    if ((status = nvt_json_text(json, object, key, NVT_OPTIONAL, group, sizeof(group))) || !*group)
        return status;
    return LOOK_UP(json, key, groups, group, &host->dhchap_dhgroup);
}

static int take_host(struct nvt_json *json, json_t *element, void *into)
{
    static const char *const known[] = {
        "nqn", "dhchap", "dhchap_key", "dhchap_ctrl_key", "dhchap_hash", "dhchap_dhgroup", NULL};
    static const char *const known_grouped[] = {"key", "ctrl_key", "hash", "dhgroup", NULL};
    struct nvt_config_host *host = into;
    json_t *grouped = NULL;
    int status = take_object(json, element);
    if (status)
        return status;
    host->dhchap_hash = 1;
    nvt_json_warn_unknown(json, element, known);
    if ((status = nvt_json_text(json, element, "nqn", NVT_REQUIRED, host->nqn.text,
                                sizeof(host->nqn.text))) ||
        (status = take_secrets(json, element, "dhchap_", host)) ||
        (status = nvt_json_object(json, element, "dhchap", NVT_OPTIONAL, &grouped)) || !grouped)
        return status;
    const size_t at = nvt_json_enter(json, "dhchap", 0);
    nvt_json_warn_unknown(json, grouped, known_grouped);
    status = take_secrets(json, grouped, "", host);
    nvt_json_leave(json, at);
    return status;
}

static int compare_nsid(const void *a, const void *b)
{
    const struct nvt_config_namespace *left = a, *right = b;
    return (left->nsid > right->nsid) - (left->nsid < right->nsid);
}

/* Gives each namespace an identity, and sees that no two of a subsystem have the same. */
static int finish_namespaces(struct nvt_json *json, struct nvt_config_subsystem *subsystem)
{
    struct nvt_backend_spec spec;
    char error[512], nqn[64];
    snprintf(nqn, sizeof(nqn), "%.63s", subsystem->nqn.text);
    if (subsystem->namespace_count)
        qsort(subsystem->namespaces, subsystem->namespace_count, sizeof(*subsystem->namespaces),
              compare_nsid);
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        struct nvt_config_namespace *ns = &subsystem->namespaces[i];
        if (i && ns->nsid == ns[-1].nsid)
            return nvt_json_fail(json, "subsystems", "%s has nsid %u twice; change one", nqn,
                                 ns->nsid);
        (void)nvt_backend_spec_split(ns->backend, &spec, error, sizeof(error));
        nvt_config_identify(ns, &spec, subsystem->nqn.text, json->source->machine_id);
    }
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        const struct nvt_config_namespace *ns = &subsystem->namespaces[i],
                                          *twin = nvt_config_twin(subsystem, ns);
        if (twin)
            return nvt_json_fail(json, "subsystems",
                                 "%s has one uuid for nsid %u and %u; change one", nqn, ns->nsid,
                                 twin->nsid);
    }
    return 0;
}

static int finish_subsystem(struct nvt_json *json, const struct nvt_config *config,
                            struct nvt_config_subsystem *subsystem)
{
    if (nvt_config_find_subsystem(config, subsystem->nqn.text) != subsystem)
        return nvt_json_fail(json, "subsystems", "%.64s is there twice; remove one",
                             subsystem->nqn.text);
    if (!*subsystem->serial)
        nvt_default_serial(json->source->machine_id, subsystem->nqn.text, subsystem->serial);
    if (!subsystem->allow_any_host && !subsystem->host_count)
        nvt_json_warn(json, "subsystems",
                      "%.64s allows no host; fill allowed_hosts or set allow_any_host",
                      subsystem->nqn.text);
    return finish_namespaces(json, subsystem);
}

static bool listens_alike(const struct nvt_config_port *a, const struct nvt_config_port *b)
{
    return a->listen.port == b->listen.port && strcmp(a->listen.traddr, b->listen.traddr) == 0;
}

static int check_port(struct nvt_json *json, const struct nvt_config *config,
                      const struct nvt_config_port *port)
{
    if (nvt_config_find_port(config, port->portid) != port)
        return nvt_json_fail(json, "ports", "portid %u is there twice; change one", port->portid);
    for (const struct nvt_config_port *other = config->ports; other < port; other++)
        if (listens_alike(other, port))
            return nvt_json_fail(json, "ports", "%u and %u have one address; change one",
                                 other->portid, port->portid);
    for (size_t i = 0; i < port->subsystem_count; i++)
        if (!nvt_config_find_subsystem(config, port->subsystems[i].text))
            return nvt_json_fail(json, "ports",
                                 "%u serves %.64s, which is no subsystem here; add or remove it",
                                 port->portid, port->subsystems[i].text);
    return 0;
}

static int finish_config(struct nvt_json *json, struct nvt_config *config)
{
    int status = 0;
    for (size_t i = 0; i < config->subsystem_count && !status; i++)
        status = finish_subsystem(json, config, &config->subsystems[i]);
    for (size_t i = 0; i < config->port_count && !status; i++)
        status = check_port(json, config, &config->ports[i]);
    for (size_t i = 0; i < config->host_count && !status; i++)
        if (nvt_config_find_host(config, config->hosts[i].nqn.text) != &config->hosts[i])
            status = nvt_json_fail(json, "hosts", "%.64s is there twice; remove one",
                                   config->hosts[i].nqn.text);
    return status;
}

static int take_root(struct nvt_json *json, json_t *root, struct nvt_config *config)
{
    static const char *const known[] = {"hosts", "ports", "subsystems", NULL};
    int status = take_object(json, root);
    if (status)
        return status;
    nvt_json_warn_unknown(json, root, known);
    if ((status = nvt_json_list(json, root, "hosts", NVT_HOSTS_MAX, sizeof(*config->hosts),
                                &config->hosts, &config->host_count, take_host)) ||
        (status = nvt_json_list(json, root, "subsystems", NVT_SUBSYSTEMS_MAX,
                                sizeof(*config->subsystems), &config->subsystems,
                                &config->subsystem_count, take_subsystem)) ||
        (status = nvt_json_list(json, root, "ports", NVT_PORTS_MAX, sizeof(*config->ports),
                                &config->ports, &config->port_count, take_port)))
        return status;
    return finish_config(json, config);
}

int nvt_config_parse(const char *text, size_t len, const struct nvt_config_source *source,
                     struct nvt_config **out, char *error, size_t error_bytes)
{
    struct nvt_json json = {.source = source, .error = error, .error_bytes = error_bytes};
    json_error_t fault;
    if (len > NVT_CONFIG_FILE_MAX)
        return nvt_json_fail(&json, NULL, "larger than %d MiB", NVT_CONFIG_FILE_MAX >> 20);
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    if (!root)
        return nvt_json_fail(&json, NULL, "line %d: no JSON: %s; mend it there", fault.line,
                             fault.text);
    struct nvt_config *config = calloc(1, sizeof(*config));
    int status = config ? take_root(&json, root, config) : -ENOMEM;
    json_decref(root);
    if (status == -ENOMEM)
        snprintf(error, error_bytes, "%s: no memory for it", source->name);
    if (status)
        nvt_config_free(config);
    else
        *out = config;
    return status;
}
