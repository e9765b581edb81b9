/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "module.h"

static struct py_transfer *python_transfer_of(PyObject *self)
{
    return (struct py_transfer *)self;
}

static struct py_agent *transfer_agent_of(const struct py_transfer *transfer)
{
    return transfer->peer->agent;
}

/* ---- prepared ---- */

PyObject *py_transfer_new(struct py_peer *peer, enum sw_xfer_op op, PyObject *local_object,
                          PyObject *remote_object, bool has_sums)
{
    struct py_blocks *local = (struct py_blocks *)local_object;
    struct py_blocks *remote = (struct py_blocks *)remote_object;
    struct sw_xfer_error error;
    struct py_stay stay;
    if (local && (local->peer || !remote->peer))
        return py_raise(SW_XFER_INVALID, "the first blocks are those here, the second the peer's");
    if (op == SW_XFER_READ && local->is_readonly)
        return py_raise(SW_XFER_DENIED, "the memory here can only be read");
    struct py_transfer *transfer = py_new(py_transfer_type);
    if (!transfer)
        return NULL;
    transfer->peer = (struct py_peer *)Py_NewRef((PyObject *)peer);
    transfer->local = (struct py_blocks *)Py_XNewRef(local_object);
    transfer->remote = (struct py_blocks *)Py_XNewRef(remote_object);
    enum sw_xfer_status status = SW_XFER_SYSTEM;
    if (py_enter(&stay, peer->agent)) {
        status = (has_sums ? sw_xfer_prepare_summed : sw_xfer_prepare)(
            peer->handle, op, local ? local->handle : NULL, remote ? remote->handle : NULL, &error,
            &transfer->handle);
        py_leave(&stay);
        if (status)
            py_raise(status, error.text);
    }
    if (status) {
        Py_DECREF((PyObject *)transfer);
        return NULL;
    }
    return (PyObject *)transfer;
}

static void drop_transfer(PyObject *self)
{
    struct py_transfer *transfer = python_transfer_of(self);
    struct py_stay stay;
    if (transfer->handle && py_enter_quietly(&stay, transfer_agent_of(transfer))) {
        sw_xfer_release(transfer->handle);
        py_leave(&stay);
    }
    Py_XDECREF((PyObject *)transfer->local);
    Py_XDECREF((PyObject *)transfer->remote);
    Py_XDECREF((PyObject *)transfer->peer);
    py_free(self);
}

/* ---- posted ---- */

/* Larger numbers than there can be are refused when it is posted. */
static bool narrow_index(PyObject *object, struct py_index *index, const uint32_t **numbers)
{
    *numbers = NULL;
    if (!object || object == Py_None)
        return true;
    if (!py_index_take(object, index))
        return false;
    uint32_t *narrow = malloc(index->count * sizeof(*narrow));
    for (uint32_t i = 0; narrow && i < index->count; i++)
        narrow[i] = index->values[i] < UINT32_MAX ? (uint32_t)index->values[i] : UINT32_MAX;
    *numbers = narrow;
    if (!narrow)
        PyErr_NoMemory();
    return narrow;
}

static bool read_indices(PyObject *local_object, PyObject *remote_object,
                         struct sw_xfer_post_options *options)
{
    struct py_index local = {.count = 0}, remote = {.count = 0};
    bool is_fine = narrow_index(local_object, &local, &options->local_index) &&
                   narrow_index(remote_object, &remote, &options->remote_index);
    if (is_fine && local.count && remote.count && local.count != remote.count) {
        py_raise(SW_XFER_INVALID, "as many blocks here as there");
        is_fine = false;
    }
    options->count = local.count ? local.count : remote.count;
    py_index_drop(&local);
    py_index_drop(&remote);
    return is_fine;
}

static enum sw_xfer_status post_options(struct py_transfer *transfer,
                                        const struct sw_xfer_post_options *options)
{
    struct py_stay stay;
    if (!py_enter(&stay, transfer_agent_of(transfer)))
        return SW_XFER_SYSTEM;
    const enum sw_xfer_status status = sw_xfer_post(transfer->handle, options);
    py_leave(&stay);
    if (status == SW_XFER_INVALID)
        py_raise(status, "a block number is out of range, blocks differ in length or count, or the "
                         "notice is missing or too long");
    else if (status)
        py_raise(status, sw_xfer_status_text(status));
    return status;
}

static PyObject *transfer_post(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"notice", "deadline", "local_index", "remote_index", NULL};
    Py_buffer notice = {.buf = NULL};
    PyObject *seconds = NULL, *local = NULL, *remote = NULL;
    struct sw_xfer_post_options options = {.count = 0};
    enum sw_xfer_status status = SW_XFER_SYSTEM;
    if (!PyArg_ParseTupleAndKeywords(args, words, "|z*OOO:post", names, &notice, &seconds, &local,
                                     &remote))
        return NULL;
    options.notice = notice.buf;
    options.notice_bytes = notice.len < (Py_ssize_t)UINT32_MAX ? (uint32_t)notice.len : UINT32_MAX;
    if (py_deadline(seconds, &options.deadline_ns) && read_indices(local, remote, &options))
        status = post_options(python_transfer_of(self), &options);
    free((void *)options.local_index);
    free((void *)options.remote_index);
    if (notice.obj)
        PyBuffer_Release(&notice);
    if (status)
        return NULL;
    py_kick(transfer_agent_of(python_transfer_of(self)));
    return Py_NewRef(self);
}

