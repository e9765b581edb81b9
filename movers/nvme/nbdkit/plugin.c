/* SPDX-License-Identifier: BSD-2-Clause */
/* A remote namespace for any NBD client: nbdkit sidewire-nvme traddr=ADDR nqn=NQN. */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <nvme/types.h>

#include "nvme/host/addresses.h"
#include "nvme/host/as_errno.h"
#include "nvme/host/mend.h"
#include "nvme/nbdkit/stream.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum {
    CONNECTIONS_DEFAULT = 16,
    CONNECTIONS_MAX = 64,
    ZEROES_MAX = 65536,
    ONCS_DSM = 4,
    ONCS_ZEROES = 8
};

static struct sw_nvme_options options;
static struct nvh_addresses addresses;
static int discovers;
static struct sw_nvme_controller *controller;
static struct sw_nvme_namespace ns;
static uint16_t oncs;
static uint32_t nsid;

static void nv_load(void)
{
    sw_nvme_options_init(&options);
    options.nr_io_queues = CONNECTIONS_DEFAULT;
    options.background = true;
}

static int set_text(const char **out, const char *value)
{
    char *copy = strdup(value);
    if (!copy) {
        nbdkit_error("no memory");
        return -1;
    }
    free((void *)(uintptr_t)*out);
    *out = copy;
    return 0;
}

/* nbdkit has forms of its own for what is secret: +FILE, - and so on. */
static int plugin_set_secret(const char **out, const char *value)
{
    char *text;
    if (nbdkit_read_password(value, &text))
        return -1;
    free((void *)(uintptr_t)*out);
    *out = text;
    return 0;
}

static int plugin_add_addresses(const char *value)
{
    const char *wrong = nvh_addresses_add(&addresses, value);
    if (wrong)
        nbdkit_error("traddr=%s: %s", value, wrong);
    return wrong ? -1 : 0;
}

static int plugin_set_policy(const char *value)
{
    if (!sw_nvme_iopolicy_parse(value, &options.iopolicy))
        return 0;
    nbdkit_error("iopolicy= is round-robin, queue-depth or numa, not '%s'", value);
    return -1;
}

static int nv_config(const char *key, const char *value)
{
    if (!strcmp(key, "traddr"))
        return plugin_add_addresses(value);
    if (!strcmp(key, "iopolicy"))
        return plugin_set_policy(value);
    if (!strcmp(key, "quiesce-tmo"))
        return nbdkit_parse_int32_t("quiesce-tmo", value, &options.quiesce_tmo_s);
    if (!strcmp(key, "discover-paths")) {
        discovers = nbdkit_parse_bool(value);
        return discovers < 0 ? -1 : 0;
    }
    if (!strcmp(key, "trsvcid"))
        return set_text(&options.trsvcid, value);
    if (!strcmp(key, "nqn"))
        return set_text(&options.subsysnqn, value);
    if (!strcmp(key, "hostnqn"))
        return set_text(&options.hostnqn, value);
    if (!strcmp(key, "hostid"))
        return set_text(&options.hostid, value);
    if (!strcmp(key, "dhchap-secret"))
        return plugin_set_secret(&options.dhchap_secret, value);
    if (!strcmp(key, "dhchap-ctrl-secret"))
        return plugin_set_secret(&options.dhchap_ctrl_secret, value);
    if (!strcmp(key, "nsid"))
        return nbdkit_parse_uint32_t("nsid", value, &nsid);
    if (!strcmp(key, "connections"))
        return nbdkit_parse_uint32_t("connections", value, &options.nr_io_queues);
    if (!strcmp(key, "queue-size"))
        return nbdkit_parse_uint32_t("queue-size", value, &options.queue_size);
    if (!strcmp(key, "ctrl-loss-tmo"))
        return nbdkit_parse_int32_t("ctrl-loss-tmo", value, &options.ctrl_loss_tmo_s);
    if (!strcmp(key, "reconnect-delay"))
        return nbdkit_parse_uint32_t("reconnect-delay", value, &options.reconnect_delay_s);
    nbdkit_error("there is no parameter '%s'; 'nbdkit --help sidewire-nvme' lists them", key);
    return -1;
}

