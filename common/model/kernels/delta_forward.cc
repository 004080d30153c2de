#include "common/model/kernels/delta_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/delta_forward.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <cstring>

#include "common/model/kernels/delta-inl.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/kernels/scratch.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Tokens whose q, k and v lie in scratch at once.
constexpr int64_t kTokensAtOnce = 32;

// A key head of one sequence, and the value heads that it serves.
template <typename T>
class DeltaForwardTask {
 public:
  static int64_t ScratchFloats(const DeltaShape& shape) {
    const int64_t keys = 2 * kTokensAtOnce * shape.key_dim;
    const int64_t values = 2 * kTokensAtOnce * shape.padded_value_dim();
    const int64_t weights =
        shape.kernel_size * (2 * shape.key_dim + shape.group() * shape.value_dim);
    const int64_t states = shape.group() * shape.key_dim * shape.padded_value_dim();
    return keys + values + weights + 2 * kTokensAtOnce + states;
  }

  // `scratch`: ScratchFloats().
  DeltaForwardTask(const DeltaShape& shape, const DeltaSequence& sequence, int64_t key_head,
                   float* scratch)
      : shape_(shape), sequence_(sequence), rows_(shape, sequence), key_head_(key_head) {
    const auto take = [&scratch](int64_t floats) {
      float* const at = scratch;
      scratch += floats;
      return at;
    };
    own_states_ = take(shape.group() * StateFloats());
    v_ = take(kTokensAtOnce * shape.padded_value_dim());
    out_ = take(kTokensAtOnce * shape.padded_value_dim());
    q_ = take(kTokensAtOnce * shape.key_dim);
    k_ = take(kTokensAtOnce * shape.key_dim);
    q_weights_ = take(shape.kernel_size * shape.key_dim);
    k_weights_ = take(shape.kernel_size * shape.key_dim);
    v_weights_ = take(shape.kernel_size * shape.group() * shape.value_dim);
    beta_ = take(kTokensAtOnce);
    decay_ = take(kTokensAtOnce);
  }

  void Run(T* out) {
    Begin();
    for (int64_t first = 0; first < sequence_.num_rows; first += kTokensAtOnce) {
      const int64_t count = std::min(kTokensAtOnce, sequence_.num_rows - first);
      MakeKeys(first, count);
      for (int64_t i = 0; i < shape_.group(); ++i) AdvanceHead(i, first, count, out);
    }
    if (sequence_.tail != nullptr) KeepTail();
  }

 private:
  int64_t StateFloats() const { return shape_.key_dim * shape_.padded_value_dim(); }
  int64_t ValueHead(int64_t i) const { return key_head_ * shape_.group() + i; }
  float* State(int64_t i) const {
    return sequence_.state == nullptr ? own_states_ + i * StateFloats()
                                      : sequence_.state + ValueHead(i) * StateFloats();
  }
  const float* ValueWeights(int64_t i) const {
    return v_weights_ + i * shape_.kernel_size * shape_.value_dim;
  }

  void Begin() {
    rows_.CopyWeights(rows_.QueryColumn(key_head_), shape_.key_dim, q_weights_);
    rows_.CopyWeights(rows_.KeyColumn(key_head_), shape_.key_dim, k_weights_);
    for (int64_t i = 0; i < shape_.group(); ++i) {
      rows_.CopyWeights(rows_.ValueColumn(ValueHead(i)), shape_.value_dim,
                        v_weights_ + i * shape_.kernel_size * shape_.value_dim);
      if (sequence_.begins) std::fill_n(State(i), StateFloats(), 0.0f);
    }
  }

  void MakeKeys(int64_t first, int64_t count) {
    const int64_t dim = shape_.key_dim;
    for (int64_t t = 0; t < count; ++t) {
      float* const q = q_ + t * dim;
      float* const k = k_ + t * dim;
      rows_.ConvolveAndActivate(first + t, rows_.QueryColumn(key_head_), dim, q_weights_, q);
      rows_.ConvolveAndActivate(first + t, rows_.KeyColumn(key_head_), dim, k_weights_, k);
      NormalizeHead(QueryScale(shape_), dim, q);
      NormalizeHead(1.0f, dim, k);
    }
  }

