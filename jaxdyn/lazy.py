"""Packages whose public names are imported on first use (PEP 562), so that importing jaxdyn is fast.

    if TYPE_CHECKING:
        from jaxdyn.dynamics.metric import mass_matrix as mass_matrix
    else:
        __getattr__, __dir__, __all__ = lazy_names(__name__)

Type checkers and editors read the imports below `if TYPE_CHECKING`. At run time, `lazy_names` reads from the same lines which
module defines each public name.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Packages that lower ones need at run time, by name; the top of the house says how each is found.
LOADERS: dict[str, Callable[[], Any]] = {}


def lazy_names(
    package: str, *, extras: Mapping[str, tuple[str, str]] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the imports below `if TYPE_CHECKING` in its source.

    The modules of the package are also attributes and are imported on first use. A public name must differ from the names of
    modules in the package, because importing such a module would replace it.

    Args:
        package: Name of the package.
        extras: Optional dependency of each module that requires one: the name of the dependency, and the extra of jaxdyn that
            installs it. If the dependency is not installed, `dir` omits the names of the module, and access to one of these names
            raises an error with the command that installs the dependency.
    """
    extras = {f"{package}.{name}": needed for name, needed in (extras or {}).items()}
    module = sys.modules[package]
    source = module.__spec__.loader.get_source(package)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    conditional = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    (block,) = (node for node in conditional if ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> Any:
        try:
            return find(name)
        except ModuleNotFoundError as error:
            for needed, extra in extras.values():
                if error.name == needed:
                    remedy = f'install it with pip install "jaxdyn[{extra}]"'
                    raise ModuleNotFoundError(f"{package}.{name} needs {needed}; {remedy}", name=needed) from None
            raise

    def find(name: str) -> Any:
        home = homes.get(name, package)
        found = None if home == package else getattr(importlib.import_module(home), name, None)
        if found is None and not name.startswith("_") and importlib.util.find_spec(f"{home}.{name}") is not None:
            found = importlib.import_module(f"{home}.{name}")
        if found is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        setattr(module, name, found)
        return found

    public = sorted(name for name in homes if not name.startswith("_"))

    def installed() -> list[str]:
        missing = {module for module, (needed, _) in extras.items() if importlib.util.find_spec(needed) is None}
        return [name for name in public if homes[name] not in missing]

    return get, installed if extras else lambda: public, public


def own_names(namespace: Mapping[str, Any]) -> list[str]:
    """Public functions and classes that a module defines itself, for its `__all__`.

    Args:
        namespace: `globals()` of the module.
    """
    own = {name for name, item in namespace.items() if getattr(item, "__module__", None) == namespace["__name__"]}
    return sorted(name for name in own if not name.startswith("_"))
