"""The URDF reader against numbers of any size and against entities; `test_fuzz` damages files of every format."""

import math
import time
import tracemalloc
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from fuzzing import URDF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxdyn import MechanismError, System
from jaxdyn.io import ConfigError, IgnoredContent, load_urdf
from jaxdyn.io.urdf.writer import save_urdf
from jaxdyn.mechanism.messages import ImplausibleInertia

LONGEST_MESSAGE = 5000  # twenty names of the longest allowed length, and a sentence
MOST_SECONDS = 5.0  # of a few milliseconds each; a quadratic hang of a small file takes minutes
EXAMPLES = settings(
    max_examples=250,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)

pytestmark = pytest.mark.usefixtures("as_a_user")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.urdf"


def outcome(file, data: bytes, **options) -> System | str:
    """The system, or the message of a refusal, after the checks that every file must pass."""
    file.write_bytes(data)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = load_urdf(file, **options)
    except (ConfigError, MechanismError) as error:
        result = str(error)
        assert result.startswith(str(file))
        assert len(result) < LONGEST_MESSAGE + len(str(file))
        assert len(result.splitlines()) == 1
    assert time.perf_counter() - start < MOST_SECONDS
    for warning in caught:
        assert warning.category in (IgnoredContent, ImplausibleInertia)
        assert len(str(warning.message)) < LONGEST_MESSAGE
        assert len(str(warning.message).splitlines()) == 1
    if isinstance(result, System):
        assert all(math.isfinite(x) for x in map(float, result.model.mass))
    return result


NUMBERS = ["0", "1", "-1", "0.5", "1e300", "-1e300", "1e-320", "1e12", "-1e12", "1e-9", "1e13", "nan", "inf", "-inf"]
NUMBERS += ["1_000", "1,5", "0x10", "1e", "1e999999999", "٣"]

# Links and joints that nearly fit together, of numbers that are nearly all allowed and often extreme.
hostile = st.one_of(st.sampled_from(NUMBERS), st.floats().map(repr))
positive = st.sampled_from(["1", "1", "1", "0.5", "0.3", "2", "0", "1e12", "1e-9", "1e-13", "1e-200", "1e-320"])
allowed = st.one_of(positive, positive.map("-{}".format), st.floats(-4, 4).map(repr))


def mostly(usual):
    return st.integers(0, 60).flatmap(lambda k: hostile if k == 60 else usual)


number, amount = mostly(allowed), mostly(positive)
triples = st.tuples(number, number, number).map(" ".join)
links = st.sampled_from(["a", "b", "c", "ground", "a_joint", "関節"])


def link(name, mass, moments, placement):
    return (
        f'<link name="{name}"><inertial><origin xyz="{placement[0]}" rpy="{placement[1]}"/><mass value="{mass}"/>'
        f'<inertia ixx="{moments[0]}" iyy="{moments[1]}" izz="{moments[2]}" ixy="{moments[3]}"/></inertial></link>'
    )


def joint(name, kind, parent, child, placement, axis, extra):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{placement[0]}" rpy="{placement[1]}"/><axis xyz="{axis}"/>{extra}</joint>'
    )


placements = st.tuples(triples, triples)
joint_extras = st.one_of(
    st.just(""),
    st.builds('<limit lower="-{}" upper="{}" effort="{}" velocity="{}"/>'.format, amount, amount, amount, amount),
    st.builds('<dynamics damping="{}" friction="{}"/>'.format, amount, amount),
    st.builds('<mimic joint="{}" multiplier="{}" offset="{}"/>'.format, links, number, number),
)
kinds = st.sampled_from(["revolute", "continuous", "prismatic", "fixed", "planar", "floating", "spherical"])
end = st.builds('link="{}" xyz="{}" rpy="{}"'.format, links, triples, triples)
extensions = st.one_of(
    st.builds('<gravity xyz="{}"/>'.format, triples),
    st.builds('<joint name="{}" armature="{}" velocity_scale="{}"/>'.format, links, amount, amount),
    st.builds('<joint name="{}" stiffness="{}" rest="{}"/>'.format, links, amount, number),
    st.builds('<drive joint="{}" gear="{}"/>'.format, links, number),
    st.builds('<rod name="r" length="{}"><link1 {}/><link2 {}/></rod>'.format, amount, end, end),
    st.builds(
        '<loop_joint name="p" type="{}"><link1 {}/><link2 {}/><axis xyz="{}"/></loop_joint>'.format,
        kinds,
        end,
        end,
        triples,
    ),
    st.builds('<coupling name="c" joint="{}" driver="{}" coefficients="{}"/>'.format, links, links, triples),
)


