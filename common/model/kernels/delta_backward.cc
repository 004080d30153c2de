#include "common/model/kernels/delta_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/delta_backward.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <utility>

#include "common/model/kernels/delta-inl.h"
#include "common/model/kernels/delta_gradient-inl.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/kernels/scratch.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Floats of the parts of a task's working memory.
struct DeltaBackwardSizes {
  DeltaBackwardSizes(const DeltaShape& shape, int64_t num_rows)
      : keys(num_rows * shape.key_dim),
        values(num_rows * shape.padded_value_dim()),
        rows(num_rows),
        state(shape.key_dim * shape.padded_value_dim()),
        boundaries((num_rows + kChunk - 1) / kChunk * state),
        chunk(DeltaStateGradient::ChunkFloats(shape)),
        columns(DeltaStateGradient::ColumnFloats(shape)),
        weights(shape.kernel_size * std::max(shape.key_dim, shape.value_dim)),
        head(std::max(shape.key_dim, shape.value_dim)) {}

  int64_t total() const {
    return 4 * keys + 3 * values + 4 * rows + state + boundaries + chunk + columns + weights +
           2 * head;
  }

  int64_t keys, values, rows, state, boundaries, chunk, columns, weights, head;
};

// The gradients of a key head of one sequence, and of the value heads that it serves.
template <typename T>
class DeltaBackwardTask {
 public:
  // `scratch`: DeltaBackwardFloats().
  DeltaBackwardTask(const DeltaShape& shape, const DeltaSequence& sequence, int64_t index,
                    int64_t key_head, const DeltaGradients& gradients, float* scratch)
      : shape_(shape),
        sequence_(sequence),
        rows_(shape, sequence),
        index_(index),
        key_head_(key_head),
        gradients_(gradients),
        n_(sequence.num_rows) {
    const DeltaBackwardSizes sizes(shape, n_);
    const auto take = [&scratch](int64_t floats) {
      float* const at = scratch;
      scratch += floats;
      return at;
    };
    state_ = take(sizes.state);
    boundaries_ = take(sizes.boundaries);
    chunk_ = take(sizes.chunk);
    columns_ = take(sizes.columns);
    e_ = take(sizes.values);
    out_ = take(sizes.values);
    dv_ = take(sizes.values);
    q_ = take(sizes.keys);
    k_ = take(sizes.keys);
    dq_ = take(sizes.keys);
    dk_ = take(sizes.keys);
    beta_ = take(sizes.rows);
    decay_ = take(sizes.rows);
    dbeta_ = take(sizes.rows);
    ddecay_ = take(sizes.rows);
    weights_ = take(sizes.weights);
    before_ = take(sizes.head);
    slope_ = take(sizes.head);
  }

  void Run() {
    MakeKeys(rows_.QueryColumn(key_head_), QueryScale(shape_), q_);
    MakeKeys(rows_.KeyColumn(key_head_), 1.0f, k_);
    std::fill_n(dq_, n_ * shape_.key_dim, 0.0f);
    std::fill_n(dk_, n_ * shape_.key_dim, 0.0f);
    for (int64_t i = 0; i < shape_.group(); ++i) RunHead(key_head_ * shape_.group() + i);
    UndoKeys(rows_.QueryColumn(key_head_), QueryScale(shape_), dq_);
    UndoKeys(rows_.KeyColumn(key_head_), 1.0f, dk_);
  }

 private:
  T* GradRow(int64_t t) const {
    const int64_t width = shape_.channels() + shape_.value_size() + 2 * shape_.num_value_heads;
    return static_cast<T*>(gradients_.grad_projected) + (sequence_.first_row + t) * width;
  }
  // Of a head, in gradients of each sequence.
  int64_t HeadPlace(int64_t head) const { return index_ * shape_.num_value_heads + head; }

  void MakeKeys(int64_t channel, float scale, float* keys) {
    const int64_t dim = shape_.key_dim;
    rows_.CopyWeights(channel, dim, weights_);
    for (int64_t t = 0; t < n_; ++t) {
      rows_.ConvolveAndActivate(t, channel, dim, weights_, keys + t * dim);
      NormalizeHead(scale, dim, keys + t * dim);
    }
  }

