"""What --help shows: the launcher's flags, then the settings of its config."""

import re
from types import ModuleType

from absl.testing import flagsaver
import launching
import pytest

from configs import evaluate
from configs import meta_training
from configs import protocol
from launch import common
from launch import compare  # noqa: F401, its flags are shown.
from launch import help


def test_flags_come_before_the_settings_and_those_of_libraries_not() -> None:
  ended = launching.run_python('-m', 'launch.meta_train', '--help')
  assert (ended.returncode, ended.stderr) == (0, '')
  text = ended.stdout
  assert max(map(len, text.splitlines())) <= 80
  assert text.startswith('Discovers an update rule')
  places = [
    text.index(part)
    for part in ('\nFlags:', '\n  --workdir ', 'Settings,', 'meta_steps=1000  ')
  ]
  assert places == sorted(places)
  assert 'alsologtostderr' not in text
  # The example is as it is typed.
  assert '--config=quickstart \\\n    --workdir' in text


def test_launchers_without_a_config(
  capsys: pytest.CaptureFixture[str],
) -> None:
  with pytest.raises(SystemExit):
    common.parse_flags(['compare', '-h'])
  text = capsys.readouterr().out
  assert re.search(r'--output +File', text)
  assert 'Settings, ' not in text


@pytest.mark.parametrize(
  ('base', 'config', 'discount'),
  [
    (meta_training, 'quickstart.py', 0.97),
    (evaluate, 'evaluate.py:quickstart', 0.997),
  ],
)
def test_every_setting_is_shown_with_the_values_of_the_given_config(
  base: ModuleType,
  config: str,
  discount: float,
  capsys: pytest.CaptureFixture[str],
) -> None:
  path = launching.REPOSITORY / 'configs' / config
  argv = ['launcher', f'--config={path}', '--config.batch_size=7', '--help']
  with pytest.MonkeyPatch.context() as patch, flagsaver.flagsaver():
    patch.setattr('sys.argv', argv)
    with pytest.raises(SystemExit) as ended:
      common.parse_config_flags(argv, base)
  assert ended.value.code == 0
  text = capsys.readouterr().out
  for setting in base.base():
    assert setting == 'preprocessing' or f'\n  {setting}=' in text, setting
  assert '\n  batch_size=7 ' in text
  assert f'\n  discount={discount} ' in text
  assert '\n  preprocessing.atari.frame_skip=4 ' in text


@pytest.mark.parametrize('base', [meta_training, evaluate, protocol])
def test_every_setting_is_described(base: ModuleType) -> None:
  for settings in help.all_sections(base).values():
    for setting in settings:
      assert setting.meaning, setting.name
