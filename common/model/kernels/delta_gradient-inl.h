// The gradients of the recurrence of the gated delta rule (delta_rule.h), on each instruction set.
// hwy/foreach_target.h includes it once per target.
#if defined(TANDEM_COMMON_MODEL_KERNELS_DELTA_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_DELTA_GRADIENT_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_DELTA_GRADIENT_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_DELTA_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "common/model/kernels/delta-inl.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// The state after every so many tokens is kept, and those between are computed again from it: the
// states of one chunk, of the columns in turn, fit the second-level cache.
constexpr int64_t kChunk = 32;
// Columns that take turns on their way back: four registers of the widest. Fewer would add up more
// registers over their lanes.
constexpr int64_t kBackwardColumns = 64;

// What the forward pass of one value head has computed, where the gradients of its results are, and
// where its own go.
struct DeltaHeadGradient {
  int64_t num_rows = 0;
  const float* q = nullptr;  // [num_rows, key_dim], normed and scaled
  const float* k = nullptr;
  const float* beta = nullptr;  // [num_rows]
  const float* decay = nullptr;
  const float* e = nullptr;           // [num_rows, padded_value_dim]: v - S^T k
  const float* grad_out = nullptr;    // likewise
  const float* boundaries = nullptr;  // [chunks, key_dim, padded_value_dim]: the state before each
  float* dv = nullptr;                // like e
  // To which these are added: sums over columns, and of q and k over value heads.
  float* dq = nullptr;
  float* dk = nullptr;
  float* dbeta = nullptr;
  float* ddecay = nullptr;
};

// With S = a P and T = S + k u^T, where P is the state before a token, T that after it,
// u = beta e and e = v - S^T k, the gradients D of T and g of the token's T^T q are:
//
//   D += q g^T              dq = T g
//   du = D^T k              dk = D u + S de'
//   dv = beta du            de' = -dv, the gradient of S^T k
//   dbeta = du . e          D' = D + k de'^T, the gradient of S
//   da = sum(P D')          D = a D' goes to the token before
class DeltaStateGradient {
 public:
  // `chunk`: ChunkFloats(); `columns`: ColumnFloats().
  DeltaStateGradient(const DeltaShape& shape, const DeltaHeadGradient& head, float* chunk,
                     float* columns)
      : shape_(shape), head_(head), chunk_(chunk), columns_(columns) {}

  static int64_t ChunkFloats(const DeltaShape& shape) {
    return (kChunk + 1) * shape.key_dim * kBackwardColumns;
  }
  static int64_t ColumnFloats(const DeltaShape& shape) { return shape.key_dim * kBackwardColumns; }

  void Run() {
    constexpr int64_t kStep = kLanes;
    constexpr int kVecs = static_cast<int>(std::clamp<int64_t>(kBackwardColumns / kStep, 1, 4));
    const int64_t width = shape_.padded_value_dim();
    int64_t column = 0;
    for (; column + kVecs * kStep <= width; column += kVecs * kStep) Backward<kVecs>(column);
    for (; column < width; column += kStep) Backward<1>(column);
  }