  void AdvanceHead(int64_t i, int64_t first, int64_t count, T* out) {
    const int64_t head = ValueHead(i);
    const int64_t dim = shape_.value_dim;
    const int64_t padded = shape_.padded_value_dim();
    const DecayRate rate = DecayRate::Of<T>(shape_, head);
    for (int64_t t = 0; t < count; ++t) {
      float* const v = v_ + t * padded;
      rows_.ConvolveAndActivate(first + t, rows_.ValueColumn(head), dim, ValueWeights(i), v);
      std::fill(v + dim, v + padded, 0.0f);
      beta_[t] = rows_.Beta(first + t, head);
      decay_[t] = rate.DecayOf(ToFloat(*rows_.At(first + t, rows_.DecayColumn(head))));
    }
    Advance(shape_, {count, q_, k_, beta_, decay_, v_, out_}, State(i));
    const T* const weight = static_cast<const T*>(shape_.norm);
    for (int64_t t = 0; t < count; ++t) {
      const float* const row = out_ + t * padded;
      const T* const z = rows_.At(first + t, rows_.GateColumn(head));
      T* const to = out + (sequence_.first_row + first + t) * shape_.value_size() + head * dim;
      const Moments moments = MomentsOf(row, dim, /*centered=*/false, shape_.norm_eps);
      ForElements(dim, [&](auto d, int64_t j) {
        const auto normed = hn::Mul(hn::LoadU(d, row + j), hn::Set(d, moments.inverse));
        const auto scaled = hn::Mul(normed, LoadFloats(d, weight + j));
        StoreFloats(d, hn::Mul(scaled, Silu(d, LoadFloats(d, z + j))), to + j);
      });
    }
  }

  // Keeps the inputs of the last tokens, which may be older than these rows. Each token moves to an
  // earlier place, so that none is overwritten before it is read.
  void KeepTail() {
    KeepChannels(rows_.QueryColumn(key_head_), shape_.key_dim);
    KeepChannels(rows_.KeyColumn(key_head_), shape_.key_dim);
    KeepChannels(rows_.ValueColumn(ValueHead(0)), shape_.group() * shape_.value_dim);
  }
  void KeepChannels(int64_t channel, int64_t size) {
    const int64_t kept = shape_.kernel_size - 1;
    for (int64_t i = 0; i < kept; ++i) {
      T* const to = static_cast<T*>(sequence_.tail) + i * shape_.channels() + channel;
      const T* const from = rows_.Input(sequence_.num_rows - kept + i, channel);
      if (from == nullptr) {
        std::memset(to, 0, size * sizeof(T));
      } else {
        std::memmove(to, from, size * sizeof(T));
      }
    }
  }

  const DeltaShape& shape_;
  const DeltaSequence& sequence_;
  const DeltaRows<T> rows_;
  const int64_t key_head_;
  float* own_states_;
  float* v_;
  float* out_;
  float* q_;
  float* k_;
  float* q_weights_;
  float* k_weights_;
  float* v_weights_;
  float* beta_;
  float* decay_;
};

void RunDeltaForward(const DeltaShape& shape, const DeltaSequence& sequence, int64_t key_head,
                     void* out) {
  const auto run = [&]<typename T>(T* to) {
    float* const scratch = ThreadScratch(DeltaForwardTask<T>::ScratchFloats(shape));
    DeltaForwardTask<T>(shape, sequence, key_head, scratch).Run(to);
  };
  if (shape.type == Element::kFloat32) return run(static_cast<float*>(out));
  run(static_cast<BFloat16*>(out));
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(RunDeltaForward);

void DeltaForward(const DeltaShape& shape, absl::Span<const DeltaSequence> sequences, void* out,
                  int num_threads, const ParallelFor& parallel_for) {
  const auto tasks = static_cast<int64_t>(sequences.size()) * shape.num_key_heads;
  InTurns(tasks, num_threads, parallel_for, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const DeltaSequence& sequence = sequences[i / shape.num_key_heads];
      if (sequence.num_rows == 0) continue;
      HWY_DYNAMIC_DISPATCH(RunDeltaForward)(shape, sequence, i % shape.num_key_heads, out);
    }
  });
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
