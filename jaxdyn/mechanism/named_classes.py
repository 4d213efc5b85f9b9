"""Classes that files name: those of jaxdyn and of users alike, found among the subclasses of a base."""

from collections.abc import Iterator
from typing import Any


def subclasses(base: type) -> Iterator[type]:
    """All subclasses of a class that are imported, each after its bases, in the order of their definition."""
    for cls in base.__subclasses__():
        yield cls
        yield from subclasses(cls)


def named_subclasses(base: type, attribute: str = "kind") -> dict[str, Any]:
    """The subclasses that have a name of their own in files, by this name; a later definition takes the place of an earlier one.

    Args:
        attribute: The class variable with the name. Subclasses do not inherit it.
    """
    return {vars(cls)[attribute]: cls for cls in subclasses(base) if vars(cls).get(attribute) is not None}
