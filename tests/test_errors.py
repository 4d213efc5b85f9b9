"""One family of errors: all are a `jaxdyn.Error`, and a name that does not exist raises `UnknownName` wherever it is given."""

import importlib
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import MODULES
from test_public_api import FUNCTIONS

import jaxdyn
from jaxdyn import (
    FrameTarget,
    JointDrives,
    LinkageBuilder,
    MechanismBuilder,
    Revolute,
    System,
    UnknownName,
    control,
    library,
)
from jaxdyn.constraints import rolling
from jaxdyn.dynamics import (
    GroundContact,
    SphereContact,
    contact_capsule,
    contact_sphere,
    frame_acceleration,
    frame_jacobian,
    frame_velocity,
)
from jaxdyn.identify import Parameter, Parameters, Recording, Tie
from jaxdyn.io import load_system
from jaxdyn.library.files import mechanism_path
from jaxdyn.results import ResultCode
from jaxdyn.simulate import RolloutResult, save_contacts_and_frames
from jaxdyn.simulate.diagnostics import output
from jaxdyn.spatial.transform import RigidTransform

MODEL = library.double_pendulum()
SYSTEM = System(MODEL, (jaxdyn.JointFriction([0.1, 0.1], [0.0, 0.0], [1.0, 1.0]),))
MECHANICS = control.MultibodyDynamics(SYSTEM)
Q, STATE = jnp.zeros(2), SYSTEM.at_rest(jnp.zeros(2))
AXIS = {"joint": Revolute((0.0, 1.0, 0.0)), "mass": 1.0, "inertia": (1.0, 1.0, 1.0)}
ROWS = np.zeros((3, 2))
MASS = [Parameter("model.mass")]


def built(add: Callable) -> None:
    builder = MechanismBuilder("arm")
    builder.add_body("upper", **AXIS)
    add(builder)
    builder.build()


