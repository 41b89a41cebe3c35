"""A meta-step in NumPy and float64, which shares no code with the package.

It restates the published algorithm: the agent's network with a hand-written
backward pass, the meta-network, Retrace, the agent's Adam, the regularizers,
V-trace and the meta-value function. The meta-gradient is taken by central
differences, in which everything that the algorithm treats as a constant keeps
the value of the unperturbed run, see `Constants`.

Parameters are the nested dicts of Haiku, {module: {'w': ..., 'b': ...}}. Arrays
have the axes of a rollout: time, batch, then features.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

Array = np.ndarray
Params = Mapping[str, Mapping[str, Array]]

# The slope of the squashing of values far from zero.
_SLOPE = 1e-3
_NO_DIVISION_BY_ZERO = 1e-8


@dataclasses.dataclass(frozen=True)
class Settings:
  """The numbers of the algorithm.

  Attributes:
    discount: gamma.
    trace: lambda, of Retrace and V-trace.
    max_value: The largest squashed value, at the outermost bin.
    value_cost: The weight of the loss of the agent's values.
    learning_rate: That of the agent.
    value_learning_rate: That of the meta-value function.
    target_kl_cost: Weight of the target network's divergence from the target.
    target_mean_cost: Weight of the squared means of the targets.
    policy_entropy_cost: Weight of the entropy of the last policy.
    y_entropy_cost: Weight of that of the prediction y.
    z_entropy_cost: Weight of that of the prediction z.
  """

  discount: float
  trace: float
  max_value: float
  value_cost: float
  learning_rate: float
  value_learning_rate: float
  target_kl_cost: float
  target_mean_cost: float
  policy_entropy_cost: float
  y_entropy_cost: float
  z_entropy_cost: float


@dataclasses.dataclass(frozen=True)
class Batch:
  """T transitions of B trajectories, with T + 1 observations.

  Attributes:
    observation: [T+1, B, D].
    action: [T+1, B].
    behavior: The logits of the policy that acted, [T+1, B, A].
    reward: [T, B].
    is_terminal: [T, B].
    mask: Whether a transition is real, [T, B].
  """

  observation: Array
  action: Array
  behavior: Array
  reward: Array
  is_terminal: Array
  mask: Array

  @property
  def rows(self) -> Array:
    """All observations, [(T+1) * B, D]."""
    return self.observation.reshape(-1, self.observation.shape[-1])


@dataclasses.dataclass(frozen=True)
class Adam:
  """The state of Adam: the number of updates, and both moments."""

  count: int
  first: Params
  second: Params


@dataclasses.dataclass(frozen=True)
class Moments:
  """Moving means of x and of its square, and what is left of the zeros."""

  mean: float
  square: float
  remainder: float


@dataclasses.dataclass(frozen=True)
class Agent:
  """The state of an agent that learns by a discovered rule.

  Attributes:
    params: theta.
    target: The parameters of the target network.
    optimizer: The state of its optimizer.
    advantage: The moments of its advantages.
    td: The moments of its temporal differences.
    memory: The hidden state and the cell of the meta-RNN.
  """

  params: Params
  target: Params
  optimizer: Adam
  advantage: Moments
  td: Moments
  memory: tuple[Array, Array]


@dataclasses.dataclass(frozen=True)
class MetaValue:
  """The state of a meta-value function; the fields are those of `Agent`."""

  params: Params
  optimizer: Adam
  advantage: Moments
  td: Moments


class Constants:
  """What is not differentiated: it keeps the values of the first run."""

  def __init__(self) -> None:
    self._values: list[Any] = []
    self._next: int | None = None

  def replay(self) -> None:
    """Begins a perturbed run, in which values are the recorded ones."""
    self._next = 0

  def __call__(self, value: Any) -> Any:
    """Records a value in the first run; returns it in every other."""
    if self._next is None:
      self._values.append(value)
      return value
    self._next += 1
    return self._values[self._next - 1]


# Elementary functions.


def sigmoid(x: Array) -> Array:
  return 1 / (1 + np.exp(-x))


def relu(x: Array) -> Array:
  return np.maximum(x, 0)


def log_softmax(x: Array) -> Array:
  x = x - x.max(-1, keepdims=True)
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


def softmax(x: Array) -> Array:
  return np.exp(log_softmax(x))


def divergence(of: Array, to: Array) -> Array:
  return (softmax(of) * (log_softmax(of) - log_softmax(to))).sum(-1)


def entropy(x: Array) -> Array:
  return -(softmax(x) * log_softmax(x)).sum(-1)


def chosen(x: Array, action: Array) -> Array:
  """Selects the entries of actions, [..., A] -> [...]."""
  return np.take_along_axis(x, action[..., None], -1)[..., 0]


def chosen_rows(x: Array, action: Array) -> Array:
  """Selects the rows of actions, [..., A, F] -> [..., F]."""
  index = action[..., None, None]
  return np.take_along_axis(x, index, -2)[..., 0, :]


def squash(x: Array) -> Array:
  return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + _SLOPE * x


def unsquash(x: Array) -> Array:
  root = np.sqrt(1 + 4 * _SLOPE * (np.abs(x) + 1 + _SLOPE))
  return np.sign(x) * (((root - 1) / (2 * _SLOPE)) ** 2 - 1)


def signed_log(x: Array) -> Array:
  return np.sign(x) * np.log1p(np.abs(x))


def two_hot(value: Array, limit: float, bins: int) -> Array:
  """Spreads squashed values over the two nearest bins, [...] -> [..., bins]."""
  place = np.clip((value + limit) / (2 * limit) * (bins - 1), 0, bins - 1)
  lower = np.minimum(place.astype(int), bins - 2)
  eye = np.eye(bins)
  upper_part = (place - lower)[..., None]
  return (1 - upper_part) * eye[lower] + upper_part * eye[lower + 1]


def masked_mean(x: Array, mask: Array) -> Array:
  """Averages over real transitions, [T, B, ...] -> [...]."""
  weights = mask.reshape(*mask.shape, *(1,) * (x.ndim - 2))
  return (x * weights).sum((0, 1)) / (mask.sum() + _NO_DIVISION_BY_ZERO)


def combine(function: Any, *params: Params) -> Params:
  """Applies a function to the arrays of equally nested parameters."""
  return {
    module: {
      name: function(*(tree[module][name] for tree in params))
      for name in leaves
    }
    for module, leaves in params[0].items()
  }


def dense(params: Params, module: str, x: Array) -> Array:
  return x @ params[module]['w'] + params[module]['b']


def mlp(params: Params, modules: Sequence[str], x: Array) -> Array:
  """Applies linear layers with ReLUs between them."""
  for i, module in enumerate(modules):
    x = dense(params, module, relu(x) if i else x)
  return x


def gates(
  x: Array,
) -> tuple[Array, Array, Array, Array]:
  """Splits the pre-activations of an LSTM: input, cell, forget, output."""
  i, g, f, o = np.split(x, 4, -1)
  return sigmoid(i), np.tanh(g), sigmoid(f + 1), sigmoid(o)


def lstm(
  params: Params, module: str, x: Array, state: tuple[Array, Array]
) -> tuple[Array, Array]:
  hidden, cell = state
  i, g, f, o = gates(dense(params, module, np.concatenate([x, hidden], -1)))
  cell = f * cell + i * g
  return o * np.tanh(cell), cell


# The agent's network.

_MODEL = 'agent/~/action_model'
_HEADS = ('z', 'aux_pi', 'q')


def _head(name: str) -> list[str]:
  return [f'{_MODEL}/{name}/~/linear_{i}' for i in range(2)]


def _torso(params: Params) -> list[str]:
  return sorted(module for module in params if '/torso/' in module)


def outputs(params: Params, batch: Batch) -> dict[str, Array]:
  """Computes the outputs at all steps and for all actions.

  Returns:
    logits [T+1, B, A], y [T+1, B, Y], and z, aux_pi and q [T+1, B, A, ...].
  """
  x = mlp(params, _torso(params), batch.rows)
  out = {name: dense(params, f'agent/~/{name}', x) for name in ('logits', 'y')}
  number = out['logits'].shape[-1]
  cell = np.repeat(dense(params, f'{_MODEL}/root', x)[:, None], number, 1)
  one_hot = np.broadcast_to(np.eye(number), (len(x), number, number))
  hidden, _ = lstm(
    params, f'{_MODEL}/lstm/linear', one_hot, (np.tanh(cell), cell)
  )
  for name in _HEADS:
    out[name] = mlp(params, _head(name), hidden)
  shape = batch.action.shape
  return {name: x.reshape(*shape, *x.shape[1:]) for name, x in out.items()}


def backward(
  params: Params,
  observation: Array,
  action: Array,
  cotangents: Mapping[str, Array],
) -> Params:
  """Computes the gradient of the sum of cotangents times outputs.

  Args:
    params: theta.
    observation: [M, D].
    action: [M].
    cotangents: Those of the outputs at these actions, [M, ...].
  """
  gradient = combine(np.zeros_like, params)

  def back(module: str, x: Array, cotangent: Array) -> Array:
    """Adds the gradient of a linear layer; returns its input's cotangent."""
    gradient[module]['w'][...] += x.T @ cotangent
    gradient[module]['b'][...] += cotangent.sum(0)
    return cotangent @ params[module]['w'].T

  layers = _torso(params)
  inputs, x = [], observation
  for i, module in enumerate(layers):
    inputs.append(relu(x) if i else x)
    x = dense(params, module, inputs[-1])
  root, linear = f'{_MODEL}/root', f'{_MODEL}/lstm/linear'
  cell = dense(params, root, x)
  one_hot = np.eye(cotangents['logits'].shape[-1])[action]
  joined = np.concatenate([one_hot, np.tanh(cell)], -1)
  i, g, f, o = gates(dense(params, linear, joined))
  new_cell = f * cell + i * g
  hidden = o * np.tanh(new_cell)

  of_x = sum(back(f'agent/~/{n}', x, cotangents[n]) for n in ('logits', 'y'))
  of_hidden = np.zeros_like(hidden)
  for name in _HEADS:
    first, second = _head(name)
    middle = dense(params, first, hidden)
    of_middle = back(second, relu(middle), cotangents[name]) * (middle > 0)
    of_hidden += back(first, hidden, of_middle)
  of_cell = of_hidden * o * (1 - np.tanh(new_cell) ** 2)
  of_gates = [
    of_cell * g * i * (1 - i),
    of_cell * i * (1 - g**2),
    of_cell * cell * f * (1 - f),
    of_hidden * np.tanh(new_cell) * o * (1 - o),
  ]
  of_joined = back(linear, joined, np.concatenate(of_gates, -1))
  of_tanh = of_joined[:, one_hot.shape[-1] :]
  of_root = of_cell * f + of_tanh * (1 - np.tanh(cell) ** 2)
  of_x = of_x + back(root, x, of_root)
  for i in reversed(range(len(layers))):
    of_x = back(layers[i], inputs[i], of_x)
    if i:
      of_x = of_x * (inputs[i] > 0)
  return gradient


