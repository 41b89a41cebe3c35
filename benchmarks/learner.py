"""Times an agent's update, and a whole training run on Catch.

  python -m benchmarks.learner --json=benchmark.json

Catch 8x8 with the settings of configs/evaluate.py:catch: batches of 64
trajectories of 29 observations, the published rule. Updates are timed as in
runs, several in one program; a single one, called from outside, takes longer,
because it allocates memory. Times drift on shared machines: updates are timed
next to a matrix product, and are also given as they would be at the rate of the
machine on which the published harness was timed, 470 GFLOP/s. There the harness
takes 0.166 s for an update and about 185 s for the run.
"""

import time
from typing import Any

from absl import app
from absl import flags
import jax
import numpy as np

from benchmarks import timing
from configs import evaluate as evaluate_config
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.environments.jax_native import catch
from disco_rl.planning import costs
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.training import config as training_config
from disco_rl.training import parallel

_RULE = flags.DEFINE_string('rule', 'disco103', 'Name of a rule or its file.')
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Agents that the run trains at once.')
_UPDATES = flags.DEFINE_integer(
  'updates', 1000, 'Updates of the run; 0: no run.'
)
_REPEATS = flags.DEFINE_integer('repeats', 20, 'Timings; the median is shown.')

# The number of updates in one program.
_LENGTH = 20

HARNESS_UPDATE_SECONDS = 0.166
HARNESS_RUN_SECONDS = 185.0

Row = tuple[str, float, str]


def build_agent() -> tuple[agent_lib.Agent, types.Params, catch.Catch]:
  """Returns Disco103's agent of configs/evaluate.py:catch, eta, and Catch."""
  settings = evaluate_config.get_config('catch').to_dict()
  config, rule = training_config.resolve(
    {**settings, **settings['by_rule']['disco103'], 'rule': _RULE.value}
  )
  environment = catch.Catch()
  agent = agent_lib.make(config.agent, environment.spec, rule.rule)
  return agent, jax.device_put(rule.params), environment


def batch_of_catch(
  agent: agent_lib.Agent, environment: catch.Catch, params: types.Params
) -> types.Rollout:
  """Draws a batch of trajectories with the agent's policy."""
  config = agent.config

  @jax.jit
  def unroll(key: types.Array) -> types.Rollout:
    state = actor.init(key, agent.network, environment, config.batch_size)
    return actor.unroll(
      agent.network, environment, params, state, key, config.unroll_length
    )[1]

  return unroll(jax.random.key(1))


def update_rows() -> list[Row]:
  """Times `learner.update` next to a matrix product."""
  agent, rule_params, environment = build_agent()
  state = jax.jit(agent.init_learner)(jax.random.key(0))
  batch = batch_of_catch(agent, environment, state.params)

  def update(
    state: learner.LearnerState, batch: types.Rollout
  ) -> learner.LearnerState:
    return learner.update(
      agent.network, agent.rule, agent.optimizer, rule_params, state, batch
    )[0]

  single = compilation.Program(update)
  several = compilation.Program(
    lambda state, batch: jax.lax.fori_loop(
      0, _LENGTH, lambda _, state: update(state, batch), state
    )
  )

  def sample() -> tuple[float, float, float]:
    return (
      timing.seconds(lambda: several(state, batch)) / _LENGTH,
      timing.product_gflops(calls=3),
      timing.seconds(lambda: single(state, batch), calls=3),
    )

  start = compilation.seconds()
  compiled = single.compile(state, batch)
  compiling = compilation.seconds() - start
  sample()  # Compiles the other program.
  samples = np.asarray([sample() for _ in range(_REPEATS.value)])
  duration, rate, alone = np.median(samples, axis=0)
  scaled = (
    float(np.median(samples[:, 0] * samples[:, 1])) / timing.REFERENCE_GFLOPS
  )
  cost: Any = compiled.cost_analysis()
  usage: Any = compiled.memory_analysis()
  planned = costs.cost((single, (state, batch)))
  return [
    ('update', duration, 's'),
    ('matrix product', rate, 'GFLOP/s'),
    ('update at 470 GFLOP/s', scaled, 's'),
    ('the same over the harness', scaled / HARNESS_UPDATE_SECONDS, 'ratio'),
    ('update, called alone', alone, 's'),
    ('update, arithmetic', cost['flops'] / 1e9, 'GFLOP'),
    ('update, arithmetic in plans', planned.flop / 1e9, 'GFLOP'),
    ('update, bytes accessed', cost['bytes accessed'] / 1e9, 'GB'),
    ('update, traffic in plans', planned.traffic / 1e9, 'GB'),
    ('update, temporaries', usage.temp_size_in_bytes / 2**20, 'MiB'),
    ('update, compiling', compiling, 's'),
  ]


def run_rows() -> list[Row]:
  """Times a whole run: compiling, acting, replay and learning."""
  agent, rule_params, environment = build_agent()
  start, compiled = time.perf_counter(), compilation.seconds()
  training = parallel.make(agent, environment, _SEEDS.value)
  keys = jax.random.split(jax.random.key(0), _SEEDS.value)
  train_state, _ = training.advance(
    rule_params, training.init(keys), _UPDATES.value
  )
  jax.block_until_ready(train_state)
  elapsed = time.perf_counter() - start
  rows: list[Row] = [
    (f'run of {_UPDATES.value} updates, {_SEEDS.value} seeds', elapsed, 's'),
    ('of which compiling', compilation.seconds() - compiled, 's'),
    ('peak memory', memory.peak_bytes() / 2**20, 'MiB'),
  ]
  if (_UPDATES.value, _SEEDS.value) == (1000, 1):
    rows.append(
      ('the run over the harness', elapsed / HARNESS_RUN_SECONDS, 'ratio')
    )
  return rows


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  table = {}
  for measure in (update_rows, run_rows)[: 2 if _UPDATES.value else 1]:
    for name, value, unit in measure():
      print(f'{name:36} {value:10.4g} {unit}', flush=True)
      table[name] = {'value': float(value), 'unit': unit}
  timing.write(table)


if __name__ == '__main__':
  app.run(main)
