"""Tests of the protocol for judging rules: declarations, choices, numbers."""

import collections
import csv
import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from configs import protocol as configs
from disco_rl import config as config_lib
from disco_rl.environments import registry
from disco_rl.environments.jax_native import task_distribution
from disco_rl.evaluation import comparison
from disco_rl.evaluation import contenders as contenders_lib
from disco_rl.evaluation import protocol as protocol_lib
from disco_rl.evaluation import protocol_report
from disco_rl.maths import statistics
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics

GRIDS = {
  'given': {'learning_rate': (1e-3, 1e-2)},
  'actor_critic': {'entropy_cost': (0.1, 0.2)},
  'uniform': {'rule': ('actor_critic',), 'entropy_cost': (1.0,)},
}


def declared(**changes: Any) -> protocol_lib.Protocol:
  """The protocol of configs/, with changes."""
  settings = configs.get_config().to_dict()
  return config_lib.build(protocol_lib.Protocol, {**settings, **changes})


# The declarations.


def _parameters(environment: Any) -> tuple[Any, ...]:
  """Kind, static fields and arrays, which equal tasks have in common."""
  leaves, structure = jax.tree.flatten(environment)
  return (
    type(environment),
    structure,
    tuple((x.shape, x.tobytes()) for x in map(np.asarray, leaves)),
  )


@pytest.mark.needs('minatar/breakout')
def test_the_sets_are_disjoint_by_name_and_by_parameters() -> None:
  protocol = declared()
  sets = (
    protocol.training_tasks,
    *protocol.validations(),
    protocol.test_tasks,
  )
  names = [name for tasks in sets for name in tasks]
  assert len(protocol.test_tasks) == 16 + 4 + 3 + 2 + 2 + 4
  made = {name: registry.make(name, 1, 0) for name in names}
  parameters = [_parameters(environment) for environment in made.values()]
  assert len(made) == len(names)
  for i, one in enumerate(parameters):
    assert all(one != other for other in parameters[:i]), names[i]
  # Of all tasks, only those with numbers have the shapes of tasks that agents
  # draw in training.
  key = jax.random.key(0)
  drawn = {
    name: _shapes(jax.eval_shape(environment.draw, key))
    for name, environment in made.items()
    if isinstance(environment, task_distribution.TaskDistribution)
  }
  assert len(drawn) == 3
  others = [
    _shapes(environment)
    for name, environment in made.items()
    if protocol_lib.family(name) not in drawn
  ]
  assert all(shapes not in others for shapes in drawn.values())


def test_equal_tasks_would_be_found() -> None:
  one, same, other = (
    _parameters(registry.make(name, 1, 0))
    for name in ('gridworld/04', 'gridworld/04', 'gridworld/03')
  )
  assert one == same != other


def test_all_contenders_choose_among_equally_many_settings() -> None:
  protocol = declared()
  contenders = contenders_lib.make(
    ['runs/a/rule.npz', 'b/mine.npz'], protocol.grids, protocol.candidates
  )
  by_name = {x.name: x for x in contenders}
  assert {x: len(one.points) for x, one in by_name.items()} == {
    **dict.fromkeys(('a', 'mine', 'disco103', 'imitation'), 15),
    **dict.fromkeys(('policy_gradient', 'actor_critic', 'ppo'), 15),
    'uniform': 1,
  }
  assert by_name['mine'].rule == 'b/mine.npz'
  assert by_name['uniform'].rule == 'actor_critic'
  # A grid of 15 is tried whole; one of 90 has each value as often as can be.
  assert by_name['a'].points == by_name['imitation'].points
  points = by_name['ppo'].points
  assert points == by_name['actor_critic'].points
  of = lambda name: collections.Counter(point[name] for point in points)
  assert of('learning_rate') == dict.fromkeys((1e-3, 2e-3, 5e-3, 1e-2, 2e-2), 3)
  assert of('updates_per_rollout') == {1: 5, 4: 5, 8: 5}
  assert of('entropy_cost') == {0.01: 5, 0.05: 5, 0.2: 5}
  assert sorted(of('normalize_advantage').values()) == [7, 8]
  assert len({tuple(point.values()) for point in points}) == 15