  // From the gradients of normed and scaled heads to those of the projection.
  void UndoKeys(int64_t channel, float scale, float* grad) {
    const int64_t dim = shape_.key_dim;
    rows_.CopyWeights(channel, dim, weights_);
    for (int64_t t = 0; t < n_; ++t) {
      rows_.ConvolveAndActivate(t, channel, dim, weights_, before_);
      const float inverse = NormalizeHead(1.0f, dim, before_);
      float* const g = grad + t * dim;
      // d(x / |x|) = (g - y (y . g)) / |x|
      float along = 0.0f;
      for (int64_t j = 0; j < dim; ++j) along += before_[j] * g[j];
      ForElements(dim, [&](auto d, int64_t j) {
        const auto across =
            hn::NegMulAdd(hn::LoadU(d, before_ + j), hn::Set(d, along), hn::LoadU(d, g + j));
        hn::StoreU(hn::Mul(across, hn::Set(d, inverse * scale)), d, g + j);
      });
    }
    UndoConvolution(channel, dim, dim, grad);
  }

  // From the gradients of activated channels, rows of `stride`, to those of the projection and of the
  // weights, which CopyWeights() has copied.
  void UndoConvolution(int64_t channel, int64_t size, int64_t stride, float* grad) {
    for (int64_t t = 0; t < n_; ++t) {
      rows_.Convolve(t, channel, size, weights_, before_);
      float* const g = grad + t * stride;
      ForElements(size, [&](auto d, int64_t j) {
        const auto silu =
            ActivatedWithSlope<Activation::kSilu>(d, hn::LoadU(d, before_ + j), XieluSlopes());
        hn::StoreU(hn::Mul(hn::LoadU(d, g + j), silu.slope), d, g + j);
      });
    }
    for (int64_t s = 0; s < n_; ++s) {
      const int64_t later = std::min(shape_.kernel_size, n_ - s);
      T* const to = GradRow(s) + channel;
      ForElements(size, [&](auto d, int64_t j) {
        auto sum = hn::Zero(d);
        for (int64_t back = 0; back < later; ++back) {
          sum = hn::MulAdd(hn::LoadU(d, weights_ + back * size + j),
                           hn::LoadU(d, grad + (s + back) * stride + j), sum);
        }
        StoreFloats(d, sum, to + j);
      });
    }
    float* const weights =
        gradients_.grad_convolution + (index_ * shape_.channels() + channel) * shape_.kernel_size;
    for (int64_t back = 0; back < shape_.kernel_size; ++back) {
      std::fill_n(before_, size, 0.0f);
      for (int64_t t = back; t < n_; ++t) {
        const T* const x = rows_.At(t - back, channel);
        const float* const g = grad + t * stride;
        ForElements(size, [&](auto d, int64_t j) {
          hn::StoreU(
              hn::MulAdd(LoadFloats(d, x + j), hn::LoadU(d, g + j), hn::LoadU(d, before_ + j)), d,
              before_ + j);
        });
      }
      for (int64_t j = 0; j < size; ++j) {
        weights[(j + 1) * shape_.kernel_size - 1 - back] = before_[j];
      }
    }
  }

  void RunHead(int64_t head) {
    const int64_t padded = shape_.padded_value_dim();
    Forward(head);
    UndoNorm(head);
    std::fill_n(dbeta_, n_, 0.0f);
    std::fill_n(ddecay_, n_, 0.0f);
    const DeltaHeadGradient of_head{.num_rows = n_,
                                    .q = q_,
                                    .k = k_,
                                    .beta = beta_,
                                    .decay = decay_,
                                    .e = e_,
                                    .grad_out = out_,
                                    .boundaries = boundaries_,
                                    .dv = dv_,
                                    .dq = dq_,
                                    .dk = dk_,
                                    .dbeta = dbeta_,
                                    .ddecay = ddecay_};
    DeltaStateGradient(shape_, of_head, chunk_, columns_).Run();
    rows_.CopyWeights(rows_.ValueColumn(head), shape_.value_dim, weights_);
    UndoConvolution(rows_.ValueColumn(head), shape_.value_dim, padded, dv_);
    UndoGates(head);
  }

