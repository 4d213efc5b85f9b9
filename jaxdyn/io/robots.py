"""Robots by the names of the package robot_descriptions: `pip install "jaxdyn[robots]"`.

The package fetches the repository of a robot by git into its cache, at the revision that it pins, and later uses the cache. The
files of the robot are read like any others, as the data of strangers.
"""

import contextlib
import importlib
import importlib.util
import io
import logging
import pkgutil
import threading
from pathlib import Path

from jaxdyn.errors import suggestion
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.packages import cache_of_robots

_PACKAGE, _ENDING = "robot_descriptions", "_description"
_PATIENCE = 2.0  # s, after which a robot is being fetched
_LOG = logging.getLogger("jaxdyn")


def is_name(text: str) -> bool:
    """Whether a text looks like the name of a robot, such as "panda_description"."""
    return text.endswith(_ENDING) and text[0].isalpha()


def robot_file(path: Path) -> Path:
    """The URDF or MJCF file of a robot, if `path` is a word without a suffix and no file; another path is not changed.

    Raises:
        ConfigError: There is no such robot, or it cannot be fetched.
    """
    name = str(path)
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    found = importlib.util.find_spec(_PACKAGE)
    if found is None:
        remedy = 'if it is the name of a robot, such as panda_description, pip install "jaxdyn[robots]"'
        raise ConfigError(f"{name}: there is no such file or run directory; check the path, or {remedy}")
    modules = pkgutil.iter_modules(found.submodule_search_locations or [])
    short = {module.name.removesuffix(_ENDING): module.name for module in modules if is_name(module.name)}
    if name not in short.values():
        hint = suggestion(name, short.values(), elsewhere=short)
        raise ConfigError(f"{name}: there is no such file, run directory or robot of {_PACKAGE}; {hint}")
    cache, output = cache_of_robots(), io.StringIO()
    fetching = threading.Timer(_PATIENCE, _LOG.info, ("fetching %s into %s ...", name, cache))
    fetching.start()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):  # of git
            module = importlib.import_module(f"{_PACKAGE}.{name}")
    except Exception as error:  # of git, which only the package imports
        said = str(error).partition("stderr: ")[2] or str(error) or type(error).__name__
        reason = said.splitlines()[0].strip(" '")
        raise ConfigError(
            f"{name}: this robot is not in {cache}, and it cannot be fetched ({reason}); repeat this with a network, or "
            "copy that folder from another computer, or set ROBOT_DESCRIPTIONS_CACHE to a folder that contains the robot"
        ) from None
    finally:
        fetching.cancel()
    if (stated := getattr(module, "URDF_PATH", None) or getattr(module, "MJCF_PATH", None)) is not None:
        return Path(stated)
    from jaxdyn.io.xacro import expanded  # which imports a reader of XML

    file = Path(module.XACRO_PATH).with_name(f"{name}.urdf")  # beside the source, whose meshes may be named from there
    write_content(file, expanded(Path(module.XACRO_PATH), getattr(module, "XACRO_ARGS", {}))[0])
    return file
