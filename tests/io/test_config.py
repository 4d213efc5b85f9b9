"""Configs: strict reading, overrides, the smoke table, and the way back to TOML."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from jaxdyn.io.config import ConfigError, read_config, resolved_toml, setting, setting_of
from jaxdyn.io.tables import keys_of
from jaxdyn.io.toml import toml_text


@dataclasses.dataclass(frozen=True)
class Time:
    duration: float = setting(unit="s", positive=True)
    rate: float = setting(1000.0, unit="Hz", positive=True)
    window: tuple[float, float] = setting((0.0, 1.0), unit="s", minimum=0.0)

    def __post_init__(self):
        if self.window[1] < self.window[0]:
            raise ValueError("window ends before it begins; exchange its two times")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    load: float = setting(0.0, unit="kg")


@dataclasses.dataclass(frozen=True)
class Study:
    mechanism: Path
    time: Time
    method: Literal["fast", "exact"] = "fast"
    batch: int = setting(8, positive=True)
    gains: tuple[float, ...] = setting((1.0,), minimum=0.0, broadcast=True)
    names: tuple[str, ...] = ()
    label: str | None = None
    plots: bool = True
    ratio: float = 0.5
    case: tuple[Case, ...] = ()
    offsets: dict[str, float] = dataclasses.field(default_factory=dict)


SMALLEST = """
mechanism = "arm.toml"
[time]
duration = 2
"""
EVERYTHING = """
mechanism = "../arms/arm.toml"
method = "exact"
batch = 64
gains = [10, 5.5]
names = ["a \\"quoted\\"\\n\\u007f name", "\\U0001F600"]
label = "tip"
plots = false
ratio = 1e-7

[time]
duration = "500 ms"
rate = "2 kHz"
window = [0, "250 ms"]

[[case]]
name = "light"
load = "100 g"
[[case]]
name = "heavy"
load = 7

[offsets]
joint1 = 0.25
"joint 2" = -1

[smoke]
batch = 2
time.duration = "10 ms"
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "study.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_values_come_as_the_types_of_the_fields_in_si_units(write):
    path = write(EVERYTHING)
    config = read_config(path, Study)
    assert config == Study(
        mechanism=(path.parent.parent / "arms" / "arm.toml").resolve(),
        time=Time(0.5, 2000.0, (0.0, 0.25)),
        method="exact",
        batch=64,
        gains=(10.0, 5.5),
        names=('a "quoted"\n\x7f name', "\U0001f600"),
        label="tip",
        plots=False,
        ratio=1e-7,
        case=(Case("light", 0.1), Case("heavy", 7.0)),
        offsets={"joint1": 0.25, "joint 2": -1.0},
    )
    assert all(isinstance(x, float) for x in (*config.gains, *config.time.window, config.case[1].load))


def test_absent_keys_take_their_defaults(write):
    config = read_config(write(SMALLEST), Study)
    assert config == Study(mechanism=config.mechanism, time=Time(duration=2.0))


def test_one_number_stands_for_a_list_where_broadcasting_is_allowed(write):
    assert read_config(write("gains = 3\n" + SMALLEST), Study).gains == (3.0,)


@pytest.mark.parametrize("text", [SMALLEST, EVERYTHING])
@pytest.mark.parametrize("smoke", [False, True])
def test_resolved_config_reads_back_equal_from_anywhere(write, tmp_path, text, smoke):
    config = read_config(write(text), Study, smoke=smoke)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text(resolved_toml(config), encoding="utf-8")
    assert read_config(elsewhere / "config.toml", Study) == config


def test_written_toml_reads_back_equal():
    values = {
        "text": 'tab\t quote" backslash\\ newline\n nul\0 delete\x7f \U0001f600',
        "numbers": [1e-05, 1e300, -0.25, 3, 10**18, 5e-324, np.float64(0.1)],
        "dotted.key": True,
        "": "empty key",
        "nested": {"inner": {"x": [[1, 2], [3]], "strange key": {}}, "y": False},
        "entries": [{"name": "a", "table": {"b": [{"c": 1}]}}, {}],
        "empty": [],
    }
    assert tomllib.loads(toml_text(values)) == values