static int nv_config_complete(void)
{
    if (!addresses.count || !options.subsysnqn) {
        nbdkit_error("traddr=ADDR and nqn=NQN are needed; 'sidewire nvme discover -a ADDR' lists "
                     "the names");
        return -1;
    }
    nvh_addresses_use(&addresses, &options);
    if (!options.nr_io_queues || options.nr_io_queues > CONNECTIONS_MAX) {
        nbdkit_error("connections= is 1 to %d, not %u", CONNECTIONS_MAX, options.nr_io_queues);
        return -1;
    }
    return 0;
}

static const char *plugin_text_of(const struct sw_nvme_result *result)
{
    return result->status == SW_NVME_FAILED ? sw_nvme_code_text(result->nvme_status)
                                            : sw_nvme_status_text(result->status);
}

static int plugin_find_namespace(void)
{
    struct sw_nvme_result result;
    static struct nvme_id_ctrl id;
    uint32_t count = 1;
    if (!nsid && !sw_nvme_list(controller, 0, &nsid, 1, &count, &result) && !count) {
        nbdkit_error("the subsystem has no namespace");
        return -1;
    }
    if (sw_nvme_namespace_of(controller, nsid, &ns, &result) ||
        sw_nvme_identify(controller, NVME_IDENTIFY_CNS_CTRL, 0, &id, &result)) {
        nbdkit_error("namespace %u: %s", nsid, plugin_text_of(&result));
        return -1;
    }
    if (ns.metadata_bytes) {
        nbdkit_error("namespace %u has metadata, which NBD does not", nsid);
        return -1;
    }
    oncs = le16toh(id.oncs);
    return 0;
}

/* Connections do not survive a fork, so this waits for it. */
static int nv_after_fork(void)
{
    struct sw_nvme_error error;
    struct sw_nvme_address *found = NULL;
    uint32_t count;
    enum sw_nvme_status status = SW_NVME_OK;
    if (discovers && !(status = sw_nvme_find_paths(&options, &found, &count, &error))) {
        options.more = found;
        options.more_count = count;
    }
    if (!status)
        status = sw_nvme_connect(&options, &error, &controller);
    free(found);
    if (status) {
        const char *mend = nvh_mend_of(&error);
        nbdkit_error("%s", error.text);
        if (mend)
            nbdkit_error("%s", mend);
        return -1;
    }
    return plugin_find_namespace();
}

static void nv_cleanup(void)
{
    sw_nvme_disconnect(controller);
    controller = NULL;
}

static void *nv_open(int readonly)
{
    struct nbd_stream *stream;
    struct sw_nvme_error error;
    (void)readonly;
    if (!nbd_stream_open(controller, &ns, &error, &stream))
        return stream;
    nbdkit_error("%s", error.text);
    return NULL;
}

static void nv_close(void *handle)
{
    nbd_stream_close(handle);
}

static int64_t nv_get_size(void *handle)
{
    (void)handle;
    return (int64_t)(ns.blocks * ns.block_bytes);
}

static int nv_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
    enum { PAGE = 4096, MAXIMUM = 32 << 20 };
    (void)handle;
    *minimum = ns.block_bytes;
    *preferred = ns.block_bytes > PAGE ? ns.block_bytes : PAGE;
    *maximum = MAXIMUM;
    return 0;
}

static int always_yes(void *handle)
{
    (void)handle;
    return 1;
}

static int nv_can_trim(void *handle)
{
    (void)handle;
    return (oncs & ONCS_DSM) != 0;
}

static int nv_can_zero(void *handle)
{
    (void)handle;
    return (oncs & ONCS_ZEROES) != 0;
}

static int nv_can_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

/* In pieces of at most `piece_bytes`, each with its part of the data. */
static int run_pieces(struct nbd_stream *stream, struct nbd_request request, uint64_t offset,
                      uint32_t count, uint64_t piece_bytes)
{
    if (offset % ns.block_bytes || count % ns.block_bytes) {
        nbdkit_error("blocks have %u bytes; --filter=blocksize makes any size of them",
                     ns.block_bytes);
        nbdkit_set_error(EINVAL);
        return -1;
    }
    const bool has_data = request.kind == NBD_READ || request.kind == NBD_WRITE;
    while (count) {
        struct sw_nvme_result result;
        const uint32_t piece = count < piece_bytes ? count : (uint32_t)piece_bytes;
        request.lba = offset / ns.block_bytes;
        request.blocks = piece / ns.block_bytes;
        request.bytes = has_data ? piece : 0;
        nbd_stream_run(stream, &request, &result);
        if (result.status) {
            nbdkit_error("block %llu: %s", (unsigned long long)request.lba,
                         plugin_text_of(&result));
            nbdkit_set_error(nvh_errno_of(&result));
            return -1;
        }
        if (request.kind == NBD_READ)
            request.read_into = (uint8_t *)request.read_into + piece;
        if (request.kind == NBD_WRITE)
            request.write_from = (const uint8_t *)request.write_from + piece;
        offset += piece;
        count -= piece;
    }
    return 0;
}

