#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/row_ops.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "common/model/kernels/row_ops.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kStep = kLanes;

// Sums over a row: whole registers first, lane by lane, then the tail. The order depends on the
// size alone, so a row has the same bits in every batch.
template <typename T>
float SumOfSquares(const T* x, int64_t size) {
  const Floats d;
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    const FloatVec v = LoadFloats(d, x + j);
    sums = hn::MulAdd(v, v, sums);
  }
  float total = Sum(sums);
  for (; j < size; ++j) total += ToFloat(x[j]) * ToFloat(x[j]);
  return total;
}

template <typename T>
void AddRow(const T* a, const T* b, int64_t size, T* out) {
  const Floats d;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    StoreFloats(d, hn::Add(LoadFloats(d, a + j), LoadFloats(d, b + j)), out + j);
  }
  for (; j < size; ++j) FromFloat(ToFloat(a[j]) + ToFloat(b[j]), out[j]);
}

template <typename T>
void NormRow(const T* x, const T* weight, float inverse_rms, int64_t size, T* out) {
  const Floats d;
  const FloatVec scale = hn::Set(d, inverse_rms);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    StoreFloats(d, hn::Mul(hn::Mul(LoadFloats(d, x + j), scale), LoadFloats(d, weight + j)),
                out + j);
  }
  for (; j < size; ++j) FromFloat(ToFloat(x[j]) * inverse_rms * ToFloat(weight[j]), out[j]);
}

// With n = x * inverse_rms: grad_x = (g w - n mean(g w n)) * inverse_rms, grad_weight += g n.
template <typename T>
void NormRowBackward(const T* x, const T* weight, float inverse_rms, const T* grad, const T* extra,
                     int64_t size, T* grad_x, float* grad_weight) {
  const Floats d;
  const FloatVec scale = hn::Set(d, inverse_rms);
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    const FloatVec g = LoadFloats(d, grad + j);
    const FloatVec normed = hn::Mul(LoadFloats(d, x + j), scale);
    sums = hn::MulAdd(hn::Mul(g, LoadFloats(d, weight + j)), normed, sums);
    if (grad_weight != nullptr) {
      hn::StoreU(hn::MulAdd(g, normed, hn::LoadU(d, grad_weight + j)), d, grad_weight + j);
    }
  }
  float total = Sum(sums);
  for (; j < size; ++j) {
    const float normed = ToFloat(x[j]) * inverse_rms;
    total += ToFloat(grad[j]) * ToFloat(weight[j]) * normed;
    if (grad_weight != nullptr) grad_weight[j] += ToFloat(grad[j]) * normed;
  }
  const float mean = total / static_cast<float>(size);
  const FloatVec means = hn::Set(d, mean);
  for (j = 0; j + kStep <= size; j += kStep) {
    const FloatVec normed = hn::Mul(LoadFloats(d, x + j), scale);
    const FloatVec gw = hn::Mul(LoadFloats(d, grad + j), LoadFloats(d, weight + j));
    FloatVec out = hn::Mul(hn::NegMulAdd(normed, means, gw), scale);
    if (extra != nullptr) out = hn::Add(out, LoadFloats(d, extra + j));
    StoreFloats(d, out, grad_x + j);
  }
  for (; j < size; ++j) {
    const float normed = ToFloat(x[j]) * inverse_rms;
    float out = (ToFloat(grad[j]) * ToFloat(weight[j]) - normed * mean) * inverse_rms;
    if (extra != nullptr) out += ToFloat(extra[j]);
    FromFloat(out, grad_x[j]);
  }
}

template <typename T>
void RmsNormRowsOf(const RmsNormForward& args, int64_t begin, int64_t end) {
  const int64_t size = args.size;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(args.x) + i * size;
    if (args.delta != nullptr) {
      T* const sum = static_cast<T*>(args.sum) + i * size;
      AddRow(x, static_cast<const T*>(args.delta) + i * size, size, sum);
      x = sum;
    }
    // Uses the stored, rounded sum: it is the residual stream that later blocks add to.
    const float mean = SumOfSquares(x, size) / static_cast<float>(size);
    const float inverse_rms = 1.0f / std::sqrt(mean + args.eps);
    if (args.inverse_rms != nullptr) args.inverse_rms[i] = inverse_rms;
    NormRow(x, static_cast<const T*>(args.weight), inverse_rms, size,
            static_cast<T*>(args.out) + i * size);
  }
}

void RmsNormRows(const RmsNormForward& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return RmsNormRowsOf<float>(args, begin, end);
  RmsNormRowsOf<BFloat16>(args, begin, end);
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

template <typename T>
void RmsNormBackwardRowsOf(const RmsNormBackward& args, int64_t begin, int64_t end,
                           float* grad_weight) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * args.size;
    NormRowBackward(static_cast<const T*>(args.x) + at, static_cast<const T*>(args.weight),
                    args.inverse_rms[i], static_cast<const T*>(args.grad_out) + at,
                    args.grad_sum == nullptr ? nullptr : static_cast<const T*>(args.grad_sum) + at,
                    args.size, static_cast<T*>(args.grad_x) + at, grad_weight);
  }
}

void RmsNormBackwardRows(const RmsNormBackward& args, int64_t begin, int64_t end,
                         float* grad_weight) {
  if (args.type == Element::kFloat32) {
    return RmsNormBackwardRowsOf<float>(args, begin, end, grad_weight);
  }
  RmsNormBackwardRowsOf<BFloat16>(args, begin, end, grad_weight);
}

