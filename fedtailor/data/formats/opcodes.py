"""Read dictionaries of plain values and uint8 arrays from pickle files without unpickling.

Unpickling can run any code. This reader interprets only the opcodes of the CIFAR Python
archives and refuses all others. It never imports a name from the file.
"""

import pickletools
from typing import Any

import numpy as np

RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
NAMES = RECONSTRUCT | {"numpy ndarray", "numpy dtype"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "INT"}
TEXTS = {"SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINUNICODE", "SHORT_BINUNICODE"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS = {"BINPUT", "LONG_BINPUT", "PUT"}
GETS = {"BINGET", "LONG_BINGET", "GET"}
MARK = object()


class Name(str):
    """One of the few names the file may mention."""


class Hollow:
    """An array or dtype whose content follows later in the file."""

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args = name, args
        self.array: np.ndarray | None = None


def read_plain_pickle(content: bytes) -> Any:
    """The value in a pickle file that holds only dicts, lists, tuples, bytes, numbers and uint8 arrays.

    Text and byte strings all come out as bytes, as they do in files written by Python 2. Any damage is a ValueError.
    """
    try:
        return _read(content)
    except ValueError:
        raise
    except Exception as error:  # a wrong opcode may act on a value of any kind
        raise ValueError(f"its parts do not fit together ({type(error).__name__})") from error


def _read(content: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name == "STOP":
            return _filled(stack.pop())
        if name in PUTS:
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in GETS:
            stack.append(memo[int(argument)])
        elif name not in {"PROTO", "FRAME"}:
            _step(name, argument, stack)
    raise ValueError("it ends too early")


def _step(name: str, argument: Any, stack: list[Any]) -> None:
    if name in NUMBERS:
        stack.append(argument)
    elif name in TEXTS:
        stack.append(argument.encode("latin-1", "replace") if isinstance(argument, str) else argument)
    elif name in CONSTANTS:
        stack.append(CONSTANTS[name])
    elif name == "MARK":
        stack.append(MARK)
    elif name == "EMPTY_DICT":
        stack.append({})
    elif name == "EMPTY_LIST":
        stack.append([])
    elif name in TUPLES:
        size = TUPLES[name]
        stack.append(tuple(stack.pop() for _ in range(size))[::-1])
    elif name == "TUPLE":
        stack.append(tuple(_until_mark(stack)))
    elif name in {"APPENDS", "APPEND"}:
        values = _until_mark(stack) if name == "APPENDS" else [stack.pop()]
        stack[-1].extend(values)
    elif name in {"SETITEMS", "SETITEM"}:
        values = _until_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
        stack[-1].update(zip(values[::2], values[1::2], strict=True))
    elif name == "GLOBAL" and argument in NAMES:
        stack.append(Name(argument))
    elif name == "REDUCE" and isinstance(stack[-2], Name):
        args = stack.pop()
        stack.append(Hollow(stack.pop(), args))
    elif name == "BUILD" and isinstance(stack[-2], Hollow):
        _describe(stack[-2], stack.pop())
        # nothing to push: the described object is already on the stack
    else:
        raise ValueError(f"it contains {name} {argument if name == 'GLOBAL' else ''}".rstrip() + ", which is refused")


def _describe(hollow: Hollow, state: tuple[Any, ...]) -> None:
    """The second half of an array: (version, shape, dtype, is Fortran order, bytes)."""
    if hollow.name not in RECONSTRUCT:
        return
    _, shape, dtype, fortran, content = state
    if not isinstance(dtype, Hollow) or dtype.args[0] not in (b"u1", b"|u1"):
        raise ValueError("it contains an array that is not uint8")
    order: Any = "F" if fortran else "C"
    hollow.array = np.frombuffer(content, np.uint8).reshape(shape, order=order)


def _until_mark(stack: list[Any]) -> list[Any]:
    position = len(stack) - 1 - next(i for i, item in enumerate(reversed(stack)) if item is MARK)
    values = stack[position + 1 :]
    del stack[position:]
    return values


def _filled(value: Any) -> Any:
    """Replace the described arrays in the outermost dictionary by the arrays themselves."""
    if not isinstance(value, dict):
        raise ValueError("it holds no dictionary")
    return {key: item.array if isinstance(item, Hollow) else item for key, item in value.items()}
