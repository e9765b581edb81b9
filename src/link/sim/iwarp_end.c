/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/iwarp_end.h"

#include <string.h>

#include "base/minmax.h"
#include "link/sim/target.h"
#include "wire/iwarp/crc32c.h"

/* ---- the end of a connection ---- */

static void iwarp_end_flush_sends(struct sw_sim_iwarp *end)
{
    while (end->is_open && end->reported != end->machine.tail) {
        const struct sw_sim_completion wc = {.id = end->sends[end->reported % SW_SIM_SENDS].id,
                                             .status = IBV_WC_WR_FLUSH_ERR};
        end->reported++;
        end->qp->complete(end->qp, &wc);
    }
}

static void sim_end_connection(struct sw_sim_iwarp *end)
{
    if (end->is_over)
        return;
    end->is_over = true;
    if (end->config.ended)
        end->config.ended(end);
    sw_sim_trace(end->world, "over", end->qp->qpn, end->machine.terminate.cause);
    sw_sim_pipe_close(end->out);
    iwarp_end_flush_sends(end);
    sw_sim_qp_die(end->qp);
}

static void iwarp_end_report_done(struct sw_sim_iwarp *end)
{
    while (end->is_open && end->reported != sw_iwarp_done(&end->machine)) {
        const struct sw_sim_send *send = &end->sends[end->reported % SW_SIM_SENDS];
        const struct sw_sim_completion wc = {
            .id = send->id, .status = IBV_WC_SUCCESS, .original = send->original};
        end->reported++;
        end->qp->complete(end->qp, &wc);
    }
}

/* ---- out ---- */

static bool iwarp_end_is_readable(struct sw_sim_iwarp *end,
                                  const struct sw_iwarp_emission *emission)
{
    const uint64_t addr = emission->addr;
    const uint32_t len = emission->payload_len, rkey = emission->rkey;
    uint8_t *bytes;
    if (sw_sim_may_read(end->qp, addr, len, rkey, &bytes) == SW_ACK)
        return true;
    sw_iwarp_unreadable(&end->machine, sw_sim_read_fault(end->qp, addr, len, rkey));
    return false;
}

static void iwarp_end_write_fpdu(struct sw_sim_iwarp *end, const struct sw_iwarp_emission *emission)
{
    uint8_t *at = end->out_bytes;
    uint64_t from = emission->addr;
    memcpy(at, emission->head, emission->head_len);
    at += emission->head_len;
    if (emission->source == SW_PAYLOAD_REQUEST)
        from = end->sends[emission->position % SW_SIM_SENDS].addr + emission->offset;
    if (emission->source != SW_PAYLOAD_NONE)
        memcpy(at, sw_sim_host_at(end->qp->host, from), emission->payload_len);
    at += emission->payload_len;
    const uint32_t covered = (uint32_t)(at - end->out_bytes);
    const bool has_crc = end->start.terms.crc;
    at += sw_fpdu_finish(has_crc ? sw_crc32c_add(0, end->out_bytes, covered) : 0,
                         sw_iwarp_ulpdu_len(emission), has_crc, at);
    end->out_len = (uint32_t)(at - end->out_bytes);
    end->out_at = 0;
    sw_sim_trace(end->world, "fpdu", end->qp->qpn, end->out_len);
}

/* A test's bytes instead of those of the start that are there, or before the next FPDU. */
static bool forge_out(struct sw_sim_iwarp *end, uint32_t len)
{
    end->out_len = end->config.forge ? end->config.forge(end, end->out_bytes, len) : len;
    end->out_at = 0;
    return end->out_len != 0;
}

/* The next bytes to be sent; false: there are none. */
static bool iwarp_end_fill_out(struct sw_sim_iwarp *end)
{
    struct sw_iwarp_start *start = &end->start;
    struct sw_iwarp_emission emission;
    if (start->out_len) {
        const uint32_t len = start->out_len;
        memcpy(end->out_bytes, start->out, len);
        start->out_len = 0;
        return forge_out(end, len);
    }
    if (!end->is_open)
        return false;
    if (forge_out(end, 0))
        return true;
    if (!sw_iwarp_next(&end->machine, &emission))
        return false;
    if (emission.source == SW_PAYLOAD_MEMORY && !iwarp_end_is_readable(end, &emission))
        sw_iwarp_next(&end->machine, &emission); /* the Terminate */
    iwarp_end_write_fpdu(end, &emission);
    return true;
}

