/* SPDX-License-Identifier: BSD-2-Clause */
/* One rank of a measurement, and what rank 0 prints of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/command/perf.h"
#include "collectives/command/picture.h"
#include "common/command/front.h"
#include "common/command/table.h"

enum { HOSTS_SHOWN = 16, HOST_BYTES = 64 };

struct report {
    struct mover_table table;
    double bus_sum; /* GB/s */
    uint32_t bus_count;
    uint64_t wrong;
};

static const struct mover_column columns[] = {
    {"#     size(B)", "bytes", .width = 13},
    {"count", "elements", .width = 12},
    {"type", "type", .width = 5},
    {"redop", "op", .width = 5},
    {"root", "root", .width = 4},
    {"time(us)", "time_us", .width = 11, .digits = 2, .gap = 1},
    {"algbw", "mb_per_s", .width = 7, .digits = 3, .divisor = 1e3},
    {"busbw", "bus_mb_per_s", .width = 7, .digits = 3, .divisor = 1e3},
    {"#wrong", "wrong", .width = 6},
    {"time(us)", "in_place_time_us", .width = 11, .digits = 2, .gap = 1},
    {"algbw", "in_place_mb_per_s", .width = 7, .digits = 3, .divisor = 1e3},
    {"busbw", "in_place_bus_mb_per_s", .width = 7, .digits = 3, .divisor = 1e3},
    {"#wrong", "in_place_wrong", .width = 6},
    {0}};

static int fail_rank(const struct co_job *job, const struct sw_coll_error *error)
{
    return mover_fail("rank %u: %s", job->place.rank, error->text);
}

/* ---- what is printed ---- */

/* Null: nobody has looked. */
static json_t *json_of_wrong(const struct co_job *job, uint64_t wrong)
{
    return job->perf->is_checked ? json_integer((json_int_t)wrong) : json_null();
}

static json_t *json_of_row(const struct co_job *job, const struct co_row *row,
                           const struct co_figures figures[2], struct report *report)
{
    const double factor = co_row_bus_factor(row, job->place.size);
    double rates[2], buses[2];
    for (int way = 0; way < 2; way++) {
        rates[way] = figures[way].seconds > 0 ? (double)row->bytes / figures[way].seconds / 1e6 : 0;
        buses[way] = rates[way] * factor;
        report->wrong += figures[way].wrong;
        if (figures[way].is_there) {
            report->bus_sum += buses[way] / 1e3;
            report->bus_count++;
        }
    }
    json_t *json =
        json_pack("{sI sI ss ss? sI sf sf sf so}", "bytes", (json_int_t)row->bytes, "elements",
                  (json_int_t)row->count, "type", sw_coll_type_name(row->type), "op",
                  co_kind_folds(row->kind) ? sw_coll_op_name(row->op) : NULL, "root",
                  co_kind_has_root(row->kind) ? (json_int_t)row->root : -1, "time_us",
                  figures[0].seconds * 1e6, "mb_per_s", rates[0], "bus_mb_per_s", buses[0], "wrong",
                  json_of_wrong(job, figures[0].wrong));
    if (figures[1].is_there)
        json_object_update_new(
            json, json_pack("{sf sf sf so}", "in_place_time_us", figures[1].seconds * 1e6,
                            "in_place_mb_per_s", rates[1], "in_place_bus_mb_per_s", buses[1],
                            "in_place_wrong", json_of_wrong(job, figures[1].wrong)));
    return json;
}

/* Where each rank runs, and the titles. */
static enum sw_coll_status begin_report(struct co_job *job, struct report *report,
                                        struct sw_coll_error *error)
{
    char host[HOST_BYTES] = "";
    const struct sw_coll_call call = {.kind = SW_COLL_GATHER,
                                      .type = SW_COLL_U8,
                                      .send = host,
                                      .recv = job->recv,
                                      .count = HOST_BYTES};
    const int used = snprintf(host, sizeof(host), "process %d on ", (int)getpid());
    gethostname(host + used, sizeof(host) - (size_t)used - 1);
    const enum sw_coll_status status = sw_coll_run(job->coll, &call, 0, error);
    if (status || job->place.rank)
        return status;
    if (!job->perf->is_json) {
        printf("# %s of %u ranks\n", co_kind_name(job->perf->kind), job->place.size);
        for (uint32_t rank = 0; rank < job->place.size && rank < HOSTS_SHOWN; rank++)
            printf("# rank %u: %.*s\n", rank, HOST_BYTES - 1,
                   (const char *)job->recv + rank * HOST_BYTES);
        if (job->place.size > HOSTS_SHOWN)
            printf("# and %u more\n", job->place.size - HOSTS_SHOWN);
        printf("#\n#%54s%s%18s%s\n", "", "out of place (GB/s)", "", "in place (GB/s)");
    }
    mover_table_open(&report->table, columns, job->perf->is_json);
    fflush(stdout);
    return SW_COLL_OK;
}

