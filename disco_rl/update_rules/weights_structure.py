"""Which meta-network arrays belong to, told by their keys and shapes.

Every size of a network like Disco103 shows in three tensors or more, and most
of them decide. With one alone, a wrong tensor that is the one would make all
the others look wrong; two others outvote it, and the error names it alone.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics

from disco_rl.networks import meta_network
from disco_rl.update_rules import weights_format

# Key `module/parameter` -> shape.
Shapes = Mapping[str, tuple[int, ...]]

_MAX_LISTED = 8
_MAX_WIDTH = weights_format.MAX_BYTES // 4
_META_RNN = 'lstm/~/meta_lstm/~unroll'

# Tracing the network takes a good part of a second.
_parameter_shapes = functools.lru_cache(maxsize=8)(
  meta_network.parameter_shapes
)


def infer_config(shapes: Shapes, where: str) -> meta_network.MetaNetworkConfig:
  """The sizes of the meta-network whose parameters have these shapes.

  Args:
    shapes: of the arrays.
    where: they are from, for messages.

  Raises:
    WeightsError: no meta-network has these parameters; the message lists those
      that differ from the network which fits best.
  """
  config = _likely_config(shapes)
  expected = _parameter_shapes(config)
  # First what there is, then what is lacking.
  keys = [*sorted(shapes), *sorted(expected.keys() - shapes.keys())]
  differing = [k for k in keys if shapes.get(k) != expected.get(k)]
  if differing:
    raise weights_format.WeightsError(
      _message(shapes, expected, differing, where)
    )
  return config


def _likely_config(shapes: Shapes) -> meta_network.MetaNetworkConfig:
  embeddings = [
    f'{module}/{mlp}/~/linear_'
    for module in ('lstm', _META_RNN)
    for mlp in ('mlp', 'mlp_1')
  ]
  blocks = [f'{m}/sequential/conv1_d' for m in ('lstm', _META_RNN)]
  return meta_network.MetaNetworkConfig(
    # The last layer has one unit in every network.
    prediction_embedding=(*_widths(shapes, embeddings)[:-1], 1),
    policy_channels=_widths(shapes, blocks),
    policy_target_channels=_widths(
      shapes,
      ['lstm/sequential_1/conv1_d'],
      last=_along(shapes, -2, 'lstm/linear_4/w'),
    ),
    **_sizes(shapes),
  )


def _sizes(shapes: Shapes) -> dict[str, int]:
  """The sizes that most tensors agree on; as in Disco103 where none tells."""
  outputs = functools.partial(_along, shapes, -1)
  inputs = functools.partial(_along, shapes, -2)
  in_layer = f'{_META_RNN}/mlp_2/~/linear_0'
  rnn = f'{_META_RNN}/lstm/linear'
  # The linear layer of an LSTM takes its input and its previous output, and
  # emits four gates of the size of that output.
  cells = [size // 4 for size in outputs(f'{rnn}/w', f'{rnn}/b')]
  rnn_inputs = [size - cells[0] for size in inputs(f'{rnn}/w')]
  updates = {
    'prediction_size': outputs(
      'lstm/linear_2/w', 'lstm/linear_2/b', 'lstm/linear_3/w'
    ),
    'lstm_size': [
      *inputs('lstm/linear_2/w', 'lstm/linear_3/w'),
      *outputs('lstm/linear/w'),
    ],
    'meta_rnn_input_size': [
      *outputs(f'{in_layer}/w', f'{in_layer}/b'),
      *rnn_inputs,
    ],
    'meta_rnn_size': [*inputs('lstm/linear/w'), *cells],
  }
  default = meta_network.MetaNetworkConfig()
  return {k: _most_common(v, getattr(default, k)) for k, v in updates.items()}


def _along(shapes: Shapes, axis: int, *keys: str) -> list[int]:
  """Lengths of a (negative) axis of those tensors that have it."""
  return [shapes[k][axis] for k in keys if len(shapes.get(k, ())) >= -axis]


def _most_common(updates: Iterable[int], default: int) -> int:
  # An array without entries may claim any length along its other axes.
  valid = [
    member_update
    for member_update in updates
    if 0 < member_update <= _MAX_WIDTH
  ]
  return statistics.mode(valid or [default])


def _widths(
  shapes: Shapes, prefixes: Iterable[str], last: Sequence[int] = ()
) -> tuple[int, ...]:
  """Widths of the layers of stacks that are built alike.

  Args:
    shapes: of all arrays.
    prefixes: for each stack, of the names of its layers.
    last: further votes on the width of the last layer.
  """
  stacks = [_layers(shapes, prefix) for prefix in prefixes]
  depth = statistics.mode(len(stack) for stack in stacks)
  whole = [stack for stack in stacks if len(stack) == depth]
  updates = [
    _along(shapes, -1, *(f'{name}/{p}' for name in layers for p in 'wb'))
    for layers in zip(*whole)
  ]
  return tuple(
    _most_common([*of_layer, *(last if i == depth - 1 else ())], default=1)
    for i, of_layer in enumerate(updates)
  )


def _layers(shapes: Shapes, prefix: str) -> list[str]:
  """Names of layers in order: NAME or NAME_0, NAME_1, ..., NAME_10."""
  modules = {key.rpartition('/')[0] for key in shapes}
  return sorted(
    (module for module in modules if module.startswith(prefix)),
    key=lambda module: (len(module), module),
  )


def _message(
  shapes: Shapes, expected: Shapes, differing: Sequence[str], where: str
) -> str:
  lines = [
    f'  {key}: found {shapes.get(key, "nothing")}, '
    f'expected {expected.get(key, "nothing")}'
    for key in differing[:_MAX_LISTED]
  ]
  if len(differing) > _MAX_LISTED:
    lines.append(f'  and {len(differing) - _MAX_LISTED} more')
  return '\n'.join(
    [
      f'{where}: not the parameters of a meta-network. Against the sizes that '
      'most of its tensors agree on:',
      *lines,
      f'Likely {_likely_cause(shapes, expected, differing)}. Save a rule with '
      '`weights.save`, or load a published one by name.',
    ]
  )


def _likely_cause(
  shapes: Shapes, expected: Shapes, differing: Sequence[str]
) -> str:
  if not set(shapes) & set(expected):
    return 'the parameters of something else, such as an agent'
  if any(key not in shapes for key in differing):
    return 'incomplete, or a meta-network of another architecture'
  if any(key not in expected for key in differing):
    return 'more than a rule was saved, or another architecture'
  if all(shapes[key] == expected[key][::-1] for key in differing):
    return 'transposed: weights are stored as [inputs, outputs]'
  return 'tensors of rules of different sizes were mixed'