def test_numbers_go_on_beyond_a_grid_by_their_ratio() -> None:
  grid = {
    'learning_rate': (1e-2, 1e-3, 1e-1),
    'updates_per_rollout': (1, 4, 8),
    'lambda_': (0.0, 0.5, 0.9),
    'reward_scale': (1.0, 30.0),
    'normalize_advantage': (True, False),
  }
  (contender, *_) = contenders_lib.make(['ppo'], {**GRIDS, 'given': grid}, 999)
  middle = {
    'learning_rate': 1e-2,
    'updates_per_rollout': 4,
    'lambda_': 0.5,
    'reward_scale': 1.0,
    'normalize_advantage': True,
  }
  assert contender.beyond(middle) == {}
  beyond = {
    (name, value): contender.beyond({**middle, name: value})
    for name, values in grid.items()
    for value in values
  }
  # A count has no value below 1, a share none below 0; two values no middle.
  assert {edge: points for edge, points in beyond.items() if points} == {
    ('learning_rate', 1e-3): {
      'learning_rate': {**middle, 'learning_rate': 1e-4}
    },
    ('learning_rate', 1e-1): {
      'learning_rate': {**middle, 'learning_rate': 1.0}
    },
    ('updates_per_rollout', 8): {
      'updates_per_rollout': {**middle, 'updates_per_rollout': 16}
    },
    ('lambda_', 0.9): {'lambda_': {**middle, 'lambda_': 1.62}},
  }
  between = contender.between({**middle, 'updates_per_rollout': 8})
  changed = [
    {name: x for name, x in point.items() if x != middle[name]}
    for point in between
  ]
  assert changed == [
    {'learning_rate': 1e-3, 'updates_per_rollout': 8},
    {'learning_rate': 1e-1, 'updates_per_rollout': 8},
    {},
    {'lambda_': 0.0, 'updates_per_rollout': 8},
    {'lambda_': 0.9, 'updates_per_rollout': 8},
    {'reward_scale': 30.0, 'updates_per_rollout': 8},
    {'normalize_advantage': False, 'updates_per_rollout': 8},
  ]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'test_tasks': ('catch/5x5',)}, 'validation_tasks and test_tasks share'),
    ({'test_tasks': ()}, 'test_tasks is empty'),
    (
      {'validation_tasks': ('catch/5x5', 'bsuite/memory_chain')},
      'bsuite/memory_chain, whose best return is not known',
    ),
    (
      {'by_family': {'minatar': {'validation_tasks': ()}}},
      'validation_tasks is empty',
    ),
    (
      {'by_family': {'minatar': {'validation_tasks': ('minatar/freeway',)}}},
      'validation_tasks and test_tasks share minatar/freeway',
    ),
    (
      {'by_family': {'minatar': {'validation_tasks': 'minatar/seaquest'}}},
      "minatar.validation_tasks='minatar/seaquest' must be texts, as in",
    ),
    (
      {'by_family': {'minatar': {'validation_tasks': (1,)}}},
      r'minatar.validation_tasks=\(1,\) must be texts',
    ),
    (
      {'by_family': {'minatar': {'score_after': 3000}}},
      'minatar.score_after=3000 must be whole numbers',
    ),
    (
      {'by_family': {'minatar': {'validation_updates': 0}}},
      'minatar.validation_updates=0 must be at least 1',
    ),
    (
      {'by_family': {'minatar': {'score_after': (3000, 1000)}}},
      'minatar.score_after=.* must be rising',
    ),
    ({'by_family': {'minatar': {'seeds': 3}}}, 'minatar has seeds'),
    (
      {'validation_tasks': ('catch/5x5', 'catch/5x5')},
      'validation_tasks has catch/5x5 twice',
    ),
    (
      {
        'validation_tasks': ('catch/5x5',),
        'by_family': {'minatar': {'validation_tasks': ('catch/5x5',)}},
      },
      'validation_tasks has catch/5x5 twice',
    ),
    (
      {
        'by_family': {
          'bsuite': {},
          'gymnax': {'validation_tasks': ('bsuite/memory_chain',)},
        }
      },
      'gymnax.validation_tasks has bsuite/memory_chain, which is run with',
    ),
    ({'score_after': (500, 200)}, 'score_after=.* must be rising'),
    ({'grids': {'given': {}}}, 'grids lacks'),
  ],
)
def test_bad_declarations_are_refused(
  changes: dict[str, Any], message: str
) -> None:
  with pytest.raises(ValueError, match=message):
    declared(**changes)