# The meta-network.


def _embed(eta: Params, module: str, prediction: Array) -> Array:
  """Maps the softmax of a prediction to a number, [..., Y] -> [...]."""
  layers = [f'{module}/~/linear_{i}' for i in range(2)]
  return mlp(eta, layers, softmax(prediction))[..., 0]


def _mix(eta: Params, module: str, x: Array) -> Array:
  """Mixes features of each action with their mean over actions."""
  mean = np.broadcast_to(x.mean(-2, keepdims=True), x.shape)
  x = np.concatenate([x, mean], -1)
  return relu(x @ eta[module]['w'][0] + eta[module]['b'])


def _features(
  eta: Params,
  prefix: str,
  batch: Batch,
  online: Mapping[str, Array],
  target: Mapping[str, Array],
  estimates: Mapping[str, Array],
  constant: Constants,
) -> tuple[Array, Array]:
  """Computes the inputs of an LSTM, [T, B, F], and those of each action."""
  action = batch.action

  def both(x: Array) -> Array:
    """Joins the values at this and at the next step."""
    return np.stack([x[:-1], x[1:]], -1)

  def of_action(x: Array) -> Array:
    return chosen(x, action)[:-1, :, None]

  policy = constant(softmax(online['logits']))
  target_policy = constant(softmax(target['logits']))
  behavior = softmax(batch.behavior)
  y, target_y = (_embed(eta, prefix + 'mlp', x['y']) for x in (online, target))
  z, target_z = (
    _embed(eta, prefix + 'mlp_1', x['z']) for x in (online, target)
  )
  channels = np.stack(
    [
      *(policy, behavior, target_policy, z, target_z),
      signed_log(estimates['target_q']),
      signed_log(estimates['q_advantage']),
      estimates['normalized_q_advantage'],
      np.eye(policy.shape[-1])[action],
    ],
    -1,
  )[:-1]
  by_action = _mix(eta, prefix + 'sequential/conv1_d', channels)
  by_action = _mix(eta, prefix + 'sequential/conv1_d_1', by_action)
  columns = [
    *(of_action(policy), of_action(behavior)),
    signed_log(batch.reward)[..., None],
    1.0 - batch.is_terminal[..., None],
    both(signed_log(estimates['value'])),
    signed_log(estimates['advantage'])[..., None],
    estimates['normalized_advantage'][..., None],
    *(of_action(target_policy), both(y), both(target_y)),
  ]
  for x in (z, target_z):
    columns += [of_action(x), both((policy * x).sum(-1)), both(x.max(-1))]
  columns += [by_action.mean(-2), chosen_rows(by_action, action[:-1])]
  return np.concatenate(columns, -1), by_action


