#include "common/model/kernels/head_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/head_ops.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "common/model/kernels/rotate-inl.h"
#include "common/model/kernels/scratch.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kHeadStep = kLanes;

struct HeadStats {
  float mean;     // 0 if it is not subtracted
  float inverse;  // 1 / sqrt(variance + eps)
};

// Sums whole registers lane by lane, then the tail: the order depends on the size alone.
inline HeadStats StatsOf(const HeadNorm& norm, const float* x, int64_t size) {
  const Floats d;
  HeadStats stats{0.0f, 0.0f};
  int64_t j = 0;
  if (norm.kind == HeadNorm::Kind::kLayer) {
    FloatVec sums = hn::Zero(d);
    for (; j + kHeadStep <= size; j += kHeadStep) sums = hn::Add(sums, hn::LoadU(d, x + j));
    float total = Sum(sums);
    for (; j < size; ++j) total += x[j];
    stats.mean = total / static_cast<float>(size);
  }
  const FloatVec mean = hn::Set(d, stats.mean);
  FloatVec squares = hn::Zero(d);
  for (j = 0; j + kHeadStep <= size; j += kHeadStep) {
    const FloatVec centred = hn::Sub(hn::LoadU(d, x + j), mean);
    squares = hn::MulAdd(centred, centred, squares);
  }
  float total = Sum(squares);
  for (; j < size; ++j) total += (x[j] - stats.mean) * (x[j] - stats.mean);
  stats.inverse = 1.0f / std::sqrt(total / static_cast<float>(size) + norm.eps);
  return stats;
}

// The scale of elements [j, j + lanes).
template <class D, typename T>
HWY_INLINE hn::Vec<D> ScaleAt(D d, const HeadNorm& norm, const T* weight, int64_t j) {
  if (weight == nullptr) return hn::Set(d, 1.0f);
  const auto w = LoadFloats(d, weight + j);
  return norm.unit_offset ? hn::Add(hn::Set(d, 1.0f), w) : w;
}

template <class D, typename T>
HWY_INLINE void NormHeadAt(D d, const HeadNorm& norm, const T* weight, const T* bias,
                           const HeadStats& stats, int64_t j, float* x) {
  const auto centred = hn::Sub(hn::LoadU(d, x + j), hn::Set(d, stats.mean));
  auto out = hn::Mul(hn::Mul(centred, hn::Set(d, stats.inverse)), ScaleAt(d, norm, weight, j));
  if (bias != nullptr) out = hn::Add(out, LoadFloats(d, bias + j));
  hn::StoreU(out, d, x + j);
}

// In place.
template <typename T>
void NormHead(const HeadNorm& norm, const T* weight, const T* bias, float* x, int64_t size) {
  const HeadStats stats = StatsOf(norm, x, size);
  int64_t j = 0;
  for (; j + kHeadStep <= size; j += kHeadStep) {
    NormHeadAt(Floats(), norm, weight, bias, stats, j, x);
  }
  for (; j < size; ++j) NormHeadAt(OneFloat(), norm, weight, bias, stats, j, x);
}

// With n = (x - mean) * inverse and h = g * scale: grad_x = (h - mean(h) - n mean(h n)) * inverse,
// without mean(h) for an RMS norm; grad_weight += g n; grad_bias += g. Replaces g by grad_x.
template <typename T>
void NormHeadBackward(const HeadNorm& norm, const T* weight, const float* x, int64_t size, float* g,
                      float* grad_weight, float* grad_bias) {
  const HeadStats stats = StatsOf(norm, x, size);
  const auto normed_at = [&](auto d, int64_t j) {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + j), hn::Set(d, stats.mean)), hn::Set(d, stats.inverse));
  };
  const auto add_parameters = [&](auto d, int64_t j) {
    const auto grad = hn::LoadU(d, g + j);
    hn::StoreU(hn::MulAdd(grad, normed_at(d, j), hn::LoadU(d, grad_weight + j)), d,
               grad_weight + j);
    hn::StoreU(hn::Add(grad, hn::LoadU(d, grad_bias + j)), d, grad_bias + j);
  };
  const Floats d;
  const OneFloat one;
  FloatVec sums = hn::Zero(d);
  FloatVec products = hn::Zero(d);
  int64_t j = 0;
  for (; j + kHeadStep <= size; j += kHeadStep) {
    add_parameters(d, j);
    const FloatVec h = hn::Mul(hn::LoadU(d, g + j), ScaleAt(d, norm, weight, j));
    hn::StoreU(h, d, g + j);
    sums = hn::Add(sums, h);
    products = hn::MulAdd(h, normed_at(d, j), products);
  }
  float sum = Sum(sums);
  float product = Sum(products);
  for (; j < size; ++j) {
    add_parameters(one, j);
    g[j] *= hn::GetLane(ScaleAt(one, norm, weight, j));
    sum += g[j];
    product += g[j] * hn::GetLane(normed_at(one, j));
  }
  const float mean = norm.kind == HeadNorm::Kind::kLayer ? sum / static_cast<float>(size) : 0.0f;
  const float slope = product / static_cast<float>(size);
  const auto subtract = [&](auto tag, int64_t at) {
    const auto rest = hn::Sub(hn::LoadU(tag, g + at), hn::Set(tag, mean));
    const auto out = hn::NegMulAdd(normed_at(tag, at), hn::Set(tag, slope), rest);
    hn::StoreU(hn::Mul(out, hn::Set(tag, stats.inverse)), tag, g + at);
  };
  for (j = 0; j + kHeadStep <= size; j += kHeadStep) subtract(d, j);
  for (; j < size; ++j) subtract(one, j);
}