def test_the_folder_of_a_rule_does_not_depend_on_other_rules() -> None:
  grids = declared().grids
  alone, other, both = (
    {x.rule: x.folder for x in contenders_lib.make(rules, grids, 15)}
    for rules in (['a/rule.npz'], ['b/rule.npz'], ['b/rule.npz', 'a/rule.npz'])
  )
  assert alone['a/rule.npz'] == both['a/rule.npz'] == 'a-rule'
  assert other['b/rule.npz'] == both['b/rule.npz'] == 'b-rule'
  with pytest.raises(ValueError, match='The grid of a has a value twice'):
    contenders_lib.make(
      ['a/rule.npz'], {**grids, 'given': {'learning_rate': (1e-3, 1e-3)}}, 15
    )


def test_tests_are_selected_by_name_and_by_family() -> None:
  protocol = declared()
  assert protocol.select([]) == protocol.test_tasks
  chosen = protocol.select(['catch', 'minatar/freeway'])
  assert len(chosen) == 4
  assert chosen[-1] == 'minatar/freeway'
  assert len(protocol.select(['random_chain'])) == 4
  with pytest.raises(ValueError, match=r"'cach', .* Nearest: catch,"):
    protocol.select(['cach'])


def _shapes(environment: Any) -> tuple[Any, ...]:
  leaves, structure = jax.tree.flatten(environment)
  return type(environment), structure, [np.shape(x) for x in leaves]


# What is chosen.


TEST = ('catch/4x4',)


def plan(workdir: pathlib.Path, **changes: Any) -> protocol_lib.Plan:
  settings = configs.get_config().to_dict()
  changes = {
    'validation_tasks': ('catch/5x5', 'catch/3x3'),
    'test_tasks': TEST,
    'score_after': (100, 200),
    'grids': GRIDS,
    **changes,
  }
  protocol = declared(**changes)
  names = {field.name for field in dataclasses.fields(protocol)}
  return protocol_lib.Plan(
    protocol=protocol,
    settings={k: v for k, v in settings.items() if k not in names},
    contenders=contenders_lib.make(['policy_gradient'], GRIDS, 15),
    workdir=workdir,
  )


def finish(job: Any, *returns: tuple[float, ...]) -> None:
  """Writes what a run leaves: returns of its agents, after 100 updates each.

  Its steps are more than the settings tell, as after a fork of a longer one.
  """
  job.folder.mkdir(parents=True)
  steps = 4 * job.config.agent.actions_per_update
  rows = [
    {
      'update': 100 * (i + 1),
      'seed': seed,
      'environment_steps': 100 * (i + 1) * steps,
      'return': value,
    }
    for i, of_seeds in enumerate(returns)
    for seed, value in enumerate(of_seeds)
  ]
  with metrics.MetricsWriter(job.folder, resume_from=0) as writer:
    writer.write(rows)
  json_files.write(
    job.folder / 'summary.json', {'updates': job.settings['updates']}
  )


def test_settings_are_chosen_by_the_validation_tasks_alone(
  tmp_path: pathlib.Path,
) -> None:
  a_plan = plan(tmp_path)
  jobs = a_plan.validation(TEST)
  # Random play has nothing to choose.
  assert [job.rule for job in jobs] == 4 * ['policy_gradient'] + 4 * [
    'actor_critic'
  ]
  assert {job.settings['updates'] for job in jobs} == {500}
  returns = {1e-3: (0.8, 0.8), 1e-2: (-0.6, 1.0)}
  for job in jobs[:4]:
    finish(job, (0.0, 0.0), returns[job.config.agent.learning_rate])
  for job in jobs[4:]:
    value = 0.5 if job.config.rule_settings['entropy_cost'] == 0.2 else 0.0
    finish(job, (0.9, 0.9), (value, value))
  choices = a_plan.choose(TEST)
  assert [dict(choice.point) for choice in choices] == [
    {'learning_rate': 1e-3},
    {'entropy_cost': 0.2},
    {'entropy_cost': 1.0},
  ]
  # Of four scores (1 + return) / 2 the middle two count: 0.9, and of 0.2, 0.2,
  # 1 and 1 their mean.
  iqms = [float(iqm.value) for iqm in choices[0].iqms if iqm is not None]
  np.testing.assert_allclose(iqms, [0.9, 0.6])
  # Tests are run with these settings, and with no others.
  tests = a_plan.tests(choices, ['catch/4x4'])
  assert [job.config.agent.learning_rate for job in tests[:1]] == [1e-3]
  assert [job.config.rule_settings['entropy_cost'] for job in tests[1:]] == [
    0.2,
    1.0,
  ]


def _settings(jobs: list[Any], rule: str) -> dict[tuple[float, float], None]:
  """Learning rates and discounts of a rule's runs, in order."""
  return dict.fromkeys(
    (job.settings['learning_rate'], job.settings['lambda_'])
    for job in jobs
    if job.rule == rule
  )