def _next_mask(mask: Array) -> Array:
  """Whether the next transition is real; the one after the last counts."""
  return np.concatenate([mask[1:], np.ones_like(mask[:1])])


def targets(
  eta: Params,
  batch: Batch,
  online: Mapping[str, Array],
  target: Mapping[str, Array],
  estimates: Mapping[str, Array],
  memory: tuple[Array, Array],
  constant: Constants,
) -> tuple[Array, Array, Array, tuple[Array, Array]]:
  """Computes the targets of the policy, y and z, and the next meta-RNN state.

  The LSTM runs backwards in time, and starts anew where an episode ends.
  """
  x, by_action = _features(
    eta, 'lstm/', batch, online, target, estimates, constant
  )
  size = len(eta['lstm/lstm/linear']['b']) // 4
  zeros = np.zeros((x.shape[1], size))
  state, states = (zeros, zeros), []
  ends = batch.is_terminal | ~_next_mask(batch.mask)
  for t in reversed(range(len(x))):
    goes_on = ~ends[t][:, None]
    state = (state[0] * goes_on, state[1] * goes_on)
    state = lstm(eta, 'lstm/lstm/linear', x[t], state)
    states.insert(0, state[0])
  hidden = np.stack(states) * dense(eta, 'lstm/linear', memory[0])
  summary, y, z = (dense(eta, f'lstm/linear_{i}', hidden) for i in (1, 2, 3))
  repeated = np.repeat(hidden[:, :, None], by_action.shape[-2], 2)
  policy = _mix(
    eta,
    'lstm/sequential_1/conv1_d',
    np.concatenate([repeated, by_action], -1),
  )
  policy = dense(eta, 'lstm/linear_4', policy)[..., 0]

  prefix = 'lstm/~/meta_lstm/~unroll/'
  x, _ = _features(eta, prefix, batch, online, target, estimates, constant)
  embedded = _embed(eta, prefix + 'mlp', y)[..., None]
  x = dense(
    eta,
    prefix + 'mlp_2/~/linear_0',
    np.concatenate([x, summary, embedded], -1),
  )
  mean = masked_mean(x, batch.mask)
  return policy, y, z, lstm(eta, prefix + 'lstm/linear', mean, memory)


