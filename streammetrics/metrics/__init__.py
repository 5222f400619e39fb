"""What users look for, one file per task: each class is settings, a docstring with the formula, and `of(state)`."""

from .agreement import *
from .calibration import *
from .curves import *
from .deviance import *
from .distinct import *
from .fit import *
from .group_losses import *
from .groups import *
from .labels import *
from .losses import *
from .multiclass import *
from .multilabel import *
from .quantiles import *
from .ranking import *
from .regression import *
from .relative import *
from .relevance import *
from .scores import *
from .thresholds import *
from .values import *
