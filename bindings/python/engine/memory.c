/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of other objects or of files. It keeps the object, and so the memory, until released. */
#include <unistd.h>

#include "module.h"

static struct py_memory *memory_of(PyObject *self)
{
    return (struct py_memory *)self;
}

static struct py_memory *new_memory(struct py_agent *agent)
{
    struct py_memory *memory = py_new(py_memory_type);
    if (memory)
        memory->agent = (struct py_agent *)Py_NewRef((PyObject *)agent);
    return memory;
}

PyObject *py_memory_new(struct py_agent *agent, PyObject *object)
{
    struct py_memory *memory = new_memory(agent);
    struct sw_xfer_error error;
    struct py_stay stay;
    if (!memory || !py_data_take(object, &memory->data) || !py_enter(&stay, agent)) {
        Py_XDECREF((PyObject *)memory);
        return NULL;
    }
    struct py_data *data = &memory->data;
    const enum sw_xfer_status status =
        data->is_cuda
            ? sw_xfer_memory_cuda(agent->handle, (uintptr_t)data->data, data->bytes, &error,
                                  &memory->handle)
            : sw_xfer_memory_host(agent->handle, data->data, data->bytes, &error, &memory->handle);
    py_leave(&stay);
    if (!status)
        return (PyObject *)memory;
    Py_DECREF((PyObject *)memory);
    return py_raise(status, error.text);
}

PyObject *py_memory_file(struct py_agent *agent, PyObject *args, PyObject *words)
{
    static char *names[] = {"file", "offset", "bytes", "writable", NULL};
    PyObject *file;
    unsigned long long offset = 0, bytes = 0;
    int is_writable = 0;
    struct sw_xfer_error error;
    struct py_stay stay;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O|KKp:file", names, &file, &offset, &bytes,
                                     &is_writable))
        return NULL;
    const int fd = PyObject_AsFileDescriptor(file);
    struct py_memory *memory = fd < 0 ? NULL : new_memory(agent);
    if (!memory || !py_enter(&stay, agent)) {
        Py_XDECREF((PyObject *)memory);
        return NULL;
    }
    const enum sw_xfer_status status =
        sw_xfer_memory_file(agent->handle, fd, offset, bytes, is_writable, &error, &memory->handle);
    if (!status) {
        memory->data.data = sw_xfer_memory_data(memory->handle);
        memory->data.bytes = sw_xfer_memory_bytes(memory->handle);
    }
    py_leave(&stay);
    memory->is_file = true;
    memory->data.is_readonly = !is_writable;
    if (!status)
        return (PyObject *)memory;
    Py_DECREF((PyObject *)memory);
    return py_raise(status, error.text);
}

PyObject *py_memory_dmabuf(struct py_agent *agent, PyObject *args, PyObject *words)
{
    static char *names[] = {"file", "bytes", "offset", NULL};
    PyObject *file;
    unsigned long long offset = 0, bytes = 0;
    struct sw_xfer_error error;
    struct py_stay stay;
    if (!PyArg_ParseTupleAndKeywords(args, words, "OK|K:dmabuf", names, &file, &bytes, &offset))
        return NULL;
    const int fd = PyObject_AsFileDescriptor(file);
    struct py_memory *memory = fd < 0 ? NULL : new_memory(agent);
    if (!memory || !py_enter(&stay, agent)) {
        Py_XDECREF((PyObject *)memory);
        return NULL;
    }
    const enum sw_xfer_status status =
        sw_xfer_memory_dmabuf(agent->handle, fd, offset, bytes, &error, &memory->handle);
    py_leave(&stay);
    memory->is_dmabuf = true;
    memory->data.bytes = bytes; /* without an address: the processor does not see it */
    if (!status)
        return (PyObject *)memory;
    Py_DECREF((PyObject *)memory);
    return py_raise(status, error.text);
}

