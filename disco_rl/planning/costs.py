"""Counts what traced programs cost, before they are compiled.

It costs almost nothing. (XLA's own `cost_analysis` counts the body of a loop
once.)
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math

from jax.extend import core
from jax.interpreters import partial_eval

from disco_rl.runtime import compilation

# Operations that move, choose or name values, which compilers merge into
# others.
_MOVES = (
  *('broadcast_in_dim', 'concatenate', 'convert_element_type', 'copy'),
  *('dynamic_slice', 'dynamic_update_slice', 'expand_dims', 'gather', 'iota'),
  *('pad', 'reshape', 'rev', 'select_n', 'slice', 'split', 'squeeze'),
  *('stop_gradient', 'transpose'),
)
# The memory of a cumulative sum, as a multiple of its result: compilers compute
# it in log n steps, each on half as many entries.
_STEPS_OF_SUMS = 4


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of a program on each device, or of a part of it.

  Attributes:
    flop: The floating-point operations: two for each multiplication in a
      product; for other operations, including exponentials, one for each entry
      of the largest operand or result.
    traffic: The bytes of operands and results of products and convolutions.
      Other operations are ignored, because they can be merged into these.
    operations: The number of operations that compute something. Compilers merge
      some.
    memory: The bytes of all intermediate values, as if all existed at once; for
      a loop, those of one iteration and the stacked results.
  """

  flop: float = 0.0
  traffic: float = 0.0
  operations: float = 0.0
  memory: int = 0

  def __add__(self, other: 'Cost') -> 'Cost':
    return Cost(*map(sum, zip(vars(self).values(), vars(other).values())))

  def repeated(self, number: float) -> 'Cost':
    """Returns the cost of a loop with this body; iterations share memory."""
    return Cost(
      number * self.flop,
      number * self.traffic,
      number * self.operations,
      self.memory,
    )


def cost(call: compilation.Call) -> Cost:
  """Computes the cost of a traced program; a while loop counts once."""
  program, arguments = call
  jaxpr = program.trace(*arguments).jaxpr.jaxpr
  # Derivatives leave equations whose results are not used.
  used, _ = partial_eval.dce_jaxpr(jaxpr, len(jaxpr.outvars) * [True])
  return _of_equations(used)


def _of_equations(jaxpr: core.Jaxpr) -> Cost:
  # Results may be copied if they are arguments, or returned twice.
  held, copies = set(map(id, jaxpr.invars)), 0
  for result in jaxpr.outvars:
    if id(result) in held:
      copies += _bytes(result)
    held.add(id(result))
  return sum(map(_of_equation, jaxpr.eqns), Cost(memory=copies))


def _of_equation(equation: core.JaxprEqn) -> Cost:
  name, params = equation.primitive.name, equation.params
  inner = [_of_equations(part) for part in _parts(params)]
  results = sum(map(_bytes, equation.outvars))
  if name == 'cond':
    branches = zip(*(vars(branch).values() for branch in inner))
    return Cost(*map(max, branches)) + Cost(memory=results)
  if inner:
    called = sum(inner, Cost())
    if name not in ('scan', 'while'):
      return called  # Its results are those of the equations inside.
    return called.repeated(params.get('length', 1)) + Cost(memory=results)
  if name.startswith('cum'):
    results *= _STEPS_OF_SUMS
  if name in _MOVES:
    return Cost(memory=results)
  is_product = name in ('dot_general', 'conv_general_dilated')
  traffic = sum(map(_bytes, equation.invars)) + results if is_product else 0.0
  return Cost(_flop(equation), traffic, 1.0, results)


def _flop(equation: core.JaxprEqn) -> float:
  """Counts the operations of an equation without inner equations."""
  name, params = equation.primitive.name, equation.params
  size = max(map(_size, equation.outvars), default=0)
  if name == 'dot_general':
    (contracted, _), _ = params['dimension_numbers']
    shape = _shape(equation.invars[0])
    return 2.0 * size * math.prod(shape[axis] for axis in contracted)
  if name == 'conv_general_dilated':
    shape = _shape(equation.invars[1])
    features = shape[params['dimension_numbers'].rhs_spec[0]]
    # Products with the zeros of dilation do not count.
    zeros = math.prod(params['lhs_dilation'])
    return 2.0 * size * math.prod(shape) / features / zeros
  if name.startswith('reduce_window'):
    return float(size * math.prod(params['window_dimensions']))
  return float(max((size, *map(_size, equation.invars))))


def _parts(params: Mapping[str, object]) -> Iterator[core.Jaxpr]:
  """Yields the jaxprs among the parameters of an equation."""
  for value in params.values():
    for part in value if isinstance(value, tuple) else (value,):
      if isinstance(part, core.ClosedJaxpr):
        yield part.jaxpr
      elif isinstance(part, core.Jaxpr):
        yield part


def _shape(variable: core.Var | core.Literal) -> tuple[int, ...]:
  return getattr(variable.aval, 'shape', ())


def _size(variable: core.Var | core.Literal) -> int:
  return math.prod(_shape(variable))


def _bytes(variable: core.Var | core.Literal) -> int:
  # Keys of random numbers, of an extended type, are small.
  dtype = getattr(variable.aval, 'dtype', None)
  return _size(variable) * getattr(dtype, 'itemsize', 0)