static bool is_start_over(const struct sw_sim_iwarp *end)
{
    return end->start.state == SW_IWARP_REJECTED || end->start.state == SW_IWARP_OLDER ||
           end->start.state == SW_IWARP_FAILED;
}

/* Local requests are nothing here, but keep their place. */
static void do_local(struct sw_sim_iwarp *end)
{
    while (end->is_open && sw_iwarp_is_local(&end->machine))
        sw_iwarp_local_done(&end->machine);
}

static bool has_to_close(const struct sw_sim_iwarp *end)
{
    return end->is_closing && !(end->is_open && end->machine.is_begun);
}

void sw_sim_iwarp_pump(struct sw_sim_iwarp *end)
{
    while (!end->is_over) {
        end->out_at +=
            sw_sim_pipe_write(end->out, end->out_bytes + end->out_at, end->out_len - end->out_at);
        if (end->out_at != end->out_len)
            return;
        do_local(end);
        iwarp_end_report_done(end);
        if (has_to_close(end) || !iwarp_end_fill_out(end))
            break;
    }
    if ((end->is_open && end->machine.over) || is_start_over(end) || has_to_close(end))
        sim_end_connection(end);
}

void sw_sim_iwarp_close(struct sw_sim_iwarp *end)
{
    end->is_closing = true;
    sw_sim_iwarp_pump(end);
}

/* ---- in ---- */

static void open_machine(struct sw_sim_iwarp *end)
{
    const struct sw_iwarp_terms *terms = &end->start.terms;
    const struct sw_iwarp_config config = {
        .ird = terms->ird,
        .ord = terms->ord,
        .fpdu_max = end->config.fpdu_max,
        .token_seed = end->qp->qpn * 0x01000193u,
        .rtr = terms->rtr,
        .is_initiator = end->config.is_initiator,
        .is_held = !end->config.is_initiator,
    };
    sw_iwarp_init(&end->machine, &config, end->ring, SW_SIM_SENDS);
    sw_iwarp_stream_init(&end->stream, end->in_bytes, sizeof(end->in_bytes), terms->crc);
    end->is_open = true;
}

static void iwarp_end_carry_out(struct sw_sim_iwarp *end, const struct sw_demand *demand)
{
    const struct sw_outcome outcome = sw_sim_execute(end->qp, demand);
    sw_iwarp_conclude(&end->machine, demand, &outcome);
}

static void iwarp_end_place_bytes(struct sw_sim_iwarp *end, const struct sw_iwarp_input *input)
{
    struct sw_sim_send *send = &end->sends[input->position % SW_SIM_SENDS];
    if (!input->bytes)
        send->original = input->value;
    else if (input->len_bytes)
        memcpy(sw_sim_host_at(end->qp->host, send->addr + input->offset), input->bytes,
               input->len_bytes);
}

static void iwarp_end_take_ulpdu(struct sw_sim_iwarp *end, const struct sw_iwarp_fpdu *fpdu)
{
    struct sw_iwarp_input input = {0};
    if (end->start.state == SW_IWARP_ACCEPTED)
        sw_iwarp_start_first_came(&end->start);
    switch (sw_iwarp_admit(&end->machine, fpdu->ulpdu, fpdu->len, &input)) {
    case SW_IWARP_DEMAND:
        iwarp_end_carry_out(end, &input.demand);
        break;
    case SW_IWARP_PLACE:
        iwarp_end_place_bytes(end, &input);
        break;
    case SW_IWARP_NOTHING:
        break;
    }
    iwarp_end_report_done(end);
}

static void take_stream(struct sw_sim_iwarp *end, const uint8_t *bytes, size_t len)
{
    struct sw_iwarp_fpdu fpdu;
    size_t used;
    enum sw_iwarp_found found;
    while ((found = sw_iwarp_stream_take(&end->stream, bytes, len, &used, &fpdu)) ==
           SW_IWARP_FPDU) {
        iwarp_end_take_ulpdu(end, &fpdu);
        bytes += used;
        len -= used;
    }
    if (found == SW_IWARP_BAD_CRC)
        sw_iwarp_refuse(&end->machine, SW_TERMINATE_CRC);
    else if (found == SW_IWARP_BAD_LENGTH)
        sw_iwarp_refuse(&end->machine, SW_TERMINATE_FRAME);
}

