"""Draws what a rule has learned, with the analyses of the paper's Fig. 4.

  disco-rl analyse --workdir=runs/catch_disco103

The rule and the agent are from a run of disco-rl train, in any environment,
which may still be running. The command writes those of these files that apply
to the rule and to the observations, to the folder `analysis` of the run:

  targets.png    the targets in a hand-made scene
  trace.png      the agent's predictions around its largest reward
  gradients.png  the sensitivity of predictions to observations
  probes.png     what predictions reveal about the future
  horizon.png    how far ahead the rule looks
  reliance.png   how much its targets depend on predictions
  responses.png  how targets move when a reward, an action or an end changes, of
                 all agents, and with a policy gradient; numbers in a .csv
  values.png     what predictions tell about exact values of states, of all
                 agents, in grid worlds like random_grid/40; numbers in a .csv
  explore.html   an interactive page for trying the rule

With --curve_updates it also writes without_predictions.png, learning curves of
agents whose rule cannot see y and z; with --life_updates, terms.png and
terms.csv: how much of the rule is a sum of hand-written terms, such as the
policy gradient, along the lives of new agents; and meta_rnn.png, with
meta_rnn_state.csv and meta_rnn_effect.csv: what can be read from the state of
the meta-RNN, and how targets move if another replaces it.
"""

from collections.abc import Sequence
import pathlib
from typing import TYPE_CHECKING

from absl import flags

from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from matplotlib import figure

_WORKDIR = common.workdir_flag()
_AGENT_SEED = flags.DEFINE_integer(
  'agent_seed',
  None,
  "Seed of the run's agent; by default the first, and all for CSV files.",
  lower_bound=0,
)
_RECORDED_STEPS = flags.DEFINE_integer(
  'recorded_steps', 448, 'Steps to record in 16 environments.', lower_bound=16
)
_CURVE_UPDATES = flags.DEFINE_integer(
  'curve_updates',
  0,
  'Updates of agents from which predictions are hidden, whose curves are drawn '
  "next to the run's; 0: there are none.",
  lower_bound=0,
)
_LIFE_UPDATES = flags.DEFINE_integer(
  'life_updates',
  0,
  'Updates of new agents, along whose lives the rule is regressed on '
  'hand-written terms, and its meta-RNN is examined; 0: there are none.',
  lower_bound=0,
)
# The seed of the recording, of the probes and of the noise on predictions.
_ANALYSIS_SEED = 0


def main(argv: Sequence[str]) -> None:
  """Draws all pictures."""
  if _WORKDIR.value is None:
    fail('Name the run of disco-rl train by --workdir=RUN.')
  common.begin(argv, _WORKDIR.value)
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.analysis import distillation
  from disco_rl.analysis import exact_values
  from disco_rl.analysis import explorer
  from disco_rl.analysis import figures
  from disco_rl.analysis import meta_rnn
  from disco_rl.analysis import pictures
  from disco_rl.analysis import recording
  from disco_rl.analysis import responses
  from disco_rl.runtime import files
  from disco_rl.runtime import plotting

  workdir = pathlib.Path(_WORKDIR.value)
  with in_one_line(ValueError, ImportError, OSError):
    if workdir.is_dir():
      files.check_tree(workdir, is_written=True)
      # Before minutes of recording.
      files.check_writable(workdir / 'analysis' / 'targets.png')
    print(
      f'Recording {_RECORDED_STEPS.value} steps of the agent, after compiling; '
      'then each file is named when it is written.',
      flush=True,
    )
    subjects = recording.load(workdir, _AGENT_SEED.value)
    record = lambda own: recording.record(
      own, _ANALYSIS_SEED, _RECORDED_STEPS.value
    )
    subject = next(iter(subjects.values()))
    scene = record(subject)
    (folder := workdir / 'analysis').mkdir(exist_ok=True)

    def save(name: str, drawn: 'figure.Figure') -> None:
      plotting.save(drawn, folder / f'{name}.png')
      print(paths.shown(folder / f'{name}.png'), flush=True)

    if not subject.rule.network.transformer_layers:
      page, name = folder / 'explore.html', subject.config.rule
      explorer.write(page, {name: (subject.rule, subject.rule_params)})
      print(paths.shown(page), flush=True)
    for name, drawn in pictures.of_agent(subject, scene, _ANALYSIS_SEED):
      save(name, drawn)
    responding, valued = {}, {}
    for seed, own in subjects.items():
      # One recording at a time: with many bins each takes hundreds of MB.
      seen = scene if own is subject else record(own)
      responding[seed] = pictures.responses_of(own, seen)
      if scores := exact_values.measure(own, seen, _ANALYSIS_SEED):
        valued[seed] = scores
    save('responses', figures.responses([*responding.values()]))
    responses.write(table := folder / 'responses.csv', responding)
    print(paths.shown(table), flush=True)
    if valued:
      save('values', figures.exact_values([*valued.values()]))
      exact_values.write(table := folder / 'values.csv', valued)
      print(paths.shown(table), flush=True)
    if updates := _CURVE_UPDATES.value:
      curves = pictures.without_predictions(subject, workdir, updates)
      save('without_predictions', curves)
    if updates := _LIFE_UPDATES.value:
      lives = distillation.along_lives(subject, updates)
      save('terms', figures.terms(lives))
      distillation.write(
        table := folder / 'terms.csv', lives, subject.config.seed
      )
      print(paths.shown(table), flush=True)
      if subject.rule.network.meta_rnn_size:
        findings = meta_rnn.along_lives(subject, updates)
        save('meta_rnn', figures.meta_rnn(findings))
        for table in meta_rnn.write(folder, findings, subject.config.seed):
          print(paths.shown(table), flush=True)


if __name__ == '__main__':
  common.start(main)
