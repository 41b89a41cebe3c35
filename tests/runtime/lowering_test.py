"""Programs can be made for accelerators; this takes none.

Everything up to the compiler: tracing, sharding over eight devices, and
operations that a platform does not have.
"""

import launching
import pytest

GRIDWORLD, IMAGE, NETHACK = 'gridworld/00', 'still/image', 'still/nethack'
# Every torso, both kinds of environments, with and without a core.
CASES = (
  'evaluation:mlp:4:still/vector',
  f'evaluation:impala:4:{GRIDWORLD}',
  f'evaluation:nethack:0:{NETHACK}',
  f'discovery:resnet:0:{GRIDWORLD}',
)
# Every torso with and without a core, in both kinds of environments.
ALL = [
  f'{what}:{torso}:{core}:{environment}'
  for what in ('discovery', 'evaluation')
  for torso in ('mlp', 'impala', 'resnet', 'nethack')
  for core in (0, 4)
  for environment in ((NETHACK,) if torso == 'nethack' else (GRIDWORLD, IMAGE))
]


@pytest.mark.slow
@pytest.mark.parametrize(
  'cases', [CASES, *(pytest.param([x], marks=pytest.mark.slow) for x in ALL)]
)
def test_programs_are_lowered_for_cuda_and_tpus(cases: list[str]) -> None:
  ended = launching.run_python(
    *('tests/lowered.py', *cases),
    timeout=600,
    JAX_NUM_CPU_DEVICES='8',
    PYTHONPATH=str(launching.REPOSITORY),
  )
  assert ended.returncode == 0, ended.stderr
  assert ended.stdout.split() == list(cases)
