"""A process that reads damaged files of every format under limits on its memory and time, and says what became of each.

    python fuzzing.py FOLDER SEED COUNT

writes COUNT files, one after the other, to FOLDER and reads them. On standard output it names each file before it is read, and then
its outcome as JSON: the seconds, whether it was read, and what was wrong with the answer. Then it waits for a line on standard
input, until which the damaged file stays where it is. A file that ends the process is thus the last one named.
"""

import io
import json
import random
import re
import resource
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import jaxdyn
from jaxdyn import MechanismError
from jaxdyn.io import ConfigError, IgnoredContent, RunDirectory, RunError
from jaxdyn.io.recordings import Columns, load_recording
from jaxdyn.io.urdf.reader import AssumedBase
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.mechanism.messages import ImplausibleInertia

ROOM = 3 * 2**30  # bytes that reading a file may take beyond those of the process
LONGEST_MESSAGE = 4200

TOML = b"""
name = "whole" # a comment
source = 'weighed'
gravity = [0, 0, -9.81]
[[body]]
name = "cart"
joint = {kind = "prismatic", axis = [1, 0, 0], position_limits = [-1, inf], armature = 0.1}
mass = "2 kg"
inertia = [0.1, 0.1, 0.1]
[[body]]
name = "rod"
parent = "cart"
joint = {kind = "revolute", axis = [0, 1, 0], name = "swing", position_limits = ["-90 deg", "90 deg"], velocity_limit = "60 rpm"}
position = [0, 0, 0.1]
rpy = ["10 deg", 0, 0]
mass = "350 g"
com = [0, 0, -0.5]
inertia = [[0.08, 0, 0], [0, 0.08, 0.001], [0, 0.001, 0.07]]
[[body]]
name = "ball"
parent = "rod"
joint.kind = "spherical"
mass = 1.5
inertia = [0.01, 0.01, 0.01, 0, 0, 0]
[[body]]
name = "driven"
joint = {kind = "revolute", axis = [0, 1, 0], motion = {kind = "spline", values = [0, 1, 0, 1], interval = "10 ms"}}
mass = 1
[[frame]]
name = "tip"
body = "ball"
position = [0, 0, "100 mm"]
[[rotor]]
name = "motor"
carrier = "cart"
joint = "swing"
inertia = 1e-4
ratio = 20
[[spring]]
body_a = "ground"
point_a = [0, 0, 0]
body_b = "tip"
point_b = [0, 1, 0]
stiffness = 3.0
[[applied_force]]
body = "tip"
axes = "body"
force = [1, 2, 3]
[joint_friction]
viscous = {swing = 0.01}
coulomb = {swing = "0.3 N m"}
velocity_scale = {swing = 0.05}
[joint_spring]
stiffness = {cart_joint = 5}
[drives]
joints = ["swing", "ball_joint"]
components = [0, 2]
[[loop]]
name = "pin"
kind = "revolute"
a = {body = "rod", position = [0, 0, -0.5], rpy = ["90 deg", 0, 0]}
b = {body = "driven", orientation = [1, 0, 0, 0]}
[[rod]]
name = "tie"
length = 0.4
body_a = "ball"
point_a = [0, 0, 0]
body_b = "ground"
point_b = [1, 0, 0]
[[coupling]]
name = "gear"
driven = "swing"
driver = "cart_joint"
coefficients = [0, 1, 0.5]
"""

URDF = b"""<?xml version="1.0"?>
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

MJCF = b"""<mujoco model="whole">
  <compiler angle="radian" meshdir="."/>
  <option gravity="0.3 -0.2 -9.7"/>
  <size memory="10M"/>
  <default><joint damping="0.1"/><default class="b"><geom density="500"/></default></default>
  <asset><mesh name="cube" file="cube.obj"/><texture name="t" builtin="flat" type="2d" width="10" height="10"/></asset>
  <worldbody>
    <include file="part.xml"/>
    <body name="cart" pos="0.1 0.2 0.3" euler="1 2 3">
      <joint name="slide" type="slide" axis="1 2 0" ref="0.25" limited="true" range="-1 2" armature="0.4"/>
      <joint name="tilt" type="hinge" axis="0 1 1" pos="0.1 0.2 -0.1" stiffness="3" springref="10"/>
      <geom type="mesh" mesh="cube" class="b"/>
      <site name="tip" pos="0.3 0 0" euler="0 0 90"/>
      <replicate count="3" offset="1 0 0"><geom size="0.1" contype="0" conaffinity="0"/></replicate>
      <body name="arm" pos="0.2 0.3 0"><joint name="ball" type="ball" frictionloss="0.2"/><inertial pos="0 0 0" mass="1"
        diaginertia="0.1 0.1 0.1"/></body>
    </body>
    <body name="drone"><freejoint name="flight"/><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody>
  <equality><joint joint1="slide" joint2="tilt" polycoef="0 1 0 0 0"/><connect body1="arm" body2="drone" anchor="0 0 0"/></equality>
  <actuator><motor joint="tilt" gear="5"/></actuator>
  <sensor><jointpos joint="tilt"/></sensor>
