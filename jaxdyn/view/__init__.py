"""Pictures of motion. Needs matplotlib: `pip install "jaxdyn[pictures]"`.

Functions take arrays and return figures; nothing is shown.
"""

from jaxdyn.view.plots import energy_balance as energy_balance
from jaxdyn.view.plots import joint_fans as joint_fans
from jaxdyn.view.plots import stick_figure_strip as stick_figure_strip
