"""Parameters: every number can be freed, and nothing that is wrong with a choice passes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import slider_tree
from recorded import double_pendulum_plant, pendulum

import jaxdyn
from jaxdyn import UnknownName
from jaxdyn.constraints import Coupling
from jaxdyn.dynamics.drives import JointDrives
from jaxdyn.dynamics.sensors import JointEncoders
from jaxdyn.identify.charts import Bounded, PhysicalInertia, Positive, Rotation, UnitVector
from jaxdyn.identify.measurement import Plant, Sensors
from jaxdyn.identify.parameters import (
    DivergencePrior,
    GaussianPrior,
    Parameter,
    ParameterError,
    Parameters,
    Tie,
    body_inertia,
)

PLANT = double_pendulum_plant()
FIRST, SECOND = PLANT.system.model.topology.body_names
FIRST_JOINT, SECOND_JOINT = PLANT.system.model.topology.joint_names


def equal(a, b, **tolerance) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def many() -> Parameters:
    """A bit of everything."""
    return Parameters(
        PLANT,
        [
            body_inertia(SECOND, prior=DivergencePrior(3.0)),
            Parameter("system.model.mass", (FIRST,), Positive(), GaussianPrior(0.1, 1.1), unit="lb"),
            Parameter("system.model.placement.translation", (SECOND,), prior=GaussianPrior([0.1, 0.2, 0.3])),
            Parameter("system.model.placement.quaternion", (1,), Rotation()),
            Parameter("system.model.joints.0.axis", (SECOND_JOINT,), UnitVector()),
            Parameter("system.model.gravity"),
            Parameter("system.forces.0.viscous", chart=Bounded(0.0, 1.0)),
            Parameter("sensors.offset", name="zero"),
            Parameter("inputs.delay"),
        ],
    )


class TestPlaces:
    def test_start_is_the_subject(self):
        parameters = many()
        equal(eqx.filter_jit(lambda p: p.place(p.initial))(parameters), PLANT, rtol=1e-12, atol=1e-13)
        assert parameters.initial.shape == (parameters.size,) == (10 + 1 + 3 + 3 + 2 + 3 + 2 + 2 + 2,)

    def test_free_numbers_of_another_subject(self):
        parameters = many()
        x = parameters.initial + 0.1 * jnp.asarray(np.random.default_rng(0).normal(size=parameters.size))
        back, moved = eqx.filter_jit(lambda p, x: (p.unconstrained(p.place(x)), p.place(x)))(parameters, x)
        np.testing.assert_allclose(back, x, rtol=1e-10, atol=1e-11)
        # Only what was declared free has moved.
        assert np.all(moved.system.model.mass != PLANT.system.model.mass)
        np.testing.assert_array_equal(moved.system.model.com[0], PLANT.system.model.com[0])
        np.testing.assert_array_equal(moved.system.model.joints[0].axis[0], PLANT.system.model.joints[0].axis[0])
        np.testing.assert_array_equal(moved.inputs.gain, PLANT.inputs.gain)

    @pytest.mark.parametrize("subject", [PLANT, jaxdyn.System(slider_tree(), drives=JointDrives((1,), [2.0]))])
    def test_every_array_can_be_free(self, subject):
        paths = _paths(subject)
        assert len(paths) > 10
        for path, array in paths.items():
            if array.size == 0 or not np.all(np.isfinite(array)):  # limits are infinite
                continue
            parameters = Parameters(subject, [Parameter(path)])
            assert parameters.size == array.size == len(parameters.labels)
            moved = parameters.place(parameters.initial + 1.0)
            changed = [p for p, x in _paths(moved).items() if not np.array_equal(x, paths[p])]
            assert changed == [path]

    def test_single_precision(self):
        plant = jax.tree.map(lambda x: x.astype(jnp.float32), PLANT)
        free = [body_inertia(FIRST), Parameter("sensors.scale", chart=Positive())]
        parameters = Parameters(plant, free, [Tie("sensors.offset", "scale", factor=0.1)])
        placed = eqx.filter_jit(lambda p: p.place(p.initial))(parameters)
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(placed))


def _paths(tree, prefix: str = "") -> dict:
    """All arrays of a subject, by path."""
    if isinstance(tree, jax.Array):
        return {prefix[1:]: np.asarray(tree)}
    if isinstance(tree, tuple):
        parts = {str(k): x for k, x in enumerate(tree)}
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        parts = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    else:
        return {}
    return {path: x for name, part in parts.items() for path, x in _paths(part, f"{prefix}.{name}").items()}


class TestLabels:
    def test_names_and_units(self):
        labels = many().labels
        assert len(labels) == 10 + 1 + 3 + 4 + 3 + 3 + 2 + 2 + 2
        assert labels[0] == (f"mass [{SECOND}]", "kg")
        assert labels[9] == (f"inertia yz [{SECOND}]", "kg m^2")
        assert labels[10] == (f"mass [{FIRST}]", "lb")
        assert labels[11:14] == tuple((f"translation [{SECOND}] {c}", "m") for c in "xyz")
        assert labels[18:21] == tuple((f"axis [{SECOND_JOINT}] {c}", "1") for c in "xyz")
        assert labels[21:24] == tuple((f"gravity [{c}]", "m/s^2") for c in "xyz")
        assert labels[24:26] == ((f"viscous [{FIRST_JOINT}]", "N m s/rad"), (f"viscous [{SECOND_JOINT}]", "N m s/rad"))
        assert labels[26] == (f"zero [{FIRST_JOINT}]", "rad")
        assert labels[28:] == ((f"delay [{FIRST_JOINT}]", "s"), (f"delay [{SECOND_JOINT}]", "s"))

    def test_gravity_of_three_joints_is_no_joint(self):
        parameters = Parameters(slider_tree(), [Parameter("gravity", ("z",))])
        assert parameters.labels == (("gravity [z]", "m/s^2"),)
        np.testing.assert_allclose(parameters.values(parameters.initial), slider_tree().gravity[2])

    def test_bodies_and_joints_of_their_own_names(self):
        model = slider_tree()
        topology = model.topology
        placed = Parameters(model, [Parameter("placement.translation", (topology.body_names[2],))])
        np.testing.assert_array_equal(placed.values(placed.initial), model.placement.translation[2])
        # Joints are stacked by kind: the only slider is row 0 of its stack, under its own name.
        hinges, sliders = (Parameters(model, [Parameter(f"joints.{k}.axis")]).labels for k in (0, 1))
        assert [name for name, _ in hinges[::3]] == [f"axis [{topology.joint_names[k]}] x" for k in (0, 2)]
        assert sliders[0][0] == f"axis [{topology.joint_names[1]}] x"

    def test_inputs_go_by_the_joints_that_they_drive(self):
        model = slider_tree()
        names = model.topology.joint_names
        plant = Plant(jaxdyn.System(model, drives=JointDrives((2, 0, 1), [1.0, 2.0, 3.0])), Sensors(jnp.full(3, 0.1)))
        parameters = Parameters(plant, [Parameter("inputs.gain"), Parameter("system.drives.gear")])
        expected = [names[k] for k in (2, 0, 1)]
        assert [label for label, _ in parameters.labels] == [f"{n} [{j}]" for n in ("gain", "gear") for j in expected]


class TestUnits:
    """Units are those that the owner of a value declares, of the components that turn or shift."""

    @staticmethod
    def units(subject, *paths: str) -> list[str]:
        return [unit for _, unit in Parameters(subject, [Parameter(path, name=path) for path in paths]).labels]

    def test_of_a_cart_with_a_pole(self):
        model = jaxdyn.library.cart_pole()
        friction = jaxdyn.JointFriction([0.1, 0.2], [0.3, 0.4], [0.01, 0.02])
        spring = jaxdyn.JointSpring([1.0, 2.0], [0.0, 0.0])
        system = jaxdyn.System(model, (friction, spring), JointDrives((0,), [1.0]))
        plant = Plant(system, Sensors([0.1, 0.1]))
        assert self.units(plant, "system.forces.0.viscous") == ["N s/m", "N m s/rad"]
        assert self.units(plant, "system.forces.0.coulomb") == ["N", "N m"]
        assert self.units(plant, "system.forces.1.stiffness") == ["N/m", "N m/rad"]
        assert self.units(plant, "system.forces.1.rest") == ["m", "rad"]
        assert self.units(system, "model.armature") == ["kg", "kg m^2"]
        assert self.units(model, "armature", "gravity") == ["kg", "kg m^2", *["m/s^2"] * 3]
        assert self.units(plant, "inputs.offset", "inputs.delay", "inputs.gain") == ["N", "s", "1"]
        assert self.units(plant, "sensors.offset", "sensors.scale") == ["m", "rad", "1", "1"]
        # The names of the rows and their units belong together.
        track = Parameters(plant, [Parameter("system.forces.0.viscous")]).labels[0]
        assert track == (f"viscous [{model.topology.joint_names[0]}]", "N s/m")

    def test_of_forces_between_points(self):
        model = double_pendulum_plant().system.model
        zero = np.zeros(3)
        forces = (jaxdyn.Spring(-1, zero, 0, zero, 5.0, 0.1), jaxdyn.Damper(-1, zero, 0, zero, 0.3))
        system = jaxdyn.System(model, forces)
        assert self.units(system, "forces.0.stiffness", "forces.0.free_length") == ["N/m", "m"]
        assert self.units(system, "forces.1.coefficient", "forces.1.point_a") == ["N s/m", "m", "m", "m"]

    def test_of_measurements(self):
        plant = double_pendulum_plant()
        both = Plant(
            plant.system,
            Sensors(np.ones(4), zeros=np.zeros((2, 4)), observe=(JointEncoders(), JointEncoders(velocities=True))),
        )
        expected = ["rad", "rad", "rad/s", "rad/s"]
        assert self.units(both, "sensors.offset") == self.units(both, "sensors.noise") == expected
        assert self.units(both, "sensors.zeros") == 2 * expected
        own = Plant(plant.system, Sensors(np.ones(1), observe=lambda system, state: state.q[:1]))
        assert self.units(own, "sensors.offset", "sensors.scale") == ["", "1"]
        correlated = Plant(plant.system, Sensors(np.eye(2)))
        assert self.units(correlated, "sensors.noise") == [""] * 4

    def test_of_rotors_and_couplings(self):
        builder = jaxdyn.MechanismBuilder("gears")
        builder.add_body("wheel", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
        builder.add_body("slide", joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.0, inertia=(1, 1, 1))
        builder.add_body("crank", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
        for joint in ("slide", "wheel"):
            builder.add_rotor(joint, carrier="ground", joint=joint, inertia=1.0, ratio=9.0, axis=(0, 0, 1))
        model = builder.build()
        assert self.units(model, "rotors.ratio", "rotors.inertia") == ["rad/m", "1", "kg m^2", "kg m^2"]
        # Three coefficients are not taken for one value per velocity component, of which there are three, too.
        cam = Coupling("cam", driven=1, driver=0, coefficients=[0.0, 0.1, 0.2])
        gear = Coupling("gear", driven=2, driver=0, coefficients=[0.0, 0.1, 0.2, 0.3])
        labels = Parameters(
            jaxdyn.System(model, constraints=(cam, gear)),
            [Parameter("constraints.0.coefficients"), Parameter("constraints.1.coefficients", name="gear")],
        ).labels
        assert [name for name, _ in labels[:3]] == [f"coefficients [c{k}]" for k in range(3)]
        assert [unit for _, unit in labels] == ["m", "m/rad", "m/rad^2", "rad", "1", "1/rad", "1/rad^2"]

    def test_of_parts_without_their_mechanism(self):
        assert self.units(Sensors([0.1, 0.1]), "offset", "scale") == ["", "", "1", "1"]
        friction = jaxdyn.JointFriction([0.1, 0.2], [0.3, 0.4], [0.01, 0.02])
        assert self.units(friction, "viscous", "coulomb") == ["N m s/rad", "N m s/rad", "N m", "N m"]
        assert self.units(Coupling("cam", driven=1, driver=0, coefficients=[0.0, 0.1]), "coefficients") == ["", ""]
        assert self.units(jaxdyn.Sinusoid(0.1, 2.0), "amplitude", "angular_frequency") == ["rad", "rad/s"]

    def test_of_prescribed_motion(self):
        builder = jaxdyn.MechanismBuilder("crank")
        motion = jaxdyn.Sinusoid(0.1, 2.0)
        builder.add_body("slide", joint=jaxdyn.Rheonomic(jaxdyn.Prismatic((1, 0, 0)), motion), mass=1.0)
        builder.add_body("bob", parent="slide", joint=jaxdyn.Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -1))
        model = builder.build()
        group = next(k for k, joint in enumerate(model.joints) if isinstance(joint, jaxdyn.Rheonomic))
        found = self.units(model, f"joints.{group}.motion.amplitude", f"joints.{group}.motion.angular_frequency")
        assert found == ["m", "rad/s"]


class TestTies:
    def test_follow(self):
        parameters = Parameters(
            PLANT,
            [Parameter("system.forces.0.viscous", (0,), Positive())],
            [
                Tie("system.forces.0.viscous", "viscous", (1,), factor=2.0, offset=0.5),
                Tie("inputs.delay", "viscous", (0,)),
            ],
        )
        x = jnp.log(jnp.array([0.3]))
        placed, slope = eqx.filter_jit(
            lambda p, x: (p.place(x), jax.jacfwd(lambda x: p.place(x).system.forces[0].viscous)(x))
        )(parameters, x)
        np.testing.assert_allclose(placed.system.forces[0].viscous, [0.3, 1.1])
        np.testing.assert_allclose(placed.inputs.delay, [0.3, PLANT.inputs.delay[1]])
        np.testing.assert_allclose(slope, [[0.3], [0.6]])


class TestPriors:
    def test_residuals(self):
        parameters = many()
        residuals, values = eqx.filter_jit(lambda p, x: (p.prior_residuals(x), p.values(x)))(
            parameters, parameters.initial.at[0].set(0.2).at[5].set(-0.3)
        )
        np.testing.assert_allclose(residuals[:10] @ residuals[:10], 6.0 * (np.exp(0.4) - 0.4 - 1.0 + 0.09), rtol=1e-12)
        np.testing.assert_allclose(residuals[10], (values[10] - 1.1) / 0.1)
        np.testing.assert_allclose(residuals[11:], np.zeros(3), atol=1e-14)
        assert parameters.prior_residuals(parameters.initial).shape == (14,)

    def test_mean_of_the_subject_and_std_of_each(self):
        parameters = many()
        x = parameters.initial.at[11:14].add(jnp.array([0.1, 0.2, 0.3]))
        np.testing.assert_allclose(parameters.prior_residuals(x)[11:], 1.0)


MASS = "system.model.mass"


@pytest.mark.parametrize(
    ("free", "says"),
    [
        ([], "nothing is free"),
        ([Parameter("system.model.mas")], "did you mean 'mass'"),
        ([Parameter("system.modell.mass")], "did you mean 'model'"),
        ([Parameter("system.forces.3.viscous")], "no entry '3'"),
        ([Parameter("system.model")], "not an array of floating-point values"),
        ([Parameter("system.model.topology.nb")], "topology"),
        ([Parameter(MASS, ("lower",))], f"no entry 'lower'; use one of {FIRST}, {SECOND}"),
        ([Parameter(MASS, (2,))], "no entry 2"),
        ([Parameter(MASS, (-1,))], "no entry -1"),
        ([Parameter(MASS), Parameter(MASS, (1,), name="again")], "already free as 'mass'"),
        ([Parameter(MASS, (1, SECOND))], "already free as 'mass'"),
        ([body_inertia(FIRST), Parameter("system.model.com")], f"already free as '{FIRST}'"),
        ([Parameter(MASS), Parameter("inputs.gain", name="mass")], "several parameters are called 'mass'"),
        ([Parameter("system.forces.0.coulomb", chart=Positive())], "start from positive values"),
        ([Parameter("system.model.joints.0.axis", chart=UnitVector())], "one vector of length 1"),
        ([Parameter(("system.model.mass", "system.model.com"), (0,), PhysicalInertia())], "give mass, com and inertia"),
        ([Parameter(MASS, prior=GaussianPrior(0.0))], "positive values"),
        ([Parameter(MASS, prior=GaussianPrior([0.1] * 3))], "3 values; give 1 or 2"),
        ([Parameter(MASS, prior=GaussianPrior(0.1, float("nan")))], "mean of its prior"),
        ([Parameter(MASS, prior=DivergencePrior(1.0))], "DivergencePrior applies to bodies only"),
        ([body_inertia(FIRST, prior=DivergencePrior(-1.0))], "give 0 or more"),
    ],
)
def test_wrong_choices(free, says, as_a_user):
    with pytest.raises((ParameterError, UnknownName)) as caught:
        Parameters(PLANT, free)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tie", "says"),
    [
        (Tie("inputs.gain", "masses"), "no parameter 'masses' (did you mean 'mass'?)"),
        (Tie(MASS, "mass"), "already free as 'mass'"),
        (Tie("inputs.gains", "mass"), "did you mean 'gain'"),
        (Tie("inputs.gain", "mass", (0,)), "it has 1 values, but 'mass' has 2"),
        (Tie("inputs.gain", "mass", factor=(1.0, 2.0, 3.0)), "its factor"),
    ],
)
def test_wrong_ties(tie, says, as_a_user):
    with pytest.raises((ParameterError, UnknownName)) as caught:
        Parameters(PLANT, [Parameter(MASS)], [tie])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("attempt", "remedy"),
    [
        (lambda: Parameters(PLANT, ["system.model.mass"]), r'is a str; give Parameter\("system.model.mass"\)'),
        (lambda: Parameters(PLANT, "system.model.mass"), r"'system.model.mass' is not a list; give a list"),
        (lambda: Parameters(PLANT, Parameter(MASS)), r"is not a list; give a list"),
        (lambda: Parameters(PLANT, [Parameter(MASS)], [Parameter(MASS)]), r"is a Parameter; give Tie\("),
        (lambda: Parameter(MASS, chart=Positive), r"the class Positive; give an instance, Positive\(\)"),
        (lambda: Parameter(MASS, prior=0.1), r"a float; give GaussianPrior"),
        (lambda: Parameter(MASS, entries="upper"), r"'upper'; give a tuple"),
        (lambda: Parameter(MASS, entries=0), r"0; give a tuple"),
        (lambda: Tie(MASS, "mass", "upper"), r"'upper'; give a tuple"),
        (lambda: Parameter(["system", "model"]), r"a list; give text"),
    ],
)
def test_what_is_no_parameter_is_answered_with_the_remedy(attempt, remedy, as_a_user):
    with pytest.raises(TypeError, match=remedy) as caught:
        attempt()
    assert "\n" not in str(caught.value)


def test_entries_may_come_from_numpy_and_lists(as_a_user):
    wanted = Parameters(PLANT, [Parameter(MASS, (1,))])
    for entries in ([1], np.array([1]), [SECOND]):
        found = Parameters(PLANT, [Parameter(MASS, entries)])
        assert found.labels == wanted.labels
        np.testing.assert_array_equal(found.initial, wanted.initial)


def test_bare_model():
    model = pendulum()
    parameters = Parameters(model, [body_inertia(model.topology.body_names[0], path="")])
    x = parameters.initial.at[3].add(0.1)  # the mass is exp(2 d_4) times that of the reference
    np.testing.assert_allclose(parameters.place(x).mass, np.exp(0.2) * np.asarray(model.mass))
