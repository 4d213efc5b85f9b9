"""Which files of the repository become which pages of the documentation site, and the API reference as Markdown.

A page keeps the path of its file, so that the relative links of the guides lead to pages without translation. The exceptions are
the guides in `SPLIT`: each of their sections becomes a page, and links into them are turned to these pages.
"""

import ast
import functools
import importlib
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    "mechanism",
    "dynamics",
    "formulations",
    "constraints",
    "simulate",
    "identify",
    "control",
    "envs",
    "io",
    "library",
]
PACKAGES += ["view", "jobs", "spatial", "compute", "lanes", "cache"]  # the last ones are of use to few
FOLDERS = ["jaxdyn", "experiments", "configs", "tests"]  # with pages, beside the README
SPLIT = {
    "README.md": ["Changes and citation"],
    "jaxdyn/README.md": [],
    "experiments/README.md": [],
    "jaxdyn/dynamics/README.md": ["Drives and sensors"],
}  # [] for all sections
THEORY = ["jaxdyn/theory.md", "jaxdyn/equations.md"]

# Code is matched too, so that links and headings within it are left alone.
_FENCE = r"^(```+|~~~+).*?^\1"
_LINK = re.compile(_FENCE + r"|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)|\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(_FENCE + r"|^(#{1,6}) +(.+?) *$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".toml": "toml", ".cpp": "cpp", ".json": "json", ".html": "html"}


@functools.cache
def guides() -> dict[str, str]:
    """All pages that are written by hand: their paths and their Markdown."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    files = [*top, *(file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.md")))]
    texts = {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}
    anchors = {path: _anchors(path, texts[path]) for path in SPLIT if path in texts}
    pages = {}
    for path, text in texts.items():
        parts = sections(path, text) if path in SPLIT else {path: text}
        pages |= {page: _turned(page, part, path, anchors) for page, part in parts.items()}
    return pages


def sections(path: str, text: str) -> dict[str, str]:
    """A page for each section of a guide that `SPLIT` names. The rest stays, followed by a list of these pages."""
    starts = [found for found in _headings(text) if len(found[2]) == 2]
    bounds = [0, *(found.start() for found in starts), len(text)]
    rest, contents, parts = text[: bounds[1]], "", {}
    for start, first, last in zip(starts, bounds[1:], bounds[2:], strict=False):
        if start[3] in (SPLIT[path] or [start[3]]):
            page = _section(path, start[3])
            parts[page] = _HEADING.sub(lambda found: found[0][1:] if found[2] else found[0], text[first:last])
            contents += f"* [{start[3]}]({posixpath.basename(page)})\n"
        else:
            rest += text[first:last]
    return {path: f"{rest}\n{contents}"} | parts


def slug(heading: str) -> str:
    """The anchor that code hosts give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _headings(text: str) -> list[re.Match]:
    return [found for found in _HEADING.finditer(text) if found[2]]


def _section(path: str, heading: str) -> str:
    return posixpath.join(posixpath.dirname(path), slug(heading).strip("-") + ".md")


def _anchors(path: str, text: str) -> dict[str, str]:
    """The page on which each heading of a split guide is found."""
    page, found = path, {}
    for heading in _headings(text):
        if len(heading[2]) == 2:
            page = _section(path, heading[3]) if heading[3] in (SPLIT[path] or [heading[3]]) else path
        found[slug(heading[3])] = page
    return found


def _turned(page: str, text: str, guide: str, anchors: dict[str, dict[str, str]]) -> str:
    """A page of a guide with its links to folders and into split guides turned to the pages that hold the linked text."""
    folder = posixpath.dirname(page)

    def turn(found: re.Match) -> str:
        if not found[3] or re.match(r"[a-z]+:|/", found[3]):
            return found[0]
        file, mark, anchor = found[3].partition("#")
        file = posixpath.normpath(posixpath.join(folder, file)) if file else guide
        if (ROOT / file).is_dir():
            file = posixpath.join(file, "README.md" if (ROOT / file / "README.md").exists() else "index.md")
        file = anchors.get(file, {}).get(anchor, file)
        return f"]({posixpath.relpath(file, folder or '.')}{mark}{anchor})"

    return _LINK.sub(turn, text)


def navigation() -> list:
    """The tabs of the site and the pages below each. A guide that has no place elsewhere is below Project."""
    texts = guides()
    parts = [page for page in texts if page not in THEORY and posixpath.dirname(page) == "jaxdyn"]
    parts.append(_section("jaxdyn/dynamics/README.md", "Drives and sensors"))
    tabs = {
        "Guide": [{"Getting started": "README.md"}, *parts],
        "Packages": [{package: f"jaxdyn/{package}/README.md"} for package in PACKAGES],
        "Theory": [{"Theory": THEORY[0]}, {"Index of equations": THEORY[1]}],
        "API": [{"Overview": "api/README.md"}, *({f"jaxdyn.{package}": f"api/{package}.md"} for package in PACKAGES)],
        "Experiments": [page for page in texts if page.startswith("experiments/")],
        "Configs": [page for page in texts if page.startswith("configs/")],
    }
    placed = {
        page
        for tab in tabs.values()
        for entry in tab
        for page in (entry.values() if isinstance(entry, dict) else [entry])
    }
    tabs["Project"] = [page for page in texts if page not in placed]
    return [{name: tab} for name, tab in tabs.items() if tab]


def folder_pages() -> dict[str, str]:
    """For each folder to which guides link and that has no guide, a list of its files."""
    folders = {posixpath.dirname(target) for target in _targets() - guides().keys() if target.endswith("/index.md")}
    folders = sorted(folder for folder in folders if (ROOT / folder).is_dir())
    files = {folder: sorted(file.name for file in (ROOT / folder).glob("[!_.]*.*")) for folder in folders}
    return {
        f"{folder}/index.md": "\n".join([f"# {folder}\n", *(f"* [{name}]({name})" for name in names)])
        for folder, names in files.items()
    }


def source_files() -> list[str]:
    """Source files that have a page: those of the package, and others to which guides link."""
    listed = {
        posixpath.join(posixpath.dirname(page), name) for page, text in folder_pages().items() for name in _links(text)
    }
    linked = {target for target in _targets() | listed if Path(target).suffix in (*_LANGUAGES, "")}
    return sorted({file for file, _ in definitions().values()} | {file for file in linked if (ROOT / file).is_file()})


def _links(text: str) -> list[str]:
    return [found[3] for found in _LINK.finditer(text) if found[3]]


@functools.cache
def _targets() -> set[str]:
    """The paths to which guides link."""
    linked = [(page, link.partition("#")[0]) for page, text in guides().items() for link in _links(text)]
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for page, link in linked}


def source_page(file: str) -> str:
    """A source file as a page."""
    language, text = _LANGUAGES.get(Path(file).suffix, "text"), (ROOT / file).read_text().rstrip()
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n# {file}\n"
    return f'{head}\n~~~~~~ {{.{language} linenums="1"}}\n{text}\n~~~~~~\n'


def api_pages() -> dict[str, str]:
    """The API reference: an overview of the names of jaxdyn itself, and a page for each package."""
    return {"api/README.md": _overview()} | {f"api/{package}.md": _package_page(package) for package in PACKAGES}


def _overview() -> str:
    parts = ["# API reference\n", "The names of `jaxdyn` itself, by the package on whose page each is explained.\n"]
    homes = {f"jaxdyn.{name}": canonical(home) for name, home in sorted(public_names("").items())}
    alone = {name: home for name, home in homes.items() if name != home and not entry_of(home)}
    parts += ["## Of no package\n", _table(alone), *(f"::: {home}\n" for home in alone.values())]
    for package in PACKAGES:
        names = {name: home for name, home in homes.items() if name != home and entry_of(home) == package}
        parts.append(f"## [`jaxdyn.{package}`]({package}.md)\n\n{summary(f'jaxdyn.{package}')}\n\n{_table(names)}")
    return "\n".join(parts)


def _package_page(package: str) -> str:
    names = {name: canonical(home) for name, home in sorted(public_names(package).items())}
    options = "    options: {members: false, heading_level: 1, show_root_full_path: true}"
    guide = f"[Guide to this package](../jaxdyn/{package}/README.md)\n"
    entries = [f"::: {home}\n" for home in names.values() if entry_of(home) == package]
    return "\n".join([f"::: jaxdyn.{package}\n{options}\n", guide, _table(names), *entries])


def _table(names: dict[str, str]) -> str:
    rows = [f"| [`{name}`][{home}] | {summary(home)} |" for name, home in names.items()]
    return "\n".join(["| name | |", "|---|---|", *rows, ""]) if rows else ""


@functools.cache
def public_names(package: str) -> dict[str, str]:
    """The public names of a package, or of jaxdyn, and where each is defined; of a package without names, its modules."""
    module = importlib.import_module(f"jaxdyn.{package}" if package else "jaxdyn")
    source = Path(str(module.__file__))
    imports = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ImportFrom)]
    homes = {item.asname: f"{node.module}.{item.name}" for node in imports for item in node.names if item.asname}
    homes = {name: home for name, home in homes.items() if name in getattr(module, "__all__", homes)}
    return homes or {path.stem: f"{module.__name__}.{path.stem}" for path in sorted(source.parent.glob("[!_]*.py"))}


