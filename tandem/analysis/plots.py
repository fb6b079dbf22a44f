"""Training curves of one or several runs. matplotlib is imported on use."""

import numpy as np

from tandem.analysis import runs
from tandem.analysis import stats

# Okabe and Ito's palette: told apart by most colour-blind readers.
_ROLES = {'pair': '#0072b2', 'senior': '#d55e00', 'junior': '#777777'}
_PHASES = {'rollout': '#0072b2', 'reward': '#e69f00', 'update': '#009e73'}
_CYCLE = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9')


def _figure_class():
  try:
    # Not pyplot: no global state, no window, any thread.
    from matplotlib import figure
  except ImportError as error:
    raise ImportError(
      'plots need matplotlib, which is not installed; install the extra: '
      "pip install -e '.[plots]'."
    ) from error
  return figure.Figure


def _note(ax, text):
  ax.text(0.5, 0.5, text, ha='center', va='center', transform=ax.transAxes)


def _curve(ax, named, key, smooth):
  """Draws one metric of every run, raw in the back and smoothed in front."""
  drawn = False
  for number, (name, columns) in enumerate(named.items()):
    if key not in columns:
      continue
    steps, values = runs.series(columns, key)
    if not steps.size:
      continue
    colour = _CYCLE[number % len(_CYCLE)]
    if smooth > 1:
      ax.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
    ax.plot(
      steps, stats.moving_average(values, smooth), color=colour, label=name
    )
    drawn = True
  if not drawn:
    _note(ax, f'no {key}')
  return drawn


def _accuracy(ax, named):
  """Draws accuracy by role, one line per run, with binomial bars."""
  labelled = set()
  for columns in named.values():
    for role, colour in _ROLES.items():
      key = f'eval/pass_at_1/{role}'
      if key not in columns:
        continue
      steps, values = runs.series(columns, key)
      error = None
      if 'eval/problems' in columns:
        # By step, since a metric may be logged on fewer lines than another.
        problems = dict(zip(*runs.series(columns, 'eval/problems')))
        counts = np.array([problems.get(step, np.nan) for step in steps])
        error = stats.binomial_se(values, counts)
      ax.errorbar(
        steps,
        values,
        yerr=error,
        color=colour,
        marker='o',
        markersize=3,
        capsize=2,
        linewidth=1.2,
        label=None if role in labelled else role,
      )
      labelled.add(role)
  if labelled:
    ax.legend(frameon=False)
    ax.set_ylim(0, 1)
  else:
    _note(ax, 'no eval/pass_at_1/*')


def _times(ax, named):
  """Draws seconds per step by phase; the first step compiles, hence the log."""
  labelled = set()
  for columns in named.values():
    for phase, colour in _PHASES.items():
      key = f'time/{phase}'
      if key not in columns:
        continue
      steps, values = runs.series(columns, key)
      if not (values > 0).any():
        continue
      ax.plot(
        steps,
        np.where(values > 0, values, np.nan),
        color=colour,
        linewidth=1,
        label=None if phase in labelled else phase,
      )
      labelled.add(phase)
  if labelled:
    ax.set_yscale('log')
    ax.legend(frameon=False)
  else:
    _note(ax, 'no time/*')


def training_curves(named, *, smooth=5, title=''):
  """Reward, accuracy, length, senior share, truncation and time per step.

  Args:
    named: {name: columns as runs.read_metrics returns}; several are overlaid.
    smooth: odd window of the centred moving average; 1 draws raw curves only.
    title: of the figure.

  Returns:
    A matplotlib Figure; `savefig(path)` writes it. A panel whose metric no
    run has says so.

  Raises:
    ImportError: matplotlib is absent; names the extra.
    ValueError: no run, or an even window.
  """
  if not named:
    raise ValueError(
      'no run to draw; wanted at least one; pass {name: columns}.'
    )
  figure = _figure_class()(figsize=(12, 6.4), layout='constrained')
  axes = figure.subplots(2, 3)
  _curve(axes[0, 0], named, 'reward/mean', smooth)
  _accuracy(axes[0, 1], named)
  _curve(axes[0, 2], named, 'rollout/senior_share', smooth)
  _curve(axes[1, 0], named, 'rollout/length_mean', smooth)
  _curve(axes[1, 1], named, 'rollout/truncated', smooth)
  _times(axes[1, 2], named)
  titles = (
    'Mean reward of the rollouts',
    'Held-out accuracy, ± 1 binomial s.e.',
    'Share of tokens by the senior',
    'Response length, tokens',
    'Share of responses cut at the limit',
    'Seconds per step',
  )
  for ax, name in zip(axes.flat, titles):
    ax.set_title(name, fontsize=10)
    ax.spines[['top', 'right']].set_visible(False)
    ax.grid(alpha=0.2)
  for ax in (axes[1, 0], axes[1, 1]):
    ax.set_ylim(bottom=0)
  # The health band of METHODS §2.2: outside it the schedule is at fault.
  axes[0, 2].axhspan(0.3, 0.7, color='#009e73', alpha=0.08)
  for ax in axes[1]:
    ax.set_xlabel('step')
  if len(named) > 1 and axes[0, 0].get_legend_handles_labels()[0]:
    axes[0, 0].legend(frameon=False)
  if title:
    figure.suptitle(title)
  return figure


def accuracy_lines(named):
  """Held-out accuracy before and after training, one line per run and role.

  Args:
    named: as `training_curves`.

  Returns:
    A list of text lines: first and last value with binomial errors, the rise,
    and the rise in standard errors. Empty where no run was evaluated twice.
  """
  lines = []
  for name, columns in named.items():
    for role in _ROLES:
      key = f'eval/pass_at_1/{role}'
      if key not in columns or 'eval/problems' not in columns:
        continue
      steps, values = runs.series(columns, key)
      problems = runs.series(columns, 'eval/problems')[1]
      if len(values) < 2:
        continue
      first, last = values[0], values[-1]
      n_first, n_last = problems[0], problems[-1]
      z = stats.rise_in_se(first, last, n_before=n_first, n_after=n_last)
      lines.append(
        f'{name} {role}: '
        f'{first:.3f}±{stats.binomial_se(first, n_first):.3f} at step '
        f'{steps[0]:.0f} -> {last:.3f}±{stats.binomial_se(last, n_last):.3f} '
        f'at step {steps[-1]:.0f}: {last - first:+.3f}, {z:+.1f} s.e. of '
        f'{n_last:.0f} problems'
      )
  return lines
