// What the forward and the backward pass of the gated delta rule (delta_rule.h) share, on each
// instruction set. hwy/foreach_target.h includes it once per target.
#if defined(TANDEM_COMMON_MODEL_KERNELS_DELTA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_DELTA_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_DELTA_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_DELTA_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/model/kernels/activation-inl.h"
#include "common/model/kernels/delta_rule.h"
#include "common/model/kernels/norm_row-inl.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Calls fn(d, j) for whole registers, then for single elements of [0, size). Each element's
// arithmetic is the same in both.
template <class Fn>
HWY_INLINE void ForElements(int64_t size, const Fn& fn) {
  constexpr int64_t kStep = kLanes;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) fn(Floats(), j);
  for (; j < size; ++j) fn(OneFloat(), j);
}

template <class D>
HWY_INLINE hn::Vec<D> Silu(D d, hn::Vec<D> x) {
  return Activated<Activation::kSilu>(d, x, XieluSlopes());
}

// Where one sequence's inputs of a head are. T: the type of the tensors.
template <typename T>
class DeltaRows {
 public:
  DeltaRows(const DeltaShape& shape, const DeltaSequence& sequence)
      : shape_(shape), sequence_(sequence) {}

  const DeltaShape& shape() const { return shape_; }
  int64_t num_rows() const { return sequence_.num_rows; }
  // First columns of a head.
  int64_t QueryColumn(int64_t key_head) const { return key_head * shape_.key_dim; }
  int64_t KeyColumn(int64_t key_head) const {
    return shape_.key_size() + key_head * shape_.key_dim;
  }
  int64_t ValueColumn(int64_t value_head) const {
    return 2 * shape_.key_size() + value_head * shape_.value_dim;
  }
  int64_t GateColumn(int64_t value_head) const {
    return shape_.channels() + value_head * shape_.value_dim;
  }
  int64_t BetaColumn(int64_t value_head) const {
    return shape_.channels() + shape_.value_size() + value_head;
  }
  int64_t DecayColumn(int64_t value_head) const {
    return BetaColumn(value_head) + shape_.num_value_heads;
  }

  // Row t of the sequence's rows.
  const T* At(int64_t t, int64_t column) const {
    return static_cast<const T*>(shape_.projected) + (sequence_.first_row + t) * shape_.row_stride +
           column;
  }
  // The convolution's input of row t, which may be one of the kernel_size - 1 before the first. Null:
  // there was no such token.
  const T* Input(int64_t t, int64_t channel) const {
    if (t >= 0) return At(t, channel);
    if (sequence_.begins) return nullptr;
    return static_cast<const T*>(sequence_.tail) +
           (shape_.kernel_size - 1 + t) * shape_.channels() + channel;
  }

  // The weight of a channel for the inputs of `back` tokens before.
  float Weight(int64_t channel, int64_t back) const {
    return ToFloat(
        static_cast<const T*>(shape_.convolution)[(channel + 1) * shape_.kernel_size - 1 - back]);
  }
  // Writes the weights of `size` channels, those of each token together: [kernel_size, size], this
  // token's first.
  void CopyWeights(int64_t channel, int64_t size, float* to) const {
    for (int64_t back = 0; back < shape_.kernel_size; ++back) {
      for (int64_t j = 0; j < size; ++j) to[back * size + j] = Weight(channel + j, back);
    }
  }

  // sum over tokens of weight times input, for `size` channels of row t. weights: CopyWeights().
  void Convolve(int64_t t, int64_t channel, int64_t size, const float* weights, float* out) const {
    const T* const own = At(t, channel);
    ForElements(size, [&](auto d, int64_t j) {
      hn::StoreU(hn::Mul(LoadFloats(d, own + j), hn::LoadU(d, weights + j)), d, out + j);
    });
    for (int64_t back = 1; back < shape_.kernel_size; ++back) {
      const T* const x = Input(t - back, channel);
      const float* const w = weights + back * size;
      ForElements(size, [&](auto d, int64_t j) {
        // Zeros before the first token, as a tail has them: the same bits.
        const auto input = x == nullptr ? hn::Zero(d) : LoadFloats(d, x + j);
        hn::StoreU(hn::MulAdd(input, hn::LoadU(d, w + j), hn::LoadU(d, out + j)), d, out + j);
      });
    }
  }

  // silu(Convolve()).
  void ConvolveAndActivate(int64_t t, int64_t channel, int64_t size, const float* weights,
                           float* out) const {
    Convolve(t, channel, size, weights, out);
    ForElements(size,
                [&](auto d, int64_t j) { hn::StoreU(Silu(d, hn::LoadU(d, out + j)), d, out + j); });
  }

  float Beta(int64_t t, int64_t value_head) const {
    return 1.0f / (1.0f + std::exp(-ToFloat(*At(t, BetaColumn(value_head)))));
  }

 private:
  const DeltaShape& shape_;
  const DeltaSequence& sequence_;
};

