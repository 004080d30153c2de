// Activations and their slopes on vectors of float32, on each instruction set.
// hwy/foreach_target.h includes it once per target.
#if defined(TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_INL_H_
#endif

#include "common/model/kernels/activation_rows.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// 1 / (1 + exp(-x)), without overflow: the exponent is never positive.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto denominator = hn::Add(one, e);
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), denominator);
}

// The normal distribution at x.
template <class D>
struct NormalAt {
  hn::Vec<D> cumulative;
  hn::Vec<D> scaled_density;  // x times the density
};

// The tail below -|x| is exp(-x^2 / 2) t P(2 t - 1) with t = 1 / (1 + 0.3 |x|): a smooth function
// of t in (0, 1], which the polynomial, fitted for the least relative error (4e-9), follows up to
// |x| = 14.5, where the tail is no longer a float32.
template <class D>
HWY_INLINE NormalAt<D> Normal(D d, hn::Vec<D> x) {
  constexpr float kCoefficients[] = {-4.028021348810745e-05f,  7.667969734975741e-05f,
                                     2.8060649431444097e-04f,  -5.696905926730078e-04f,
                                     -2.4234941665586527e-03f, 1.8160317677044329e-03f,
                                     2.7760336694753116e-02f,  8.654971009156671e-02f,
                                     1.6457948541836276e-01f,  2.2197061307886704e-01f};
  const auto one = hn::Set(d, 1.0f);
  const auto exponential = hn::Exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  const auto t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.3f), one));
  const auto u = hn::Sub(hn::Add(t, t), one);
  auto sum = hn::Set(d, kCoefficients[0]);
  for (int i = 1; i < 10; ++i) sum = hn::MulAdd(sum, u, hn::Set(d, kCoefficients[i]));
  const auto tail = hn::Mul(hn::Mul(exponential, t), sum);
  const auto cumulative = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  constexpr float kInverseRootOfTwoPi = 0.3989422804014327f;
  return {cumulative, hn::Mul(x, hn::Mul(exponential, hn::Set(d, kInverseRootOfTwoPi)))};
}

// sqrt(8 / pi) (x + 0.044715 x^3): the sigmoid of it is (1 + tanh(half of it)) / 2.
template <class D>
HWY_INLINE hn::Vec<D> GeluTanhArgument(D d, hn::Vec<D> x) {
  const auto square = hn::Mul(x, x);
  const auto inner = hn::MulAdd(square, hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(x, hn::Set(d, 1.5957691216057308f)), inner);
}

template <class D>
HWY_INLINE hn::Vec<D> Relu(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays NaN
}

// exp(min(x, eps)) - 1 - x, which xIELU's negative slope multiplies.
template <class D>
HWY_INLINE hn::Vec<D> XieluBelowZero(D d, hn::Vec<D> x) {
  return hn::Sub(hn::Expm1(d, hn::Min(x, hn::Set(d, kXieluEps))), x);
}

template <Activation kActivation, class D>
HWY_INLINE hn::Vec<D> Activated(D d, hn::Vec<D> x, const XieluSlopes& xielu) {
  if constexpr (kActivation == Activation::kSilu) {
    return hn::Mul(x, Sigmoid(d, x));
  } else if constexpr (kActivation == Activation::kGelu) {
    return hn::Mul(x, Normal(d, x).cumulative);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return hn::Mul(x, Sigmoid(d, GeluTanhArgument(d, x)));
  } else if constexpr (kActivation == Activation::kQuickGelu) {
    return hn::Mul(x, Sigmoid(d, hn::Mul(x, hn::Set(d, kQuickGeluSlope))));
  } else if constexpr (kActivation == Activation::kRelu) {
    return Relu(d, x);
  } else if constexpr (kActivation == Activation::kRelu2) {
    const auto positive = Relu(d, x);
    return hn::Mul(positive, positive);
  } else {
    static_assert(kActivation == Activation::kXielu);
    const auto above = hn::Mul(hn::Mul(hn::Set(d, xielu.positive), x), x);
    const auto below = hn::Mul(XieluBelowZero(d, x), hn::Set(d, xielu.negative));
    const auto bent = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
    return hn::Add(bent, hn::Mul(x, hn::Set(d, kXieluBeta)));
  }
}

// An activation's value and slope.
template <class D>
struct ValueAndSlope {
  hn::Vec<D> value;
  hn::Vec<D> slope;
};

