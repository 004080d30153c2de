// Copies parts of matrices into the orders that the tiles (tile-inl.h) read, with conversion.
#if defined(TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_PACK_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "common/model/kernels/tile-inl.h"

#undef TANDEM_PACKS_BLOCKS

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

// Copies rows into a strip: to[k * kTileCols + j] is from[k * stride + j]; columns beyond `cols`
// become zero.
template <typename T>
void PackRows(const T* from, int64_t stride, int64_t cols, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k) {
    CopyRow(from + k * stride, cols, to + k * kTileCols);
    std::fill(to + k * kTileCols + cols, to + (k + 1) * kTileCols, 0.0f);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Transposes adjacent squares of 4 by 4: calls out(i, row i of all).
template <class D, class Rows, class Out>
HWY_INLINE void TransposeSquares(D d, Rows r0, Rows r1, Rows r2, Rows r3, const Out& out) {
  const hn::Repartition<double, D> pairs;
  const auto t0 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto t1 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto t2 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto t3 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  out(0, hn::BitCast(d, hn::InterleaveLower(pairs, t0, t1)));
  out(1, hn::BitCast(d, hn::InterleaveUpper(pairs, t0, t1)));
  out(2, hn::BitCast(d, hn::InterleaveLower(pairs, t2, t3)));
  out(3, hn::BitCast(d, hn::InterleaveUpper(pairs, t2, t3)));
}

#if !HWY_HAVE_SCALABLE && HWY_MAX_BYTES >= 32
#define TANDEM_PACKS_BLOCKS 1

constexpr int64_t kBlockOfK = 8;     // elements of k that PackBlock() takes
constexpr int64_t kBlockPlaces = 8;  // and columns

// Packs 8 columns by 4 k in registers of 8.
HWY_INLINE void PackQuarter(const float* from, int64_t stride, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  // Combines row i (low half) with row i + 4 (high half).
  const auto load = [&](int64_t i) HWY_ATTR {
    return hn::Combine(d, hn::LoadU(half, from + (i + 4) * stride),
                       hn::LoadU(half, from + i * stride));
  };
  TransposeSquares(d, load(0), load(1), load(2), load(3),
                   [&](int64_t i, auto row) HWY_ATTR { hn::StoreU(row, d, to + i * to_stride); });
}

// Back.
HWY_INLINE void UnpackQuarter(const float* from, int64_t from_stride, float* to, int64_t stride) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const auto load = [&](int64_t k) HWY_ATTR { return hn::LoadU(d, from + k * from_stride); };
  TransposeSquares(d, load(0), load(1), load(2), load(3), [&](int64_t i, auto row) HWY_ATTR {
    hn::StoreU(hn::LowerHalf(half, row), half, to + i * stride);
    hn::StoreU(hn::UpperHalf(half, row), half, to + (i + 4) * stride);
  });
}

// Packs places [place, place + kBlockPlaces) of kBlockOfK rows of a strip, whose column j starts at
// from[j * stride].
HWY_INLINE void PackBlock(const float* from, int64_t stride, int64_t place, float* to,
                          int64_t to_stride) {
  for (int64_t k = 0; k < kBlockOfK; k += 4) {
    PackQuarter(from + place * stride + k, stride, to + k * to_stride, to_stride);
  }
}

// Inverse of PackBlock(): unpacks into the strip's columns at `to`.
HWY_INLINE void UnpackBlock(const float* from, int64_t from_stride, int64_t place, float* to,
                            int64_t stride) {
  for (int64_t k = 0; k < kBlockOfK; k += 4) {
    UnpackQuarter(from + k * from_stride, from_stride, to + place * stride + k, stride);
  }
}

// Transposes a square of 8 by 8 with rows load(i): calls out(i, row i).
template <class Load, class Out>
HWY_INLINE void TransposeSquare(const Load& load, const Out& out) {
  const hn::FixedTag<uint16_t, 8> d;
  const hn::FixedTag<uint32_t, 4> d32;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto low = [&](int64_t i) HWY_ATTR {
    return hn::BitCast(d32, hn::InterleaveLower(d, load(i), load(i + 1)));
  };
  const auto high = [&](int64_t i) HWY_ATTR {
    return hn::BitCast(d32, hn::InterleaveUpper(d, load(i), load(i + 1)));
  };
  // Variable names give the rows and the range of k.
  const auto r01_k03 = low(0), r23_k03 = low(2), r45_k03 = low(4), r67_k03 = low(6);
  const auto r01_k47 = high(0), r23_k47 = high(2), r45_k47 = high(4), r67_k47 = high(6);
  const auto join = [&](int64_t at, auto upper, auto lower) HWY_ATTR {
    const auto low_rows = hn::BitCast(d64, lower);
    const auto high_rows = hn::BitCast(d64, upper);
    out(at, hn::BitCast(d, hn::InterleaveLower(d64, low_rows, high_rows)));
    out(at + 1, hn::BitCast(d, hn::InterleaveUpper(d64, low_rows, high_rows)));
  };
  join(0, hn::InterleaveLower(d32, r45_k03, r67_k03), hn::InterleaveLower(d32, r01_k03, r23_k03));
  join(2, hn::InterleaveUpper(d32, r45_k03, r67_k03), hn::InterleaveUpper(d32, r01_k03, r23_k03));
  join(4, hn::InterleaveLower(d32, r45_k47, r67_k47), hn::InterleaveLower(d32, r01_k47, r23_k47));
  join(6, hn::InterleaveUpper(d32, r45_k47, r67_k47), hn::InterleaveUpper(d32, r01_k47, r23_k47));
}

