"""Old public names, which stay for one release: each gives the object of its new name with a warning.

A renamed argument is answered by `refuse_renamed` with its new form; a renamed attribute is a `renamed_property`.
"""

import pkgutil
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

# Old name: new name. Both are full dotted names; `jaxdyn.lazy` looks here for a name that a package does not have.
RENAMED: dict[str, str] = {
    "jaxdyn.identify.descend": "jaxdyn.identify.gradient_descent.descend",
    "jaxdyn.identify.predicted_readings": "jaxdyn.identify.predicted_measurements",
}


def renamed(name: str) -> Any:
    """The object that an old name stood for, with a warning; None if the name is not an old one.

    Args:
        name: full dotted name, such as "jaxdyn.control.Condition".
    """
    if name not in RENAMED:
        return None
    warnings.warn(
        f"{name} is now {RENAMED[name]}; the old name goes with the next release", FutureWarning, stacklevel=3
    )
    package, _, attribute = RENAMED[name].rpartition(".")
    return getattr(pkgutil.resolve_name(package), attribute)


def refuse_renamed(function: str, given: Iterable[str], remedies: Mapping[str, str]) -> None:
    """Refuse keyword arguments that a function does not have; those of earlier releases with their new form.

    Args:
        function: name of the function.
        given: names of the arguments.
        remedies: for each name of an earlier release, what to write instead.

    Raises:
        TypeError: there is such an argument.
    """
    for name in given:
        raise TypeError(f"{function} has no argument {name!r}; {remedies.get(name, f'see help({function})')}")


def renamed_property(old: str, new: str) -> property:
    """A property for the old name of an attribute, which warns and gives the attribute of the new name."""

    def get(self: Any) -> Any:
        warnings.warn(
            f"{type(self).__name__}.{old} is now {new}; the old name goes with the next release",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(self, new)

    return property(get)
