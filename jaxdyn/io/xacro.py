"""Expansion of xacro files by the package xacro: `pip install "jaxdyn[robots]"`.

Expressions of xacro are Python, and as xacro evaluates them they can run any program. Here they cannot: an expression has no access
to private attributes, frames and types, `$(eval)` is refused, and only files in the folders of `jaxdyn.io.packages` are read. An
expression can still take any time and memory, and read environment variables, by `$(env)` and `$(optenv)`.
"""

import ast
import importlib.util
import io
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.packages import packages, reached, tree_of
from jaxdyn.io.reading import content
from jaxdyn.io.xml import EXPAND_XACRO, LARGEST_FILE, Element, parse_xml, read_xml

# Expressions and attributes that lead from a value to the interpreter, beside those that begin with an underscore. The last two are
# of documents, which blocks of xacro belong to: they open addresses of networks and files.
_UNSAFE = ("Lambda", "GeneratorExp", "format", "format_map", "mro", "implementation", "createDOMBuilder")


def read_robot(path: Path | str) -> Element:
    """Root element of a URDF or MJCF file, or of a xacro file after its expansion, to which the numbers of lines then refer.

    Raises:
        ConfigError: See `read_xml` and `expanded`.
    """
    path = Path(path)
    return parse_xml(expanded(path)[0], path) if path.suffix.lower() == ".xacro" else read_xml(path)


def expanded(path: Path, arguments: Mapping[str, str] = types.MappingProxyType({})) -> tuple[bytes, list[Path]]:
    """Text of a xacro file after its expansion, and the files that were read for it.

    Args:
        path: Xacro file.
        arguments: Values of its arguments, which replace their defaults.

    Raises:
        ConfigError: The package xacro is not installed, or the file cannot be expanded.
    """
    found, files = importlib.util.find_spec("xacro"), []
    if found is None or found.loader is None:
        raise ConfigError(f'{path}: xacro is not installed; pip install "jaxdyn[robots]", or {EXPAND_XACRO}')
    # A copy of the module, because its functions are replaced, and because it has state.
    xacro: Any = importlib.util.module_from_spec(found)
    found.loader.exec_module(xacro)
    tree, evaluate = tree_of(path), xacro.safe_eval

    def safe_eval(text, *symbols):
        for node in ast.walk(ast.parse(text.strip(), mode="eval")):
            name = node.attr if isinstance(node, ast.Attribute) else type(node).__name__
            if name.startswith("_") or name in _UNSAFE:
                raise xacro.XacroException(f"{name} is not evaluated, because it may run programs")
        return evaluate(text, *symbols)

    def opened(name):
        file = reached(Path(name), tree)
        if file is None:
            raise xacro.XacroException(f"{name} is neither in {tree} nor in a folder of ROS_PACKAGE_PATH")
        if not file.is_file():
            raise FileNotFoundError(0, "there is no such file", str(name))  # `optional` permits it
        data = content(file, LARGEST_FILE, "give a xacro file")
        if file.suffix.lower() not in (".yaml", ".yml"):
            parse_xml(data, file)  # its size and depth are bounded, and it declares no entities
        files.append(file)
        return io.BytesIO(data)

    def extension(text):
        command, _, rest = text[2:-1].strip().partition(" ")
        name, _, default = rest.strip().partition(" ")
        if command == "arg" and name in xacro.substitution_args_context["arg"]:
            return xacro.substitution_args_context["arg"][name]
        if command == "find":
            folders = packages(name, Path(os.path.realpath(path)).parent, tree)
            if (folder := next((folder for folder in folders if folder.is_dir()), None)) is not None:
                return str(folder)
        if command == "optenv" or (command == "env" and name in os.environ):
            return os.environ.get(name, default)
        raise xacro.XacroException(f"{text} has no value here")

    xacro.safe_eval, xacro.open, xacro.eval_extension = safe_eval, opened, extension
    for name in ("type", "vars"):
        dict.pop(xacro._global_symbols["python"], name)
    try:
        document = xacro.process_file(os.path.abspath(path), mappings=dict(arguments))
    except Exception as error:  # xacro raises errors of all kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"{path}: xacro cannot expand it ({reason}); correct it, or, if you trust it, {EXPAND_XACRO}"
        ) from None
    return document.toprettyxml(indent="  ", encoding="utf-8"), files
