"""The public API as text: names with their parameters and defaults, options of the command line, and fields of JSON."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from enum import Enum
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer
from kept import Kept
from serve.evaluations import AGREED, FakeStore, mismatch, weird

import streammetrics as sm
from streammetrics.cli import app
from streammetrics.cli.records import COMPARISON_COLUMNS, CSV
from streammetrics.cli.tasks import TaskSpec
from streammetrics.collect.metric import Metric
from streammetrics.serve.alerts import Alerts
from streammetrics.serve.api.results import build_results
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.prometheus import GAUGES
from streammetrics.serve.store import open_store

ROOT = Path(sm.__file__).parent

FOR_AUTHORS = {
    "at_each", "bins", "domain", "free", "gradient", "moves", "sealed_metric", "spread", "term", "terms",
    "threshold_of", "undefined_value", "width",
}  # fmt: skip
"""Members of metrics that only authors of metrics override."""

MODULES: dict[str, tuple[str, ...]] = {
    "engines": (),
    "engines.beam": ("FoldRows", "FoldTables", "GroupQueries", "Merge"),
    "engines.dask": (),
    "engines.duckdb": (),
    "engines.flink": (),
    "engines.local": (),
    "engines.parts": ("find_read_columns", "fold_part", "merge_results"),
    "engines.polars": (),
    "engines.ray": (),
    "engines.spark": (),
    "hooks.catboost": (),
    "hooks.compilation": (),
    "hooks.ignite": ("IgniteMetric",),
    "hooks.jax": ("Deferred",),
    "hooks.jax_distributed": (),
    "hooks.keras": ("Evaluate", "KerasMetric", "KerasMetric.metrics"),
    "hooks.lifetime": ("Lifetime", "Lifetime.flat", "Lifetime.lifetime", "Lifetime.window"),
    "hooks.lightgbm": (),
    "hooks.lightning": ("MetricCheckpoint",),
    "hooks.mpi": (),
    "hooks.torch": (
        "Deferred", "Deferred.compute", "Deferred.copy", "Deferred.digest", "Deferred.flush", "Deferred.merge",
        "Deferred.pending", "Deferred.reset", "Deferred.to_bytes", "Deferred.update", "load_state_dict", "state_dict",
    ),
    "hooks.torch_distributed": (),
    "hooks.torchmetrics": ("TorchMetric", "TorchMetric.metric", "TorchMetric.update"),
    "hooks.transformers": (),
    "hooks.xgboost": (),
    "io.demo": ("write_demo_log",),
    "io.evaluate": ("EvaluatedLog", "EvaluatedLog.bundle", "evaluate"),
    "io.logs": ("Log", "Log.columns", "Log.parts", "LogError", "LogPart", "LogPart.batches"),
    "io.trec": (),
    "serve.grafana": (),
}  # fmt: skip
"""The modules that users import beside `streammetrics`, each with its public names; by default, those of `__all__`."""

KEYED_BY_DATA = {"dropped", "metrics", "slice"}
"""Fields of JSON whose value is an object with a key for each metric, column or reason."""


def describe() -> Iterator[tuple[str, list[str]]]:
    """Yield each section of the API: its title and its lines."""
    names = [name for name in dir(sm) if not inspect.ismodule(getattr(sm, name)) and not name.startswith("__")]
    yield "streammetrics", describe_names(sm, names)
    yield "streammetrics.results", describe_names(sm.results, sm.results.__all__)
    yield "streammetrics.extend", describe_names(sm.extend, sm.extend.__all__)
    for name, public in MODULES.items():
        yield f"streammetrics.{name}", sorted(describe_module(name, public))
    yield "extras of the package", list_extras()
    yield "streammetrics, the command", list(describe_command(app.app, "streammetrics"))
    yield "columns of eval --format csv", [*CSV, *(f"comparisons: {name}" for name in COMPARISON_COLUMNS)]
    yield "keys of a file for eval --task", sorted(field.name for field in fields(TaskSpec))
    yield "keys of the definition of an experiment", sorted(field.name for field in fields(Experiment))
    yield "addresses of the dashboard", list_addresses()
    yield "JSON of /v1/experiments/ID/results", list_result_fields()
    yield "JSON of a webhook", list_alert_fields()
    yield "gauges of /metrics", [f"{name}{{{', '.join(labels)}}}" for name, (_, labels) in sorted(GAUGES.items())]


# -- Python ------------------------------------------------------------------------------------------------------------


def describe_names(module: Any, names: Iterable[str]) -> list[str]:
    return sorted(line for name in names for line in describe_object(name, getattr(module, name)))


def describe_object(name: str, thing: Any) -> Iterator[str]:
    """Yield the line of a name, and one for each public member of a class."""
    if not isinstance(thing, type):
        yield f"{name}{format_signature(thing)}" if inspect.isroutine(thing) else name
    elif issubclass(thing, Exception):
        yield f"{name} is a {', '.join(base.__name__ for base in thing.__bases__)}"
    else:
        yield f"{name}{format_signature(thing)}"
        # The base classes for authors of metrics have a hundred members each. Users see those of Metric.
        if thing is Metric or thing.__name__ not in sm.extend.__all__:
            for member in sorted(list_members(thing)):
                value = inspect.getattr_static(thing, member)
                value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                yield f"{name}.{member}{format_signature(value) if inspect.isfunction(value) else ''}"


def list_members(cls: type) -> set[str]:
    """Return the public names that a class and its bases in this package define, without fields of the constructor.

    A metric leaves out what is the same for all metrics, and what only authors of metrics override.
    """
    bases = [base for base in cls.__mro__ if base.__module__.startswith("streammetrics")]
    names = {name for base in bases for name in vars(base) if not name.startswith("_")}
    names -= {*getattr(cls, "__dataclass_fields__", ()), *getattr(cls, "_fields", ())}
    if not issubclass(cls, Metric) or cls is Metric:
        return names
    has_own_update = inspect.signature(cls.update) != inspect.signature(Metric.update)
    return names - set(dir(Metric)) - FOR_AUTHORS | ({"update"} if has_own_update else set())


def format_signature(thing: Any) -> str:
    """Return the parameters with their defaults, without types, and without `self`."""
    found = inspect.signature(thing)
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name not in ("self", "cls")]
    text = str(found.replace(parameters=parameters, return_annotation=found.empty))
    # A default that has no literal is shown by its name: `relative_slack`, `MISSING`.
    return re.sub(r"<(?:function |dataclasses\._)(\w+?)(?:_TYPE object)? at 0x\w+>", r"\1", text)


def describe_module(name: str, public: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a module. The module is parsed rather than imported, as its framework may not be installed."""
    for one in public or exported_names(parse(name)):
        owner, _, member = one.partition(".")
        module, node = find_definition(name, owner)
        methods = find_methods(module, node)
        if isinstance(node, ast.FunctionDef):
            yield f"{one}({format_arguments(node.args)})"
        elif member:
            yield describe_method(one, methods[member])
        elif isinstance(node, ast.ClassDef):
            yield f"{one}({format_constructor(node, methods)})"
            shown = () if public else sorted(method for method in methods if not method.startswith("_"))
            yield from (describe_method(f"{one}.{method}", methods[method]) for method in shown)
        else:
            yield one