// Without conversion: takes the columns in the order of their places.
HWY_INLINE void PackBlock(const BFloat16* from, int64_t stride, int64_t place, BFloat16* to,
                          int64_t to_stride) {
  const hn::FixedTag<uint16_t, 8> d;
  TransposeSquare(
      [&](int64_t i) HWY_ATTR {
        const auto column = static_cast<int64_t>(StripColumn(static_cast<size_t>(place + i)));
        return hn::LoadU(d, reinterpret_cast<const uint16_t*>(from + column * stride));
      },
      [&](int64_t i, auto row)
          HWY_ATTR { hn::StoreU(row, d, reinterpret_cast<uint16_t*>(to + i * to_stride)); });
}

HWY_INLINE void UnpackBlock(const BFloat16* from, int64_t from_stride, int64_t place, BFloat16* to,
                            int64_t stride) {
  const hn::FixedTag<uint16_t, 8> d;
  TransposeSquare(
      [&](int64_t k) HWY_ATTR {
        return hn::LoadU(d, reinterpret_cast<const uint16_t*>(from + k * from_stride));
      },
      [&](int64_t i, auto column) HWY_ATTR {
        const auto at = static_cast<int64_t>(StripColumn(static_cast<size_t>(place + i)));
        hn::StoreU(column, d, reinterpret_cast<uint16_t*>(to + at * stride));
      });
}

// Copies `count` elements with non-temporal stores, whole registers at aligned addresses.
template <typename T>
HWY_INLINE void StreamRows(const T* from, int64_t count, T* to) {
  const hn::ScalableTag<uint8_t> d;
  const auto* const source = reinterpret_cast<const uint8_t*>(from);
  auto* const target = reinterpret_cast<uint8_t*>(to);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < bytes; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::Stream(hn::Load(d, source + i), d, target + i);
  }
}

// Packs kPlaces places of a panel's rows, whose first column is at `from`, in portions that fit the
// first-level cache, so each cache line of a column is read once. Returns the number of rows
// packed, all but a few. `to`: the first place.
template <int64_t kPlaces, typename T>
int64_t PackPlaces(const T* from, int64_t col_stride, int64_t depth, T* to) {
  constexpr int64_t kRows = 64 / static_cast<int64_t>(sizeof(T));  // of k in a line
  // There are more columns than streams that the hardware prefetcher follows.
  constexpr int64_t kAhead = 2 * kRows;
  constexpr auto kCols = static_cast<int64_t>(kPanelCols);
  constexpr auto kStrip = static_cast<int64_t>(kTileCols);
  alignas(64) T rows[kRows * kPlaces];
  const int64_t end = depth / kBlockOfK * kBlockOfK;
  for (int64_t begin = 0; begin < end; begin += kRows) {
    const int64_t count = std::min(kRows, end - begin);
    for (int64_t place = 0; place < kPlaces; place += kBlockPlaces) {
      for (int64_t j = place; j < place + kBlockPlaces; ++j) {
        FetchSoon(reinterpret_cast<const char*>(from + j * col_stride + begin + kAhead));
      }
      const T* const strip = from + place / kStrip * kStrip * col_stride + begin;
      for (int64_t k = 0; k < count; k += kBlockOfK) {
        PackBlock(strip + k, col_stride, place % kStrip, rows + k * kPlaces + place, kPlaces);
      }
    }
    for (int64_t k = 0; k < count; ++k) {
      StreamRows(rows + k * kPlaces, kPlaces, to + (begin + k) * kCols);
    }
  }
  return end;
}

// Inverse of PackPlaces(): unpacks `places` places of a panel's rows, the first at `from`, into
// columns of `depth` elements, one after another at `to`. Writes a whole cache line of each column
// at once.
template <typename T>
int64_t UnpackPlaces(const T* from, int64_t places, int64_t depth, T* to) {
  constexpr int64_t kRows = 64 / static_cast<int64_t>(sizeof(T));  // of k in a line
  constexpr auto kCols = static_cast<int64_t>(kPanelCols);
  constexpr auto kStrip = static_cast<int64_t>(kTileCols);
  const int64_t end = depth / kBlockOfK * kBlockOfK;
  for (int64_t begin = 0; begin < end; begin += kRows) {
    const int64_t stop = std::min(begin + kRows, end);
    for (int64_t place = 0; place < places; place += kBlockPlaces) {
      T* const strip = to + place / kStrip * kStrip * depth;
      for (int64_t k = begin; k < stop; k += kBlockOfK) {
        UnpackBlock(from + k * kCols + place, kCols, place % kStrip, strip + k, depth);
      }
    }
  }
  return end;
}
#endif
#endif

