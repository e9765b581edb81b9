/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target move`: gives a namespace of a group, or a host where all members are
 * active, to another member, and waits until that has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/command/remote.h"
#include "common/time/clock.h"
#include "nvme/command/command.h"

/* HOST_S: the leader forgets a wish after ten */
enum { LOOK_US = 50000, WAIT_S = 30, QUORUM_S = 5, HOST_S = 12 };

struct move_args {
    struct mover_ask ask;
    const char *nsid, *hostnqn, *hostid, *to;
    long number;    /* of a namespace */
    char what[300]; /* as it is named to the user */
    char id[37];    /* of the host */
    bool is_json;
};

static void check_move(struct argp_state *state, void *arguments)
{
    struct move_args *args = arguments;
    if (!args->to || !args->nsid == !args->hostnqn)
        argp_error(state, "say which namespace by --namespace, or with --active all which host by "
                          "--hostnqn; and by --to the member");
    if (args->hostid && !args->hostnqn)
        argp_error(state, "--hostid goes with --hostnqn");
    if (args->nsid) {
        args->number = nv_take_nsid(state, args->nsid);
        snprintf(args->what, sizeof(args->what), "namespace %ld", args->number);
    } else {
        snprintf(args->what, sizeof(args->what), "host %.223s", args->hostnqn);
    }
}

#define MOVE(member) offsetof(struct move_args, member)

static const struct mover_option move_options[] = {
    {"namespace", 'n', "BACKEND", 0, "The namespace, by its number", 1, mover_take_text,
     MOVE(nsid)},
    {"hostnqn", 'q', "NQN", 0, "The host, where all members are active", 1, mover_take_text,
     MOVE(hostnqn)},
    {"hostid", 'I', "UUID", 0, "Its ID, if several hosts have that name", 1, mover_take_text,
     MOVE(hostid)},
    {"to", 0, "MEMBER", 0, "The member of the group that is to have it", 1, mover_take_text,
     MOVE(to)},
    MOVER_OPTION_FORMAT(MOVE(is_json)),
    MOVER_OPTION_CONTROL(MOVE(ask.path)),
    MOVER_OPTION_PID(MOVE(ask.pid)),
    {0},
};

/* What a member knows of it. */
struct move_view {
    bool is_told, has_quorum;
    char owner[64]; /* "" for nobody, or one that takes it still */
    json_int_t epoch;
};

/* What a member says of its group; the caller releases it. NULL: nothing. */
static json_t *move_ask_group(const struct move_args *args)
{
    char *text = mover_ask_command(&args->ask, "status");
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    json_t *group = json_incref(json_object_get(status, "group"));
    json_decref(status);
    free(text);
    return group;
}

static bool is_that_host(const struct move_args *args, const json_t *one)
{
    return !strcmp(json_string_value(json_object_get(one, "hostnqn")), args->hostnqn) &&
           (!args->hostid ||
            !strcasecmp(json_string_value(json_object_get(one, "hostid")), args->hostid));
}

static bool move_is_of(const struct move_args *args, const json_t *one)
{
    return args->hostnqn ? is_that_host(args, one)
                         : json_integer_value(json_object_get(one, "nsid")) == args->number;
}

static void move_look(const struct move_args *args, struct move_view *view)
{
    size_t i;
    const json_t *one;
    json_t *group = move_ask_group(args);
    *view = (struct move_view){.is_told = group,
                               .has_quorum = json_is_true(json_object_get(group, "has_quorum"))};
    json_array_foreach(json_object_get(group, args->hostnqn ? "host_owners" : "owners"), i, one)
    {
        const char *phase = json_string_value(json_object_get(one, "phase")),
                   *name = json_string_value(json_object_get(one, "owner"));
        if (!move_is_of(args, one))
            continue;
        view->epoch = json_integer_value(json_object_get(one, "epoch"));
        if (phase && name && !strcmp(phase, "owned"))
            snprintf(view->owner, sizeof(view->owner), "%s", name);
    }
    json_decref(group);
}

/* The ID of the host that is named. False: it has said why there is none. */
static bool move_find_host(struct move_args *args)
{
    size_t i;
    const json_t *one;
    uint32_t count = 0;
    json_t *group = move_ask_group(args);
    json_array_foreach(json_object_get(group, "host_owners"), i, one)
    {
        if (is_that_host(args, one) && !count++)
            snprintf(args->id, sizeof(args->id), "%s",
                     json_string_value(json_object_get(one, "hostid")));
    }
    if (group && !count)
        mover_fail("the group has no %s%s%s; 'sidewire nvme target status' lists its hosts",
                   args->what, args->hostid ? " of ID " : "", args->hostid ? args->hostid : "");
    else if (count > 1)
        mover_fail("%u hosts are called %s; say which by --hostid, as 'sidewire nvme target status "
                   "-o json' has it",
                   count, args->hostnqn);
    json_decref(group);
    args->hostid = args->id;
    return count == 1;
}

static const char *owner_of(const struct move_view *view)
{
    return *view->owner ? view->owner : "nobody";
}

/* It is not known whether it moves: what the group has decided stays decided. */
static int move_is_open(const struct move_args *args, const struct move_view *view, const char *why)
{
    return mover_fail("%s has not moved yet, and may move still: %s has it, %s", args->what,
                      owner_of(view), why);
}

/* The next owner after `epoch` is the one that was wanted, or it was all in vain. */
static int await_owner(const struct move_args *args, json_int_t epoch)
{
    const uint64_t begun_ns = mover_now_ns();
    uint64_t quorum_ns = begun_ns;
    struct move_view view;
    char said[sizeof(args->what) + sizeof(view.owner) + 16];
    for (;; usleep(LOOK_US)) {
        const uint64_t now_ns = mover_now_ns();
        move_look(args, &view);
        if (!view.is_told)
            return MOVER_FAILED;
        if (!strcmp(view.owner, args->to)) {
            snprintf(said, sizeof(said), "%s: %s has it", args->what, view.owner);
            return mover_control_done(said, args->is_json);
        }
        if (*view.owner && view.epoch > epoch)
            return mover_fail("%s does not move to %s: %s has it now. Another move came first, or "
                              "%s could not take it, and its own lines say why",
                              args->what, args->to, view.owner, args->to);
        if (view.has_quorum)
            quorum_ns = now_ns;
        if (now_ns >= quorum_ns + QUORUM_S * NS_PER_S)
            return move_is_open(args, &view, "and the group's log has no quorum, or no leader");
        if (args->hostnqn && view.epoch == epoch && now_ns >= begun_ns + HOST_S * NS_PER_S)
            return mover_fail("%s does not move: %s has it. Is it connected to %s?", args->what,
                              owner_of(&view), args->to);
        if (now_ns >= begun_ns + WAIT_S * NS_PER_S)
            return move_is_open(args, &view, "and the targets' own lines say why");
    }
}

int nv_target_move(const struct mover_ask *ask, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Gives a namespace of a group of targets to another member. Hosts wait meanwhile, "
                 "and see no error. With --active all it moves a host, which has to be connected "
                 "to that member, too.\v"
                 "Examples:\n"
                 "  sidewire nvme target move --namespace 1 --to target2\n"
                 "  sidewire nvme target move --hostnqn nqn.2014-08.org.nvmexpress:uuid:... --to "
                 "target4\n",
        .own = {.rows = move_options, .check = check_move}};
    struct move_args args = {.ask = *ask};
    mover_parse(&usage, argc, argv, &args);
    if (args.hostnqn && !move_find_host(&args))
        return MOVER_FAILED;
    char *text = mover_ask(&args.ask, json_pack("{s:s, s:I, s:s, s:s*, s:s*}", "command", "move",
                                                "nsid", (json_int_t)args.number, "member", args.to,
                                                "hostnqn", args.hostnqn, "hostid", args.hostid));
    if (!text)
        return MOVER_FAILED;
    const json_int_t epoch = strtoll(text, NULL, 10);
    free(text);
    return await_owner(&args, epoch);
}
