"""Bags of ROS 2, in files of SQLite or MCAP: the numeric fields of the messages of a topic are columns.

    /joint_states/elbow.position    a value of a joint, in messages with the names of joints, such as sensor_msgs/msg/JointState
    /commands/data                  a numeric array, such as that of std_msgs/msg/Float64MultiArray
    /wrist/wrench.force.x           a component
    /joint_states/header.stamp      time of the measurement, s
    /joint_states/received          time at which the message was recorded, s

Only messages of standard types are read (package rosbags): code is generated for other types, and files are not trusted with that.
"""

import contextlib
import dataclasses
import itertools
import sqlite3
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import lz4.frame
import numpy as np
import zstandard
from mcap.records import Channel, Chunk, Message, Schema
from mcap.stream_reader import StreamReader, breakup_chunk
from rosbags.typesys import Stores, get_typestore

from jaxdyn.io.files import check_unpacked, most_unpacked

_MOST_ENTRIES = 10_000  # of an array in a message; images are longer
_MOST_RATIO = 100  # of the sizes of all messages and of a compressed file
_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "": lambda data, most: data,
    "lz4": lambda data, most: lz4.frame.LZ4FrameDecompressor().decompress(data, most),
    "zstd": lambda data, most: zstandard.ZstdDecompressor().stream_reader(data).read(most),
}


def columns(files: Sequence[BinaryIO], wanted: Collection[str]) -> dict[str, np.ndarray | None]:
    """The columns of a bag of one or several files; those of topics without a wanted column are None.

    Raises:
        ValueError, ..., errors of the libraries: The file is damaged, or a wanted topic has messages of another kind.
    """
    store, topics = get_typestore(Stores.LATEST), dict[str, _Topic]()

    def is_wanted(topic: str) -> bool:
        return any(name.startswith(f"{topic}/") for name in wanted)

    for file in files:
        messages = _of_database if file.read(6) == b"SQLite" else _of_mcap
        file.seek(0)
        for topic, kind, time, data in messages(file, is_wanted):
            if kind not in store.fielddefs:
                if is_wanted(topic):
                    raise ValueError(f"{topic} has messages of type {kind}; give a topic with a standard type of ROS 2")
            elif topic not in topics or is_wanted(topic):
                values = dict(_values(store.deserialize_cdr(data, kind)))
                size = topics.setdefault(topic, _Topic()).add({"received": (1e-9 * time,)} | values)
                check_unpacked(file, 8 * size)
    tables = ((topic, x.arrays() if is_wanted(topic) else dict.fromkeys(x.columns)) for topic, x in topics.items())
    return {f"{topic}/{name}": values for topic, table in tables for name, values in table.items()}


class _Topic:
    """The messages of a topic. Values that a message lacks are NaN, as different nodes may report different joints."""

    def __init__(self):
        self.count, self.columns = 0, dict[str, tuple[int, array]]()

    def add(self, values: dict[str, Any]) -> int:
        """Append a message; the result is the number of all values."""
        for name, entries in values.items():
            if name not in self.columns:
                self.columns[name] = len(entries), array("d", [np.nan]) * (len(entries) * self.count)
            width, column = self.columns[name]
            if width != len(entries):
                raise ValueError(f"{name!r} has {width} values in one message, and {len(entries)} in another one")
            column.extend(entries)
        self.count += 1
        for width, column in self.columns.values():
            column.extend([np.nan] * (width * self.count - len(column)))
        return sum(len(column) for _, column in self.columns.values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns, in the order in which the messages were recorded."""
        order = np.argsort(self.columns["received"][1], kind="stable")
        tables = {name: np.reshape(column, (self.count, width)) for name, (width, column) in self.columns.items()}
        return {name: (table[:, 0] if table.shape[1] == 1 else table)[order] for name, table in tables.items()}


def _values(message: Any, place: str = "") -> Iterator[tuple[str, Sequence[float] | np.ndarray]]:
    """The numeric fields of a message by name."""
    joints = getattr(message, "name", None) or getattr(message, "joint_names", None)
    for field in dataclasses.fields(message):
        value, name = getattr(message, field.name), place + field.name
        if hasattr(value, "nanosec"):
            yield name, (value.sec + 1e-9 * value.nanosec,)
        elif dataclasses.is_dataclass(value):
            yield from _values(value, f"{name}.")
        elif isinstance(value, int | float):
            yield name, (value,)
        elif isinstance(value, np.ndarray) and 0 < len(value) <= _MOST_ENTRIES:
            if isinstance(joints, list) and len(joints) == len(value):
                yield from ((f"{place}{joint}.{field.name}", (x,)) for joint, x in zip(joints, value, strict=True))
            else:
                yield name, value


Messages = Iterator[tuple[str, str, int, bytes]]  # topic, type, time in ns, content


def _of_database(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Messages:
    """All messages of wanted topics, and one of each other topic."""
    path, calls = Path(file.name).resolve(), itertools.count()
    size = path.stat().st_size
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        # A table may be a view that computes its content, without an end.
        database.set_progress_handler(lambda: next(calls) > 1000 + size // 100, 1000)
        pages, width = (database.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
        if pages * width > size:
            raise ValueError("it ends too early")
        topics = {number: rest for number, *rest in database.execute("SELECT id, name, type FROM topics")}
        chosen = [number for number, (topic, _) in topics.items() if is_wanted(topic)]
        condition = f"topic_id IN ({','.join('?' * len(chosen))}) OR rowid IN (SELECT min(rowid) FROM messages GROUP BY topic_id)"
        for number, *rest in database.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE {condition}", chosen
        ):
            yield *topics[number], *rest


def _of_mcap(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Messages:
    """All messages."""
    kinds: dict[int, str] = {}
    channels: dict[int, tuple[str, str]] = {}
    total = 0
    for record in StreamReader(file, emit_chunks=True, record_size_limit=most_unpacked(file)).records:
        parts = [record]
        if isinstance(record, Chunk):
            size = record.uncompressed_size
            check_unpacked(file, max(size, (total := total + size) // _MOST_RATIO))
            data = _UNPACK[record.compression](record.data, size + 1)
            if len(data) != size:
                raise ValueError("the size of its compressed messages is not that which it states")
            parts = breakup_chunk(dataclasses.replace(record, compression="", data=data))
        for part in parts:
            if isinstance(part, Schema):
                kinds[part.id] = part.name
            elif isinstance(part, Channel):
                channels[part.id] = part.topic, kinds.get(part.schema_id, part.message_encoding)
            elif isinstance(part, Message):
                yield *channels[part.channel_id], part.log_time, part.data