// A head's rate of decay.
struct DecayRate {
  float rate = 0.0f;  // exp(a_log)
  float bias = 0.0f;

  template <typename T>
  static DecayRate Of(const DeltaShape& shape, int64_t value_head) {
    return {std::exp(ToFloat(static_cast<const T*>(shape.a_log)[value_head])),
            ToFloat(static_cast<const T*>(shape.dt_bias)[value_head])};
  }
  // log(1 + exp(a + bias)), which is its argument where that is large.
  float SoftplusOf(float a) const {
    constexpr float kLinearFrom = 20.0f;
    const float x = a + bias;
    return x > kLinearFrom ? x : std::log1p(std::exp(x));
  }
  // What S is multiplied by.
  float DecayOf(float a) const { return std::exp(-rate * SoftplusOf(a)); }
};

// x divided by its norm and multiplied by `scale`, in place. Returns the inverse of the norm.
inline float NormalizeHead(float scale, int64_t size, float* x) {
  const float inverse = 1.0f / std::sqrt(SumOfSquares(x, size) + kDeltaNormEps);
  ForElements(size, [&](auto d, int64_t j) {
    const auto normed = hn::Mul(hn::LoadU(d, x + j), hn::Set(d, inverse));
    hn::StoreU(hn::Mul(normed, hn::Set(d, scale)), d, x + j);
  });
  return inverse;
}

inline float QueryScale(const DeltaShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
}

// Some rows of a value head, as the recurrence reads and writes them.
struct DeltaTokens {
  int64_t count = 0;
  const float* q = nullptr;      // [count, key_dim]
  const float* k = nullptr;      // likewise
  const float* beta = nullptr;   // [count]
  const float* decay = nullptr;  // [count]
  // [count, padded_value_dim]: v, replaced by v - S^T k with the decayed S: what beta scales.
  float* v = nullptr;
  float* out = nullptr;  // [count, padded_value_dim]: S^T q
};

// Passes the tokens through kVecs registers' columns of the state, from `column` on.
template <int kVecs>
void AdvanceColumns(const DeltaShape& shape, const DeltaTokens& tokens, int64_t column,
                    float* state) {
  const Floats d;
  constexpr int64_t kStep = kLanes;
  const int64_t dim = shape.key_dim;
  const int64_t stride = shape.padded_value_dim();
  float* const first = state + column;
  for (int64_t t = 0; t < tokens.count; ++t) {
    const float* const k = tokens.k + t * dim;
    const float* const q = tokens.q + t * dim;
    FloatVec sums[kVecs];
    for (int i = 0; i < kVecs; ++i) sums[i] = hn::Zero(d);
    for (int64_t r = 0; r < dim; ++r) {
      const FloatVec key = hn::Set(d, k[r]);
      const float* const row = first + r * stride;
      for (int i = 0; i < kVecs; ++i) {
        sums[i] = hn::MulAdd(key, hn::LoadU(d, row + i * kStep), sums[i]);
      }
    }
    const FloatVec decay = hn::Set(d, tokens.decay[t]);
    const FloatVec beta = hn::Set(d, tokens.beta[t]);
    float* const v = tokens.v + t * stride + column;
    FloatVec update[kVecs];
    for (int i = 0; i < kVecs; ++i) {
      const FloatVec error = hn::NegMulAdd(decay, sums[i], hn::LoadU(d, v + i * kStep));
      hn::StoreU(error, d, v + i * kStep);
      update[i] = hn::Mul(beta, error);
      sums[i] = hn::Zero(d);
    }
    for (int64_t r = 0; r < dim; ++r) {
      const FloatVec key = hn::Set(d, k[r]);
      const FloatVec query = hn::Set(d, q[r]);
      float* const row = first + r * stride;
      for (int i = 0; i < kVecs; ++i) {
        const FloatVec s =
            hn::MulAdd(key, update[i], hn::Mul(decay, hn::LoadU(d, row + i * kStep)));
        hn::StoreU(s, d, row + i * kStep);
        sums[i] = hn::MulAdd(query, s, sums[i]);
      }
    }
    float* const out = tokens.out + t * stride + column;
    for (int i = 0; i < kVecs; ++i) hn::StoreU(sums[i], d, out + i * kStep);
  }
}

// Passes the tokens through the state, [key_dim, padded_value_dim]. Columns do not depend on each
// other: those of four registers take turns, and of a head with 128 keys they are 32 KiB on AVX-512.
inline void Advance(const DeltaShape& shape, const DeltaTokens& tokens, float* state) {
  constexpr int64_t kStep = kLanes;
  const int64_t width = shape.padded_value_dim();
  int64_t column = 0;
  for (; column + 4 * kStep <= width; column += 4 * kStep) {
    AdvanceColumns<4>(shape, tokens, column, state);
  }
  for (; column < width; column += kStep) AdvanceColumns<1>(shape, tokens, column, state);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
