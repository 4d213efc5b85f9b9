"""The public surface: what it promises exists, every name is explained, and every cited equation can be looked up."""

import functools
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import jaxdyn

PACKAGE = Path(jaxdyn.__file__).parent
THEORY = (PACKAGE / "theory.md").read_text()
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}

PROMISED = [
    "mass_matrix",
    "christoffel_first_kind",
    "christoffel_second_kind",
    "coriolis_matrix",
    "bias_force",
    "gravity_force",
    "inverse_dynamics",
    "forward_dynamics",
    "forward_kinematics",
    "body_jacobian",
    "partial_velocities",
    "kinetic_energy",
    "potential_energy",
    "acceleration",
    "rollout",
    "State",
    "System",
    "Model",
    "MechanismBuilder",
    "library.panda",
    "io.system_from_dict",
]


def resolve(dotted: str):
    """Object of a dotted name, modules that are not imported with the package included."""
    found = importlib.import_module(dotted.split(".")[0])
    for i, part in enumerate(dotted.split(".")[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(dotted.split(".")[:i]))
        found = getattr(found, part)
    return found


def public_members(module) -> dict[str, object]:
    """Functions and classes of jaxdyn that a module offers."""
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        f"{module.__name__}.{name}": item
        for name, item in members.items()
        if (inspect.isfunction(item) or inspect.isclass(item)) and item.__module__.split(".")[0] == "jaxdyn"
    }


# The namespaces that users are sent to, without the names that these import for themselves from elsewhere.
PUBLIC = public_members(jaxdyn) | public_members(resolve("jaxdyn.io"))
for namespace in (jaxdyn.configuration, resolve("jaxdyn.library.files"), resolve("jaxdyn.library.families")):
    PUBLIC |= {k: v for k, v in public_members(namespace).items() if v.__module__ == namespace.__name__}
FUNCTIONS = {name: item for name, item in PUBLIC.items() if inspect.isfunction(item)}
CLASSES = {name: item for name, item in PUBLIC.items() if inspect.isclass(item)}


def function_of(attribute: object) -> Callable | None:
    """The function behind a method or a property; None for fields and constants."""
    if isinstance(attribute, property):
        return attribute.fget
    if isinstance(attribute, functools.cached_property):
        return attribute.func
    function = getattr(attribute, "__func__", attribute)
    return function if inspect.isfunction(function) else None


METHODS = {
    f"{name}.{key}": function_of(attribute)
    for name, kind in CLASSES.items()
    for key, attribute in vars(kind).items()
    if not key.startswith("_") and function_of(attribute)
}


@pytest.mark.parametrize("name", PROMISED)
def test_promised_name_exists(name):
    assert callable(resolve(f"jaxdyn.{name}"))


# --- docstrings ---


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_begins_with_a_sentence_of_its_own(name):
    item = PUBLIC[name]
    docstring = item.__doc__ or ""
    first = inspect.cleandoc(docstring).split("\n\n")[0]
    assert len(first.split()) >= 3, f"say in a sentence what {name} is"
    assert first.rstrip().endswith((".", ":")), f"the first line of {name} is no sentence: {first!r}"
    if inspect.isclass(item):
        assert not any(docstring == base.__doc__ for base in item.__mro__[1:]), f"{name} inherits its docstring"


def handles_quantities(function: Callable) -> bool:
    """Whether arrays go in or come out."""
    return any("Array" in str(a) or "Float" in str(a) for a in inspect.get_annotations(function).values())


@pytest.mark.parametrize("name", [name for name, item in FUNCTIONS.items() if handles_quantities(item)])
def test_function_of_physical_quantities_cites_the_theory_or_explains_itself(name):
    docstring = FUNCTIONS[name].__doc__
    assert "theory.md" in docstring or len(docstring.split()) >= 8, f"cite theory.md in {name}, or say what it does"


@pytest.mark.parametrize("name", FUNCTIONS | METHODS)
def test_every_parameter_and_result_is_annotated(name):
    signature = inspect.signature((FUNCTIONS | METHODS)[name])
    bare = [key for key, p in signature.parameters.items() if p.annotation is p.empty and key != "self"]
    if signature.return_annotation is signature.empty:
        bare.append("return")
    assert not bare, f"annotate {', '.join(bare)} of {name}"


# --- the theory ---

DEFINED = re.findall(r"^ +\(([A-Z]\d+)\)", THEORY, re.MULTILINE)
TABLES = re.findall(r"^Table ([A-Z]\d+)\.", THEORY, re.MULTILINE)
SECTIONS = set(re.findall(r"^## \((\w)\)", THEORY, re.MULTILINE))


def test_equation_numbers_are_unique_and_complete():
    """Sections (a) to (o) number their formulas from 1 without a gap, so that a number never changes its meaning."""
    assert len(DEFINED) == len(set(DEFINED))
    for letter in sorted({number[0] for number in DEFINED}):
        numbers = [int(number[1:]) for number in DEFINED if number[0] == letter]
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"section ({letter.lower()})"


@pytest.mark.parametrize(
    "path", [path for path, source in SOURCES.items() if re.search(r"\([A-Z]\d+\)|theory\.md", source)]
)
def test_cited_equations_and_sections_exist(path):
    source = SOURCES[path]
    unknown = set(re.findall(r"\(([A-Z]\d+)\)", source)) - set(DEFINED)
    assert not unknown, f"{path} cites {sorted(unknown)}, which theory.md does not have"
    cited = set(re.findall(r"sections? \((\w)\)", source)) | set(re.findall(r"sections? \(\w\) and \((\w)\)", source))
    assert cited <= SECTIONS


def test_theory_names_only_what_exists():
    names = re.findall(r"`(jaxdyn(?:\.\w+)+)`", THEORY)
    assert len(names) > 20
    for name in names:
        resolve(name)


def test_theory_refers_to_its_own_equations_and_tables():
    # The sources that table Q1 corrects number their equations (5.96), (7), ... and never with a letter.
    assert set(re.findall(r"\(([A-Z]\d+)\)", THEORY)) <= {*DEFINED, *TABLES}