# Values.


def _updated(moments: Moments, x: Array, mask: Array) -> Moments:
  if not mask.any():
    return moments
  move = lambda old, new: float(0.99 * old + 0.01 * new)
  return Moments(
    move(moments.mean, masked_mean(x, mask)),
    move(moments.square, masked_mean(x * x, mask)),
    0.99 * moments.remainder,
  )


def _normalized(moments: Moments, x: Array, centers: bool = True) -> Array:
  mean = moments.mean / (1 - moments.remainder)
  square = moments.square / (1 - moments.remainder)
  variance = max(0.0, square - mean * mean)
  return (x - mean * centers) / (np.sqrt(variance + 1e-12) + 1e-6)


def retrace(
  settings: Settings,
  agent: Agent,
  batch: Batch,
  online: Mapping[str, Array],
  target: Mapping[str, Array],
) -> tuple[dict[str, Array], Moments, Moments]:
  """Estimates values by Retrace, with the target network's values.

  Returns:
    The estimates, and the moments of advantages and of temporal differences.
  """
  bins = np.linspace(-1, 1, online['q'].shape[-1]) * settings.max_value
  q, target_q = (
    unsquash((softmax(x['q']) * bins).sum(-1)) for x in (online, target)
  )
  policy = softmax(online['logits'])
  value, target_value = (policy * q).sum(-1), (policy * target_q).sum(-1)
  ratio = np.exp(
    chosen(log_softmax(online['logits']), batch.action)
    - chosen(log_softmax(batch.behavior), batch.action)
  )
  discount = settings.discount * ~batch.is_terminal
  trace = settings.trace * np.minimum(1, ratio[:-1]) * batch.mask
  taken = chosen(target_q, batch.action)
  returns = np.zeros_like(batch.reward)
  later = 0.0
  for t in reversed(range(len(returns))):
    returns[t] = batch.reward[t] + discount[t] * (target_value[t + 1] + later)
    later = trace[t] * (returns[t] - taken[t])
  advantage = returns - target_value[:-1]
  difference = returns - chosen(q, batch.action)[:-1]
  of_advantage = _updated(agent.advantage, advantage, batch.mask)
  of_td = _updated(agent.td, difference, batch.mask)
  q_advantage = target_q - target_value[..., None]
  estimates = {
    'returns': returns,
    'value': value,
    'target_q': target_q,
    'advantage': advantage,
    'normalized_advantage': _normalized(of_advantage, advantage),
    'q_advantage': q_advantage,
    'normalized_q_advantage': _normalized(of_advantage, q_advantage),
  }
  return estimates, of_advantage, of_td


