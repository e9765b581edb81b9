/* SPDX-License-Identifier: BSD-2-Clause */
/* The right of peers to reach memory. The agent keeps it until it is revoked, so a lease that
 * nobody holds any more does not end by that. */
#include "module.h"

static struct py_lease *python_lease_of(PyObject *self)
{
    return (struct py_lease *)self;
}

static PyObject *grant_lease(struct py_memory *memory, const struct sw_xfer_lease_options *options)
{
    struct py_agent *agent = memory->agent;
    struct sw_xfer_error error = {.text = "this memory was released"};
    struct py_stay stay;
    enum sw_xfer_status status = SW_XFER_INVALID;
    struct py_lease *lease = py_new(py_lease_type);
    if (!lease || !py_enter(&stay, agent)) {
        Py_XDECREF((PyObject *)lease);
        return NULL;
    }
    if (memory->handle)
        status = sw_xfer_lease_grant(memory->handle, options, &error, &lease->handle);
    py_leave(&stay);
    lease->memory = (struct py_memory *)Py_NewRef((PyObject *)memory);
    if (status)
        py_raise(status, error.text);
    if (status || PySet_Add(agent->leases, (PyObject *)lease)) {
        Py_DECREF((PyObject *)lease);
        return NULL;
    }
    return (PyObject *)lease;
}

PyObject *py_lease_new(struct py_memory *memory, PyObject *args, PyObject *words)
{
    static char *names[] = {"name", "read", "write", "offset", "bytes", "visitor", "seconds", NULL};
    unsigned long long offset = 0, bytes = 0, visitor = 0;
    int may_read = 1, may_write = 0;
    PyObject *seconds = NULL;
    struct sw_xfer_lease_options options = {.name = NULL};
    if (!PyArg_ParseTupleAndKeywords(args, words, "|zppKKKO:lease", names, &options.name, &may_read,
                                     &may_write, &offset, &bytes, &visitor, &seconds) ||
        !py_deadline(seconds, &options.deadline_ns))
        return NULL;
    if (may_write && memory->data.is_readonly)
        return py_raise(SW_XFER_DENIED, "this memory can only be read");
    options.offset = offset;
    options.bytes = bytes;
    options.visitor = visitor;
    options.rights = (may_read ? SW_XFER_MAY_READ : 0u) | (may_write ? SW_XFER_MAY_WRITE : 0u);
    return grant_lease(memory, &options);
}

static void release_handle(struct py_lease *lease)
{
    struct py_stay stay;
    if (!lease->handle || !py_enter_quietly(&stay, lease->memory->agent))
        return;
    struct sw_xfer_lease *handle = lease->handle;
    lease->handle = NULL;
    if (handle)
        sw_xfer_lease_release(handle);
    py_leave(&stay);
}

static PyObject *lease_revoke(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_lease *lease = python_lease_of(self);
    if (py_is_forked(lease->memory->agent))
        return py_raise(SW_XFER_FORKED, sw_xfer_status_text(SW_XFER_FORKED));
    release_handle(lease);
    if (PySet_Discard(lease->memory->agent->leases, self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static void drop_lease(PyObject *self)
{
    release_handle(python_lease_of(self));
    Py_XDECREF((PyObject *)python_lease_of(self)->memory);
    py_free(self);
}

static PyObject *ask_handle(PyObject *self, bool (*question)(const struct sw_xfer_lease *))
{
    struct py_lease *lease = python_lease_of(self);
    struct py_stay stay;
    bool answer = false;
    if (lease->handle && py_enter_quietly(&stay, lease->memory->agent)) {
        answer = lease->handle && question(lease->handle);
        py_leave(&stay);
    }
    return PyBool_FromLong(answer);
}

static PyObject *get_granted(PyObject *self, void *none)
{
    (void)none;
    return ask_handle(self, sw_xfer_lease_is_granted);
}

static PyObject *get_window(PyObject *self, void *none)
{
    (void)none;
    return ask_handle(self, sw_xfer_lease_is_window);
}

static PyGetSetDef members[] = {
    {"granted", get_granted, NULL, "False once it is revoked or its time is over.", NULL},
    {"is_window", get_window, NULL, "Whether it is a memory window of type 2.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"revoke", lease_revoke, METH_NOARGS,
     "When it returns, no request by this lease touches the memory any more."},
    {0},
};

static PyObject *show_lease(PyObject *self)
{
    static const char *const names[] = {"granted", "is_window", NULL};
    return py_show(self, "Lease", NULL, names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_lease},
    {Py_tp_dealloc, drop_lease},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_tp_doc, "The right of peers to reach a part of a memory: Memory.lease()."},
    {0},
};

PyType_Spec py_lease_spec = {.name = "sidewire.Lease",
                             .basicsize = sizeof(struct py_lease),
                             .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = slots};
