"""What MuJoCo gets of an MJCF file: one text with every include in its place, and the content of the files that it names.

MuJoCo opens any path that a file names and repeats a part as often as the file says, within repeated parts again. Here the files
are opened in its stead: only regular files of bounded size in one folder. What is repeated is counted before MuJoCo repeats it.
Sections that jaxdyn does not read (sizes of buffers, pictures, sensors ...) are left out.
"""

import dataclasses
import math
import os
import re
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jaxdyn.io.reading import MOST_BODIES, content
from jaxdyn.io.xml import Element, read_xml, shortened

_LARGEST_FILE = 2**28  # bytes of a mesh or a picture
_LARGEST_TOTAL = 2**29  # bytes of all files together
# Elements, and those that one repeated part becomes: MuJoCo takes a time that grows with their square.
_MOST_PARTS = 50_000
_MOST_REPEATED = 5_000
_LARGEST_GRID = 10_000_000  # points of a height field or a picture
_DEEPEST = 100
_UNREAD = ("custom", "keyframe", "sensor", "size", "statistic", "visual")
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


@dataclasses.dataclass
class MjcfFiles:
    """A model and the models in it.

    Attributes:
        folder: That every file must lie in.
        assets: Content of the files by the name that the text has for them.
        names: Those names by path.
        size: Bytes read so far.
    """

    folder: Path
    assets: dict[str, bytes] = dataclasses.field(default_factory=dict)
    names: dict[Path, str] = dataclasses.field(default_factory=dict)
    size: int = 0

    def asset(self, path: Path, where: Element) -> str:
        """The name of a file that the text names."""
        if path not in self.names:
            data = content(path, _LARGEST_FILE, "give a mesh or a picture")
            self.count(len(data), where)
            self._keep(path, data)
        return self.names[path]

    def model(self, path: Path, where: Element, within: tuple[Path, ...]) -> tuple[str, int]:
        """The name of another model that the text names, and the number of its parts."""
        if path in within:
            raise where.error("it is a part of itself; remove it")
        model = _Model(self, path, (*within, path))
        name = self._keep(path, model.text().encode())
        return name, model.parts

    def count(self, size: int, where: Element) -> None:
        """Keep account of what is read."""
        self.size += size
        if self.size > _LARGEST_TOTAL:
            raise where.error(f"the files have more than {_LARGEST_TOTAL >> 20} MiB together; make them smaller")

    def found(self, where: Element, name: str, directories: list[Path]) -> Path:
        """The file of a name in the first directory that has it.

        Raises:
            ConfigError: There is none, or it lies outside of the folder, by way of a link for instance.
        """
        paths = [Path(os.path.realpath(directory / name)) for directory in directories]
        inside = [path for path in paths if path.is_relative_to(self.folder)]
        if not inside:
            raise where.error(
                f"the file {shortened(name)!r} lies outside of {self.folder}; move it there, or give its folder "
                "as the argument `folder`"
            )
        for path in inside:
            if os.path.exists(path):  # unlike `Path.exists`, of names of any length
                return path
        raise where.error(f"there is no file {shortened(name)!r}; check the path")

    def _keep(self, path: Path, data: bytes) -> str:
        name = self.names.setdefault(path, f"{len(self.names)}{path.suffix.lower()}")
        self.assets[name] = data
        return name


def read_mjcf(path: Path, folder: Path | None) -> tuple[str, dict[str, bytes]]:
    """Text of a model, and the content of all files that it names.

    Args:
        folder: That every file must lie in; that of the model if not given.

    Raises:
        ConfigError: A file cannot be used, lies outside of the folder, or what it says would take too much time or memory.
    """
    files = MjcfFiles(Path(os.path.realpath(path.parent if folder is None else folder)))
    text = _Model(files, path, (Path(os.path.realpath(path)),)).text()
    return text, files.assets


class _Model:
    """One model: its elements with those of all includes, and where its compiler looks for files."""

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
                f"it has {self.parts} elements and {bodies} bodies, more than the {_MOST_PARTS} and {MOST_BODIES} that are read; "
                "split it"
            )

    def text(self) -> str:
        """The model for MuJoCo; elements stand on the lines that they have in the file, which its messages name."""
        pieces: list[str] = []
        _write(self.root, pieces, [1], self.path)
        return "".join(pieces)

    def _with_includes(self, element: Element, depth: int) -> Element:
        if depth > _DEEPEST:
            raise element.error(f"elements are nested more than {_DEEPEST} deep, which no robot description is")
        children: list[Element] = []
        for child in element.children:
            if child.tag == "include":
                children += self._included_elements(child, depth)
            elif depth > 1 or child.tag not in _UNREAD:
                children.append(self._with_includes(child, depth + 1))
        return dataclasses.replace(element, children=children)

    def _included_elements(self, include: Element, depth: int) -> list[Element]:
        path = self.files.found(include, include.text("file"), [self.path.parent, Path(include.file).parent])
        if path in self._included or path in self.within:
            raise include.error("this file is included already; remove one")
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
        """The names that files have in `MjcfFiles`, in place of their paths."""
        for attribute in [name for name in element.attributes if name.startswith("file")]:
            given = element.attributes[attribute].replace("\\", "/")
            if not given:
                continue
            directory = self.directories.get(_DIRECTORIES.get(element.tag, ""), "")
            name = os.path.join(directory, os.path.basename(given) if self.strips else given)
            path = self.files.found(element, name, [self.path.parent, Path(element.file).parent])
            if element.tag == "model":
                element.attributes[attribute], parts = self.files.model(path, element, self.within)
                self._of_models = max(self._of_models, parts)
            else:
                element.attributes[attribute] = self.files.asset(path, element)
                if attribute == "file" and element.tag in _DIRECTORIES and element.tag != "flexcomp":
                    element.attributes.setdefault("name", Path(given).stem)  # as MuJoCo names them
        for child in element.children:
            self._name_files(child)

    def _count(self, element: Element) -> int:
        """Number of elements that MuJoCo makes of one."""
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
    """The whole numbers in some attributes; what is no number is left to MuJoCo, which refuses it."""
    words = [word for name in names for word in element.attributes.get(name, "").split()]
    if any(len(word.lstrip("+-0")) > 9 for word in words):
        raise element.error("it repeats too often; give smaller numbers")
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
