/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/status.h"

#include <string.h>
#include <unistd.h>

#include "common/serve/json_text.h"
#include "common/time/units.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"
#include "nvme/target/tier/backend_tier.h"

static const char *const tier_phases[] = {[NVT_TIER_WALKING] = "reading the log",
                                          [NVT_TIER_SERVING] = "serving",
                                          [NVT_TIER_FAILED] = "failed"};
static const char *const tier_copy_states[] = {[NVT_TIER_LIVE] = "live",
                                               [NVT_TIER_BEHIND] = "behind",
                                               [NVT_TIER_LOST] = "lost",
                                               [NVT_TIER_BROKEN] = "broken"};

/* Null of a namespace that is none. */
static json_t *tier_status(const struct nvt_namespace *ns)
{
    struct nvt_tier_status status;
    if (!nvt_tiered_status(ns->backend, &status))
        return json_null();
    json_t *copies = json_array();
    for (uint32_t i = 0; i < status.copies_count; i++)
        json_array_append_new(copies,
                              json_pack("{s:o, s:s}", "log", mover_json_text(status.copies[i].name),
                                        "copy_state", tier_copy_states[status.copies[i].state]));
    return json_pack(
        "{s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "tier_phase", tier_phases[status.phase], "trouble", *status.trouble ? status.trouble : NULL,
        "log_bytes", (json_int_t)status.log_bytes, "used_bytes", (json_int_t)status.used_bytes,
        "dirty_bytes", (json_int_t)status.dirty_bytes, "oldest_dirty_ms",
        (json_int_t)(status.oldest_ns / NS_PER_MS), "destaged_bytes",
        (json_int_t)status.counts.destaged_bytes, "file_writes",
        (json_int_t)status.counts.file_writes, "waited_writes", (json_int_t)status.counts.waits,
        "replayed_records", (json_int_t)status.counts.replayed_records, "log_reads",
        (json_int_t)status.counts.log_reads, "ram_bytes", (json_int_t)status.cache_bytes,
        "ram_hits", (json_int_t)status.cache_hits, "ram_misses", (json_int_t)status.cache_misses,
        "copies", copies);
}

static json_t *namespace_status(const struct nvt_namespace *ns)
{
    const struct nvt_tally sum = nvt_namespace_sum(ns);
    char uuid[37];
    nvt_uuid_format(ns->uuid, uuid);
    const int error = nvt_disk_error(ns->backend->watched);
    return json_pack("{s:i, s:o, s:I, s:i, s:b, s:i, s:s, s:I, s:I, s:I, s:I, s:s?, s:o}", "nsid",
                     (int)ns->nsid, "backend", mover_json_text(ns->opened), "blocks",
                     (json_int_t)ns->blocks, "block_bytes", 1 << ns->block_shift, "read_only",
                     (int)ns->is_read_only, "ana_group", (int)ns->ana_group, "uuid", uuid, "reads",
                     (json_int_t)sum.reads, "writes", (json_int_t)sum.writes, "read_bytes",
                     (json_int_t)(sum.read_blocks << ns->block_shift), "written_bytes",
                     (json_int_t)(sum.written_blocks << ns->block_shift), "disk_error",
                     nvt_backend_lost(ns->backend) ? "another client has taken it"
                     : error                       ? strerror(error)
                                                   : NULL,
                     "tier", tier_status(ns));
}

static json_t *ctrl_status(const struct nvt_ctrl *ctrl)
{
    char host_id[37];
    int queues = 0, depth = 0;
    nvt_uuid_format(ctrl->host_id.bytes, host_id);
    for (int qid = 1; qid < NVT_QUEUES_MAX; qid++)
        if (ctrl->queues[qid]) {
            queues++;
            depth = ctrl->queues[qid]->depth > depth ? ctrl->queues[qid]->depth : depth;
        }
    return json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I}", "cntlid",
                     (int)ctrl->instance.cntlid, "hostnqn", ctrl->host_nqn, "hostid", host_id,
                     "portid", (int)ctrl->port->id, "io_queues", queues, "queue_size", depth,
                     "depth", depth, "keep_alive_ms", (json_int_t)ctrl->keep_alive_ms, "errors",
                     (json_int_t)ctrl->error_count);
}

static json_t *subsystem_status(const struct nvt_subsystem *subsystem)
{
    json_t *hosts = json_array(), *namespaces = json_array(), *ctrls = json_array();
    for (const struct list_node *node = list_first(&subsystem->hosts); node;
         node = list_after(&subsystem->hosts, node))
        json_array_append_new(hosts, json_string(LIST_MEMBER(node, struct nvt_host, node)->nqn));
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++)
        if (subsystem->namespaces[nsid])
            json_array_append_new(namespaces, namespace_status(subsystem->namespaces[nsid]));
    for (const struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node))
        json_array_append_new(ctrls, ctrl_status(LIST_MEMBER(node, struct nvt_ctrl, node)));
    return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "nqn", subsystem->nqn, "serial",
                     subsystem->serial, "allow_any_host", (int)subsystem->allow_any_host, "hosts",
                     hosts, "namespaces", namespaces, "controllers", ctrls);
}

