"""DiscoRL: trains agents with discovered update rules, and discovers them.

  load_rule        Loads an update rule by name, from a file or from a hub.
  rules            Lists the rules that have names, with their cards.
  share_rule       Uploads a discovered rule with its card.
  share_policy     Uploads the policy of an agent.
  Trainer          Trains an agent in an environment.
  Policy           A trained agent that acts and plays.
  load_agent       Loads an agent of a run, to be trained further.
  load_policy      Loads a policy from a file or from a run.
  Learner          Makes single updates, for your own training loop.
  Heads            Adds the outputs that a rule requires to your network.
  Rollout          A batch of trajectories that agents learn from.
  EnvironmentSpec  The shapes of observations and the number of actions.
  weights          Loads and saves the parameters of discovered rules.

The names are listed in __init__.pyi and imported when they are first used:
launchers report a mistyped flag before JAX has loaded.
"""

import importlib.util
import os

import lazy_loader

__version__ = '0.3.0.dev0'

# Jupyter kernels pass their matplotlib backend to the programs that cells
# start. If the backend is not installed, matplotlib cannot be imported.
_module = os.environ.get('MPLBACKEND', '').partition('module://')[2]
if _module and importlib.util.find_spec(_module.partition('.')[0]) is None:
  del os.environ['MPLBACKEND']

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
