/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "module.h"

PyTypeObject *py_agent_type, *py_memory_type, *py_lease_type, *py_peer_type, *py_blocks_type,
    *py_transfer_type, *py_pipe_type, *py_pipe_listener_type;

/* Exceptions with a second base are also caught by code that knows Python's own ones only. */
static const struct {
    enum sw_xfer_status status;
    const char *name, *base; /* another one of these */
    PyObject **builtin;
} exceptions[] = {
    {SW_XFER_PEER_GONE, "PeerGone", NULL, &PyExc_ConnectionError},
    {SW_XFER_INSTANCE, "InstanceMismatch", "PeerGone", NULL},
    {SW_XFER_DEADLINE, "DeadlineExceeded", NULL, &PyExc_TimeoutError},
    {SW_XFER_TIMEOUT, "WaitTimeout", NULL, &PyExc_TimeoutError},
    {SW_XFER_CANCELLED, "Cancelled", NULL, NULL},
    {SW_XFER_VERSION, "VersionMismatch", NULL, NULL},
    {SW_XFER_LAYOUT, "LayoutMismatch", NULL, NULL},
    {SW_XFER_CARD, "BadCard", NULL, &PyExc_ValueError},
    {SW_XFER_INVALID, "InvalidArgument", NULL, &PyExc_ValueError},
    {SW_XFER_CORRUPT, "Corrupt", NULL, NULL},
    {SW_XFER_DENIED, "Denied", NULL, &PyExc_PermissionError},
    {SW_XFER_REFUSED, "Refused", NULL, &PyExc_ConnectionError},
    {SW_XFER_FORKED, "Forked", NULL, NULL},
};

enum { EXCEPTIONS = sizeof(exceptions) / sizeof(*exceptions) };
static PyObject *error_class, *classes[EXCEPTIONS];

static PyObject *class_named(const char *name)
{
    for (int i = 0; i < EXCEPTIONS; i++)
        if (!strcmp(exceptions[i].name, name))
            return classes[i];
    return NULL;
}

static PyObject *make_class(PyObject *module, const char *name, PyObject *base, PyObject *second)
{
    char full[64];
    PyOS_snprintf(full, sizeof(full), "sidewire.%s", name);
    PyObject *bases = second ? PyTuple_Pack(2, base, second) : PyTuple_Pack(1, base);
    PyObject *made = bases ? PyErr_NewException(full, bases, NULL) : NULL;
    Py_XDECREF(bases);
    if (made && PyModule_AddObjectRef(module, name, made))
        Py_CLEAR(made);
    return made;
}

static bool make_exceptions(PyObject *module)
{
    error_class = make_class(module, "Error", PyExc_Exception, NULL);
    for (int i = 0; error_class && i < EXCEPTIONS; i++) {
        PyObject *base = exceptions[i].base ? class_named(exceptions[i].base) : error_class;
        PyObject *second = exceptions[i].builtin ? *exceptions[i].builtin : NULL;
        classes[i] = make_class(module, exceptions[i].name, base, second);
        if (!classes[i])
            return false;
    }
    return error_class;
}

PyObject *py_raise(enum sw_xfer_status status, const char *text)
{
    PyObject *class = error_class;
    for (int i = 0; i < EXCEPTIONS; i++)
        if (exceptions[i].status == status)
            class = classes[i];
    PyErr_SetString(class, text);
    return NULL;
}

void *py_new(PyTypeObject *type)
{
    return PyType_GenericAlloc(type, 0);
}

void py_free(void *object)
{
    PyTypeObject *type = Py_TYPE((PyObject *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *py_call(const char *module, const char *name, PyObject *arg)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *function = imported ? PyObject_GetAttrString(imported, name) : NULL;
    PyObject *result = function ? PyObject_CallFunctionObjArgs(function, arg, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(imported);
    return result;
}

/* What a card says: (version, instance, layout, addresses, [(name, bytes, rights)]). */
static PyObject *read_card(PyObject *module, PyObject *object)
{
    (void)module;
    char *bytes;
    Py_ssize_t length;
    struct sw_xfer_card card;
    if (PyBytes_AsStringAndSize(object, &bytes, &length))
        return NULL;
    const enum sw_xfer_status status = sw_xfer_card_read(bytes, (size_t)length, &card);
    if (status)
        return py_raise(status, sw_xfer_status_text(status));
    PyObject *addresses = PyList_New(0), *regions = PyList_New(0);
    bool is_fine = addresses && regions;
    for (uint32_t i = 0; is_fine && i < card.addresses_count; i++) {
        PyObject *text = PyUnicode_FromString(card.addresses[i]);
        is_fine = text && !PyList_Append(addresses, text);
        Py_XDECREF(text);
    }
    for (uint32_t i = 0; is_fine && i < card.regions_count; i++) {
        struct sw_xfer_region region;
        sw_xfer_card_region(bytes, (size_t)length, i, &region);
        PyObject *one = Py_BuildValue("sKI", region.name, region.bytes, region.rights);
        is_fine = one && !PyList_Append(regions, one);
        Py_XDECREF(one);
    }
    PyObject *said =
        is_fine ? Py_BuildValue("Iy#KOO", card.version, card.instance,
                                (Py_ssize_t)sizeof(card.instance), card.layout, addresses, regions)
                : NULL;
    Py_XDECREF(addresses);
    Py_XDECREF(regions);
    return said;
}

static PyMethodDef functions[] = {
    {"read_card", read_card, METH_O, "What a card says."},
    {"describe", py_describe, METH_O,
     "(type, shape, bytes, is read-only, address) of an object's memory."},
    {"bytes_of", py_bytes_of, METH_O, "A copy of an object's memory."},
    {"fill", py_fill, METH_VARARGS, "fill(object, bytes): writes its memory."},
    {"reshard", py_reshard, METH_VARARGS, "Used by sidewire.plan."},
    {"plan_memory", py_plan_memory, METH_VARARGS, "Used by sidewire.plan."},
    {"close_all", py_agents_close, METH_NOARGS,
     "Closes all agents and pipes: the interpreter ends."},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sidewire._engine",
    .m_size = -1,
    .m_methods = functions,
};

static bool add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type && !PyModule_AddObjectRef(module, name, (PyObject *)*type);
}

PyMODINIT_FUNC PyInit__engine(void);

PyMODINIT_FUNC PyInit__engine(void)
{
    PyObject *module = PyModule_Create(&definition);
    py_watch_forks();
    if (module && make_exceptions(module) && py_notice_make_type(module) &&
        add_type(module, "Agent", &py_agent_spec, &py_agent_type) &&
        add_type(module, "Memory", &py_memory_spec, &py_memory_type) &&
        add_type(module, "Lease", &py_lease_spec, &py_lease_type) &&
        add_type(module, "Peer", &py_peer_spec, &py_peer_type) &&
        add_type(module, "Blocks", &py_blocks_spec, &py_blocks_type) &&
        add_type(module, "Transfer", &py_transfer_spec, &py_transfer_type) &&
        add_type(module, "Pipe", &py_pipe_spec, &py_pipe_type) &&
        add_type(module, "PipeListener", &py_pipe_listener_spec, &py_pipe_listener_type))
        return module;
    Py_XDECREF(module);
    return NULL;
}