// Places of a panel's rows that are written at once: two cache lines.
template <typename T>
constexpr int64_t kGroupPlaces = std::min<int64_t>(128 / static_cast<int64_t>(sizeof(T)),
                                                   static_cast<int64_t>(kPanelCols));

// Returns the column of a panel at a place of its rows.
template <typename T>
constexpr int64_t PanelColumn(size_t place) {
  if constexpr (std::is_same_v<T, float>) return static_cast<int64_t>(place);
  return static_cast<int64_t>(place / kTileCols * kTileCols + StripColumn(place % kTileCols));
}

// Packs a panel with non-temporal stores: column j of its row k is from[j * col_stride + k *
// row_stride], zero for columns beyond `cols`. `to` is aligned to 64 bytes; the caller then calls
// hwy::FlushStream().
template <typename T>
void PackPanel(const T* from, int64_t row_stride, int64_t col_stride, int64_t cols, int64_t depth,
               T* to) {
  int64_t begin = 0;
#ifdef TANDEM_PACKS_BLOCKS
  if (row_stride == 1 && cols >= static_cast<int64_t>(kPanelCols)) {
    begin = PackPlaces<static_cast<int64_t>(kPanelCols)>(from, col_stride, depth, to);
  }
#endif
  for (int64_t k = begin; k < depth; ++k) {
    for (size_t place = 0; place < kPanelCols; ++place) {
      const int64_t j = PanelColumn<T>(place);
      to[k * kPanelCols + place] = j < cols ? from[j * col_stride + k * row_stride] : T{};
    }
  }
}

// Packs a group of columns of a panel with non-temporal stores: column j of its row k is from[j *
// col_stride + k]. `to`, its first place, is aligned to 64 bytes; the caller then calls
// hwy::FlushStream().
template <typename T>
void PackGroup(const T* from, int64_t col_stride, int64_t depth, T* to) {
  int64_t begin = 0;
#ifdef TANDEM_PACKS_BLOCKS
  begin = PackPlaces<kGroupPlaces<T>>(from, col_stride, depth, to);
#endif
  for (int64_t k = begin; k < depth; ++k) {
    for (int64_t place = 0; place < kGroupPlaces<T>; ++place) {
      to[k * static_cast<int64_t>(kPanelCols) + place] =
          from[PanelColumn<T>(static_cast<size_t>(place)) * col_stride + k];
    }
  }
}

// Inverse of PackGroup(): unpacks `places` places of a panel's rows, whole groups, the first at
// `from`, into columns of `depth` elements, one after another at `to`.
template <typename T>
void UnpackColumns(const T* from, int64_t places, int64_t depth, T* to) {
  int64_t begin = 0;
#ifdef TANDEM_PACKS_BLOCKS
  begin = UnpackPlaces(from, places, depth, to);
#endif
  for (int64_t k = begin; k < depth; ++k) {
    for (int64_t place = 0; place < places; ++place) {
      to[PanelColumn<T>(static_cast<size_t>(place)) * depth + k] =
          from[k * static_cast<int64_t>(kPanelCols) + place];
    }
  }
}

// Transposes `cols` rows of `from` into the columns of a strip: to[k * kTileCols + j] is
// from[j * stride + k]. Columns beyond `cols` become zero.
template <typename T>
void PackTransposed(const T* from, int64_t stride, int64_t cols, int64_t depth, float* to) {
  constexpr int64_t kWidth = kTileCols;
  int64_t j = 0;
#ifdef TANDEM_PACKS_BLOCKS
  if constexpr (std::is_same_v<T, float>) {
    for (; j + 8 <= cols; j += 8) {
      int64_t k = 0;
      for (; k + 4 <= depth; k += 4) {
        PackQuarter(from + j * stride + k, stride, to + k * kWidth + j, kWidth);
      }
      for (; k < depth; ++k) {
        for (int64_t i = j; i < j + 8; ++i) to[k * kWidth + i] = from[i * stride + k];
      }
    }
  }
#endif
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  for (; j + 4 <= cols; j += 4) {
    const T* const source = from + j * stride;
    const auto load = [&](int64_t i, int64_t k)
                          HWY_ATTR { return LoadFloats(d, source + i * stride + k); };
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      float* const rows = to + k * kWidth + j;
      TransposeSquares(d, load(0, k), load(1, k), load(2, k), load(3, k),
                       [&](int64_t i, auto row)
                           HWY_ATTR { hn::StoreU(row, d, rows + i * kWidth); });
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < 4; ++i) to[k * kWidth + j + i] = ToFloat(source[i * stride + k]);
    }
  }
#endif
  for (; j < cols; ++j) {
    for (int64_t k = 0; k < depth; ++k) to[k * kWidth + j] = ToFloat(from[j * stride + k]);
  }
  for (; j < kWidth; ++j) {
    for (int64_t k = 0; k < depth; ++k) to[k * kWidth + j] = 0.0f;
  }
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
