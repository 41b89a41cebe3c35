"""Figures of the results of this package.

Functions return figures: notebooks show them, `plotting.save` writes them.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from matplotlib import axes
from matplotlib import figure
import numpy as np
import scipy

from disco_rl import types
from disco_rl.analysis import ablation
from disco_rl.analysis import distillation
from disco_rl.analysis import exact_values as exact_values_lib
from disco_rl.analysis import meta_rnn as meta_rnn_lib
from disco_rl.analysis import probes as probes_lib
from disco_rl.analysis import responses as responses_lib
from disco_rl.analysis import scenes
from disco_rl.analysis import traces
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco

# Every quantity has the same color in all figures.
COLORS = {
  'policy': plotting.color(0),
  'value': plotting.color(2),
  'y': plotting.color(1),
  'z': plotting.color(3),
  'reward': '#777777',
  probes_lib.SHUFFLED: '#999999',
  probes_lib.INITIAL: '#222222',
  responses_lib.POLICY_GRADIENT: plotting.color(5),
}
# Rows of y_hat and z_hat; hundreds would be illegible.
_MAX_ENTRIES = 24
_MAX_PICTURES = 8
# Smaller movements of targets are rounding errors.
_LEAST_RESPONSE = 1e-6


def targets(
  scene: scenes.Scene, found: disco.DiscoTargets, trajectory: int = 0
) -> figure.Figure:
  """Draws a rule's targets along one trajectory.

  Args:
    scene: T transitions of B trajectories.
    found: The rule's targets for it.
    trajectory: Index of the trajectory, below B.

  Returns:
    Five panels over time: rewards and the target of q; pi; pi_hat, both with
    dots at the taken actions; y_hat; z_hat, both with the entries that vary
    most. Panels without data are omitted.
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
  panels[0].bar(
    steps, pick(rollout.reward), color=plotting.FAINT, label='reward'
  )
  if found.q is not None:
    style = {'color': plotting.color(0), 'markersize': 3}
    panels[0].plot(steps, pick(found.q), 'o-', label='target of q', **style)
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


def trace(
  found: traces.Trace,
  observation: types.PyTree,
  start: int = 0,
  trajectory: int = 0,
) -> figure.Figure:
  """Draws the predictions of an agent along a trajectory, as in Fig. 4a.

  Args:
    found: The trace of T transitions of B trajectories.
    observation: [T+1, B, ...]; pictures of images, [H, W] or [H, W, C], are
      shown.
    start: The number of the first step.
    trajectory: Index of the trajectory, below B.

  Returns:
    Panels over time: observations, the entries of y that vary most (without
    their means), confidence of y and of the policy (negative entropy), reward
    and value, with dashed lines where episodes end. Panels without data are
    omitted.
  """
  pick = lambda x: np.asarray(x)[:, trajectory]
  steps = start + np.arange(len(found.reward))
  maps: dict[str, tuple[np.ndarray, plotting.Style]] = {}
  if has_images(observation):
    film = _film(_images(observation)[:-1, trajectory])
    maps['observation'] = film, {'cmap': 'Greys'}
  if found.y is not None:
    y = _most_varied(pick(found.y)).T
    y = y - y.mean(axis=1, keepdims=True)
    bound = np.abs(y).max()
    colors = {'cmap': 'RdBu_r', 'vmin': -bound, 'vmax': bound}
    maps['y'] = y, {'label': 'less its mean', **colors}
  lines = {
    'y: confidence': found.y_confidence,
    'policy: confidence': found.policy_confidence,
    'reward': found.reward,
    'value': found.value,
  }
  lines = {name: x for name, x in lines.items() if x is not None}
  count = len(maps) + len(lines)
  fig = figure.Figure(figsize=(8, 1.5 * count), layout='constrained')
  panels = fig.subplots(count, 1, sharex=True)
  extent = (steps[0] - 0.5, steps[-1] + 0.5, 0.0, 1.0)
  for panel, (image, style) in zip(panels, maps.values()):
    _map(panel, image, extent=extent, **style)
  for panel, (name, line) in zip(panels[len(maps) :], lines.items()):
    x = pick(line)
    if name == 'reward':
      panel.bar(steps, x, color=COLORS[name])
    else:
      panel.plot(steps, x, color=COLORS[name.partition(':')[0]])
      panel.ticklabel_format(axis='y', useOffset=False)
    plotting.tidy(panel)
  for panel, name in zip(panels, (*maps, *lines)):
    panel.set_ylabel(name, color=plotting.INK, fontsize=9)
    _mark_ends(panel, pick(found.ended), start)
  panels[-1].set_xlabel('step', color=plotting.INK)
  fig.align_ylabels(panels)
  return fig


