"""Scalar forms of JAX primitives.

The rule of a primitive gets the flattener, the equation and the argument arrays, and returns the results.
"""

from jaxdyn.lanes.rules import arithmetic as arithmetic
from jaxdyn.lanes.rules import error_functions as error_functions
from jaxdyn.lanes.rules import functions as functions
from jaxdyn.lanes.rules import matrices as matrices
from jaxdyn.lanes.rules import positions as positions
from jaxdyn.lanes.rules import products as products
from jaxdyn.lanes.rules import random as random
from jaxdyn.lanes.rules import shapes as shapes
from jaxdyn.lanes.rules import sums as sums
