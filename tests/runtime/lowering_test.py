"""Programs can be made for accelerators; this takes none.

Everything up to the compiler: tracing, sharding over eight devices, and
operations that a platform does not have.
"""

import launching
import pytest

# On the device and on the host.
IMAGES = ('gridworld/00', 'still/image')
ENVIRONMENTS = {
  'mlp': (*IMAGES, 'still/vector'),
  'impala': IMAGES,
  'resnet': IMAGES,
  'nethack': ('still/nethack',),
}
# Every torso with and without a core, in both kinds of environments.
CASES = [
  f'{what}:{torso}:{core}:{environment}'
  for what in ('discovery', 'training')
  for torso, environments in ENVIRONMENTS.items()
  for core in (0, 4)
  for environment in environments
]


@pytest.mark.slow
@pytest.mark.parametrize('case', CASES)
def test_programs_are_lowered_for_cuda_and_tpus(case: str) -> None:
  ended = launching.run_python(
    *('tests/lowered.py', case),
    timeout=600,
    JAX_NUM_CPU_DEVICES='8',
    PYTHONPATH=str(launching.REPOSITORY),
  )
  assert ended.returncode == 0, ended.stderr
  assert ended.stdout.split() == [case]