static void iwarp_end_answer_request(struct sw_sim_iwarp *end)
{
    static const uint8_t words[] = "no";
    if (end->config.rejects) {
        sw_iwarp_start_reject(&end->start, words, sizeof(words));
        return;
    }
    sw_iwarp_start_accept(&end->start, &end->config.start, end->world->now_ns);
    open_machine(end);
}

static void tick_end(void *who, void *what)
{
    struct sw_sim_iwarp *end = who;
    (void)what;
    sw_iwarp_start_tick(&end->start, end->world->now_ns);
    sw_sim_iwarp_pump(end);
}

static void mind_time(struct sw_sim_iwarp *end)
{
    if (end->start.due_ns != UINT64_MAX)
        sw_sim_at(end->world, end->start.due_ns, tick_end, end, NULL);
}

static void iwarp_end_receive_bytes(void *who, const uint8_t *bytes, uint32_t len)
{
    struct sw_sim_iwarp *end = who;
    if (end->is_over)
        return;
    size_t used = 0;
    if (!end->is_open) {
        used = sw_iwarp_start_take(&end->start, bytes, len);
        if (end->start.state == SW_IWARP_REQUESTED) {
            iwarp_end_answer_request(end);
            mind_time(end);
        } else if (end->start.state == SW_IWARP_OPEN || end->start.state == SW_IWARP_REFUSED) {
            open_machine(end);
        }
        if (end->start.state == SW_IWARP_REFUSED)
            sw_iwarp_refuse(&end->machine, end->start.cause);
    }
    if (end->is_open)
        take_stream(end, bytes + used, len - used);
    sw_sim_iwarp_pump(end);
}

static void sim_hear_end(void *who, bool is_reset)
{
    struct sw_sim_iwarp *end = who;
    end->is_torn =
        !is_reset && !end->is_over && end->is_open && !sw_iwarp_stream_is_between(&end->stream);
    sw_iwarp_start_closed(&end->start);
    sim_end_connection(end);
}

static void hear_room(void *sender)
{
    sw_sim_iwarp_pump(sender);
}

/* ---- both ---- */

/* Only the target of the queue pair's RoCE side is used. */
static void init_end(struct sw_sim_iwarp *end, const struct sw_sim_iwarp_config *config,
                     struct sw_sim_pipe *out)
{
    memset(end, 0, sizeof(*end));
    end->config = *config;
    end->world = config->host->net->world;
    end->out = out;
    const struct sw_sim_qp_config qp = {
        .requester = {.mtu_bytes = 1024, .service = SW_SERVICE_RC, .max_rd_atomic = 1},
        .responder = {.mtu_bytes = 1024, .service = SW_SERVICE_RC, .max_dest_rd_atomic = 1},
        .access = config->access,
        .shares_receives = config->shares_receives,
        .complete = config->complete,
        .user = config->user,
    };
    end->qp = sw_sim_qp_create(config->host, &qp);
}

void sw_sim_iwarp_connect(struct sw_sim_iwarp ends[2], const struct sw_sim_iwarp_config configs[2],
                          struct sw_sim_pipe pipes[2], const struct sw_sim_pipe_config *path)
{
    for (int i = 0; i < 2; i++) {
        const struct sw_sim_pipe_user user = {&ends[1 - i], iwarp_end_receive_bytes, sim_hear_end,
                                              &ends[i], hear_room};
        init_end(&ends[i], &configs[i], &pipes[i]);
        sw_sim_pipe_init(&pipes[i], ends[i].world, path, &user);
    }
    for (int i = 0; i < 2; i++) {
        if (configs[i].is_initiator)
            sw_iwarp_start_connect(&ends[i].start, &configs[i].start, ends[i].world->now_ns);
        else
            sw_iwarp_start_listen(&ends[i].start, &configs[i].start, ends[i].world->now_ns);
        mind_time(&ends[i]);
        sw_sim_iwarp_pump(&ends[i]);
    }
}

bool sw_sim_iwarp_post(struct sw_sim_iwarp *end, const struct sw_request *request, uint64_t id,
                       uint64_t local_addr)
{
    if (!end->is_open || end->is_over || end->machine.over ||
        end->machine.tail - end->reported >= SW_SIM_SENDS ||
        !sw_iwarp_supports(&end->machine, request))
        return false;
    const uint32_t position = end->machine.tail;
    if (!sw_iwarp_post(&end->machine, request))
        return false;
    end->sends[position % SW_SIM_SENDS] = (struct sw_sim_send){.id = id, .addr = local_addr};
    return true;
}