static int nv_pread(void *handle, void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)flags;
    const struct nbd_request request = {.kind = NBD_READ, .read_into = data};
    return run_pieces(handle, request, offset, count, nbd_stream_bytes(handle));
}

static int nv_pwrite(void *handle, const void *data, uint32_t count, uint64_t offset,
                     uint32_t flags)
{
    const struct nbd_request request = {
        .kind = NBD_WRITE, .write_from = data, .flags = flags & NBDKIT_FLAG_FUA ? SW_NVME_FUA : 0};
    return run_pieces(handle, request, offset, count, nbd_stream_bytes(handle));
}

static int nv_flush(void *handle, uint32_t flags)
{
    const struct nbd_request request = {.kind = NBD_FLUSH};
    struct sw_nvme_result result;
    (void)flags;
    nbd_stream_run(handle, &request, &result);
    if (!result.status)
        return 0;
    nbdkit_error("flush: %s", plugin_text_of(&result));
    nbdkit_set_error(nvh_errno_of(&result));
    return -1;
}

static int nv_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct nbd_request request = {.kind = NBD_TRIM};
    if (run_pieces(handle, request, offset, count, UINT32_MAX - ns.block_bytes + 1ull))
        return -1;
    return flags & NBDKIT_FLAG_FUA ? nv_flush(handle, 0) : 0;
}

static int nv_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct nbd_request request = {
        .kind = NBD_ZEROES,
        .flags = (flags & NBDKIT_FLAG_FUA ? SW_NVME_FUA : 0u) |
                 (flags & NBDKIT_FLAG_MAY_TRIM ? SW_NVME_DEALLOCATE : 0u),
    };
    if (flags & NBDKIT_FLAG_FAST_ZERO) {
        nbdkit_set_error(EOPNOTSUPP);
        return -1;
    }
    return run_pieces(handle, request, offset, count, (uint64_t)ZEROES_MAX * ns.block_bytes);
}

static struct nbdkit_plugin plugin = {
    .name = "sidewire-nvme",
    .longname = "Sidewire NVMe over RDMA",
    .version = "0.1.0",
    .description = "a namespace of an NVMe over RDMA target",
    .load = nv_load,
    .config = nv_config,
    .config_complete = nv_config_complete,
    .config_help = "traddr=ADDR[:PORT] (required) Address of the target; again: other paths.\n"
                   "nqn=NQN          (required) Name of the subsystem.\n"
                   "trsvcid=PORT     Its port (4420).\n"
                   "nsid=N           The namespace (the first).\n"
                   "connections=N    NBD connections at a time, a queue each (16).\n"
                   "dhchap-secret=, dhchap-ctrl-secret=\n"
                   "                 For authentication: DHHC-1:..., or +FILE.\n"
                   "iopolicy=, quiesce-tmo=, discover-paths=true\n"
                   "                 Of several paths, as the commands of sidewire nvme.\n"
                   "hostnqn=, hostid=, queue-size=, ctrl-loss-tmo=, reconnect-delay=\n"
                   "                 As nvme connect has them.",
    .after_fork = nv_after_fork,
    .cleanup = nv_cleanup,
    .open = nv_open,
    .close = nv_close,
    .get_size = nv_get_size,
    .block_size = nv_block_size,
    .can_write = always_yes,
    .can_flush = always_yes,
    .can_multi_conn = always_yes, /* Flush covers the namespace, whatever queue wrote to it */
    .can_trim = nv_can_trim,
    .can_zero = nv_can_zero,
    .can_fua = nv_can_fua,
    .pread = nv_pread,
    .pwrite = nv_pwrite,
    .flush = nv_flush,
    .trim = nv_trim,
    .zero = nv_zero,
};

struct nbdkit_plugin *plugin_init(void); /* the macro defines it and declares nothing */

NBDKIT_REGISTER_PLUGIN(plugin)
