"""The error function and its inverse, which are used for normally distributed random numbers.

Both functions use the approximations of XLA, so that random numbers differ from those of XLA only by rounding. This includes the
errors of these approximations: for |x| near 1, the inverse in float32 loses digits of 1 - x^2.

    erf      Cephes (S. Moshier), ndtr.c: a quotient of polynomials up to 1, and 1 - e^(-x^2) times another quotient beyond 1
    erf_inv  M. Giles, Approximating the erfinv function, GPU Computing Gems 2 (2011): x times a polynomial of w = -log(1 - x^2)
             for small w, and of its root for large w
"""

import math
from collections.abc import Sequence

from jaxdyn.lanes.flatten import Flattener, Value, kind_of, rule
from jaxdyn.lanes.folding import settled
from jaxdyn.lanes.program import Program, Scalar
from jaxdyn.lanes.rules.repeated import of_each

# Inverse, for each precision: upper limit of w, value to subtract (from w in the first row, from its root in the others), and the
# coefficients, highest power first.
_INVERSE: dict[str, tuple[tuple[float, float, tuple[float, ...]], ...]] = {
    "f32": (
        (
            5.0,
            2.5,
            (
                2.81022636e-08,
                3.43273939e-07,
                -3.5233877e-06,
                -4.39150654e-06,
                0.00021858087,
                -0.00125372503,
                -0.00417768164,
                0.246640727,
                1.50140941,
            ),
        ),
        (
            math.inf,
            3.0,
            (
                -0.000200214257,
                0.000100950558,
                0.00134934322,
                -0.00367342844,
                0.00573950773,
                -0.0076224613,
                0.00943887047,
                1.00167406,
                2.83297682,
            ),
        ),
    ),
    "f64": (
        (
            6.25,
            3.125,
            (
                -3.6444120640178196996e-21,
                -1.685059138182016589e-19,
                1.2858480715256400167e-18,
                1.115787767802518096e-17,
                -1.333171662854620906e-16,
                2.0972767875968561637e-17,
                6.6376381343583238325e-15,
                -4.0545662729752068639e-14,
                -8.1519341976054721522e-14,
                2.6335093153082322977e-12,
                -1.2975133253453532498e-11,
                -5.4154120542946279317e-11,
                1.051212273321532285e-09,
                -4.1126339803469836976e-09,
                -2.9070369957882005086e-08,
                4.2347877827932403518e-07,
                -1.3654692000834678645e-06,
                -1.3882523362786468719e-05,
                0.0001867342080340571352,
                -0.00074070253416626697512,
                -0.0060336708714301490533,
                0.24015818242558961693,
                1.6536545626831027356,
            ),
        ),
        (
            16.0,
            3.25,
            (
                2.2137376921775787049e-09,
                9.0756561938885390979e-08,
                -2.7517406297064545428e-07,
                1.8239629214389227755e-08,
                1.5027403968909827627e-06,
                -4.013867526981545969e-06,
                2.9234449089955446044e-06,
                1.2475304481671778723e-05,
                -4.7318229009055733981e-05,
                6.8284851459573175448e-05,
                2.4031110387097893999e-05,
                -0.0003550375203628474796,
                0.00095328937973738049703,
                -0.0016882755560235047313,
                0.0024914420961078508066,
                -0.0037512085075692412107,
                0.005370914553590063617,
                1.0052589676941592334,
                3.0838856104922207635,
            ),
        ),
        (
            math.inf,
            5.0,
            (
                -2.7109920616438573243e-11,
                -2.5556418169965252055e-10,
                1.5076572693500548083e-09,
                -3.7894654401267369937e-09,
                7.6157012080783393804e-09,
                -1.4960026627149240478e-08,
                2.9147953450901080826e-08,
                -6.7711997758452339498e-08,
                2.2900482228026654717e-07,
                -9.9298272942317002539e-07,
                4.5260625972231537039e-06,
                -1.9681778105531670567e-05,
                7.5995277030017761139e-05,
                -0.00021503011930044477347,
                -0.00013871931833623122026,
                1.0103004648645343977,
                4.8499064014085844221,
            ),
        ),
    ),
}

# erf: numerator and denominator in x^2 of erf x / x up to 1, and in |x| of e^(x^2) (1 - erf |x|) beyond 1.
_NEAR = (
    (
        9.60497373987051638749,
        90.0260197203842689217,
        2232.00534594684319226,
        7003.32514112805075473,
        55592.3013010394962768,
    ),
    (
        1.0,
        33.5617141647503099647,
        521.357949780152679795,
        4594.32382970980127987,
        22629.0000613890934246,
        49267.3942608635921086,
    ),
)
_FAR = (
    (
        2.46196981473530512524e-10,
        0.564189564831068821977,
        7.46321056442269912687,
        48.6371970985681366614,
        196.520832956077098242,
        526.445194995477358631,
        934.528527171957607540,
        1027.55188689515710272,
        557.535335369399327526,
    ),
    (
        1.0,
        13.2281951154744992508,
        86.7072140885989742329,
        354.937778887819891062,
        975.708501743205489753,
        1823.90916687909736289,
        2246.33760818710981792,
        1656.66309194161350182,
        557.535340817727675546,
    ),
)


class _Formula:
    """Arithmetic of one precision on scalars of a program."""

    def __init__(self, program: Program, kind: str):
        self.program, self.kind = program, kind

    def __call__(self, op: str, *xs: Scalar) -> Scalar:
        return self.program.apply(op, tuple(xs), self.kind)

    def select(self, condition: Scalar, if_true: Scalar, if_false: Scalar) -> Scalar:
        return self.program.select(condition, if_true, if_false, self.kind)

    def polynomial(self, x: Scalar, coefficients: Sequence[float]) -> Scalar:
        """Value of a polynomial; coefficients have the highest power first."""
        total: Scalar = settled(coefficients[0], self.kind)
        for c in coefficients[1:]:
            total = self("add", self("mul", total, x), settled(c, self.kind))
        return total


@rule("erf_inv")
def _erf_inv(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.outvars[0]), flat.program
    f = _Formula(program, kind)

    def inverse(x: Scalar) -> Scalar:
        w = f("neg", f("log1p", f("neg", f("mul", x, x))))
        root = f("sqrt", w)
        result: Scalar = math.nan
        for number, (below, center, coefficients) in reversed(list(enumerate(_INVERSE[kind]))):
            here = f.polynomial(f("sub", root if number else w, center), coefficients)
            result = here if below == math.inf else f.select(program.compare("lt", w, below), here, result)
        is_one = program.compare("eq", f("abs", x), 1.0)
        return f.select(is_one, f("mul", x, math.inf), f("mul", result, x))

    return [of_each(flat, inverse, args[0], kind, 100)]


@rule("erf")
def _erf(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.outvars[0]), flat.program
    f = _Formula(program, kind)

    def erf(x: Scalar) -> Scalar:
        square, size = f("mul", x, x), f("min", f("abs", x), 8.0)
        near = f("mul", x, f("div", *(f.polynomial(square, c) for c in _NEAR)))
        rest = f("mul", f("exp", f("neg", square)), f("div", *(f.polynomial(size, c) for c in _FAR)))
        far = f("sub", 1.0, rest)
        signed = f.select(program.compare("lt", x, 0.0), f("neg", far), far)
        return f.select(program.compare("lt", size, 1.0), near, signed)

    return [of_each(flat, erf, args[0], kind, 100)]
