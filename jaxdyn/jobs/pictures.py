"""Pictures of jobs, which are drawn only if matplotlib is installed."""

import pkgutil
from typing import Any

from jaxdyn.compute.announcements import announced_as


@announced_as("pictures")
def draw_pictures(name: str, *arguments: Any) -> list[str]:
    """Call a function that draws pictures; returns the names of their files, none without matplotlib, which a note then states.

    Args:
        name: Name "package.module:function" of the function; its module imports matplotlib.
        arguments: Arguments of the function.
    """
    try:
        draw = pkgutil.resolve_name(name)
    except ImportError:
        print('no pictures: matplotlib is not installed; pip install "jaxdyn[pictures]"')
        return []
    return draw(*arguments)