def test_value_without_a_form_in_toml_is_refused():
    with pytest.raises(TypeError, match="None cannot be written as TOML"):
        toml_text({"x": None})


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("batch=3", "batch", 3),
        ("gains=[1, 2]", "gains", (1.0, 2.0)),
        ("method=exact", "method", "exact"),  # a bare word is text
        ('label="a=b"', "label", "a=b"),
        ("label=a=b", "label", "a=b"),
        ("label=", "label", ""),
        ("plots = false", "plots", False),
        ("time.duration=750 ms", "time", Time(0.75)),
        ("time = {duration = 3, rate = 5}", "time", Time(3.0, 5.0)),
        ("offsets.joint1=4", "offsets", {"joint1": 4.0}),  # makes the table that is not there
        ("label=1\nbatch=5", "label", "1\nbatch=5"),  # one override changes one key
    ],
)
def test_override_replaces_one_value(write, override, field, value):
    path = write(SMALLEST)
    expected = dataclasses.replace(read_config(path, Study), **{field: value})
    assert read_config(path, Study, [override]) == expected


def test_overrides_come_after_the_smoke_table_and_the_last_one_counts(write):
    path = write(EVERYTHING)
    config, small = read_config(path, Study), read_config(path, Study, smoke=True)
    assert (config.batch, small.batch) == (64, 2)
    assert small.time == dataclasses.replace(config.time, duration=0.01)
    assert read_config(path, Study, ["batch=5", "batch=7"], smoke=True).batch == 7


def test_smoke_table_is_checked_even_if_it_is_not_used(write, refusal):
    message = refusal(ConfigError, read_config, write(SMALLEST + "[smoke]\ntime.duraton = 1\n"), Study)
    assert "study.toml: [smoke]: time.duraton: unknown key; did you mean 'duration'?" in message
    assert "smoke: it is not a table; write [smoke]" in refusal(ConfigError, read_config, write("smoke = 1"), Study)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["mechanism: missing; add this key"]),
        ('mechanism = "a.toml"', ["time.duration: missing; add this key (in s)"]),
        ("batsh = 1\n" + SMALLEST, ["batsh: unknown key; did you mean 'batch'?"]),
        ('"x\\ny" = 1\n' + SMALLEST, ["'x\\ny': unknown key; use one of mechanism, time, method"]),
        (SMALLEST + "rates = 1", ["time.rates: unknown key; did you mean 'rate'?"]),
        ('mechanism = "a.toml"\ntime = 3', ["time: 3 is not a table; write [time]"]),
        (SMALLEST.replace("2", '"2 kg"'), ["time.duration: '2 kg': the unit 'kg' does not fit", "s or ms or min"]),
        (SMALLEST.replace("2", "0"), ["time.duration: 0 is out of range; give a value that is positive"]),
        (SMALLEST.replace("2", "nan"), ["time.duration: nan is not finite"]),
        (SMALLEST.replace("2", '"1e308 s"'), ["time.duration: '1e308 s' is out of range", "at most 1e+100"]),
        (SMALLEST.replace("2", "1e-320"), ["time.duration: 1e-320 is out of range", "at least 1e-100"]),
        (SMALLEST + "[offsets]\nx = -1e101", ["offsets.x: -1e+101 is out of range", "at most 1e+100"]),
        (SMALLEST + "window = [1]", ["time.window: the list has 1 entries; give 2"]),
        (SMALLEST + "window = 1", ["time.window: 1 is not a list; write a list"]),
        (SMALLEST + "window = [-1, 1]", ["time.window: -1 is out of range; give a value that is not negative"]),
        (SMALLEST + "window = [2, 1]", ["time: window ends before it begins; exchange"]),
        ("batch = 2.0\n" + SMALLEST, ["batch: 2.0 is not an integer; give a whole number"]),
        ("batch = true\n" + SMALLEST, ["batch: True is not an integer"]),
        ("batch = -1\n" + SMALLEST, ["batch: -1 is out of range; give a value that is positive"]),
        ("gains = -2\n" + SMALLEST, ["gains: -2 is out of range; give a value that is not negative"]),
        ('gains = ["a"]\n' + SMALLEST, ["gains: 'a' is text; write the value without quotes"]),
        ("ratio = true\n" + SMALLEST, ["ratio: True is not a quantity"]),
        ("ratio = 2020-01-01\n" + SMALLEST, ["ratio: datetime.date(2020, 1, 1) is not a quantity"]),
        ('method = "fats"\n' + SMALLEST, ["method: 'fats' is unknown; did you mean 'fast'?"]),
        ("method = 1\n" + SMALLEST, ["method: 1 is unknown; use one of fast, exact"]),
        ("plots = 1\n" + SMALLEST, ["plots: 1 does not fit; give true or false"]),
        ("label = 1\n" + SMALLEST, ["label: 1 does not fit; give text in quotes"]),
        (SMALLEST.replace('"arm.toml"', "3"), ["mechanism: 3 is not a path; give a path as text"]),
        (SMALLEST.replace('"arm.toml"', '"a\\u0000b"'), ["mechanism:", "is not a path"]),
        ("case = [1]\n" + SMALLEST, ["case: 1 is not a table"]),
        (SMALLEST + '[case]\nname = "a"', ["case:", "is not a list; write [[case]]"]),
        (SMALLEST + "[[case]]\nload = 1", ["case 1: name: missing"]),
        (SMALLEST + '[[case]]\nname = "a"\nload = "1 m"', ["case \"a\": load: '1 m'", "kg or g"]),
        (SMALLEST + '[offsets]\nx = "a"', ["offsets.x: 'a' is text"]),
        ("offsets = 1\n" + SMALLEST, ["offsets: 1 is not a table"]),
    ],
)
def test_refusal_names_file_key_and_remedy(write, refusal, text, fragments):
    message = refusal(ConfigError, read_config, write(text), Study)
    assert message.startswith(str(write(text)))
    assert all(fragment in message for fragment in fragments), message


