"""The URDF reader against strangers: whatever a file says, it is read or refused by one short line, soon and in little memory."""

import math
import random
import re
import time
import tracemalloc
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jaxdyn import MechanismError, System
from jaxdyn.io import ConfigError, IgnoredContent, load_urdf, save_urdf
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


# A valid file with everything that the reader knows, to be damaged.
WHOLE = b"""<?xml version="1.0"?>
<robot name="whole" version="1.0">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"><inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1"/></inertial></link>
  <link name="arm"><inertial><origin xyz="0.1 0 0.2" rpy="0.3 0.2 0.1"/><mass value="1.5"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.04" ixy="0.001" ixz="0" iyz="-0.002"/></inertial>
    <visual><geometry><mesh filename="package://nowhere/arm.dae"/></geometry></visual></link>
  <link name="hand"><inertial><mass value="0.5"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3"/></inertial></link>
  <link name="tool"/>
  <link name="finger"><inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4"/></inertial></link>
  <link name="puck"><inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><origin xyz="0 0 1" rpy="0 0.5 0"/>
    <axis xyz="0 1 1"/><limit lower="-1" upper="2" effort="30" velocity="2"/><dynamics damping="0.1" friction="0.2"/></joint>
  <joint name="wrist" type="continuous"><parent link="arm"/><child link="hand"/><origin xyz="0.5 0 0"/><axis xyz="0 0 1"/></joint>
  <joint name="weld" type="fixed"><parent link="hand"/><child link="tool"/><origin xyz="0.1 0 0"/></joint>
  <joint name="grip" type="prismatic"><parent link="tool"/><child link="finger"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.1" effort="5" velocity="1"/><mimic joint="wrist" multiplier="0.01" offset="0.02"/></joint>
  <joint name="slide" type="planar"><parent link="base"/><child link="puck"/><axis xyz="0 0 1"/></joint>
  <jaxdyn>
    <gravity xyz="0 0 -1.62"/>
    <joint name="shoulder" armature="0.2" velocity_scale="0.05" stiffness="3" rest="0.4"/>
    <drive joint="shoulder" gear="50"/>
    <loop_joint name="pin" type="revolute"><link1 link="tool" xyz="0 0.1 0" rpy="0 0 1"/>
      <link2 link="base"/><axis xyz="0 1 0"/></loop_joint>
    <rod name="tie" length="0.4"><link1 link="finger"/><link2 link="ground" xyz="1 0 0"/></rod>
    <coupling name="gear" joint="wrist" driver="shoulder" coefficients="0 -1 0.2"/>
  </jaxdyn>
</robot>
"""

TAGS = sorted({tag.decode() for tag in re.findall(rb"<(\w+)", WHOLE)})
ATTRIBUTES = sorted({name.decode() for name in re.findall(rb"(\w+)=", WHOLE)})
NAMES = sorted({name.decode() for name in re.findall(rb' (?:name|link|joint|type)="([^"]*)"', WHOLE)})
NUMBERS = [
    "0",
    "1",
    "-1",
    "0.5",
    "1e300",
    "-1e300",
    "1e-320",
    "1e12",
    "-1e12",
    "1e-9",
    "1e13",
    "nan",
    "inf",
    "-inf",
    "1_000",
    "1,5",
    "0x10",
    "1e",
    "1e999999999",
    "٣",
]

words = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NUMBERS),
    st.sampled_from(
        ["", " ", "ground", "ground_joint", "Ünïcödé 関節", "a&#10;b", "&lt;&amp;", "&#x2028;", "${mass}", "x" * 300]
    ),
    st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters='<&"'), max_size=8),
)
values = st.one_of(words, st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=4).map(" ".join))
attributes = st.dictionaries(st.sampled_from(ATTRIBUTES), values, max_size=4)
tags = st.one_of(st.sampled_from(TAGS), st.sampled_from(["visual", "gazebo", "xacro:macro", "sensor", "q" * 300]))


def element(tag, attributes, children):
    inside = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<{tag}{inside}>{''.join(children)}</{tag}>"


trees = st.recursive(
    st.builds(element, tags, attributes, st.just([])),
    lambda inner: st.builds(element, tags, attributes, st.lists(inner, max_size=4)),
    max_leaves=10,
)

# Trees that come farther: links and joints that nearly fit together, of numbers that are nearly all allowed and often extreme.
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


def damaged(data: bytes, seed: int) -> bytes:
    """Elements deleted, doubled or exchanged, numbers and names replaced, text cut, bits flipped: one to three of these."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 3)):
        spans = [
            m.span() for m in re.finditer(rb"<(\w+)[^<>]*/>|<(link|joint|inertial|rod)\b.*?</\2>", data, re.DOTALL)
        ]
        quoted = [m.span(1) for m in re.finditer(rb'"([^"]*)"', data)]
        match rng.choice(["delete", "double", "exchange", "number", "number", "name", "word", "cut", "flip"]):
            case "delete" if spans:
                start, end = rng.choice(spans)
                data = data[:start] + data[end:]
            case "double" if spans:
                start, end = rng.choice(spans)
                data = data[:end] + data[start:end] + data[end:]
            case "exchange" if len(spans) > 1:
                (a, b), (c, d) = sorted(rng.sample(spans, 2))
                if b <= c:
                    data = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
            case "number" | "name" | "word" as what if quoted:
                start, end = rng.choice(quoted)
                new = rng.choice(NUMBERS if what == "number" else NAMES)
                old = data[start:end].split()
                if what == "number" and old:
                    old[rng.randrange(len(old))] = new.encode()
                    new = b" ".join(old).decode()
                data = data[:start] + new.encode() + data[end:]
            case "cut":
                data = data[: rng.randrange(len(data) + 1)]
            case "flip" if data:
                place = rng.randrange(len(data))
                data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
    return data


@EXAMPLES
@given(
    parts=st.lists(trees, min_size=1, max_size=3), seed=st.integers(0, 2**32), base=st.sampled_from(["fixed", "free"])
)
def test_foreign_elements_anywhere(file, parts, seed, base):
    rng, data = random.Random(seed), WHOLE
    for part in parts:
        place = rng.choice([m.end() for m in re.finditer(rb"[^?]>", data)])
        data = data[:place] + part.encode() + data[place:]
    outcome(file, data, base=base)


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


@EXAMPLES
@given(seed=st.integers(0, 2**32), base=st.sampled_from(["fixed", "free"]))
@example(seed=874609, base="fixed")  # two constraints of one name: the message had no file in it
def test_damaged_files(file, seed, base):
    outcome(file, damaged(WHOLE, seed), base=base)


@EXAMPLES
@given(
    data=st.binary(max_size=200),
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1", "utf-7", "idna", "unicode_escape"]),
)
def test_binary_garbage(file, data, encoding):
    outcome(file, data)
    outcome(file, f'<?xml version="1.0" encoding="{encoding}"?><robot name="'.encode() + data + b'"/>')


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
    data = WHOLE
    assert isinstance(outcome(file, data), System)
    for old, new in zip(FOUND[what][::2], FOUND[what][1::2], strict=True):
        assert old in data
        data = data.replace(old, new, 1)
    assert isinstance(outcome(file, data), str)