def linked(*, body: str = "ground", cut: tuple[str, ...] | None = None) -> None:
    builder = LinkageBuilder("linkage")
    builder.add_body("upper", mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_body("lower", mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_joint("a", AXIS["joint"], body, "upper")
    builder.add_joint("b", AXIS["joint"], "upper", "lower")
    builder.build(cut=cut)


# A call with a wrong name, that name, and the right one. A call names a thing by a word that is a few letters off.
WRONG: dict[str, tuple[Callable, str, str]] = {
    "placement": (lambda: jaxdyn.frame_placement(MODEL, Q, "lowr"), "lowr", "lower"),
    "velocity": (lambda: frame_velocity(MODEL, Q, Q, "lowr"), "lowr", "lower"),
    "jacobian": (lambda: frame_jacobian(MODEL, Q, "lowr"), "lowr", "lower"),
    "axes": (lambda: frame_jacobian(MODEL, Q, "tip", axes="locl"), "locl", "local"),
    "kind": (lambda: frame_acceleration(MODEL, Q, Q, Q, "tip", kind="spatal"), "spatal", "spatial"),
    "under jit": (lambda: jax.jit(lambda q: jaxdyn.frame_placement(MODEL, q, "tp"))(Q), "tp", "tip"),
    "locate": (lambda: MODEL.locate("uper", (0.0, 0.0, 0.0)), "uper", "upper"),
    "target": (lambda: jaxdyn.inverse_kinematics(MODEL, Q, FrameTarget("tp", RigidTransform.identity())), "tp", "tip"),
    "contact": (lambda: GroundContact.of(MODEL, contact_sphere("uper")), "uper", "upper"),
    "pair": (lambda: SphereContact.of(MODEL, [(contact_sphere("uper"), contact_sphere("lower"))]), "uper", "upper"),
    "rolling": (lambda: rolling(MODEL, "wheel", contact_sphere("uper")), "uper", "upper"),
    "drives": (lambda: System(MODEL, drives=JointDrives(("uper",), [1.0])), "uper", "upper"),
    "force": (
        lambda: System(MODEL, (jaxdyn.AppliedForce("uper", (0, 0, 0), (0, 0, 1), (0, 0, 0), True),)),
        "uper",
        "upper",
    ),
    "cost": (lambda: control.FramePose("tp", RigidTransform.identity())(MECHANICS, Q[0], STATE, Q), "tp", "tip"),
    "output": (lambda: output(SYSTEM, STATE, "contact_force"), "contact_force", "contact_forces"),
    "frame of an output": (lambda: output(SYSTEM, STATE, "position:tp"), "tp", "tip"),
    "recorded frame": (lambda: save_contacts_and_frames(SYSTEM, "tp")(Q[0], STATE, None), "tp", "tip"),
    "held": (lambda: jaxdyn.assemble(SYSTEM, STATE, held=("uper",)), "uper", "upper"),
    "library": (lambda: library.system("pandaa"), "pandaa", "panda"),
    "path": (lambda: mechanism_path("pandaa"), "pandaa", "panda"),
    "parent": (lambda: built(lambda b: b.add_body("hand", parent="uper", **AXIS)), "uper", "upper"),
    "body of a frame": (lambda: built(lambda b: b.add_frame("tip", body="uper")), "uper", "upper"),
    "rotor": (
        lambda: built(lambda b: b.add_rotor("r", carrier="uper", joint="upper", inertia=1.0, ratio=2.0)),
        "uper",
        "upper",
    ),
    "body of a linkage": (lambda: linked(body="groud"), "groud", "ground"),
    "joint to cut": (lambda: linked(cut=("bb",)), "bb", "b"),
    "part of a path": (lambda: Parameters(SYSTEM, [Parameter("model.mas")]), "mas", "mass"),
    "start of a path": (lambda: Parameters(SYSTEM, [Parameter("modl.mass")]), "modl", "model"),
    "index in a path": (lambda: Parameters(SYSTEM, [Parameter("forces.3.viscous")]), "3", "0"),
    "entry": (lambda: Parameters(SYSTEM, [Parameter("model.mass", ("uper",))]), "uper", "upper"),
    "leader": (lambda: Parameters(SYSTEM, MASS, [Tie("model.armature", "mas")]), "mas", "mass"),
    "inputs": (
        lambda: Recording("run", np.arange(3.0), np.zeros((3, 2)), None, np.zeros((3, 2)), inputs="linea"),
        "linea",
        "linear",
    ),
    "method of M": (lambda: jaxdyn.mass_matrix(MODEL, Q, method="composit"), "composit", "composite"),
    "method of the connection": (
        lambda: jaxdyn.christoffel_first_kind(MODEL, Q, method="autodif"),
        "autodif",
        "autodiff",
    ),
    "method of a system": (lambda: System(MODEL, method="choleski"), "choleski", "cholesky"),
    "inverse dynamics": (lambda: jaxdyn.inverse_dynamics(MODEL, Q, Q, Q, method="covarian"), "covarian", "covariant"),
    "integrator": (lambda: jaxdyn.SemiImplicitEuler("implict"), "implict", "implicit"),
    "knots": (lambda: jaxdyn.Knots(jnp.zeros((3, 2)), 0.1, interpolation="linea"), "linea", "linear"),
    "scheme": (lambda: control.Collocation(scheme="trapezoit"), "trapezoit", "trapezoid"),
    "optimizer": (lambda: control.SingleShooting("adm"), "adm", "adam"),
    "backend": (lambda: jaxdyn.backend("lane").__enter__(), "lane", "lanes"),
    "backend of a batch": (lambda: jaxdyn.batched(jnp.sin, backend="lane"), "lane", "lanes"),
    "option of a file": (lambda: load_system("no.urdf", limits="enforce"), "enforce", "enforced"),
}


@pytest.mark.parametrize("door", WRONG)
def test_a_wrong_name_is_refused_alike_at_every_door(door, as_a_user):
    call, wrong, right = WRONG[door]
    with pytest.raises(UnknownName) as caught:
        call()
    error = caught.value
    assert isinstance(error, jaxdyn.Error)
    assert str(error.name) == wrong
    assert right in error.known
    message = str(error)
    assert repr(wrong) in message or f" {wrong};" in message
    assert right in message.partition(wrong)[2]
    assert len(message.splitlines()) == 1


def test_the_message_suggests_a_name_lists_the_others_and_survives_a_copy():
    error = UnknownName("body", "uper", ["upper", "lower"], "system 'arm'")
    assert str(error) == "system 'arm': there is no body 'uper' (did you mean 'upper'?); use one of upper, lower"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(UnknownName("joint", "x", [])) == "there is no joint 'x'; there are none"
    many = str(UnknownName("body", "?", [f"link {k}" for k in range(50)]))
    assert many.endswith("link 18, link 19 and 30 more")
    assert str(UnknownName("body", "a\nb", ["c"])) == r"there is no body 'a\nb'; use one of c"
    with pytest.raises(KeyError):
        raise error
    with pytest.raises(ValueError):  # noqa: PT011
        raise error


def defined(base: type) -> dict[str, type]:
    """All subclasses of a class that modules of jaxdyn define, except warnings."""
    found = {}
    for name in MODULES:
        if name.endswith("__main__"):
            continue
        for item in vars(importlib.import_module(name)).values():
            if inspect.isclass(item) and issubclass(item, base) and item.__module__ == name:
                found[f"{name}.{item.__name__}"] = item
    return {name: item for name, item in found.items() if not issubclass(item, Warning)}


def test_all_result_codes_call_success_by_one_word_and_none_reads_as_if_a_computation_went_on():
    codes = {item for item in defined(ResultCode).values() if len(item)}
    assert len(codes) == 6
    for kind in codes:
        assert "SUCCESSFUL" in kind.__members__
        assert "RUNNING" not in kind.__members__
    others = {code for kind in codes for code in kind if code.successful and code.name != "SUCCESSFUL"}
    assert others == {RolloutResult.STOPPED}  # the stop condition of the user


def test_every_function_that_may_not_succeed_raises_unless_told_otherwise():
    signatures = {name: inspect.signature(function).parameters for name, function in FUNCTIONS.items()}
    defaults = {name: parameters["throw"].default for name, parameters in signatures.items() if "throw" in parameters}
    assert len(defaults) >= 10
    assert set(defaults.values()) == {True}


def test_every_exception_is_of_the_family_and_is_documented():
    found = defined(Exception)
    assert len(found) > 15
    assert not [name for name, item in found.items() if not issubclass(item, jaxdyn.Error)]
    assert not [
        name for name, item in found.items() if not (vars(item).get("__doc__") or "").strip().endswith((".", "```"))
    ]


def test_no_module_raises_a_bare_error_or_looks_for_similar_names_by_itself():
    sources = {name: Path(path).read_text() for name, path in MODULES.items()}
    assert [name for name, text in sources.items() if "get_close_matches" in text] == ["jaxdyn.errors"]
    assert not [name for name, text in sources.items() if "raise KeyError" in text or "raise Exception" in text]


def test_shapes_of_contacts_may_be_given_as_a_list_or_as_a_sum():
    upper, lower = (
        contact_capsule("upper", ((0.0, 0.0, 0.0), (0.0, 0.0, -1.0)), 0.1),
        contact_sphere("lower", radius=0.2),
    )
    for given in ([upper, lower], [*upper, lower], upper + lower, (list(upper), lower)):
        assert GroundContact.of(MODEL, given).bodies == (0, 0, 1)
    assert [len(rolling(MODEL, "wheel", given)) for given in ([upper, lower], upper + lower)] == [6, 6]
    pair = contact_sphere("upper"), contact_sphere("lower")
    assert (
        SphereContact.of(MODEL, [pair]).bodies_b == SphereContact.of(MODEL, [(pair[0][0], pair[1][0])]).bodies_b == (1,)
    )
    with pytest.raises(ValueError, match="not two spheres"):
        SphereContact.of(MODEL, [(upper, lower)])
