"""Figures of the results of this package.

Functions return figures: notebooks show them, `plotting.save` writes them.
"""

from collections.abc import Mapping

from matplotlib import axes
from matplotlib import figure
import numpy as np
import scipy

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.analysis import traces
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco

# Of y_hat and z_hat; hundreds of rows would be illegible.
_MAX_ENTRIES = 24


def targets(
  scene: scenes.Scene, found: disco.DiscoTargets, trajectory: int = 0
) -> figure.Figure:
  """A rule's targets along one trajectory.

  Args:
    scene: T transitions of B trajectories.
    found: the rule's targets for it.
    trajectory: index of the trajectory, below B.

  Returns:
    Five panels over time: rewards and the target of q; pi; pi_hat, both with
    dots at the actions taken; y_hat; z_hat, of both the entries that vary most.
    What the rule lacks is left out.
  """
  pick = lambda x: np.asarray(x)[:, trajectory]
  softmax = lambda logits: scipy.special.softmax(pick(logits), axis=-1)
  rollout = scene.rollout
  steps = np.arange(len(rollout.reward))
  discovered = {
    name: softmax(x)
    for name, x in {'y_hat': found.y, 'z_hat': found.z}.items()
    if x is not None
  }
  count = 3 + len(discovered)
  fig = figure.Figure(figsize=(8, 1.8 * count), layout='constrained')
  panels = fig.subplots(count, 1, sharex=True)
  _bars(panels[0], steps, pick(rollout.reward), 'reward')
  if found.q is not None:
    _line(panels[0], steps, pick(found.q), 0, 'target of q')
  panels[0].set_ylabel('return', color=plotting.INK)
  panels[0].legend(frameon=False, labelcolor=plotting.INK)
  plotting.tidy(panels[0])
  for panel, (name, logits) in zip(
    panels[1:3],
    {'pi': scene.outputs['logits'][:-1], 'pi_hat': found.pi}.items(),
  ):
    _distributions(panel, softmax(logits), name, highest=1.0)
    panel.plot(steps, pick(rollout.action)[:-1], 'o', color='white')
  for panel, (name, probabilities) in zip(panels[3:], discovered.items()):
    _distributions(panel, _most_varied(probabilities), name)
  for panel in panels:
    _mark_ends(panel, pick(rollout.is_terminal))
  panels[-1].set_xlabel('step', color=plotting.INK)
  return fig


def trace(found: traces.Trace, trajectory: int = 0) -> figure.Figure:
  """Rewards, the confidence of y and the policy's entropy along a trajectory.

  Args:
    found: of T transitions of B trajectories.
    trajectory: index of the trajectory, below B.

  Returns:
    Three panels, two where the rule has no y; dashed lines where episodes end.
  """
  pick = lambda x: np.asarray(x)[:, trajectory]
  lines = {'pi: entropy': found.policy_entropy}
  if found.y_confidence is not None:
    lines = {'y: -entropy': found.y_confidence, **lines}
  height = 5 * (1 + len(lines)) / 3
  fig = figure.Figure(figsize=(8, height), layout='constrained')
  panels = fig.subplots(1 + len(lines), 1, sharex=True)
  steps = np.arange(len(found.reward))
  _bars(panels[0], steps, pick(found.reward), 'reward')
  for i, (panel, x) in enumerate(zip(panels[1:], lines.values())):
    _line(panel, steps, pick(x), i, '')
  for panel, label in zip(panels, ('reward', *lines)):
    panel.set_ylabel(label, color=plotting.INK)
    _mark_ends(panel, pick(found.ended))
    plotting.tidy(panel)
  panels[-1].set_xlabel('step', color=plotting.INK)
  return fig


def horizon(means: Mapping[str, types.Array]) -> figure.Figure:
  """Change of targets, by how many steps ahead a prediction was perturbed.

  Args:
    means: label -> [T+1], see `horizon.by_distance`; NaN is left out.

  Returns:
    One curve for each label.
  """
  fig, ax = plotting.panel('steps ahead', 'change (total variation)', height=4)
  for i, (label, values) in enumerate(means.items()):
    _line(ax, np.arange(len(values)), np.asarray(values), i, label)
  ax.legend(frameon=False, labelcolor=plotting.INK)
  return fig


def sensitivity(
  observation: types.Array,
  norms: Mapping[str, types.Array],
  step: int,
  trajectory: int = 0,
) -> figure.Figure:
  """An observation, and how sensitive each prediction is to its pixels.

  Args:
    observation: [T+1, B, H, W] or [T+1, B, H, W, C]; channels are summed.
    norms: by prediction, [T, B, H, W] or [T, B, H, W, C]; see
      `sensitivity.gradient_norms`.
    step: index of the step, below T.
    trajectory: index of the trajectory, below B.

  Returns:
    One panel for the observation and for each prediction, with its own scale.

  Raises:
    ValueError: the observation is not an image.
  """
  if np.ndim(observation) not in (4, 5):
    raise ValueError(
      f'An observation of shape {np.shape(observation)[2:]} is not an image; '
      'expected [H, W] or [H, W, C] after the axes of time and batch.'
    )
  images = {'observation': observation, **norms}
  width = 1.7 * len(images)
  fig = figure.Figure(figsize=(width, 2.4), layout='constrained')
  for panel, (name, image) in zip(fig.subplots(1, len(images)), images.items()):
    shown = np.asarray(image)[step, trajectory]
    shown = shown.sum(axis=-1) if shown.ndim == 3 else shown
    panel.imshow(shown, cmap='Greys' if name == 'observation' else 'magma')
    panel.set_title(name, color=plotting.INK, fontsize=10)
    panel.set_axis_off()
  return fig


def _line(
  ax: axes.Axes, x: np.ndarray, y: np.ndarray, colour: int, label: str
) -> None:
  ax.plot(x, y, 'o-', color=plotting.colour(colour), label=label, markersize=3)


def _bars(ax: axes.Axes, x: np.ndarray, y: np.ndarray, label: str) -> None:
  ax.bar(x, y, color=plotting.FAINT, label=label)


def _mark_ends(ax: axes.Axes, ended: np.ndarray) -> None:
  for step in np.flatnonzero(ended):
    ax.axvline(step + 0.5, color='#999999', linestyle='--', linewidth=1)


def _distributions(
  ax: axes.Axes,
  probabilities: np.ndarray,
  name: str,
  highest: float | None = None,
) -> None:
  """Probabilities [T, n] as an image over time."""
  image = ax.imshow(
    probabilities.T, aspect='auto', cmap='viridis', vmin=0, vmax=highest
  )
  ax.figure.colorbar(image, ax=ax, label='probability')
  ax.set_ylabel(name, color=plotting.INK)
  ax.set_yticks([])


def _most_varied(probabilities: np.ndarray) -> np.ndarray:
  """The entries that vary most along the trajectory, [T, n] -> [T, <= 24]."""
  spread = np.std(probabilities, axis=0)
  chosen = np.argsort(-spread)[:_MAX_ENTRIES]
  return probabilities[:, np.sort(chosen)]