template <Activation kActivation, class D>
HWY_INLINE ValueAndSlope<D> ActivatedWithSlope(D d, hn::Vec<D> x, const XieluSlopes& xielu) {
  const auto one = hn::Set(d, 1.0f);
  const auto zero = hn::Zero(d);
  if constexpr (kActivation == Activation::kSilu) {
    const auto s = Sigmoid(d, x);
    const auto silu = hn::Mul(x, s);
    // silu' = s + silu (1 - s)
    return {silu, hn::MulAdd(silu, hn::Sub(one, s), s)};
  } else if constexpr (kActivation == Activation::kGelu) {
    const auto normal = Normal(d, x);
    return {hn::Mul(x, normal.cumulative), hn::Add(normal.cumulative, normal.scaled_density)};
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    const auto s = Sigmoid(d, GeluTanhArgument(d, x));
    const auto value = hn::Mul(x, s);
    // s + x s (1 - s) times the slope of the sigmoid's argument
    const auto bend = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3.0f * 0.044715f), one);
    const auto argument_slope = hn::Mul(bend, hn::Set(d, 1.5957691216057308f));
    // Far out, 1 - s is 0 and the argument's slope is large but finite.
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, s)), argument_slope, s)};
  } else if constexpr (kActivation == Activation::kQuickGelu) {
    const auto factor = hn::Set(d, kQuickGeluSlope);
    const auto s = Sigmoid(d, hn::Mul(x, factor));
    const auto value = hn::Mul(x, s);
    // s + factor x s (1 - s)
    return {value, hn::MulAdd(hn::Mul(value, factor), hn::Sub(one, s), s)};
  } else if constexpr (kActivation == Activation::kRelu) {
    return {Relu(d, x), hn::IfThenElse(hn::Gt(x, zero), one, zero)};
  } else if constexpr (kActivation == Activation::kRelu2) {
    const auto positive = Relu(d, x);
    return {hn::Mul(positive, positive), hn::Add(positive, positive)};
  } else {
    static_assert(kActivation == Activation::kXielu);
    const auto beta = hn::Set(d, kXieluBeta);
    const auto above = hn::Mul(hn::Set(d, 2.0f * xielu.positive), x);
    // exp(x) - 1 below eps; above it the exponential is constant.
    const auto eps = hn::Set(d, kXieluEps);
    const auto exponential = hn::IfThenElse(hn::Lt(x, eps), hn::Exp(d, hn::Min(x, eps)), zero);
    const auto below = hn::Mul(hn::Sub(exponential, one), hn::Set(d, xielu.negative));
    const auto slope = hn::Add(hn::IfThenElse(hn::Gt(x, zero), above, below), beta);
    return {Activated<kActivation>(d, x, xielu), slope};
  }
}

// The clamped SwiGLU and its slopes, 0 beyond the limits.
template <class D>
struct SwigluValue {
  hn::Vec<D> value;
  hn::Vec<D> gate_slope;
  hn::Vec<D> up_slope;
};

template <class D>
HWY_INLINE SwigluValue<D> ClampedSwiglu(D d, hn::Vec<D> gate, hn::Vec<D> up) {
  const auto zero = hn::Zero(d);
  const auto one = hn::Set(d, 1.0f);
  const auto most = hn::Set(d, kSwigluLimit);
  const auto least = hn::Set(d, -kSwigluLimit);
  const auto slope = hn::Set(d, kSwigluSlope);
  // Comparisons with NaN are false, so that NaN stays NaN.
  const auto gate_is_over = hn::Gt(gate, most);
  const auto up_is_over = hn::Gt(up, most);
  const auto up_is_under = hn::Lt(up, least);
  const auto x = hn::IfThenElse(gate_is_over, most, gate);
  const auto y =
      hn::Add(hn::IfThenElse(up_is_over, most, hn::IfThenElse(up_is_under, least, up)), one);
  const auto s = Sigmoid(d, hn::Mul(x, slope));
  const auto gated = hn::Mul(x, s);
  // (x s)' = s + slope x s (1 - s)
  const auto bend = hn::MulAdd(hn::Mul(gated, slope), hn::Sub(one, s), s);
  return {hn::Mul(gated, y), hn::IfThenElse(gate_is_over, zero, hn::Mul(y, bend)),
          hn::IfThenElse(up_is_over, zero, hn::IfThenElse(up_is_under, zero, gated))};
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
