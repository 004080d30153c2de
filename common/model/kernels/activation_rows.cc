#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/activation_rows.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <cstdint>
#include <type_traits>

#include "common/model/kernels/activation-inl.h"
#include "common/model/kernels/activation_rows.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// `up` is null without a gate.
template <Activation kActivation, class D, typename T>
HWY_INLINE void ActivateAt(D d, const T* in, const T* up, const XieluSlopes& xielu, T* out) {
  if constexpr (kActivation == Activation::kClampedSwiglu) {
    StoreFloats(d, ClampedSwiglu(d, LoadFloats(d, in), LoadFloats(d, up)).value, out);
  } else {
    auto value = Activated<kActivation>(d, LoadFloats(d, in), xielu);
    if (up != nullptr) value = hn::Mul(value, LoadFloats(d, up));
    StoreFloats(d, value, out);
  }
}

template <Activation kActivation, typename T>
void ActivateRow(const ActivationForward& args, const T* in, T* out) {
  constexpr int64_t kStep = kLanes;
  const int64_t size = args.size;
  const T* const up = args.gated ? in + size : nullptr;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    ActivateAt<kActivation>(Floats(), in + j, up == nullptr ? up : up + j, args.xielu, out + j);
  }
  for (; j < size; ++j) {
    ActivateAt<kActivation>(OneFloat(), in + j, up == nullptr ? up : up + j, args.xielu, out + j);
  }
}

// `up` and `grad_up` are null without a gate.
template <Activation kActivation, class D, typename T>
HWY_INLINE void ActivateBackwardAt(D d, const T* in, const T* up, const T* grad,
                                   const XieluSlopes& xielu, T* grad_in, T* grad_up) {
  const auto dy = LoadFloats(d, grad);
  if constexpr (kActivation == Activation::kClampedSwiglu) {
    const auto of = ClampedSwiglu(d, LoadFloats(d, in), LoadFloats(d, up));
    StoreFloats(d, hn::Mul(dy, of.gate_slope), grad_in);
    StoreFloats(d, hn::Mul(dy, of.up_slope), grad_up);
  } else {
    const auto of = ActivatedWithSlope<kActivation>(d, LoadFloats(d, in), xielu);
    if (up == nullptr) {
      StoreFloats(d, hn::Mul(dy, of.slope), grad_in);
      return;
    }
    StoreFloats(d, hn::Mul(hn::Mul(dy, LoadFloats(d, up)), of.slope), grad_in);
    StoreFloats(d, hn::Mul(dy, of.value), grad_up);
  }
}

template <Activation kActivation, typename T>
void ActivateRowBackward(const ActivationBackward& args, const T* in, const T* grad, T* grad_in) {
  constexpr int64_t kStep = kLanes;
  const int64_t size = args.size;
  const T* const up = args.gated ? in + size : nullptr;
  T* const grad_up = args.gated ? grad_in + size : nullptr;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    ActivateBackwardAt<kActivation>(Floats(), in + j, up == nullptr ? up : up + j, grad + j,
                                    args.xielu, grad_in + j,
                                    grad_up == nullptr ? grad_up : grad_up + j);
  }
  for (; j < size; ++j) {
    ActivateBackwardAt<kActivation>(OneFloat(), in + j, up == nullptr ? up : up + j, grad + j,
                                    args.xielu, grad_in + j,
                                    grad_up == nullptr ? grad_up : grad_up + j);
  }
}

// Sums of xIELU's gradients with respect to its slopes.
template <class D>
struct SlopeSums {
  hn::Vec<D> positive;
  hn::Vec<D> negative;
};

template <class D, typename T>
HWY_INLINE void AddSlopeGradientsAt(D d, const T* in, const T* grad, SlopeSums<D>& sums) {
  const auto x = LoadFloats(d, in);
  const auto dy = LoadFloats(d, grad);
  const auto zero = hn::Zero(d);
  const auto is_above = hn::Gt(x, zero);
  const auto above = hn::IfThenElse(is_above, hn::Mul(x, x), zero);
  const auto below = hn::IfThenElse(is_above, zero, XieluBelowZero(d, x));
  sums.positive = hn::MulAdd(dy, above, sums.positive);
  sums.negative = hn::MulAdd(dy, below, sums.negative);
}