@functools.cache
def entry_of(home: str) -> str:
    """The package on whose page a public name is explained: the one that defines it, if it offers it; "" for none."""
    offering = [package for package in PACKAGES if home in map(canonical, public_names(package).values())]
    return next((package for package in offering if home.startswith(f"jaxdyn.{package}.")), (offering or [""])[0])


@functools.cache
def canonical(name: str) -> str:
    """A public dotted name by the module that defines it: jaxdyn.dynamics.metric.mass_matrix of jaxdyn.mass_matrix."""
    if not isinstance(definitions().get(name, ("", None))[1], ast.Module | None):
        return name
    parts = name.split(".")
    package = parts[1] if len(parts) > 2 and parts[1] in PACKAGES else ""
    first = 2 if package else 1
    here = ".".join(parts[: first + 1])
    home = public_names(package).get(parts[first]) if len(parts) > first else None
    within = home is not None and home.startswith(f"{here}.")  # the name is also that of its module
    if home is None or f"{name}.".startswith(f"{home}.") or (within and name != here):
        return name
    return canonical(".".join((home, *parts[first + 1 :])))


@functools.cache
def definitions() -> dict[str, tuple[str, ast.AST]]:
    """The file and the syntax tree of every module, class, function and method of jaxdyn."""
    found = {}

    def visit(node: ast.AST, name: str, file: str) -> None:
        found[name] = (file, node)
        for item in ast.iter_child_nodes(node):
            if isinstance(item, ast.FunctionDef | ast.ClassDef):
                visit(item, f"{name}.{item.name}", file)

    for path in sorted((ROOT / "jaxdyn").rglob("*.py")):
        file = path.relative_to(ROOT)
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        visit(ast.parse(path.read_text()), module, file.as_posix())
    return found


