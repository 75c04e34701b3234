"""Asking for memory before it is needed: what is read later finds it in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types as nbt
from numba.extending import intrinsic

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import CACHE_LINE

_READ, _KEEP, _DATA = 0, 3, 1  # what llvm.prefetch is told


def _emitted(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`, which for a type checker is called with the typing context."""
    return intrinsic(function)


def _ask(builder: Any, address: Any) -> None:
    """Emit one request for the cache line of an address."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    request = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    builder.call(request, [address, number(_READ), number(_KEEP), number(_DATA)])


def _ask_at(builder: Any, beginning: Any, offset: Any) -> None:
    """Emit one for the line of a byte."""
    _ask(builder, builder.gep(builder.bitcast(beginning, ir.IntType(8).as_pointer()), [offset]))


@_emitted
def prefetch(typing_context: Any, record: Any) -> Any:
    """Begin to load a record, first byte to last; nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size = signature.args[0].size
        offsets = [*range(0, size, CACHE_LINE)]
        if size % CACHE_LINE:  # it may begin within a line, and end in one more
            offsets.append(size - 1)
        for offset in offsets:
            _ask_at(builder, arguments[0], ir.IntType(64)(offset))
        return context.get_dummy_value()

    return nbt.void(record), generate


@_emitted
def prefetch_line(typing_context: Any, record: Any, offset: Any) -> Any:
    """Begin to load the cache line that is `offset` bytes from the beginning of a record."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _ask_at(builder, arguments[0], arguments[1])
        return context.get_dummy_value()

    return nbt.void(record, nbt.int64), generate


@_emitted
def _prefetch_byte(typing_context: Any, array: Any, offset: Any) -> Any:
    """Begin to load the cache line that is `offset` bytes from the beginning of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        _ask_at(builder, data, arguments[1])
        return context.get_dummy_value()

    return nbt.void(array, nbt.int64), generate


@helper
def prefetch_element(array: Any, i: int) -> None:
    """Begin to load the cache line in which an element begins."""
    _prefetch_byte(array, i * array.itemsize)


@helper
def prefetch_first(array: Any, count: int) -> None:
    """Begin to load the first elements of an array."""
    for offset in range(0, count * array.itemsize, CACHE_LINE):
        _prefetch_byte(array, offset)
