"""Archives: what comes back is what went in, bit by bit; a damaged or malicious one is refused in one line."""

import json
import os
import zipfile
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from random_trees import ALL_KINDS, random_model, random_motion

from jaxdyn import (
    AppliedForce,
    ConstantRate,
    Coupling,
    Damper,
    Distance,
    JointDrives,
    JointForce,
    JointFriction,
    JointSpring,
    LoopJoint,
    MechanismBuilder,
    Revolute,
    Rheonomic,
    Spline,
    Spring,
    System,
    as_dtype,
)
from jaxdyn.io.archive.file import load_archive, save_archive
from jaxdyn.io.archive.structure import StructureError, arrays_of, with_arrays
from jaxdyn.io.config import ConfigError


def everything() -> System:
    """Every joint, free and with prescribed motion, every motion, every force, drives, frames; numbers that no file would pass."""
    rng = np.random.default_rng(0)
    model = random_model(rng, 16, kinds=ALL_KINDS + ALL_KINDS.lower(), armature=True)
    model = eqx.tree_at(lambda m: m.mass, model, model.mass.at[3].set(jnp.nan).at[4].set(-0.0))
    n = model.nv
    forces = (
        Spring(-1, rng.normal(size=3), 4, rng.normal(size=3), 2.0, 1e-310),
        Damper(3, rng.normal(size=3), -1, rng.normal(size=3), 0.1),
        AppliedForce(7, rng.normal(size=3), rng.normal(size=3), rng.normal(size=3), True),
        JointFriction(rng.uniform(size=n), rng.uniform(size=n), rng.uniform(0.1, 1.0, n)),
        JointSpring(rng.uniform(size=n), random_motion(rng, model)[0]),
    )
    marker = jax.tree.map(lambda x: x[0], model.placement)
    constraints = (
        LoopJoint("loop", "universal", 3, marker, -1, marker),
        Distance("rod", 2, rng.normal(size=3), 4, rng.normal(size=3), 0.5),
        Coupling("gear", 0, 1, [0.1, 2.0]),
    )
    drives = JointDrives((n - 1, 0), [2.0, 3.0])
    return System(model, forces, drives, constraints, method="articulated_body", stabilization=15.5)


