"""Two processes with four devices each compute one run."""

import dataclasses
import pathlib
import shutil
import socket
import subprocess
import time

import jax.flatten_util
import launching
import numpy as np
import pytest
import sharded

from disco_rl.runtime import distributed
from disco_rl.runtime import metrics
from disco_rl.update_rules import weights
from launch import meta_train

# Of what communicates sharding_test.py has the meta-RNN, which takes long to
# compile, in one process.
SETTINGS = (
  *sharded.FLAGS,
  '--config.rule_meta_rnn_size=0',
  '--config.rule_policy_channels=3',
  '--config.rule_policy_target_channels=3',
)
FLAGS = ('-m', 'launch.meta_train', *SETTINGS)
CHECKPOINT_EVERY = sharded.SETTINGS['checkpoint_every']
# Over more meta-steps rounding grows until it changes a sampled action.
WARM, LAST = CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY
# The first meta-steps wait for programs to be compiled, on a busy machine.
PATIENCE = 900.0
SECONDS_TO_END = 60.0


def run(workdir: pathlib.Path, meta_steps: int, *arguments: str) -> None:
  """Discovers in this process, on one device."""
  length = f'--config.meta_steps={meta_steps}'
  launching.call(meta_train, workdir, *SETTINGS, length, *arguments)


SLURM = {
  'SLURM_JOB_ID': '4711',
  'SLURM_STEP_NODELIST': 'localhost',
  'SLURM_NTASKS': '1',
  'SLURM_PROCID': '0',
  'SLURM_LOCALID': '0',
  'SLURM_STEP_NUM_NODES': '1',
}
OPEN_MPI = {
  'OMPI_MCA_orte_hnp_uri': '1531576320.0;tcp://10.96.0.1:34911',
  'OMPI_COMM_WORLD_LOCAL_RANK': '1',
  'OMPI_COMM_WORLD_LOCAL_SIZE': '2',
}
EIGHT = {'SLURM_GPUS_ON_NODE': '8'}
SECOND_OF_FOUR = {
  **SLURM,
  **EIGHT,
  'SLURM_LOCALID': '1',
  'SLURM_NTASKS': '8',
  'SLURM_STEP_TASKS_PER_NODE': '4(x2)',
  'SLURM_NODEID': '1',
}


FOUR = [0, 1, 2, 3]


@pytest.mark.parametrize(
  ('variables', 'gpus'),
  [
    ({}, None),
    ({**SLURM, **EIGHT}, []),
    # As in launch/slurm.sh.
    ({**SLURM, **EIGHT, 'SLURM_NTASKS': '8', 'SLURM_STEP_NUM_NODES': '8'}, []),
    (
      {**SLURM, **EIGHT, 'SLURM_NTASKS': '8', 'SLURM_STEP_NUM_NODES': '4'},
      FOUR,
    ),
    # Eight tasks on five nodes: at most two on each.
    (
      {**SLURM, **EIGHT, 'SLURM_NTASKS': '8', 'SLURM_STEP_NUM_NODES': '5'},
      FOUR,
    ),
    ({**SLURM, 'CUDA_VISIBLE_DEVICES': '0,1,2,3'}, []),
    ({**SLURM, 'JAX_LOCAL_DEVICE_IDS': '2,3'}, None),
    (SECOND_OF_FOUR, [2, 3]),
    ({**SECOND_OF_FOUR, 'CUDA_VISIBLE_DEVICES': '0,1,2,3,4,5,6,7'}, [2, 3]),
    # By --gpus-per-task=2: SLURM hides the GPUs of other tasks.
    ({**SECOND_OF_FOUR, 'CUDA_VISIBLE_DEVICES': '0,1'}, []),
    ({**SECOND_OF_FOUR, 'SLURM_STEP_TASKS_PER_NODE': '2(x3),8'}, [4, 5, 6, 7]),
    ({**SECOND_OF_FOUR, 'SLURM_STEP_TASKS_PER_NODE': '4,1'}, []),
    ({**OPEN_MPI, 'CUDA_VISIBLE_DEVICES': '0,1,2,3'}, [2, 3]),
    ({**OPEN_MPI, 'OMPI_COMM_WORLD_LOCAL_SIZE': '1'}, []),
    # Open MPI within a job of SLURM.
    ({**SLURM, **OPEN_MPI, 'CUDA_VISIBLE_DEVICES': '0,1'}, [1]),
  ],
)
def test_tasks_attach_to_their_share_of_the_gpus(
  variables: dict[str, str], gpus: list[int] | None
) -> None:
  assert distributed.gpus_of_task(variables) == gpus


