"""Many hosts, one run: the flags that join their processes.

Each host starts the same command. On a TPU pod, under Slurm or under Open MPI
`--coordinator=auto` finds the others; anywhere else each host is told:

  --coordinator=HOST:PORT --num_processes=2 --process_id=0   (1 on the other)

The same may come from the environment: JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES, JAX_PROCESS_ID.
"""

import os

from absl import flags

_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of process 0, or auto; unset: one process.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'Processes of the run.', lower_bound=1
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'Number of this one, from 0.', lower_bound=0
)


def join() -> None:
  """Joins the run's other processes, where there are any; before any jax call.

  Raises:
    ValueError: some of the three are set and some are not.
  """
  environment = os.environ.get
  address = _COORDINATOR.value or environment('JAX_COORDINATOR_ADDRESS')
  count = _NUM_PROCESSES.value or environment('JAX_NUM_PROCESSES')
  index = _PROCESS_ID.value
  if index is None:
    index = environment('JAX_PROCESS_ID')
  if address is None and count is None and index is None:
    return
  if address != 'auto':
    _check(address, count, index)
  import jax

  if address == 'auto':
    jax.distributed.initialize()
  else:
    jax.distributed.initialize(
      address, int(count), int(index), cluster_detection_method='deactivate'
    )


def _check(address, count, index) -> None:
  if address is None or count is None or index is None:
    raise ValueError(
      f'--coordinator={address}, --num_processes={count} and --process_id='
      f'{index} go together; set all three (or JAX_COORDINATOR_ADDRESS, '
      'JAX_NUM_PROCESSES and JAX_PROCESS_ID), or --coordinator=auto on a TPU '
      'pod, under Slurm or Open MPI.'
    )
  if int(index) >= int(count):
    raise ValueError(
      f'--process_id={index} must be below --num_processes={count}; processes '
      'are numbered from 0.'
    )
