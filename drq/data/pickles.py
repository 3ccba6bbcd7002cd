"""Pickles of dicts with arrays, read without trust: no name in them ever leads to code of Python or numpy."""

from __future__ import annotations

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from drq.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]


class _Inert:
    """Stands for something that a pickle names: it only keeps what it is given."""

    def __init__(self, *given: object) -> None:
        self.given = given
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Bytes(_Inert):
    """Bytes as Python 3 writes them for Python 2: text, and how it is coded."""

    def __new__(cls, text: str, coding: str) -> bytes:  # type: ignore[misc]  # the pickle gets its bytes, not a stand-in
        if coding not in ("latin1", "latin-1"):
            raise ValueError(f"bytes coded in {coding}")
        return text.encode("latin-1")


class _Type(_Inert):
    """The type of an array's values."""

    @property
    def value(self) -> np.dtype[Any]:
        """Whole numbers only."""
        code, order = str(self.given[0]), "|" if self.state is None else str(self.state[1])
        if not re.fullmatch(r"[iu][1248]", code) or order not in ("<", ">", "|", "="):
            raise ValueError(f"an array of type {order}{code}")
        return np.dtype(order + code)


class _Array(_Inert):
    """An array by its parts, as numpy writes it in protocols 0 to 4."""

    def value(self) -> Array:
        """Build it, once every part is known."""
        _, shape, kind, columns_first, data = self.state
        return _built(data, kind, shape, "F" if columns_first else "C")


class _Buffer(_Inert):
    """An array by its parts, as numpy writes it in protocol 5."""

    def value(self) -> Array:
        """Build it, once every part is known."""
        data, kind, shape, order = self.given
        return _built(data, kind, shape, order)


def _built(data: Any, kind: Any, shape: Any, order: Any) -> Array:
    """Exactly as many values as the shape says: a wrong shape would read past their end."""
    values = np.frombuffer(data.encode("latin-1") if isinstance(data, str) else data, kind.value)
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values for an array of shape {shape}")
    return values.reshape(shape, order=order)


STAND_INS: dict[tuple[str, str], type[_Inert]] = {
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Bytes,
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # up to numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.numeric", "_frombuffer"): _Buffer,
    ("numpy._core.numeric", "_frombuffer"): _Buffer,
}


class _ForbiddenError(Exception):
    """The pickle names what no data needs."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) not in STAND_INS:
            raise _ForbiddenError(f"{module}.{name}")
        return STAND_INS[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict in a pickle, of whatever protocol and Python: text, whole numbers, lists and arrays of whole numbers."""
    data = path.read_bytes()
    remedy = "remove it and download it anew"
    try:
        content = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
        return {_text(key): _plain(value) for key, value in content.items()}
    except _ForbiddenError as error:
        rule = "hold nothing but dicts, lists, text, numbers and arrays"
        raise InputError(f"{path} must {rule}, got a pickle that calls for {error}, which could be harmful: {remedy}") from error
    except Exception as error:  # a damaged pickle can raise whatever there is
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path} must be a whole pickle of a dict, got {len(data)} bytes ({reason}): {remedy}") from error


def _text(key: object) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


def _plain(value: Any) -> Any:
    return value.value() if isinstance(value, _Array | _Buffer) else value