// 1 / (1 + exp(-x)), without overflow: the exponent is never positive.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto denominator = hn::Add(one, e);
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), denominator);
}

template <class D, typename T>
HWY_INLINE void SwiGluAt(D d, const T* gate, const T* up, T* out) {
  const auto g = LoadFloats(d, gate);
  StoreFloats(d, hn::Mul(hn::Mul(g, Sigmoid(d, g)), LoadFloats(d, up)), out);
}

template <class D, typename T>
HWY_INLINE void SwiGluBackwardAt(D d, const T* gate, const T* up, const T* grad, T* grad_gate,
                                 T* grad_up) {
  const auto g = LoadFloats(d, gate);
  const auto dy = LoadFloats(d, grad);
  const auto s = Sigmoid(d, g);
  const auto silu = hn::Mul(g, s);
  // silu' = s + silu (1 - s)
  const auto slope = hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0f), s), s);
  StoreFloats(d, hn::Mul(hn::Mul(dy, LoadFloats(d, up)), slope), grad_gate);
  StoreFloats(d, hn::Mul(dy, silu), grad_up);
}

template <typename T>
void SwiGluRowsOf(int64_t size, const T* gate_up, T* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T* const gate = gate_up + i * 2 * size;
    int64_t j = 0;
    for (; j + kStep <= size; j += kStep) {
      SwiGluAt(Floats(), gate + j, gate + size + j, out + i * size + j);
    }
    for (; j < size; ++j) SwiGluAt(OneFloat(), gate + j, gate + size + j, out + i * size + j);
  }
}

void SwiGluRows(Element type, int64_t size, const void* gate_up, void* out, int64_t begin,
                int64_t end) {
  if (type == Element::kFloat32) {
    return SwiGluRowsOf(size, static_cast<const float*>(gate_up), static_cast<float*>(out), begin,
                        end);
  }
  SwiGluRowsOf(size, static_cast<const BFloat16*>(gate_up), static_cast<BFloat16*>(out), begin,
               end);
}

template <typename T>
void SwiGluBackwardRowsOf(int64_t size, const T* gate_up, const T* grad_out, T* grad_gate_up,
                          int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T* const gate = gate_up + i * 2 * size;
    const T* const grad = grad_out + i * size;
    T* const grad_gate = grad_gate_up + i * 2 * size;
    int64_t j = 0;
    for (; j + kStep <= size; j += kStep) {
      SwiGluBackwardAt(Floats(), gate + j, gate + size + j, grad + j, grad_gate + j,
                       grad_gate + size + j);
    }
    for (; j < size; ++j) {
      SwiGluBackwardAt(OneFloat(), gate + j, gate + size + j, grad + j, grad_gate + j,
                       grad_gate + size + j);
    }
  }
}

void SwiGluBackwardRows(Element type, int64_t size, const void* gate_up, const void* grad_out,
                        void* grad_gate_up, int64_t begin, int64_t end) {
  if (type == Element::kFloat32) {
    return SwiGluBackwardRowsOf(size, static_cast<const float*>(gate_up),
                                static_cast<const float*>(grad_out),
                                static_cast<float*>(grad_gate_up), begin, end);
  }
  SwiGluBackwardRowsOf(size, static_cast<const BFloat16*>(gate_up),
                       static_cast<const BFloat16*>(grad_out), static_cast<BFloat16*>(grad_gate_up),
                       begin, end);
}

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
        const float mean = SumOfSquares(in, dim) / static_cast<float>(dim);
        const float inverse_rms = 1.0f / std::sqrt(mean + args.eps);
        if (args.inverse_rms != nullptr) args.inverse_rms[i * args.num_heads + h] = inverse_rms;
        NormRow(in, static_cast<const T*>(args.norm_weight), inverse_rms, dim, out);
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
        NormRowBackward(static_cast<const T*>(args.in) + i * args.in_row_stride + h * dim,
                        static_cast<const T*>(args.norm_weight),
                        args.inverse_rms[i * args.num_heads + h], out,
                        static_cast<const T*>(nullptr), dim, out, grad_weight);
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

HWY_EXPORT(RmsNormRows);
HWY_EXPORT(AddRows);
HWY_EXPORT(RmsNormBackwardRows);
HWY_EXPORT(SwiGluRows);
HWY_EXPORT(SwiGluBackwardRows);
HWY_EXPORT(RotateRows);
HWY_EXPORT(RotateBackwardRows);
HWY_EXPORT(AddRowsTo);

void RmsNormRows(const RmsNormForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(args, begin, end);
}

void AddRows(Element type, int64_t size, const void* a, const void* b, void* out, int64_t begin,
             int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddRows)(type, size, a, b, out, begin, end);
}

void RmsNormBackwardRows(const RmsNormBackward& args, int64_t begin, int64_t end,
                         float* grad_weight) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackwardRows)(args, begin, end, grad_weight);
}

void SwiGluRows(Element type, int64_t size, const void* gate_up, void* out, int64_t begin,
                int64_t end) {
  HWY_DYNAMIC_DISPATCH(SwiGluRows)(type, size, gate_up, out, begin, end);
}

void SwiGluBackwardRows(Element type, int64_t size, const void* gate_up, const void* grad_out,
                        void* grad_gate_up, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SwiGluBackwardRows)
  (type, size, gate_up, grad_out, grad_gate_up, begin, end);
}

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
