"""Negative controls: a compiler that accepts these has not really compiled.

One for each backend that our kernels use. The wgmma control must also compile
on Hopper, so that B200's refusal is of the instruction and not of our program.
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas import triton
import jax.numpy as jnp

from tandem.kernels.compile_table import case

Struct = jax.ShapeDtypeStruct


def compile_cases() -> list[case.Case]:
  """For Mosaic TPU, Triton and Mosaic GPU."""
  return [
    case.Case(
      'compile_table/vmem_overflow', 'tpu', _too_large, refused='(?i)vmem'
    ),
    case.Case(
      'compile_table/triton_float32_tanh',
      'gpu',
      functools.partial(_tanh, jnp.float32),
    ),
    case.Case(
      'compile_table/triton_bfloat16_tanh',
      'gpu',
      functools.partial(_tanh, jnp.bfloat16),
      refused='math.tanh',
    ),
    case.Case(
      'compile_table/mosaic_gpu_wgmma',
      'gpu',
      _wgmma,
      refused_on=(('B200', '(?i)wgmma'),),
    ),
  ]


def _copy_kernel(x, y, function=lambda x: x):
  y[...] = function(x[...])


def _too_large(mesh):
  """One block of 512 MiB, where a core has 128 MiB at most."""
  x = Struct((2**14, 2**13), jnp.float32)
  return pl.pallas_call(_copy_kernel, out_shape=x), (x,)


def _tanh(dtype, mesh):
  """Triton calls CUDA's libdevice, which has no bfloat16 tanh."""
  x = Struct((128, 128), dtype)
  f = pl.pallas_call(
    functools.partial(_copy_kernel, function=jnp.tanh),
    out_shape=x,
    compiler_params=triton.CompilerParams(),
  )
  return f, (x,)


def _wgmma(mesh):
  """A product by the instruction that only Hopper has."""

  def kernel(a, b, out):
    def multiply(total):
      mosaic_gpu.wgmma(total, a, b)
      return total[...]

    total = mosaic_gpu.ACC(out.shape, jnp.float32)
    out[...] = pl.run_scoped(multiply, total)

  def block(shape, columns):
    tiles = mosaic_gpu.TilingTransform((8, columns))
    swizzle = mosaic_gpu.SwizzleTransform(128)
    return mosaic_gpu.BlockSpec(
      shape, lambda i: (0, 0), transforms=(tiles, swizzle)
    )

  a, b = Struct((64, 64), jnp.bfloat16), Struct((64, 128), jnp.bfloat16)
  f = pl.pallas_call(
    kernel,
    grid=(1,),
    in_specs=[block(a.shape, 64), block(b.shape, 64)],
    out_specs=block((64, 128), 32),
    out_shape=Struct((64, 128), jnp.float32),
    compiler_params=mosaic_gpu.CompilerParams(),
  )
  return f, (a, b)
