"""The table of families of environments.

To add a family, and a suite, for a benchmark:
  1. An adapter, in a module with the family's name: a `base.JaxEnvironment` in
     jax_native/, or in host/ an `adapters.Adapter` or simulators for
     `sequential.SequentialEnvironment`. The module has `make`; a record
     `Preprocessing` with the prefix 'preprocessing.NAME.', if there are
     settings (see `runtime.versions`); `import_package`, which calls
     `packages.load`, if the package is optional; and `FAMILIES`, of
     `family.Family`, which describes all fields. host/procgen.py is a short
     example.
  2. The module's entry in `FAMILIES` below.
  3. pyproject.toml: an extra with the package, also part of `environments`;
     the module in the import contract of suites; the package in mypy's list, if
     it has no types.
  4. docs/environments.md: a row of the table, and the suite;
     docs/how-it-works.md: how its episodes end.
  5. tests/environments/: a test that calls `conformance.check`.
"""

from disco_rl.environments import family
from disco_rl.environments.host import atari
from disco_rl.environments.host import crafter_adapter
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import nethack
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import craftax_adapter
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.environments.jax_native import random_catch
from disco_rl.environments.jax_native import random_chains
from disco_rl.environments.jax_native import random_grids
from disco_rl.environments.jax_native import sokoban

# The part of a name before the slash -> its family.
FAMILIES: dict[str, family.Family] = {
  **catch.FAMILIES,
  **gridworld_tasks.FAMILIES,
  **random_grids.FAMILIES,
  **random_chains.FAMILIES,
  **random_catch.FAMILIES,
  **gymnasium_adapter.FAMILIES,
  **atari.FAMILIES,
  **procgen.FAMILIES,
  **dmlab.FAMILIES,
  **nethack.FAMILIES,
  **gymnax_adapter.FAMILIES,
  **craftax_adapter.FAMILIES,
  **sokoban.FAMILIES,
  **crafter_adapter.FAMILIES,
}
