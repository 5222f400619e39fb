"""Classification metrics: these metrics compare decisions or classes with true classes, or compare two labelings."""

from .agreement import *
from .association import *
from .cells import *
from .clusters import *
from .combined_rates import *
from .fairness import *
from .geometric import *
from .information import *
from .kappa import *
from .multilabel import *
from .pairs import *
from .rate_geometry import *
from .raters import *
from .rates import *
from .ratios import *
from .subset import *
from .top import *