@pytest.mark.parametrize(
    ("override", "fragments"),
    [
        ("batch", ["override 'batch'", "write dotted.key=value"]),
        ("=3", ["override '=3'", "write dotted.key=value"]),
        ("time..rate=3", ["write dotted.key=value"]),
        ("tme.rate=3", ["tme: unknown key; did you mean 'time'?"]),
        ("batch.size=3", ["batch: 8 is not a table"]),
        ("time=3", ["time: 3 is not a table"]),
        ("smoke.batch=3", ["smoke: unknown key"]),
        ("gains=[1,", ["gains: '[1,' is text"]),
    ],
)
def test_refusal_of_an_override_names_its_key(write, refusal, override, fragments):
    message = refusal(ConfigError, read_config, write("batch = 8\n" + SMALLEST), Study, [override])
    assert all(fragment in message for fragment in fragments), message


def test_file_that_cannot_be_used_is_refused(write, tmp_path, refusal):
    def message(path: Path) -> str:
        return refusal(ConfigError, read_config, path, Study)

    assert "absent.toml: there is no such file; check the path" in message(tmp_path / "absent.toml")
    assert "cannot be read (Is a directory)" in message(tmp_path)
    assert "(at line 2, column" in message(write('mechanism = "a"\nbatch 8'))
    assert "x.toml: it is not valid TOML" in message(write(f"batch = {'9' * 5000}", "x.toml"))
    assert "larger than 1000000 bytes; split it" in message(write("#" * 1_000_001))
    latin = tmp_path / "latin.toml"
    latin.write_bytes('label = "Stra\xdfe"'.encode("latin-1"))
    assert "latin.toml: byte 13 is not UTF-8 text; save the file as UTF-8" in message(latin)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 17 + "]" * 17,
        "x = " + "[" * 5000 + "]" * 5000,
        ".".join("x" * 17) + " = 1",
        ".".join("x" * 1200) + " = 1",
    ],
)
def test_deep_nesting_is_refused(write, refusal, text):
    assert "nested more than 16 levels deep; flatten them" in refusal(ConfigError, read_config, write(text), Study)


def test_field_of_a_type_without_a_reader_is_the_programmers_mistake(write):
    @dataclasses.dataclass(frozen=True)
    class Strange:
        when: complex

    with pytest.raises(TypeError, match=r"when: fields of type .*complex.* cannot be read"):
        read_config(write("when = 1"), Strange)


@dataclasses.dataclass(frozen=True)
class Disc:
    kind: Literal["disc", "ring"]
    radius: float = setting(unit="m", positive=True)


@dataclasses.dataclass(frozen=True)
class Box:
    kind: Literal["box"]
    sides: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Shapes:
    shape: tuple[Disc | Box, ...]
    cover: Disc | Box | None = None