def meta_value_update(
  settings: Settings, state: MetaValue, batch: Batch, logits: Array
) -> tuple[MetaValue, Array]:
  """Updates the meta-value function on a batch, by V-trace.

  Args:
    settings: The numbers of the algorithm.
    state: The meta-value function.
    batch: The validation trajectories.
    logits: Those of the policy that is evaluated, [T+1, B, A].

  Returns:
    The function after its update, and the normalized advantages before it.
  """
  params, mask = state.params, batch.mask
  layers = sorted(params, key=lambda module: ('linear' not in module, module))
  x, inputs = batch.rows, []
  for i, module in enumerate(layers):
    # The head is linear in the last layer of the torso.
    inputs.append(relu(x) if 0 < i < len(layers) - 1 else x)
    x = dense(params, module, inputs[-1])
  value = unsquash(x.reshape(batch.action.shape))

  ratio = np.exp(
    chosen(log_softmax(logits), batch.action)
    - chosen(log_softmax(batch.behavior), batch.action)
  )
  ratio = np.minimum(1, ratio)[:-1]
  discount = settings.discount * ~batch.is_terminal
  trace = settings.trace * _next_mask(mask)
  surprise = ratio * (batch.reward + discount * value[1:] - value[:-1])
  difference, later = np.zeros_like(surprise), 0.0
  for t in reversed(range(len(surprise))):
    difference[t] = surprise[t] + discount[t] * trace[t] * ratio[t] * later
    later = difference[t]
  estimate = difference + value[:-1]
  next_value = value[1:].copy()
  next_value[:-1] = trace[:-1] * estimate[1:] + (1 - trace[:-1]) * value[1:-1]
  advantage = ratio * (batch.reward + discount * next_value - value[:-1])
  of_advantage = _updated(state.advantage, advantage, mask)
  of_td = _updated(state.td, difference, mask)

  of_x = np.zeros_like(value)
  of_x[:-1] = -_normalized(of_td, difference, centers=False) * mask
  of_x = of_x.reshape(-1, 1) / (mask.sum() + _NO_DIVISION_BY_ZERO)
  gradient = {}
  for i in reversed(range(len(layers))):
    gradient[layers[i]] = {'w': inputs[i].T @ of_x, 'b': of_x.sum(0)}
    of_x = of_x @ params[layers[i]]['w'].T
    if 0 < i < len(layers) - 1:
      of_x = of_x * (inputs[i] > 0)
  change, optimizer = _adam(
    settings.value_learning_rate, state.optimizer, gradient, Constants()
  )
  state = MetaValue(
    combine(np.add, params, change), optimizer, of_advantage, of_td
  )
  return state, _normalized(of_advantage, advantage)


