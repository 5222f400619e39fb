import ast
import hashlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

from streammetrics.kernels._jit import kernel
from streammetrics.kernels.elementary import inline  # which makes numba know the steps that are of Python
from streammetrics.numerics import elementary, student_t
from streammetrics.numerics.elementary import log_parts, minus_log

ROOT = Path(__file__).parents[2]
EDGES = 2.0 ** np.arange(-1022, 1024)
NEAR_ONE = 1.0 + np.arange(-300, 300) * 2.0**-53


def exact_x_minus_log1p(x):
    with mpmath.workprec(1400):
        return x - mpmath.log1p(x)


def log_in_halves(x):
    k, f, s = log_parts(x)
    return -minus_log(k, f, s)


UNARY = {  # name: (exact function, bound in ulp)
    "log": (mpmath.log, 0.8),
    "log_in_halves": (mpmath.log, 1.25),
    "log1p": (mpmath.log1p, 0.8),
    "exp": (mpmath.exp, 0.9),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), 2.5),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), 1.5),
    "x_minus_log1p": (exact_x_minus_log1p, 5.5),
}


def points(name, n):
    """Edges of the domain of a function and random points; their bits are the same on every processor, too."""
    r = np.random.default_rng(7)
    if name in ("log", "log_in_halves"):
        root = np.sqrt(0.5) + np.arange(-50, 50) * 2.0**-53  # where the exponent of the reduction changes
        edges = np.concatenate([EDGES, np.nextafter(EDGES, 0)[1:], NEAR_ONE, root, 2 * root, [np.finfo(float).max]])
        return np.concatenate(
            [edges, elementary.exp(r.uniform(-708, 709, n)), r.uniform(0.3, 2, n), r.uniform(0, 1, n)]
        )
    if name == "log1p":
        edges = np.concatenate([EDGES, NEAR_ONE - 2, NEAR_ONE - 1, np.sqrt([0.5, 2.0]) - 1, [0.0, -0.5, 5e-324]])
        edges = edges[edges > -1]
        return np.concatenate(
            [edges, elementary.exp(r.uniform(-740, 700, n)), r.uniform(-1, 2, n), -elementary.exp(r.uniform(-99, 0, n))]
        )
    if name == "x_minus_log1p":
        edges = np.concatenate([2.0 ** np.arange(-500, 1000), NEAR_ONE, 0.4 + np.arange(-50, 50) * 2.0**-54, [0.0]])
        return np.concatenate(
            [edges, elementary.exp(r.uniform(-345, 300, n)), r.uniform(0, 4, n), r.uniform(0.3, 1, n)]
        )
    halves = (np.arange(-1060, 1020) + 0.5) * 0.6931471805599453  # where the rounding of x / log(2) changes
    edges = np.concatenate([halves, np.nextafter(halves, 0), np.arange(-740.0, 709), [0.0, -0.0, 5e-324, 709.78]])
    return np.concatenate([edges, r.uniform(-745, 709.7, n), r.uniform(-40, 40, n), r.uniform(-1e-5, 1e-5, n)])


FUNCTIONS = {name: log_in_halves if name == "log_in_halves" else getattr(elementary, name) for name in UNARY}


def ulps(got, exact):
    size = mpmath.mpf(float(np.spacing(abs(float(exact)))))
    return float(abs(mpmath.mpf(float(got)) - exact) / size)


def loop(name):
    step = inline(FUNCTIONS[name])

    @kernel(out=("out",))
    def run(x, out):
        for i in range(x.shape[0]):
            out[i] = step(x[i])

    return run


LOOPS = {name: loop(name) for name in UNARY}


power = inline(elementary.power)


@kernel(out=("out",))
def power_loop(x, y, out):
    for i in range(x.shape[0]):
        out[i] = power(x[i], y[i])


