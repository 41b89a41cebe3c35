"""One rule means one agent, whichever door it comes through."""

from collections.abc import Callable
import dataclasses
import functools
import json
import pathlib
import re
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import evaluate
from configs import meta_training
from configs import quickstart
from configs import robustness
import disco_rl
from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import resolution
from disco_rl.api import trainer as trainer_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import contenders
from disco_rl.evaluation import protocol
from disco_rl.meta_training import build
from disco_rl.meta_training import held_out
from disco_rl.meta_training import meta_trainer
from disco_rl.training import config as training_config
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import cards
from disco_rl.update_rules import ppo
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights
from launch import common

VECTOR = types.EnvironmentSpec(jax.ShapeDtypeStruct((6, 5), jnp.float32), 3)
IMAGE = types.EnvironmentSpec(jax.ShapeDtypeStruct((10, 10, 4), jnp.bool), 3)

# Agent, and rule, by its settings.
Resolved = tuple[agent_lib.AgentConfig, dict[str, Any]]


def resolve(
  rule: Any, spec: types.EnvironmentSpec = VECTOR, sizes: str = 'task', **given
) -> Resolved:
  loaded, config = resolution.resolve(
    disco_rl.load_rule(rule), given, lambda _: spec, sizes
  )
  return config, registry.settings_of(loaded.rule)


def of_config(settings: dict[str, Any]) -> Resolved:
  config = training_config.config_of(settings)
  rule, _ = registry.load(config.rule, **config.rule_settings)
  assert config_lib.flatten(
    training_config.config_of(config_lib.flatten(config))
  ) == config_lib.flatten(config)
  return config.agent, registry.settings_of(rule)


def by_launcher(rule: str) -> Resolved:
  settings = evaluate.get_config('quickstart').to_dict()
  return of_config({**settings, 'rule': rule})


def by_protocol(rule: str) -> Resolved:
  declared = protocol.Protocol(
    training_tasks='catch/4x3',
    validation_tasks='catch/5x5',
    validation_seeds=1,
    validation_updates=10,
    test_tasks='catch/6x5',
    score_after=(10,),
    by_family={},
    candidates=1,
    growth=0,
    grids={'given': {}, 'actor_critic': {}, 'uniform': {}},
    recipes={},
  )
  plan = protocol.Plan(declared, {}, (), pathlib.Path('nowhere'))
  contender = contenders.Contender('it', 'it', rule, ({},))
  return of_config(plan.run('catch/6x5', contender, {}).settings)


