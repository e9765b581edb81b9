/* SPDX-License-Identifier: BSD-2-Clause */
/* `discover`: the discovery log, as nvme-cli shows it. */
#include "nvme/command/host_commands.h"

#include <endian.h>
#include <stdlib.h>

#include <nvme/types.h>

struct name {
    unsigned value;
    const char *name;
};

static const struct name trtypes[] = {{1, "rdma"}, {2, "fc"}, {3, "tcp"}, {254, "loop"}, {0, NULL}};
static const struct name adrfams[] = {{0, "pci"},        {1, "ipv4"},          {2, "ipv6"},
                                      {3, "infiniband"}, {4, "fibre-channel"}, {254, "loop"},
                                      {0, NULL}};
static const struct name subtypes[] = {{1, "discovery subsystem referral"},
                                       {2, "nvme subsystem"},
                                       {3, "current discovery subsystem"},
                                       {0, NULL}};
static const struct name treqs[] = {{0, "not specified"},
                                    {1, "required"},
                                    {2, "not required"},
                                    {4, "not specified, sq flow control disable supported"},
                                    {0, NULL}};
static const struct name eflagses[] = {{0, "none"},
                                       {1, "duplicate discovery information"},
                                       {2, "explicit discovery connections"},
                                       {3, "explicit discovery connections, duplicate discovery "
                                           "information"},
                                       {0, NULL}};
static const struct name prtypes[] = {{1, "not specified"}, {2, "infiniband"}, {3, "roce"},
                                      {4, "roce-v2"},       {5, "iwarp"},      {0, NULL}};
static const struct name qptypes[] = {{1, "connected"}, {2, "datagram"}, {0, NULL}};
static const struct name cmses[] = {{1, "rdma-cm"}, {0, NULL}};

static const char *name_of(const struct name *names, unsigned value)
{
    for (; names->name; names++) {
        if (names->value == value)
            return names->name;
    }
    return "unrecognized";
}

static void discover_print_record(unsigned index, const struct nvmf_disc_log_entry *e)
{
    char trsvcid[NVMF_TRSVCID_SIZE + 1], subnqn[NVME_NQN_LENGTH + 1], traddr[NVMF_TRADDR_SIZE + 1];
    nv_clean_string(e->trsvcid, sizeof(e->trsvcid), trsvcid, sizeof(trsvcid));
    nv_clean_string(e->subnqn, sizeof(e->subnqn), subnqn, sizeof(subnqn));
    nv_clean_string(e->traddr, sizeof(e->traddr), traddr, sizeof(traddr));
    printf("=====Discovery Log Entry %u======\n", index);
    printf("trtype:  %s\n", name_of(trtypes, e->trtype));
    printf("adrfam:  %s\n", name_of(adrfams, e->adrfam));
    printf("subtype: %s\n", name_of(subtypes, e->subtype));
    printf("treq:    %s\n", name_of(treqs, e->treq & 7));
    printf("portid:  %u\n", le16toh(e->portid));
    printf("trsvcid: %s\n", trsvcid);
    printf("subnqn:  %s\n", subnqn);
    printf("traddr:  %s\n", traddr);
    printf("eflags:  %s\n", name_of(eflagses, le16toh(e->eflags)));
    if (e->trtype != 1)
        return;
    printf("rdma_prtype: %s\n", name_of(prtypes, e->tsas.rdma.prtype));
    printf("rdma_qptype: %s\n", name_of(qptypes, e->tsas.rdma.qptype));
    printf("rdma_cms:    %s\n", name_of(cmses, e->tsas.rdma.cms));
    printf("rdma_pkey: 0x%04x\n", le16toh(e->tsas.rdma.pkey));
}

static json_t *record_json(const struct nvmf_disc_log_entry *e)
{
    char trsvcid[NVMF_TRSVCID_SIZE + 1], subnqn[NVME_NQN_LENGTH + 1], traddr[NVMF_TRADDR_SIZE + 1];
    nv_clean_string(e->trsvcid, sizeof(e->trsvcid), trsvcid, sizeof(trsvcid));
    nv_clean_string(e->subnqn, sizeof(e->subnqn), subnqn, sizeof(subnqn));
    nv_clean_string(e->traddr, sizeof(e->traddr), traddr, sizeof(traddr));
    json_t *record = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "trtype", name_of(trtypes, e->trtype),
        "adrfam", name_of(adrfams, e->adrfam), "subtype", name_of(subtypes, e->subtype), "treq",
        name_of(treqs, e->treq & 7), "portid", (int)le16toh(e->portid), "trsvcid", trsvcid,
        "subnqn", subnqn, "traddr", traddr, "eflags", name_of(eflagses, le16toh(e->eflags)));
    if (e->trtype == 1) {
        json_object_set_new(record, "rdma_prtype",
                            json_string(name_of(prtypes, e->tsas.rdma.prtype)));
        json_object_set_new(record, "rdma_qptype",
                            json_string(name_of(qptypes, e->tsas.rdma.qptype)));
        json_object_set_new(record, "rdma_cms", json_string(name_of(cmses, e->tsas.rdma.cms)));
        json_object_set_new(record, "rdma_pkey", json_integer(le16toh(e->tsas.rdma.pkey)));
    }
    return record;
}

static int print_log(const struct nv_host *host, const struct nvmf_discovery_log *log,
                     uint64_t records)
{
    switch (host->format) {
    case NV_BINARY:
        return fwrite(log, sizeof(*log), records + 1, stdout) != records + 1;
    case NV_JSON: {
        json_t *list = json_array();
        for (uint64_t i = 0; i < records; i++)
            json_array_append_new(list, record_json(&log->entries[i]));
        return mover_print_json(
            json_pack("{s:I, s:o}", "genctr", (json_int_t)le64toh(log->genctr), "records", list));
    }
    case NV_NORMAL:
        printf("\nDiscovery Log Number of Records %llu, Generation counter %llu\n",
               (unsigned long long)records, (unsigned long long)le64toh(log->genctr));
        for (uint64_t i = 0; i < records; i++)
            discover_print_record((unsigned)i, &log->entries[i]);
        return fflush(stdout) ? 1 : 0;
    }
    return 1;
}

int nv_discover(int argc, char **argv)
{
    static const char about[] = "Shows what a target offers: its discovery log.";
    struct nv_host host = {.is_discovery = true};
    struct sw_nvme_error error;
    void *log;
    uint64_t records;
    nv_host_parse_alone(about, argc, argv, &host);
    host.options.keep_alive_ms = 0;
    if (nv_host_connect(&host))
        return 1;
    int failed = sw_nvme_discover(host.controller, &log, &records, &error) != SW_NVME_OK;
    if (failed) {
        nv_fail_error(&error);
    } else {
        failed = print_log(&host, log, records);
        free(log);
    }
    nv_host_close(&host);
    return failed;
}
