"""Input for MuJoCo from an MJCF file: one text with all includes resolved, and the contents of the files that it names.

MuJoCo opens any path that a file names, and repeats parts as often as the file requests, also within repeated parts. This module
therefore opens the files instead of MuJoCo, and only regular files of bounded size in one folder. Repetitions are counted before
MuJoCo carries them out. Sections that a reader does not need (sizes of buffers, pictures, sensors ...) are left out.
"""

import dataclasses
import math
import os
import re
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.packages import cache_with
from jaxdyn.io.reading import MOST_BODIES, content
from jaxdyn.io.robots import robot_file
from jaxdyn.io.xml import Element, read_xml, shortened

_LARGEST_FILE = 2**28  # bytes of a mesh or a picture
_LARGEST_TOTAL = 2**29  # bytes of all files together
# Bounds on the number of elements and of copies of one repeated part; the time that MuJoCo needs grows with their square.
_MOST_PARTS = 50_000
_MOST_REPEATED = 5_000
_LARGEST_GRID = 10_000_000  # points of a height field or a picture
_DEEPEST = 100
_UNREAD = ("custom", "size", "statistic", "visual")
_DIRECTORIES = {
    "mesh": "meshdir",
    "hfield": "meshdir",
    "skin": "meshdir",
    "flexcomp": "meshdir",
    "texture": "texturedir",
}
_GRIDS = (("nrow", "ncol"), ("width", "height"))
_OF_COMPILER = ("assetdir", "meshdir", "texturedir", "strippath")
_COUNT = re.compile(r"\d{1,9}")


# Vertices of meshes whose files do not exist, and others that change the mass of each body that depends on them.
PLACEHOLDER, OTHER_PLACEHOLDER = "0 0 0 1 0 0 0 1 0 0 0 1", "0 0 0 2 0 0 0 3 0 1 0 2"


class _AbsentFile(ConfigError):
    """Error if a file that a model names does not exist."""


@dataclasses.dataclass
class MjcfFiles:
    """Files of a model and of the models that it contains.

    Attributes:
        folder: Folder that must contain every file.
        assets: Contents of the files, by their names in the text for MuJoCo.
        names: Names of the files in the text for MuJoCo, by their paths.
        size: Number of bytes read so far.
        missing: Paths of mesh files that do not exist, as the model gives them, by the names of the meshes.
        root: The outermost element of the model with all includes.
        unread: Sections that are left out.
    """

    folder: Path
    assets: dict[str, bytes] = dataclasses.field(default_factory=dict)
    names: dict[Path, str] = dataclasses.field(default_factory=dict)
    size: int = 0
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    root: Element | None = None
    unread: tuple[str, ...] = (*_UNREAD, "sensor")

    def asset(self, path: Path, where: Element) -> str:
        """Register a file that the model refers to; returns its name in the text for MuJoCo."""
        if path not in self.names:
            data = content(path, _LARGEST_FILE, "give a mesh or a picture")
            self.count(len(data), where)
            self._keep(path, data)
        return self.names[path]

    def model(self, path: Path, where: Element, within: tuple[Path, ...]) -> tuple[str, int]:
        """Register another model that the model refers to; returns its name in the text for MuJoCo, and the number of its parts."""
        if path in within:
            raise where.error("it is a part of itself; remove it")
        model = _Model(self, path, (*within, path))
        name = self._keep(path, model.text().encode())
        return name, model.parts

    def count(self, size: int, where: Element) -> None:
        """Add a number of bytes to the total and refuse a total that is too large."""
        self.size += size
        if self.size > _LARGEST_TOTAL:
            raise where.error(f"the files have more than {_LARGEST_TOTAL >> 20} MiB together; make them smaller")

    def found(self, where: Element, name: str, directories: list[Path]) -> Path:
        """Path of a named file in the first directory that contains it.

        Args:
            where: Element that names the file, for messages.
            name: Name of the file.
            directories: Directories to search, in this order.

        Raises:
            ConfigError: There is no such file, or it is outside of the folder, for example because of a link.
        """
        paths = [Path(os.path.realpath(directory / name)) for directory in directories]
        inside = [path for path in paths if path.is_relative_to(self.folder)]
        if not inside:
            raise where.error(
                f"the file {shortened(name)!r} lies outside of {self.folder}; move it there, or give its folder "
                "as the argument `folder`"
            )
        for path in inside:
            if os.path.exists(path):  # unlike `Path.exists`, this accepts names of any length
                return path
        raise _AbsentFile(str(where.error(f"there is no file {shortened(name)!r}; check the path")))

    def _keep(self, path: Path, data: bytes) -> str:
        name = self.names.setdefault(path, f"{len(self.names)}{path.suffix.lower()}")
        self.assets[name] = data
        return name


def read_mjcf(path: Path, folder: Path | None, *, sensors: bool = False) -> tuple[str, MjcfFiles]:
    """Text of a model, and the files that it names; the shapes of meshes whose files do not exist are `PLACEHOLDER`.

    Args:
        path: MJCF file.
        folder: Folder that must contain every file; by default the folder of the model.
        sensors: Whether the sensors are a part of the text.

    Raises:
        ConfigError: A file cannot be used, is outside of the folder, or would take too much time or memory to process.
    """
    path = robot_file(path)
    files = MjcfFiles(Path(os.path.realpath((cache_with(path) or path.parent) if folder is None else folder)))
    if sensors:
        files.unread = _UNREAD
    model = _Model(files, path, (Path(os.path.realpath(path)),))
    files.root = model.root
    return model.text(), files