def test_tables_of_several_kinds_are_told_apart_by_their_kind(write, refusal):
    text = '[cover]\nkind = "ring"\nradius = "5 cm"\n[[shape]]\nkind = "box"\nsides = [1, 2]\n'
    config = read_config(write(text), Shapes)
    assert config == Shapes((Box("box", (1.0, 2.0)),), Disc("ring", 0.05))
    path = write(resolved_toml(config), "resolved.toml")
    assert read_config(path, Shapes) == config
    for entry, fragment in {
        "radius = 1": "shape 1: kind: missing; use one of disc, ring, box",
        'kind = "bix"': "shape 1: kind: 'bix' is unknown; did you mean 'box'?",
        "kind = 3": "shape 1: kind: 3 is unknown; use one of disc, ring, box",
        'kind = "box"\nradius = 1': "shape 1: radius: unknown key; use one of kind, sides",
        'kind = "disc"': "shape 1: radius: missing; add this key (in m)",
    }.items():
        assert fragment in refusal(ConfigError, read_config, write(f"[[shape]]\n{entry}"), Shapes)
    assert "shape: 3 is not a list" in refusal(ConfigError, read_config, write("shape = 3"), Shapes)
    assert "cover: 3 is not a table" in refusal(ConfigError, read_config, write("shape = []\ncover = 3"), Shapes)


def test_infinite_numbers_need_permission(write, refusal):
    @dataclasses.dataclass(frozen=True)
    class Bounds:
        above: tuple[float, ...] = setting((0.0,), broadcast=True, infinite=True)
        below: tuple[float, ...] = setting((0.0,), broadcast=True)

    assert read_config(write("above = [inf, -inf, 1]"), Bounds).above == (float("inf"), float("-inf"), 1.0)
    assert "below: inf is not finite" in refusal(ConfigError, read_config, write("below = inf"), Bounds)
    assert "above: nan is not finite" in refusal(ConfigError, read_config, write("above = nan"), Bounds)


def test_choices_are_explained_for_one_value_and_for_the_entries_of_a_list():
    @dataclasses.dataclass(frozen=True)
    class Choice:
        """Choices.

        Attributes:
            one: A pace.
            several: Paces.
            named: "fast" or "slow".
        """

        one: Literal["fast", "slow"]
        several: tuple[Literal["fast", "slow"], ...]
        named: Literal["fast", "slow"]

    explained = {name: key.explanation for name, key in keys_of(Choice).items()}
    assert explained == {
        "one": 'A pace. It is "fast" or "slow".',
        "several": 'Paces. Each entry is "fast" or "slow".',
        "named": '"fast" or "slow".',
    }


def test_a_value_above_its_declared_maximum_is_refused(write):
    @dataclasses.dataclass(frozen=True)
    class Share:
        part: float = setting(0.5, minimum=0.0, maximum=1.0)

    assert read_config(write("part = 1"), Share).part == 1.0
    with pytest.raises(ConfigError, match=r"part: 1\.5 is out of range; give a value that is from 0 to 1"):
        read_config(write("part = 1.5"), Share)


def test_a_field_can_have_the_declaration_of_another_class(write, refusal):
    @dataclasses.dataclass(frozen=True)
    class Steps:
        total: float = setting_of(Time, "duration")
        fine: float = setting_of(Time, "rate")
        coarse: float | None = setting_of(Time, "rate", None)

    assert read_config(write('total = "20 ms"'), Steps) == Steps(0.02, 1000.0, None)
    assert read_config(write('total = 1\ncoarse = "2 kHz"'), Steps).coarse == 2000.0
    assert "fine: -1 is out of range" in refusal(ConfigError, read_config, write("total = 1\nfine = -1"), Steps)
    assert "total: missing; add this key (in s)" in refusal(ConfigError, read_config, write("fine = 1"), Steps)


def test_an_override_changes_one_entry_of_a_list_and_keeps_the_others(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("numbers = [1, 2, 3]\n[[part]]\nname = 'a'\nsize = 1\n[[part]]\nname = 'b'\nsize = 2\n")

    @dataclasses.dataclass(frozen=True)
    class Piece:
        name: str
        size: int

    @dataclasses.dataclass(frozen=True)
    class Pieces:
        numbers: tuple[int, ...]
        part: tuple[Piece, ...]

    found = read_config(path, Pieces, ["part.1.size=7", "numbers.0=5"])
    assert found == Pieces((5, 2, 3), (Piece("a", 1), Piece("b", 7)))
    for override, word in (("part.2.size=7", "2 entries"), ("part.size=7", "index from 0"), ("part.-1.size=7", "-1")):
        with pytest.raises(ConfigError, match=word):
            read_config(path, Pieces, [override])
