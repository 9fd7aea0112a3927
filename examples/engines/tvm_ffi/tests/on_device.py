# SPDX-License-Identifier: Apache-2.0
"""plimsoll_ffi for NumPy arrays, whose contents are in device memory during each call: with it, tests that
were written for the CPU test the library for CUDA. Arrays pass by DLPack with their strides."""

import ctypes
import functools
import inspect
import sys

import numpy as np

import plimsoll_ffi

_cuda = ctypes.CDLL("libcudart.so.13")
_pythonapi = ctypes.pythonapi
_exported = {}  # what a consumer of a capsule reads, until it calls the deleter


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _deleter)]


@_deleter
def _delete(managed):
    del _exported[ctypes.addressof(managed.contents)]


def _checked(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def _copy(to, source, size):
    _checked(_cuda.cudaMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), 4))  # by address


class DeviceArray:
    """An array in device memory that owns its memory, or a view of memory that `owner` keeps."""

    def __init__(self, dtype, shape, strides, address, offset=0, owner=None):
        self.dtype, self.shape, self.strides = np.dtype(dtype), tuple(shape), tuple(strides)
        self.address, self.offset, self.owner = address, offset, owner

    def __del__(self):
        if self.owner is None:
            _cuda.cudaFree(ctypes.c_void_p(self.address))

    @classmethod
    def of(cls, array):
        """Copies all the memory that the array spans, so that its strides stay."""
        first, last = np.byte_bounds(array) if hasattr(np, "byte_bounds") else np.lib.array_utils.byte_bounds(array)
        memory = ctypes.c_void_p()
        _checked(_cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(max(last - first, 1))))
        _copy(memory.value, first, last - first)
        result = cls(array.dtype, array.shape, array.strides, memory.value, array.ctypes.data - first)
        result.first, result.span = first, last - first
        return result

    def copy_to(self, array):
        """Copies the contents to the array that they came from."""
        _copy(self.first, self.address, self.span)

    def numpy(self):
        """Copies the contents to the host."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        span = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)) + self.dtype.itemsize
        memory = np.empty(span, np.uint8)
        _copy(memory.ctypes.data, self.address + self.offset, span)
        return np.ndarray(self.shape, self.dtype, memory, strides=self.strides).copy()

    def astype(self, dtype):
        return DeviceArray.of(self.numpy().astype(dtype))

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        ndim = len(self.shape)
        shape = (ctypes.c_int64 * ndim)(*self.shape)
        strides = (ctypes.c_int64 * ndim)(*(s // self.dtype.itemsize for s in self.strides))
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        tensor = _Tensor(self.address, (2, 0), ndim, code, 8 * self.dtype.itemsize, 1, shape, strides, self.offset)
        managed = _Managed(tensor, None, _delete)
        _exported[ctypes.addressof(managed)] = managed, shape, strides, self
        _pythonapi.PyCapsule_New.restype = ctypes.py_object
        return _pythonapi.PyCapsule_New(ctypes.c_void_p(ctypes.addressof(managed)), b"dltensor", None)


def from_dlpack(tensor):
    """Views the result of a call; plimsoll_ffi calls it."""
    if tensor.__dlpack_device__()[0] != 2:
        return np.from_dlpack(tensor)
    dtype = np.dtype(str(tensor.dtype))
    strides = [s * dtype.itemsize for s in tensor.strides]
    return DeviceArray(dtype, tensor.shape, strides, tensor.data_ptr(), owner=tensor)


def _on_device(function):
    """Copies arrays among the arguments to the device, what was written to them back, and results too."""

    @functools.wraps(function)
    def call(*arguments, **options):
        sent = []

        def send(value):
            if not isinstance(value, np.ndarray):
                return value
            sent.append((value, DeviceArray.of(value)))
            return sent[-1][1]

        arguments = [send(one) for one in arguments]
        options = {name: send(one) for name, one in options.items()}
        result = function(*arguments, **options)
        for array, copy in sent:
            if array.flags.writeable:
                copy.copy_to(array)
        return _to_host(result)

    return call


class _Object:
    def __init__(self, kept):
        self._kept = kept

    def __getattr__(self, name):
        value = getattr(self._kept, name)
        return _on_device(value) if callable(value) else _to_host(value)


def _to_host(result):
    if isinstance(result, tuple):
        return tuple(map(_to_host, result))
    if isinstance(result, DeviceArray):
        return result.numpy()
    return _Object(result) if isinstance(result, plimsoll_ffi._Kept) else result


for _name, _function in inspect.getmembers(plimsoll_ffi, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(sys.modules[__name__], _name, _function if _name == "set_threads" else _on_device(_function))