# Learning.


def _adam(
  learning_rate: float, state: Adam, gradient: Params, constant: Constants
) -> tuple[Params, Adam]:
  """Computes the change of parameters; the denominator is a constant."""
  count = state.count + 1
  first = combine(lambda m, g: 0.9 * m + 0.1 * g, state.first, gradient)
  second = combine(
    lambda v, g: 0.999 * v + 0.001 * g * g, state.second, gradient
  )
  second = constant(second)

  def change(m: Array, v: Array) -> Array:
    size = np.sqrt(v / (1 - 0.999**count)) + 1e-8
    return -learning_rate * np.clip(m / (1 - 0.9**count) / size, -1, 1)

  return combine(change, first, second), Adam(count, first, second)


def update(
  settings: Settings,
  eta: Params,
  agent: Agent,
  batch: Batch,
  constant: Constants,
) -> tuple[Agent, float]:
  """Makes one update of the agent; also returns the regularizer of eta."""
  online, target = outputs(agent.params, batch), outputs(agent.target, batch)
  estimates, of_advantage, of_td = constant(
    retrace(settings, agent, batch, online, target)
  )
  policy, y, z, memory = targets(
    eta, batch, online, target, estimates, agent.memory, constant
  )
  action = batch.action[:-1]
  of_action = {name: chosen_rows(online[name][:-1], action) for name in _HEADS}
  next_policy = constant(softmax(online['logits'][1:]))
  bins = of_action['q'].shape[-1]
  spread = two_hot(squash(estimates['returns']), settings.max_value, bins)
  cotangents = {
    'logits': softmax(online['logits'][:-1]) - softmax(policy),
    'y': softmax(online['y'][:-1]) - softmax(y),
    'z': softmax(of_action['z']) - softmax(z),
    'aux_pi': (softmax(of_action['aux_pi']) - next_policy)
    * ~batch.is_terminal[..., None],
    'q': settings.value_cost * (softmax(of_action['q']) - spread),
  }
  weights = batch.mask / (batch.mask.sum() + _NO_DIVISION_BY_ZERO)
  flat = lambda x: (x * weights[..., None]).reshape(-1, x.shape[-1])
  gradient = backward(
    agent.params,
    batch.rows[: action.size],
    action.reshape(-1),
    {name: flat(x) for name, x in cotangents.items()},
  )
  change, optimizer = _adam(
    settings.learning_rate, agent.optimizer, gradient, constant
  )
  kept = constant(target['logits'][:-1])
  regularizer = settings.target_kl_cost * masked_mean(
    divergence(kept, policy), batch.mask
  )
  for x in (policy, y, z):
    mean = masked_mean(x.mean(-1), batch.mask)
    regularizer += settings.target_mean_cost * mean**2
  after = Agent(
    params=combine(np.add, agent.params, change),
    target=combine(
      lambda old, new: 0.9 * old + 0.1 * new, agent.target, agent.params
    ),
    optimizer=optimizer,
    advantage=of_advantage,
    td=of_td,
    memory=memory,
  )
  return after, float(regularizer)