  DeltaTokens TokensFrom(int64_t t) const {
    const int64_t dim = shape_.key_dim;
    const int64_t padded = shape_.padded_value_dim();
    return {std::min(kChunk, n_ - t), q_ + t * dim,     k_ + t * dim, beta_ + t, decay_ + t,
            e_ + t * padded,          out_ + t * padded};
  }

  // Computes e, the results before the norm, and the state before each chunk.
  void Forward(int64_t head) {
    const int64_t padded = shape_.padded_value_dim();
    const int64_t state_floats = shape_.key_dim * padded;
    const DecayRate rate = DecayRate::Of<T>(shape_, head);
    rows_.CopyWeights(rows_.ValueColumn(head), shape_.value_dim, weights_);
    for (int64_t t = 0; t < n_; ++t) {
      float* const v = e_ + t * padded;
      rows_.ConvolveAndActivate(t, rows_.ValueColumn(head), shape_.value_dim, weights_, v);
      std::fill(v + shape_.value_dim, v + padded, 0.0f);
      beta_[t] = rows_.Beta(t, head);
      decay_[t] = rate.DecayOf(ToFloat(*rows_.At(t, rows_.DecayColumn(head))));
    }
    std::fill_n(state_, state_floats, 0.0f);
    for (int64_t t = 0; t < n_; t += kChunk) {
      std::copy_n(state_, state_floats, boundaries_ + t / kChunk * state_floats);
      Advance(shape_, TokensFrom(t), state_);
    }
  }

  // Replaces out_ by its gradient; writes those of z and of the norm's weight.
  void UndoNorm(int64_t head) {
    const int64_t dim = shape_.value_dim;
    const int64_t padded = shape_.padded_value_dim();
    const T* const weight = static_cast<const T*>(shape_.norm);
    float* const grad_weight = gradients_.grad_norm + HeadPlace(head) * dim;
    std::fill_n(grad_weight, dim, 0.0f);
    for (int64_t t = 0; t < n_; ++t) {
      float* const out = out_ + t * padded;
      const T* const z = rows_.At(t, rows_.GateColumn(head));
      const T* const g = static_cast<const T*>(gradients_.grad_out) +
                         (sequence_.first_row + t) * shape_.value_size() + head * dim;
      T* const grad_z = GradRow(t) + rows_.GateColumn(head);
      const Moments moments = MomentsOf(out, dim, /*centered=*/false, shape_.norm_eps);
      // slope_: the gradients of the normed elements n, whose products with n are before_.
      ForElements(dim, [&](auto d, int64_t j) {
        const auto normed = hn::Mul(hn::LoadU(d, out + j), hn::Set(d, moments.inverse));
        const auto w = LoadFloats(d, weight + j);
        const auto silu =
            ActivatedWithSlope<Activation::kSilu>(d, LoadFloats(d, z + j), XieluSlopes());
        const auto grad = LoadFloats(d, g + j);
        StoreFloats(d, hn::Mul(hn::Mul(grad, hn::Mul(w, normed)), silu.slope), grad_z + j);
        const auto of_scaled = hn::Mul(grad, silu.value);
        hn::StoreU(hn::MulAdd(of_scaled, normed, hn::LoadU(d, grad_weight + j)), d,
                   grad_weight + j);
        const auto of_normed = hn::Mul(of_scaled, w);
        hn::StoreU(of_normed, d, slope_ + j);
        hn::StoreU(hn::Mul(of_normed, normed), d, before_ + j);
      });
      const float mean = SumOfElements(before_, dim) / static_cast<float>(dim);
      ForElements(dim, [&](auto d, int64_t j) {
        const auto normed = hn::Mul(hn::LoadU(d, out + j), hn::Set(d, moments.inverse));
        const auto grad = hn::NegMulAdd(normed, hn::Set(d, mean), hn::LoadU(d, slope_ + j));
        hn::StoreU(hn::Mul(grad, hn::Set(d, moments.inverse)), d, out + j);
      });
      std::fill(out + dim, out + padded, 0.0f);
    }
  }

