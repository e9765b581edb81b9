/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An engine of fio: ioengine=external:PATH. It is built with fio's headers, and fits the fio of
 * exactly that version.
 *
 * fio calls setup() in the process that it forks jobs from, and all else in the job. So setup()
 * asks for the size alone, and each job connects for itself.
 */
#include <fio.h>
#include <optgroup.h>

#include "common/time/clock.h"
#include "nvme/fio/job.h"
#include "nvme/host/addresses.h"
#include "nvme/host/as_errno.h"
#include "nvme/host/mend.h"
#include "nvme/wire/secret_text.h"

enum {
    QUEUE_DEFAULT = 128,
    QUEUE_MAX = 1024,
    KEEP_ALIVE_MAX_S = 3600,
};

struct engine_options {
    void *pad; /* fio takes offset 0 for "no option" */
    char *traddr, *trsvcid, *nqn, *hostnqn, *hostid, *secret, *ctrl_secret, *iopolicy;
    unsigned int nsid, queue_size, in_capsule, poll, keep_alive_s, reconnect_delay_s;
    int ctrl_loss_tmo_s, quiesce_tmo_s;
};

#define TEXT(word, field, about)                                       \
    {                                                                  \
        .name = word, .lname = about, .type = FIO_OPT_STR_STORE,       \
        .off1 = offsetof(struct engine_options, field), .help = about, \
        .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID       \
    }
#define NUMBER(word, field, kind, least, most, standard, about)                                  \
    {                                                                                            \
        .name = word, .lname = about, .type = kind,                                              \
        .off1 = offsetof(struct engine_options, field), .minval = least, .maxval = most,         \
        .def = standard, .help = about, .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID \
    }

static struct fio_option options[] = {
    TEXT("traddr", traddr, "Address of the target, ADDR[:PORT]; several paths with commas"),
    TEXT("trsvcid", trsvcid, "Its port (4420)"),
    TEXT("nqn", nqn, "Name of the subsystem"),
    TEXT("hostnqn", hostnqn, "Own name (that of /etc/nvme/hostnqn, else of the machine)"),
    TEXT("hostid", hostid, "Own ID (that of /etc/nvme/hostid)"),
    TEXT("dhchap_secret", secret, "Own secret, DHHC-1:... or @FILE, for authentication"),
    TEXT("dhchap_ctrl_secret", ctrl_secret, "What the target has to prove that it knows"),
    NUMBER("nsid", nsid, FIO_OPT_INT, 0, 0, "0", "The namespace (0: the first)"),
    NUMBER("queue_size", queue_size, FIO_OPT_INT, 0, QUEUE_MAX, "0",
           "Entries of a job's queue (0: by iodepth, at least 128)"),
    NUMBER("in_capsule", in_capsule, FIO_OPT_BOOL, 0, 1, "1", "Small writes go with their command"),
    NUMBER("poll", poll, FIO_OPT_BOOL, 0, 1, "0", "Wait by polling, and never sleep"),
    NUMBER("keep_alive", keep_alive_s, FIO_OPT_INT, 0, KEEP_ALIVE_MAX_S, "5",
           "Keep-alive timeout in seconds (0: none)"),
    NUMBER("ctrl_loss_tmo", ctrl_loss_tmo_s, FIO_OPT_INT, -1, INT_MAX, "600",
           "Seconds until reconnection is given up (-1: never)"),
    NUMBER("reconnect_delay", reconnect_delay_s, FIO_OPT_INT, 0, KEEP_ALIVE_MAX_S, "10",
           "Seconds between two tries to reconnect"),
    TEXT("iopolicy", iopolicy, "Of several paths: round-robin, queue-depth or numa (round-robin)"),
    NUMBER("quiesce_tmo", quiesce_tmo_s, FIO_OPT_INT, -1, INT_MAX, "-1",
           "Seconds until a write of a lost path goes to another one without proof (-1: never)"),
    {.name = NULL},
};

struct engine {
    struct nvj_job *job;
    struct io_u **events; /* of the last getevents() */
    bool has_complained;
};

static int fail_thread(struct thread_data *td, int error, const char *text)
{
    log_err("fio: sidewire-nvme: %s: %s\n", td->o.name, text);
    td_verror(td, error, "sidewire-nvme");
    return 1;
}

static int fail_connection(struct thread_data *td, const struct sw_nvme_error *error)
{
    const char *mend = nvh_mend_of(error);
    fail_thread(td, EIO, error->text);
    if (mend)
        log_err("fio: sidewire-nvme: %s\n", mend);
    return 1;
}

/* Where the target is, with the secrets that its options point to. */
struct place {
    struct nvj_target target;
    struct nvh_addresses addresses;
    char secret[NVF_SECRET_TEXT_MAX], ctrl_secret[NVF_SECRET_TEXT_MAX];
};