template <typename T>
void AddSlopeGradients(const T* in, const T* grad, int64_t size, float* grad_slopes) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  const OneFloat one;
  SlopeSums<Floats> sums{hn::Zero(d), hn::Zero(d)};
  SlopeSums<OneFloat> tail{hn::Zero(one), hn::Zero(one)};
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) AddSlopeGradientsAt(d, in + j, grad + j, sums);
  for (; j < size; ++j) AddSlopeGradientsAt(one, in + j, grad + j, tail);
  grad_slopes[0] += Sum(sums.positive) + hn::GetLane(tail.positive);
  grad_slopes[1] += Sum(sums.negative) + hn::GetLane(tail.negative);
}

template <Activation kActivation, typename T>
void ActivationRowsOf(const ActivationForward& args, int64_t begin, int64_t end) {
  const int64_t in_size = args.gated ? 2 * args.size : args.size;
  for (int64_t i = begin; i < end; ++i) {
    ActivateRow<kActivation>(args, static_cast<const T*>(args.in) + i * in_size,
                             static_cast<T*>(args.out) + i * args.size);
  }
}

template <Activation kActivation, typename T>
void ActivationBackwardRowsOf(const ActivationBackward& args, int64_t begin, int64_t end,
                              float* grad_slopes) {
  const int64_t in_size = args.gated ? 2 * args.size : args.size;
  for (int64_t i = begin; i < end; ++i) {
    const T* const in = static_cast<const T*>(args.in) + i * in_size;
    const T* const grad = static_cast<const T*>(args.grad_out) + i * args.size;
    ActivateRowBackward<kActivation>(args, in, grad, static_cast<T*>(args.grad_in) + i * in_size);
    if (grad_slopes != nullptr) AddSlopeGradients(in, grad, args.size, grad_slopes);
  }
}

// Calls body with the activation as a compile-time constant.
template <typename Body>
void ForActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kSilu:
      return body(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kGelu:
      return body(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kGeluTanh:
      return body(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kQuickGelu:
      return body(std::integral_constant<Activation, Activation::kQuickGelu>());
    case Activation::kRelu:
      return body(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kRelu2:
      return body(std::integral_constant<Activation, Activation::kRelu2>());
    case Activation::kXielu:
      return body(std::integral_constant<Activation, Activation::kXielu>());
    case Activation::kClampedSwiglu:
      return body(std::integral_constant<Activation, Activation::kClampedSwiglu>());
  }
}

void ActivationRows(const ActivationForward& args, int64_t begin, int64_t end) {
  ForActivation(args.activation, [&](auto activation) HWY_ATTR {
    constexpr Activation kActivation = decltype(activation)::value;
    if (args.type == Element::kFloat32) {
      ActivationRowsOf<kActivation, float>(args, begin, end);
    } else {
      ActivationRowsOf<kActivation, BFloat16>(args, begin, end);
    }
  });
}

void ActivationBackwardRows(const ActivationBackward& args, int64_t begin, int64_t end,
                            float* grad_slopes) {
  ForActivation(args.activation, [&](auto activation) HWY_ATTR {
    constexpr Activation kActivation = decltype(activation)::value;
    if (args.type == Element::kFloat32) {
      ActivationBackwardRowsOf<kActivation, float>(args, begin, end, grad_slopes);
    } else {
      ActivationBackwardRowsOf<kActivation, BFloat16>(args, begin, end, grad_slopes);
    }
  });
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(ActivationRows);
HWY_EXPORT(ActivationBackwardRows);

void ActivationRows(const ActivationForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ActivationRows)(args, begin, end);
}

void ActivationBackwardRows(const ActivationBackward& args, int64_t begin, int64_t end,
                            float* grad_slopes) {
  HWY_DYNAMIC_DISPATCH(ActivationBackwardRows)(args, begin, end, grad_slopes);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