  // a = exp(-rate softplus(x + bias)): da/dx = -a rate sigmoid(x + bias), da/da_log = a log a.
  void UndoGates(int64_t head) {
    const DecayRate rate = DecayRate::Of<T>(shape_, head);
    float of_log = 0.0f;
    float of_bias = 0.0f;
    for (int64_t t = 0; t < n_; ++t) {
      const float x = ToFloat(*rows_.At(t, rows_.DecayColumn(head)));
      const float of_exponent = ddecay_[t] * decay_[t];
      of_log -= of_exponent * rate.rate * rate.SoftplusOf(x);
      const float of_x = -of_exponent * rate.rate / (1.0f + std::exp(-(x + rate.bias)));
      of_bias += of_x;
      T* const row = GradRow(t);
      FromFloat(of_x, row[rows_.DecayColumn(head)]);
      FromFloat(dbeta_[t] * beta_[t] * (1.0f - beta_[t]), row[rows_.BetaColumn(head)]);
    }
    gradients_.grad_a_log[HeadPlace(head)] = of_log;
    gradients_.grad_dt_bias[HeadPlace(head)] = of_bias;
  }

  const DeltaShape& shape_;
  const DeltaSequence& sequence_;
  const DeltaRows<T> rows_;
  const int64_t index_;  // of the sequence
  const int64_t key_head_;
  const DeltaGradients& gradients_;
  const int64_t n_;
  float* state_;       // [key_dim, padded_value_dim]
  float* boundaries_;  // the same before each chunk
  float* chunk_;       // [kChunk + 1, key_dim, columns]
  float* columns_;     // [key_dim, columns]: the gradient of the state
  float* e_;           // [n, padded_value_dim]: v, then v - S^T k
  float* out_;         // likewise: the results before the norm, then their gradients
  float* dv_;          // likewise
  float* q_;           // [n, key_dim], normed and scaled
  float* k_;
  float* dq_;  // sums over value heads
  float* dk_;
  float* beta_;  // [n]
  float* decay_;
  float* dbeta_;
  float* ddecay_;
  float* weights_;  // CopyWeights()
  float* before_;   // a row
  float* slope_;    // a row
};

void RunDeltaBackward(const DeltaShape& shape, const DeltaSequence& sequence, int64_t index,
                      int64_t key_head, const DeltaGradients& gradients, float* scratch) {
  if (shape.type == Element::kFloat32) {
    return DeltaBackwardTask<float>(shape, sequence, index, key_head, gradients, scratch).Run();
  }
  DeltaBackwardTask<BFloat16>(shape, sequence, index, key_head, gradients, scratch).Run();
}

int64_t BackwardFloats(const DeltaShape& shape, int64_t num_rows) {
  return DeltaBackwardSizes(shape, num_rows).total();
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(RunDeltaBackward);
HWY_EXPORT(BackwardFloats);

int64_t DeltaBackwardFloats(const DeltaShape& shape, int64_t num_rows) {
  return HWY_DYNAMIC_DISPATCH(BackwardFloats)(shape, num_rows);
}

void DeltaBackward(const DeltaShape& shape, absl::Span<const DeltaSequence> sequences,
                   const DeltaGradients& gradients, int num_threads,
                   const ParallelFor& parallel_for) {
  int64_t longest = 0;
  for (const DeltaSequence& sequence : sequences) longest = std::max(longest, sequence.num_rows);
  if (longest == 0) return;
  const auto floats = DeltaBackwardFloats(shape, longest);
  const auto tasks = static_cast<int64_t>(sequences.size()) * shape.num_key_heads;
  // Working memory of each thread's own.
  const auto make_body = [&] {
    Buffer buffer = AllocateBytes(floats * static_cast<int64_t>(sizeof(float)));
    return [&, scratch = std::move(buffer)](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = i / shape.num_key_heads;
        if (sequences[index].num_rows == 0) continue;
        HWY_DYNAMIC_DISPATCH(RunDeltaBackward)
        (shape, sequences[index], index, i % shape.num_key_heads, gradients,
         static_cast<float*>(scratch.get()));
      }
    };
  };
  InTurnsWith(tasks, num_threads, kTurns, parallel_for, make_body);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
