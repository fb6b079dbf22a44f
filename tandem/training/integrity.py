"""Checksums of a directory's files: what was written, and is it still so."""

import json
import pathlib
import zlib

CHECKSUMS = 'checksums.json'
# Orbax stamps this one again while it renames the directory.
_UNSUMMED = ('_CHECKPOINT_METADATA', CHECKSUMS)
_CHUNK = 1 << 24


def _checksum(path: pathlib.Path) -> int:
  value = 0
  with open(path, 'rb') as file:
    while chunk := file.read(_CHUNK):
      value = zlib.crc32(chunk, value)
  return value


def write_checksums(directory: pathlib.Path) -> None:
  """Sums every file of a finished directory into one more."""
  sums = {
    str(path.relative_to(directory)): [path.stat().st_size, _checksum(path)]
    for path in sorted(directory.rglob('*'))
    if path.is_file() and path.name not in _UNSUMMED
  }
  (directory / CHECKSUMS).write_text(json.dumps(sums))


def damage(directory: pathlib.Path) -> str:
  """What is wrong with a step's files, or '' if nothing is."""
  try:
    sums = json.loads((directory / CHECKSUMS).read_text())
    for name, (size, value) in sums.items():
      path = directory / name
      if not path.exists():
        return f'{name} is missing'
      if path.stat().st_size != size:
        return f'{name} has {path.stat().st_size} bytes, not {size}'
      if _checksum(path) != value:
        return f'{name} has another checksum than when it was written'
  except (OSError, ValueError, TypeError) as error:
    return f'{CHECKSUMS} cannot be read ({error})'
  return ''
