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

// Whether what is packed is read at once, or much later: then it goes past the caches.
enum class PackFor { kNow, kLater };

#if HWY_TARGET != HWY_SCALAR
template <PackFor kWhen, class D>
HWY_INLINE void StorePacked(D d, hn::Vec<D> value, hn::TFromD<D>* to) {
  if constexpr (kWhen == PackFor::kLater) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

// The fastest blocks that there are of PackTransposed(): as many whole blocks of columns as `cols`
// has, of as many k as fit; answers the number of columns and sets `done` to that of k. With
// kLater `to` is aligned to 32 bytes.
template <PackFor kWhen, typename T, typename To>
HWY_INLINE int64_t PackBlocks(const T*, int64_t, int64_t, int64_t, To*, int64_t*) {
  return 0;
}

#if !HWY_HAVE_SCALABLE && HWY_MAX_BYTES >= 32
// 8 columns by 4 k in registers of 8.
template <PackFor kWhen>
HWY_INLINE int64_t PackBlocks(const float* from, int64_t stride, int64_t cols, int64_t depth,
                              float* to, int64_t* done) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const hn::FixedTag<double, 4> pairs;
  const int64_t whole = cols / 8 * 8;
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    for (int64_t j = 0; j < whole; j += 8) {
      const float* const source = from + j * stride + k;
      // Row i below row i + 4.
      const auto load = [&](int64_t i) HWY_ATTR {
        return hn::Combine(d, hn::LoadU(half, source + (i + 4) * stride),
                           hn::LoadU(half, source + i * stride));
      };
      const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
      const auto t0 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto t1 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto t2 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto t3 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      float* const out = to + k * kTileCols + j;
      StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveLower(pairs, t0, t1)), out);
      StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveUpper(pairs, t0, t1)), out + kTileCols);
      StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveLower(pairs, t2, t3)),
                         out + 2 * kTileCols);
      StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveUpper(pairs, t2, t3)),
                         out + 3 * kTileCols);
    }
  }
  *done = k;
  return whole;
}

// 8 columns by 8 k, as they are: nothing is converted.
template <PackFor kWhen>
HWY_INLINE int64_t PackBlocks(const BFloat16* from, int64_t stride, int64_t cols, int64_t depth,
                              BFloat16* to, int64_t* done) {
  const hn::FixedTag<uint16_t, 8> d;
  const hn::FixedTag<uint32_t, 4> d32;
  const hn::FixedTag<uint64_t, 2> d64;
  const int64_t whole = cols / 8 * 8;
  int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    for (int64_t j = 0; j < whole; j += 8) {
      const auto* const source = reinterpret_cast<const uint16_t*>(from + j * stride + k);
      const auto load = [&](int64_t i) HWY_ATTR { return hn::LoadU(d, source + i * stride); };
      const auto low = [&](int64_t i) HWY_ATTR {
        return hn::BitCast(d32, hn::InterleaveLower(d, load(i), load(i + 1)));
      };
      const auto high = [&](int64_t i) HWY_ATTR {
        return hn::BitCast(d32, hn::InterleaveUpper(d, load(i), load(i + 1)));
      };
      // Names say which rows and which k they hold.
      const auto r01_k03 = low(0), r23_k03 = low(2), r45_k03 = low(4), r67_k03 = low(6);
      const auto r01_k47 = high(0), r23_k47 = high(2), r45_k47 = high(4), r67_k47 = high(6);
      const auto join = [&](int64_t at, auto upper, auto lower) HWY_ATTR {
        auto* const out = reinterpret_cast<uint16_t*>(to + (k + at) * kTileCols + j);
        const auto low_rows = hn::BitCast(d64, lower);
        const auto high_rows = hn::BitCast(d64, upper);
        StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveLower(d64, low_rows, high_rows)), out);
        StorePacked<kWhen>(d, hn::BitCast(d, hn::InterleaveUpper(d64, low_rows, high_rows)),
                           out + kTileCols);
      };
      join(0, hn::InterleaveLower(d32, r45_k03, r67_k03),
           hn::InterleaveLower(d32, r01_k03, r23_k03));
      join(2, hn::InterleaveUpper(d32, r45_k03, r67_k03),
           hn::InterleaveUpper(d32, r01_k03, r23_k03));
      join(4, hn::InterleaveLower(d32, r45_k47, r67_k47),
           hn::InterleaveLower(d32, r01_k47, r23_k47));
      join(6, hn::InterleaveUpper(d32, r45_k47, r67_k47),
           hn::InterleaveUpper(d32, r01_k47, r23_k47));
    }
  }
  *done = k;
  return whole;
}
#endif
#endif

// Transposes `cols` rows of `from` into the columns of a panel: to[k * kTileCols + j] is
// from[j * stride + k]. Columns beyond `cols` become zero. With kLater the panel is aligned to 32
// bytes, and hwy::FlushStream() follows.
template <PackFor kWhen = PackFor::kNow, typename T, typename To>
void PackTransposed(const T* from, int64_t stride, int64_t cols, int64_t depth, To* to) {
  constexpr int64_t kWidth = kTileCols;
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  int64_t begin = 0;
  if (const int64_t whole = PackBlocks<kWhen>(from, stride, cols, depth, to, &begin); whole > 0) {
    for (int64_t k = begin; k < depth; ++k) {
      for (int64_t i = 0; i < whole; ++i)
        FromFloat(ToFloat(from[i * stride + k]), to[k * kWidth + i]);
    }
    j = whole;
  }
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
