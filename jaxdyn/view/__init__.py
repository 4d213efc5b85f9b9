"""Views: tables and trees as text, pictures and animations (needs matplotlib), interactive replays.

Functions take arrays and return text or figures, or write files. They do not open windows and do not change global state. Optional
packages are imported when they are first needed: `pip install "jaxdyn[pictures]"`, `pip install "jaxdyn[view]"`.
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.view.animation import Animation as Animation
    from jaxdyn.view.animation import animate as animate
    from jaxdyn.view.animation import animation_of as animation_of
    from jaxdyn.view.motion import motion_plot as motion_plot
    from jaxdyn.view.notebook import html_of as html_of
    from jaxdyn.view.pictures import mechanism_picture as mechanism_picture
    from jaxdyn.view.plots import energy_balance as energy_balance
    from jaxdyn.view.plots import joint_fans as joint_fans
    from jaxdyn.view.plots import normal_forces as normal_forces
    from jaxdyn.view.plots import save as save
    from jaxdyn.view.plots import stick_figure_strip as stick_figure_strip
    from jaxdyn.view.replay import Replay as Replay
    from jaxdyn.view.tree import tree_text as tree_text
else:
    _pictures = dict.fromkeys(("animation", "motion", "pictures", "plots"), ("matplotlib", "pictures"))
    __getattr__, __dir__, __all__ = lazy_names(__name__, extras=_pictures)
