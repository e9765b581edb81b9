/* SPDX-License-Identifier: BSD-2-Clause */
/* `list`: the namespaces of a subsystem, in the columns of nvme-cli. `connect-test`: what a
 * connection negotiates and how fast it answers. */
#include "common/time/clock.h"
#include "nvme/command/host_commands.h"

#include <endian.h>

#include <nvme/types.h>

struct identity {
    char sn[21], mn[41], fr[9];
};

static int read_identity(struct nv_host *host, struct identity *out)
{
    static struct nvme_id_ctrl id;
    struct sw_nvme_result result;
    if (sw_nvme_identify(host->controller, NVME_IDENTIFY_CNS_CTRL, 0, &id, &result))
        return nv_fail_result("Identify Controller", &result);
    nv_clean_string(id.sn, sizeof(id.sn), out->sn, sizeof(out->sn));
    nv_clean_string(id.mn, sizeof(id.mn), out->mn, sizeof(out->mn));
    nv_clean_string(id.fr, sizeof(id.fr), out->fr, sizeof(out->fr));
    return 0;
}

/* "268.44  MB", as nvme-cli has it. */
static void format_bytes(double bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    unsigned unit = 0;
    for (; bytes >= 1000 && unit < 5; unit++)
        bytes /= 1000;
    snprintf(out, out_bytes, "%6.2f  %2s", bytes, units[unit]);
}

static void list_print_row(const struct nv_host *host, const struct identity *identity,
                           const struct sw_nvme_namespace *ns)
{
    char size[32], format[48];
    format_bytes((double)ns->blocks * ns->block_bytes, size, sizeof(size));
    snprintf(format, sizeof(format), "%3u   B + %2u B", ns->block_bytes, ns->metadata_bytes);
    printf("%-24s %-20s %-40s %-9u %-26s %-16s %-8s\n", host->options.traddr, identity->sn,
           identity->mn, ns->nsid, size, format, identity->fr);
}

static json_t *list_row_json(const struct nv_host *host, const struct identity *identity,
                             const struct sw_nvme_namespace *ns)
{
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "Address", host->options.traddr,
        "SubsystemNQN", host->options.subsysnqn, "NameSpace", (json_int_t)ns->nsid, "SerialNumber",
        identity->sn, "ModelNumber", identity->mn, "Firmware", identity->fr, "PhysicalSize",
        (json_int_t)(ns->blocks * ns->block_bytes), "MaximumLBA", (json_int_t)ns->blocks,
        "SectorSize", (json_int_t)ns->block_bytes, "MetadataSize", (json_int_t)ns->metadata_bytes);
}

static int nvme_list_namespaces(struct nv_host *host)
{
    enum { BATCH = 64 };
    uint32_t nsids[BATCH], count, after = 0;
    struct sw_nvme_result result;
    struct identity identity;
    if (read_identity(host, &identity))
        return 1;
    json_t *rows = json_array();
    if (host->format == NV_NORMAL) {
        static const char line[] = "----------------------------------------";
        printf("%-24s %-20s %-40s %-9s %-26s %-16s %-8s\n", "Address", "SN", "Model", "Namespace",
               "Size", "Format", "FW Rev");
        printf("%.24s %.20s %.40s %.9s %.26s %.16s %.8s\n", line, line, line, line, line, line,
               line);
    }
    do {
        if (sw_nvme_list(host->controller, after, nsids, BATCH, &count, &result)) {
            json_decref(rows);
            return nv_fail_result("the list of namespaces", &result);
        }
        for (uint32_t i = 0; i < count; i++) {
            struct sw_nvme_namespace ns;
            after = nsids[i];
            if (sw_nvme_namespace_of(host->controller, nsids[i], &ns, &result))
                continue; /* it went meanwhile */
            if (host->format == NV_NORMAL)
                list_print_row(host, &identity, &ns);
            else
                json_array_append_new(rows, list_row_json(host, &identity, &ns));
        }
    } while (count == BATCH);
    if (host->format != NV_NORMAL)
        return mover_print_json(json_pack("{s:o, s:o*}", "Devices", rows, "paths",
                                          host->options.more_count ? nv_paths_json(host) : NULL));
    nv_paths_print(host);
    json_decref(rows);
    return fflush(stdout) ? 1 : 0;
}

