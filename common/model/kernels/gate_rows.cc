#include "common/model/kernels/gate_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/gate_rows.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include "common/model/kernels/activation-inl.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Rows follow one another, so that a range of them is a range of elements.
template <class Fn>
HWY_INLINE void ForGated(int64_t begin, int64_t end, const Fn& fn) {
  constexpr int64_t kStep = kLanes;
  int64_t j = begin;
  for (; j + kStep <= end; j += kStep) fn(Floats(), j);
  for (; j < end; ++j) fn(OneFloat(), j);
}

template <typename T>
void GateOf(const GateForward& args, int64_t begin, int64_t end) {
  const T* const x = static_cast<const T*>(args.x);
  const T* const gate = static_cast<const T*>(args.gate);
  T* const out = static_cast<T*>(args.out);
  ForGated(begin * args.size, end * args.size, [&](auto d, int64_t j) {
    StoreFloats(d, hn::Mul(LoadFloats(d, x + j), Sigmoid(d, LoadFloats(d, gate + j))), out + j);
  });
}

template <typename T>
void GateBackwardOf(const GateBackward& args, int64_t begin, int64_t end) {
  const T* const x = static_cast<const T*>(args.x);
  const T* const gate = static_cast<const T*>(args.gate);
  const T* const grad = static_cast<const T*>(args.grad_out);
  T* const grad_x = static_cast<T*>(args.grad_x);
  T* const grad_gate = static_cast<T*>(args.grad_gate);
  ForGated(begin * args.size, end * args.size, [&](auto d, int64_t j) {
    const auto s = Sigmoid(d, LoadFloats(d, gate + j));
    const auto g = LoadFloats(d, grad + j);
    const auto slope = hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s));
    StoreFloats(d, hn::Mul(g, s), grad_x + j);
    StoreFloats(d, hn::Mul(hn::Mul(g, LoadFloats(d, x + j)), slope), grad_gate + j);
  });
}

void RunGate(const GateForward& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return GateOf<float>(args, begin, end);
  GateOf<BFloat16>(args, begin, end);
}

void RunGateBackward(const GateBackward& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return GateBackwardOf<float>(args, begin, end);
  GateBackwardOf<BFloat16>(args, begin, end);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(RunGate);
HWY_EXPORT(RunGateBackward);

void GateRows(const GateForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RunGate)(args, begin, end);
}

void GateBackwardRows(const GateBackward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RunGateBackward)(args, begin, end);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
