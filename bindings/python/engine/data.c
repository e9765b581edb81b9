/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the memory of an object is, without a copy: by the buffer protocol, __array_interface__
 * (version 3) or DLPack, whichever it has. It has to be in one piece.
 */
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* ---- the buffer protocol ---- */

static void set_type(struct py_data *data, char order, char kind, Py_ssize_t size)
{
    PyOS_snprintf(data->type, sizeof(data->type), "%c%c%d", size == 1 ? '|' : order, kind,
                  (int)size);
}

/* A format of the module struct as numpy writes it. */
static void name_format(struct py_data *data, const char *format, Py_ssize_t size)
{
    static const struct {
        const char *letters;
        char kind;
    } kinds[] = {{"bhilqn", 'i'}, {"BHILQN", 'u'}, {"efd", 'f'}, {"?", 'b'}};
    char order = '<', kind = 'V';
    format = format ? format : "B";
    if (*format && strchr("@=<>!|", *format)) {
        if (*format == '>' || *format == '!')
            order = '>';
        format++;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (*format && !format[1] && strchr(kinds[i].letters, *format))
            kind = kinds[i].kind;
    if (*format == 'Z' && format[1] && !format[2] && strchr("fd", format[1]))
        kind = 'c';
    set_type(data, order, kind, size < 10000 ? size : 0);
}

static bool set_shape(struct py_data *data, int dimensions, const int64_t *shape)
{
    if (dimensions < 0 || dimensions > PY_DIMENSIONS_MAX) {
        PyErr_SetString(PyExc_ValueError, "an array has up to 32 dimensions");
        return false;
    }
    data->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++)
        data->shape[i] = shape[i];
    return true;
}

static bool take_buffer(PyObject *object, struct py_data *data)
{
    if (PyObject_GetBuffer(object, &data->view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT))
        return false;
    int64_t shape[PY_DIMENSIONS_MAX] = {data->view.len};
    data->has_view = true;
    for (int i = 0; data->view.shape && i < data->view.ndim && i < PY_DIMENSIONS_MAX; i++)
        shape[i] = data->view.shape[i];
    data->data = data->view.buf;
    data->bytes = (uint64_t)data->view.len;
    data->is_readonly = data->view.readonly;
    name_format(data, data->view.format, data->view.itemsize);
    return set_shape(data, data->view.ndim, shape);
}

/* ---- __array_interface__ ---- */

static bool take_extent(struct py_data *data, PyObject *shape, PyObject *type)
{
    char *text = NULL;
    PyObject *bytes = PyUnicode_Check(type) ? PyUnicode_AsASCIIString(type) : NULL;
    if (!bytes || !PyTuple_Check(shape) || PyTuple_Size(shape) > PY_DIMENSIONS_MAX ||
        !(text = PyBytes_AsString(bytes)) || strlen(text) < 3 || strlen(text) > 7) {
        Py_XDECREF(bytes);
        PyErr_SetString(PyExc_ValueError, "its __array_interface__ is none");
        return false;
    }
    strcpy(data->type, text);
    Py_DECREF(bytes);
    const long size = strtol(data->type + 2, NULL, 10);
    data->bytes = size > 0 ? (uint64_t)size : 0;
    data->dimensions = (int)PyTuple_Size(shape);
    for (int i = 0; i < data->dimensions; i++) {
        data->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (data->shape[i] < 0 ||
            __builtin_mul_overflow(data->bytes, (uint64_t)data->shape[i], &data->bytes)) {
            PyErr_SetString(PyExc_ValueError, "its __array_interface__ has no such shape");
            return false;
        }
    }
    return true;
}

/* Strides are None where it is in one piece and in C's order. */
static bool take_interface(PyObject *object, PyObject *interface, struct py_data *data)
{
    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_ValueError, "its __array_interface__ is none");
        return false;
    }
    PyObject *where = PyDict_GetItemString(interface, "data");
    PyObject *shape = PyDict_GetItemString(interface, "shape");
    PyObject *type = PyDict_GetItemString(interface, "typestr");
    PyObject *strides = PyDict_GetItemString(interface, "strides");
    if (!where || !shape || !type || !PyTuple_Check(where) || PyTuple_Size(where) != 2 ||
        (strides && strides != Py_None)) {
        PyErr_SetString(PyExc_ValueError,
                        "its __array_interface__ has no address, or it is not in one piece");
        return false;
    }
    /* Their methods may run anything, also what takes them out of the dictionary. */
    Py_INCREF(where);
    Py_INCREF(shape);
    Py_INCREF(type);
    data->data = PyLong_AsVoidPtr(PyTuple_GetItem(where, 0));
    data->is_readonly = PyObject_IsTrue(PyTuple_GetItem(where, 1)) != 0;
    data->owner = Py_NewRef(object);
    const bool is_fine = !PyErr_Occurred() && take_extent(data, shape, type);
    Py_DECREF(where);
    Py_DECREF(shape);
    Py_DECREF(type);
    return is_fine;
}

/* ---- DLPack: the structures of its version 0 ---- */

struct dl_tensor {
    void *data;
    int32_t device_type, device;
    int32_t dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL: in one piece */
    uint64_t byte_offset;
};

