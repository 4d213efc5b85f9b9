"""Views: tables and trees as text, pictures and animations (needs matplotlib), interactive replays (needs viser).

Functions take arrays and return text, figures or files; no window is opened and no global state touched. What needs an optional
package is loaded when it is first asked for: `pip install "jaxdyn[pictures]"`, `pip install "jaxdyn[view]"`.
"""

import importlib
from typing import Any

_HOMES = {
    "Replay": "replay",
    "animate": "animation",
    "energy_balance": "plots",
    "joint_fans": "plots",
    "mechanism_picture": "pictures",
    "save": "plots",
    "stick_figure_strip": "plots",
    "tree_diagram": "diagram",
    "tree_text": "tree",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
