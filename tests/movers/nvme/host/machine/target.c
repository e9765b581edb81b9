/* SPDX-License-Identifier: BSD-2-Clause */
#include "target.h"

#include <assert.h>
#include <string.h>

#include "common/time/units.h"
#include "nvme/wire/sgl.h"

enum { CAP_OFFSET = 0, CSTS_OFFSET = 0x1c };

struct target the_target;

/* Memory of the host: NULL where the connection that leads there has ended. */
static void *host_memory(const struct fabric_link *link, const struct nvf_sgl *sgl)
{
    if ((!link && the_fabric.fault != END_LEAKS) || sgl->count != 1)
        return NULL;
    if (sgl->segments[0].key != FABRIC_KEY)
        fabric_fail("a command has a key that is nobody's");
    return (void *)(uintptr_t)sgl->segments[0].addr;
}

static struct nvf_sgl parse_sgl(const struct fabric_command *command)
{
    struct nvf_sgl sgl;
    if (nvf_sgl_parse(&command->sqe, command->capsule, command->capsule_bytes, FABRIC_CAPSULE_MAX,
                      &sgl))
        fabric_fail("a command describes its data wrongly");
    return sgl;
}

/* The data of a command: NULL where it cannot be reached any more. */
static const void *data_of(const struct fabric_link *link, const struct fabric_command *command,
                           const struct nvf_sgl *sgl)
{
    if (sgl->is_in_capsule)
        return command->capsule;
    const void *data = host_memory(link, sgl);
    if (data && command->owner)
        the_fabric.touches(data);
    return data;
}

/* ---- fabrics ---- */

/* The controller ends: what its links have brought does not happen any more. */
static void end_controller(void)
{
    const bool lingers = the_fabric.fault == OLD_LINGERS;
    for (unsigned i = 0; i < FABRIC_LINKS; i++) {
        struct fabric_link *link = &the_fabric.links[i];
        link->is_cut |= link->is_connected;
        link->is_dead |= link->is_connected && !lingers;
        if (link->is_dead)
            link->commands.count = link->sends.count = 0;
    }
    if (!lingers)
        the_fabric.stale.count = 0;
    the_target.is_there = the_target.is_enabled = false;
}

static void begin_controller(struct fabric_link *link)
{
    end_controller();
    the_target.cntlid++;
    the_target.is_there = true;
    the_target.sign_ns = the_fabric.now_ns;
    link->cntlid = the_target.cntlid;
}

static void target_connect(struct fabric_link *link, struct fabric_command *command)
{
    const struct nvf_sgl sgl = parse_sgl(command);
    const struct nvmf_connect_data *data = host_memory(link, &sgl);
    const uint16_t cntlid = le16toh(data->cntlid);
    if (!link->queue->qid) {
        begin_controller(link);
    } else if (!the_target.is_there || cntlid != the_target.cntlid || fabric_draw(60) == 0) {
        command->status = NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM);
        return;
    }
    link->cntlid = the_target.cntlid;
    link->is_connected = true;
    link->is_authenticated = !the_target.authenticates;
    link->is_proved = !the_target.wants_proof;
    command->result = the_target.cntlid | (the_target.authenticates ? NVF_CONNECT_ATR : 0);
}

static void authenticate(struct fabric_link *link, struct fabric_command *command, bool receives)
{
    const struct nvf_sgl sgl = parse_sgl(command);
    uint8_t *message = host_memory(link, &sgl);
    if (link->auth_step % 2 != receives || (!receives && message[0] != link->auth_step))
        fabric_fail("a message of an authentication is out of turn");
    if (receives) {
        message[0] = link->auth_step;
        message[1] = !the_target.lies;
    }
    if (++link->auth_step < 4)
        return;
    link->is_authenticated = true;
    link->is_proved |= !the_target.lies;
}

static void get_property(struct fabric_command *command)
{
    switch (le32toh(command->sqe.cdw11)) {
    case CAP_OFFSET:
        command->result = 63 | 2ull << 24; /* 64 entries; ready within a second */
        return;
    case CSTS_OFFSET:
        command->result = the_target.is_enabled && fabric_draw(2);
        return;
    default:
        command->result = 0x10400;
    }
}