def lines(file: str) -> dict[str, int]:
    """The names that a source file defines and the line of each."""
    return {name: getattr(node, "lineno", 1) for name, (home, node) in definitions().items() if home == file}


def summary(name: str) -> str:
    """The first paragraph of the docstring of a module, class or function; nothing for a constant."""
    _, node = definitions().get(name, ("", None))
    text = ast.get_docstring(node) if node else None
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


@functools.cache
def identifier(name: str, package: str) -> str | None:
    """Where a name in a text of a package leads: to its entry in the reference, or to its source, or nowhere (None)."""
    full = [name] if name.startswith("jaxdyn.") else [f"jaxdyn.{package}.{name}", f"jaxdyn.{name}"]
    for found in map(canonical, full):
        if found in documented():
            return found
        if found in definitions():
            return f"source:{found}"
    return None


@functools.cache
def documented() -> set[str]:
    """What has an entry in the API reference: packages, public names, and their public members with a docstring."""
    names = {canonical(home) for package in PACKAGES for home in public_names(package).values()}
    members = {
        name for name in definitions() if name.rpartition(".")[0] in names and "._" not in name and summary(name)
    }
    return names | members | {f"jaxdyn.{package}" for package in PACKAGES}


@functools.cache
def formulas() -> list[str]:
    """The numbers of all formulas of the theory."""
    return re.findall(r"(?:^ +\(|\\tag\{)([A-Z]\d+)[)}]", guides()[THEORY[0]], re.MULTILINE)
