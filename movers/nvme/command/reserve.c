/* SPDX-License-Identifier: BSD-2-Clause */
/* `resv-report`, `resv-register`, `resv-acquire`, `resv-release`: reservations of a namespace, with
 * the options of nvme-cli and the report as it prints it. */
#include "common/base/minmax.h"
#include "nvme/command/host_commands.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <nvme/types.h>

enum { WAIT_MS = 60000, REPORT_BYTES = 8192 };

typedef enum sw_nvme_status submit_fn(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                      const struct sw_nvme_resv *resv);

struct reserve {
    struct nv_host host; /* must be first */
    struct sw_nvme_resv resv;
    submit_fn *submit;
};

/* ---- options ---- */

/* As nvme-cli reads keys, which other hosts may have been given by it: "010" is eight. */
static uint64_t parse_value(struct argp_state *state, const char *text, uint64_t max)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 0);
    if (*end || end == text || errno || *text == '-' || value > max)
        argp_error(state, "\"%s\" is not a number up to %#llx", text, (unsigned long long)max);
    return value;
}

static void take_key(struct argp_state *state, void *place, char *text)
{
    *(uint64_t *)place = parse_value(state, text, UINT64_MAX);
}

static void take_action(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_value(state, text, 7);
}

static void take_type(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_value(state, text, 255);
}

static void take_power(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_value(state, text, 3);
}

#define RESERVE(member) offsetof(struct reserve, member)
/* clang-format off */
#define OPTION_CURRENT \
    {"crkey", 0, "KEY", 0, "Own key, as it is registered", 4, take_key, RESERVE(resv.key)}
#define OPTION_IGNORE \
    {"iekey", 0, NULL, 0, "The own key need not be right", 4, mover_take_flag, \
     RESERVE(resv.ignores_key)}
#define OPTION_TYPE \
    {"rtype", 0, "TYPE", 0, \
     "1 write exclusive, 2 exclusive access, 3 and 4 the same but for registrants, 5 and 6 held " \
     "by all registrants", 4, take_type, RESERVE(resv.type)}
/* clang-format on */

static const struct mover_option register_options[] = {
    OPTION_CURRENT,
    {"nrkey", 0, "KEY", 0, "The new key", 4, take_key, RESERVE(resv.other)},
    {"rrega", 0, "ACTION", 0, "0 register (the default), 1 unregister, 2 replace", 4, take_action,
     RESERVE(resv.action)},
    OPTION_IGNORE,
    {"cptpl", 0, "CHANGE", 0, "When power is lost: 2 forget, 3 keep (0: as it is)", 4, take_power,
     RESERVE(resv.power)},
    {0},
};

static const struct mover_option acquire_options[] = {
    OPTION_CURRENT,
    {"prkey", 0, "KEY", 0, "The key whose owners are preempted", 4, take_key, RESERVE(resv.other)},
    OPTION_TYPE,
    {"racqa", 0, "ACTION", 0, "0 acquire (the default), 1 preempt, 2 and abort", 4, take_action,
     RESERVE(resv.action)},
    OPTION_IGNORE,
    {0},
};

static const struct mover_option release_options[] = {
    OPTION_CURRENT,
    OPTION_TYPE,
    {"rrela", 0, "ACTION", 0, "0 release (the default), 1 clear: all keys go", 4, take_action,
     RESERVE(resv.action)},
    OPTION_IGNORE,
    {0},
};

/* ---- the commands ---- */

/* Submits one request and waits for its result. */
static int reserve_run_request(struct reserve *reserve, struct sw_nvme_mem *mem, uint32_t bytes)
{
    struct nv_host *host = &reserve->host;
    const struct sw_nvme_io io = {
        .nsid = host->nsid, .data = sw_nvme_mem_data(mem), .bytes = bytes, .mem = mem};
    struct sw_nvme_result result = {0};
    struct sw_nvme_error error;
    struct sw_nvme_queue *queue;
    if (sw_nvme_queue_open(host->controller, 0, &error, &queue))
        return nv_fail_error(&error);
    result.status = reserve->submit ? reserve->submit(queue, &io, &reserve->resv)
                                    : sw_nvme_resv_report(queue, &io);
    if (!result.status)
        result.status = sw_nvme_queue_wait(queue, sw_nvme_deadline_ms(WAIT_MS));
    if (!result.status)
        sw_nvme_queue_take(queue, &result, 1);
    sw_nvme_queue_close(queue);
    char what[48];
    snprintf(what, sizeof(what), "namespace %u", host->nsid);
    return result.status ? nv_fail_result(what, &result) : 0;
}