static PyObject *transfer_cancel(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_stay stay;
    if (!py_enter(&stay, transfer_agent_of(python_transfer_of(self))))
        return NULL;
    sw_xfer_cancel(python_transfer_of(self)->handle);
    py_leave(&stay);
    py_kick(transfer_agent_of(python_transfer_of(self)));
    Py_RETURN_NONE;
}

/* ---- ended ---- */

static bool has_ended(void *arg)
{
    const struct py_transfer *transfer = arg;
    return sw_xfer_state_of(transfer->handle) != SW_XFER_POSTED;
}

static bool get_info(PyObject *self, struct sw_xfer_info *info)
{
    struct py_stay stay;
    if (!py_enter(&stay, transfer_agent_of(python_transfer_of(self))))
        return false;
    sw_xfer_info_of(python_transfer_of(self)->handle, info);
    py_leave(&stay);
    return true;
}

static PyObject *transfer_result(PyObject *self, PyObject *none)
{
    (void)none;
    struct sw_xfer_info info;
    if (!get_info(self, &info))
        return NULL;
    switch (info.state) {
    case SW_XFER_PREPARED:
        return py_raise(SW_XFER_INVALID, "this transfer was not posted");
    case SW_XFER_POSTED:
        Py_RETURN_NONE;
    case SW_XFER_DONE:
        return Py_NewRef(self);
    case SW_XFER_FAILED:
        return py_raise(info.status, sw_xfer_status_text(info.status));
    case SW_XFER_WAS_CANCELLED:
        return py_raise(SW_XFER_CANCELLED, sw_xfer_status_text(SW_XFER_CANCELLED));
    }
    return NULL;
}

static PyObject *transfer_wait(PyObject *self, PyObject *args, PyObject *words)
{
    uint64_t deadline_ns;
    if (!py_seconds(args, words, "timeout", &deadline_ns))
        return NULL;
    const int got = py_wait(transfer_agent_of(python_transfer_of(self)), has_ended,
                            python_transfer_of(self), deadline_ns);
    if (got > 0)
        return transfer_result(self, NULL);
    return got < 0 ? NULL : py_raise(SW_XFER_TIMEOUT, "the transfer goes on");
}

static PyObject *transfer_await(PyObject *self)
{
    return py_call("sidewire.aio", "iterate", self);
}

/* ---- what is known of it ---- */

static PyObject *transfer_get_state(PyObject *self, void *none)
{
    (void)none;
    static const char *const names[] = {"prepared", "posted", "done", "failed", "cancelled"};
    struct sw_xfer_info info;
    return get_info(self, &info) ? PyUnicode_FromString(names[info.state]) : NULL;
}

static PyObject *transfer_info(PyObject *self, PyObject *none)
{
    (void)none;
    struct sw_xfer_info info;
    if (!get_info(self, &info))
        return NULL;
    return Py_BuildValue("{sN sI sI sK sK sI sK}", "is_drained", PyBool_FromLong(info.is_drained),
                         "blocks", info.blocks, "blocks_done", info.blocks_done, "bytes",
                         info.bytes, "bytes_done", info.bytes_done, "requests", info.requests,
                         "took_ns",
                         info.ended_ns > info.posted_ns ? info.ended_ns - info.posted_ns : 0);
}

static PyObject *transfer_block(PyObject *self, PyObject *args, PyObject *words)
{
    static char *parameters[] = {"index", NULL};
    static const char *const names[] = {"waits", "maybe", "in place", "corrupt"};
    unsigned index;
    struct py_stay stay;
    if (!PyArg_ParseTupleAndKeywords(args, words, "I:block", parameters, &index) ||
        !py_enter(&stay, transfer_agent_of(python_transfer_of(self))))
        return NULL;
    const enum sw_xfer_block_state state =
        sw_xfer_block_of(python_transfer_of(self)->handle, (uint32_t)index);
    py_leave(&stay);
    return PyUnicode_FromString(names[state]);
}

static PyObject *transfer_get_agent(PyObject *self, void *none)
{
    (void)none;
    return Py_NewRef((PyObject *)transfer_agent_of(python_transfer_of(self)));
}

static PyGetSetDef members[] = {
    {"state", transfer_get_state, NULL, "prepared, posted, done, failed or cancelled.", NULL},
    {"agent", transfer_get_agent, NULL, "The agent that it is a transfer of.", NULL},
    {0},
};

#define WORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"post", WORDS(transfer_post), METH_VARARGS | METH_KEYWORDS,
     "post(notice=None, deadline=None, local_index=None, remote_index=None): itself."},
    {"wait", WORDS(transfer_wait), METH_VARARGS | METH_KEYWORDS,
     "wait(timeout=None): until it has ended; raises why it is not done."},
    {"cancel", transfer_cancel, METH_NOARGS, "Asks for its end; wait for it."},
    {"info", transfer_info, METH_NOARGS, "A dict of what was moved."},
    {"block", WORDS(transfer_block), METH_VARARGS | METH_KEYWORDS,
     "block(index): waits, maybe, in place or corrupt."},
    {"_result", transfer_result, METH_NOARGS, NULL},
    {0},
};

static PyObject *show_transfer(PyObject *self)
{
    static const char *const names[] = {"state", NULL};
    return py_show(self, "Transfer", NULL, names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_transfer},
    {Py_tp_dealloc, drop_transfer},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_am_await, transfer_await},
    {Py_tp_doc, "Pairs of blocks to be moved: Peer.write(), Peer.read(). It can be awaited."},
    {0},
};

PyType_Spec py_transfer_spec = {.name = "sidewire.Transfer",
                                .basicsize = sizeof(struct py_transfer),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = slots};
