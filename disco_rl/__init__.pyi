from . import weights as weights
from .library.rules import load_rule as load_rule
from .library.stepwise import Learner as Learner
from .library.trainer import Trainer as Trainer
from .networks.heads import Heads as Heads
from .types import EnvironmentSpec as EnvironmentSpec
from .types import Rollout as Rollout

__version__: str
