"""The analyses of Fig. 4 of the paper for one rule and agent, as pictures."""

from collections.abc import Iterator
import pathlib

import jax
import jax.numpy as jnp
from matplotlib import figure
import numpy as np

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import horizon
from disco_rl.analysis import probes
from disco_rl.analysis import recording
from disco_rl.analysis import responses
from disco_rl.analysis import scenes
from disco_rl.analysis import sensitivity
from disco_rl.analysis import traces
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.training import learning_curves
from disco_rl.update_rules import disco

# How often a rule sees the hand-made scene first, to settle its meta-RNN.
_TIMES = 10
_POINTS = 25  # The points of each learning curve.
# The steps of a trace before and after the largest reward.
_BEFORE, _AFTER = 40, 20
_PROBES = probes.ProbeConfig()
_MOMENTS = 3  # The steps of a trace whose observations are analyzed.


def targets(rule: disco.Disco, rule_params: types.Params) -> figure.Figure:
  """Draws targets in a hand-made scene.

  It has two episodes of six steps, with three actions: the first episode ends
  with a reward of 1, the second has a reward of -1 at its second step. The
  policy is uniform. If the rule has q, the value of the first action is 0.5
  higher.
  """
  scene = hand_made.scene(
    rule,
    actions=[0, 1, 2, 1, 0, 2, 1, 1, 0, 2, 0, 1],
    rewards=[0, 0, 0, 0, 0, 1, 0, -1, 0, 0, 0, 0],
    ends=[False] * 5 + [True] + [False] * 6,
    values=[0.5 if rule.network.has_q else 0.0, 0.0, 0.0],
  )
  scene = scenes.settle(rule, rule_params, scene, times=_TIMES)
  return figures.targets(scene, scenes.targets(rule, rule_params, scene))


def of_agent(
  subject: recording.Subject,
  scene: scenes.Scene,
  seed: int = 0,
  config: probes.ProbeConfig | None = None,
) -> Iterator[tuple[str, figure.Figure]]:
  """Draws the analyses of an agent that a rule has trained.

  Args:
    subject: The agent and its rule.
    scene: The recording of the agent, by `recording.record`.
    seed: The seed of the probes, and of noise on predictions.
    config: The settings of the probes; None: the defaults.

  Yields:
    Names and figures: `targets`; `trace`, around the largest reward;
    `gradients`, if observations are images, but not of indices, and the agent
    has no core; `probes`; and, if the rule has y and z, `horizon` and
    `reliance`, both at the last steps.
  """
  rule, rule_params = subject.rule, subject.rule_params
  yield 'targets', targets(rule, rule_params)
  key = jax.random.key(seed)
  event = _around_largest_reward(scene)
  trace = traces.trace(rule, scenes.cut(scene, *event))
  seen = scenes.cut(scene, *event).rollout.observation
  yield 'trace', figures.trace(trace, seen, start=event[0])
  if (
    figures.has_images(seen)
    and sensitivity.has_gradient(seen)
    and not subject.agent.config.network.core_lstm
  ):
    yield 'gradients', _gradients(subject, scene, event)
  asked = probes.questions(rule, scene)
  inputs = probes.inputs(rule, subject.agent.network, scene, key)
  scores = probes.score(key, inputs, asked, config or _PROBES)
  are_accuracies = {name: x.answer.dtype == bool for name, x in asked.items()}
  yield 'probes', figures.probes(scores, are_accuracies)
  if rule.network.prediction_size:
    last = _last_rollout(subject, scene)
    moved = {
      name: horizon.by_distance(
        horizon.movement(rule, rule_params, last, key, name), last.rollout
      )
      for name in horizon.PREDICTIONS
    }
    yield 'horizon', figures.horizon(moved)
    found = ablation.reliance(rule, rule_params, last, key)
    yield 'reliance', figures.reliance(found)


def responses_of(
  subject: recording.Subject, scene: scenes.Scene
) -> responses.Responses:
  """Measures `responses.by_distance` at the last steps of a recording."""
  last = _last_rollout(subject, scene)
  found = responses.measure(subject.rule, subject.rule_params, last)
  return responses.by_distance(found, last.rollout)


def _last_rollout(
  subject: recording.Subject, scene: scenes.Scene
) -> scenes.Scene:
  """Cuts out the last steps, as many as a rule sees at a time in training."""
  length = min(subject.agent.config.unroll_length, len(scene.rollout.reward))
  return scenes.cut(scene, len(scene.rollout.reward) - length, length)


def _around_largest_reward(scene: scenes.Scene) -> tuple[int, int, slice]:
  """Returns the arguments of `scenes.cut`."""
  rewards = np.abs(scene.rollout.reward) * np.asarray(scene.rollout.mask)
  step, trajectory = np.unravel_index(np.argmax(rewards), rewards.shape)
  start = max(0, int(step) - _BEFORE)
  stop = min(len(rewards), int(step) + _AFTER)
  return start, stop - start, slice(int(trajectory), int(trajectory) + 1)


def _gradients(
  subject: recording.Subject,
  scene: scenes.Scene,
  event: tuple[int, int, slice],
) -> figure.Figure:
  """Draws gradient norms at some steps of an event."""
  start, length, trajectory = event
  moments = [
    sensitivity.gradient_norms(
      subject.rule, subject.agent.network, subject.learner.params, one.rollout
    )
    | {'observation': one.rollout.observation[:1]}
    for i in range(_MOMENTS)
    for one in [
      scenes.cut(scene, start + i * (length - 1) // _MOMENTS, 1, trajectory)
    ]
  ]
  together = {
    name: jnp.concatenate([moment[name] for moment in moments])
    for name in ('observation', *sensitivity.PREDICTIONS)
    if name in moments[0]
  }
  return figures.sensitivity(together.pop('observation'), together)


def without_predictions(
  subject: recording.Subject, workdir: files.PathLike, updates: int
) -> figure.Figure:
  """Draws learning curves without predictions, as in Fig. 4e.

  Args:
    subject: A rule that has y and z, and the settings of its agents.
    workdir: The folder of the run, which has the rule's curve.
    updates: The number of updates of each agent without predictions.

  Returns:
    The curves of the run, up to the same number of updates; of agents with the
    same seeds, without bootstrapping (y and z are hidden from the targets of y
    and z), and without predictions (from all targets).

  Raises:
    ValueError: The rule has no y and z, or the run has no metrics so early, or
      they are damaged.
    OSError: The run has no metrics yet, or they cannot be read.
  """
  path = pathlib.Path(workdir) / 'metrics.csv'
  # Not by steps: in a fork, those of earlier updates may have been more.
  steps, returns = learning_curves.read_curve(path, updates=updates)
  if not len(steps):
    raise ValueError(
      f'{updates} updates are too few for learning curves: the first metrics '
      f'of {workdir} are after {min(metrics.read(path)["update"])}.'
    )
  compared = {
    'without bootstrapping': 'y_and_z',
    'without predictions': 'all',
  }
  return learning_curves.draw(
    {
      'the rule': (steps, returns),
      **{
        label: _curve(subject, ablation.blind(subject.rule, extent), updates)
        for label, extent in compared.items()
      },
    },
    subject.config.environment,
  )


def _curve(
  subject: recording.Subject, rule: disco.Disco, updates: int
) -> learning_curves.Curve:
  """Trains agents; returns mean returns along the way."""
  steps, returns = [], []
  for age in recording.lives(subject, rule, updates, _POINTS):
    steps.append(age.environment_steps)
    returns.append(episodes.mean_return_on_host(age.agents.acting.episodes))
  return np.array(steps), np.stack(returns, axis=-1)