/* Returns why a secret will not do, or NULL. */
static const char *read_secrets(const struct engine_options *o, struct place *place)
{
    const char *wrong = NULL;
    if (o->secret) {
        wrong = nvf_secret_read(o->secret, place->secret);
        place->target.options.dhchap_secret = place->secret;
    }
    if (o->ctrl_secret && !wrong) {
        wrong = nvf_secret_read(o->ctrl_secret, place->ctrl_secret);
        place->target.options.dhchap_ctrl_secret = place->ctrl_secret;
    }
    return wrong;
}

static const char *read_paths(const struct engine_options *o, struct place *place)
{
    struct sw_nvme_options *out = &place->target.options;
    const char *wrong = nvh_addresses_add(&place->addresses, o->traddr);
    if (wrong)
        return wrong;
    nvh_addresses_use(&place->addresses, out);
    return o->iopolicy && sw_nvme_iopolicy_parse(o->iopolicy, &out->iopolicy)
               ? "iopolicy= is round-robin, queue-depth or numa"
               : NULL;
}

/* Returns why these options will not do, or NULL. */
static const char *read_options(struct thread_data *td, struct place *place)
{
    enum { MS_PER_S = 1000 };
    const struct engine_options *o = td->eo;
    struct sw_nvme_options *out = &place->target.options;
    if (!o->traddr || !o->nqn)
        return "the options traddr= and nqn= are needed; "
               "'sidewire nvme discover -a ADDR' lists the names";
    if (td->o.nr_files > 1)
        return "a namespace is one file: nrfiles= and lists of filename= have no meaning";
    sw_nvme_options_init(out);
    out->trsvcid = o->trsvcid;
    out->subsysnqn = o->nqn;
    out->hostnqn = o->hostnqn;
    out->hostid = o->hostid;
    out->queue_size = o->queue_size;
    if (!out->queue_size) /* all of iodepth is under way, as far as a queue can be that long */
        out->queue_size = td->o.iodepth < QUEUE_DEFAULT ? QUEUE_DEFAULT
                          : td->o.iodepth < QUEUE_MAX   ? td->o.iodepth + 1
                                                        : QUEUE_MAX;
    out->no_in_capsule = !o->in_capsule;
    out->keep_alive_ms = o->keep_alive_s * MS_PER_S;
    out->ctrl_loss_tmo_s = o->ctrl_loss_tmo_s;
    out->reconnect_delay_s = o->reconnect_delay_s;
    out->quiesce_tmo_s = o->quiesce_tmo_s;
    place->target.nsid = o->nsid;
    const char *wrong = read_paths(o, place);
    return wrong ? wrong : read_secrets(o, place);
}

/* Whether the job's requests can be made of the blocks that the namespace has. */
static int check_blocks(struct thread_data *td, const struct nvj_namespace *target)
{
    char text[128];
    const bool used[] = {td_read(td), td_write(td), td_trim(td)};
    for (unsigned i = 0; i < sizeof(used) / sizeof(*used); i++) {
        if (!used[i] || td->o.min_bs[i] % target->ns.block_bytes == 0)
            continue;
        snprintf(text, sizeof(text), "bs=%llu: namespace %u has blocks of %u bytes",
                 td->o.min_bs[i], target->ns.nsid, target->ns.block_bytes);
        return fail_thread(td, EINVAL, text);
    }
    if (td_trim(td) && !target->trims)
        return fail_thread(td, EOPNOTSUPP, "the controller has no dataset management: no trim");
    return 0;
}

static int engine_setup(struct thread_data *td)
{
    struct place place = {0};
    struct nvj_namespace found;
    struct sw_nvme_error error;
    const char *wrong = read_options(td, &place);
    if (wrong)
        return fail_thread(td, EINVAL, wrong);
    const bool is_there = !nvj_ask(&place.target, &found, &error);
    explicit_bzero(&place, sizeof(place));
    if (!is_there)
        return fail_connection(td, &error);
    if (!td->files_index) {
        add_file(td, "sidewire-nvme", 0, 0);
        td->o.nr_files = 1;
        td->o.open_files++;
    }
    td->files[0]->real_file_size = found.ns.blocks * found.ns.block_bytes;
    fio_file_set_size_known(td->files[0]);
    return check_blocks(td, &found);
}

static void engine_cleanup(struct thread_data *td)
{
    struct engine *engine = td->io_ops_data;
    if (!engine)
        return;
    const uint32_t reconnects = engine->job ? nvj_reconnects(engine->job) : 0;
    if (reconnects)
        log_err("fio: sidewire-nvme: %s: the connection was lost and came back %u times\n",
                td->o.name, reconnects);
    nvj_close(engine->job);
    free(engine->events);
    free(engine);
}

static int engine_init(struct thread_data *td)
{
    const struct engine_options *o = td->eo;
    struct place place = {0};
    struct sw_nvme_error error;
    struct engine *engine = calloc(1, sizeof(*engine));
    struct io_u **events = calloc(td->o.iodepth, sizeof(*events));
    const char *wrong = read_options(td, &place);
    if (!engine || !events || wrong) {
        free(engine);
        free(events);
        return fail_thread(td, wrong ? EINVAL : ENOMEM, wrong ? wrong : "no memory");
    }
    engine->events = events;
    td->io_ops_data = engine;
    /* fio does nothing for a while where the job says so: think times, rates, verification. */
    place.target.options.background = true;
    const bool is_open = !nvj_open(&place.target, td->o.iodepth, o->poll, &error, &engine->job);
    explicit_bzero(&place, sizeof(place));
    return is_open ? 0 : fail_connection(td, &error);
}

