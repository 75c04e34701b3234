"""Asking for memory before it is needed: what is read later finds it in the processor's cache."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types as nbt
from numba.extending import intrinsic

from gangline.envs.core.types import CACHE_LINE

_READ, _KEEP, _DATA = 0, 3, 1  # what llvm.prefetch is told


def _ask(builder: Any, address: Any) -> None:
    """Emit one request for the cache line of an address."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    request = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    builder.call(request, [address, number(_READ), number(_KEEP), number(_DATA)])


def _bytes_of(builder: Any, record: Any) -> Any:
    """Address of a record's first byte."""
    return builder.bitcast(record, ir.IntType(8).as_pointer())


@intrinsic
def prefetch(typing_context: Any, record: Any) -> Any:
    """Begin to load a record, first byte to last; nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = _bytes_of(builder, arguments[0])
        size = signature.args[0].size
        for offset in [*range(0, size - 1, CACHE_LINE), size - 1]:
            _ask(builder, builder.gep(first, [ir.IntType(64)(offset)]))
        return context.get_dummy_value()

    return nbt.void(record), generate


@intrinsic
def prefetch_line(typing_context: Any, record: Any, offset: Any) -> Any:
    """Begin to load the cache line that is `offset` bytes from the beginning of a record."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _ask(builder, builder.gep(_bytes_of(builder, arguments[0]), [arguments[1]]))
        return context.get_dummy_value()

    return nbt.void(record, nbt.int64), generate