@dataclasses.dataclass(frozen=True)
class MetaStep:
  """The part of a meta-step that is differentiated: N updates of an agent.

  Attributes:
    settings: The numbers of the algorithm.
    agent: The agent before the updates.
    batches: The N batches.
    validation: The validation trajectories, made after the updates.
    advantage: Their normalized advantages, by `meta_value_update`.
  """

  settings: Settings
  agent: Agent
  batches: Sequence[Batch]
  validation: Batch
  advantage: Array

  def loss(self, eta: Params, constant: Constants) -> tuple[float, Agent]:
    """Computes the outer loss; also returns the agent after its updates."""
    agent, total = self.agent, 0.0
    for batch in self.batches:
      agent, regularizer = update(self.settings, eta, agent, batch, constant)
      total += regularizer / len(self.batches)
    batch, settings = self.validation, self.settings
    out = {name: x[:-1] for name, x in outputs(agent.params, batch).items()}
    action = batch.action[:-1]
    likely = chosen(log_softmax(out['logits']), action)
    total -= float(masked_mean(likely * self.advantage, batch.mask))
    for cost, x in (
      (settings.policy_entropy_cost, out['logits']),
      (settings.y_entropy_cost, out['y']),
      (settings.z_entropy_cost, chosen_rows(out['z'], action)),
    ):
      total -= cost * float(masked_mean(entropy(x), batch.mask))
    return total, agent

  def gradient(
    self, eta: Params, indices: Sequence[int], step: float
  ) -> tuple[Array, Agent]:
    """Takes central differences with respect to some entries of eta.

    Args:
      eta: The parameters of the rule.
      indices: The entries, in the order of `flat`.
      step: Half of the distance of the two runs.

    Returns:
      The derivatives, and the agent after its updates.
    """
    constant = Constants()
    _, agent = self.loss(eta, constant)

    def perturbed(array: Array, place: int, value: float) -> float:
      before = array.flat[place]
      array.flat[place] = value
      constant.replay()
      loss, _ = self.loss(eta, constant)
      array.flat[place] = before
      return loss

    places = [
      (array, place) for array in _arrays(eta) for place in range(array.size)
    ]
    derivatives = []
    for array, place in (places[i] for i in indices):
      center = array.flat[place]
      up, down = (
        perturbed(array, place, center + sign * step) for sign in (1, -1)
      )
      derivatives.append((up - down) / (2 * step))
    return np.array(derivatives), agent


def _arrays(params: Params) -> Iterator[Array]:
  for module in sorted(params):
    for name in sorted(params[module]):
      yield params[module][name]


def flat(params: Params) -> Array:
  """Joins all entries into one vector, in the order of names."""
  return np.concatenate([array.ravel() for array in _arrays(params)])


def adam_change(learning_rate: float, state: Adam, gradient: Params) -> Params:
  """Computes a change by Adam, without bounds on its entries."""
  count = state.count + 1

  def change(m: Array, v: Array, g: Array) -> Array:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    size = np.sqrt(v / (1 - 0.999**count)) + 1e-8
    return -learning_rate * m / (1 - 0.9**count) / size

  return combine(change, state.first, state.second, gradient)