def test_grids_grow_until_no_choice_is_at_their_edge(
  tmp_path: pathlib.Path,
) -> None:
  axes = {'learning_rate': (1e-3, 2e-3, 4e-3), 'lambda_': (0.5, 0.9)}
  grids = {**GRIDS, 'given': axes, 'actor_critic': axes}
  a_plan = dataclasses.replace(
    plan(tmp_path, grids=grids, growth=2),
    contenders=contenders_lib.make(['policy_gradient'], grids, 15),
  )
  # The rule is best at a rate of 8e-3; actor-critic, in the middle of its grid.
  score = lambda job: (
    (
      -abs(np.log2(job.settings['learning_rate'] / 8e-3)) / 10
      if job.rule == 'policy_gradient'
      else 0.5 * (job.settings['learning_rate'] == 2e-3)
    )
    + 0.01 * (job.settings['lambda_'] == 0.9)
  )
  rounds = []
  done: set[pathlib.Path] = set()
  while jobs := [x for x in a_plan.validation(TEST) if x.folder not in done]:
    for job in jobs:
      finish(job, (score(job),), (score(job),))
    done |= {job.folder for job in jobs}
    rounds.append(jobs)
  first, second, third = rounds
  assert [len(jobs) for jobs in rounds] == [2 * 6 * 2, 2 * 2 * 2, 2 * 2 * 2]
  # Both add two settings, in each of two validation tasks. The rule: beyond
  # the best, (4e-3, 0.9), and beyond the second, since all between were tried.
  assert [*_settings(second, 'policy_gradient')] == [(8e-3, 0.9), (8e-3, 0.5)]
  assert [*_settings(third, 'policy_gradient')] == [
    (1.6e-2, 0.9),
    (1.6e-2, 0.5),
  ]
  # Those of actor-critic are beyond the third best, and so on.
  assert [*_settings(second, 'actor_critic')] == [(5e-4, 0.9), (8e-3, 0.9)]
  assert not {*_settings(first, 'actor_critic')} & {
    *_settings(third, 'actor_critic')
  }
  chosen, reference, _ = a_plan.choose(TEST)
  assert chosen.point == {'learning_rate': 8e-3, 'lambda_': 0.9}
  assert chosen.edges == reference.edges == ()
  assert len(chosen.iqms) == len(reference.iqms) == 6 + 2 + 2
  # A second protocol in the same folder asks for the same runs.
  again = dataclasses.replace(a_plan)
  assert {job.folder for job in again.validation(TEST)} == done


def test_grids_stop_growing_where_a_setting_ends_or_after_three_rounds(
  tmp_path: pathlib.Path,
) -> None:
  axes = {'lambda_': (0.5, 0.7, 0.9), 'learning_rate': (1e-3, 2e-3, 4e-3)}
  grids = {**GRIDS, 'given': axes, 'actor_critic': {}}
  a_plan = dataclasses.replace(
    plan(tmp_path, grids=grids, growth=1),
    contenders=contenders_lib.make(['policy_gradient'], grids, 15),
  )
  score = lambda job: (
    job.settings['lambda_'] / 2 + job.settings['learning_rate']
  )
  done: set[pathlib.Path] = set()
  while jobs := [x for x in a_plan.validation(TEST) if x.folder not in done]:
    for job in jobs:
      finish(job, (score(job),), (score(job),))
    done |= {job.folder for job in jobs}
  chosen = a_plan.choose(TEST)[0]
  # A lambda of 1.16 is not valid, so rates went on, to 8, 16 and 32e-3.
  assert chosen.point == {'lambda_': 0.9, 'learning_rate': 3.2e-2}
  assert chosen.edges == ('learning_rate',)
  assert len(chosen.iqms) == 9 + 3


def test_a_setting_with_a_failed_run_is_not_chosen(
  tmp_path: pathlib.Path,
) -> None:
  a_plan = plan(tmp_path)
  jobs = a_plan.validation(TEST)
  for job in jobs:
    finish(job, (0.0,), (0.5 if job is jobs[0] else 0.0,))
  jobs[0].fail('the loss became non-finite')
  choice = a_plan.choose(TEST)[0]
  assert choice.point == {'learning_rate': 1e-2}
  assert choice.iqms[0] is None
  jobs[1].fail('so did this one')
  with pytest.raises(
    ValueError, match=r'has no scores .* \(the loss became non-finite\)'
  ):
    a_plan.choose(TEST)
  # Where only other tests are run, there is nothing to choose.
  assert a_plan.choose(()) == []