static uint32_t reserve_count_of(const struct nvme_resv_status *report)
{
    return report->regctl[0] | (uint32_t)report->regctl[1] << 8;
}

static uint32_t shown_of(const struct nvme_resv_status *report)
{
    const uint32_t room = (REPORT_BYTES - sizeof(*report)) / sizeof(*report->regctl_eds);
    return mover_min_u32(reserve_count_of(report), room);
}

static json_t *report_json(const struct nvme_resv_status *report)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < shown_of(report); i++) {
        const struct nvme_registered_ctrl_ext *one = &report->regctl_eds[i];
        char id[33], key[19]; /* a key may be more than JSON's numbers have room for */
        mover_hex(one->hostid, id);
        snprintf(key, sizeof(key), "%#llx", (unsigned long long)le64toh(one->rkey));
        json_array_append_new(rows,
                              json_pack("{s:i, s:i, s:s, s:s}", "cntlid", (int)le16toh(one->cntlid),
                                        "rcsts", (int)one->rcsts, "rkey", key, "hostid", id));
    }
    return json_pack("{s:I, s:i, s:i, s:i, s:o}", "gen", (json_int_t)le32toh(report->gen), "rtype",
                     (int)report->rtype, "regctl", (int)reserve_count_of(report), "ptpls",
                     (int)report->ptpls, "regctlext", rows);
}

static int print_report(const struct nv_host *host, const struct nvme_resv_status *report)
{
    if (host->format == NV_JSON)
        return mover_print_json(report_json(report));
    if (host->format == NV_BINARY)
        return fwrite(report, sizeof(*report) + shown_of(report) * sizeof(*report->regctl_eds), 1,
                      stdout) != 1;
    printf("NVME Reservation status:\n\ngen       : %u\nrtype     : %u\nregctl    : %u\n"
           "ptpls     : %u\n",
           le32toh(report->gen), report->rtype, reserve_count_of(report), report->ptpls);
    for (uint32_t i = 0; i < shown_of(report); i++) {
        const struct nvme_registered_ctrl_ext *one = &report->regctl_eds[i];
        char id[33];
        mover_hex(one->hostid, id);
        printf("regctlext[%u] :\n  cntlid     : %x\n  rcsts      : %x\n  rkey       : %llx\n"
               "  hostid     : %s\n",
               i, le16toh(one->cntlid), one->rcsts, (unsigned long long)le64toh(one->rkey), id);
    }
    return fflush(stdout) ? 1 : 0;
}

static int reserve_run_command(const struct mover_option *options, const char *about,
                               submit_fn *submit, int argc, char **argv)
{
    const struct mover_usage usage = {
        .about = about, .own = {.rows = options}, .shared = &nv_host_options};
    struct reserve reserve = {.submit = submit};
    struct nv_host *host = &reserve.host;
    struct sw_nvme_namespace ns;
    struct sw_nvme_mem *mem = NULL;
    nv_host_parse(&usage, argc, argv, &reserve);
    if (nv_host_connect(host))
        return 1;
    int failed = nv_host_namespace(host, &ns);
    if (!failed && sw_nvme_mem_alloc(host->controller, REPORT_BYTES, &mem))
        failed = mover_fail("no memory that the controller may use");
    if (!failed)
        failed = reserve_run_request(&reserve, mem, REPORT_BYTES);
    if (!failed && !submit)
        failed = print_report(host, sw_nvme_mem_data(mem));
    sw_nvme_mem_release(mem);
    nv_host_close(host);
    return failed;
}

int nv_resv_report(int argc, char **argv)
{
    return reserve_run_command(NULL, "Shows who is registered, and who holds the reservation.",
                               NULL, argc, argv);
}

int nv_resv_register(int argc, char **argv)
{
    return reserve_run_command(register_options, "Registers a key of this host with a namespace.",
                               sw_nvme_resv_register, argc, argv);
}

int nv_resv_acquire(int argc, char **argv)
{
    return reserve_run_command(acquire_options,
                               "Reserves a namespace, or takes it from another host.",
                               sw_nvme_resv_acquire, argc, argv);
}

int nv_resv_release(int argc, char **argv)
{
    return reserve_run_command(release_options, "Gives up a reservation.", sw_nvme_resv_release,
                               argc, argv);
}
