"""From records of settings to configs: their settings, at the defaults.

Not a config of its own. What a setting means and its default stand in the
record that declares it; configs hold what they change.
"""

from collections.abc import Iterable
from collections.abc import Mapping

import ml_collections

from disco_rl import config as config_lib

# Title -> settings; see `config_lib.sections`.
Sections = Mapping[str, Iterable[config_lib.Setting]]


def defaults(sections: Sections) -> ml_collections.ConfigDict:
  """All settings at the defaults that their records declare."""
  return ml_collections.ConfigDict(
    {x.name: x.default for settings in sections.values() for x in settings}
  )
