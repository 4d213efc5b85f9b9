"""Display of objects: a `repr` of a few lines, and a table with a picture in notebooks.

A class derives from `Displayed` and defines its title and its rows in `_display`. The values of an object can be unknown: while JAX
traces, in the result of `jax.eval_shape`, and in pytrees whose leaves were replaced. `known`, `array_text` and the other functions
of this module accept unknown values and perform no computation on devices.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from jaxdyn.lazy import LOADERS

_MOST_LINES = 10
_MOST_COLUMNS = 120


class Display(NamedTuple):
    """Text that represents an object.

    Attributes:
        title: One-line description, which also represents the object within the `repr` of another object.
        rows: Additional facts by their labels, the most important ones first.
    """

    title: str
    rows: dict[str, str]


class Displayed:
    """Base of classes whose `repr` is defined by their method `_display`."""

    def _display(self) -> Display:
        raise NotImplementedError

    def __repr__(self) -> str:
        display = self._display_or_none()
        return super().__repr__() if display is None else _text(display)

    def __pdoc__(self, **options: Any) -> Any:
        """The title, for the `repr` of an Equinox module that holds this object."""
        import wadler_lindig

        display = self._display_or_none()
        return None if display is None else wadler_lindig.TextDoc(display.title)

    def _repr_html_(self) -> str:
        """The view in a notebook."""
        return view("html_of")(self)

    def _display_or_none(self) -> Display | None:
        # Pytrees may contain arbitrary leaves, and debuggers display objects before their constructor has finished. A `repr` must
        # not fail in these cases, so the `repr` of Equinox is used.
        try:
            return self._display()
        except Exception:
            return None


def view(name: str) -> Callable:
    """Return a function of `jaxdyn.view`, which depends on all other packages and is imported when something is drawn.

    Raises:
        ModuleNotFoundError: The function requires a package that is not installed; the message names the remedy.
    """
    return getattr(LOADERS["view"](), name)


def known(x: Any) -> np.ndarray | None:
    """Values of an array, or None if they are unknown or not available on this host."""
    if isinstance(x, jax.Array):
        available = not isinstance(x, Tracer) and not x.is_deleted() and x.is_fully_addressable
        return np.asarray(x) if available else None
    return np.asarray(x) if isinstance(x, np.ndarray | np.generic) else None


def array_text(x: Any) -> str:
    """Type and shape of an array, such as "float32[4096,7]"; for other objects their `repr`."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    return "none" if x is None else repr(x)


def number_text(x: Any, unit: str = "") -> str:
    """Text of a value with six digits, of the range of the values in a batch ("1.2 to 3.4"), or "unknown"."""
    values = known(x)
    if values is None:
        return "unknown"
    finite = values[np.isfinite(values)]
    ends = (finite.min(), finite.max()) if finite.size else ()
    texts = [f"{end:.6g}" if values.dtype.kind == "f" else str(end) for end in ends]
    return f"{' to '.join(dict.fromkeys(texts))} {unit}".rstrip() if texts else "not finite"


def dtype_text(tree: Any) -> str:
    """Names of the floating-point types in a pytree."""
    types = {str(x.dtype) for x in jax.tree.leaves(tree) if jax.numpy.issubdtype(getattr(x, "dtype", int), np.floating)}
    return " and ".join(sorted(types)) or "unknown"


def counted(names: Iterable[str]) -> str:
    """Number of occurrences of each name, such as "2 Spring, 1 JointFriction", or "none"."""
    return ", ".join(f"{count} {name}" for name, count in collections.Counter(names).items()) or "none"


def plural(count: int, one: str, many: str) -> str:
    """A count with its noun, such as "1 body" or "7 bodies".

    Args:
        count: Number of objects.
        one: Singular of the noun.
        many: Plural of the noun.
    """
    return f"{count} {one if count == 1 else many}"


def aligned(rows: Sequence[Sequence[str]], left: tuple[int, ...]) -> str:
    """Rows of cells as text with aligned columns of minimum width.

    Args:
        rows: Texts of the cells.
        left: Indices of left-aligned columns; the others, which contain values, are right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _text(display: Display) -> str:
    width = max(map(len, display.rows), default=0)
    lines = [f"  {label:<{width}}  {value}" for label, value in display.rows.items()]
    if len(lines) > _MOST_LINES - 1:
        shown = _MOST_LINES - 2
        lines = [*lines[:shown], f"  and {len(lines) - shown} more"]
    return "\n".join(_shortened(line) for line in (display.title, *lines))


def _shortened(line: str) -> str:
    """A line that fits into a terminal, and cannot drive it if a part of it comes from a file."""
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= _MOST_COLUMNS else f"{line[: _MOST_COLUMNS - 3]}..."
