"""The family of errors of jaxdyn, and the text of their messages: one line that names the mistake and the remedy.

    Error                      every error that jaxdyn raises on purpose, except those of Python for wrong types and wrong values
      UnknownName              a name that does not exist, wherever it is given; also a KeyError and a ValueError
      MechanismError           a mechanism that cannot be built; also a ValueError
      UnsuccessfulError        a computation that did not succeed; also a RuntimeError
      io.ConfigError, RunError a file or a run directory that cannot be used; the message begins with the file and the place in it

A reader of files raises a ConfigError for an unknown name in a file, since one must know the place in the file.
This module imports only the standard library, so that the command line can report an unknown word without importing JAX.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

_LONGEST_MESSAGE = 4000
_LONGEST_COMPARED = 200  # the time to find the closest name increases with the square of the lengths
_MOST_NAMES = 20  # in one message


class Error(Exception):
    """Base of all errors of jaxdyn. Each class is also a built-in error, such as ValueError or RuntimeError.

    Example:
        ```python
        import jaxdyn

        try:
            jaxdyn.library.system("pandaa")
        except jaxdyn.Error as error:
            print(error)  # there is no mechanism 'pandaa' (did you mean 'panda'?); use one of ...
        ```
    """


class UnknownName(Error, KeyError, ValueError):
    """A name that does not exist: of a body, frame, joint, parameter, output, mechanism, method, or another choice.

    It is a KeyError, because a thing is looked up by its name, and a ValueError, because an argument has a wrong value.

    Attributes:
        noun: Kind of thing that the name should denote, such as "body or frame".
        name: The given name.
        known: The existing names.
        where: Place of the name, with which the message begins; "" if the call makes it clear.
    """

    def __init__(self, noun: str, name: Any, known: Iterable[Any], where: str = ""):
        self.noun, self.name, self.known, self.where = noun, name, tuple(map(str, known)), where
        super().__init__(noun, name, self.known, where)  # the arguments from which pickle makes a copy

    def __str__(self) -> str:
        close = _closest(self.name, self.known)
        hint = "" if close is None else f" (did you mean {close!r}?)"
        return one_line(
            f"{self.where and f'{self.where}: '}there is no {self.noun} {self.name!r}{hint}; {_all(self.known)}"
        )


def check_name(noun: str, name: Any, known: Iterable[Any], *, where: str = "") -> None:
    """Raise an error unless a name exists. The arguments are those of `UnknownName`.

    Raises:
        UnknownName: The name is not one of those that are known.
    """
    known = tuple(known)
    if name not in known:
        raise UnknownName(noun, name, known, where)


def suggestion(name: Any, known: Iterable[str], *, elsewhere: Mapping[str, str] | None = None) -> str:
    """Text "did you mean ...?" if a known name is similar, otherwise a list of the known names, shortened if it is long.

    Args:
        name: The given name.
        known: The existing names.
        elsewhere: Names that exist elsewhere, with their full names.
    """
    known, elsewhere = tuple(known), elsewhere or {}
    close = _closest(name, (*known, *elsewhere))
    return f"did you mean {elsewhere.get(close, close)!r}?" if close is not None else _all(known)


def one_line(message: str) -> str:
    """The message without unprintable characters; the middle part of a long message is omitted.

    A message may quote a file of unknown origin, whose line breaks and control characters could manipulate a terminal.
    """
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def _closest(name: Any, known: tuple[str, ...]) -> str | None:
    """The known name that is most similar to a given one; None if no name is similar, or an index is given instead of a name."""
    comparable = [other for other in known if isinstance(name, str) and len(other) <= _LONGEST_COMPARED]
    return next(iter(difflib.get_close_matches(str(name)[:_LONGEST_COMPARED], comparable, n=1)), None)


def _all(known: tuple[str, ...]) -> str:
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"use one of {', '.join(known[:_MOST_NAMES])}{more}" if known else "there are none"
