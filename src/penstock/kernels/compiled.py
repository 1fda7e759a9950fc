"""Kernels are compiled once per installation: their machine code is kept in files for later processes.

numba's own cache lists a function's files in an index that two processes may both read, extend and replace: an entry
then points at the other process' code for other types, and calling that is what crashes programs that keep numba's
cache on under multiprocessing. Here there is no index. A file is named by a digest of all that its code depends on,
appears by rename only, carries a digest of its content, and says once more what it is for; any number of processes may
write, read and fork at the same time (docs/decisions/0017).
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from penstock.cache_folder import cache_folder, tell_once

_rebuild: Any = CompileResult._rebuild
_dumps: Any = dumps
Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
_DIGEST = hashlib.sha256().digest_size
#: how long `filling` waits for another process: longer than all kernels take to compile
_PATIENCE_SECONDS = 120.0


def compiled(*, nogil: bool = False) -> Callable[[Function], Function]:
    """Decorates a function that numba compiles without bounds checks, once per installation.

    Args:
        nogil: other threads of Python may run during a call.
    """

    def decorate(function: Function) -> Function:
        dispatcher: Any = numba.njit(boundscheck=False, nogil=nogil)(function)
        # plain Python where numba is switched off (NUMBA_DISABLE_JIT)
        if isinstance(getattr(dispatcher, "_cache", None), NullCache):
            dispatcher._cache = KernelCache(f"{function.__module__}.{function.__qualname__}")
        return cast(Function, dispatcher)

    return decorate


class KernelCache(NullCache):
    """What numba asks for machine code before it compiles a function, and hands it to afterwards.

    Args:
        name: the function's full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for types of arguments; None where there is none that can be used."""
        path = self._path(sig, target_context.codegen())
        data = None if path is None else _read(path)
        if data is None:
            return None
        target_context.refresh()
        try:
            kept, parts = pickle.loads(data)
            return _rebuild(target_context, *parts) if kept == (self._name, sig) else None
        except Exception as error:
            _log.debug("%s is compiled again: %s: %s", self._name, type(error).__name__, error)
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keeps a compiled function for later processes, where that is possible."""
        path = self._path(sig, cres.codegen)
        if path is None or cres.lifted or cres.library.has_dynamic_globals:
            return
        content = _dumps(((self._name, sig), cres._reduce()))
        try:
            _write(path, content)
        except OSError as error:
            tell_once(path.parent, error)

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        """The file for types of arguments on this processor; None where nothing is kept."""
        folder = kernel_folder()
        if folder is None:
            return None
        wanted = hashlib.sha256(repr((self._name, sig, codegen.magic_tuple())).encode()).hexdigest()
        return folder / f"{self._name.rpartition('.')[2]}-{wanted[:32]}"


@cache
def kernel_folder() -> Path | None:
    """Where this installation's machine code is kept; None where no folder can be used or trusted.

    The folder's name tells what the code depends on beside the processor: the kernels' source, the versions of what
    compiles them and numba's switches.
    """
    return cache_folder("kernels", _versions())


@contextmanager
def filling() -> Iterator[None]:
    """Holds the folder's lock, so that processes that start together compile once; waits two minutes at the most."""
    folder = kernel_folder()
    try:
        lock = None if folder is None else (folder / "lock").open("a")
    except OSError:
        lock = None
    if lock is None:
        yield
        return
    with lock:
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        yield


def _versions() -> str:
    digest = hashlib.sha256()
    for source in sorted(resources.files("penstock.kernels").iterdir(), key=lambda file: file.name):
        if source.name.endswith(".py"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    switches = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"
    )
    python = f"{platform.python_implementation()} {platform.python_version()}"
    digest.update(repr((switches, python, numba.__version__, llvmlite.__version__, np.__version__)).encode())
    return f"numba-{numba.__version__}-{digest.hexdigest()[:16]}"


def _read(path: Path) -> bytes | None:
    """The content of a file written by `_write`; None where there is none, or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, content = data[:_DIGEST], data[_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        hidden = Path(file.name)
        try:
            file.write(hashlib.sha256(content).digest() + content)
            file.close()
            hidden.replace(path)
        except OSError:
            with suppress(OSError):
                hidden.unlink()
            raise
