/* SPDX-License-Identifier: BSD-2-Clause */
#include "module.h"

static struct py_peer *python_peer_of(PyObject *self)
{
    return (struct py_peer *)self;
}

/* ---- connecting ---- */

/* Also one that is gone is an answer. */
static bool is_settled(void *arg)
{
    const struct py_peer *peer = arg;
    return !peer->handle || sw_xfer_peer_state_of(peer->handle) != SW_XFER_CONNECTING;
}

/* 1: live; 0: connecting still; -1: an exception is set. */
static int peer_look_at(struct py_peer *peer)
{
    struct py_stay stay;
    struct sw_xfer_error error = {.status = SW_XFER_OK};
    if (!py_enter(&stay, peer->agent))
        return -1;
    const enum sw_xfer_peer_state state = sw_xfer_peer_state_of(peer->handle);
    if (state == SW_XFER_GONE)
        sw_xfer_peer_error(peer->handle, &error);
    py_leave(&stay);
    if (state != SW_XFER_GONE)
        return state == SW_XFER_LIVE;
    py_raise(error.status, error.text);
    return -1;
}

static PyObject *wait_live(struct py_peer *peer, uint64_t deadline_ns)
{
    const int got = py_wait(peer->agent, is_settled, peer, deadline_ns);
    if (got < 0 || (got && peer_look_at(peer) < 0))
        return NULL;
    return got ? Py_NewRef((PyObject *)peer)
               : py_raise(SW_XFER_TIMEOUT, "the peer is not connected yet");
}

static enum sw_xfer_status start_peer(struct py_peer *peer, struct py_agent *agent,
                                      struct sw_xfer_error *error)
{
    struct py_stay stay;
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(peer->card, &bytes, &length) || !py_enter(&stay, agent))
        return SW_XFER_SYSTEM;
    const enum sw_xfer_status status =
        sw_xfer_connect(agent->handle, bytes, (size_t)length, error, &peer->handle);
    py_leave(&stay);
    if (status)
        py_raise(status, error->text);
    return status;
}

PyObject *py_peer_new(struct py_agent *agent, PyObject *args, PyObject *words)
{
    static char *names[] = {"card", "timeout", "wait", NULL};
    PyObject *card, *seconds = NULL;
    int waits = 1;
    uint64_t deadline_ns;
    struct sw_xfer_error error;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O|Op:connect", names, &card, &seconds, &waits) ||
        !py_deadline(seconds, &deadline_ns))
        return NULL;
    PyObject *bytes = PyBytes_FromObject(card);
    struct py_peer *peer = bytes ? py_new(py_peer_type) : NULL;
    if (!peer) {
        Py_XDECREF(bytes);
        return NULL;
    }
    peer->card = bytes;
    peer->agent = (struct py_agent *)Py_NewRef((PyObject *)agent);
    PyObject *result = NULL;
    if (!start_peer(peer, agent, &error)) {
        py_kick(agent);
        result = waits ? wait_live(peer, deadline_ns) : Py_NewRef((PyObject *)peer);
    }
    Py_DECREF((PyObject *)peer);
    return result;
}

static void drop_peer(PyObject *self)
{
    struct py_peer *peer = python_peer_of(self);
    struct py_stay stay;
    if (peer->handle && py_enter_quietly(&stay, peer->agent)) {
        sw_xfer_peer_release(peer->handle);
        py_leave(&stay);
    }
    Py_XDECREF(peer->card);
    Py_XDECREF((PyObject *)peer->agent);
    py_free(self);
}

/* ---- what it does ---- */

static PyObject *peer_wait(PyObject *self, PyObject *args, PyObject *words)
{
    uint64_t deadline_ns;
    return py_seconds(args, words, "timeout", &deadline_ns)
               ? wait_live(python_peer_of(self), deadline_ns)
               : NULL;
}

static PyObject *peer_await(PyObject *self)
{
    return py_call("sidewire.aio", "iterate", self);
}

/* For asyncio: None while it goes on. */
static PyObject *peer_result(PyObject *self, PyObject *none)
{
    (void)none;
    const int state = peer_look_at(python_peer_of(self));
    return state < 0 ? NULL : Py_NewRef(state ? self : Py_None);
}

static PyObject *peer_blocks_of(PyObject *self, PyObject *args, PyObject *words)
{
    return py_blocks_of_regions(python_peer_of(self), args, words);
}

static PyObject *peer_blocks(PyObject *self, PyObject *args, PyObject *words)
{
    return py_blocks_new(NULL, python_peer_of(self), args, words);
}

