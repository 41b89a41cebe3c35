"""What a traced program costs: arithmetic, traffic, operations, memory at most.

All are sums over the equations of a jaxpr, with the bodies of loops
multiplied by their turns; XLA's own `cost_analysis` counts them once. Nothing
is lowered or compiled. Of a program that devices share, the figures are those
of one device.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from jax.extend import core
from jax.interpreters import partial_eval

# They move, choose or name values; compilers merge them into what uses them.
_MOVES = frozenset(
  {
    'broadcast_in_dim',
    'concatenate',
    'convert_element_type',
    'copy',
    'dynamic_slice',
    'dynamic_update_slice',
    'expand_dims',
    'gather',
    'iota',
    'pad',
    'reshape',
    'rev',
    'select_n',
    'slice',
    'split',
    'squeeze',
    'stop_gradient',
    'transpose',
  }
)
# Of cumulated sums: what the steps hold together, in sizes of the result.
_STEPS_OF_SUMS = 4


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of a program, or of a part of it.

  Attributes:
    flop: floating-point operations: of products, twice the number of
      multiplications; of others, one for each entry of the larger of operands
      and results, exponentials included.
    traffic: bytes of operands and results of products and convolutions. Other
      operations can be merged into these, and are left out.
    operations: how many are run that compute something. Compilers merge some.
    memory: bytes of all intermediate values, as if all were held at once; of a
      loop those of one turn, and what it stacks. Compiled programs hold less.
  """

  flop: float = 0.0
  traffic: float = 0.0
  operations: float = 0.0
  memory: int = 0

  def __add__(self, other: 'Cost') -> 'Cost':
    return Cost(
      self.flop + other.flop,
      self.traffic + other.traffic,
      self.operations + other.operations,
      self.memory + other.memory,
    )

  def repeated(self, turns: float) -> 'Cost':
    """The cost of a loop with this body: iterations share memory."""
    return Cost(
      turns * self.flop,
      turns * self.traffic,
      turns * self.operations,
      self.memory,
    )


def of_program(
  jaxpr: core.ClosedJaxpr, while_turns: float | None = None
) -> Cost:
  """Adds up the equations of a program.

  Args:
    jaxpr: as of `jax.jit(f).trace(...).jaxpr`.
    while_turns: The iterations of each loop that the program itself ends.

  Returns:
    The cost, on each device.

  Raises:
    ValueError: there is such a loop, and while_turns is None.
  """
  # Derivatives leave equations behind whose results nothing uses.
  used, _ = partial_eval.dce_jaxpr(
    jaxpr.jaxpr, len(jaxpr.jaxpr.outvars) * [True]
  )
  return _of_equations(used, while_turns)


def _of_equations(jaxpr: core.Jaxpr, while_turns: float | None) -> Cost:
  """See `of_program`; all equations are used."""
  # Arguments that are returned as they are may be copied.
  returned = set(map(id, jaxpr.invars)) & set(map(id, jaxpr.outvars))
  copies = sum(_bytes(x) for x in jaxpr.invars if id(x) in returned)
  return sum(
    (_of_equation(equation, while_turns) for equation in jaxpr.eqns),
    Cost(memory=copies),
  )


def _of_equation(equation: Any, while_turns: float | None) -> Cost:
  name, params = equation.primitive.name, equation.params
  inner = [_of_equations(part, while_turns) for part in _parts(params)]
  results = sum(map(_bytes, equation.outvars))
  if name == 'scan':
    return _sum(inner).repeated(params['length']) + Cost(memory=results)
  if name == 'while':
    if while_turns is None:
      raise ValueError(
        'The program has a loop whose number of turns is not known before it '
        'runs; give while_turns.'
      )
    return _sum(inner).repeated(while_turns) + Cost(memory=results)
  if name == 'cond':
    of_all = lambda field: max(getattr(branch, field) for branch in inner)
    largest = {
      field.name: of_all(field.name) for field in dataclasses.fields(Cost)
    }
    return Cost(**largest) + Cost(memory=results)
  if inner:
    # A call; its results are those of the equations inside.
    return _sum(inner)
  if name.startswith('cum'):
    # Compilers take log n steps, on halves of halves.
    results *= _STEPS_OF_SUMS
  is_product = name in ('dot_general', 'conv_general_dilated')
  operands = sum(map(_bytes, equation.invars))
  return Cost(
    _flop(equation),
    operands + results if is_product else 0.0,
    0.0 if name in _MOVES else 1.0,
    results,
  )


def _flop(equation: Any) -> float:
  """Operations of an equation without equations inside."""
  name, params = equation.primitive.name, equation.params
  if name in _MOVES:
    return 0.0
  sizes = [math.prod(_shape(variable)) for variable in equation.outvars]
  size = max(sizes, default=0)
  if name == 'dot_general':
    (contracted, _), _ = params['dimension_numbers']
    shape = _shape(equation.invars[0])
    return 2.0 * size * math.prod(shape[axis] for axis in contracted)
  if name == 'conv_general_dilated':
    shape = _shape(equation.invars[1])
    features = shape[params['dimension_numbers'].rhs_spec[0]]
    # Of the products, those with the zeros that dilation inserts are left out.
    zeros = math.prod(params['lhs_dilation'])
    return 2.0 * size * math.prod(shape) / features / zeros
  if name.startswith('reduce_window'):
    return float(size * math.prod(params['window_dimensions']))
  operands = [math.prod(_shape(variable)) for variable in equation.invars]
  return float(max(size, *operands, 0))


def _parts(params: Mapping[str, Any]) -> Iterator[core.Jaxpr]:
  """Yields the jaxprs among the parameters of an equation."""
  for value in params.values():
    for part in value if isinstance(value, tuple) else (value,):
      if isinstance(part, core.ClosedJaxpr):
        yield part.jaxpr
      elif isinstance(part, core.Jaxpr):
        yield part


def _sum(costs: list[Cost]) -> Cost:
  return sum(costs, Cost())


def _shape(variable: Any) -> tuple[int, ...]:
  return getattr(variable.aval, 'shape', ())


def _bytes(variable: Any) -> int:
  aval = variable.aval
  # Keys of random numbers, of an extended type, are small.
  size = getattr(getattr(aval, 'dtype', None), 'itemsize', 0)
  return math.prod(_shape(variable)) * size