</mujoco>
"""
PART = b'<mujoco><body name="part"><joint axis="0 1 0"/><geom size="0.2"/></body></mujoco>'
CUBE = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"

CONFIG = (Path(__file__).parents[1] / "configs" / "panda_rollouts.toml").read_bytes()


class Format(NamedTuple):
    """Sound files of a format by name, of which one is damaged at a time, and what reads them."""

    files: dict[str, bytes]
    read: Callable[[Path], object]


def formats(folder: Path) -> dict[str, Format]:
    """All formats that are read from files."""
    (folder / "whole.toml").write_bytes(TOML)
    system = jaxdyn.io.load_system(folder / "whole.toml")
    jaxdyn.io.save_archive(system, folder / "x")
    (folder / "x.urdf").write_bytes(URDF)
    without = jaxdyn.System(jaxdyn.library.double_pendulum())
    run = RunDirectory(folder / "run")
    run.write_mechanism(without)
    run.write_arrays("states", time=np.arange(3.0), q=np.ones((2, 3, 2)), v=np.ones((2, 3, 2)))
    data = np.cumsum(np.ones((5, 6)), axis=0)
    recorded = io.BytesIO()
    np.savez(recorded, t=data[:, 0], q=data[:, :2], tau=data[:, 2:4], names=np.array(["a", "b"]))
    table = "t, q, tau\n" + "".join(f"{k},{k / 7!r},{-k}\n" for k in range(20))

    def there(*names: str) -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in names}

    def load(path: Path):
        return jaxdyn.io.load_system(path)

    return {
        "toml": Format({"whole.toml": TOML}, load),
        "urdf": Format(there("x.urdf"), load),
        "mjcf": Format({"m.xml": MJCF, "part.xml": PART, "cube.obj": CUBE}, lambda path: load(path.with_name("m.xml"))),
        "archive": Format(there("x.json", "x.npz"), load),
        "config": Format({"c.toml": CONFIG}, lambda path: jaxdyn.io.read_config(path, RolloutConfig)),
        "table": Format({"r.csv": table.encode()}, lambda path: load_recording(path, Columns())),
        "recording": Format({"r.npz": recorded.getvalue()}, lambda path: load_recording(path, Columns())),
        "results": Format(there("run/states.npz"), lambda path: jaxdyn.io.load_run(path.parent)),
    }


NUMBERS = ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "-0.0", "0", "1", "-1", "2", "1e999", "1e12", "1e-9"]
NUMBERS += ["99999999", "0x1F", "1_0", "\u0663"]
NUMBERS += [str(2**64), "9" * 5000, "0x" + "f" * 5000, "9" * 400]
TOKENS = [bytes([token]) for token in b"\0\r\n\"'\\[]{}#<>.,="]
TOKENS += [b"\xff\xfe", b"\x1b[2J", b'"""', b"'''", b"&#10;", b"&amp;", "\u202e\u2028".encode(), b"\xed\xa0\x80"]
TOKENS += [b"..", b"/dev/zero", b"/etc/passwd", b"x" * 300_000, b"a." * 2000 + b"a", b'{"list":[' * 500]
TOKENS += [token * 3000 for token in (b"[", b"{", b"<a>", b"(")]
TOKENS += [b'<replicate count="100000">', b'<include file="../../etc/passwd"/>', b"count=", b"\x80\x04N."]
TOKENS += [b'<q name="x"/>', b"<jaxdyn>", b' xyz="1 2"', b' encoding="utf-7"', b"${mass}"]


