"""Shows the result of a discovery on one page, index.html.

  disco-rl showcase --workdir=runs/quickstart

New agents are trained with the discovered rule, with the rule before discovery,
and with actor-critic, in an environment that the population did not use. The
page has their scores, learning curves and films, and the curves of the
discovery. Repeat the command to resume an interrupted one; finished work is not
repeated.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import shlex
from typing import TYPE_CHECKING
from typing import Any

from absl import flags
import numpy as np

from configs import evaluate
from disco_rl import config as config_lib
from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from disco_rl.evaluation import planned_runs
  from disco_rl.evaluation import showcase
  from disco_rl.update_rules import cards

_WORKDIR = common.workdir_flag()
_ENVIRONMENT = flags.DEFINE_string(
  'environment',
  None,
  'Environment of the new agents; by default the first held-out one of the '
  'discovery, or else the first of its population.',
)
_UPDATES = flags.DEFINE_integer(
  'updates',
  500,
  'Updates of each agent that learns by the rule.',
  lower_bound=1,
)
_AGENTS = flags.DEFINE_integer(
  'agents', 5, 'New agents of each rule.', lower_bound=1
)
_EPISODES = 6  # The number in each film.


def main(argv: Sequence[str]) -> None:
  """Trains agents, draws films and writes the page."""
  if _WORKDIR.value is None:
    fail('Name the folder of a discovery: --workdir=RUN.')
  common.begin(argv, _WORKDIR.value)
  run = pathlib.Path(_WORKDIR.value)
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl import config as config_lib
  from disco_rl import paths
  from disco_rl.evaluation import planned_runs
  from disco_rl.evaluation import showcase
  from disco_rl.meta_training import config
  from disco_rl.runtime import files
  from disco_rl.runtime import forks
  from disco_rl.runtime import json_files
  from disco_rl.runtime import workdirs
  from disco_rl.update_rules import cards
  from launch import scheduler

  with in_one_line(ValueError, ImportError):
    if run.is_dir():
      files.check_tree(run, is_written=True)
    try:
      known = {*config_lib.names(config.MetaTrainingConfig)}
      settings = forks.read_settings(run, known)
      steps = json_files.read(run / 'summary.json')['meta_steps']
      # It becomes the name of a folder.
      config_lib.check('meta_steps', steps, config_lib.CountOrZero)
      population, start = f'{settings["environments"]}', f'{settings["rule"]}'
      card = cards.read(run / 'rule.json')
      shared, facts = _settings(settings), _facts(card, start)
    except FileNotFoundError as error:
      fail(
        f'{run} holds no finished run of disco-rl meta-train: {error} A run '
        'that was stopped is resumed by its own command.'
      )
    # The files may hold anything.
    except (OSError, LookupError, AttributeError, TypeError) as error:
      fail(f'{run} holds no finished run of disco-rl meta-train: {error!r}')
    # A discovery that has continued since has another rule.
    folder = run / 'showcase' / f'{steps}'
    runs = _plan(shared, _like_population(settings), run, folder)
    planned_runs.check(runs)
    with workdirs.locked(folder):
      failures = scheduler.run_all(runs, max_processes=1)
    if failures:
      fail('; '.join(failures.values()))
    trained, no_film = _trained(runs)
    page = run / 'index.html'
    environment = runs[0].config.environment
    showcase.write(
      page,
      showcase.Showcase(
        discovery=facts,
        on=population,
        meta_curves=run / 'curves.png',
        held_out=_held_out(run),
        rule_meta_step=card.meta_steps or 0,
        environment=environment,
        trained=trained,
        no_film=no_film,
        commands=_commands(run, runs),
      ),
    )
  shown = paths.shown(page)
  print(f'Open {shown}: the result in words, numbers and films.')


def _facts(card: 'cards.Card', start: str) -> dict[str, str]:
  """Returns facts about the discovery, from its card."""
  from disco_rl.meta_training import config

  is_untrained = start == config.UNTRAINED
  compute, versions = card.compute, card.versions
  return {
    'began as': 'an untrained one, with random weights'
    if is_untrained
    else start,
    'agents': f'{card.agents}',
    'meta-steps': f'{card.meta_steps:,}',
    'environment steps': f'{card.environment_steps:,}',
    'seed': f'{card.seed}',
    'time': f'{compute["seconds"]:.0f} s on {compute["devices"]} x '
    f'{compute["kind"]}',
    'versions': ', '.join(f'{name} {x}' for name, x in versions.items()),
  }


def _held_out(
  run: pathlib.Path,
) -> 'tuple[np.ndarray, dict[str, np.ndarray]]':
  """Reads meta-steps and mean returns by held-out environment."""
  from disco_rl.runtime import metrics

  columns = metrics.read(run / 'held_out' / 'metrics.csv')
  if not columns:
    return np.empty(0), {}
  names = columns['environment']
  return np.unique(columns['meta_step']), {
    name: columns['return'][names == name]
    for name in dict.fromkeys(names.tolist())
  }


def _settings(discovery: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of all new agents, whatever their rule."""
  from disco_rl.environments import suites

  environment = _ENVIRONMENT.value or next(
    name
    for key in ('held_out_environments', 'environments')
    for name in suites.listed(discovery[key])
  )
  return {
    **evaluate.base().to_dict(),
    'preprocessing': discovery['preprocessing'],
    'environment': environment,
    'seeds': _AGENTS.value,
    'updates': _UPDATES.value,
  }


