"""Files of rules, cards and rows that were lost under a discovery."""

import pathlib
import re
import subprocess
import types as builtin_types
from typing import Any

import launching
import numpy as np
import pytest
import small

from benchmarks import small_runs
import disco_rl
from disco_rl.meta_training import held_out
from disco_rl.meta_training import reporting
from disco_rl.meta_training import rule_files as rule_files_lib
from disco_rl.runtime import workdirs
from disco_rl.update_rules import cards
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights

RULE = small.nest(small.arrays())


@pytest.mark.parametrize('junk', [None, b'', b'PK'])
def test_a_lost_rule_is_written_again(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], junk: bytes | None
) -> None:
  path = tmp_path / 'rule.npz'
  if junk is not None:
    path.write_bytes(junk)
  state: Any = builtin_types.SimpleNamespace(
    rule=RULE, meta_step=4, environment_steps=[np.array([20, 30, 34, 40])]
  )
  for is_reported in (True, False):
    rule_files(tmp_path).restore(state, seconds=5.0, selection=None)
    printed = capsys.readouterr().err
    assert ('checkpoint of meta-step 4' in printed) == is_reported
    assert not small_runs.differing(weights.load(path), RULE)


def rule_files(workdir: pathlib.Path) -> rule_files_lib.RuleFiles:
  """Writes the files of a run of three agents."""
  config: Any = builtin_types.SimpleNamespace(
    agents=3,
    environments=('catch/4x3',),
    held_out=held_out.HeldOutConfig(updates=9, seeds=2),
    rule='untrained',
    seed=6,
  )
  group: Any = builtin_types.SimpleNamespace(
    # The last agent is padding.
    config=builtin_types.SimpleNamespace(counts=np.array([1, 1, 1, 0], bool))
  )
  return rule_files_lib.RuleFiles(
    workdir, disco.Disco(small.META_NETWORK), config, [group], {'discount': 0.9}
  )


def test_a_card_names_the_commit() -> None:
  if not (launching.REPOSITORY / '.git').exists():
    pytest.skip('The package is not in a clone.')
  head = subprocess.run(
    ('git', 'rev-parse', 'HEAD'),
    cwd=launching.REPOSITORY,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  provenance = rule_files_lib.provenance(seconds=1.0, devices=1)
  version, commit = provenance['versions']['disco_rl'].split('+')
  assert version == disco_rl.__version__
  found = re.fullmatch(r'([0-9a-f]{9,40})(\.changed)?', commit)
  assert head.startswith(found[1])


@pytest.mark.parametrize('junk', [None, b'', b'[1]', b'{"name": 1}'])
def test_a_lost_card_is_written_again(
  tmp_path: pathlib.Path, junk: bytes | None
) -> None:
  """Of the rows that a kill left beyond the checkpoint it has none."""
  path = tmp_path / 'rule.json'
  state: Any = builtin_types.SimpleNamespace(
    rule=RULE, meta_step=4, environment_steps=[np.array([20, 30, 34, 40])]
  )
  if junk is not None:
    path.write_bytes(junk)
    with pytest.raises(cards.CardError, match=str(path)):
      cards.read(path)
  rule_files(tmp_path).restore(state, seconds=5.0, selection=None)
  card = cards.read(path)
  assert card.held_out == {}
  assert (card.environment_steps, card.compute['seconds']) == (84, 5.0)
  assert card.settings == {'discount': 0.9}

  (tmp_path / 'held_out').mkdir()
  rows = tmp_path / 'held_out' / 'metrics.csv'
  rows.write_text(
    'meta_step,environment,return,return_min,return_max\n'
    '0,catch/4x3,-0.5,-1,0\n4,catch/4x3,0.5,,1\n6,catch/4x3,1,1,1\n'
  )
  rule_files(tmp_path).save(state, seconds=5.0, selection=None)
  found = {'mean': 0.5, 'min': None, 'max': 1.0}
  assert cards.read(path).held_out == {
    'meta_step': 4,
    'updates': 9,
    'agents': 2,
    'returns': {'catch/4x3': found},
  }
  rows.write_bytes(b'\xff\n')
  rule_files(tmp_path).save(state, seconds=5.0, selection=None)
  assert cards.read(path).held_out == {}


@pytest.mark.parametrize('content', ['', 'meta_step,environment\n'])
def test_a_summary_needs_rows(tmp_path: pathlib.Path, content: str) -> None:
  (tmp_path / 'metrics.csv').write_text(content)
  with pytest.raises(workdirs.WorkdirError, match='metrics.csv has lost'):
    reporting.summary(tmp_path, 4)
