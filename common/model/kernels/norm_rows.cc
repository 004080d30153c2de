#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/norm_rows.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <cstdint>

#include "common/model/kernels/norm_row-inl.h"
#include "common/model/kernels/norm_rows.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

template <typename T>
void AddRow(const T* a, const T* b, int64_t size, T* out) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    StoreFloats(d, hn::Add(LoadFloats(d, a + j), LoadFloats(d, b + j)), out + j);
  }
  for (; j < size; ++j) FromFloat(ToFloat(a[j]) + ToFloat(b[j]), out[j]);
}

template <typename T>
void AddRowsOf(int64_t size, const void* a, const void* b, void* out, int64_t begin, int64_t end) {
  const int64_t first = begin * size;
  AddRow(static_cast<const T*>(a) + first, static_cast<const T*>(b) + first, (end - begin) * size,
         static_cast<T*>(out) + first);
}

void AddRows(Element type, int64_t size, const void* a, const void* b, void* out, int64_t begin,
             int64_t end) {
  if (type == Element::kFloat32) return AddRowsOf<float>(size, a, b, out, begin, end);
  AddRowsOf<BFloat16>(size, a, b, out, begin, end);
}

template <bool kPlain, typename T>
void NormRowsOf(const NormForward& args, int64_t begin, int64_t end) {
  const int64_t size = args.size;
  const Affine<T> affine{static_cast<const T*>(args.weight), static_cast<const T*>(args.bias),
                         args.spec.unit_offset ? 1.0f : 0.0f};
  const bool centered = args.spec.kind == NormKind::kLayer;
  const float eps = static_cast<float>(args.spec.eps);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(args.x) + i * size;
    if (args.delta != nullptr) {
      T* const sum = static_cast<T*>(args.sum) + i * size;
      AddRow(x, static_cast<const T*>(args.delta) + i * size, size, sum);
      x = sum;
    }
    // Uses the stored, rounded sum: it is the residual stream that later blocks add to.
    const Moments moments = MomentsOf(x, size, centered, eps);
    if (args.inverse != nullptr) args.inverse[i] = moments.inverse;
    if (args.mean != nullptr) args.mean[i] = moments.mean;
    NormRow<kPlain>(x, affine, moments, size, static_cast<T*>(args.out) + i * size);
  }
}

template <bool kPlain, typename T>
void NormBackwardRowsOf(const NormBackward& args, int64_t begin, int64_t end,
                        const AffineGradient& to) {
  const Affine<T> affine{static_cast<const T*>(args.weight), nullptr,
                         args.spec.unit_offset ? 1.0f : 0.0f};
  const bool centered = args.spec.kind == NormKind::kLayer;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * args.size;
    const Moments moments{centered ? args.mean[i] : 0.0f, args.inverse[i]};
    NormRowBackward<kPlain>(
        static_cast<const T*>(args.x) + at, affine, moments, centered,
        static_cast<const T*>(args.grad_out) + at,
        args.grad_sum == nullptr ? nullptr : static_cast<const T*>(args.grad_sum) + at, args.size,
        static_cast<T*>(args.grad_x) + at, to);
  }
}

bool IsPlain(const NormSpec& spec, const void* weight, const void* bias) {
  return spec.kind == NormKind::kRms && !spec.unit_offset && weight != nullptr && bias == nullptr;
}

void NormRows(const NormForward& args, int64_t begin, int64_t end) {
  const bool plain = IsPlain(args.spec, args.weight, args.bias);
  if (args.type == Element::kFloat32) {
    return plain ? NormRowsOf<true, float>(args, begin, end)
                 : NormRowsOf<false, float>(args, begin, end);
  }
  return plain ? NormRowsOf<true, BFloat16>(args, begin, end)
               : NormRowsOf<false, BFloat16>(args, begin, end);
}

void NormBackwardRows(const NormBackward& args, int64_t begin, int64_t end, float* grad_weight,
                      float* grad_bias) {
  const bool plain = IsPlain(args.spec, args.weight, grad_bias);
  const AffineGradient to{grad_weight, grad_bias};
  if (args.type == Element::kFloat32) {
    return plain ? NormBackwardRowsOf<true, float>(args, begin, end, to)
                 : NormBackwardRowsOf<false, float>(args, begin, end, to);
  }
  return plain ? NormBackwardRowsOf<true, BFloat16>(args, begin, end, to)
               : NormBackwardRowsOf<false, BFloat16>(args, begin, end, to);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(NormRows);
HWY_EXPORT(AddRows);
HWY_EXPORT(NormBackwardRows);

void NormRows(const NormForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(NormRows)(args, begin, end);
}

void AddRows(Element type, int64_t size, const void* a, const void* b, void* out, int64_t begin,
             int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddRows)(type, size, a, b, out, begin, end);
}

void NormBackwardRows(const NormBackward& args, int64_t begin, int64_t end, float* grad_weight,
                      float* grad_bias) {
  HWY_DYNAMIC_DISPATCH(NormBackwardRows)(args, begin, end, grad_weight, grad_bias);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