def power_points(n):
    r = np.random.default_rng(3)
    x = np.concatenate([elementary.exp(r.uniform(-700, 700, n)), r.uniform(0.4, 3, n)])
    return x, r.uniform(-700, 700, 2 * n) / elementary.log(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_error(name):
    function, bound = UNARY[name]
    x = points(name, 1500)
    with mpmath.workprec(160):
        errors = [ulps(g, function(mpmath.mpf(v))) for g, v in zip(FUNCTIONS[name](x), x.tolist(), strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] < bound, float(x[worst]).hex()


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_scalar_array_and_compiled_agree(name):
    x = points(name, 1 << 19)[:1_000_000]
    function = FUNCTIONS[name]
    got = function(x)
    out = np.empty_like(x)
    LOOPS[name](x, out)
    assert got.tobytes() == out.tobytes()
    some = x[:: x.size // 2000]
    assert np.array([function(v) for v in some]).tobytes() == got[:: x.size // 2000].tobytes()
    assert np.array([function(v) for v in some.tolist()]).tobytes() == got[:: x.size // 2000].tobytes()
    assert function(x[:6].reshape(2, 3)).tobytes() == function(x[:12].copy()[:6]).tobytes()
    assert type(function(0.5)) is np.float64


@pytest.mark.parametrize("name", UNARY)
def test_monotone(name):
    """Where the function is steep enough that one step of x is more than the error, order holds for neighbours, too."""
    x = np.sort(points(name, 20000))
    x = x[np.flatnonzero(np.diff(x, prepend=-np.inf) > 1e-13 * abs(x))]
    if name in ("log", "log_in_halves"):
        x = x[(x < 0.9) | (x > 1.1)]
    assert np.all(np.diff(FUNCTIONS[name](x)) >= 0)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 assembly")
def test_vectorises_without_fused_operations(name):
    run = LOOPS[name]
    run(np.ones(8), np.empty(8))
    library = next(iter(run.dispatcher.overloads.values())).library
    text = library._codegen._tm.emit_assembly(library._get_module_for_linking())
    packed, scalar = (len(re.findall(rf"\bv?div{kind}\b", text)) for kind in ("pd", "sd"))
    assert packed >= 1
    assert scalar <= 2 * packed + 2  # the rest of a loop only
    assert not re.search(r"\bvf(n?)m(add|sub)|\b(log|exp|pow|log1p)\b@", text)


def test_special_values():
    e = elementary
    assert e.log(1.0) == 0
    assert e.log1p(0.0) == e.x_minus_log1p(0.0) == 0
    assert e.exp(0.0) == e.exp(-0.0) == 1
    assert e.exp(-746.0) == e.exp(-1e308) == e.exp(-np.inf) == 0
    assert e.exp(-745.1) == 5e-324
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert list(e.exp(np.array([709.79, 1e308, np.inf]))) == [np.inf] * 3
    assert np.isnan([e.exp(np.nan), e.sigmoid(np.nan), e.softplus(np.nan)]).all()
    assert [e.sigmoid(v) for v in (-np.inf, -800.0, 0.0, 40.0, np.inf)] == [0, 0, 0.5, 1, 1]
    assert [e.softplus(v) for v in (-np.inf, -1e300, 800.0, 1e308, np.inf)] == [0, 0, 800, 1e308, np.inf]
    assert e.softplus(-700.0) == e.exp(-700.0)
    assert e.log(np.float32(0.1)) == e.log(float(np.float32(0.1)))


@pytest.mark.slow
def test_power():
    x, y = power_points(4000)
    got = elementary.power(x, y)
    with mpmath.workprec(200):
        for g, a, b in zip(got.tolist(), x.tolist(), y.tolist(), strict=True):
            assert ulps(g, mpmath.mpf(a) ** mpmath.mpf(b)) < 1 + abs(b * np.log(a)) / 16
    assert [elementary.power(2.0, k) for k in range(-1074, 1024)] == [2.0**k for k in range(-1074, 1024)]
    assert np.all(elementary.power(10.0, np.arange(23.0)) == [float(10**k) for k in range(23)])
    assert elementary.power(3.0, 0.0) == elementary.power(1.0, 1e200) == 1
    assert elementary.power(0.5, 1e200) == 0


@pytest.mark.slow
def test_power_agrees_in_all_forms():
    x, y = power_points(200_000)
    got, out = elementary.power(x, y), np.empty_like(x)
    power_loop(x, y, out)
    assert got.tobytes() == out.tobytes()
    assert np.array([elementary.power(a, b) for a, b in zip(x[:999].tolist(), y.tolist(), strict=False)]).tobytes() == (
        got[:999].tobytes()
    )


@pytest.mark.parametrize("df", [1.0, 1.5, 2.0, 3.0, 7.3, 29.0, 200.0, 1e4, 1e7, 1e12])
def test_t_quantile_against_scipy(df):
    stats = pytest.importorskip("scipy.stats")  # here, for the sake of the processes that run `digest`
    for p in [1e-12, 1e-6, 0.001, 0.025, 0.05, 0.19, 0.2, 0.21, 0.3, 0.49, 0.6, 0.9, 0.975, 0.995]:
        t = student_t.t_quantile(p, df)
        assert t == pytest.approx(stats.t.ppf(p, df), rel=1e-9)  # scipy before 1.17 is off by 2e-11
        assert student_t.t_tail(t, df) == pytest.approx(1 - p, rel=1e-12)  # the tail is held to the exact integral
        assert student_t.t_tail(-t, df) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("df", [1, 2.5, 30, 1000, 10**6])
def test_t_tail_against_the_exact_integral(df):
    for t in [1e-8, 0.01, 0.3, 1.0, 1.999, 2.0, 3.0, 6.0, 15.0]:
        with mpmath.workdps(40):
            a, x = mpmath.mpf(df) / 2, df / (df + mpmath.mpf(t) ** 2)
            exact = mpmath.betainc(a, 0.5, 0, x, regularized=True) / 2
        assert student_t.t_tail(t, df) == pytest.approx(float(exact), rel=1e-13)
        assert student_t.t_tail(-t, df) == pytest.approx(float(1 - exact), rel=1e-13)


def test_normal_quantile():
    for p in [1e-100, 1e-30, 1e-9, 0.001, 0.025, 0.2, 0.2001, 0.4, 0.5 - 1e-9, 0.75, 0.975, 0.9999999]:
        z = student_t.normal_quantile(p)
        with mpmath.workdps(150):
            # One exact step of Newton from the answer is its error.
            error = (mpmath.ncdf(z) - mpmath.mpf(p)) / mpmath.npdf(z) / z
        assert abs(float(error)) < 1e-14
    assert student_t.normal_quantile(0.5) == student_t.t_quantile(0.5, 3) == 0
    assert student_t.normal_quantile(0.975) == -student_t.normal_quantile(1 - 0.975)
    assert student_t.normal_quantile(0.975) == pytest.approx(1.959963984540054, rel=1e-14)
    assert student_t.t_quantile(0.975, np.inf) == student_t.normal_quantile(0.975)
    assert student_t.normal_tail(1.96) == pytest.approx(0.02499789514822043, rel=1e-13)
    assert student_t.normal_tail(0.0) == 0.5


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (2, 1)])
@pytest.mark.parametrize("name", [*UNARY, "power"])
def test_results_have_the_form_of_what_is_given(name, shape):
    x = np.full(shape, 0.5)[()]
    found = FUNCTIONS[name](x) if name in UNARY else elementary.power(x, 2.0)
    assert np.shape(found) == shape
    assert found.dtype == np.float64


def test_only_operations_that_are_the_same_everywhere():
    tree = ast.parse(Path(elementary.__file__).read_text())
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert used == {"float64", "int64", "asarray", "minimum", "maximum", "view"}
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert {a.name for n in imports for a in n.names} == {"annotations", "Any", "numpy"}
    theirs = [n for n in ast.walk(ast.parse(Path(student_t.__file__).read_text())) if isinstance(n, ast.Attribute)]
    of_numpy = {n.attr for n in theirs if isinstance(n.value, ast.Name) and n.value.id == "np"}
    assert of_numpy <= {
        "float64", "bool_", "asarray", "broadcast_arrays", "minimum", "where", "sqrt", "zeros", "ones", "full", "inf",
        "errstate",
    }  # fmt: skip
    powers = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    assert all(isinstance(ast.literal_eval(side), (int, float)) for n in powers for side in (n.left, n.right))


def digest():
    """Hash results of every function; runs in a process of its own. The compiled ones contain all the others."""
    total = hashlib.sha256()
    for name in UNARY:
        total.update(FUNCTIONS[name](points(name, 4000)).tobytes())
    for name in ("log", "log_in_halves", "softplus", "x_minus_log1p"):
        x = points(name, 4000)
        out = np.empty_like(x)
        LOOPS[name](x, out)
        total.update(out.tobytes())
    x, y = power_points(4000)
    out = np.empty_like(x)
    power_loop(x, y, out)
    total.update(out.tobytes())
    grid = [student_t.t_quantile(p, df) for p in (1e-9, 0.025, 0.3, 0.9) for df in (1.0, 4.5, 300.0, 1e9)]
    for df in (1.0, 4.5, 63.0, 1e9):
        for x in (1e-5, 0.3, 2.0, 11.0, 40.0):
            grid += [student_t.normal_of_t(x, df), student_t.t_of_normal(x, df)]
    total.update(np.array(grid).tobytes())
    return total.hexdigest()


@pytest.mark.slow
def test_bits_do_not_depend_on_the_processor():
    from machines import machines

    command = [sys.executable, "-W", "error", __file__]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.Popen(command, env={**environment, **machine}, stdout=subprocess.PIPE, text=True)
        for machine in machines()
    ]
    digests = [digest() + "\n"] + [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs)
    assert len(set(digests)) == 1, digests


@pytest.mark.slow
def test_works_without_numba():
    code = "import sys; from streammetrics.numerics.elementary import log; log(2.0); sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


if __name__ == "__main__":
    print(digest())
