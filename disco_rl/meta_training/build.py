"""Builds the rule and the population from settings, and checks them."""

from collections.abc import Collection
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
from typing import Any

import jax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import device_group
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import host_group
from disco_rl.meta_training import initial_rule
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import meta_value as meta_value_lib
from disco_rl.meta_training import population
from disco_rl.meta_training import registry as estimator_registry
from disco_rl.meta_training import variation
from disco_rl.runtime import sharding
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources

# The result of `registry.specimen`.
Specimen = tuple[types.EnvironmentSpec, base.JaxEnvironment | None]


def load_rule(
  rule: str, settings: Mapping[str, object]
) -> tuple[disco.Disco, types.Params]:
  """Loads the rule that discovery starts from, unless it is untrained.

  Args:
    rule: The name, path or address of the rule.
    settings: The settings that are given for it; others are those of its own
      discovery, and its network is that of its file.

  Raises:
    ValueError: Discovery cannot start from the rule, or its file is not valid.
    OSError: The file cannot be read or downloaded.
  """
  if rule in rule_registry.names() or sources.is_path(rule):
    loaded, params = rule_registry.load(rule, **settings)
    if isinstance(loaded, disco.Disco):
      return loaded, params
  raise ValueError(
    f'Discovery cannot start from rule={rule!r}; use '
    f"'{meta_config.UNTRAINED}', {', '.join(map(repr, sources.names()))}, the "
    'path of an npz file of weights, or hf://OWNER/REPOSITORY/FILE.npz@COMMIT.'
  )


def make_rule(
  config: meta_config.MetaTrainingConfig,
) -> tuple[disco.Disco, types.Params]:
  """Makes the rule and its initial parameters.

  Raises:
    ValueError: Discovery cannot start from the rule, or its file is not valid.
    FileNotFoundError: The file does not exist.
  """
  if config.rule == meta_config.UNTRAINED:
    key = jax.random.fold_in(jax.random.key(config.seed), 2**31)
    return config.rule_settings, initial_rule.draw(
      key, config.rule_settings.network
    )
  rule, params = load_rule(config.rule, vars(config.rule_settings))
  return rule, jax.device_put(params)


def make_groups(
  config: meta_config.MetaTrainingConfig,
  rule: disco.Disco,
  mesh: jax.sharding.Mesh | None = None,
) -> list[population.Group]:
  """Makes groups of agents with environments of equal shapes.

  They are in the order of their first members, on `mesh` or on all devices; on
  disjoint rows if that takes less time, see `sharding.divide`.

  Raises:
    ValueError: A setting or an environment's name is not valid.
    ImportError: An environment needs a package that is not installed.
  """
  specimens = _specimens(config)
  shapes = {name: _shapes(*specimen) for name, specimen in specimens.items()}
  alike: dict[Hashable, list[int]] = {}
  for i, name in enumerate(config.members):
    alike.setdefault(shapes[name], []).append(i)
  mesh = mesh or sharding.make_mesh(config.batch_devices)
  sizes = [len(_padded(config, members)[0]) for members in alike.values()]
  return [
    _make_group(config, rule, members, specimens, part)
    for members, part in zip(alike.values(), sharding.divide(mesh, sizes))
  ]


def make_inner_loop(
  config: meta_config.MetaTrainingConfig,
  rule: disco.Disco,
  spec: types.EnvironmentSpec,
) -> inner_loop_lib.InnerLoop:
  """Makes the inner loop of agents with environments of one kind."""
  return inner_loop_lib.InnerLoop(
    config.inner_loop,
    variation.prepare(
      config.variation, agent_lib.make(config.agent, spec, rule)
    ),
    meta_value_lib.MetaValue(
      config.meta_value, spec, config.agent.network.torso
    ),
    keep_gradients=config.estimator_config.needs_gradients,
  )


class MissingPackagesError(ImportError):
  """Raised if environments need packages that are not installed.

  Attributes:
    names: The names of these environments.
  """

  def __init__(self, message: str, names: Collection[str]):
    """Makes the error for these environments."""
    super().__init__(message)
    self.names = names


