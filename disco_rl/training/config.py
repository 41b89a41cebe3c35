"""Settings of the training of agents, and how they are resolved."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import itertools

from disco_rl import config as config_lib
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import resolution
from disco_rl.environments import registry as environment_registry
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources


@dataclasses.dataclass(frozen=True)
class TrainingConfig(config_lib.Settings):
  """Settings of disco-rl train, besides those of agents and rules.

  Attributes:
    environment: name of the environment.
    rule: name of a rule, the path of an npz file, or a hf:// address.
    seeds: number of agents, trained in parallel, which differ only in their
      seeds.
    seed: seed of the first agent, and of all host environments; the others
      count up. An agent does not depend on the number of agents.
    updates: updates of each agent, unless `steps` is given; like `log_every`
      and `checkpoint_every` rounded up to a multiple of its
      `updates_per_rollout`.
    log_every: updates between two rows of metrics.
    evaluate_every: environment steps of each agent between two evaluations, in
      which it plays episodes in new environments, without learning from them;
      0: none. The run keeps the best policy of each agent.
    evaluate_episodes: episodes of each agent in an evaluation.
    checkpoint_every: updates between two checkpoints.
    checkpoint_seconds: maximal seconds between two checkpoints; more if saving
      would take over 2% of the time.
    sizes: 'task' for agents that suit the rule and the task; 'paper' for the
      agents of the paper.
    agent: settings of the agents.
    rule_settings: fields of the rule's class.
    preprocessing: changes to environments, see `environments.registry.make`.
    loggers: loggers in addition to metrics.csv and TensorBoard, separated by
      commas: 'wandb' or your own.
  """

  environment: str = 'catch'
  rule: sources.Name = 'disco103'
  seeds: config_lib.Count = 5
  seed: config_lib.CountOrZero = 0
  updates: config_lib.Count = 1000
  log_every: config_lib.Count = 10
  evaluate_every: config_lib.CountOrZero = 0
  evaluate_episodes: config_lib.Count = 10
  checkpoint_every: config_lib.Count = 1000
  checkpoint_seconds: config_lib.Bound = 60.0
  sizes: resolution.Sizes = 'task'
  agent: agent_lib.AgentConfig = agent_lib.AgentConfig()
  rule_settings: config_lib.ExtraSettings = dataclasses.field(
    default_factory=dict
  )
  preprocessing: environment_registry.Preprocessing = dataclasses.field(
    default_factory=environment_registry.default_preprocessing
  )
  loggers: loggers_lib.Names = ()

  @property
  def environment_steps(self) -> int:
    """The total environment steps of one agent."""
    return self.steps_after(self.updates)

  def steps_after(self, updates: int) -> int:
    """Returns the environment steps of one agent until some updates."""
    return self.agent.environment_steps(updates, self.action_repeat)

  def updates_for(self, environment_steps: int) -> int:
    """Returns the updates until at least some environment steps are made."""
    return self.agent.updates_for(
      environment_steps, self.action_repeat, self.agent.fill_rollouts(0)
    )

  @property
  def action_repeat(self) -> int:
    """The environment steps per action, before there is an environment."""
    return environment_registry.action_repeat(
      self.environment, self.preprocessing
    )

  def conflicts(self) -> Iterator[str]:
    """Yields an error if the last rollout lacks some of its updates."""
    try:
      self.agent.rollouts(self.updates)
    except ValueError as error:
      yield str(error)


@dataclasses.dataclass(frozen=True)
class Budget(config_lib.Settings):
  """The length of a training in environment steps.

  Attributes:
    steps: environment steps of each agent, rounded up to whole rollouts,
      instead of `updates`, which config.json has; 0: `updates` is given.
  """

  steps: config_lib.CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class StartingPoint(config_lib.Settings):
  """Choices of a starting point for single rules.

  Attributes:
    by_rule: name of a rule -> its settings in this task, and those of its
      agents; others that are given take precedence.
  """

  by_rule: Mapping[str, Mapping[str, object]] = dataclasses.field(
    default_factory=dict
  )

  def conflicts(self) -> Iterator[str]:
    """Yields an error if these are no settings of rules."""
    by_rule: object = self.by_rule
    if not isinstance(by_rule, Mapping) or not all(
      isinstance(own, Mapping) for own in by_rule.values()
    ):
      yield f'by_rule={by_rule!r} must map names of rules to their settings.'


def config_of(
  settings: Mapping[str, object], rollouts: int | None = None
) -> TrainingConfig:
  """Builds the config of a training; see `resolve`."""
  return resolve(settings, rollouts)[0]


def resolve(
  settings: Mapping[str, object], rollouts: int | None = None
) -> tuple[TrainingConfig, rule_registry.LoadedRule]:
  """Builds the config of a training from flat settings, and loads its rule.

  Args:
    settings: The settings by name, and those of `Budget` and `StartingPoint`.
      `agent.resolution` chooses those of agents and rules that are None or
      absent; config.json has all of them.
    rollouts: The number of rollouts, instead of the setting `updates`; then
      `log_every` also counts rollouts.

  Returns:
    The config, and the rule with its settings.

  Raises:
    ValueError: A setting is unknown or not valid.
    OSError: The file of the rule cannot be read or downloaded.
    ImportError: A package of the task, on which settings depend, is missing.
  """
  of_rules = rule_registry.setting_names()
  of_agents = {*config_lib.names(agent_lib.AgentConfig)}
  chosen = {*of_agents, *of_rules, 'sizes'}
  given = _given(settings, chosen)
  steps = config_lib.build(Budget, given).steps
  given.pop('steps', None)
  config = config_lib.build(
    TrainingConfig, given, agent=agent_lib.AgentConfig(), rule_settings={}
  )
  rule_settings = {n: x for n, x in given.items() if n in of_rules}
  rule_registry.check_settings(rule_settings)
  rule, agent = resolution.resolve(
    rule_registry.load_with_card(config.rule, **rule_settings),
    {name: given.get(name) for name in of_agents},
    lambda _: environment_registry.specimen(
      config.environment, config.preprocessing
    )[0],
    config.sizes,
  )
  # Starting points count updates of rules that make one of each rollout.
  updates, log_every = agent.whole(config.updates), config.log_every
  if rollouts is not None:
    updates, log_every = agent.updates(rollouts), agent.updates(log_every)
  elif steps:
    whole = dataclasses.replace(config, agent=agent, updates=updates)
    updates = whole.updates_for(steps)
  config = dataclasses.replace(
    config,
    agent=agent,
    rule_settings=rule_registry.settings_of(rule.rule),
    updates=updates,
    log_every=log_every,
  )
  return config, rule


def _given(
  settings: Mapping[str, object], chosen: Collection[str]
) -> dict[str, object]:
  """Returns the settings that are given, including those for the rule.

  Args:
    settings: The settings of `resolve`.
    chosen: The names of settings that are unset if they are None.

  Raises:
    ValueError: A setting is unknown or not valid.
  """
  records = (TrainingConfig, Budget, StartingPoint)
  known = {*chosen, *itertools.chain(*map(config_lib.names, records))}
  config_lib.check_names(settings, known, 'The config')
  given = {
    name: value
    for name, value in settings.items()
    if value is not None or name not in chosen
  }
  by_rule = config_lib.build(StartingPoint, given).by_rule
  for name, own in by_rule.items():
    config_lib.check_names(own, chosen, f'by_rule.{name}')
  given.pop('by_rule', None)
  rule = f'{given.get("rule", TrainingConfig.rule)}'
  return {**by_rule.get(rule, {}), **given}


# Settings that may change when a run is resumed.
FREE = (
  'updates',
  'log_every',
  'checkpoint_every',
  'checkpoint_seconds',
  'loggers',
)
# Settings that a fork shares with its source: agents keep the state of their
# environments, their random numbers and their replay.
KEPT = (
  'environment',
  'preprocessing',
  'seed',
  'seeds',
  'unroll_length',
  'replay_capacity',
)


def complete(settings: Mapping[str, object]) -> dict[str, object]:
  """Returns all settings of a training, given some; see `config_of`."""
  return config_lib.flatten(config_of(settings))
