"""--step of the commands that read a run's checkpoints."""

from absl import flags


class _Parser(flags.ArgumentParser):
  """A step's number, or `best`."""

  syntactic_help = 'a number, or best'

  def parse(self, argument) -> int | str:
    if str(argument) == 'best':
      return 'best'
    try:
      return int(argument)
    except ValueError as error:
      raise ValueError('a number of steps, or best') from error

  def flag_type(self) -> str:
    return 'step'


STEP = flags.DEFINE(
  _Parser(),
  'step',
  None,
  'A saved step, or best: by checkpoint.best_metric; the newest if unset.',
)