def horizon(moved: Mapping[str, types.Array]) -> figure.Figure:
  """Draws changes of targets over the steps to a perturbed prediction.

  Args:
    moved: Prediction, y or z -> [T+1, B], by `horizon.by_distance`; NaN is
      ignored.

  Returns:
    A panel for each: a thin curve for each trajectory, their mean in bold.
  """
  fig = figure.Figure(figsize=(8, 3.6), layout='constrained')
  panels = fig.subplots(1, len(moved), squeeze=False)[0]
  for panel, (name, x) in zip(panels, moved.items()):
    values = np.asarray(x)
    values = values[~np.isnan(values).all(axis=1)]
    style = {'color': COLORS[name]}
    panel.plot(values, linewidth=0.7, alpha=0.4, **style)
    panel.plot(np.nanmean(values, axis=1), linewidth=2.4, **style)
    panel.set_xlabel(f'steps until the perturbed {name}', color=plotting.INK)
    panel.set_ylabel(f'change of the target of {name}', color=plotting.INK)
    panel.set_ylim(bottom=0)
    panel.xaxis.get_major_locator().set_params(integer=True)
    plotting.tidy(panel)
  fig.supxlabel(
    'total variation; thin: one trajectory, bold: mean of '
    f'{np.shape(values)[1]}',
    color=plotting.INK,
    fontsize=9,
  )
  return fig


def reliance(
  found: Mapping[str, Mapping[str, types.Array]],
) -> figure.Figure:
  """Draws how far targets move without the predictions y and z.

  Args:
    found: The result of `ablation.reliance`.

  Returns:
    A row for each target, on a logarithmic scale, with its `ablation.share`.
  """
  labels = {
    'learned': 'from prediction to target',
    'shuffled': 'target, y and z shuffled',
    'hidden': 'target, y and z zero',
  }
  fig, ax = plotting.panel('total variation', '', height=3.2)
  rows = np.arange(len(found))
  # Smaller numbers are rounding errors.
  values = {
    how: np.maximum([float(x[how]) for x in found.values()], 1e-7)
    for how in labels
  }
  for i, (how, label) in enumerate(labels.items()):
    style: plotting.Style = {'color': plotting.color(i), 'label': label}
    ax.plot(values[how], rows, 'os^'[i], **style)
  ax.plot(
    ablation.THRESHOLD * values['learned'],
    rows,
    '|',
    color=plotting.INK,
    markersize=18,
    label=f'{ablation.THRESHOLD:.0%} of the first',
  )
  ax.set_xscale('log')
  shares = {name: ablation.share(x) for name, x in found.items()}
  ax.set_yticks(
    rows,
    [
      f'target of {name}:\nmoves by {share:.2g}, '
      f'{"used" if share >= ablation.THRESHOLD else "not used"}'
      for name, share in shares.items()
    ],
  )
  ax.set_ylim(len(found) - 0.5, -0.5)
  plotting.legend_below(fig, columns=2)
  return fig