@pytest.mark.parametrize('number', ['2', '6'])
def test_gpus_that_tasks_cannot_share(number: str) -> None:
  with pytest.raises(ValueError, match=f'The {number} GPUs .* its 4 tasks'):
    distributed.gpus_of_task({**SECOND_OF_FOUR, 'SLURM_GPUS_ON_NODE': number})


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (('localhost', 2, 0), 'localhost must be HOST:PORT'),
    ((':123', 2, 0), ':123 must be HOST:PORT'),
    (('localhost:123', 2, 2), 'process=2 must be lower than --num_processes=2'),
  ],
)
def test_flags_of_processes_are_checked(
  arguments: tuple[str, int, int], message: str
) -> None:
  with pytest.raises(ValueError, match=message):
    distributed.connect(*arguments)


_CONNECTING = """
import jax
from disco_rl.runtime import distributed
distributed.connect(None, None, None)
print(jax.config.values['jax_cuda_visible_devices'])
print(distributed.describe_devices())
"""


def test_a_task_alone_on_its_node_attaches_to_all_devices() -> None:
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  ran = launching.run_python(
    *('-c', _CONNECTING),
    **SLURM,
    JAX_COORDINATOR_PORT=f'{port}',
    JAX_NUM_CPU_DEVICES='4',
  )
  assert ran.stdout.splitlines() == [
    'all',
    'Processes: 1. Devices: 4 each, 4 in all (cpu).',
  ], ran.stderr


def start_two(workdir: pathlib.Path) -> list[subprocess.Popen[str]]:
  """Starts an endless discovery in two processes."""
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  return [
    launching.start_python(
      *FLAGS,
      *('--config.meta_steps=1_000_000', f'--workdir={workdir}'),
      # The process is killed between the first checkpoint and the second.
      f'--config.checkpoint_every={LAST}',
      *(f'--coordinator=localhost:{port}', '--num_processes=2'),
      f'--process={process}',
      JAX_NUM_CPU_DEVICES='4',
    )
    for process in range(2)
  ]


@pytest.mark.slow
def test_processes_that_lack_a_group(tmp_path: pathlib.Path) -> None:
  """Groups on the device and on the host, each in a process of its own.

  One process resumes what they have saved.
  """
  workdir = tmp_path / 'run'
  flags = (
    *SETTINGS,
    '--config.environments=catch/4x3,catch/4x3,gymnasium/CartPole-v1',
    '--config.agents=6',
    '--config.chunk_size=1',
    '--config.checkpoint_every=1',
  )
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  both = [
    launching.start_python(
      *('-m', 'launch.meta_train', *flags),
      *('--config.meta_steps=2', f'--workdir={workdir}'),
      *(f'--coordinator=localhost:{port}', '--num_processes=2'),
      f'--process={process}',
      JAX_NUM_CPU_DEVICES='4',
    )
    for process in range(2)
  ]
  errors = [each.communicate(timeout=PATIENCE)[1] for each in both]
  assert [each.returncode for each in both] == [0, 0], errors
  launching.call(meta_train, workdir, *flags, '--config.meta_steps=3')
  rows = metrics.read(workdir / 'metrics.csv')
  assert rows['meta_step'].tolist() == [1, 1, 2, 2, 3, 3]
  assert rows['agents'].tolist() == 3 * [4, 2]
  # Every agent has acted in each meta-step, also before the run was resumed.
  steps = rows['environment_steps'].reshape(3, 2)
  np.testing.assert_array_equal(steps, steps[0] * [[1], [2], [3]])
  assert (rows['meta_gradient_norm'] > 0).all()
  assert not rows['failed'].any()


