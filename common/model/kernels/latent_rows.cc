#include "common/model/kernels/latent_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/latent_rows.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>

#include "common/model/kernels/rotate-inl.h"
#include "common/model/kernels/scratch.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// The heads of one row, element by element of type T.
template <typename T>
class LatentRow {
 public:
  // `scratch`: rope_dim floats for the elements that rotate, and as many for a sum.
  LatentRow(const LatentRows& rows, int64_t row, float* scratch)
      : rows_(rows),
        half_(rows.rope_dim / 2),
        cos_(rows.cos == nullptr ? nullptr : rows.cos + row * half_),
        sin_(rows.sin == nullptr ? nullptr : rows.sin + row * half_),
        rotated_(scratch),
        sum_(scratch + rows.rope_dim) {}

  void Join(const T* q, const T* shared, const T* kv, T* q_out, T* k_out, T* v_out) const {
    const int64_t dim = rows_.head_dim();
    for (int64_t h = 0; h < rows_.num_heads; ++h, q += dim, q_out += dim) {
      std::copy_n(q, rows_.nope_dim, q_out);
      Rotate(q + rows_.nope_dim, q_out + rows_.nope_dim);
    }
    T* const first_key = k_out;
    for (int64_t h = 0; h < rows_.num_heads; ++h) {
      std::copy_n(kv, rows_.nope_dim, k_out);
      if (h == 0) {
        Rotate(shared, k_out + rows_.nope_dim);
      } else {
        std::copy_n(first_key + rows_.nope_dim, rows_.rope_dim, k_out + rows_.nope_dim);
      }
      std::copy_n(kv + rows_.nope_dim, rows_.v_dim, v_out);
      kv += rows_.nope_dim + rows_.v_dim;
      k_out += dim;
      v_out += rows_.v_dim;
    }
  }

  void Backward(const T* grad_q, const T* grad_k, const T* grad_v, T* q, T* shared, T* kv) const {
    const int64_t dim = rows_.head_dim();
    for (int64_t h = 0; h < rows_.num_heads; ++h, grad_q += dim, q += dim) {
      std::copy_n(grad_q, rows_.nope_dim, q);
      CopyScaled(grad_q + rows_.nope_dim, rows_.rope_dim, 1.0f, rotated_);
      RotateBack(rotated_, q + rows_.nope_dim);
    }
    // Every head's key has the shared part: its gradient is a float32 sum in the order of heads.
    std::fill_n(sum_, rows_.rope_dim, 0.0f);
    for (int64_t h = 0; h < rows_.num_heads; ++h) {
      std::copy_n(grad_k, rows_.nope_dim, kv);
      CopyScaled(grad_k + rows_.nope_dim, rows_.rope_dim, 1.0f, rotated_);
      for (int64_t j = 0; j < rows_.rope_dim; ++j) sum_[j] += rotated_[j];
      std::copy_n(grad_v, rows_.v_dim, kv + rows_.nope_dim);
      kv += rows_.nope_dim + rows_.v_dim;
      grad_k += dim;
      grad_v += rows_.v_dim;
    }
    RotateBack(sum_, shared);
  }

 private:
  void Rotate(const T* from, T* to) const {
    CopyScaled(from, rows_.rope_dim, 1.0f, rotated_);
    if (cos_ != nullptr) {
      RotateElements<false>(cos_, sin_, half_, rows_.interleaved, rotated_);
    }
    CopyScaled(rotated_, rows_.rope_dim, 1.0f, to);
  }
  // Rotates x in place before it writes it.
  void RotateBack(float* x, T* to) const {
    if (cos_ != nullptr) RotateElements<true>(cos_, sin_, half_, rows_.interleaved, x);
    CopyScaled(x, rows_.rope_dim, 1.0f, to);
  }

  const LatentRows& rows_;
  const int64_t half_;
  const float* const cos_;
  const float* const sin_;
  float* const rotated_;
  float* const sum_;
};

// Row `row` of contiguous rows of `size` elements.
template <typename T>
const T* RowAt(const void* rows, int64_t row, int64_t size) {
  return static_cast<const T*>(rows) + row * size;
}
template <typename T>
T* RowAt(void* rows, int64_t row, int64_t size) {
  return static_cast<T*>(rows) + row * size;
}

template <typename T>
void JoinOf(const LatentRows& rows, const LatentInputs& in, const LatentHeads& out, int64_t begin,
            int64_t end) {
  float* const scratch = ThreadScratch(2 * rows.rope_dim);
  const int64_t q = rows.num_heads * rows.head_dim();
  const int64_t v = rows.num_heads * rows.v_dim;
  const int64_t kv = rows.num_heads * (rows.nope_dim + rows.v_dim);
  for (int64_t i = begin; i < end; ++i) {
    LatentRow<T>(rows, i, scratch)
        .Join(RowAt<T>(in.q, i, q), RowAt<T>(in.shared, i, rows.rope_dim), RowAt<T>(in.kv, i, kv),
              RowAt<T>(out.q, i, q), RowAt<T>(out.k, i, q), RowAt<T>(out.v, i, v));
  }
}

template <typename T>
void JoinBackwardOf(const LatentRows& rows, const LatentGradOutputs& grads,
                    const LatentGradInputs& out, int64_t begin, int64_t end) {
  float* const scratch = ThreadScratch(2 * rows.rope_dim);
  const int64_t q = rows.num_heads * rows.head_dim();
  const int64_t v = rows.num_heads * rows.v_dim;
  const int64_t kv = rows.num_heads * (rows.nope_dim + rows.v_dim);
  for (int64_t i = begin; i < end; ++i) {
    LatentRow<T>(rows, i, scratch)
        .Backward(RowAt<T>(grads.q, i, q), RowAt<T>(grads.k, i, q), RowAt<T>(grads.v, i, v),
                  RowAt<T>(out.q, i, q), RowAt<T>(out.shared, i, rows.rope_dim),
                  RowAt<T>(out.kv, i, kv));
  }
}

void Join(const LatentRows& rows, const LatentInputs& in, const LatentHeads& out, int64_t begin,
          int64_t end) {
  if (rows.type == Element::kFloat32) return JoinOf<float>(rows, in, out, begin, end);
  JoinOf<BFloat16>(rows, in, out, begin, end);
}

void JoinBackward(const LatentRows& rows, const LatentGradOutputs& grads,
                  const LatentGradInputs& out, int64_t begin, int64_t end) {
  if (rows.type == Element::kFloat32) {
    return JoinBackwardOf<float>(rows, grads, out, begin, end);
  }
  JoinBackwardOf<BFloat16>(rows, grads, out, begin, end);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(Join);
HWY_EXPORT(JoinBackward);

void JoinLatentHeads(const LatentRows& rows, const LatentInputs& in, const LatentHeads& out,
                     int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Join)(rows, in, out, begin, end);
}

void JoinLatentHeadsBackward(const LatentRows& rows, const LatentGradOutputs& grads,
                             const LatentGradInputs& out, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(JoinBackward)(rows, grads, out, begin, end);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
