"""Readers of trace files, one module per format: `load("philly", path)` calls `philly.load(path)`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

from gangline.envs.core.trace import JobTrace
from gangline.envs.errors import unknown_name


def formats() -> list[str]:
    """Names of the formats: the modules of this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(format: str, path: str | Path, **options: object) -> JobTrace:
    """Read a trace file.

    Args:
        format: name of a module here.
        path: the file; packed if it ends in .gz.
        options: keyword arguments of that module's `load`.

    Raises:
        GanglineError: unknown format or option, or a bad file.
    """
    if format not in formats():
        raise unknown_name("trace format", format, formats())
    function = importlib.import_module(f"{__name__}.{format}").load
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise unknown_name(f"option of the {format} loader", name, known)
    trace: JobTrace = function(path, **options)
    return trace