class _Model:
    """One model: its elements including those of all includes, and the directories in which its compiler looks for files."""

    def __init__(self, files: MjcfFiles, path: Path, within: tuple[Path, ...]):
        self.files, self.path, self.within = files, path, within
        self._included: set[Path] = set()
        self._of_models = 0
        root = read_xml(path)
        files.count(path.stat().st_size, root)
        if root.tag != "mujoco":
            raise root.error("the outermost element of an MJCF file is <mujoco>; check the path")
        self.root = self._with_includes(root, 1)
        self.directories = {"meshdir": "", "texturedir": ""}
        self.strips = False
        for compiler in self.root.all("compiler"):
            self._take_directories(compiler)
        self._name_files(self.root)
        self.parts = self._count(self.root)
        bodies = sum(element.tag == "body" for element in self.root.below())
        if self.parts > _MOST_PARTS or bodies > MOST_BODIES:
            raise root.error(
                f"it has {self.parts} elements and {bodies} bodies, but at most {_MOST_PARTS} and {MOST_BODIES} are read; "
                "split it"
            )

    def text(self) -> str:
        """The model as text for MuJoCo; elements keep their line numbers in the file, to which messages of MuJoCo refer."""
        pieces: list[str] = []
        _write(self.root, pieces, [1], self.path)
        return "".join(pieces)

    def _with_includes(self, element: Element, depth: int) -> Element:
        if depth > _DEEPEST:
            raise element.error(f"elements are nested more than {_DEEPEST} levels deep; check the file")
        children: list[Element] = []
        for child in element.children:
            if child.tag == "include":
                children += self._included_elements(child, depth)
            elif depth > 1 or child.tag not in self.files.unread:
                children.append(self._with_includes(child, depth + 1))
        return dataclasses.replace(element, children=children)

    def _included_elements(self, include: Element, depth: int) -> list[Element]:
        path = self.files.found(include, include.text("file"), [self.path.parent, Path(include.file).parent])
        if path in self._included or path in self.within:
            raise include.error("this file has been included before; remove one")
        self._included.add(path)
        root = read_xml(path)
        self.files.count(path.stat().st_size, include)
        return self._with_includes(root, depth).children

    def _take_directories(self, compiler: Element) -> None:
        given = {name: compiler.attributes.pop(name) for name in _OF_COMPILER if name in compiler.attributes}
        if "assetdir" in given:
            self.directories = dict.fromkeys(self.directories, given["assetdir"])
        self.directories |= {name: value for name, value in given.items() if name in self.directories}
        self.strips = given.get("strippath", "true" if self.strips else "false") == "true"

    def _name_files(self, element: Element) -> None:
        """Replace the paths of files by their names in `MjcfFiles`."""
        for attribute in [name for name in element.attributes if name.startswith("file")]:
            given = element.attributes[attribute].replace("\\", "/")
            if not given:
                continue
            directory = self.directories.get(_DIRECTORIES.get(element.tag, ""), "")
            name = os.path.join(directory, os.path.basename(given) if self.strips else given)
            try:
                path = self.files.found(element, name, [self.path.parent, Path(element.file).parent])
            except _AbsentFile:
                if element.tag != "mesh":
                    raise
                self._hold_place(element, given)
                continue
            if element.tag == "model":
                element.attributes[attribute], parts = self.files.model(path, element, self.within)
                self._of_models = max(self._of_models, parts)
            else:
                element.attributes[attribute] = self.files.asset(path, element)
                if attribute == "file" and element.tag in _DIRECTORIES and element.tag != "flexcomp":
                    element.attributes.setdefault("name", Path(given).stem)  # the default name in MuJoCo
        for child in element.children:
            self._name_files(child)

    def _hold_place(self, mesh: Element, given: str) -> None:
        """Replace the file of a mesh by a shape."""
        mesh.attributes.setdefault("name", Path(given).stem)
        for attribute in ("file", "content_type"):
            mesh.attributes.pop(attribute, None)
        mesh.attributes["vertex"] = PLACEHOLDER
        self.files.missing[mesh.attributes["name"]] = shortened(given)

    def _count(self, element: Element) -> int:
        """Number of elements that MuJoCo creates from one element."""
        parts = 1 + sum(self._count(child) for child in element.children)
        if element.tag == "attach":
            parts += self._of_models
        repeated = math.prod(_counts(element, ("count",)))
        if repeated > 1 and parts * repeated > _MOST_REPEATED:
            raise element.error(f"it makes more than {_MOST_REPEATED} elements; repeat less")
        parts *= max(1, repeated)
        if any(math.prod(_counts(element, grid)) > _LARGEST_GRID for grid in _GRIDS):
            raise element.error(f"it has more than {_LARGEST_GRID} points; make it coarser")
        return parts


def _counts(element: Element, names: tuple[str, ...]) -> list[int]:
    """The integers in some attributes; other texts are left to MuJoCo, which refuses them."""
    words = [word for name in names for word in element.attributes.get(name, "").split()]
    if any(len(word.lstrip("+-0")) > 9 for word in words):
        raise element.error("it repeats too often; give a smaller count")
    return [int(word) for word in words if _COUNT.fullmatch(word)]


def _write(element: Element, pieces: list[str], line: list[int], file: Path) -> None:
    if element.file == file and element.line > line[0]:
        pieces.append("\n" * (element.line - line[0]))
        line[0] = element.line
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in element.attributes.items())
    pieces.append(f"<{element.tag}{attributes}>")
    for child in element.children:
        _write(child, pieces, line, file)
    pieces.append(f"</{element.tag}>")