ACCIDENTS = ("bits", "cut", "delete", "double", "many", "token", "number", "word", "lines")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four accidents: bits, pieces, numbers, words, lines, tokens."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + rng.choice((1, 8, 100, 10_000)))
        match rng.choice((*ACCIDENTS, "token", *3 * ("number", "word"))):
            case "bits" if data:
                place = rng.randrange(len(data))
                data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
            case "cut":
                data = data[:a]
            case "delete":
                data = data[:a] + data[b:]
            case "double":
                data = data[:b] + data[a:b] + data[b:]
            case "many":
                data = data[:b] + data[a:b][:200] * rng.choice((10, 1000)) + data[b:]
            case "token":
                data = data[:a] + rng.choice(TOKENS) + data[a:]
            case "number":
                data = _replaced(data, rb"[-+]?\d[\d.e+-]*", rng, [number.encode() for number in NUMBERS])
            case "word":
                data = _replaced(data, rb"[A-Za-z_]\w+", rng, re.findall(rb"[A-Za-z_]\w+", data))
            case "lines":
                lines = data.split(b"\n")
                i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
                data = b"\n".join(lines)
    return data


def _replaced(data: bytes, pattern: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    places = [match.span() for match in re.finditer(pattern, data)]
    if not places:
        return data
    start, end = rng.choice(places)
    return data[:start] + rng.choice(others) + data[end:]


def repacked(data: bytes, rng: random.Random) -> bytes:
    """An npz file whose sums are right and whose arrays are damaged."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    chosen = rng.choice(list(entries))
    head, body = entries[chosen][:128], entries[chosen][128:]
    match rng.choice(("head", "body", "shape", "type", "zeros", "name")):
        case "head":
            head = damaged(head, rng)
        case "body":
            body = damaged(body, rng)
        case "shape":
            huge = rng.choice(
                (b"(1000000000000,)", b"(100000000000000000000,)", b"(0, 99999999999999999999)", b"(-1,)", b"()")
            )
            head = re.sub(rb"\([\d, ]*\)", huge, head).ljust(128)[:128]
        case "type":
            kind = rng.choice((b"|O", b">f8", b"<f2", b"<c16", b"|b1", b"<U2", b"<M8[s]", b"<f16", b"|V8", b"<f1"))
            head = head.replace(b"<f8", kind).ljust(128)[:128]
        case "zeros":
            count = 10**6
            head = re.sub(rb"\([\d, ]*\)", b"(%d,)" % count, head).ljust(128)[:128]
            body = bytes(8 * count)
        case "name":
            entries[rng.choice(("q.npy", "../q.npy", "\x1b[2J.npy", "q"))] = entries.pop(chosen)
            chosen = "more.npy"
    entries[chosen] = head + body
    packed = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if len(body) > 10**6 else rng.choice((0, 0, 0, 8, 12, 14))
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return packed.getvalue()


def wrong(read: Callable[[Path], object], path: Path) -> tuple[bool, str | None]:
    """Whether a file was read, and what is wrong with the answer, if something is."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            read(path)
            messages, is_read = [], True
        except (ConfigError, MechanismError, RunError) as error:
            messages, is_read = [str(error)], False
        except BaseException as error:
            return False, f"raised {type(error).__name__}: {str(error)[:300]}"
    for warning in said:
        if warning.category not in (IgnoredContent, AssumedBase, ImplausibleInertia):
            return is_read, f"warned {warning.category.__name__}: {warning.message}"
        messages.append(str(warning.message))
    for message in messages:
        if not message.isprintable() or not message or len(message) > LONGEST_MESSAGE + len(str(path)):
            return is_read, f"said {message[:300]!r}"
    return is_read, None


def main(folder: Path, seed: int, count: int) -> None:
    """See the top of this file."""
    jax.config.update("jax_enable_x64", True)
    known = formats(folder)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM, in_use + ROOM))
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        kind = list(known)[k % len(known)]
        sound, read = known[kind]
        name = rng.choice(list(sound))
        data = sound[name]
        data = repacked(data, rng) if name.endswith(".npz") and rng.random() < 0.7 else damaged(data, rng)
        path = folder / name
        path.write_bytes(data)
        print(json.dumps({"file": k, "format": kind, "path": str(path)}), flush=True)
        start = time.process_time()
        is_read, problem = wrong(read, path)
        print(json.dumps({"seconds": time.process_time() - start, "read": is_read, "wrong": problem}), flush=True)
        sys.stdin.readline()
        path.write_bytes(sound[name])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
