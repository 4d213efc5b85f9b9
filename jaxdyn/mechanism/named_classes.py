"""Lookup of classes by the names that files use; it covers subclasses in jaxdyn and in user code."""

from typing import Any


def subclasses(base: type) -> list[type]:
    """All imported subclasses of a class, each once, in the order of their definition; each is after one of its base classes."""
    found: dict[type, None] = {}
    for cls in base.__subclasses__():
        found |= dict.fromkeys((cls, *subclasses(cls)))
    return list(found)


def named_subclasses(base: type, attribute: str = "kind") -> dict[str, Any]:
    """Dictionary of the named subclasses; its keys are the names that files use.

    If two subclasses declare the same name, the later definition replaces the earlier one.

    Args:
        base: Base class.
        attribute: Class variable that contains the name. Subclasses do not inherit the name.
    """
    return {vars(cls)[attribute]: cls for cls in subclasses(base) if vars(cls).get(attribute) is not None}