def test_damaged_runs_of_other_families_are_reported(
  tmp_path: pathlib.Path,
) -> None:
  a_plan = plan(tmp_path)
  for job in a_plan.validation(TEST):
    finish(job, (0.0,), (0.5,))
  assert a_plan.choose(())
  (job.folder / 'metrics.csv').write_text('update,seed,return\n1,0')
  with pytest.raises(files.WorkdirError, match=r'metrics\.csv'):
    a_plan.choose(())


def test_a_rule_may_be_that_of_a_run_called_as_a_baseline() -> None:
  path = 'runs/imitation/rule.npz'
  first, *others = contenders_lib.make([path], declared().grids, 15)
  assert (first.name, first.rule) == (path, path)
  assert path not in {x.name for x in others}


@pytest.mark.parametrize('number', [4, 8])  # 8 does not divide the budget.
def test_ppo_learns_more_from_as_many_environment_steps(
  number: int, tmp_path: pathlib.Path
) -> None:
  grids = {**GRIDS, 'ppo': {'updates_per_rollout': (number,)}}
  contenders = contenders_lib.make([], grids, 15)
  a_plan = dataclasses.replace(plan(tmp_path), contenders=contenders)
  jobs = {
    x.name: a_plan.run(TEST[0], x, x.points[0]) for x in a_plan.contenders
  }
  reference, ppo = jobs['actor_critic'].config, jobs['ppo'].config
  assert ppo.updates == number * reference.updates
  steps = [config.steps_after(config.updates) for config in (ppo, reference)]
  assert steps[0] == steps[1]
  assert ppo.agent.batch_size == ppo.agent.num_environments, 'whole rollouts'
  assert sum(ppo.agent.num_on_policy) == number * ppo.agent.num_environments
  assert ppo.agent.updates(5) == 5 * number
  # Rows are at the same environment steps, among them those of the scores.
  assert ppo.agent.whole(ppo.log_every) == number * reference.log_every


def test_chains_have_rollouts_and_validation_tasks_of_their_own(
  tmp_path: pathlib.Path,
) -> None:
  grid, chain = 'random_grid/20', 'random_chain/20'
  a_plan = plan(tmp_path, test_tasks=(grid, chain))
  of_grids, of_chains = (
    {job.config.environment: job for job in a_plan.validation([test])}
    for test in (grid, chain)
  )
  assert {*of_grids}.isdisjoint(of_chains)
  contender = a_plan.contenders[0]
  for test, jobs in ((grid, of_grids), (chain, of_chains)):
    jobs[test] = a_plan.run(test, contender, contender.points[0])
  rollouts = lambda job: (
    job.config.agent.unroll_length,
    job.settings['lambda_'],
  )
  assert {*map(rollouts, of_grids.values())} == {(20, 0.95)}
  assert {*map(rollouts, of_chains.values())} == {(64, 1.0)}


def test_a_family_is_validated_by_tasks_of_its_own(
  tmp_path: pathlib.Path,
) -> None:
  family = {
    'validation_tasks': ('gymnax/Acrobot-v1',),
    'validation_updates': 100,
    'hidden_sizes': (8,),
  }
  tests = ('catch/4x4', 'gymnax/CartPole-v1')
  a_plan = plan(tmp_path, test_tasks=tests, by_family={'gymnax': family})
  own = a_plan.validation(tests[1:])
  assert {job.config.environment for job in own} == {'gymnax/Acrobot-v1'}
  assert {job.settings['updates'] for job in own} == {100}
  assert {job.config.agent.network.torso.hidden_sizes for job in own} == {(8,)}
  # The best return of Acrobot is not known: raw ones are compared.
  for job in own:
    rate = job.config.agent.learning_rate
    finish(job, (-90.0 if rate == 1e-2 else -300.0,))
  choices = a_plan.choose(tests[1:])
  assert {choice.validation_tasks for choice in choices} == {
    ('gymnax/Acrobot-v1',)
  }
  assert choices[0].point == {'learning_rate': 1e-2}
  assert choices[0].iqms[1] is not None
  assert choices[0].iqms[1].value == pytest.approx(-90.0)
  # For Catch nothing is chosen yet.
  jobs = a_plan.tests(choices, tests)
  assert [job.config.environment for job in jobs] == 3 * [tests[1]]
  for job in a_plan.validation(tests[:1]):
    rate = job.config.agent.learning_rate
    finish(job, (0.0,), (0.9 if rate == 1e-3 else 0.0,))
  choices = a_plan.choose(tests)
  both = a_plan.tests(choices, tests)
  assert [
    (job.config.environment, job.config.agent.learning_rate)
    for job in both
    if job.rule == 'policy_gradient'
  ] == [(tests[0], 1e-3), (tests[1], 1e-2)]
  # Each family of tests is reported with its own settings.
  for job in both:
    finish(job, (0.1,), (0.2 if job.rule == 'uniform' else 0.9,))
  protocol_report.write(a_plan, choices)
  summary = json_files.read(tmp_path / 'summary.json')
  assert [x['environments'] for x in summary['benchmarks'].values()] == [
    ['catch/4x4'],
    ['catch/4x4'],
    ['gymnax/CartPole-v1'],
    ['gymnax/CartPole-v1'],
  ]
  chosen = [x['settings'] for x in summary['chosen'] if x['rule'] != 'uniform']
  assert chosen[0] == {'learning_rate': 1e-3}
  assert chosen[2] == {'learning_rate': 1e-2}