def responses(
  of_agents: Sequence[responses_lib.Responses], earliest: int = -3
) -> figure.Figure:
  """Draws how far targets move when a step changes, by distance.

  Args:
    of_agents: The results of `responses.by_distance`.
    earliest: The first distance that is shown.

  Returns:
    A panel for each change, on a logarithmic scale, for all targets and the
    policy gradient. Thin: one agent; bold: the mean.
  """
  changes = [*of_agents[0]]
  fig = figure.Figure(figsize=(8, 3.8), layout='constrained')
  panels = fig.subplots(1, len(changes), sharey=True, squeeze=False)[0]
  for panel, change in zip(panels, changes):
    for name in of_agents[0][change]:
      values = np.array([x[change][name] for x in of_agents])
      last = values.shape[1] // 2
      steps = np.arange(max(earliest, -last), last + 1)
      # Zeros are no points of a logarithmic scale.
      values = np.maximum(values[:, steps + last], _LEAST_RESPONSE).T
      is_rule = name != responses_lib.POLICY_GRADIENT
      style = {'color': COLORS[name], 'linestyle': '-' if is_rule else '--'}
      panel.plot(steps, values, linewidth=0.7, alpha=0.4, **style)
      label = f'target of {name}' if is_rule else name
      mean = np.mean(values, axis=1)
      panel.plot(steps, mean, linewidth=2.4, label=label, **style)
    panel.set_title(change, loc='left', color=plotting.INK, fontsize=10)
    panel.set_yscale('log')
    panel.set_xlabel('steps until the change', color=plotting.INK)
    panel.axvspan(earliest, -0.5, color=plotting.FAINT, alpha=0.15, linewidth=0)
    panel.xaxis.get_major_locator().set_params(integer=True)
    plotting.tidy(panel)
  panels[0].set_ylabel('movement of the target', color=plotting.INK)
  panels[0].set_ylim(bottom=_LEAST_RESPONSE)
  title = 'gray: the change is earlier than the step of the target'
  plotting.legend_below(fig, title, columns=4)
  return fig


def exact_values(of_agents: Sequence[exact_values_lib.Scores]) -> figure.Figure:
  """Draws how much of exact values is a linear function of predictions.

  Args:
    of_agents: The results of `exact_values.measure`.

  Returns:
    A row for each prediction: a dot for each agent, and a bar for their mean.
    R^2 below 0 is drawn as 0.
  """
  fig, panel = plotting.panel(
    '$R^2$ of exact values in held-out states', '', height=3.2
  )
  names = [*of_agents[0]]
  for row, name in enumerate(names):
    scores = np.maximum([x[name] for x in of_agents], 0.0)
    is_trained = not name.startswith(exact_values_lib.UNTRAINED)
    color = plotting.color(0) if is_trained else plotting.FAINT
    panel.barh(row, np.mean(scores), color=color, alpha=0.4, height=0.6)
    panel.plot(scores, np.full(len(scores), row), 'o', color=color)
  panel.set_xlim(0, 1.02)
  panel.set_yticks(range(len(names)), names)
  panel.set_ylim(len(names) - 0.5, -0.5)
  return fig


def terms(lives: distillation.Lives) -> figure.Figure:
  """Draws a rule as a sum of hand-written terms, along agents' lives.

  Returns:
    Two panels over environment steps: the coefficients of the terms, and the
    part of pi_hat - pi that all terms, and each alone, explain. Thin: one
    agent; bold: the mean.
  """
  fig = figure.Figure(figsize=(8, 3.8), layout='constrained')
  left, right = fig.subplots(1, 2)

  def draw(panel: axes.Axes, values: np.ndarray, **style: Any) -> None:
    steps, label = lives.environment_steps, style.pop('label')
    panel.plot(steps, values.T, linewidth=0.7, alpha=0.4, **style)
    mean = np.mean(values, axis=0)
    panel.plot(steps, mean, linewidth=2.4, label=label, **style)

  every = lambda of_one: np.array(
    [[of_one(x) for x in of_agent] for of_agent in lives.found]
  )
  together = every(lambda x: x.r_squared)
  draw(right, together, color=plotting.INK, label='all terms')
  for i, name in enumerate(lives.found[0][0].coefficients):
    style = {'color': plotting.color(i), 'label': name}
    draw(left, every(lambda x, k=name: x.coefficients[k]), **style)
    draw(right, every(lambda x, k=name: x.alone[k]), **style)
  left.set_title('coefficient', loc='left', color=plotting.INK, fontsize=10)
  right.set_title(
    'part that is explained', loc='left', color=plotting.INK, fontsize=10
  )
  right.set_ylim(-0.02, 1.02)
  for panel in (left, right):
    panel.set_xlabel('environment steps', color=plotting.INK)
    plotting.tidy(panel)
  right.legend(frameon=False, labelcolor=plotting.INK, fontsize=8)
  return fig


