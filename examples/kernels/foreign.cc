// SPDX-License-Identifier: Apache-2.0
//
// Kernels in C++: XLA FFI handlers for the CPU. foreign.yaml describes them;
// `python -m examples.kernels.build FOLDER` compiles them.

#include <cmath>
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Divides each row by the root of the mean of its squares, and scales it by weight.
static ffi::Error RmsNormImpl(float eps, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> weight,
                              ffi::ResultBuffer<ffi::F32> y) {
  auto dims = x.dimensions();
  if (dims.size() == 0 || weight.dimensions().size() != 1 ||
      weight.dimensions()[0] != dims.back()) {
    return ffi::Error::InvalidArgument("rms_norm takes x of [..., d] and weight of [d]");
  }
  const int64_t d = dims.back();
  const int64_t rows = d == 0 ? 0 : static_cast<int64_t>(x.element_count()) / d;
  const float* in = x.typed_data();
  const float* w = weight.typed_data();
  float* out = y->typed_data();
  for (int64_t r = 0; r < rows; ++r, in += d, out += d) {
    double sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += static_cast<double>(in[i]) * in[i];
    const float scale = static_cast<float>(1.0 / std::sqrt(sum / d + eps));
    for (int64_t i = 0; i < d; ++i) out[i] = in[i] * scale * w[i];
  }
  return ffi::Error::Success();
}

// Adds x to a buffer. The manifest makes total and next the same memory.
static ffi::Error AccumulateImpl(ffi::Buffer<ffi::F32> total, ffi::Buffer<ffi::F32> x,
                                 ffi::ResultBuffer<ffi::F32> next) {
  if (total.element_count() != x.element_count()) {
    return ffi::Error::InvalidArgument("accumulate takes two arrays of one shape");
  }
  const float* a = total.typed_data();
  const float* b = x.typed_data();
  float* out = next->typed_data();
  for (size_t i = 0; i < x.element_count(); ++i) out[i] = a[i] + b[i];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNorm, RmsNormImpl,
                              ffi::Ffi::Bind()
                                  .Attr<float>("eps")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(Accumulate, AccumulateImpl,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