# What is reported.


def results(
  task: str,
  returns: dict[str, tuple[float, ...]],
  steps_per_update: int = 10,
) -> dict[int, list[comparison.Result]]:
  """Half of these returns after 10 updates, all after 20."""
  whole = {
    rule: np.stack([0.5 * np.array(x), np.array(x)], axis=1)
    for rule, x in returns.items()
  }
  steps = steps_per_update * np.array([10.0, 20.0])
  return {
    updates: [
      comparison.Result(task, rule, 0.1, (steps[:n], x[:, :n]))
      for rule, x in whole.items()
    ]
    for n, updates in ((1, 10), (2, 20))
  }


@pytest.fixture(scope='module')
def reported(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  workdir = tmp_path_factory.mktemp('report')
  estimate = statistics.Estimate(np.array(0.5), np.array(0.4), np.array(0.6))
  choices = [
    protocol_lib.Choice(
      contender,
      ('catch/5x5', 'chain'),
      contender.points[0],
      (estimate, None)[: len(contender.points)],
      tuple(
        list(results('catch/5x5', {contender.name: (0.5 + i, 0.7)})[20])
        for i in range(len(contender.points))
      ),
    )
    for contender in contenders_lib.make(['policy_gradient'], GRIDS, 15)
  ]
  tests = {
    'catch/4x4': {
      'policy_gradient': (1.0, 0.2),
      'actor_critic': (0.6, 0.8),
      'uniform': (-0.5, -0.7),
    },
    'bsuite/discounting_chain': {
      'policy_gradient': (0.5, 0.7),
      'actor_critic': (1.1, 1.1),
      'uniform': (1.0, 1.0),
    },
    # The reference learns nothing: returns have no scale.
    'gymnax/CartPole-v1': {
      'policy_gradient': (30.0, 30.0),
      'actor_critic': (20.0, 20.0),
      'uniform': (20.0, 20.0),
    },
    'gridworld/held_out_00': {
      'policy_gradient': (1.0, 1.0),
      'actor_critic': (0.099, 1.0),
      'uniform': (0.1, 0.1),
    },
  }
  setup = protocol_report.setup(2, (('catch/5x5',),), tuple(tests), 29)
  protocol_report.write_results(
    {task: results(task, returns) for task, returns in tests.items()},
    choices,
    setup,
    dict.fromkeys(tests),
    workdir,
  )
  return workdir


def test_the_page_has_its_headings_and_tables(reported: pathlib.Path) -> None:
  lines = (reported / 'report.md').read_text().splitlines()
  benchmark = ['### Rule against rule', '### Every environment']
  tests = 'catch, bsuite, gymnax, gridworld'
  assert [line for line in lines if line.startswith('#')] == [
    '# Evaluation of update rules',
    '## The choice of settings',
    '## Families of tests',
    '## Worse than random play',
    f'## After 10 updates (100 environment steps): {tests}',
    *benchmark,
    f'## After 20 updates (200 environment steps): {tests}',
    *benchmark,
    '## gymnax/CartPole-v1, raw returns',
    *benchmark,
  ]
  rows = [line for line in lines if line.startswith('|')]
  start = rows.index('| rule | validation | settings | IQM |  |')
  row = lambda rule, point, iqm, chosen: (
    f'| {rule} | catch/5x5, chain | {point} | {iqm} | {chosen} |'
  )
  shown = '0.500 [0.400, 0.600]'
  assert rows[start + 2 : start + 7] == [
    row('policy_gradient', 'learning_rate=0.001', shown, 'chosen'),
    row('policy_gradient', 'learning_rate=0.01', 'no scores', ''),
    row('actor_critic', 'entropy_cost=0.1', shown, 'chosen'),
    row('actor_critic', 'entropy_cost=0.2', 'no scores', ''),
    row('uniform', 'entropy_cost=1', shown, 'chosen'),
  ]
  header = (
    '| updates | environment steps | IQM | policy_gradient | actor_critic '
  )
  start = rows.index(f'{header}| uniform |')
  of_families = [row.split(' | ')[:3] for row in rows[start + 2 : start + 10]]
  assert of_families == [
    [f'| {updates}', f'{10 * updates}', name]
    for updates in (10, 20)
    for name in ('all', 'bsuite', 'catch', 'gridworld')
  ]
  summary = json_files.read(reported / 'summary.json')
  assert summary['chosen'][0] == {
    'rule': 'policy_gradient',
    'validation_tasks': ['catch/5x5', 'chain'],
    'settings': {'learning_rate': 0.001},
    'edges': [],
  }
  assert summary['agents'] == 2 and summary['declared'] == 29
  table = (reported / 'scores.csv').read_text().splitlines()
  assert table[0] == 'task,rule,updates,environment_steps,agent,return,score'
  assert table[1].startswith('catch/4x4,policy_gradient,10,100,0,0.5,0.687')
  table = (reported / 'validation.csv').read_text().splitlines()
  assert table[:5] == [
    'task,rule,settings,agent,return',
    'catch/5x5,policy_gradient,learning_rate=0.001,0,0.5',
    'catch/5x5,policy_gradient,learning_rate=0.001,1,0.7',
    'catch/5x5,policy_gradient,learning_rate=0.01,0,1.5',
    'catch/5x5,policy_gradient,learning_rate=0.01,1,0.7',
  ]
  assert len(table) == 1 + 2 * 5


def test_scores_are_those_worked_out_by_hand(reported: pathlib.Path) -> None:
  with (reported / 'scores.csv').open() as file:
    rows = {
      (r['task'], r['rule'], r['updates'], r['agent']): float(r['score'])
      for r in csv.DictReader(file)
    }
  assert len(rows) == 4 * 3 * 2 * 2
  score = lambda task, updates='20', agent='0': rows[
    task, 'policy_gradient', updates, agent
  ]
  # Catch: random play returns -0.6 on average, the best is 1.
  assert score('catch/4x4', agent='1') == pytest.approx(0.8 / 1.6)
  assert score('catch/4x4', '10') == pytest.approx(1.1 / 1.6)
  # Elsewhere from random play, 1.0, to the tuned actor-critic, 1.1.
  assert score('bsuite/discounting_chain') == pytest.approx(-5.0)
  # Grid worlds: 0.099 and 1.0, whatever was measured.
  assert score('gridworld/held_out_00', '10') == pytest.approx(0.401 / 0.901)
  assert np.isnan(score('gymnax/CartPole-v1'))


def test_aggregates_and_improvement_are_those_worked_out_by_hand(
  reported: pathlib.Path,
) -> None:
  summary = json_files.read(reported / 'summary.json')
  name = 'catch_bsuite_gymnax_gridworld_after_20'
  compared = summary['benchmarks'][name]
  assert compared['environments'] == [
    'catch/4x4',
    'bsuite/discounting_chain',
    'gridworld/held_out_00',
  ]
  # Scores 1, 0.5, -5, -3, 1, 1: of six the lowest and the highest are left out.
  iqm = compared['rules']['policy_gradient']['iqm']
  assert iqm['value'] == pytest.approx((1 + 0.5 - 3 + 1) / 4)
  assert iqm['ci95'][0] <= iqm['value'] <= iqm['ci95'][1]
  (improvement,) = (
    x['value']
    for x in compared['probability_of_improvement']
    if (x['rule'], x['than']) == ('policy_gradient', 'actor_critic')
  )
  # By test: two of four pairs; none; two of four, and two equal ones.
  assert improvement == pytest.approx((0.5 + 0.0 + 0.75) / 3)
  families = {
    (x['updates'], x['family']): x['iqm'] for x in summary['iqm_by_family']
  }
  names = ['all', 'bsuite', 'catch', 'gridworld']
  assert [*families] == [(n, name) for n in (10, 20) for name in names]
  assert families[20, 'bsuite']['actor_critic']['value'] == pytest.approx(1.0)
  assert families[20, 'all']['policy_gradient']['value'] == iqm['value']


def test_a_budget_in_which_nobody_has_finished_an_episode_has_no_steps(
  tmp_path: pathlib.Path,
) -> None:
  task = 'gridworld/held_out_00'
  found = results(task, {'policy_gradient': (1.0, 1.0), 'uniform': (0.4, 0.4)})
  found[10] = [
    dataclasses.replace(x, curve=(x.curve[0], np.full_like(x.curve[1], np.nan)))
    for x in found[10]
  ]
  setup = protocol_report.setup(2, (), (task,), 29)
  protocol_report.write_results(
    {task: found}, [], setup, {task: None}, tmp_path
  )
  text = (tmp_path / 'report.md').read_text()
  assert 'After 10 updates (unknown environment steps)' in text
  assert 'After 20 updates (200 environment steps)' in text


def test_tests_with_longer_rollouts_are_compared_on_their_own(
  tmp_path: pathlib.Path,
) -> None:
  entries = {
    'gridworld/held_out_00': None,
    'gridworld/held_out_17': 'gridworld_held_out_chains',
  }
  returns = {'policy_gradient': (1.0, 1.0), 'uniform': (0.4, 0.4)}
  protocol_report.write_results(
    {
      task: results(task, returns, steps_per_update)
      for task, steps_per_update in zip(entries, (10, 32))
    },
    [],
    protocol_report.setup(2, (), tuple(entries), 29),
    entries,
    tmp_path,
  )
  summary = json_files.read(tmp_path / 'summary.json')
  environments = {
    name: x['environments'] for name, x in summary['benchmarks'].items()
  }
  assert environments == {
    f'{entry or "gridworld"}_after_{updates}': [task]
    for task, entry in entries.items()
    for updates in (10, 20)
  }
  # Interquartile means are of both.
  (both,) = (
    x['iqm']['uniform']['value']
    for x in summary['iqm_by_family']
    if (x['updates'], x['family']) == (20, 'gridworld')
  )
  scores = (0.4 - 0.099) / (1 - 0.099), (0.4 - 0.36) / (1 - 0.36)
  assert both == pytest.approx(sum(scores) / 2)
  # 20 updates of 10 steps in the one, of 32 in the other.
  (steps,) = (
    x['environment_steps']
    for x in summary['iqm_by_family']
    if (x['updates'], x['family']) == (20, 'gridworld')
  )
  assert steps == '200 to 640'
  with (tmp_path / 'scores.csv').open() as file:
    rows = {
      (row['task'], row['updates'], row['environment_steps'])
      for row in csv.DictReader(file)
    }
  assert rows == {
    ('gridworld/held_out_00', '10', '100'),
    ('gridworld/held_out_00', '20', '200'),
    ('gridworld/held_out_17', '10', '320'),
    ('gridworld/held_out_17', '20', '640'),
  }


def test_what_is_worse_than_random_play_is_listed(
  reported: pathlib.Path,
) -> None:
  summary = json_files.read(reported / 'summary.json')
  worse = {
    (x['task'], x['rule'], x['updates']): (x['value'], x['ci95'])
    for x in summary['worse_than_random']
  }
  assert {task for task, _, updates in worse if updates == 20} == {
    'bsuite/discounting_chain'
  }
  # Means of 0.6 and 1.0; of two agents 0.5 or 0.7 may be drawn twice.
  value, interval = worse['bsuite/discounting_chain', 'policy_gradient', 20]
  assert value == pytest.approx(-0.4)
  assert interval == pytest.approx([-0.5, -0.3])
  # After 10 updates Catch is better than random play by its own measure.
  assert ('catch/4x4', 'policy_gradient', 10) not in worse
  row = '| bsuite/discounting_chain | policy_gradient | 20 | -0.400 ['
  lines = (reported / 'report.md').read_text().splitlines()
  (line,) = (line for line in lines if line.startswith(row))
  assert line.endswith(' | yes |')


def test_the_page_needs_no_other_file(reported: pathlib.Path) -> None:
  page = (reported / 'report.html').read_text()
  for text in (
    'The choice of settings',
    'Families of tests',
    'Worse than random play',
    'best possible return in grid worlds, in random chains and on Catch',
    'Rule against rule',
    'After 10 updates (100 environment steps): catch, bsuite, gymnax, grid',
    'gymnax/CartPole-v1, raw returns',
  ):
    assert text in page, text
  assert page.count('data:image/png;base64') >= 2 * 4
  assert 'src="figures' not in page
  assert 'src="http' not in page