static PyObject *make_transfer(PyObject *self, enum sw_xfer_op op, PyObject *args, PyObject *words)
{
    static char *names[] = {"local", "remote", "sums", NULL};
    PyObject *local, *remote;
    int has_sums = 0;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O!O!|p", names, py_blocks_type, &local,
                                     py_blocks_type, &remote, &has_sums))
        return NULL;
    return py_transfer_new(python_peer_of(self), op, local, remote, has_sums);
}

static PyObject *peer_write(PyObject *self, PyObject *args, PyObject *words)
{
    return make_transfer(self, SW_XFER_WRITE, args, words);
}

static PyObject *peer_read(PyObject *self, PyObject *args, PyObject *words)
{
    return make_transfer(self, SW_XFER_READ, args, words);
}

static PyObject *peer_notify(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"notice", "deadline", NULL};
    PyObject *notice, *seconds = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O|O:notify", names, &notice, &seconds))
        return NULL;
    PyObject *transfer = py_transfer_new(python_peer_of(self), SW_XFER_NOTIFY, NULL, NULL, false);
    PyObject *posted =
        transfer ? PyObject_CallMethod(transfer, "post", "OO", notice, seconds) : NULL;
    Py_XDECREF(transfer);
    return posted;
}

static PyObject *peer_get_state(PyObject *self, void *none)
{
    (void)none;
    static const char *const names[] = {"connecting", "live", "gone"};
    struct py_stay stay;
    if (!py_enter(&stay, python_peer_of(self)->agent))
        return NULL;
    const enum sw_xfer_peer_state state = sw_xfer_peer_state_of(python_peer_of(self)->handle);
    py_leave(&stay);
    return PyUnicode_FromString(names[state]);
}

static PyObject *peer_get_agent(PyObject *self, void *none)
{
    (void)none;
    return Py_NewRef((PyObject *)python_peer_of(self)->agent);
}

static PyObject *get_rails(PyObject *self, void *none)
{
    (void)none;
    struct py_stay stay;
    struct sw_xfer_rail rails[SW_XFER_ADDRESSES_MAX];
    if (!py_enter(&stay, python_peer_of(self)->agent))
        return NULL;
    const uint32_t count =
        sw_xfer_peer_rails(python_peer_of(self)->handle, rails, SW_XFER_ADDRESSES_MAX);
    py_leave(&stay);
    PyObject *all = PyList_New(0);
    for (uint32_t i = 0; all && i < count; i++) {
        PyObject *one =
            Py_BuildValue("{s:s,s:O,s:I,s:K}", "address", rails[i].address, "is_up",
                          rails[i].is_up ? Py_True : Py_False, "connections", rails[i].connections,
                          "bytes", (unsigned long long)rails[i].bytes);
        if (!one || PyList_Append(all, one))
            Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

static PyGetSetDef members[] = {
    {"state", peer_get_state, NULL, "connecting, live or gone.", NULL},
    {"rails", get_rails, NULL,
     "The ways to it: dicts of address, is_up, connections (so far), bytes.", NULL},
    {"agent", peer_get_agent, NULL, "The agent that it is a peer of.", NULL},
    {0},
};

#define WORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"wait", WORDS(peer_wait), METH_VARARGS | METH_KEYWORDS,
     "wait(timeout=None): until it is live; raises why not."},
    {"blocks", WORDS(peer_blocks), METH_VARARGS | METH_KEYWORDS,
     "blocks(region=0, index=None, bytes=0, stride=0, offset=0, count=0, card=None)"},
    {"blocks_of", WORDS(peer_blocks_of), METH_VARARGS | METH_KEYWORDS,
     "blocks_of(regions, extents, card=None): extents are (part, offset, bytes, stride, count), "
     "and a part is a place in `regions`."},
    {"write", WORDS(peer_write), METH_VARARGS | METH_KEYWORDS,
     "write(local, remote, sums=False): prepares a transfer to the peer."},
    {"read", WORDS(peer_read), METH_VARARGS | METH_KEYWORDS,
     "read(local, remote, sums=False): prepares a transfer from the peer."},
    {"notify", WORDS(peer_notify), METH_VARARGS | METH_KEYWORDS,
     "notify(notice, deadline=None): posts a notice alone; its transfer."},
    {"_result", peer_result, METH_NOARGS, NULL},
    {0},
};

static PyObject *show_peer(PyObject *self)
{
    static const char *const names[] = {"state", NULL};
    return py_show(self, "Peer", NULL, names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_peer},
    {Py_tp_dealloc, drop_peer},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_am_await, peer_await},
    {Py_tp_doc, "Another agent, one instance of it: Agent.connect()."},
    {0},
};

PyType_Spec py_peer_spec = {.name = "sidewire.Peer",
                            .basicsize = sizeof(struct py_peer),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            .slots = slots};
