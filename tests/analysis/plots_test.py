"""Curves: what is drawn, what is said when a metric is absent."""

import sys

import numpy as np
import pytest

from tandem.analysis import plots
from tandem.analysis import runs
from tests.analysis import fake_run


@pytest.fixture
def named(tmp_path):
  for seed in range(2):
    fake_run.write(tmp_path / str(seed), seed=seed)
  return {str(seed): runs.read_metrics(tmp_path / str(seed)) for seed in (0, 1)}


def test_two_runs_overlaid(named, tmp_path):
  figure = plots.training_curves(named, smooth=1, title='two seeds')
  axes = figure.axes
  assert len(axes) == 6
  lines = axes[0].get_lines()
  assert [line.get_label() for line in lines] == ['0', '1']
  np.testing.assert_array_equal(lines[1].get_ydata(), named['1']['reward/mean'])
  # Three roles of two runs, each role named once.
  assert len(axes[1].containers) == 6
  assert [t.get_text() for t in axes[1].get_legend().get_texts()] == [
    'pair',
    'senior',
    'junior',
  ]
  figure.savefig(tmp_path / 'curves.png', dpi=40)
  assert (tmp_path / 'curves.png').stat().st_size > 1000


def test_bars_are_binomial(named):
  figure = plots.training_curves({'0': named['0']})
  bars = figure.axes[1].containers[0].lines[2][0].get_segments()
  low, high = bars[0][:, 1]
  # Pair at step 0: .37 of 400 problems.
  assert (high - low) / 2 == pytest.approx((0.37 * 0.63 / 400) ** 0.5)


def test_solo_run_says_what_is_missing(named):
  solo = {
    key: column
    for key, column in named['0'].items()
    if key not in ('rollout/senior_share', 'eval/pass_at_1/pair')
  }
  figure = plots.training_curves({'solo': solo})
  assert figure.axes[2].texts[0].get_text() == 'no rollout/senior_share'
  assert len(figure.axes[1].containers) == 2
  bare = plots.training_curves({'bare': {'step': np.arange(3.0)}})
  assert all(ax.texts for ax in bare.axes)


def test_accuracy_lines(named):
  lines = plots.accuracy_lines({'run': named['0']})
  # .37 + .03 * 6 = .55; se .0241 and .0249; .18 / .0346 = 5.2
  assert lines[0] == (
    'run pair: 0.370±0.024 at step 0 -> 0.550±0.025 at step 6: +0.180, '
    '+5.2 s.e. of 400 problems'
  )
  assert len(lines) == 3
  assert plots.accuracy_lines({'run': {'step': np.arange(2.0)}}) == []


def test_refuses(named, monkeypatch):
  with pytest.raises(ValueError, match='no run to draw'):
    plots.training_curves({})
  with pytest.raises(ValueError, match='window=4'):
    plots.training_curves(named, smooth=4)
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  with pytest.raises(ImportError, match=r'install -e .*\[plots\]'):
    plots.training_curves(named)
