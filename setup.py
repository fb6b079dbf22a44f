"""Packaging of tandem-rl; `kernels/` is imported as `tandem.kernels`."""

import pathlib
import re

from setuptools import find_namespace_packages
from setuptools import find_packages
from setuptools import setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
  r"__version__ = '([^']+)'", (ROOT / 'tandem/__init__.py').read_text()
).group(1)
README = ROOT / 'README.md'

# PyPI has a package named `kernels`, which transformers looks for, so ours is
# mapped under `tandem`. Its root has no __init__.py: a namespace never shadows.
KERNELS = ['tandem.kernels'] + [
  f'tandem.kernels.{name}' for name in find_namespace_packages('kernels')
]

EXTRAS = {
  'gguf': ['gguf>=0.17'],
  'datasets': ['datasets>=4'],
  'reasoning-gym': ['reasoning-gym==0.1.25'],
  'tensorboard': ['tensorboardX>=2.6'],
  'wandb': ['wandb>=0.19'],
  'plots': ['matplotlib>=3.9'],
  'notebooks': [
    'matplotlib>=3.9',
    'ipykernel>=6.29',
    'nbclient>=0.10',
    'nbformat>=5.10',
  ],
  # torch is for parity tests only.
  'parity': ['torch==2.13.0', 'accelerate>=1'],
  'tpu': ['jax[tpu]>=0.10.2,<0.11'],
  'cuda13': ['jax[cuda13]>=0.10.2,<0.11'],
  # Compilers alone, for compile_ahead on a machine without the device.
  'ahead-tpu': ['libtpu==0.0.42.*'],
  'ahead-gpu': ['jax[cuda13]>=0.10.2,<0.11'],
  'lint': ['ruff>=0.14'],
}
EXTRAS['test'] = sorted(
  {'pytest>=8', 'pytest-xdist>=3.6'}
  | {
    package
    for name in ('gguf', 'tensorboard', 'notebooks', 'lint')
    for package in EXTRAS[name]
  }
)

setup(
  name='tandem-rl',
  version=VERSION,
  description='Reinforcement learning of language models in JAX, with two '
  'models in one rollout.',
  long_description=README.read_text() if README.exists() else '',
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11',
  packages=find_packages(include=['tandem', 'tandem.*']) + KERNELS,
  package_dir={'tandem.kernels': 'kernels'},
  package_data={'tandem': ['py.typed']},
  install_requires=[
    'jax>=0.10.2,<0.11',
    'flax>=0.12.8,<0.13',
    'optax>=0.2.6',
    'orbax-checkpoint>=0.11.30',
    'chex>=0.1.90',
    'transformers>=5',
    'tokenizers>=0.22',
    'safetensors>=0.6',
    'jinja2>=3.1',  # chat templates
    'sympy>=1.13',
    'math-verify>=0.9',
    'ml-collections>=1.1',
    'absl-py>=2.1',
    'tqdm>=4.66',
  ],
  extras_require=EXTRAS,
)
