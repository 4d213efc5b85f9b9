"""Lookup of classes by the names that files use; it covers subclasses in jaxdyn and in user code."""

from collections.abc import Iterator
from typing import Any


def subclasses(base: type) -> Iterator[type]:
    """All imported subclasses of a class in the order of their definition, so that each is after its base classes."""
    for cls in base.__subclasses__():
        yield cls
        yield from subclasses(cls)


def named_subclasses(base: type, attribute: str = "kind") -> dict[str, Any]:
    """Dictionary of the named subclasses; its keys are the names that files use.

    If two subclasses declare the same name, the later definition replaces the earlier one.

    Args:
        base: Base class.
        attribute: Class variable that contains the name. Subclasses do not inherit the name.
    """
    return {vars(cls)[attribute]: cls for cls in subclasses(base) if vars(cls).get(attribute) is not None}