def small(*forces) -> System:
    builder = MechanismBuilder("small")
    builder.add_body("rod", joint=Revolute((0.0, 0.0, 1.0)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    spline = Rheonomic(Revolute((0.0, 0.0, 1.0)), Spline(np.arange(6.0).reshape(6, 1), 0.5))
    builder.add_body("wheel", parent="rod", joint=spline, mass=1.0)
    builder.add_body("drum", parent="rod", joint=Rheonomic(Revolute((0.0, 0.0, 1.0)), ConstantRate(3.0)), mass=1.0)
    builder.add_frame("tip", body="rod", position=(1.0, 0.0, 0.0))
    return System(builder.build(), forces)


def assert_identical(actual: System, expected: System) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    assert hash(actual.model.topology) == hash(expected.model.topology)
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), jax.tree_util.keystr(path)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def batch() -> System:
    """Three copies with other masses and stiffnesses, everything else shared."""
    system = small(Spring(-1, (0.0, 0.0, 1.0), 0, (0.0, 0.0, 1.0), 2.0))
    leaves = lambda s: (s.model.mass, s.forces[0].stiffness)  # noqa: E731
    return eqx.tree_at(leaves, system, (jnp.ones((3, 3)), jnp.arange(3.0)))


@pytest.mark.parametrize(
    "system",
    [everything(), as_dtype(everything(), jnp.float32), batch(), jax.vmap(lambda _: everything())(jnp.arange(2))],
    ids=["all kinds", "float32", "some leaves batched", "all leaves batched"],
)
def test_what_comes_back_is_identical(tmp_path, system):
    save_archive(system, tmp_path / "machine")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["machine.json", "machine.npz"]
    assert_identical(load_archive(tmp_path / "machine.json"), system)


def test_single_precision_archive_needs_no_double_precision_and_the_other_one_says_so(tmp_path, refusal):
    save_archive(small(), tmp_path / "double")
    save_archive(as_dtype(small(), jnp.float32), tmp_path / "single")
    with jax.enable_x64(False):
        assert load_archive(tmp_path / "single").model.dtype == jnp.float32
        assert "is in double precision, which is disabled in JAX" in refusal(
            ConfigError, load_archive, tmp_path / "double"
        )


def test_files_are_readable_without_jaxdyn_and_equal_systems_make_equal_files(tmp_path):
    system = small()
    save_archive(system, tmp_path / "a.npz")
    save_archive(system, tmp_path / "b.json")
    for suffix in ("json", "npz"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["model.mass"], [1.0, 1.0, 1.0])
        assert arrays["model.joints.1.motion.values"].shape == (1, 6, 1)
    structure = json.loads((tmp_path / "a.json").read_text())["system"]
    assert structure["model"]["topology"]["body_names"] == ["rod", "wheel", "drum"]
    assert structure["model"]["mass"] == {"array": "float64", "shape": [3]}


def test_arrays_of_a_tree_come_back_by_their_paths():
    """As in the checkpoints of searches."""
    tree = {"found": (jnp.arange(2.0), None), "model": small().model}
    arrays = arrays_of(tree)
    assert {"found.0", "model.mass"} < arrays.keys()
    assert bool(eqx.tree_equal(with_arrays(jax.tree.map(jnp.zeros_like, tree), arrays), tree))
    with pytest.raises(StructureError, match="arrays are those of another tree"):
        with_arrays({"found": tree["found"]}, arrays)


class Breeze(JointForce):
    """A force of the user's own, with all that a field may hold."""

    conservative: ClassVar[bool] = False

    strength: Float[Array, "nv"]
    labels: tuple[str, ...] = eqx.field(static=True, default=())
    table: dict[str, list] = eqx.field(default_factory=dict)
    kind: type = eqx.field(static=True, default=Revolute)
    limit: float = eqx.field(static=True, default=np.inf)

    def generalized_forces(self, model, q, v, t):
        return self.strength


def test_class_of_the_user_is_read_only_if_it_is_given(tmp_path, refusal):
    system = small(Breeze(jnp.ones(1), ("a", "b"), {"x": [jnp.zeros(2), None]}))
    message = refusal(ConfigError, save_archive, system, tmp_path / "x")
    assert "forces.0: class Breeze does not belong to jaxdyn; give classes=(Breeze,)" in message
    assert not list(tmp_path.iterdir())
    save_archive(system, tmp_path / "x", classes=(Breeze,))
    assert_identical(load_archive(tmp_path / "x", classes=(Breeze,)), system)
    assert "class 'Breeze' is unknown; if it is your own" in refusal(ConfigError, load_archive, tmp_path / "x")
    other = type("Spring", (Breeze,), {})
    assert "two classes called Spring; rename" in refusal(ConfigError, load_archive, tmp_path / "x", classes=(other,))
    assert "give classes such as" in refusal(ConfigError, load_archive, tmp_path / "x", classes=(int,))
    function = small(Breeze(jnp.ones(1), (), {"x": [len]}))
    message = refusal(ConfigError, save_archive, function, tmp_path / "y", classes=(Breeze,))
    assert "forces.0.table.x.0: a builtin_function_or_method cannot be stored in an archive; leave it out" in message


# --- damaged archives ---


@pytest.fixture(scope="module")
def sound() -> tuple[str, dict[str, np.ndarray]]:
    """Content of the two files of a sound archive."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        save_archive(small(JointFriction([1.0], [0.0], [1.0])), Path(folder) / "x")
        with np.load(Path(folder) / "x.npz") as arrays:
            return (Path(folder) / "x.json").read_text(), dict(arrays)


def put(node, path: str, value) -> None:
    *way, last = path.split(".")
    for key in way:
        node = node[int(key)] if isinstance(node, list) else node[key]
    if value is ...:
        del node[last]
    else:
        node[int(last) if isinstance(node, list) else last] = value


@pytest.mark.parametrize(
    ("path", "value", "fragment"),
    [
        ("format", "zip", "it is not a jaxdyn archive; give a file written by jaxdyn.io.save_archive"),
        ("more", 1, "it is not a jaxdyn archive"),
        ("version", 2, "it has version 2; this jaxdyn reads version 1"),
        ("system", [], "it is not a System"),
        ("system.class", "Model", "field topology of Model is missing"),
        ("system.class", "os.system", "class 'os.system' is unknown"),
        ("system.class", ["x"], "class ['x'] is unknown"),
        ("system.model", 3, "model: 3 does not fit this field"),
        ("system.method", "fast", "method: 'fast' does not fit this field"),
        ("system.drives", {"dict": {}}, "drives: {} does not fit this field"),
        ("system.forces.0", 1, "forces: (1,) does not fit"),
        ("system.forces.0.viscous", 1.0, "forces.0.viscous: it has shape (), which does not end with (1)"),
        ("system.forces.0.viscous", {"array": "float64", "shape": [9]}, "has float64 of shape (1,), not float64 of shape [9]"),
        ("system.forces.0.viscous", {"array": "float64"}, "forces.0.viscous: 'array' is not a part of an archive"),
        ("system.forces.0.power", 1, "JointFriction has no field 'power'; use one of viscous"),
        ("system.forces.0.coulomb", ..., "field coulomb of JointFriction is missing"),
        ("system.model.mass", {"array": "float32", "shape": [3]}, "model.mass: the npz file has float64"),
        ("system.model.topology.name", 3, "model.topology.name: 3 does not"),
        ("system.model.topology.parents", [0, 0, 0], "model.topology: its tuples do not fit together"),
        ("system.model.topology.parents", ["a", 0, 0], "model.topology.parents: ('a', 0, 0) does not"),
        ("system.model.topology.joint_groups", [0, 2, 1], "model.topology: its tuples do not fit together"),
        ("system.model.topology.joint_groups", [0, 0, 1], "model.topology: its tuples do not fit together"),
        ("system.model.topology.joint_classes", [{"type": "Spring"}] * 3, "model.topology: its tuples do not fit"),
        ("system.model.topology.joint_classes", {"type": "Revolute"}, "model.topology.joint_classes: they are not a tuple"),
        ("system.forces.0.class", "JointForce", "class 'JointForce' is unknown"),
        ("system.model.topology.joint_classes.0", {"type": "Prismatic"}, "model.joints: they do not match the topology"),
        ("system.model.topology.frame_names", ["a", "b"], "model.topology: its tuples do not fit together"),
        ("system.model.topology.frame_bodies", [5], "model.topology: its tuples do not fit together"),
        ("system.model.joints.0.axis", {"float": "inf"}, "model.joints.0.axis: it has shape (), which does not end with (1, 3)"),
        ("system.model.joints.0.axis", {"float": "1e9"}, "model.joints.0.axis: 'float' is not a part of an archive"),
    ],
)  # fmt: skip
def test_damaged_structure_is_refused_in_one_line(tmp_path, refusal, sound, path, value, fragment):
    text, arrays = sound
    content = json.loads(text)
    put(content, path, value)
    (tmp_path / "x.json").write_text(json.dumps(content))
    np.savez(tmp_path / "x.npz", **arrays)
    message = refusal(ConfigError, load_archive, tmp_path / "x")
    assert message.startswith(f"{tmp_path / 'x.json'}: ")
    assert fragment in message, message


def npy(descr: str, shape: str, content: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def test_damaged_arrays_are_refused_in_one_line(tmp_path, refusal, sound):
    text, arrays = sound
    (tmp_path / "x.json").write_text(text)
    path = tmp_path / "x.npz"

    def message(fragment: str, **changed) -> None:
        np.savez(path, **{key: value for key, value in (arrays | changed).items() if value is not None})
        assert fragment in refusal(ConfigError, load_archive, tmp_path / "x")

    def entries(fragment: str, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        assert fragment in refusal(ConfigError, load_archive, tmp_path / "x")

    message("model.mass: this array is missing from the npz file", **{"model.mass": None})
    message("has an unexpected array '../mass'", **{"../mass": np.zeros(1)})
    message("float64 of shape (4,), not float64 of shape [3]", **{"model.mass": np.zeros(4)})
    message("float64 of shape [3]", **{"model.mass": np.array(["a", "b", "c"])})
    message("the npz file has >f8", **{"model.mass": np.zeros(3, ">f8")})
    entries("entry 'run.py' is given twice or is not an array", {"run.py": b"print(1)"})
    entries("array 'x' is compressed", {"x.npy": npy("<f8", "(90,)", bytes(720))}, zipfile.ZIP_LZMA)
    entries("array 'x' is not complete", {"x.npy": npy("<f8", "(10, 99999999999999)", bytes(80))})
    entries("array 'x' is not a plain numeric array", {"x.npy": npy("|O", "(1,)", b"\x80\x04N.")})
    path.write_bytes(b"PK")
    assert "not an npz file of plain arrays" in refusal(ConfigError, load_archive, tmp_path / "x")
    path.unlink()
    assert "x.npz: there is no such file; keep it beside the json file" in refusal(
        ConfigError, load_archive, tmp_path / "x"
    )
    path.mkdir()
    assert "x.npz: cannot be read (Is a directory)" in refusal(ConfigError, load_archive, tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("{", "not valid JSON"),
        ("\ud800".encode("utf-8", "surrogatepass"), "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "not valid JSON"),
        ('{"format": NaN}', "NaN is not allowed in JSON"),
        ('{"format": "jaxdyn archive", "format": "x"}', "is given twice in one object"),
        ('{"format": "jaxdyn archive", "version": 1, "system": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        (None, "there is no such file; check the path"),
    ],
)
def test_file_that_is_no_structure_is_refused_in_one_line(tmp_path, refusal, sound, text, fragment):
    if text is not None:
        (tmp_path / "x.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    np.savez(tmp_path / "x.npz", **sound[1])
    assert fragment in refusal(ConfigError, load_archive, tmp_path / "x")


def test_a_changed_bit_is_refused_by_name_or_changes_nothing(tmp_path):
    system, rng = small(), np.random.default_rng(2)
    save_archive(system, tmp_path / "x")
    for name in ("x.json", "x.npz"):
        sound, refused = (tmp_path / name).read_bytes(), 0
        for at in rng.integers(len(sound), size=100):
            content = bytearray(sound)
            content[at] ^= 1 << int(rng.integers(8))
            (tmp_path / name).write_bytes(content)
            problem = ""
            try:
                assert_identical(load_archive(tmp_path / "x"), system)
            except ConfigError as error:
                problem, refused = str(error), refused + 1
            assert len(problem.splitlines()) <= 1
        (tmp_path / name).write_bytes(sound)
        assert refused > 95
    save_archive(small(Damper(0, np.zeros(3), -1, np.ones(3), 0.1)), tmp_path / "other")
    (tmp_path / "other.json").replace(tmp_path / "x.json")
    with pytest.raises(ConfigError, match=r"keep the two files together|is missing|damaged"):
        load_archive(tmp_path / "x")


def test_files_are_complete_or_unchanged(tmp_path, refusal, monkeypatch):
    save_archive(small(), tmp_path / "x")
    before = (tmp_path / "x.json").read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    message = refusal(ConfigError, save_archive, batch(), tmp_path / "x")
    assert "x.json: cannot be written (No space left on device); choose another path" in message
    assert (tmp_path / "x.json").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.json", "x.npz"]