static json_t *port_status(const struct nvr_server *server, const struct nvt_port *port)
{
    json_t *served = json_array();
    for (size_t i = 0; i < port->served_count; i++)
        json_array_append_new(served, json_string(port->served[i]->nqn));
    return json_pack("{s:i, s:s, s:s, s:b, s:i, s:i, s:o}", "portid", (int)port->id, "traddr",
                     port->traddr, "trsvcid", port->trsvcid, "is_listening",
                     (int)nvr_server_is_listening(server, port), "in_capsule_bytes",
                     (int)port->in_capsule_bytes, "referrals", (int)port->referral_count,
                     "subsystems", served);
}

static json_t *threads_status(const struct nvr_server *server)
{
    json_t *threads = json_array();
    for (uint32_t i = 0; i < server->thread_count; i++) {
        const struct nvr_thread *thread = &server->threads[i];
        json_array_append_new(threads, json_pack("{s:i, s:I}", "io_queues", (int)thread->io_queues,
                                                 "commands", (json_int_t)thread->base->commands));
    }
    return threads;
}

json_t *nvr_status(const struct nvr_serving *serving)
{
    const struct nvr_server *server = serving->server;
    const struct nvt_target *target = &server->target;
    json_t *ports = json_array(), *subsystems = json_array();
    for (const struct list_node *node = list_first(&target->ports); node;
         node = list_after(&target->ports, node))
        json_array_append_new(ports, port_status(server, LIST_MEMBER(node, struct nvt_port, node)));
    for (const struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        const struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        if (!subsystem->is_discovery)
            json_array_append_new(subsystems, subsystem_status(subsystem));
    }
    uint64_t commands = 0, errors = 0;
    for (uint32_t i = 0; i < target->thread_count; i++) {
        commands += target->threads[i].commands;
        errors += target->threads[i].errors;
    }
    json_t *status = json_pack(
        "{s:i, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I}", "pid", (int)getpid(), "ports", ports,
        "subsystems", subsystems, "threads", threads_status(server), "connections",
        (int)server->queue_count, "connected", (json_int_t)server->connected, "refused",
        (json_int_t)server->refused, "ended", (json_int_t)target->ended_count, "commands",
        (json_int_t)commands, "errors", (json_int_t)errors);
    if (status && serving->member)
        json_object_set_new(status, "group", nvr_member_status(serving->member));
    return status;
}

#define NAMESPACES "subsystems[nqn].namespaces[nsid]."
#define CONTROLLERS "subsystems[nqn].controllers[cntlid,hostnqn]."

const struct mover_metric nvr_metrics[] = {
    {"connections", "connections", "Connections, of all queues", MOVER_GAUGE},
    {"connected_total", "connected", "Connections that were taken", MOVER_COUNTER},
    {"refused_total", "refused", "Connections that were refused", MOVER_COUNTER},
    {"ended_total", "ended", "Queues that the target has ended", MOVER_COUNTER},
    {"commands_total", "commands", "Commands of hosts", MOVER_COUNTER},
    {"errors_total", "errors", "Commands that failed", MOVER_COUNTER},
    {"port_is_listening", "ports[portid,traddr,trsvcid].is_listening", "0: its address is away",
     MOVER_GAUGE},
    {"namespace_reads_total", NAMESPACES "reads", "Read commands", MOVER_COUNTER},
    {"namespace_writes_total", NAMESPACES "writes", "Write commands", MOVER_COUNTER},
    {"namespace_read_bytes_total", NAMESPACES "read_bytes", "Bytes read", MOVER_COUNTER},
    {"namespace_written_bytes_total", NAMESPACES "written_bytes", "Bytes written", MOVER_COUNTER},
    {"tier_log_bytes", NAMESPACES "tier.log_bytes", "Bytes of a tier's log", MOVER_GAUGE},
    {"tier_used_bytes", NAMESPACES "tier.used_bytes", "Of these in use", MOVER_GAUGE},
    {"tier_oldest_dirty_ms", NAMESPACES "tier.oldest_dirty_ms",
     "Age of the oldest block that its file lacks", MOVER_GAUGE},
    {"tier_destaged_bytes_total", NAMESPACES "tier.destaged_bytes", "Written to its file",
     MOVER_COUNTER},
    {"controller_io_queues", CONTROLLERS "io_queues", "I/O queues of a host", MOVER_GAUGE},
    {"group_is_leader", "group.is_leader", "This member leads its group", MOVER_GAUGE},
    {"group_has_quorum", "group.has_quorum", "0: changes of the group are refused", MOVER_GAUGE},
    {"group_members", "group.members_here", "Members that have joined and not left", MOVER_GAUGE},
    {"group_changes_total", "group.changes", "Records of the group's log that were seen",
     MOVER_COUNTER},
    {"group_is_owner", "group.owners[nsid].is_owner", "This member serves the namespace",
     MOVER_GAUGE},
    {"group_owner_epoch", "group.owners[nsid].epoch", "How often the namespace has been taken",
     MOVER_GAUGE},
    {"group_hosts_refused_total", "group.hosts_refused",
     "Hosts for which the group had no place, at this member", MOVER_COUNTER},
    {"controller_errors_total", CONTROLLERS "errors", "Its commands that failed", MOVER_COUNTER},
    {0},
};