static PyObject *memory_release(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_memory *memory = memory_of(self);
    struct py_stay stay;
    enum sw_xfer_status status = SW_XFER_OK;
    if (memory->exports) {
        PyErr_SetString(PyExc_BufferError, "views of this memory are there still");
        return NULL;
    }
    memory->releases++; /* entering lets go of the interpreter's lock */
    if (memory->handle && py_enter_quietly(&stay, memory->agent)) {
        if (memory->handle)
            status = sw_xfer_memory_release(memory->handle);
        if (!status)
            memory->handle = NULL;
        py_leave(&stay);
    }
    memory->releases--;
    if (status)
        return py_raise(status, "leases or blocks of this memory are there still");
    memory->handle = NULL;
    py_data_drop(&memory->data);
    Py_RETURN_NONE;
}

static void python_drop_memory(PyObject *self)
{
    struct py_memory *memory = memory_of(self);
    struct py_stay stay;
    if (memory->handle && py_enter_quietly(&stay, memory->agent)) {
        sw_xfer_memory_release(memory->handle);
        py_leave(&stay);
    }
    py_data_drop(&memory->data);
    Py_XDECREF((PyObject *)memory->agent);
    py_free(self);
}

static PyObject *memory_lease(PyObject *self, PyObject *args, PyObject *words)
{
    return py_lease_new(memory_of(self), args, words);
}

static PyObject *memory_blocks(PyObject *self, PyObject *args, PyObject *words)
{
    return py_blocks_new(memory_of(self), NULL, args, words);
}

/* A mapped file has no view: its mapping goes with the agent, and none may be left then. */
static int view_memory(PyObject *self, Py_buffer *view, int flags)
{
    struct py_memory *memory = memory_of(self);
    if (!memory->handle || memory->releases || !memory->agent->handle || !memory->data.data ||
        memory->data.is_cuda || memory->is_file) {
        PyErr_SetString(PyExc_BufferError, "this memory is released, or not seen by Python");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, memory->data.data, (Py_ssize_t)memory->data.bytes,
                          memory->data.is_readonly, flags))
        return -1;
    memory->exports++;
    return 0;
}

static void end_view(PyObject *self, Py_buffer *view)
{
    (void)view;
    memory_of(self)->exports--;
}

static Py_ssize_t count_bytes(PyObject *self)
{
    return (Py_ssize_t)memory_of(self)->data.bytes;
}

static PyObject *memory_get_address(PyObject *self, void *none)
{
    (void)none;
    return PyLong_FromVoidPtr(memory_of(self)->data.data);
}

static PyObject *get_readonly(PyObject *self, void *none)
{
    (void)none;
    return PyBool_FromLong(memory_of(self)->data.is_readonly);
}

static PyObject *get_kind(PyObject *self, void *none)
{
    (void)none;
    const struct py_memory *memory = memory_of(self);
    return PyUnicode_FromString(memory->is_file        ? "file"
                                : memory->is_dmabuf    ? "dmabuf"
                                : memory->data.is_cuda ? "cuda"
                                                       : "host");
}

static PyGetSetDef members[] = {
    {"address", memory_get_address, NULL, "Address of its first byte.", NULL},
    {"readonly", get_readonly, NULL, "Whether it must not be written.", NULL},
    {"kind", get_kind, NULL, "host, file, dmabuf or cuda.", NULL},
    {0},
};

#define WORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"lease", WORDS(memory_lease), METH_VARARGS | METH_KEYWORDS,
     "lease(name='', read=True, write=False, offset=0, bytes=0, visitor=0, seconds=None): lets "
     "peers reach it."},
    {"blocks", WORDS(memory_blocks), METH_VARARGS | METH_KEYWORDS,
     "blocks(index=None, bytes=0, stride=0, offset=0, count=0): a list of its blocks."},
    {"release", memory_release, METH_NOARGS, "Gives it back, with what it was made of."},
    {0},
};

static PyObject *show_memory(PyObject *self)
{
    static const char *const names[] = {"kind", "readonly", NULL};
    return py_show(self, "Memory", "bytes", names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_memory},
    {Py_tp_dealloc, python_drop_memory},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_bf_getbuffer, view_memory},
    {Py_bf_releasebuffer, end_view},
    {Py_sq_length, count_bytes},
    {Py_tp_doc, "Memory that transfers may use: Agent.memory(), Agent.file(), Agent.dmabuf()."},
    {0},
};

PyType_Spec py_memory_spec = {.name = "sidewire.Memory",
                              .basicsize = sizeof(struct py_memory),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              .slots = slots};
