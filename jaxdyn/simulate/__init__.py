"""Motion over time: integrators, controls, rollouts and their diagnostics."""
