"""A mechanism in the browser with one slider per joint coordinate. Needs viser: `pip install "jaxdyn[view]"`."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from jaxdyn.io.visuals import Visual
from jaxdyn.view.postures import Posture, Postures
from jaxdyn.view.scene import Scene
from jaxdyn.view.serving import Served
from jaxdyn.view.skeleton import Mechanism

_STEPS = 1000  # of a slider at least
_DIGITS = 4  # behind the point, of a value that is shown


class ServedMechanism(Served):
    """A running server of a mechanism; used as a context manager, it stops at the end of the context.

    The browser shows the mechanism and a slider for each joint coordinate; a mechanism with loops has sliders for the independent
    coordinates only. Buttons set the neutral posture, the middle of the joint limits, or a random posture. Switches show inertia
    ellipsoids, joint axes and frames. All connected browsers show the same state.

    Attributes:
        postures: The postures of the mechanism.
        posture: Posture that is shown.
    """

    def __init__(
        self, mechanism: Mechanism, port: int = 8080, host: str = "127.0.0.1", *, visuals: Sequence[Visual] = ()
    ):
        """Serve a mechanism and return immediately.

        Args:
            port: Port of the server. If the port is in use, the next free port is used, as `address` shows.
            host: 127.0.0.1 for this computer only; with 0.0.0.0, other computers in the network can view the mechanism and move the
                sliders. From browsers, the server accepts only requests from the page that it serves, opened as localhost, as an IP
                address, or as the name of this computer.
            visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`.

        Raises:
            ConfigError: the loops of the mechanism cannot be closed.
        """
        self.postures = postures = Postures(mechanism)
        self.posture = postures.middle
        model, low_and_high = postures.system.model, postures.box(visuals)
        super().__init__(model.name, port, host)
        self._scene = Scene(self.server, postures.system, *low_and_high, visuals)
        self._wanted: Callable[[], Posture | None] | None = None
        self._seeds = itertools.count(1)
        self._add_buttons()
        self._add_sliders()
        self._add_switches(self._scene)
        self._show(self.posture)
        self._follow(self._update)

    def _add_buttons(self) -> None:
        gui, postures = self.server.gui, self.postures
        self._said = gui.add_markdown("", visible=False)
        with gui.add_folder("Posture"):
            buttons = gui.add_button_group("", ["neutral", "middle", "random"])
        acts = {
            "neutral": postures.neutral,
            "middle": lambda: postures.middle,
            "random": lambda: postures.random(next(self._seeds)),
        }
        buttons.on_click(lambda _: setattr(self, "_wanted", acts[buttons.value]))

    def _add_sliders(self) -> None:
        gui, postures = self.server.gui, self.postures
        self._controls = {}
        for title, is_time in (("Joints", False), ("Prescribed motion", True)):
            members = [i for i in postures.independent if (postures.sliders[i].unit == "s") == is_time]
            if members:
                with gui.add_folder(title):
                    self._controls |= {i: self._slider(i) for i in members}
        self._shown = {i: control.value for i, control in self._controls.items()}

    def _slider(self, index: int):
        slider = self.postures.sliders[index]
        step = 10.0 ** np.floor(np.log10((slider.high - slider.low) / _STEPS))
        limits = f": {slider.low:.6g} to {slider.high:.6g} {slider.unit}" if slider.limited else " has no limits"
        return self.server.gui.add_slider(
            f"{slider.name} ({slider.unit})",
            min=slider.low,
            max=slider.high,
            step=step,
            initial_value=slider.low,
            hint=f"{slider.name}{limits}",
            marks=tuple((end, f"{end:.2g}") for end in (slider.low, slider.high)),
        )

    def _update(self) -> None:
        """Show the posture that a button requests, or that of the sliders if one of them has been moved."""
        wanted, self._wanted = self._wanted, None
        moved = {i: float(control.value) for i, control in self._controls.items() if control.value != self._shown[i]}
        if wanted is not None:
            self._show(wanted(), "The loops do not close in that posture.")
        elif moved:
            self._shown |= moved
            values = self.posture.values.copy()
            values[list(moved)] = list(moved.values())
            self._show(
                self.postures.moved(self.posture, values), "The loops do not close there.", moved=frozenset(moved)
            )

    def _show(self, posture: Posture | None, problem: str = "", moved: frozenset[int] = frozenset()) -> None:
        """Show a posture, or the reason why it does not exist.

        Args:
            moved: The sliders that are being moved, which stay where they are.
        """
        self._said.content = f"{problem} The last posture is shown." if posture is None else ""
        self._said.visible = posture is None
        if posture is None:
            return
        with self.server.atomic():
            self._scene.show(self.postures.placed([posture]), [], 0)
            for i in self._controls.keys() - moved:
                slider, value = self.postures.sliders[i], float(posture.values[i])
                shown = round(min(max(value, slider.low), slider.high), _DIGITS)
                self._controls[i].value = self._shown[i] = shown
        self.posture = posture