def meta_rnn(findings: meta_rnn_lib.Findings) -> figure.Figure:
  """Draws what the meta-RNN holds, and what its state changes.

  Returns:
    For several agents, R^2 of each quantity from each source, a dot for each
    agent and a bar for their mean, where numbers below 0 are drawn as 0. Then,
    for each target, how far it moves if another state replaces the meta-RNN's,
    over environment steps. Thin: one agent; bold: the mean.
  """
  steps, targets = (
    findings.environment_steps,
    [*findings.moved[meta_rnn_lib.INITIAL]],
  )
  count = len(targets) + bool(findings.r_squared)
  rows = -(-count // 2)
  fig = figure.Figure(figsize=(8, 3.2 * rows), layout='constrained')
  panels = [fig.add_subplot(rows, 2, i + 1) for i in range(count)]
  if findings.r_squared:
    _readouts(panels[0], findings.r_squared)
  for panel, target in zip(panels[-len(targets) :], targets):
    for i, (name, moved) in enumerate(findings.moved.items()):
      # Zeros are no points of a logarithmic scale.
      values = np.maximum(moved[target], _LEAST_RESPONSE).T
      color = plotting.color(i)
      panel.plot(steps, values, linewidth=0.7, alpha=0.4, color=color)
      mean = np.mean(values, axis=1)
      panel.plot(steps, mean, linewidth=2.4, label=name, color=color)
    panel.set_yscale('log')
    title = f'how far the target of {target} moves'
    panel.set_title(title, loc='left', color=plotting.INK, fontsize=10)
    panel.set_xlabel('environment steps', color=plotting.INK)
    plotting.tidy(panel)
  _legend_beneath(panels[-len(targets)])
  return fig


def _readouts(
  panel: axes.Axes, r_squared: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
  """Draws R^2 of quantities from sources."""
  height = 0.25
  colors = plotting.color(0), plotting.FAINT, plotting.color(3)
  for i, (source, color) in enumerate(zip(meta_rnn_lib.SOURCES, colors)):
    scores = [x[source] for x in r_squared.values() if source in x]
    # The age is not predicted from itself.
    at = np.arange(len(r_squared))[-len(scores) :] + (i - 1) * height
    means = np.maximum(np.mean(scores, axis=1), 0.0)
    panel.barh(at, means, height, color=color, alpha=0.4, label=source)
    panel.plot(np.maximum(scores, 0.0), at, 'o', color=color, markersize=3)
  panel.set_xlim(0, 1.02)
  panel.set_yticks(range(len(r_squared)), [*r_squared])
  panel.set_ylim(len(r_squared) - 0.5, -0.5)
  panel.set_xlabel('$R^2$ for held-out agents', color=plotting.INK)
  plotting.tidy(panel)
  _legend_beneath(panel)


def _legend_beneath(panel: axes.Axes) -> None:
  panel.legend(
    loc='upper center',
    bbox_to_anchor=(0.45, -0.2),
    ncols=3,
    frameon=False,
    labelcolor=plotting.INK,
    fontsize=8,
    columnspacing=1.0,
    handlelength=1.0,
  )


def probes(
  scores: Mapping[str, Mapping[str, np.ndarray]],
  are_accuracies: Mapping[str, bool],
) -> figure.Figure:
  """Draws how well predictions tell the future, as in Fig. 4c.

  Args:
    scores: Question -> prediction -> [folds, K], by `probes.score`.
    are_accuracies: Question -> whether its scores are accuracies, otherwise
      R^2.

  Returns:
    A panel for each question: mean scores over the number of steps ahead, with
    95% intervals of the mean over folds, if each fold has a score.
  """
  columns = 2
  rows = -(-len(scores) // columns)
  fig = figure.Figure(figsize=(8, 2.8 * rows), layout='constrained')
  panels = fig.subplots(rows, columns, squeeze=False).ravel()
  for panel, (question, by_name) in zip(panels, scores.items()):
    for name, values in by_name.items():
      steps = np.flatnonzero(~np.isnan(values).any(axis=0))
      mean = np.mean(values[:, steps], axis=0)
      deviation = np.std(values[:, steps], axis=0, ddof=1)
      # Half of a 95% interval of a mean, in standard errors.
      width = scipy.stats.t.ppf(0.975, len(values) - 1)
      error = width * deviation / np.sqrt(len(values))
      style = {'color': COLORS[name]}
      panel.plot(steps, mean, label=name, **style)
      panel.fill_between(
        steps, mean - error, mean + error, alpha=0.15, linewidth=0, **style
      )
    is_accuracy = are_accuracies[question]
    panel.set_title(question, loc='left', color=plotting.INK, fontsize=11)
    panel.set_ylim((0.4, 1.02) if is_accuracy else (-0.3, 1.02))
    label = 'accuracy, balanced' if is_accuracy else '$R^2$'
    panel.set_ylabel(label, color=plotting.INK)
    panel.set_xlabel('steps ahead', color=plotting.INK)
    panel.xaxis.get_major_locator().set_params(integer=True)
    plotting.tidy(panel)
  for panel in panels[len(scores) :]:
    panel.set_visible(False)
  plotting.legend_below(fig, columns=6)
  return fig


def sensitivity(
  observation: types.Array,
  norms: Mapping[str, types.Array],
  trajectory: int = 0,
) -> figure.Figure:
  """Draws observations, and the sensitivity of predictions (Fig. 4b).

  Args:
    observation: [T+1, B, H, W] or [T+1, B, H, W, C]; channels are summed.
    norms: Prediction -> [T, B, H, W] or [T, B, H, W, C], by
      `sensitivity.gradient_norms`.
    trajectory: Index of the trajectory, below B.

  Returns:
    A row for each step: the observation, and the norms for each prediction,
    each on its own scale.

  Raises:
    ValueError: The observation is not an image.
  """
  if not has_images(observation):
    raise ValueError(
      f'An observation of shape {np.shape(observation)[2:]} is not an image; '
      'expected [H, W] or [H, W, C] after the axes of time and batch.'
    )
  columns = {
    name: _images(x)[:, trajectory]
    for name, x in {'observation': observation, **norms}.items()
  }
  length = min(len(x) for x in columns.values())
  size = 1.5 * len(columns), 1.65 * length + 0.2
  fig = figure.Figure(figsize=size, layout='constrained')
  panels = fig.subplots(length, len(columns), squeeze=False)
  for step, row in enumerate(panels):
    for panel, (name, x) in zip(row, columns.items()):
      panel.imshow(x[step], cmap='Greys' if name == 'observation' else 'YlOrRd')
      if step == 0:
        panel.set_title(name, color=plotting.INK, fontsize=10)
      panel.set_axis_off()
  return fig


def has_images(observation: types.PyTree) -> bool:
  """Returns whether an observation is [T, B, H, W] or [T, B, H, W, C]."""
  return hasattr(observation, 'shape') and np.ndim(observation) in (4, 5)


def _images(observation: types.Array) -> np.ndarray:
  """Sums channels; returns [T, B, H, W]."""
  images = np.asarray(observation, np.float32)
  return images.sum(axis=-1) if images.ndim == 5 else images


def _film(images: np.ndarray) -> np.ndarray:
  """Joins some of the images [T, H, W] horizontally."""
  number = min(len(images), _MAX_PICTURES)
  # Each image is from the middle of the time that it covers on the axis.
  chosen = (np.arange(number) + 0.5) * len(images) / number
  return np.concatenate(images[chosen.astype(int)], axis=1)


def _mark_ends(ax: axes.Axes, ended: np.ndarray, start: int = 0) -> None:
  for step in start + np.flatnonzero(ended):
    ax.axvline(step + 0.5, color='#999999', linestyle='--', linewidth=1)


def _distributions(
  ax: axes.Axes,
  probabilities: np.ndarray,
  name: str,
  highest: float | None = None,
) -> None:
  """Draws probabilities [T, n] as an image over time."""
  style = {'cmap': 'viridis', 'vmin': 0, 'vmax': highest}
  _map(ax, probabilities.T, 'probability', **style)
  ax.set_ylabel(name, color=plotting.INK)


def _map(
  ax: axes.Axes, image: np.ndarray, label: str | None = None, **style: Any
) -> None:
  """Draws an image over time, with a bar of its colors if they have a label."""
  shown = ax.imshow(image, aspect='auto', **style)
  ax.set_yticks([])
  plotting.color_ticks(ax)
  if label is not None:
    bar = ax.figure.colorbar(shown, ax=ax)
    bar.set_label(label, color=plotting.INK)
    plotting.color_ticks(bar.ax)


def _most_varied(probabilities: np.ndarray) -> np.ndarray:
  """Selects the entries that vary most over time, [T, n] -> [T, <= 24]."""
  spread = np.std(probabilities, axis=0)
  chosen = np.argsort(-spread)[:_MAX_ENTRIES]
  return probabilities[:, np.sort(chosen)]