@pytest.mark.parametrize('flag', ['--distributed', '--num_processes=2'])
def test_processes_that_are_not_known(
  tmp_path: pathlib.Path, flag: str
) -> None:
  failed = launching.run_python(*FLAGS, f'--workdir={tmp_path / "run"}', flag)
  assert failed.returncode == 1
  line = failed.stderr.splitlines()[-1]
  assert line.startswith('error: No cluster was detected')
  assert not (tmp_path / 'run').exists()


@dataclasses.dataclass(frozen=True)
class Runs:
  """Two runs that should agree.

  Attributes:
    alone: folder of one process on one device, to meta-step LAST.
    together: folder of two processes of four devices, which resumed an early
      checkpoint of the first: cold optimizers would amplify rounding errors.
      After meta-step LAST one process was killed.
    survivor: exit status and error output of the other process.
  """

  alone: pathlib.Path
  together: pathlib.Path
  survivor: tuple[int, str]


@pytest.fixture(scope='module')
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
  root = tmp_path_factory.mktemp('processes')
  alone, together = root / 'alone', root / 'together'
  run(alone, LAST, '--config.keep_checkpoints=9')
  shutil.copytree(alone, together)
  (together / 'rule.npz').unlink()
  for checkpoint in (together / 'checkpoints').iterdir():
    if checkpoint.name != str(WARM):
      shutil.rmtree(checkpoint)
  survivor, victim = start_two(together)
  began = time.monotonic()
  while not (together / 'checkpoints' / str(LAST)).exists():
    assert survivor.poll() is None, survivor.communicate()
    assert time.monotonic() < began + PATIENCE
    time.sleep(0.01)
  victim.kill()
  _, errors = survivor.communicate(timeout=SECONDS_TO_END)
  victim.communicate()
  return Runs(alone, together, (survivor.returncode, errors))


@pytest.mark.slow
def test_the_rule_is_the_same(runs: Runs) -> None:
  start = weights.load(runs.alone / 'initial_rule.npz')
  alone = weights.load(runs.alone / 'rule.npz')
  together = weights.load(runs.together / 'rule.npz')
  flat = lambda params: jax.flatten_util.ravel_pytree(params)[0]
  error = np.linalg.norm(flat(alone) - flat(together))
  assert error <= 1e-5 * np.linalg.norm(flat(alone))
  for module, leaves in alone.items():
    for name, want in leaves.items():
      moved = np.linalg.norm(want - start[module][name])
      error = np.linalg.norm(want - together[module][name])
      assert error <= 1e-3 * moved + 1e-6, (module, name)


@pytest.mark.slow
def test_the_metrics_are_the_same(runs: Runs) -> None:
  alone = metrics.read(runs.alone / 'metrics.csv')
  together = {
    name: column[: len(alone['meta_step'])]
    for name, column in metrics.read(runs.together / 'metrics.csv').items()
  }
  assert alone.keys() == together.keys()
  np.testing.assert_array_equal(alone['environment'], together['environment'])
  for name in ('return', 'age', 'meta_gradient_norm', 'environment_steps'):
    np.testing.assert_allclose(together[name], alone[name], rtol=5e-3)
  assert (np.diff(alone['age']) < 0).any()  # Some agents were reset.


@pytest.mark.slow
def test_the_death_of_one_process_ends_the_others(runs: Runs) -> None:
  """Within SECONDS_TO_END, and with a reason."""
  code, errors = runs.survivor
  assert code != 0
  assert 'another task died' in errors or 'lost their connection' in errors, (
    errors
  )


@pytest.mark.slow
def test_one_process_resumes_a_run_of_two(
  runs: Runs, tmp_path: pathlib.Path
) -> None:
  """On another number of devices."""
  workdir = tmp_path / 'run'
  shutil.copytree(runs.together, workdir)
  run(workdir, LAST + CHECKPOINT_EVERY)
  steps = metrics.read(workdir / 'metrics.csv')['meta_step']
  np.testing.assert_array_equal(steps, np.arange(1, steps[-1] + 1))
  assert steps[-1] >= LAST + CHECKPOINT_EVERY