// In place, a head.
template <bool kBack>
void RotateInPlace(const HeadOps& ops, int64_t row, float* x) {
  if (ops.cos == nullptr) return;
  const int64_t half = ops.rotary_dim / 2;
  RotateElements<kBack>(ops.cos + row * half, ops.sin + row * half, half, ops.interleaved, x);
}

// The elements that are normed together, or one head.
inline int64_t GroupSize(const HeadOps& ops) {
  return ops.norm.all_heads ? ops.num_heads * ops.head_dim : ops.head_dim;
}

template <bool kBack>
void RotateGroup(const HeadOps& ops, int64_t row, int64_t size, float* x) {
  for (int64_t j = 0; j < size; j += ops.head_dim) RotateInPlace<kBack>(ops, row, x + j);
}

template <typename T>
const T* WeightsAt(const HeadOps& ops, const void* weights, int64_t column) {
  if (weights == nullptr) return nullptr;
  return static_cast<const T*>(weights) + (ops.norm.own_weights ? column : 0);
}

template <typename T>
void TransformRow(const HeadOps& ops, int64_t row, const T* in, T* out, float* x) {
  const int64_t size = GroupSize(ops);
  const bool normed = ops.norm.kind != HeadNorm::Kind::kNone;
  for (int64_t column = 0; column < ops.num_heads * ops.head_dim; column += size) {
    const T* const weight = WeightsAt<T>(ops, ops.norm.weight, column);
    const T* const bias = WeightsAt<T>(ops, ops.norm.bias, column);
    CopyScaled(in + column, size, 1.0f, x);
    if (normed && !ops.norm.after_rotation) NormHead(ops.norm, weight, bias, x, size);
    RotateGroup<false>(ops, row, size, x);
    if (normed && ops.norm.after_rotation) NormHead(ops.norm, weight, bias, x, size);
    CopyScaled(x, size, ops.row_scale == nullptr ? 1.0f : ops.row_scale[row], out + column);
  }
}

template <typename T>
void TransformRowBackward(const HeadOps& ops, int64_t row, const T* in, const T* grad_out,
                          T* grad_in, float* grad_norm, float* x, float* g) {
  const int64_t size = GroupSize(ops);
  const bool normed = ops.norm.kind != HeadNorm::Kind::kNone;
  for (int64_t column = 0; column < ops.num_heads * ops.head_dim; column += size) {
    const int64_t at = ops.norm.own_weights ? column : 0;
    const T* const weight = WeightsAt<T>(ops, ops.norm.weight, column);
    CopyScaled(grad_out + column, size, ops.row_scale == nullptr ? 1.0f : ops.row_scale[row], g);
    if (normed) CopyScaled(in + column, size, 1.0f, x);
    if (normed && ops.norm.after_rotation) {
      RotateGroup<false>(ops, row, size, x);
      NormHeadBackward(ops.norm, weight, x, size, g, grad_norm + at, grad_norm + ops.Width() + at);
    }
    RotateGroup<true>(ops, row, size, g);
    if (normed && !ops.norm.after_rotation) {
      NormHeadBackward(ops.norm, weight, x, size, g, grad_norm + at, grad_norm + ops.Width() + at);
    }
    CopyScaled(g, size, 1.0f, grad_in + column);
  }
}

template <typename T>
void TransformOf(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsOut& out, int64_t begin,
                 int64_t end) {
  float* const scratch = ThreadScratch(GroupSize(ops));
  for (int64_t i = begin; i < end; ++i) {
    TransformRow(ops, i, static_cast<const T*>(in.data) + i * in.row_stride,
                 static_cast<T*>(out.data) + i * out.row_stride, scratch);
  }
}

void Transform(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsOut& out, int64_t begin,
               int64_t end) {
  if (ops.type == Element::kFloat32) return TransformOf<float>(ops, in, out, begin, end);
  TransformOf<BFloat16>(ops, in, out, begin, end);
}

template <typename T>
void TransformBackwardOf(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsIn& grad_out,
                         const HeadRowsOut& grad_in, int64_t begin, int64_t end, float* grad_norm) {
  const int64_t size = GroupSize(ops);
  float* const scratch = ThreadScratch(2 * size);
  for (int64_t i = begin; i < end; ++i) {
    TransformRowBackward(ops, i, static_cast<const T*>(in.data) + i * in.row_stride,
                         static_cast<const T*>(grad_out.data) + i * grad_out.row_stride,
                         static_cast<T*>(grad_in.data) + i * grad_in.row_stride, grad_norm, scratch,
                         scratch + size);
  }
}

void TransformBackward(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsIn& grad_out,
                       const HeadRowsOut& grad_in, int64_t begin, int64_t end, float* grad_norm) {
  if (ops.type == Element::kFloat32) {
    return TransformBackwardOf<float>(ops, in, grad_out, grad_in, begin, end, grad_norm);
  }
  TransformBackwardOf<BFloat16>(ops, in, grad_out, grad_in, begin, end, grad_norm);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(Transform);
HWY_EXPORT(TransformBackward);

void TransformHeads(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsOut& out, int64_t begin,
                    int64_t end) {
  HWY_DYNAMIC_DISPATCH(Transform)(ops, in, out, begin, end);
}

void TransformHeadsBackward(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsIn& grad_out,
                            const HeadRowsOut& grad_in, int64_t begin, int64_t end,
                            float* grad_norm) {
  HWY_DYNAMIC_DISPATCH(TransformBackward)(ops, in, grad_out, grad_in, begin, end, grad_norm);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