@st.composite
def robots(draw):
    """Mostly a tree: every link but the first hangs on one that comes before."""
    names = draw(
        st.lists(links, unique=True, min_size=2, max_size=4).map(lambda x: sorted(x, key=lambda n: n != "ground"))
    )
    moments = st.one_of(amount.map(lambda x: (x, x, x, "0")), st.tuples(amount, amount, amount, number))
    parts = [link(name, draw(amount), draw(moments), draw(placements)) for name in names]
    for i, child in enumerate(names[1:], 1):
        parent, name = draw(st.sampled_from(names[:i])), draw(st.one_of(st.just(child), st.just(child), links))
        parts.append(joint(name, draw(kinds), parent, child, draw(placements), draw(triples), draw(joint_extras)))
    parts.append("<jaxdyn>" + "".join(draw(st.lists(extensions, max_size=3))) + "</jaxdyn>")
    return f'<robot name="r">{"".join(parts)}</robot>'


@pytest.mark.filterwarnings("ignore::jaxdyn.mechanism.messages.ImplausibleInertia")  # of what comes back
@EXAMPLES
@given(robot=robots(), base=st.sampled_from(["fixed", "free"]), unphysical=st.sampled_from(["refuse", "repair"]))
def test_robots_of_extreme_numbers(file, robot, base, unphysical):
    """What is read can be written, and comes back."""
    system = outcome(file, robot.encode(), base=base, unphysical=unphysical)
    if isinstance(system, System):
        try:
            save_urdf(system, file)
        except ConfigError as error:
            message = str(error)
        else:
            message = ""
        if message:  # sums and turned inertias of numbers that are just allowed
            assert "which is too large for a mechanism" in message
            return
        again = load_urdf(file)
        assert jax.tree.structure(again) == jax.tree.structure(system)
        for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(system), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_entities_are_not_expanded(file):
    """The files with entities of the corpus, in little memory: `billion_laughs` would have 2 GB."""
    corpus = Path(__file__).parent / "broken_urdf"
    for name in ("billion_laughs", "external_entity", "external_document_type", "undefined_entity"):
        data = (corpus / f"{name}.urdf").read_bytes()
        tracemalloc.start()
        message = outcome(file, data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20
        assert "remove the <!DOCTYPE ...>" in message or "undefined entity" in message


# What fuzzing has found: a KeyError, an IndexError, warnings of the encodings, own refusals taken for wrong encodings.
FOUND = {
    "mimic of a joint that mimics an unknown one": (
        b"<dynamics",
        b'<mimic joint="grip"/><dynamics',
        b'<mimic joint="wrist"',
        b'<mimic joint="x"',
    ),
    "velocity scale of a fixed joint": (
        b'<joint name="shoulder" armature',
        b'<joint name="weld" velocity_scale="1" armature',
    ),
    "encoding with warnings": (b'version="1.0"?>', b'version="1.0" encoding="unicode_escape"?>'),
    "no text encoding": (b'version="1.0"?>', b'version="1.0" encoding="zlib"?>'),
    "too deep": (b"<material", b"<a>" * 200 + b"<material"),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_once(file, what):
    data = URDF
    assert isinstance(outcome(file, data), System)
    for old, new in zip(FOUND[what][::2], FOUND[what][1::2], strict=True):
        assert old in data
        data = data.replace(old, new, 1)
    assert isinstance(outcome(file, data), str)