def by_trainer(
  rule: Any, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> Resolved:
  taken = {}

  def initialize(
    self: Any, given: Any, preprocessing: Any, rule: Any, *rest: Any
  ) -> None:
    taken['rule'] = rule

  monkeypatch.setattr(trainer_lib.Trainer, '_initialize', initialize)
  trainer = disco_rl.Trainer('catch/6x5', rule, **given)
  return trainer.config, registry.settings_of(taken['rule'].rule)


def by_learner(rule: Any, monkeypatch: pytest.MonkeyPatch) -> Resolved:
  taken, original = [], resolution.resolve

  def resolve_and_keep(*arguments: Any) -> Any:
    taken.append(original(*arguments))
    return taken[-1]

  with monkeypatch.context() as patch:
    patch.setattr(resolution, 'resolve', resolve_and_keep)
    no_network: Any = None
    disco_rl.Learner(no_network, VECTOR, rule)
  ((loaded, config),) = taken
  return config, registry.settings_of(loaded.rule)


def by_held_out(
  discovered: agent_lib.AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> list[agent_lib.AgentConfig]:
  """The agents on a vector and on an image in a discovery by such agents."""
  taken, make = [], agent_lib.make

  def make_and_keep(config: agent_lib.AgentConfig, *rest: Any) -> Any:
    taken.append(config)
    return make(config, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(agent_lib, 'make', make_and_keep)
    held_out.HeldOut(
      held_out.HeldOutConfig(('catch/6x5', 'minatar/breakout')),
      discovered,
      actor_critic.ActorCritic(),
      seed=0,
      preprocessing={},
    )
  return taken


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
  """A copy of the rule that ships, with its card."""
  for suffix in ('npz', 'json'):
    shutil.copy(sources.SHIPPED / f'general.{suffix}', tmp_path)
  return tmp_path / 'general.npz'


@pytest.mark.usefixtures('disco103_path')
@pytest.mark.parametrize('name', ['general', 'disco103', 'actor_critic'])
def test_the_agent_is_the_same_through_every_door(
  name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  expected = resolve(name)
  loaded = disco_rl.load_rule(name)
  assert by_launcher(name) == expected
  assert by_protocol(name) == expected
  assert by_trainer(name, monkeypatch) == expected
  assert by_trainer(loaded, monkeypatch) == expected
  assert by_learner(name, monkeypatch) == expected
  assert by_learner(loaded, monkeypatch) == expected


@pytest.mark.parametrize('given', [{}, {'updates_per_rollout': 4}])
def test_ppo_makes_one_estimate_for_the_updates_of_its_agents(
  given: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
  updates = given.get('updates_per_rollout', 64)
  loaded = disco_rl.load_rule('ppo', **given)
  settings = evaluate.get_config('quickstart').to_dict()
  for agent, rule in (
    resolve('ppo', **given),
    resolve(loaded),
    of_config({**settings, 'rule': 'ppo', **given}),
    by_trainer('ppo', monkeypatch, **given),
    by_trainer(loaded, monkeypatch),
  ):
    assert agent.updates_per_rollout == updates
    assert rule['updates_per_rollout'] == updates
  # Loops of a user's own make one update of each rollout, unless they say so.
  _, rule = by_learner(loaded, monkeypatch)
  assert rule['updates_per_rollout'] == given.get('updates_per_rollout', 1)
  _, rule = by_learner(ppo.PPO(**given), monkeypatch)
  assert rule['updates_per_rollout'] == given.get('updates_per_rollout', 1)
  if given:
    with pytest.raises(ValueError, match='_rollout=8 of the agent differs'):
      resolve(loaded, updates_per_rollout=8)


def test_held_out_agents_are_those_that_the_card_will_bring(
  path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  discovered = resolve('actor_critic', unroll_length=7, hidden_sizes=(16,))[0]
  card = cards.Card('mine', settings=config_lib.flatten(discovered))
  content = json.dumps(dataclasses.asdict(card))
  path.with_suffix('.json').write_text(content)
  agents = by_held_out(discovered, monkeypatch)
  assert agents == [resolve(path, spec)[0] for spec in (VECTOR, IMAGE)]
  assert agents[0] == discovered
  assert agents[1].network.torso.kind == 'impala'


def test_paths_and_objects_bring_the_same_as_names(
  path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  expected = resolve('general')
  assert resolve(path) == by_launcher(str(path)) == expected
  assert by_trainer(path, monkeypatch) == expected
  _, rule = resolve('actor_critic', IMAGE)
  assert (rule['num_bins'], rule['max_abs_value']) == (301, 60.0)


@pytest.mark.parametrize(
  'rule', [actor_critic.ActorCritic(), actor_critic.ActorCritic(num_bins=7)]
)
def test_objects_are_used_as_they_were_built(
  rule: actor_critic.ActorCritic, monkeypatch: pytest.MonkeyPatch
) -> None:
  expected = resolve('actor_critic')[0], registry.settings_of(rule)
  assert by_trainer(rule, monkeypatch) == expected
  assert by_learner(rule, monkeypatch) == expected
  assert by_learner(disco_rl.load_rule(rule), monkeypatch) == expected


def test_more_updates_of_a_rollout_need_no_second_setting() -> None:
  """Each trajectory of the newest rollout is in each of the K batches."""
  settings = evaluate.get_config('general').to_dict()
  agent, _ = of_config({**settings, 'updates_per_rollout': 4, 'updates': 8})
  assert (agent.batch_size, agent.num_environments) == (6, 6)
  assert (agent.on_policy_share, agent.replay_capacity) == (1.0, 6)


@pytest.mark.usefixtures('disco103_path')
def test_what_the_cards_say() -> None:
  agent, rule = resolve('general')
  assert (agent.unroll_length, agent.batch_size) == (20, 24)
  assert (agent.num_environments, agent.on_policy_share) == (24, 1.0)
  assert agent.learning_rate == 0.01  # Recommended; 0.005 in its discovery.
  assert agent.network.torso.hidden_sizes == (64, 64)
  assert (rule['discount'], rule['num_bins']) == (0.99, 61)
  assert (rule['max_abs_value'], rule['q_cost']) == (5.0, 0.5)
  assert (rule['reward_scale'], rule['lambda_']) == (1.0, 0.95)
  agent, rule = resolve('disco103')
  assert (agent.learning_rate, rule['reward_scale']) == (0.01, 30.0)
  assert (rule['discount'], rule['num_bins']) == (0.997, 601)
  assert resolve('disco103', IMAGE)[0].learning_rate == 0.003
  # Without its agents the published rule is as it was published.
  assert vars(disco_rl.load_rule('disco103').rule)['reward_scale'] == 1.0


@pytest.mark.usefixtures('disco103_path')
def test_sizes_follow_the_task_or_are_those_of_the_paper() -> None:
  vector, image = (resolve('actor_critic', x)[0] for x in (VECTOR, IMAGE))
  assert vector.network.torso.kind == 'mlp'
  assert image.network.torso.kind == 'impala'
  assert image.network.torso.channels == (16,)
  assert vector.batch_size == image.batch_size == 8
  for rule in ('actor_critic', 'ppo'):
    # After convolutions PPO does not learn with tanh.
    found = [resolve(rule, x)[0].network.torso for x in (VECTOR, IMAGE)]
    assert [x.activation for x in found] == ['tanh', 'relu']
  vector, image = (resolve('general', x, 'paper')[0] for x in (VECTOR, IMAGE))
  assert vector == agent_lib.AgentConfig()
  assert image.network.torso.kind == 'resnet'
  assert image.network.action_model_lstm == 1024
  assert image.learning_rate == 3e-4
  assert resolve('disco103', sizes='paper')[1]['reward_scale'] == 1.0


def test_what_is_given_wins_and_the_rest_fits() -> None:
  agent, _ = resolve(
    'general', learning_rate=np.float32(0.5), num_environments=np.int64(4)
  )
  assert agent.learning_rate == 0.5
  assert type(agent.learning_rate) is float
  assert (agent.batch_size, agent.num_environments) == (24, 4)
  assert sum(agent.num_on_policy) == 4
  assert agent.replay_capacity == 300  # As in the paper, 12.5 batches.
  assert resolve('general')[0].replay_capacity == 24  # Batches are rollouts.
  agent, _ = resolve('general', batch_size=8, hidden_sizes=[16])
  assert (agent.batch_size, agent.num_environments) == (8, 8)
  assert agent.network.torso.hidden_sizes == (16,)
  assert resolve('general', batch_size=1)[0].num_environments == 1
  with pytest.raises(ValueError, match='batch_size=0 must be at least 1'):
    resolve('general', batch_size=0)


@pytest.mark.parametrize(
  'given, batch_size, number, updates',
  [
    ({}, 2, 16, 64),
    ({'num_environments': 8}, 2, 8, 32),
    ({'num_environments': 1}, 1, 1, 8),
    ({'num_environments': 1, 'unroll_length': 7}, 1, 1, 7),
    ({'batch_size': 4}, 4, 32, 64),
    ({'batch_size': 6, 'num_environments': 6}, 6, 6, 8),
    ({'updates_per_rollout': 1}, 2, 16, 1),
  ],
)
def test_ppo_makes_eight_epochs_with_any_number_of_environments(
  given: dict[str, int], batch_size: int, number: int, updates: int
) -> None:
  agent, _ = resolve('ppo', **given)
  assert (agent.batch_size, agent.num_environments) == (batch_size, number)
  assert agent.updates_per_rollout == updates
  assert agent.on_policy_share == 1
  actions = number * agent.unroll_length
  assert agent.actions_per_update * updates == actions


def test_a_contradiction_of_the_card_is_said_once(
  path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  disco_rl.load_rule(path, discount=0.99, reward_scale=2.0)
  assert not capsys.readouterr().err
  for _ in range(2):
    disco_rl.load_rule(path, discount=0.5)
  (line,) = capsys.readouterr().err.splitlines()
  assert line.endswith('discount is 0.5 (0.99 at its discovery).')
  path.with_suffix('.json').unlink()
  disco_rl.load_rule(path)
  assert 'no card next to it' in capsys.readouterr().err


# Properties of all rules, tasks and doors.

# Without those that other tests register.
NAMES = (
  *sources.names(),
  *(
    name
    for name in registry.names()
    if name not in sources.names()
    and type(registry.load(name)[0]).__module__.startswith('disco_rl.')
  ),
)
OBJECTS = [
  type(registry.load(x)[0])() for x in NAMES if x not in sources.names()
]
# Setting -> a value that no rule or task has.
OTHER = {
  'activation': 'tanh',
  'action_model_head': 7,
  'action_model_lstm': 7,
  'batch_size': 7,
  'channels': (7,),
  'clip': 0.7,
  'compute_dtype': 'bfloat16',
  'core_lstm': 7,
  'decay_updates': 7,
  'final_relu': True,
  'hidden_sizes': (7,),
  'learning_rate': 0.7,
  'max_abs_update': 0.7,
  'normalize_advantage': True,
  'normalize_observations': True,
  'normalize_rewards': True,
  'num_bins': 7,
  'num_environments': 8,
  'on_policy_share': 0.01,
  'optimizer': 'rmsprop',
  'replay_capacity': 480,
  'replay_on_disk': True,
  'separate_torsos': True,
  'stride': 7,
  'torso': 'nethack',
  'torso_chunk_size': 7,
  'unroll_length': 32,
  'updates_per_rollout': 2,
  'warm_up_updates': 7,
}
# Other settings are weights, decays and the like.
ANOTHER = 0.77
VECTORS = ('catch', 'gymnasium', 'random', 'gridworld')


@pytest.fixture
def cheap(disco103_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Reads files once, and makes no environments."""
  del disco103_path
  for module, name in (
    (weights, 'load_with_config'),
    (cards, 'sha256_of'),
    (cards, 'read'),
  ):
    monkeypatch.setattr(
      module,
      name,
      _CACHED.setdefault(name, functools.cache(getattr(module, name))),
    )

  def specimen(name: str, _: Any) -> Any:
    return (VECTOR if name.startswith(VECTORS) else IMAGE), None

  monkeypatch.setattr(environment_registry, 'specimen', specimen)


_CACHED: dict[str, Any] = {}


def flat(resolved: Resolved) -> dict[str, Any]:
  agent, rule = resolved
  return {**config_lib.flatten(agent), **rule}


def with_settings(
  rule: Any, spec: types.EnvironmentSpec, sizes: str, given: dict[str, Any]
) -> dict[str, Any]:
  """Resolves settings of an agent and a rule, which may be an object."""
  names = {*config_lib.names(agent_lib.AgentConfig)}
  of_rule = {name: x for name, x in given.items() if name not in names}
  of_agent = {name: x for name, x in given.items() if name in names}
  loaded = (
    disco_rl.load_rule(rule, **of_rule)
    if isinstance(rule, str)
    else dataclasses.replace(rule, **of_rule)
  )
  return flat(resolve(loaded, spec, sizes, **of_agent))


def check_properties(
  door: Callable[[dict[str, Any]], dict[str, Any]], names: Any = None
) -> None:
  """Checks that a value given is used, and the own value changes nothing."""
  base = door({})
  names = [*base] if names is None else names
  # At once, as in config.json.
  assert door({name: base[name] for name in names}) == base
  for name in names:
    assert door({name: base[name]}) == base, name
    other = OTHER.get(name, ANOTHER)
    try:
      found = door({name: other})[name]
    except ValueError as error:
      # A contradiction to other values that are given, as replay's size is.
      assert re.search('must be (at most|a multiple of)', f'{error}')
    else:
      assert found == other, name


@pytest.mark.usefixtures('cheap')
@pytest.mark.parametrize('sizes', ['task', 'paper'])
@pytest.mark.parametrize('spec', [VECTOR, IMAGE], ids=['vector', 'image'])
@pytest.mark.parametrize(
  'rule',
  [*NAMES, *OBJECTS],
  ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_a_setting_changes_only_what_it_names(
  rule: Any, spec: types.EnvironmentSpec, sizes: str
) -> None:
  check_properties(lambda given: with_settings(rule, spec, sizes, given))


# Of these, each depends on the rule, the task or another setting somewhere.
RESOLVED = (
  'batch_size',
  'discount',
  'hidden_sizes',
  'learning_rate',
  'max_abs_value',
  'num_bins',
  'num_environments',
  'on_policy_share',
  'replay_capacity',
  'torso',
  'unroll_length',
  'updates_per_rollout',
)
POINTS = [
  *(f'evaluate:{name}' for name in evaluate.VARIANTS),
  *('robustness:catch', 'robustness:replay_75', 'robustness:ms_pacman'),
]


def at_starting_point(
  point: str, rule: str, given: dict[str, Any]
) -> dict[str, Any]:
  module, _, name = point.partition(':')
  config: Any = {'evaluate': evaluate, 'robustness': robustness}[module]
  settings = config.get_config(name).to_dict()
  del settings['preprocessing']  # Checks of it take half of the time.
  config = training_config.config_of({**settings, 'rule': rule, **given})
  return flat((config.agent, config.rule_settings))


@pytest.mark.usefixtures('cheap')
def test_what_was_chosen_for_one_rule_reaches_no_other() -> None:
  disco103, actor_critic, ppo = (
    at_starting_point('evaluate:catch', rule, {})
    for rule in ('disco103', 'actor_critic', 'ppo')
  )
  assert (disco103['learning_rate'], disco103['replay_capacity']) == (
    0.01,
    1024,
  )
  assert disco103['hidden_sizes'] == (512, 512)
  assert disco103['reward_scale'] == 1.0
  assert (actor_critic['num_bins'], actor_critic['max_abs_value']) == (
    101,
    20.0,
  )
  for found in (actor_critic, ppo):
    assert found['learning_rate'] != disco103['learning_rate']
    assert found['replay_capacity'] == found['num_environments']
  for rule in ('actor_critic', 'ppo'):
    found = at_starting_point('evaluate:atari', rule, {})
    assert (found['num_bins'], found['max_abs_value']) == (601, 300.0)
  general = at_starting_point('evaluate:asterix', 'general', {})
  assert general['reward_scale'] == 1.0
  for rule in ('general', 'actor_critic', 'ppo'):
    found = at_starting_point('evaluate:asterix', rule, {})
    assert found['replay_capacity'] == found['num_environments']
  with pytest.raises(ValueError, match='by_rule.ppo has no setting .lerning'):
    settings = evaluate.get_config('catch').to_dict()
    training_config.config_of(
      {**settings, 'by_rule': {'ppo': {'lerning_rate': 1.0}}}
    )


@pytest.mark.usefixtures('cheap')
@pytest.mark.parametrize('point', POINTS)
def test_at_a_starting_point_a_setting_changes_only_what_it_names(
  point: str,
) -> None:
  for rule in NAMES:
    check_properties(
      lambda given, rule=rule: at_starting_point(point, rule, given), RESOLVED
    )


@pytest.mark.usefixtures('cheap')
@pytest.mark.parametrize('rule', NAMES)
def test_flags_and_trainers_change_only_what_they_name(
  rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  def by_flags(given: dict[str, Any]) -> dict[str, Any]:
    flags = [f'--config.{name}={x}' for name, x in given.items()]
    settings = common.settings_of(
      'evaluate:quickstart', [*flags, f'--config.rule={rule}']
    )
    config = training_config.config_of(settings)
    return flat((config.agent, config.rule_settings))

  def by_arguments(given: dict[str, Any]) -> dict[str, Any]:
    names = {*config_lib.names(agent_lib.AgentConfig)}
    of_rule = {name: x for name, x in given.items() if name not in names}
    of_agent = {name: x for name, x in given.items() if name in names}
    loaded = disco_rl.load_rule(rule, **of_rule)
    return flat(by_trainer(loaded, monkeypatch, **of_agent))

  check_properties(by_flags)
  # Only runs have folders for replay on disk.
  check_properties(by_arguments, {*by_flags({})} - {'replay_on_disk'})


def in_discovery(
  rule: str, given: dict[str, Any], starting_point: Any = None
) -> dict[str, Any]:
  """The settings of a discovery that starts from a rule."""
  config = starting_point or meta_training.base()
  settings = {**config.to_dict(), 'environments': 'catch/4x3', 'rule': rule}
  made = meta_trainer.config_of({**settings, **given}, flags=given)
  if rule != 'untrained':
    assert build.make_rule(made)[0] == made.rule_settings
  return config_lib.flatten(made)


# Of a discovery: what rules have, and some of agents.
OF_DISCOVERY = (
  *config_lib.names(type(registry.load('general')[0]), nested=False),
  *('batch_size', 'hidden_sizes', 'learning_rate', 'num_environments'),
)


@pytest.mark.usefixtures('cheap')
@pytest.mark.parametrize('rule', ['untrained', *sources.names()])
@pytest.mark.parametrize('module', [None, quickstart], ids=['base', 'quick'])
def test_in_discovery_a_setting_changes_only_what_it_names(
  rule: str, module: Any
) -> None:
  point = module and module.get_config()
  check_properties(lambda given: in_discovery(rule, given, point), OF_DISCOVERY)


@pytest.mark.usefixtures('cheap')
def test_discovery_starts_with_the_settings_of_the_rules_own() -> None:
  names = ('discount', 'num_bins', 'max_abs_value', 'q_cost', 'rule_lstm_size')
  found = {
    rule: tuple(in_discovery(rule, {})[name] for name in names)
    for rule in ('untrained', 'general')
  }
  assert found == {
    'untrained': (0.997, 601, 300.0, 0.2, 256),
    'general': (0.99, 61, 5.0, 0.5, 64),
  }
  assert in_discovery('untrained', {'rule_lstm_size': 7})['rule_lstm_size'] == 7
  with pytest.raises(ValueError, match='rule_lstm_size=7 is for untrained'):
    in_discovery('general', {'rule_lstm_size': 7})
  # A file of configs/ may have sizes for untrained rules.
  assert (
    in_discovery('general', {}, quickstart.get_config())['rule_lstm_size'] == 64
  )
  with pytest.raises(ValueError, match="cannot start from rule='actor_critic'"):
    in_discovery('actor_critic', {})
