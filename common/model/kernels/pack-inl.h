// Copies of matrix parts in the orders that the tiles (tile-inl.h) read, converted on the way.
#if defined(TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#endif

#include "common/model/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Converts `count` elements.
template <typename T, typename To>
void CopyRow(const T* from, int64_t count, To* to) {
  const Floats d;
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kLanes) <= count; i += kLanes) {
    StoreFloats(d, LoadFloats(d, from + i), to + i);
  }
  for (; i < count; ++i) FromFloat(ToFloat(from[i]), to[i]);
}

// Rows into a panel: to[k * kTileCols + j] is from[k * stride + j]; columns beyond `cols` become
// zero.
template <typename T, typename To>
void PackRows(const T* from, int64_t stride, int64_t cols, int64_t depth, To* to) {
  for (int64_t k = 0; k < depth; ++k) {
    CopyRow(from + k * stride, cols, to + k * kTileCols);
    for (int64_t j = cols; j < static_cast<int64_t>(kTileCols); ++j) {
      FromFloat(0.0f, to[k * kTileCols + j]);
    }
  }
}

// Transposes `cols` rows of `from` into the columns of a panel: to[k * kTileCols + j] is
// from[j * stride + k]. Columns beyond `cols` become zero.
template <typename T, typename To>
void PackTransposed(const T* from, int64_t stride, int64_t cols, int64_t depth, To* to) {
  constexpr int64_t kWidth = kTileCols;
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  const hn::Full128<double> pairs;
  for (; j + 4 <= cols; j += 4) {
    const T* const source = from + j * stride;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      const auto r0 = LoadFloats(d, source + k);
      const auto r1 = LoadFloats(d, source + stride + k);
      const auto r2 = LoadFloats(d, source + 2 * stride + k);
      const auto r3 = LoadFloats(d, source + 3 * stride + k);
      const auto t0 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto t1 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto t2 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto t3 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      To* const out = to + k * kWidth + j;
      StoreFloats(d, hn::BitCast(d, hn::InterleaveLower(pairs, t0, t1)), out);
      StoreFloats(d, hn::BitCast(d, hn::InterleaveUpper(pairs, t0, t1)), out + kWidth);
      StoreFloats(d, hn::BitCast(d, hn::InterleaveLower(pairs, t2, t3)), out + 2 * kWidth);
      StoreFloats(d, hn::BitCast(d, hn::InterleaveUpper(pairs, t2, t3)), out + 3 * kWidth);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < 4; ++i) {
        FromFloat(ToFloat(source[i * stride + k]), to[k * kWidth + j + i]);
      }
    }
  }
#endif
  for (; j < cols; ++j) {
    for (int64_t k = 0; k < depth; ++k) {
      FromFloat(ToFloat(from[j * stride + k]), to[k * kWidth + j]);
    }
  }
  for (; j < kWidth; ++j) {
    for (int64_t k = 0; k < depth; ++k) FromFloat(0.0f, to[k * kWidth + j]);
  }
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