def validate(names: Sequence[str]) -> None:
  """Checks names of environments before anything is built.

  Raises:
    ValueError: A name is unknown.
    MissingPackagesError: Packages are missing; the message names all of them.
  """
  missing = {}
  for name in dict.fromkeys(names):
    try:
      registry.validate(name)
    except ImportError as error:
      missing[name] = str(error)
  if missing:
    raise MissingPackagesError(
      f'{" ".join(dict.fromkeys(missing.values()))} Environments that can be '
      f'used now are those of {", ".join(registry.usable_families())}; '
      '--config=quickstart and --config=scaling need no other packages.',
      missing.keys(),
    )


def _specimens(config: meta_config.MetaTrainingConfig) -> dict[str, Specimen]:
  """Makes or describes one environment of each name."""
  return {
    name: registry.specimen(name, config.preprocessing)
    for name in dict.fromkeys(config.members)
  }


def _shapes(
  spec: types.EnvironmentSpec, environment: base.JaxEnvironment | None
) -> Hashable:
  """Returns equal keys for environments whose agents can share a program."""
  shapes: tuple[Hashable, ...] = (str(spec),)
  if environment is None:
    return shapes
  leaves = [(x.shape, str(x.dtype)) for x in jax.tree.leaves(environment)]
  return (*shapes, jax.tree.structure(environment), tuple(leaves))


def _padded(
  config: meta_config.MetaTrainingConfig, members: Sequence[int]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
  """Lists the environments and numbers of a group's agents, padding last."""
  num_padding = -len(members) % config.group_multiple
  names = [config.members[i] for i in members]
  of_padding = itertools.islice(itertools.cycle(names), num_padding)
  padding = range(config.agents, config.agents + num_padding)
  return (*names, *of_padding), (*members, *padding)


def _make_group(
  config: meta_config.MetaTrainingConfig,
  rule: disco.Disco,
  members: Sequence[int],
  specimens: Mapping[str, Specimen],
  mesh: jax.sharding.Mesh,
) -> population.Group:
  """Makes a group of members; `specimens` has environments by name."""
  names, numbers = _padded(config, members)
  spec, _ = specimens[names[0]]
  # Those on the device; there are none if the group steps on the host.
  environments = [x for n in names if (x := specimens[n][1]) is not None]
  inner_loop = make_inner_loop(config, rule, spec)
  problem = inner_problem.AgentProblem(inner_loop, config.loss)
  group = population.GroupConfig(
    names=names,
    numbers=numbers,
    inner_loop=inner_loop,
    optimizer=meta_update.meta_optimizers(config)[0],
    chunk_size=config.chunk_size,
    mesh=mesh,
    variation=config.variation,
    num_padding=len(names) - len(members),
  )
  if not environments:
    make = functools.partial(_make_environments, config, group)
    estimator = _host_estimator(config, problem, names[0])
    return host_group.HostGroup(group, make, estimator)
  return device_group.DeviceGroup(
    group, environments, config.estimator_config.on_device(problem)
  )


def _host_estimator(
  config: meta_config.MetaTrainingConfig,
  problem: inner_problem.AgentProblem,
  environment: str,
) -> estimator_lib.HostEstimator:
  """Makes the estimator for an environment on the host, or raises."""
  estimator = config.estimator_config.on_host(problem)
  if estimator is not None:
    return estimator
  default = estimator_registry.Estimators()
  able = [
    name
    for name in estimator_registry.NAMES
    if default.named(name).on_host(problem) is not None
  ]
  usual = config_lib.flatten(default.named(config.estimator))
  changed = [
    f'{name}={value}'
    for name, value in config_lib.flatten(config.estimator_config).items()
    if value != usual[name]
  ]
  raise ValueError(
    f'{", ".join([f"estimator={config.estimator}", *changed])} is for '
    f'JAX-native environments, and those of {environment} step on the host. '
    f'Use estimator={" or ".join(able)} with its defaults, or other '
    'environments.'
  )


def _make_environments(
  config: meta_config.MetaTrainingConfig,
  group: population.GroupConfig,
  meta_step: int,
) -> list[Any]:
  """Makes environments on the host, for the members that this process steps."""
  seeds = [config.seed + group.numbers[i] for i in group.local_members]
  if meta_step:
    seeds = [adapters.seed_after(seed, meta_step) for seed in seeds]
  return [
    registry.make(
      group.names[i], config.agent.num_environments, seed, config.preprocessing
    )
    for i, seed in zip(group.local_members, seeds)
  ]
