"""Errors of mechanisms, and checks of arguments whose messages name the remedy."""

import dataclasses
import inspect
import operator
import types
from collections.abc import Iterable
from typing import Any

from jaxdyn.errors import Error, one_line


class MechanismError(Error, ValueError):
    """Error of a mechanism that cannot be built; the message names the body and the remedy."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class UnphysicalInertia(MechanismError):
    """Error for an inertia that is not physically valid."""


class ImplausibleInertia(UserWarning):
    """Warning of an inertia that is possible, but so large for its mass that its unit is probably wrong."""


class MasslessBody(MechanismError):
    """Error for a joint that moves no mass."""


def described(thing: Any) -> str:
    """Description of a given object, for messages: "the class Huber", or "a list"."""
    name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    return f"the class {name}" if isinstance(thing, type) else f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def constructed(kind: type) -> str:
    """Text that makes an instance of a class: "Huber()", or "Deviation(...)" if the class needs arguments."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    needed = any(field.default is field.default_factory is dataclasses.MISSING for field in fields)
    return f"{kind.__name__}({'...' if needed else ''})"


def check_instance(name: str, value: Any, kind: type | types.UnionType, remedy: str) -> None:
    """Check that an argument is an instance of a class, or of one of several classes.

    Args:
        name: Name of the argument, for messages, such as "the loss".
        value: The argument to check.
        kind: Class of which it must be an instance, or a union of classes.
        remedy: Text that shows how to make one, such as "Huber()".

    Raises:
        TypeError: The argument is a class, or an instance of another class.
    """
    if not isinstance(value, kind):
        if isinstance(value, type) and issubclass(value, kind):
            remedy = f"an instance, {constructed(value)}"
        raise TypeError(f"{name} is {described(value)}; give {remedy}")


def checked_list(name: str, entries: Any, kind: type | types.UnionType, remedy: str) -> tuple[Any, ...]:
    """The entries of a list, or of an iterator, as a tuple.

    Args:
        name: Name of the list, for messages, such as "recordings".
        entries: The argument to check.
        kind: Class of which all entries must be instances, or a union of classes.
        remedy: Text that shows an entry, such as "WindowsCheck()".

    Raises:
        TypeError: The argument is not a list, or an entry is an instance of another class.
    """
    if isinstance(entries, str | kind) or not isinstance(entries, Iterable):
        shown = repr(entries) if isinstance(entries, str) else described(entries)
        raise TypeError(f"{name}: {shown} is not a list; give a list, [{remedy}]")
    entries = tuple(entries)  # an iterator can be read only once
    for entry in entries:
        check_instance(f"one of the {name}", entry, kind, remedy)
    return entries


def check_count(name: str, value: Any) -> None:
    """Check that an argument is an integer that is not negative, of any type, or infinite.

    Args:
        name: Name of the argument, for messages.
        value: The argument to check.

    Raises:
        TypeError: The argument cannot be compared with 0.
        ValueError: The value is negative, or not whole.
    """
    try:
        whole = bool(value >= 0 and (value == float("inf") or value % 1 == 0))
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; give an integer") from None
    if not whole:
        raise ValueError(f"{name} is {value!r}; give an integer that is not negative")


def check_function(name: str, function: Any, names: str) -> None:
    """Check that an argument is a function of the user with certain arguments.

    Args:
        name: Name of the function, for messages, such as "policy 'swing'".
        function: The argument to check.
        names: Names of the arguments, such as "t, state, key".

    Raises:
        TypeError: The argument is a class, is not a function, or does not take these arguments.
    """
    if isinstance(function, type):
        raise TypeError(f"{name} is a class; pass an instance")
    if not callable(function):
        raise TypeError(f"{name} is not a function; pass a function of ({names})")
    try:
        inspect.signature(function).bind(*names.split(", "))
    except TypeError:
        raise TypeError(f"{name} does not take the arguments {names}; define it with these") from None
    except ValueError:  # functions that are implemented in C may have no signature
        pass


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """A number of steps, samples or the like as an integer.

    Args:
        name: Name of the argument, for messages, such as "max_steps".
        value: The argument: an integer of Python, NumPy or JAX.
        least: Smallest allowed value.

    Raises:
        TypeError: The value is not an integer.
        ValueError: The value is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; give an integer") from None
    if number < least:
        raise ValueError(f"{name} is {number}; give {least} or more")
    return number