 private:
  // Computes the states of a chunk again: chunk_ holds that before each token, and after the last.
  template <int kVecs>
  void Replay(int64_t column, int64_t first, int64_t count) {
    const Floats d;
    constexpr int64_t kStep = kLanes;
    constexpr int64_t kWidth = kVecs * kStep;
    const int64_t dim = shape_.key_dim;
    const int64_t padded = shape_.padded_value_dim();
    const float* const from = head_.boundaries + first / kChunk * dim * padded + column;
    for (int64_t r = 0; r < dim; ++r) std::copy_n(from + r * padded, kWidth, chunk_ + r * kWidth);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = first + i;
      const float* const before = chunk_ + i * dim * kWidth;
      float* const after = chunk_ + (i + 1) * dim * kWidth;
      const FloatVec decay = hn::Set(d, head_.decay[t]);
      const float* const e = head_.e + t * padded + column;
      FloatVec update[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        update[v] = hn::Mul(hn::Set(d, head_.beta[t]), hn::LoadU(d, e + v * kStep));
      }
      const float* const k = head_.k + t * dim;
      for (int64_t r = 0; r < dim; ++r) {
        const FloatVec key = hn::Set(d, k[r]);
        for (int v = 0; v < kVecs; ++v) {
          const int64_t at = r * kWidth + v * kStep;
          hn::StoreU(hn::MulAdd(key, update[v], hn::Mul(decay, hn::LoadU(d, before + at))), d,
                     after + at);
        }
      }
    }
  }

  // Passes the gradients of kVecs registers' columns of the state from the last token to the first.
  template <int kVecs>
  void Backward(int64_t column) {
    constexpr int64_t kWidth = kVecs * static_cast<int64_t>(kLanes);
    std::fill_n(columns_, shape_.key_dim * kWidth, 0.0f);
    for (int64_t first = (head_.num_rows - 1) / kChunk * kChunk; first >= 0; first -= kChunk) {
      const int64_t count = std::min(kChunk, head_.num_rows - first);
      Replay<kVecs>(column, first, count);
      for (int64_t i = count - 1; i >= 0; --i) {
        BackwardToken<kVecs>(column, first + i, chunk_ + i * shape_.key_dim * kWidth,
                             chunk_ + (i + 1) * shape_.key_dim * kWidth);
      }
    }
  }

  template <int kVecs>
  void BackwardToken(int64_t column, int64_t t, const float* before, const float* after) {
    const Floats d;
    constexpr int64_t kStep = kLanes;
    constexpr int64_t kWidth = kVecs * kStep;
    const int64_t dim = shape_.key_dim;
    const int64_t place = t * shape_.padded_value_dim() + column;
    const float* const q = head_.q + t * dim;
    const float* const k = head_.k + t * dim;
    FloatVec g[kVecs];
    FloatVec du[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      g[v] = hn::LoadU(d, head_.grad_out + place + v * kStep);
      du[v] = hn::Zero(d);
    }
    for (int64_t r = 0; r < dim; ++r) {
      const FloatVec query = hn::Set(d, q[r]);
      const FloatVec key = hn::Set(d, k[r]);
      FloatVec dq = hn::Zero(d);
      for (int v = 0; v < kVecs; ++v) {
        const int64_t at = r * kWidth + v * kStep;
        const FloatVec grad = hn::MulAdd(query, g[v], hn::LoadU(d, columns_ + at));
        hn::StoreU(grad, d, columns_ + at);
        du[v] = hn::MulAdd(key, grad, du[v]);
        dq = hn::MulAdd(hn::LoadU(d, after + at), g[v], dq);
      }
      head_.dq[t * dim + r] += Sum(dq);
    }
    const FloatVec decay = hn::Set(d, head_.decay[t]);
    const FloatVec beta = hn::Set(d, head_.beta[t]);
    FloatVec update[kVecs];    // u
    FloatVec of_error[kVecs];  // de'
    FloatVec decayed[kVecs];   // a de', which P multiplies in place of S
    FloatVec dbeta = hn::Zero(d);
    for (int v = 0; v < kVecs; ++v) {
      const FloatVec e = hn::LoadU(d, head_.e + place + v * kStep);
      update[v] = hn::Mul(beta, e);
      dbeta = hn::MulAdd(du[v], e, dbeta);
      const FloatVec dv = hn::Mul(beta, du[v]);
      hn::StoreU(dv, d, head_.dv + place + v * kStep);
      of_error[v] = hn::Neg(dv);
      decayed[v] = hn::Mul(decay, of_error[v]);
    }
    head_.dbeta[t] += Sum(dbeta);
    FloatVec ddecay = hn::Zero(d);
    for (int64_t r = 0; r < dim; ++r) {
      const FloatVec key = hn::Set(d, k[r]);
      FloatVec dk = hn::Zero(d);
      for (int v = 0; v < kVecs; ++v) {
        const int64_t at = r * kWidth + v * kStep;
        const FloatVec grad = hn::LoadU(d, columns_ + at);
        const FloatVec state = hn::LoadU(d, before + at);
        dk = hn::MulAdd(grad, update[v], dk);
        dk = hn::MulAdd(state, decayed[v], dk);
        const FloatVec of_decayed = hn::MulAdd(key, of_error[v], grad);
        ddecay = hn::MulAdd(state, of_decayed, ddecay);
        hn::StoreU(hn::Mul(decay, of_decayed), d, columns_ + at);
      }
      head_.dk[t * dim + r] += Sum(dk);
    }
    head_.ddecay[t] += Sum(ddecay);
  }

  const DeltaShape& shape_;
  const DeltaHeadGradient& head_;
  float* const chunk_;    // [kChunk + 1, key_dim, columns]: states
  float* const columns_;  // [key_dim, columns]: the gradient of the state
};

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
