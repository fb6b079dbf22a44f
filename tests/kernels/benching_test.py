"""What the benches share: the line of a program, and its roofline."""

import json

from tandem.kernels.benching import bench


def told(capsys, *arguments):
  one = bench.Bench(peak='peak_tops')
  one.flags(['bench', '--repeats=2', *arguments])
  seconds, temporary = one.timed(lambda x: x + 1, (1.0,))
  assert seconds > 0 and temporary >= 0
  one.tell('op', 0.5, 3e12, 1e9, operations=3e12, rows=4)
  assert one.implementations == ['reference', 'xla']
  return json.loads(capsys.readouterr().out)


def test_a_line(capsys):
  line = told(capsys)
  assert line == {
    'name': 'op',
    'value': 500.0,
    'unit': 'ms',
    'operations': 3e12,
    'rows': 4,
  }


def test_the_roofline_is_the_slower_of_two(capsys):
  # 3e12 operations at 12e12 a second take .25 s; 1e9 bytes at 1 GB/s take 1 s.
  fast, slow = (
    ('--peak_tops=12', '--gbytes=100'),
    ('--peak_tops=12', '--gbytes=1'),
  )
  assert told(capsys, *fast)['of_roofline'] == 0.5
  assert told(capsys, *slow)['of_roofline'] == 2.0