struct py_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct py_managed *self);
};

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };

static bool is_in_one_piece(const struct dl_tensor *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->dimensions; tensor->strides && i-- > 0; expected *= tensor->shape[i])
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected)
            return false;
    return true;
}

static bool read_tensor(const struct dl_tensor *tensor, struct py_data *data)
{
    static const char kinds[] = {'i', 'u', 'f', 'V', 'V', 'c', 'b'};
    if (!set_shape(data, tensor->dimensions, tensor->shape))
        return false;
    data->bytes = (uint64_t)tensor->bits * tensor->lanes / 8;
    for (int i = 0; i < tensor->dimensions; i++)
        if (tensor->shape[i] < 0 ||
            __builtin_mul_overflow(data->bytes, (uint64_t)tensor->shape[i], &data->bytes))
            data->bytes = 0;
    data->data = (char *)tensor->data + tensor->byte_offset;
    data->is_cuda = tensor->device_type == DL_CUDA;
    const bool is_scalar = tensor->lanes == 1 && tensor->bits % 8 == 0;
    set_type(data, '<', is_scalar && tensor->code < sizeof(kinds) ? kinds[tensor->code] : 'V',
             tensor->bits / 8);
    if (tensor->device_type == DL_CPU || data->is_cuda || tensor->device_type == DL_CUDA_HOST)
        return true;
    PyErr_SetString(PyExc_ValueError, "this tensor is on a device that cannot be reached");
    return false;
}

static bool take_dlpack(PyObject *capsule, struct py_data *data)
{
    struct py_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (!managed)
        return false;
    if (!is_in_one_piece(&managed->tensor)) {
        PyErr_SetString(PyExc_ValueError, "this tensor is not in one piece");
        return false;
    }
    if (!read_tensor(&managed->tensor, data) || PyCapsule_SetName(capsule, "used_dltensor"))
        return false;
    data->managed = managed; /* ours now, says the new name */
    return true;
}

/* ---- any of them ---- */

static bool data_take_any(PyObject *object, struct py_data *data)
{
    if (PyObject_CheckBuffer(object))
        return take_buffer(object, data);
    PyObject *found = PyObject_GetAttrString(object, "__array_interface__");
    if (found) {
        const bool is_fine = take_interface(object, found, data);
        Py_DECREF(found);
        return is_fine;
    }
    PyErr_Clear();
    if (!PyObject_HasAttrString(object, "__dlpack__")) {
        PyErr_SetString(PyExc_TypeError,
                        "memory is an object with the buffer protocol, __array_interface__ or "
                        "__dlpack__");
        return false;
    }
    PyObject *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
    const bool is_fine = capsule && take_dlpack(capsule, data);
    Py_XDECREF(capsule);
    return is_fine;
}

bool py_data_take(PyObject *object, struct py_data *data)
{
    memset(data, 0, sizeof(*data));
    if (data_take_any(object, data))
        return true;
    py_data_drop(data);
    return false;
}

void py_data_drop(struct py_data *data)
{
    if (data->has_view)
        PyBuffer_Release(&data->view);
    Py_XDECREF(data->owner);
    if (data->managed && data->managed->deleter)
        data->managed->deleter(data->managed);
    memset(data, 0, sizeof(*data));
}

PyObject *py_describe(PyObject *module, PyObject *object)
{
    (void)module;
    struct py_data data;
    if (!py_data_take(object, &data))
        return NULL;
    PyObject *shape = PyTuple_New(data.dimensions);
    for (int i = 0; shape && i < data.dimensions; i++) {
        PyObject *size = PyLong_FromLongLong(data.shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size))
            Py_CLEAR(shape);
    }
    PyObject *said =
        shape ? Py_BuildValue("sOKNN", data.type, shape, data.bytes,
                              PyBool_FromLong(data.is_readonly), PyLong_FromVoidPtr(data.data))
              : NULL;
    Py_XDECREF(shape);
    py_data_drop(&data);
    return said;
}

/* Small ones: what goes with a message is copied anyway. */
PyObject *py_bytes_of(PyObject *module, PyObject *object)
{
    (void)module;
    struct py_data data;
    if (!py_data_take(object, &data))
        return NULL;
    PyObject *bytes = NULL;
    if (data.is_cuda)
        PyErr_SetString(PyExc_ValueError, "this memory is a GPU's");
    else
        bytes = PyBytes_FromStringAndSize(data.data, (Py_ssize_t)data.bytes);
    py_data_drop(&data);
    return bytes;
}

PyObject *py_fill(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    const char *bytes;
    Py_ssize_t length;
    struct py_data data;
    if (!PyArg_ParseTuple(args, "Oy#:fill", &object, &bytes, &length) ||
        !py_data_take(object, &data))
        return NULL;
    const bool is_fine = !data.is_cuda && !data.is_readonly && data.bytes == (uint64_t)length;
    if (is_fine && length)
        memcpy(data.data, bytes, (size_t)length);
    py_data_drop(&data);
    if (is_fine)
        return Py_NewRef(Py_None);
    PyErr_SetString(PyExc_ValueError, "it has another length, or cannot be written");
    return NULL;
}
