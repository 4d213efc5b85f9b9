"""What is wrong with an input, in one line that names the remedy.

Nothing heavy is imported here, so that the command line refuses a wrong word at once.
"""

import difflib
from collections.abc import Iterable
from typing import Any

_LONGEST_MESSAGE = 4000
_LONGEST_COMPARED = 200  # finding the name that is closest takes a time that grows with the square of their lengths


def one_line(message: str) -> str:
    """A message that may quote a stranger's file: its beginning and its end if it is long, and no character that is not printed,
    since line breaks and control characters would drive a terminal.
    """
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


class MechanismError(ValueError):
    """A mechanism that cannot be built; the message names the body and the remedy."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is close to another one, if there is one."""
    comparable = [other for other in known if len(other) <= _LONGEST_COMPARED]
    return next(iter(difflib.get_close_matches(name[:_LONGEST_COMPARED], comparable, n=1)), None)


def unknown(name: Any, known: Iterable[str]) -> str:
    """Says that a name is unknown, with the known one that is close or with all of them."""
    known = list(known)
    close = closest(str(name), known)  # a number is no name, but may be given for one
    hint = f"did you mean {close!r}?" if close is not None else f"the names are {', '.join(known)}"
    return f"{name!r} is unknown; {hint}"


def described(thing: Any) -> str:
    """What was given in the place of something else, for messages: "the class Huber", or "a list"."""
    name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    return f"the class {name}" if isinstance(thing, type) else f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"
