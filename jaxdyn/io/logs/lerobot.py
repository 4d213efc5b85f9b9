"""LeRobot data sets, folders of Parquet files: an episode is a recording, whose name is "episode_" and its index.

The names of joints that the data set states are names of columns: "observation.state.elbow" is a part of "observation.state".
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jaxdyn.io.files import LARGEST_ARRAYS
from jaxdyn.io.logs import parquet
from jaxdyn.io.reading import content, opened

_REMEDY = "download the data set again"
_LARGEST_INFO = 2**24  # bytes


def columns(episode: Path, wanted: Iterable[str]) -> dict[str, np.ndarray | None]:
    """The columns of an episode; those that are not wanted are None.

    Args:
        episode: Folder of the data set, and name of the episode.
        wanted: Names of columns.

    Raises:
        ConfigError: A file cannot be opened.
        ValueError, KeyError, ..., errors of pyarrow: A file is damaged, or there is no such episode.
    """
    folder, number = episode.parent, int(re.sub(r"\D", "", episode.name))
    features = json.loads(content(folder / "meta" / "info.json", _LARGEST_INFO, _REMEDY))["features"]
    parts = {f"{f}.{name}": (f, k) for f, entry in features.items() for k, name in enumerate(_names(entry))}
    sources = {parts[name][0] if name in parts else name for name in wanted}
    own = folder.glob(f"data/chunk-*/episode_{number:06d}.parquet")
    for path in sorted(own) or sorted(folder.glob("data/chunk-*/file-*.parquet")):  # of many episodes since version 3
        with opened(path, LARGEST_ARRAYS, _REMEDY) as file:
            rows = np.asarray(parquet.columns([file], ["episode_index"])["episode_index"]) == number
            if rows.any():
                table = {k: x if x is None else x[rows] for k, x in parquet.columns([file], sources).items()}
                within = {name: (table[f], k) for name, (f, k) in parts.items() if f in table}
                return table | {name: None if x is None else x[:, k] for name, (x, k) in within.items()}
    raise ValueError(f"there is no episode {number} in the files of the data set")


def _names(feature: dict) -> list[str]:
    """Names of the components of a feature; some data sets group them."""
    names = feature.get("names") or []
    return [name for group in names.values() for name in group] if isinstance(names, dict) else names