static int engine_iomem_alloc(struct thread_data *td, size_t bytes)
{
    struct engine *engine = td->io_ops_data;
    td->orig_buffer = nvj_alloc(engine->job, bytes);
    return !td->orig_buffer;
}

static void engine_iomem_free(struct thread_data *td)
{
    struct engine *engine = td->io_ops_data;
    if (engine && engine->job)
        nvj_free(engine->job);
}

static int engine_io_u_init(struct thread_data *td, struct io_u *io_u)
{
    struct engine *engine = td->io_ops_data;
    struct nvj_request *request = nvj_request_at(engine->job, io_u->index);
    if (!request)
        return EINVAL;
    request->arg = io_u;
    io_u->engine_data = request; /* takes the place of the index */
    return 0;
}

static bool fio_fill_request(struct thread_data *td, const struct io_u *io_u,
                             struct nvj_request *request, uint32_t block)
{
    request->flags = 0;
    request->lba = io_u->offset / block;
    request->blocks = io_u->xfer_buflen / block;
    request->data = io_u->xfer_buf;
    switch ((int)io_u->ddir) {
    case DDIR_READ:
        request->kind = NVJ_READ;
        break;
    case DDIR_WRITE:
        request->kind = NVJ_WRITE;
        request->flags = td->o.sync_io ? SW_NVME_FUA : 0;
        break;
    case DDIR_TRIM:
        request->kind = NVJ_TRIM;
        break;
    case DDIR_SYNC:
    case DDIR_DATASYNC:
    case DDIR_SYNC_FILE_RANGE:
        request->kind = NVJ_FLUSH;
        request->blocks = 0;
        return true;
    default:
        return false;
    }
    return request->blocks && !(io_u->offset % block) && !(io_u->xfer_buflen % block);
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
    struct engine *engine = td->io_ops_data;
    struct nvj_request *request = io_u->engine_data;
    fio_ro_check(td, io_u);
    io_u->error = 0;
    if (!fio_fill_request(td, io_u, request, nvj_namespace_of(engine->job)->ns.block_bytes)) {
        io_u->error = EINVAL;
        return FIO_Q_COMPLETED;
    }
    nvj_submit(request);
    return FIO_Q_QUEUED;
}

/* The first one with its reason, which an errno cannot tell. */
static void complain_of(struct thread_data *td, const struct nvj_request *request)
{
    static const char *const words[] = {"read", "write", "flush", "trim"};
    struct engine *engine = td->io_ops_data;
    if (!engine->has_complained)
        log_err("fio: sidewire-nvme: %s: %s of block %llu: %s\n", td->o.name, words[request->kind],
                (unsigned long long)request->lba, nvj_text_of(&request->result));
    engine->has_complained = true;
}

static uint64_t deadline_of(const struct timespec *timeout)
{
    if (!timeout)
        return UINT64_MAX;
    return mover_now_ns() + (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec;
}

static int engine_getevents(struct thread_data *td, unsigned int least, unsigned int most,
                            const struct timespec *timeout)
{
    struct engine *engine = td->io_ops_data;
    struct nvj_request *request;
    unsigned int count = 0;
    nvj_wait(engine->job, least, deadline_of(timeout));
    while (count < most && (request = nvj_take(engine->job))) {
        struct io_u *io_u = request->arg;
        if (request->result.status) {
            io_u->error = (unsigned)nvh_errno_of(&request->result);
            complain_of(td, request);
        }
        engine->events[count++] = io_u;
    }
    return (int)count;
}

static struct io_u *engine_event(struct thread_data *td, int number)
{
    struct engine *engine = td->io_ops_data;
    return engine->events[number];
}

/* A file is the namespace, which is there as long as the job is. */
static int no_file(struct thread_data *td, struct fio_file *file)
{
    (void)td;
    (void)file;
    return 0;
}

__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
    .name = "sidewire-nvme",
    .version = FIO_IOOPS_VERSION,
    /* Memory is registered with the job's own controller: threads that submit for it have none. */
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_NO_OFFLOAD,
    .setup = engine_setup,
    .init = engine_init,
    .queue = engine_queue,
    .getevents = engine_getevents,
    .event = engine_event,
    .cleanup = engine_cleanup,
    .open_file = no_file,
    .close_file = no_file,
    .invalidate = no_file,
    .unlink_file = no_file,
    .get_file_size = no_file, /* setup() has told it */
    .iomem_alloc = engine_iomem_alloc,
    .iomem_free = engine_iomem_free,
    .io_u_init = engine_io_u_init,
    .options = options,
    .option_struct_size = sizeof(struct engine_options),
};
