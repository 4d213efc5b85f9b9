"""The pure parts of the benchmarks: what is left out is said, and a peer that differs is not timed."""

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from peers.benchmark import Settings, offers, recorded
from peers.measuring import Bench, Row, read_rows
from peers.mechanisms import described, mechanism
from peers.model_files import mjcf_text
from peers.report import amount, table
from peers.task import CHECKED, DYNAMICS, Task, difference

TASK = Task("mass matrix", "chain 2", 2, "float64", 64)
ROW = Row("mass matrix", "chain 2", 2, "float64", 64, 1, "frax")


@dataclasses.dataclass
class Answering:
    """Stands for the processes: each route answers every task with the right result plus an error of its own."""

    errors: dict[str, float]
    asked: list[tuple[str, Task]] = dataclasses.field(default_factory=list)

    def ask(self, route: str, task: Task):
        self.asked.append((route, task))
        report = {"compile_s": 1.0, "first_s": 1.0, "memory": 1.0, "arrays": 8, "versions": "1", "platform": "cpu"}
        right = np.ones((min(task.batch, CHECKED), task.n))
        return report, [right + self.errors.get(route, 0.0)]


def bench(folder: Path, errors: dict[str, float]) -> tuple[Bench, Answering]:
    limits = {"threads": 1, "seconds": 0.1, "most_time": 10.0, "most_memory": 1e6}
    own = Bench({}, {}, folder, **limits, platform="cpu", options={})
    answering = Answering(errors)
    own.ask = answering.ask
    return own, answering


def test_a_peer_whose_accelerations_differ_is_not_timed(tmp_path):
    own, answering = bench(tmp_path, {"frax": 1e-3})
    assert own.prepare("frax", TASK).note == "refused: differs by 0.001"
    assert ("frax", TASK) not in answering.asked  # only its accelerations were asked for
    assert own.prepare("adam", TASK).note == ""
    assert {row.route: row.difference for row in own.checks()} == pytest.approx({"frax": 1e-3, "adam": 0.0})


def test_single_precision_is_given_more_room(tmp_path):
    own, _ = bench(tmp_path, {"frax": 1e-3})
    assert own.prepare("frax", dataclasses.replace(TASK, dtype="float32")).note == ""


def test_what_needs_too_much_memory_is_not_tried(tmp_path):
    own, answering = bench(tmp_path, {})
    huge = Task("Christoffel symbols", "chain 64", 64, "float64", 65536)
    assert own.prepare("lanes", huge).note == "needs 138 GB"
    assert not answering.asked


def test_what_took_too_long_is_not_tried_again_at_a_larger_size(tmp_path):
    own, answering = bench(tmp_path, {})
    own.keep(dataclasses.replace(ROW, route="xla", note="> 10 s"))
    own.keep(dataclasses.replace(ROW, route="lanes", compile_s=1.0, run_s=0.2))
    assert own.prepare("xla", Task("mass matrix", "chain 7", 7, "float64", 64)).note == "> 10 s"
    assert own.prepare("lanes", dataclasses.replace(TASK, batch=64 * 50)).note == "> 10 s"
    assert not answering.asked
    assert own.prepare("lanes", dataclasses.replace(TASK, batch=64 * 40)).note == ""


def test_rows_survive_the_file(tmp_path):
    own, _ = bench(tmp_path, {})
    own.keep(dataclasses.replace(ROW, note="> 10 s"))
    (read,) = read_rows(tmp_path / "rows.jsonl")
    assert read.key == ROW.key
    assert read.note == "> 10 s"
    assert math.isnan(read.run_s)


def test_the_history_keeps_rates_of_jaxdyn_alone(tmp_path):
    about = {"commit": "abc", "device": "", "device_platform": "cpu"}
    measured = dataclasses.replace(ROW, route="lanes", run_s=0.5)
    recorded(tmp_path / "history.jsonl", [measured], about)
    rows = [
        dataclasses.replace(measured, run_s=0.25),
        dataclasses.replace(ROW, run_s=0.1),
        dataclasses.replace(measured, run_s=math.nan),
    ]
    both = recorded(tmp_path / "history.jsonl", rows, about)
    assert [(line["row"], line["rate"], line["commit"]) for line in both] == [
        ("mass matrix chain 2 float64 64 lanes", rate, "abc") for rate in (128.0, 256.0)
    ]


def test_table_says_what_was_left_out():
    rows = [
        dataclasses.replace(ROW, batch=1, run_s=1e-4, compile_s=2.0, memory=2e3, difference=3e-9, bytes=96.0),
        dataclasses.replace(ROW, note="needs 138 GB"),
        dataclasses.replace(ROW, route="lanes", batch=1, run_s=1e-6, operations=50.0, bytes=96.0),
    ]
    settings = Settings(batches=(64, 1), arithmetic_limit=1e8)
    head, (frax, lanes) = table(settings, rows)
    assert head[2:4] == ["batch 1", "batch 64"]
    assert frax[:7] == ["chain 2", "frax", "10 k", "needs 138 GB", "2.0", "2 kB", "3e-09"]
    assert lanes[2:4] == ["1 M", ""]
    assert lanes[-1] == "50 %"


def test_difference_sees_what_is_not_finite_and_counts_per_sample():
    expected = [np.array([[1.0, 0.0], [100.0, 0.0]])]
    assert difference([expected[0] + [[0.1], [0.1]]], expected) == pytest.approx(0.1)
    assert difference([np.full((2, 2), np.nan)], expected) == math.inf


@pytest.mark.parametrize(("x", "text"), [(1.0, "1 "), (999.9, "1 k"), (1234567.0, "1.23 M"), (math.nan, "")])
def test_amounts(x, text):
    assert amount(x) == text


def test_smaller_batches_are_beginnings_of_larger_ones():
    large = dataclasses.replace(TASK, batch=128).arguments()
    for small, whole in zip(TASK.arguments(), large, strict=True):
        np.testing.assert_array_equal(small, whole[:64])


def test_the_tree_has_27_hinges_and_branches():
    pytest.importorskip("mujoco")
    import mujoco

    tree = described(mechanism("tree 27", "float64"))
    assert [body["parent"] for body in tree["bodies"]].count(0) == 4
    assert mujoco.MjModel.from_xml_string(mjcf_text(tree, 1e-3)).nv == 27


def test_every_route_but_mujoco_has_forward_dynamics():
    assert not offers("mujoco", "forward dynamics")
    assert {f for f in DYNAMICS if not offers("pinocchio", f)} == {"Christoffel symbols"}
    assert {f for f in DYNAMICS if not offers("frax", f)} == {"Coriolis matrix"}