static void execute_fabrics(struct fabric_link *link, struct fabric_command *command)
{
    switch (nvf_type_of(&command->sqe)) {
    case NVF_CONNECT:
        return target_connect(link, command);
    case NVF_AUTH_SEND:
    case NVF_AUTH_RECEIVE:
        return authenticate(link, command, nvf_type_of(&command->sqe) == NVF_AUTH_RECEIVE);
    case NVF_PROPERTY_GET:
        return get_property(command);
    case NVF_PROPERTY_SET:
        the_target.is_enabled = true;
        return;
    case NVF_DISCONNECT:
        return;
    }
    fabric_fail("a fabrics command that is none");
}

/* ---- administration ---- */

static void identify(struct fabric_link *link, struct fabric_command *command)
{
    const struct nvf_sgl sgl = parse_sgl(command);
    struct nvme_id_ctrl *id = host_memory(link, &sgl);
    memset(id, 0, sizeof(*id));
    id->sgls = htole32(1 << 2 | (the_target.has_capsules ? 1 << 20 : 0));
    id->ioccsz = htole32((NVF_SQE_BYTES + TARGET_CELL_BYTES) / 16);
    id->iorcsz = htole32(1);
    id->kas = htole16(1);
    id->oaes = htole32(1 << 8);
    id->ctratt = htole32(the_target.traffic_counts ? 1 << 6 : 0);
    id->cntrltype = 1;
}

static bool execute_admin(struct fabric_link *link, struct fabric_command *command)
{
    switch (command->sqe.opcode) {
    case nvme_admin_identify:
        identify(link, command);
        return true;
    case nvme_admin_set_features:
        command->result = 1 | 1 << 16; /* two queues */
        return true;
    case nvme_admin_async_event:
        return fabric_draw(400) == 0;
    case nvme_admin_keep_alive:
        return true;
    default:
        command->result = le32toh(command->sqe.cdw10);
        return true;
    }
}

/* ---- cells ---- */

static void execute_write(struct fabric_link *link, struct fabric_command *command)
{
    const struct nvf_sgl sgl = parse_sgl(command);
    const void *data = data_of(link, command, &sgl);
    if (!data)
        return;
    memcpy(the_target.cells[le32toh(command->sqe.cdw10) % TARGET_CELLS], data, TARGET_CELL_BYTES);
    the_target.happens(command);
}

static void execute_read(struct fabric_link *link, struct fabric_command *command)
{
    const struct nvf_sgl sgl = parse_sgl(command);
    void *data = host_memory(link, &sgl);
    if (!data)
        return;
    the_fabric.touches(data);
    memcpy(data, the_target.cells[le32toh(command->sqe.cdw10) % TARGET_CELLS], TARGET_CELL_BYTES);
}

static void execute_io(struct fabric_link *link, struct fabric_command *command)
{
    if (link && (!link->is_authenticated || !link->is_connected))
        fabric_fail("a command comes before Connect or authentication");
    if (link && !link->is_proved)
        fabric_fail("a command comes to a target that has not proved itself");
    if (link && fabric_draw(300) == 0) {
        command->status = NVME_SC_INTERNAL;
        return;
    }
    switch (command->sqe.opcode) {
    case nvme_cmd_write:
        return execute_write(link, command);
    case nvme_cmd_read:
        return execute_read(link, command);
    case nvme_cmd_resv_register:
        if (link || command->capsule_bytes)
            the_target.happens(command);
        return;
    default:
        return;
    }
}

bool target_execute(struct fabric_link *link, struct fabric_command *command)
{
    if (command->sqe.opcode == NVF_OPCODE) {
        execute_fabrics(link, command);
        return true;
    }
    if (link && !link->queue->qid)
        return execute_admin(link, command);
    execute_io(link, command);
    return true;
}

void target_take(const struct fabric_link *link)
{
    if (!link->queue->qid || the_target.traffic_counts)
        the_target.sign_ns = the_fabric.now_ns;
}

void target_restart(void)
{
    fabric_cut();
    end_controller();
}

void target_look(void)
{
    if (!the_target.is_there ||
        the_fabric.now_ns - the_target.sign_ns <= TARGET_KEEP_ALIVE_MS * NS_PER_MS)
        return;
    const struct fabric_link *admin = &the_fabric.links[0];
    if (admin->state == FABRIC_OPEN && admin->is_connected && !admin->is_cut)
        fabric_fail("the controller had no sign of life for its keep-alive time");
    end_controller();
}
