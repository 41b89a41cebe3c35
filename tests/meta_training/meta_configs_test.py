"""Every config of discovery as it stands."""

import importlib
import pathlib
from typing import Any

import launching
import pytest

from configs import benchmarks
from configs import evaluate
from disco_rl.environments import registry
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import lifetimes
from disco_rl.meta_training import meta_trainer
from disco_rl.training import config as training_config


def read(name: str, *arguments: str) -> meta_config.MetaTrainingConfig:
  module = importlib.import_module(f'configs.{name}')
  config: Any = module.get_config(*arguments)
  return meta_trainer.config_of(config.to_dict())


def test_the_papers_populations() -> None:
  disco57, disco103 = read('disco57'), read('disco103')
  assert len(disco57.environments) == 57
  assert len(disco57.members) == 128
  assert disco57.members[57] == disco57.members[0] == 'atari/alien'
  assert len(disco103.environments) == 103
  counts = {disco103.members.count(name) for name in disco103.environments}
  assert counts == {2}
  for config in (disco57, disco103):
    assert config.inner_loop.inner_updates == 20
    assert config.agent.batch_size == 96
    assert config.inner_loop.validation_trajectories == 48
    # 10%, in whole trajectories, all of them new.
    assert config.agent.num_on_policy == (10,)
    assert config.agent.num_environments == 10
    assert config.agent.unroll_length + 1 == 29
    # Three lifetimes of 200M frames for each game, which its agents share.
    of_agent = config.meta_steps * (20 * 10 + 50) * 28 * 4
    of_game = of_agent * config.agents / len(config.environments)
    assert of_game == pytest.approx(600e6, rel=1e-4)


@pytest.mark.parametrize(
  ('name', 'variant', 'lives'),
  [
    ('disco57', (), [7143, 3572, 1786, 715]),
    ('disco103', (), [7143, 3572, 1786, 715]),
    ('disco57', ('tiny',), [9, 6, 3]),
    ('disco103', ('tiny',), [9, 6, 3]),
  ],
)
def test_lives_are_as_many_meta_steps_in_all_families(
  name: str, variant: tuple[str, ...], lives: list[int]
) -> None:
  config = read(name, *variant)
  agent = config.agent
  validation = -(
    -config.inner_loop.validation_trajectories // agent.num_environments
  )
  actions = (20 + validation) * agent.num_environments * agent.unroll_length
  for repeat in {
    registry.action_repeat(environment, config.preprocessing)
    for environment in config.environments
  }:
    ages = lifetimes.aging(config.lifetimes, actions * repeat, repeat)
    assert [-(-x // ages) for x in config.lifetimes.budgets] == lives


def test_a_shorter_benchmark_has_the_same_schedule() -> None:
  short, whole = (
    training_config.config_of(evaluate.get_config(name).to_dict())
    for name in ('procgen_50m', 'procgen')
  )
  assert 5e7 <= short.environment_steps < 5.001e7
  assert short.agent == whole.agent
  assert short.agent.decay_updates == whole.updates


def test_lengths_of_benchmarks_count_what_an_action_takes() -> None:
  for name, steps in (('atari', 2e8), ('dmlab', 1e9), ('procgen', 2e8)):
    config: Any = evaluate.get_config(name)
    record = training_config.config_of(config.to_dict())
    assert record.environment_steps == pytest.approx(steps, rel=1e-3)
    assert record.action_repeat == benchmarks.BENCHMARKS[name].action_repeat


@pytest.mark.parametrize(
  'code',
  [
    'from benchmarks import meta_step as benchmark\n'
    'for size in benchmark.SIZES.values():\n'
    '  settings = benchmark.make_settings(size, "mixed")\n'
    '  benchmark.meta_trainer.config_of(settings)',
    'from absl import flags\n'
    'from benchmarks import learner\n'
    'flags.FLAGS(["", "--rule=actor_critic"])\n'
    'assert learner.build_agent()[0].rule.discount == 0.99',
  ],
  ids=['meta_step', 'learner'],
)
def test_settings_of_timings_are_valid(
  code: str, tmp_path: pathlib.Path
) -> None:
  # In its own process: the flags have names of those of launchers. There are
  # no published weights, which these rules do not use.
  ended = launching.run_python('-c', code, DISCO_RL_WEIGHTS_DIR=str(tmp_path))
  assert ended.returncode == 0, ended.stderr


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
  def validate(name: str) -> None:
    suite = name.split('/')[0]
    if suite in ('atari', 'dmlab'):
      raise ImportError(f'install {suite}')

  monkeypatch.setattr(build.registry, 'validate', validate)
  config = read('disco103')
  with pytest.raises(ImportError) as caught:
    build.validate(config.environments)
  message = str(caught.value)
  assert message.count('install') == 2
  assert 'install atari' in message
  assert 'install dmlab' in message
  for name in ('quickstart', 'scaling'):
    assert f'--config={name}' in message
    for environment in read(name).environments:
      assert environment.partition('/')[0] in message


@pytest.mark.parametrize(
  ('name', 'variant', 'groups'),
  [
    ('quickstart', (), 1),
    ('general', (), 3),
    ('general', ('untrained',), 3),
    ('scaling', ('grids_16',), 2),
    ('disco57', ('tiny',), 1),
    ('disco103', ('tiny',), 4),
  ],
)
def test_configs_that_run_here(
  name: str, variant: tuple[str, ...], groups: int
) -> None:
  config = read(name, *variant)
  try:
    build.validate(config.environments)
  except ImportError as error:
    pytest.skip(str(error))
  rule, _ = build.make_rule(config)
  built = build.make_groups(config, rule)
  assert len(built) == groups
  assert sum(group.config.num_members for group in built) == config.agents
  trained = set(config.environments)
  assert not trained & set(config.held_out.environments)


def test_an_unknown_variant() -> None:
  with pytest.raises(ValueError, match="no variant 'small'; choose large"):
    read('disco103', 'small')
