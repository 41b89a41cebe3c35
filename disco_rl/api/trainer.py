"""Training one agent, acting with it, saving and loading it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.api import player
from disco_rl.api import rule_checks
from disco_rl.api import rules
from disco_rl.api import settings as settings_lib
from disco_rl.api import tree_files
from disco_rl.environments import base
from disco_rl.environments import wrapping
from disco_rl.evaluation import training
from disco_rl.networks import torsos
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import progress
from disco_rl.update_rules import base as rule_base

_LIKELY = 'a learning rate that is too high, or rewards that are not finite'


class Trainer:
  """One agent in an environment of your own, learning by a rule.

  Attributes:
    spec: shapes of the observations and the actions, which count from 0.
    config: settings of the agent, with defaults filled in.
    updates: number of updates so far.
  """

  spec: types.EnvironmentSpec
  config: agent_lib.AgentConfig
  updates: int

  def __init__(
    self,
    environment: Any,
    rule: str | rule_base.UpdateRule | rules.LoadedRule = 'disco103',
    *,
    torso: str | torsos.Torso = 'mlp',
    seed: int = 0,
    num_environments: int | None = None,
    **settings: Any,
  ):
    """Initialises an agent and its environments.

    Args:
      environment: one of
        - a name, which `python -m launch.list_environments` lists;
        - a function that makes a Gymnasium or dm_env environment. It is called
          without arguments, or with a seed if it has an argument `seed` or a
          first one without a default;
        - an environment or a vector environment of Gymnasium, or an environment
          of dm_env, used by the trainer alone from now on;
        - a pair of an environment in the style of gymnax and its parameters
          (None: its defaults);
        - a `JaxEnvironment` or `HostEnvironment` of
          `disco_rl.environments.base`.
      rule: as `load_rule` takes or returns it.
      torso: 'mlp', 'impala', 'resnet', 'nethack', or a function of your own
        that may use Haiku: observations whose leaves have a leading axis N ->
        embeddings [N, width].
      seed: seed of all random numbers.
      num_environments: stepped in parallel; None: those of `environment` if it
        is a batch, otherwise about an eighth of batch_size.
      **settings: fields of `agent.AgentConfig` (unroll_length, batch_size,
        on_policy_share, replay_capacity, learning_rate, ...), of
        `agent_network.AgentNetworkConfig` (core_lstm, action_model_lstm, ...)
        and of `torsos.TorsoConfig` (channels, hidden_sizes), in place of their
        defaults. The defaults of on_policy_share and replay_capacity fit the
        number of environments.

    Raises:
      TypeError: the environment is of a kind that is not known.
      ValueError: a name or a setting is not valid, or the environment's
        observations or actions are not supported.
      ImportError: a package that the environment needs is not installed.
      FileNotFoundError: there is no file of weights at the path.
    """
    rule = rules.load_rule(rule)
    source = wrapping.recognise(environment)
    self.config = settings_lib.agent_config(
      torso, settings, _resolve(num_environments, source.num_environments)
    )
    self.updates = 0
    self._environment = source.build(self.config.num_environments, seed)
    self.spec = self._environment.spec
    agent = self._make_agent(rule)
    self._rule_params = jax.device_put(rule.params)
    self._driver = training.make(agent, self._environment, num_agents=1)
    self._player = player.Player(agent.network, self.spec, seed)
    self._train_state: training.TrainState | None = self._driver.init(
      jax.random.key(seed)[None]
    )

  def train(self, updates: int, log_every: int = 10) -> dict[str, np.ndarray]:
    """Trains the agent; each update follows a rollout in all environments.

    Args:
      updates: number of further updates.
      log_every: updates between two entries of the metrics. Host environments
        step while the device learns, but for the first rollout of each entry.

    Returns:
      Metrics as arrays with an entry for every `log_every` updates and one for
      the last: `update`, `environment_steps`, `episodes` (finished so far),
      `return` (mean of the last 100 episodes, NaN before the first ends), and
      the rule's own, means over these updates.

    Raises:
      ValueError: `updates` or `log_every` is less than 1.
      metrics.NonFiniteError: a loss is no longer finite.
    """
    for name, value in (('updates', updates), ('log_every', log_every)):
      if value < 1:
        raise ValueError(f'{name}={value} must be at least 1.')
    rows: list[dict[str, Any]] = []
    last = self.updates + updates
    while self.updates < last:
      target = min(last, progress.next_multiple(self.updates, log_every))
      rows.append(self._advance(target))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}

  def act(
    self, observation: Any, *, greedy: bool = False, is_first: Any = False
  ) -> Any:
    """Chooses actions.

    Args:
      observation: one, or a batch with a leading axis B, of the shapes and
        types in `spec`; numbers are converted.
      greedy: takes the most likely action, instead of a sample of the policy.
      is_first: bool or [B], whether an episode begins; resets the core state
        of an agent with core_lstm.

    Returns:
      The action, or [B] int32, counted from 0.

    Raises:
      ValueError: the observation is of another structure or shape.
    """
    params = self._get_train_state().agents.learner.params
    return self._player.act(params, observation, greedy, is_first)

  def save(self, path: files.PathLike) -> None:
    """Saves the agent and the state of training, except host environments.

    Args:
      path: path of the file, ending in '.npz'.

    Raises:
      ValueError: the path does not end in '.npz'.
    """
    tree_files.save(path, self._saved())

  def load(self, path: files.PathLike) -> None:
    """Loads a file that a trainer of the same environment and settings saved.

    Training continues exactly as it would have; host environments are reset.

    Args:
      path: path of the file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged, or of another agent.
    """
    saved = tree_files.load(path, self._saved())
    self._train_state = self._driver.from_file(saved['lives'])
    self.updates = int(saved['updates'])
    self._player.reset_core()

  def close(self) -> None:
    """Closes host environments; the agent cannot be trained afterwards."""
    if isinstance(self._environment, base.HostEnvironment):
      self._environment.close()

  def _make_agent(self, rule: rules.LoadedRule) -> agent_lib.Agent:
    rule_checks.check_rule(rule.rule, rule.params, self.spec)
    agent = agent_lib.make(self.config, self.spec, rule.rule)
    # Raises errors about shapes before anything is compiled.
    jax.eval_shape(agent.init, jax.random.key(0))
    return agent

  def _advance(self, target: int) -> dict[str, Any]:
    """Trains up to an update; returns a row of metrics."""
    since = self.updates
    train_state, self._train_state = self._get_train_state(), None
    self._train_state, logs = self._driver.advance(
      self._rule_params, train_state, target - since
    )
    self.updates = target
    statistics = jax.tree.map(lambda x: x[0], self._train_state.agents.episodes)
    steps = self.config.num_environments * self.config.unroll_length
    row = {
      'update': target,
      'environment_steps': target * steps,
      'episodes': int(statistics.finished),
      'return': float(episodes.mean_return(statistics)),
      **{name: float(x[0]) for name, x in jax.device_get(logs).items()},
    }
    metrics.check_finite([row], since, _LIKELY)
    return row

  def _get_train_state(self) -> training.TrainState:
    if self._train_state is None:
      # Updates donate the buffers of the previous state.
      raise RuntimeError(
        'The agent was lost when its training was interrupted: make a new '
        'Trainer, and load what was saved last.'
      )
    return self._train_state

  def _saved(self) -> dict[str, Any]:
    return {
      'lives': self._driver.to_file(self._get_train_state()),
      'updates': jnp.asarray(self.updates),
    }


def _resolve(chosen: int | None, own: int | None) -> int | None:
  """The number of environments that is set, or that the environment has."""
  if None not in (chosen, own) and chosen != own:
    raise ValueError(
      f'num_environments={chosen}, but the environment has {own}: leave '
      'num_environments out.'
    )
  return own or chosen
