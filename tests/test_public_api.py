"""The public surface: what it promises exists, every name is explained, and every cited equation can be looked up."""

import enum
import functools
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

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


# The packages whose names users are sent to; below them the modules that are namespaces themselves.
PACKAGES = ["jaxdyn"] + [
    f"jaxdyn.{name}"
    for name in (
        "cache",
        "compute",
        "constraints",
        "control",
        "dynamics",
        "envs",
        "formulations",
        "formulations.attitude",
        "identify",
        "io",
        "lanes",
        "library",
        "mechanism",
        "mechanism.configuration",
        "simulate",
        "view",
    )
]
NAMESPACES = ["jaxdyn.errors", "jaxdyn.library.files", "jaxdyn.library.families"]
PUBLIC = {}
for package in PACKAGES:
    PUBLIC |= public_members(resolve(package))
for namespace in map(resolve, NAMESPACES):
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


# A method that overrides another one has its types.
METHODS = {
    f"{name}.{key}": function_of(attribute)
    for name, kind in CLASSES.items()
    for key, attribute in vars(kind).items()
    if not key.startswith("_") and function_of(attribute) and not any(hasattr(base, key) for base in kind.__mro__[1:])
}


def test_promised_names_exist():
    assert all(callable(resolve(f"jaxdyn.{name}")) for name in PROMISED)


def test_the_top_level_has_at_most_a_hundred_names_and_lists_nothing_else():
    assert 50 < len(jaxdyn.__all__) <= 100
    assert dir(jaxdyn) == jaxdyn.__all__


def test_every_package_lists_its_public_names_and_nothing_else():
    for package in map(resolve, PACKAGES):
        assert dir(package) == sorted(set(package.__all__)), package.__name__


def test_every_name_of_the_top_level_is_one_of_a_package_below_it():
    below = {id(item) for name, item in PUBLIC.items() if name.count(".") > 1}
    assert not [name for name, item in PUBLIC.items() if name.count(".") == 1 and id(item) not in below]


# --- arguments ---

# Optional arguments that may be given by position, because they are data of the computation; all options are given by name.
DATA = {
    *("forces", "drives", "constraints"),
    *("u", "t", "controls", "initial", "starts", "plan", "design", "Q_end", "noise", "force_errors", "checks"),
    *(
        "in_axes",
        "out_axes",
        "path",
        "devices",
        "default",
        "columns",
        "solver",
        "overrides",
        "backend",
        "moment",
        "weights",
        "readings",
    ),
}


# Classes whose settings are given by name. The methods and the constructors of the other ones take data.
WITH_SETTINGS = ("System", "LinkageBuilder", "MechanismBuilder", "JointLimits", "Trajectory", "Model")


def test_options_of_functions_methods_and_constructors_are_given_by_name():
    kinds = {name: item for name, item in CLASSES.items() if name.rpartition(".")[2] in WITH_SETTINGS}
    methods = {name: item for name, item in METHODS.items() if name.rpartition(".")[0] in kinds}
    constructors = {name: item for name, item in kinds.items() if name.endswith(".System")}
    assert "jaxdyn.System" in constructors
    assert "jaxdyn.JointLimits.of" in methods
    by_position = {
        f"{name}: {parameter.name}"
        for name, item in (FUNCTIONS | methods | constructors).items()
        for parameter in inspect.signature(item).parameters.values()
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not parameter.empty
        and parameter.name not in DATA
    }
    assert not by_position


# Arguments of constructors of jaxdyn.control that may be given by position: what the object consists of, and its weights.
PARTS_OF_CONTROL = {
    *(
        "weight",
        "margin",
        "target",
        "position",
        "rotation",
        "linear",
        "angular",
        "lower",
        "upper",
        "ends",
        "obstacle_ends",
    ),
    *("name", "integrator", "optimizer", "temperature", "elites", "stage"),
}


def test_options_of_constructors_of_control_are_given_by_name():
    by_position = {
        f"{name}: {parameter.name}"
        for name, item in CLASSES.items()
        if name.startswith("jaxdyn.control.") and not issubclass(item, enum.Enum | Exception)
        for parameter in inspect.signature(item).parameters.values()
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not parameter.empty
        and parameter.name not in DATA | PARTS_OF_CONTROL
    }
    assert not by_position


# Optional arguments of methods and constructors of jaxdyn.identify that are data, or parts of the thing itself, or results.
PARTS_OF_IDENTIFICATION = {
    *(
        "recording",
        "start",
        "end",
        "entries",
        "chart",
        "prior",
        "name",
        "unit",
        "mean",
        "ties",
        "factor",
        "offset",
        "loss",
    ),
    *(
        "inputs",
        "processing",
        "estimates",
        "a",
        "forces",
        "history",
        "names",
        "calibrate",
        "tilt",
        "distortion",
        "shift",
    ),
    *("beside", "tolerance"),
}


