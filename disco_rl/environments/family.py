"""The record of a family of environments, which a suite's module declares.

A family consists of all names with one prefix, such as 'atari/breakout'; a
suite is a list of names. The docstring of families.py describes how to add
both.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
from types import ModuleType
from typing import Any
from typing import Literal

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import scores

Environment = base.JaxEnvironment | base.HostEnvironment
# Where environments step: `base.JaxEnvironment` or `base.HostEnvironment`.
Kind = Literal['device', 'host']
# Fields of a family's `Preprocessing` -> values instead of the defaults.
Changes = Mapping[str, object]
# (num_environments, seed) -> the environment; some take `can_render`, too.
Builder = Callable[..., Environment]
# (variant, preprocessing) -> the builder, or None if there is no such variant.
# The variant is None for the family's name without a slash; the preprocessing
# is the family's record of settings, or None.
Finder = Callable[[str | None, Any], Builder | None]


@dataclasses.dataclass(frozen=True)
class Family:
  """Environments whose names have one prefix.

  Attributes:
    form: The form of the names, for error messages.
    kind: The place where its environments step.
    names: Returns the full names that can be enumerated.
    find: Returns the builder of a variant. It is cheap, but raises ImportError
      if a package is not installed.
    suites: Name of a suite -> the full names of its environments.
    find_scale: Full name -> the scale of its returns, or of its successes if
      there is a threshold; None if it, or the family, has no reference scores.
    success_threshold: The return above which an episode is a success, for
      environments that are scored by their fraction of successes.
    preprocessing: The record of settings; None if there are none.
    takes_can_render: Whether builders have an argument `can_render`, because
      their environments can only be rendered if they are made for it.
    find_spec: (variant, settings) -> the spec of an environment without using
      its package, or None if only the environment can tell.
    action_repeat: Preprocessing -> that of the specs, without the package: what
      plans and reports count. The argument is the record of settings, or None.
  """

  form: str
  kind: Kind
  names: Callable[[], Iterable[str]]
  find: Finder
  suites: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  find_scale: Callable[[str], scores.Scale | None] | None = None
  success_threshold: float | None = None
  preprocessing: type[config_lib.Settings] | None = None
  takes_can_render: bool = False
  find_spec: Callable[[str, Any], types.EnvironmentSpec | None] | None = None
  action_repeat: Callable[[Any], int] = lambda _: 1


def listed(
  variants: Collection[str],
  make: Callable[..., base.HostEnvironment],
  import_package: Callable[[], ModuleType],
) -> Finder:
  """Makes a finder of the variants of a family on the host.

  Args:
    variants: The names after the slash.
    make: (variant, num_environments, seed, preprocessing) -> the environment.
    import_package: Raises ImportError if the package is not installed.
  """

  def find(variant: str | None, preprocessing: object) -> Builder | None:
    if variant not in variants:
      return None
    import_package()
    return functools.partial(make, variant, preprocessing=preprocessing)

  return find
