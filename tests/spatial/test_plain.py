"""Rotations in NumPy agree with those of SciPy, at half turns and for quaternions of any norm too."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxdyn.spatial.plain import rotation_matrix, rotation_quaternion

RANDOM = list(np.random.default_rng(0).normal(size=(50, 4)))
HALF_TURNS = [np.eye(4)[1], np.eye(4)[2], np.eye(4)[3], np.array([0.0, 0.6, 0.0, -0.8])]
NEARLY_HALF_TURNS = [turn + np.array([1e-9, 0.0, 0.0, 0.0]) for turn in HALF_TURNS]
QUATERNIONS = [np.eye(4)[0], *HALF_TURNS, *NEARLY_HALF_TURNS, *RANDOM]


@pytest.mark.parametrize("quaternion", QUATERNIONS)
def test_matrix_and_quaternion_agree_with_scipy(quaternion):
    expected = Rotation.from_quat(quaternion, scalar_first=True)
    matrix = rotation_matrix(quaternion)
    np.testing.assert_allclose(matrix, expected.as_matrix(), rtol=0, atol=1e-15)
    back = rotation_quaternion(matrix)
    assert back[np.argmax(np.abs(back))] > 0
    unit = quaternion / np.linalg.norm(quaternion)
    np.testing.assert_allclose(np.sign(back @ unit) * back, unit, rtol=0, atol=1e-15)
    np.testing.assert_allclose(rotation_matrix(-3.0 * quaternion), matrix, rtol=0, atol=1e-15)