static int end_report(const struct co_job *job, struct report *report)
{
    const double bus = report->bus_count ? report->bus_sum / report->bus_count : 0;
    if (!job->perf->is_json && job->perf->is_checked)
        printf("# wrong values: %llu\n", (unsigned long long)report->wrong);
    else if (!job->perf->is_json)
        printf("# results were not checked\n");
    if (!job->perf->is_json)
        printf("# average bus bandwidth: %.3f GB/s\n", bus);
    json_t *all =
        json_pack("{ss sI so sf so}", "collective", co_kind_name(job->perf->kind), "ranks",
                  (json_int_t)job->place.size, "rows", report->table.rows, "average_bus_mb_per_s",
                  bus * 1e3, "wrong", json_of_wrong(job, report->wrong));
    const int drawn = job->perf->plot ? co_picture_draw(job->perf->plot, all) : MOVER_DONE;
    const int code = mover_table_close(&report->table, all);
    if (report->wrong)
        return mover_fail("%llu values are wrong", (unsigned long long)report->wrong);
    return code ? code : drawn;
}

/* ---- the rows ---- */

static enum sw_coll_status run_row(struct co_job *job, struct report *report,
                                   const struct co_row *row, struct sw_coll_error *error)
{
    struct co_figures figures[2] = {0};
    const enum sw_coll_status status = co_measure(job, row, figures, error);
    if (!status && !job->place.rank)
        mover_table_add(&report->table, NULL, json_of_row(job, row, figures, report));
    return status;
}

/* The size after that; 0: it was the last one. */
static uint64_t size_after(const struct co_perf *perf, uint64_t bytes)
{
    uint64_t next;
    const bool is_over = perf->step_bytes
                             ? __builtin_add_overflow(bytes, perf->step_bytes, &next)
                             : __builtin_mul_overflow(bytes, (uint64_t)perf->factor, &next);
    return is_over || next > perf->max_bytes ? 0 : next;
}

/* All sizes of a type and an operator. */
static enum sw_coll_status run_sizes(struct co_job *job, struct report *report, uint32_t type,
                                     uint32_t op, struct sw_coll_error *error)
{
    const struct co_perf *perf = job->perf;
    uint64_t bytes = perf->min_bytes;
    enum sw_coll_status status;
    do {
        const struct co_asked asked = {perf->kind, type, op, perf->root, job->place.size};
        const struct co_row row = co_row_make(&asked, bytes);
        status = run_row(job, report, &row, error);
        if (perf->kind == SW_COLL_BARRIER)
            break; /* it has one size */
        bytes = size_after(perf, bytes);
    } while (!status && bytes);
    return status;
}

static enum sw_coll_status job_run_rows(struct co_job *job, struct report *report,
                                        struct sw_coll_error *error)
{
    const struct co_perf *perf = job->perf;
    const bool has_all_types = perf->type == SW_COLL_TYPES, has_all_ops = perf->op == SW_COLL_OPS;
    enum sw_coll_status status = SW_COLL_OK;
    for (uint32_t type = has_all_types ? 0 : perf->type;
         !status && type < (has_all_types ? SW_COLL_TYPES : perf->type + 1); type++)
        for (uint32_t op = has_all_ops ? 0 : perf->op;
             !status && op < (has_all_ops ? SW_COLL_OPS : perf->op + 1); op++)
            status = run_sizes(job, report, type, op, error);
    return status;
}

/* ---- the rank ---- */

static bool map_buffers(struct co_job *job)
{
    const size_t least = (size_t)job->place.size * HOST_BYTES;
    const size_t whole = job->perf->max_bytes > least ? job->perf->max_bytes : least;
    job->room = whole + (size_t)job->place.size * CO_ELEMENT_MAX;
    uint8_t *memory = mmap(NULL, 2 * (job->room + CO_GUARD_BYTES), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    job->send = memory;
    job->recv = memory + job->room + CO_GUARD_BYTES;
    return true;
}

static enum sw_coll_status open_job(struct co_job *job, struct sw_coll_error *error)
{
    struct sw_coll_options options;
    sw_coll_options_init(&options);
    options.rank = job->place.rank;
    options.size = job->place.size;
    options.meet = job->place.meet;
    options.token = *job->place.token ? job->place.token : NULL;
    options.address = job->perf->local;
    options.algorithm = job->perf->algorithm;
    options.order = (enum sw_coll_order)job->perf->order;
    options.timeout_ms = job->perf->deadline_ms;
    const enum sw_coll_status status = sw_coll_open(&options, error, &job->coll);
    if (!status) {
        sw_coll_order(job->coll, job->order);
        job->folded.order = job->order;
    }
    return status;
}

int co_job_run(const struct co_perf *perf, const struct sw_coll_launch *place)
{
    static struct co_job job;
    struct sw_coll_error error = {.status = SW_COLL_OK};
    struct report report = {.wrong = 0};
    job = (struct co_job){.perf = perf, .place = *place, .folded_op = SW_COLL_OPS};
    job.folded.is_any_order = job.moved.is_any_order = perf->order == SW_COLL_ORDER_ANY;
    if (!map_buffers(&job))
        return mover_fail("rank %u: no memory for the buffers: %s", place->rank, strerror(errno));
    enum sw_coll_status status = open_job(&job, &error);
    if (!status)
        status = begin_report(&job, &report, &error);
    if (!status)
        status = job_run_rows(&job, &report, &error);
    if (status) {
        json_decref(report.table.rows);
        fflush(stdout);
    }
    const int code = status        ? fail_rank(&job, &error)
                     : place->rank ? MOVER_DONE
                                   : end_report(&job, &report);
    if (job.coll)
        sw_coll_close(job.coll);
    munmap(job.send, 2 * (job.room + CO_GUARD_BYTES));
    return code;
}
