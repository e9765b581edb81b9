/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire snapshot remove`: a volume whose program is gone for good, of a server of this host, or
 * of another one that allows it. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/control.h"
#include "common/command/front.h"
#include "common/command/remote.h"
#include "common/rdma/caller.h"
#include "common/text/endpoint.h"
#include "snapshot/command/command.h"
#include "snapshot/wire/message.h"

struct remove_args {
    struct mover_ask ask;
    const char *address, *port, *name;
    bool is_json;
};

#define REMOVE(member) offsetof(struct remove_args, member)

/* As `serve --listen` takes it. */
static void take_far_server(struct argp_state *state, void *place, char *text)
{
    struct remove_args *args = place;
    if (!mover_split_endpoint(text, &args->address, &args->port))
        argp_error(state, "--address is ADDR[:PORT], as 192.0.2.1 or [2001:db8::1]:4460");
}

static const struct mover_option options[] = {
    {"address", 'a', "ADDR[:PORT]", 0, "Address of the server", 1, take_far_server, 0},
    MOVER_OPTION_PORT(REMOVE(port), SNAP_WIRE_PORT),
    MOVER_OPTION_FORMAT(REMOVE(is_json)),
    MOVER_OPTION_CONTROL(REMOVE(ask.path)),
    MOVER_OPTION_PID(REMOVE(ask.pid)),
    {0},
};

static void check_remove(struct argp_state *state, void *arguments)
{
    const struct remove_args *args = arguments;
    if (!snap_wire_name_is_fit(args->name))
        argp_error(state, "\"%.100s\" is no name of a volume", args->name);
}

static int remove_here(const struct remove_args *args)
{
    json_t *request = json_object();
    json_object_set_new(request, "command", json_string("remove"));
    json_object_set_new(request, "name", json_string(args->name));
    char *text = mover_ask(&args->ask, request);
    const int code = text ? mover_control_done(text, args->is_json) : MOVER_FAILED;
    free(text);
    return code;
}

enum { REMOVE_MS = 5000, REMOVE_AGAIN_MS = 5 };

/* What was there, and is not found any more, was removed. */
static int remove_by(struct mover_caller *caller, const struct remove_args *args)
{
    static struct snap_wire_answer answer;
    struct snap_wire_request request = {.type = SNAP_WIRE_REMOVE};
    char said[sizeof(request.name) + 16];
    bool was_there = false;
    snprintf(request.name, sizeof(request.name), "%s", args->name);
    for (;;) {
        uint32_t bytes = 0;
        const size_t asked = snap_wire_put_request(mover_caller_question(caller), &request);
        const uint8_t *got = mover_caller_ask(caller, (uint32_t)asked, REMOVE_MS, &bytes);
        if (!got || !snap_wire_get_answer(got, bytes, &answer))
            return mover_fail("%s has not answered", args->address);
        if (answer.status != SNAP_WIRE_WORKING)
            break;
        was_there = true;
        poll(NULL, 0, REMOVE_AGAIN_MS);
    }
    if (!was_there || answer.status != SNAP_WIRE_NOT_FOUND)
        return mover_fail("%s: %s", args->name,
                          *answer.text ? answer.text : snap_wire_status_text(answer.status));
    snprintf(said, sizeof(said), "%s: removed", args->name);
    return mover_control_done(said, args->is_json);
}

static int remove_there(const struct remove_args *args)
{
    char error[MOVER_CONNECTION_SAID];
    struct mover_caller caller = {.message_bytes = SNAP_WIRE_MESSAGE_MAX};
    if (!mover_caller_open(&caller, args->address, args->port, error))
        return mover_fail("%s%s", error,
                          caller.dial.is_absent ? "; there: sidewire snapshot serve" : "");
    const int code = remove_by(&caller, args);
    mover_caller_close(&caller);
    return code;
}

int snap_remove(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "VOLUME",
        .about = "Removes a volume that no program writes to, with all of its snapshots: of the "
                 "server of this host, or of that at --address if it allows it.",
        .own = {.rows = options,
                .only_word = "volume",
                .only_word_at = REMOVE(name),
                .check = check_remove}};
    struct remove_args args = {.ask = {.mover = "snapshot",
                                       .command = mover_front_words(),
                                       .noun = "server",
                                       .start = "sidewire snapshot serve"},
                               .port = SNAP_WIRE_PORT};
    mover_parse(&usage, argc, argv, &args);
    return args.address ? remove_there(&args) : remove_here(&args);
}