@cache
def parse(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def exported_names(tree: ast.Module) -> list[str]:
    """Return the names in `__all__`."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (names,) = [ast.literal_eval(n.value) for n in assigned if ast.unparse(n.targets[0]) == "__all__"]
    return list(names)


def find_definition(module: str, name: str) -> tuple[str, ast.stmt]:
    """Return the module that defines a name, and the definition. `module` defines the name, or imports it."""
    for node in parse(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            folder = module if (ROOT / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]
            origin = resolve_name(f"{'.' * node.level}{node.module}", f"streammetrics.{folder}")
            if origin.startswith("streammetrics."):
                return find_definition(origin.removeprefix("streammetrics."), name)
    raise LookupError(f"{module} does not define {name}")


def find_methods(module: str, node: ast.stmt) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class and of its bases in this package."""
    methods: dict[str, ast.FunctionDef] = {}
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            # The other bases are those of frameworks.
            with contextlib.suppress(LookupError):
                methods |= find_methods(*find_definition(module, ast.unparse(base).partition("[")[0]))
        methods |= {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    return methods


def format_constructor(node: ast.ClassDef, methods: dict[str, ast.FunctionDef]) -> str:
    if "__init__" in methods:
        return format_arguments(methods["__init__"].args)
    field_names = [ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)]
    return ", ".join(name for name in field_names if not name.startswith("_"))


def describe_method(name: str, method: ast.FunctionDef) -> str:
    is_property = any(ast.unparse(one) in ("property", "cached_property") for one in method.decorator_list)
    return name if is_property else f"{name}({format_arguments(method.args)})"


def format_arguments(arguments: ast.arguments) -> str:
    """Return parameters with their defaults, without types, and without `self`."""
    bare = ast.parse(f"def function({ast.unparse(arguments)}): ...").body[0]
    assert isinstance(bare, ast.FunctionDef)
    for names in (bare.args.posonlyargs, bare.args.args):
        names[:] = [one for one in names if one.arg not in ("self", "cls")]
    for node in ast.walk(bare.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(bare.args)


def list_extras() -> list[str]:
    """Return the extras that users install, from the file beside the tests."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    return sorted(project["optional-dependencies"])


# -- the command line --------------------------------------------------------------------------------------------------


def describe_command(commands: typer.Typer, path: str) -> Iterator[str]:
    """Yield a line for each command, argument and option."""
    yield path
    if commands.registered_callback is not None:
        yield from describe_options(commands.registered_callback.callback, path)
    for one in sorted(commands.registered_commands, key=lambda one: str(one.name)):
        yield f"{path} {one.name}"
        yield from describe_options(one.callback, f"{path} {one.name}")
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from describe_command(group.typer_instance, f"{path} {group.name}")


def describe_options(function: Any, path: str) -> Iterator[str]:
    """Yield a line for each argument and option that a function declares."""
    hints = get_type_hints(function, include_extras=True)
    for one in inspect.signature(function).parameters.values():
        for info in getattr(hints[one.name], "__metadata__", ()):
            yield f"{path} {describe_option(one, hints[one.name].__origin__, info)}"


def describe_option(parameter: inspect.Parameter, kind: Any, info: Any) -> str:
    """Return the names, the metavar or the choices, the default and the environment variable of an option."""
    kinds = {kind, *get_args(kind)}
    choices = [value for one in kinds if isinstance(one, type) and issubclass(one, Enum) for value in one]
    default = parameter.default
    is_option = isinstance(info, typer.models.OptionInfo)
    words = [", ".join(info.param_decls or [f"--{parameter.name.replace('_', '-')}"])] if is_option else []
    words += ["|".join(choices) or info.metavar or ""]
    words += [f"= {getattr(default, 'value', default)}"] * (default not in (None, False, parameter.empty))
    words += ["(required)"] * (default is parameter.empty)
    words += ["(repeated)"] * any(get_origin(one) is list for one in kinds)
    words += [f"(${info.envvar})"] * bool(info.envvar)
    return " ".join(filter(None, words))


# -- JSON --------------------------------------------------------------------------------------------------------------


def list_fields(value: Any, path: str = "") -> set[str]:
    """Return the paths of all fields, such as `arms[].share`; `*` stands for a key that the data determine."""
    if isinstance(value, dict):
        by_data = path.rpartition(".")[2] in KEYED_BY_DATA
        inner = [list_fields(one, f"{path}.{'*' if by_data else key}") for key, one in value.items()]
        return set().union(*inner) if inner else {path.lstrip(".")}
    if isinstance(value, list):
        inner = [list_fields(one, f"{path}[]") for one in value]
        return set().union(*inner) if inner else {f"{path}[]".lstrip(".")}
    return {path.lstrip(".")}


def list_union_of_fields(values: Iterable[Any]) -> list[str]:
    """Return the fields of any of these values. A field that is null in one value has inner fields in another."""
    found = set().union(*map(list_fields, values))
    return sorted(one for one in found if not any(other.startswith((f"{one}.", f"{one}[")) for other in found))


def list_result_fields() -> list[str]:
    experiment = Experiment.from_dict(AGREED)
    store = FakeStore({})
    found = [
        build_results(one, experiment, store.decisions("weird"), store.annotations("weird"))
        for one in (weird(), mismatch())
    ]
    return list_union_of_fields(json.loads(json.dumps(found)))


def list_alert_fields() -> list[str]:
    store = Kept("weird")
    # Nothing is sent, because the object that sends alerts is not started.
    Alerts(store).notify(mismatch(), ["http://127.0.0.1:9"])
    states = [json.loads(one) for found in store.alerts.values() for one in found.values()]
    return sorted({key for state in states for _, sent in state["pending"] for key in sent})


def list_addresses() -> list[str]:
    """Return the addresses for programs. Pages and what they load are not part of the API."""
    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/store.db") as store:
        routes = build_dashboard(store).routes
    found = {(one.path, method) for one in routes for method in one.methods or () if method != "HEAD"}
    public = ("/v1/", "/metrics", "/healthz", "/readyz")
    return sorted(f"{path} {method}" for path, method in found if path.startswith(public))


def list_eval_fields() -> list[str]:
    """Return the fields of `eval --format json`, with users, comparisons, verdicts and slices."""
    rows = [f"{i % 2},{i * 7 % 10 / 10},{'ab'[i // 2 % 2]},{i // 8},{'xy'[i // 2 % 3 == 0]}" for i in range(4000)]
    options = "--label click --score p --arm arm --control a --unit user --shares a=1,b=1 --by country"
    options += " --metrics ctr,auc --primary ctr --better ctr=high --guardrail auc=0.1 --format json"
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.csv")
        log.write_text("\n".join(["click,p,arm,user,country", *rows]) + "\n")
        for plan in ("--final", "--sequential"):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                app.run(["eval", str(log), plan, *options.split()])
            printed.append(json.loads(output.getvalue()))
    return list_union_of_fields(printed)