def _like_population(discovery: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the data and networks of the population; optimizers suit rules."""
  from disco_rl.agent import sizes
  from disco_rl.networks import agent_network

  networks = config_lib.names(agent_network.AgentNetworkConfig)
  shared = {*networks, *sizes.SMALL} - {'learning_rate'}
  return {name: discovery[name] for name in shared if name in discovery}


def _plan(
  shared: Mapping[str, Any],
  population: Mapping[str, Any],
  run: pathlib.Path,
  folder: pathlib.Path,
) -> 'list[planned_runs.Run]':
  """Returns a run for each rule.

  Args:
    shared: The settings of all new agents.
    population: The settings of those with a discovered or untrained rule alone.
    run: The folder of the discovery.
    folder: The folder of the runs.
  """
  from disco_rl.evaluation import planned_runs
  from disco_rl.evaluation import showcase

  environment = shared['environment']

  def training(label: str, given: Mapping[str, Any]) -> planned_runs.Run:
    return planned_runs.training(
      f'{environment}, {label}',
      folder.joinpath(planned_runs.slug(environment), label.replace(' ', '_')),
      label,
      {**shared, **given},
    )

  # As below the folder of the command, which may be moved to another machine.
  before, discovered = (
    training(label, {**population, 'rule': paths.shown(run / name)})
    for label, name in (
      (showcase.BEFORE, 'initial_rule.npz'),
      (showcase.DISCOVERED, 'rule.npz'),
    )
  )
  # The rule made by hand has the data and networks that suit it, not those of
  # the population, and equally many environment steps.
  by_hand = {
    'rule': 'actor_critic',
    'steps': discovered.config.steps_after(discovered.config.updates),
  }
  return [before, discovered, training(showcase.HAND_MADE, by_hand)]


def _trained(
  runs: 'Sequence[planned_runs.Run]',
) -> 'tuple[list[showcase.Trained], str | None]':
  """Returns the results of all runs, and the reason if films are missing."""
  from disco_rl.evaluation import showcase
  from disco_rl.training import learning_curves

  trained, reason = [], None
  for run in runs:
    film = None
    if reason is None:
      film, reason = _film(run.folder)
    curve = learning_curves.read_curve(run.folder / 'metrics.csv')
    trained.append(showcase.Trained(run.rule, curve, film))
  return trained, reason


def _film(
  folder: pathlib.Path,
) -> tuple[tuple[pathlib.Path, float] | None, str | None]:
  """Returns a film of a run's first agent, or the reason why there is none."""
  import disco_rl
  from disco_rl.environments import base
  from disco_rl.environments.host import adapters
  from disco_rl.runtime import video

  policy = disco_rl.load_policy(folder)
  path = folder / 'play.gif'
  try:
    episodes, film = policy.film(_EPISODES, greedy=False, seed=0)
    video.write(path, film.frames, film.frames_per_second)
  # The page still shows the numbers.
  except (base.RenderError, adapters.HostEnvironmentError, OSError) as error:
    return None, f'{error}'
  return (path, episodes.mean), None


def _commands(
  run: pathlib.Path, runs: 'Sequence[planned_runs.Run]'
) -> list[tuple[str, str]]:
  """Returns suggested next commands."""
  found = runs[1]  # With the discovered rule.
  folder = shlex.quote(paths.shown(found.folder))
  return [
    (
      'Watch one of these agents for longer:',
      f'disco-rl play --workdir={folder} --episodes=20',
    ),
    (
      'Show the rule on another environment, such as a larger board:',
      f'disco-rl showcase --workdir={shlex.quote(paths.shown(run))} '
      '--environment=catch/9x4',
    ),
    (
      'Train an agent with it in Python:',
      'import disco_rl\n\n'
      f'trainer = disco_rl.Trainer({found.config.environment!r}, '
      f'rule={paths.shown(run / "rule.npz")!r})\n'
      f"print(trainer.train(updates={_UPDATES.value})['return'])\n"
      'print(trainer.evaluate(episodes=100))',
    ),
  ]


if __name__ == '__main__':
  common.start(main)
