"""The estimators of the meta-gradient, by name."""

import dataclasses

from disco_rl import config as config_lib
from disco_rl.meta_training import bootstrapping as bootstrapping_lib
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import evolution as evolution_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import persistent_evolution as persistent_lib


@dataclasses.dataclass(frozen=True)
class Estimators(config_lib.Settings):
  """Settings of all estimators; a field's name is the setting `estimator`."""

  differentiation: meta_gradient.Differentiation = (
    meta_gradient.Differentiation()
  )
  evolution: evolution_lib.Evolution = evolution_lib.Evolution()
  persistent_evolution: persistent_lib.Persistent = persistent_lib.Persistent()
  bootstrapping: bootstrapping_lib.Bootstrapping = (
    bootstrapping_lib.Bootstrapping()
  )

  def named(self, name: str) -> estimator_lib.EstimatorConfig:
    """Returns the settings of an estimator, by one of `NAMES`."""
    return getattr(self, name)


NAMES = tuple(field.name for field in dataclasses.fields(Estimators))
