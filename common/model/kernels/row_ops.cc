#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/row_ops.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include "common/model/kernels/norm_row-inl.h"
#include "common/model/kernels/row_ops.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kStep = kLanes;

// Rotates pairs (x[j], x[j + half]) by the angle of j; by its negative if kBack.
template <bool kBack, class D, typename T>
void RotateAt(D d, const T* first, const T* second, const float* cos, const float* sin,
              T* out_first, T* out_second) {
  const auto a = LoadFloats(d, first);
  const auto b = LoadFloats(d, second);
  const auto c = hn::LoadU(d, cos);
  const auto s = kBack ? hn::Neg(hn::LoadU(d, sin)) : hn::LoadU(d, sin);
  StoreFloats(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), out_first);
  StoreFloats(d, hn::MulAdd(a, s, hn::Mul(b, c)), out_second);
}

template <bool kBack, typename T>
void RotateHead(const T* in, const float* cos, const float* sin, int64_t half, T* out) {
  int64_t j = 0;
  for (; j + kStep <= half; j += kStep) {
    RotateAt<kBack>(Floats(), in + j, in + half + j, cos + j, sin + j, out + j, out + half + j);
  }
  for (; j < half; ++j) {
    RotateAt<kBack>(OneFloat(), in + j, in + half + j, cos + j, sin + j, out + j, out + half + j);
  }
}

template <typename T>
void RotateRowsOf(const RotateForward& args, int64_t begin, int64_t end) {
  const int64_t dim = args.head_dim;
  const int64_t half = dim / 2;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t h = 0; h < args.num_heads; ++h) {
      const T* in = static_cast<const T*>(args.in) + i * args.in_row_stride + h * dim;
      T* const out = static_cast<T*>(args.out) + i * args.out_row_stride + h * dim;
      if (args.norm_weight != nullptr) {
        const Moments moments = MomentsOf(in, dim, /*centered=*/false, args.eps);
        if (args.inverse_rms != nullptr) args.inverse_rms[i * args.num_heads + h] = moments.inverse;
        NormRow<true>(in, Affine<T>{static_cast<const T*>(args.norm_weight)}, moments, dim, out);
        in = out;  // each pair is read before it is written
      }
      RotateHead<false>(in, args.cos + i * half, args.sin + i * half, half, out);
    }
  }
}

void RotateRows(const RotateForward& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return RotateRowsOf<float>(args, begin, end);
  RotateRowsOf<BFloat16>(args, begin, end);
}

template <typename T>
void RotateBackwardRowsOf(const RotateBackward& args, int64_t begin, int64_t end,
                          float* grad_weight) {
  const int64_t dim = args.head_dim;
  const int64_t half = dim / 2;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t h = 0; h < args.num_heads; ++h) {
      const T* const grad =
          static_cast<const T*>(args.grad_out) + i * args.grad_out_row_stride + h * dim;
      T* const out = static_cast<T*>(args.grad_in) + i * args.grad_in_row_stride + h * dim;
      RotateHead<true>(grad, args.cos + i * half, args.sin + i * half, half, out);
      if (args.norm_weight != nullptr) {
        // In place: each element of `out` is read before it is written.
        NormRowBackward<true>(static_cast<const T*>(args.in) + i * args.in_row_stride + h * dim,
                              Affine<T>{static_cast<const T*>(args.norm_weight)},
                              Moments{0.0f, args.inverse_rms[i * args.num_heads + h]},
                              /*centered=*/false, out, static_cast<const T*>(nullptr), dim, out,
                              AffineGradient{grad_weight});
      }
    }
  }
}

void RotateBackwardRows(const RotateBackward& args, int64_t begin, int64_t end,
                        float* grad_weight) {
  if (args.type == Element::kFloat32) {
    return RotateBackwardRowsOf<float>(args, begin, end, grad_weight);
  }
  RotateBackwardRowsOf<BFloat16>(args, begin, end, grad_weight);
}

template <typename T>
void AddRowsToOf(int64_t size, const T* x, int64_t begin, int64_t end, float* out) {
  const Floats d;
  for (int64_t i = begin; i < end; ++i) {
    const T* const row = x + i * size;
    int64_t j = 0;
    for (; j + kStep <= size; j += kStep) {
      hn::StoreU(hn::Add(hn::LoadU(d, out + j), LoadFloats(d, row + j)), d, out + j);
    }
    for (; j < size; ++j) out[j] += ToFloat(row[j]);
  }
}

void AddRowsTo(Element type, int64_t size, const void* x, int64_t begin, int64_t end, float* out) {
  if (type == Element::kFloat32) {
    return AddRowsToOf(size, static_cast<const float*>(x), begin, end, out);
  }
  AddRowsToOf(size, static_cast<const BFloat16*>(x), begin, end, out);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(RotateRows);
HWY_EXPORT(RotateBackwardRows);
HWY_EXPORT(AddRowsTo);

void RotateRows(const RotateForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RotateRows)(args, begin, end);
}

void RotateBackwardRows(const RotateBackward& args, int64_t begin, int64_t end,
                        float* grad_weight) {
  HWY_DYNAMIC_DISPATCH(RotateBackwardRows)(args, begin, end, grad_weight);
}

void AddRowsTo(Element type, int64_t size, const void* x, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(AddRowsTo)(type, size, x, begin, end, out);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
