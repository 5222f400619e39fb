"""Mergeable streaming metric accumulators with constant memory and bit-identical results however the rows are split."""

__version__ = "0.1.0"

import typing as _typing
from importlib import import_module as _import_module

from . import extend as extend
from . import results as results
from .batch.lists import ranked_lists as ranked_lists
from .collect.collection import MetricCollection as MetricCollection
from .collect.metric_like import coarsen as coarsen
from .collect.metric_like import flat as flat
from .collect.metric_like import nbytes as nbytes
from .collect.metric_like import seal as seal
from .collect.serialization import from_bytes as from_bytes
from .collect.serialization import load as load
from .collect.serialization import merge as merge
from .collect.serialization import save as save
from .collect.task import Task as Task
from .compose.aa import aa as aa
from .compose.bundle import Bundle as Bundle
from .compose.checkpoint import Checkpoint as Checkpoint
from .compose.decayed import Decayed as Decayed
from .compose.delta import Delta as Delta
from .compose.ledger import Ledger as Ledger
from .compose.recent import Recent as Recent
from .compose.sharded import Sharded as Sharded
from .compose.sliced import Sliced as Sliced
from .compose.windowed import Windowed as Windowed
from .errors import *
from .guide.suggest import MissingNameError as _MissingNameError
from .inference.compare import compare as compare
from .inference.drift import drift as drift
from .inference.drift import population_stability_index as population_stability_index
from .inference.power import power as power
from .inference.power_table import power_table as power_table
from .inference.sample_ratio import sample_ratio_mismatch as sample_ratio_mismatch
from .inference.scorecard import scorecard as scorecard
from .inference.winsorization import winsorize as winsorize
from .metrics import *
from .metrics import curves as curves
from .metrics import decisions as decisions
from .metrics import groups as groups
from .metrics import probabilities as probabilities
from .metrics import ranking as ranking
from .metrics import regression as regression
from .metrics import values as values
from .metrics.families import list_public_names as _list_public_names
from .serve.exposures import count_exposures as count_exposures
from .serve.push import push as push

if _typing.TYPE_CHECKING:
    from .reports.page.write import report as report
    from .reports.plots import plot as plot

_ON_DEMAND = {"plot": ".reports.plots", "report": ".reports.page.write"}
"""Functions that few programs need, mapped to their modules, which would take an eighth of the import time."""


def __dir__() -> list[str]:
    return _list_public_names({**globals(), **_ON_DEMAND})


# Hide the lines below from type checkers, which find all names in the imports above. If they saw `__getattr__`, they would
# accept misspelled names.
if not _typing.TYPE_CHECKING:
    __all__ = [name for name in __dir__() if not name.startswith("_")]

    def __getattr__(name: str) -> object:
        if name in _ON_DEMAND:
            globals()[name] = found = getattr(_import_module(_ON_DEMAND[name], __name__), name)
            return found
        for module in ("extend", "results"):
            if name in globals()[module].__all__:
                raise AttributeError(
                    f"module 'streammetrics' has no attribute {name!r}; it is sm.{module}.{name}", name=name
                )
        raise _MissingNameError(name, __all__)
