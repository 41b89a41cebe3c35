"""Checks the user's own update rules, by the shapes of their results."""

from collections.abc import Callable
import functools
import numbers

import chex
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.training import checks
from disco_rl.update_rules import base
from disco_rl.update_rules import registry

# T and B of the rollout that rules are evaluated on.
_SIZE = (5, 3)
_STEPS = f'[T, B] = {[*_SIZE]}'


def check_rule(
  rule: base.UpdateRule, params: types.Params, spec: types.EnvironmentSpec
) -> None:
  """Evaluates the shapes of a rule's results, for a small network.

  Args:
    rule: The rule, made by the user; the package's own rules are skipped.
    params: The parameters of the rule.
    spec: The shapes of observations and actions.

  Raises:
    ValueError: The message names the method, what it returned and what was
      expected.
  """
  if type(rule) in registry.BUILT_IN:
    return  # It has tests, and tracing Disco103 takes seconds.
  output_spec = rule.output_spec(spec.num_actions)
  if not isinstance(output_spec, types.OutputSpec):
    raise ValueError(
      f'{type(rule).__name__}.output_spec returned {output_spec!r}, expected a '
      'disco_rl.types.OutputSpec.'
    )
  jax.eval_shape(functools.partial(_trace, rule, spec, output_spec), params)


def check_params(rule: base.UpdateRule, params: types.Params) -> None:
  """Compares the parameters of a rule with those of `init_params`.

  Args:
    rule: The rule, made by the user.
    params: The parameters of the rule.

  Raises:
    ValueError: The message names a parameter that is missing, unexpected, or of
      another shape or type.
  """
  name = type(rule).__name__
  wanted = jax.eval_shape(lambda: rule.init_params(jax.random.key(0)))
  found = jax.tree.map(jnp.asarray, params)
  if difference := checks.difference(
    checks.leaves(found, 'params'), checks.leaves(wanted, 'params')
  ):
    raise ValueError(
      f'params does not match the tree of {name}.init_params: it '
      f'{difference}. Pass parameters with the same nesting: '
      f'disco_rl.load_rule(rule, params). {name}.init_params(key) makes random '
      'ones; disco_rl.update_rules.weights.load reads them from a file.'
    )


def _trace(
  rule: base.UpdateRule,
  spec: types.EnvironmentSpec,
  output_spec: types.OutputSpec,
  params: types.Params,
) -> None:
  """Calls each method and checks what it returns."""
  name, key = type(rule).__name__, jax.random.key(0)

  config = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(hidden_sizes=(4,)),
    action_model_lstm=4,
    action_model_head=4,
  )
  network = agent_network.make(spec, output_spec, config)
  agent_params = network.init(key)
  rollout = types.empty_rollout(spec, (), *_SIZE)
  outputs, taken = network.unroll(agent_params, rollout)
  unroll = lambda params: network.unroll(params, rollout)[0]
  state = rule.init_state(agent_params)

  targets, next_state, logs = _call(
    f'{name}.targets',
    ('targets', 'the next state', 'logs'),
    outputs,
    lambda: rule.targets(params, state, agent_params, rollout, outputs, unroll),
  )
  _check_same(f'{name}.init_state', state, f'{name}.targets', next_state)
  begins = lambda shape: shape[:2] == _SIZE
  _check_axes(f'{name}.targets: target', targets, _STEPS, begins)
  is_log = lambda shape: shape in (_SIZE, ())
  _check_axes(f'{name}.targets: log', logs, f'{_STEPS} or ()', is_log)

  loss, logs = _call(
    f'{name}.loss',
    ('the loss', 'logs'),
    taken,
    lambda: rule.loss(taken, targets, rollout),
  )
  _check_axes(f'{name}.loss: loss', loss, _STEPS, _SIZE.__eq__)
  _check_axes(f'{name}.loss: log', logs, f'{_STEPS} or ()', is_log)


def _call(
  method: str,
  results: tuple[str, ...],
  outputs: types.Outputs,
  function: Callable[[], types.PyTree],
) -> types.PyTree:
  """Calls a method with outputs of the network."""
  try:
    found = function()
  except KeyError as error:
    raise ValueError(
      f'{method} reads {error}, which is absent. The network has the outputs '
      f'{", ".join(outputs)}: output_spec must list all outputs that are read.'
    ) from error
  if not isinstance(found, tuple) or len(found) != len(results):
    raise ValueError(
      f'{method} returned {found!r}, expected a tuple of {len(results)}: '
      f'{", ".join(results)}.'
    )
  return found


def _check_same(
  source: str, wanted: types.PyTree, other: str, found: types.PyTree
) -> None:
  """Raises ValueError if trees differ in structure, shapes or types."""
  wanted, found = jax.tree.map(jnp.asarray, (wanted, found))
  try:
    chex.assert_trees_all_equal_shapes_and_dtypes(wanted, found)
  except AssertionError as error:
    raise ValueError(
      f'The trees of {source} and {other} differ: {error}'
    ) from error


def _check_axes(
  label: str,
  tree: types.PyTree,
  wanted: str,
  is_valid: Callable[[tuple[int, ...]], bool],
) -> None:
  """Raises ValueError if an array has an unexpected shape."""
  for path, leaf in jax.tree.leaves_with_path(tree):
    place = f'{label}{jax.tree_util.keystr(path)}'
    if not hasattr(leaf, 'dtype') and not isinstance(leaf, numbers.Number):
      raise ValueError(f'{place} is {leaf!r}, expected numbers.')
    if not is_valid(shape := jnp.shape(leaf)):
      raise ValueError(f'{place} has shape {shape}, expected {wanted}.')
