"""Old public names, which stay for one release: each gives the object of its new name with a warning.

A renamed argument or attribute is not listed here; its function or class says in its error what took its place.
"""

import pkgutil
import warnings
from typing import Any

# Old name: new name. Both are full dotted names; `jaxdyn.lazy` looks here for a name that a package does not have.
RENAMED: dict[str, str] = {}


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