def test_options_of_identification_are_given_by_name():
    """A class whose arguments are all optional is a record of settings, such as `Smoothing`; it has no data beside them."""
    by_position = set()
    classes = {name: item for name, item in CLASSES.items() if not issubclass(item, Exception)}
    for name, item in (classes | METHODS).items():
        if name.startswith("jaxdyn.identify."):
            positional = [p for p in inspect.signature(item).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
            if any(p.default is p.empty for p in positional):
                options = {p.name for p in positional if p.default is not p.empty}
                by_position |= {f"{name}: {option}" for option in options - DATA - PARTS_OF_IDENTIFICATION}
    assert not by_position


def test_functions_of_models_and_systems_begin_with_these():
    first = {
        f"{name}({', '.join(parameters)})"
        for name, item in FUNCTIONS.items()
        if (parameters := list(inspect.signature(item).parameters))
        and ({"model", "system"} & set(parameters[1:]) or (parameters[0] == "system" and "q" in parameters[1:2]))
    }
    assert not first


# --- docstrings ---


def faults_of_docstring(name: str, item: object) -> list[str]:
    docstring = item.__doc__ or ""
    first = inspect.cleandoc(docstring).split("\n\n")[0]
    inherited = inspect.isclass(item) and any(docstring == base.__doc__ for base in item.__mro__[1:])
    found = {
        f"say in a sentence what {name} is": len(first.split()) < 3,
        f"the first line of {name} is no sentence: {first!r}": not first.rstrip().endswith((".", ":")),
        f"{name} inherits its docstring": inherited,
    }
    return [fault for fault, holds in found.items() if holds]


def test_docstrings_begin_with_a_sentence_of_their_own():
    assert all(any(name.startswith(f"{package}.") for name in PUBLIC) for package in PACKAGES)
    assert not [fault for name, item in PUBLIC.items() for fault in faults_of_docstring(name, item)]


def handles_quantities(function: Callable) -> bool:
    """Whether arrays go in or come out."""
    return any("Array" in str(a) or "Float" in str(a) for a in inspect.get_annotations(function).values())


def test_functions_of_physical_quantities_cite_the_theory_or_explain_themselves():
    docstrings = {name: item.__doc__ for name, item in FUNCTIONS.items() if handles_quantities(item)}
    assert len(docstrings) > 50
    assert not [
        f"cite theory.md in {name}, or say what it does"
        for name, docstring in docstrings.items()
        if "theory.md" not in docstring and len(docstring.split()) < 8
    ]


def without_annotation(function: Callable) -> list[str]:
    """Parameters without a type, and "return" if the result has none."""
    signature = inspect.signature(function)
    bare = [key for key, p in signature.parameters.items() if p.annotation is p.empty and key != "self"]
    return [*bare, "return"] if signature.return_annotation is signature.empty else bare


def test_every_parameter_and_result_is_annotated():
    bare = {name: without_annotation(function) for name, function in (FUNCTIONS | METHODS).items()}
    assert not [f"annotate {', '.join(keys)} of {name}" for name, keys in bare.items() if keys]


# --- the theory ---

DEFINED = re.findall(r"\\tag\{([A-Z]\d+)\}", THEORY)
TABLES = re.findall(r"^Table ([A-Z]\d+)\.", THEORY, re.MULTILINE)
SECTIONS = set(re.findall(r"^## \((\w)\)", THEORY, re.MULTILINE))


def test_equation_numbers_are_unique_and_complete():
    """Sections (a) to (o) number their formulas from 1 without a gap, so that a number never changes its meaning."""
    assert len(DEFINED) == len(set(DEFINED))
    for letter in sorted({number[0] for number in DEFINED}):
        numbers = [int(number[1:]) for number in DEFINED if number[0] == letter]
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"section ({letter.lower()})"


def test_cited_equations_and_sections_exist():
    unknown = {}
    for path, source in SOURCES.items():
        equations = re.findall(r"\(([A-Z]\d+)\)", source)
        sections = re.findall(r"sections? \((\w)\)", source) + re.findall(r"sections? \(\w\) and \((\w)\)", source)
        if "theory.md" not in source and not equations:  # without either, letters in brackets are of something else
            continue
        unknown[path] = sorted((set(equations) - set(DEFINED)) | (set(sections) - SECTIONS))
    assert len(unknown) > 20
    assert not {path: names for path, names in unknown.items() if names}, "what theory.md does not have"


def test_theory_names_only_what_exists():
    names = re.findall(r"`(jaxdyn(?:\.\w+)+)`", THEORY)
    assert len(names) > 20
    for name in names:
        resolve(name)


def test_theory_refers_to_its_own_equations_and_tables():
    # The sources that table Q1 corrects number their equations (5.96), (7), ... and never with a letter.
    assert set(re.findall(r"\(([A-Z]\d+)\)", THEORY)) <= {*DEFINED, *TABLES}
