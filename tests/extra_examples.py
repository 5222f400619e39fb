"""The shortest example of each extra, which `.ci/extras` runs where only this extra is installed.

    python tests/extra_examples.py                  the names of all extras
    python tests/extra_examples.py EXTRA            run the example of an extra, in the current folder
    python tests/extra_examples.py --with EXTRA     the other packages that the example needs

The examples are in the docstrings of modules, or in `PROGRAMS`.
"""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

MODULES = {
    "beam": "engines.beam",
    "catboost": "hooks.catboost",
    "dask": "engines.dask",
    "duckdb": "engines.duckdb",
    "ignite": "hooks.ignite",
    "keras": "hooks.keras",
    "lightgbm": "hooks.lightgbm",
    "lightning": "hooks.lightning",
    "polars": "engines.polars",
    "report": "reports.page.write",
    "torch": "hooks.torch",
    "torchmetrics": "hooks.torchmetrics",
    "transformers": "hooks.transformers",
    "xgboost": "hooks.xgboost",
}
"""The modules whose docstrings have examples that need the extra."""

LOG = "click,p\n0,0.1\n1,0.7\n0,0.3\n1,0.6\n"

EVAL = "run('eval', '{}', '--label', 'click', '--score', 'p')"

PROGRAMS = {
    "avro": """
import fastavro
schema = {"type": "record", "name": "row", "fields": [{"name": n, "type": "double"} for n in ("click", "p")]}
with open("log.avro", "wb") as file:
    fastavro.writer(file, schema, [{"click": 0.0, "p": 0.1}, {"click": 1.0, "p": 0.7}])
"""
    + EVAL.format("log.avro"),
    "cli": EVAL.format("log.csv"),
    "delta": """
import deltalake, pyarrow.csv
deltalake.write_deltalake("table", pyarrow.csv.read_csv("log.csv"))
"""
    + EVAL.format("table"),
    "dev": "run_module('ruff', '--version'); run_module('mypy', '--version'); run_module('pytest', '--version')",
    "docs": "run('guide', '--site', 'site')",
    "flink": """
from pyflink.table import EnvironmentSettings, TableEnvironment
import streammetrics as sm
from streammetrics.engines.flink import evaluate
env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
assert evaluate(env.from_elements([(0, 0.1), (1, 0.9)], ["y_true", "y_score"]), sm.AUC()).compute() == 1.0
""",
    "iceberg": """
import os, pyarrow.csv
from pyiceberg.catalog import load_catalog
here = os.getcwd()
catalog = load_catalog("here", type="sql", uri=f"sqlite:///{here}/catalog.db", warehouse=f"file://{here}")
catalog.create_namespace("ns")
rows = pyarrow.csv.read_csv("log.csv")
table = catalog.create_table("ns.log", rows.schema)
table.append(rows)
run("eval", f"iceberg:{table.metadata_location}", "--label", "click", "--score", "p")
""",
    "jax": """
import jax.numpy as jnp
import streammetrics as sm
from streammetrics.hooks.jax import Deferred
assert Deferred(sm.AUC()).update(jnp.array([0, 1]), jnp.array([0.25, 0.75])).compute() == 1.0
""",
    "mpi": """
import streammetrics as sm
from streammetrics.hooks import mpi
assert mpi.sync(sm.CTR().update([0, 1])).compute() == 0.5
""",
    "plot": """
import matplotlib
matplotlib.use("Agg")
import streammetrics as sm
sm.ROCCurve().update([0, 1, 0, 1], [0.1, 0.7, 0.3, 0.2]).plot().figure.savefig("roc.png")
""",
    "postgres": """
from streammetrics.serve.store import StoreDownError, open_store
try:
    open_store("postgresql://127.0.0.1:9/none")
except StoreDownError as error:  # there is no server, but the driver is there
    print(error)
""",
    "ray": """
import ray
import streammetrics as sm
from streammetrics.engines.ray import evaluate
log = ray.data.from_items([{"y_true": 0, "y_score": 0.1}, {"y_true": 1, "y_score": 0.9}])
assert evaluate(log, sm.AUC()).compute() == 1.0
""",
    "remote": """
import fsspec
import streammetrics as sm
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log
fsspec.filesystem("memory").pipe("/log.csv", LOG.encode())
metrics = sm.MetricCollection(sm.Task(sm.AUC(), y_true="click", y_score="p"))
assert evaluate(Log("memory://log.csv"), metrics).overall.compute() == {"auc": 1.0}
""",
    "serve": "run('demo', '--live', '--seconds', '1')",
    "spark": """
from pyspark.sql import SparkSession
import streammetrics as sm
from streammetrics.engines import spark
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
log = session.createDataFrame([(0, 0.1), (1, 0.9)], ["y_true", "y_score"])
assert spark.evaluate(log, sm.AUC()).state.compute() == 1.0
session.stop()
""",
    "sql": "run('eval', '--sql', \"select * from 'log.csv'\", '--label', 'click', '--score', 'p')",
    "test": "run_module('pytest', '-q', str(HERE / 'test_twofold.py'))",
}

COMPANIONS = {
    "dask": ["pandas", "pyarrow"],
    "iceberg": ["pyiceberg[sql-sqlite]"],
    "keras": ["jax"],
    "lightgbm": ["scikit-learn"],
    "mpi": ["openmpi"],
    "xgboost": ["scikit-learn"],
}
"""Packages that users of an extra have for other reasons: data frames, a catalog, a backend, estimators, or MPI."""

HERE = Path(__file__).parent


def run(*words: str) -> None:
    run_module("streammetrics", *words)


def run_module(module: str, *words: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", module, *words], check=True)


def run_example(extra: str) -> None:
    Path("log.csv").write_text(LOG)
    if extra in MODULES:
        found = doctest.testmod(importlib.import_module(f"streammetrics.{MODULES[extra]}"))
        assert found.attempted
        assert not found.failed
    else:
        exec(compile(PROGRAMS[extra], f"<{extra}>", "exec"), globals())


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(*sorted({*MODULES, *PROGRAMS}), sep="\n")
        case ["--with", extra]:
            print(*COMPANIONS.get(extra, []))
        case [extra]:
            run_example(extra)
        case _:
            raise SystemExit(__doc__)
