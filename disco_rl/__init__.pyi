from .api.learner import Learner as Learner
from .api.loading import load_agent as load_agent
from .api.loading import load_policy as load_policy
from .api.policy import Policy as Policy
from .api.rules import load_rule as load_rule
from .api.rules import rules as rules
from .api.sharing import share_policy as share_policy
from .api.sharing import share_rule as share_rule
from .api.trainer import Trainer as Trainer
from .networks.heads import Heads as Heads
from .types import EnvironmentSpec as EnvironmentSpec
from .types import Rollout as Rollout
from .update_rules import weights as weights

__version__: str