int nv_list(int argc, char **argv)
{
    static const char about[] = "Lists namespaces of a subsystem.";
    struct nv_host host = {0};
    nv_host_parse_alone(about, argc, argv, &host);
    if (nv_host_connect(&host))
        return 1;
    const int failed = nvme_list_namespaces(&host);
    nv_host_close(&host);
    return failed;
}

struct trial {
    double admin_us, connect_ms, queue_ms;
};

static int try_connection(struct nv_host *host, struct trial *trial)
{
    enum { ROUNDS = 20 };
    struct sw_nvme_error error;
    struct sw_nvme_result result;
    struct sw_nvme_info info;
    const uint64_t start = mover_now_ns();
    if (nv_host_connect(host))
        return 1;
    const uint64_t connected = mover_now_ns();
    trial->connect_ms = (double)(connected - start) / 1e6;
    sw_nvme_info_of(host->controller, &info);
    /* Queues one by one, all at the same time. */
    struct sw_nvme_queue *queues[64];
    uint32_t open = 0;
    int failed = 0;
    while (open < info.nr_io_queues && !failed) {
        failed = sw_nvme_queue_open(host->controller, 0, &error, &queues[open]) != SW_NVME_OK;
        open += !failed;
    }
    if (failed)
        nv_fail_error(&error);
    trial->queue_ms = (double)(mover_now_ns() - connected) / 1e6;
    while (open)
        sw_nvme_queue_close(queues[--open]);
    const uint64_t asked = mover_now_ns();
    for (unsigned i = 0; i < ROUNDS && !failed; i++) {
        const struct sw_nvme_admin keep_alive = {.opcode = nvme_admin_keep_alive};
        if (sw_nvme_admin(host->controller, &keep_alive, &result))
            failed = nv_fail_result("Keep Alive", &result);
    }
    trial->admin_us = (double)(mover_now_ns() - asked) / 1e3 / ROUNDS;
    return failed;
}

static int print_trial(const struct nv_host *host, const struct trial *trial)
{
    struct sw_nvme_info info;
    sw_nvme_info_of(host->controller, &info);
    if (host->format != NV_NORMAL)
        return mover_print_json(json_pack(
            "{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:f}", "cntlid",
            (int)info.cntlid, "version", (json_int_t)info.version, "io_queues",
            (json_int_t)info.nr_io_queues, "nr_io_queues", (json_int_t)info.nr_io_queues,
            "queue_size", (json_int_t)info.queue_size, "transfer_max_bytes",
            (json_int_t)info.transfer_max_bytes, "in_capsule_bytes",
            (json_int_t)info.in_capsule_bytes, "keep_alive_ms", (json_int_t)info.keep_alive_ms,
            "traffic_keeps_alive", (int)info.traffic_keeps_alive, "connect_ms", trial->connect_ms,
            "queues_ms", trial->queue_ms, "admin_us", trial->admin_us));
    printf("connected          : cntlid %#x, version %u.%u.%u\n", info.cntlid, info.version >> 16,
           info.version >> 8 & 0xff, info.version & 0xff);
    printf("I/O queues         : %u of %u entries\n", info.nr_io_queues, info.queue_size);
    printf("largest transfer   : %u KiB\n", info.transfer_max_bytes / 1024);
    printf("data in capsules   : up to %u bytes\n", info.in_capsule_bytes);
    printf("keep-alive         : %u ms%s\n", info.keep_alive_ms,
           info.traffic_keeps_alive ? ", traffic counts" : "");
    printf("time to connect    : %.1f ms, all queues %.1f ms more\n", trial->connect_ms,
           trial->queue_ms);
    printf("admin round trip   : %.0f us\n", trial->admin_us);
    return fflush(stdout) ? 1 : 0;
}

int nv_connect_test(int argc, char **argv)
{
    static const char about[] = "Connects all queues, says what was negotiated, and disconnects.";
    struct nv_host host = {0};
    struct trial trial = {0};
    nv_host_parse_alone(about, argc, argv, &host);
    int failed = try_connection(&host, &trial);
    if (!failed)
        failed = print_trial(&host, &trial);
    if (host.controller)
        nv_host_close(&host);
    return failed;
}
