#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/packed_matrix.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstring>

#include "common/model/kernels/bfloat16_product.h"
#include "common/model/kernels/pack-inl.h"
#include "common/model/kernels/packed_matrix.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kPanelWidth = kPanelCols;

int64_t PanelWidth() { return kPanelWidth; }

// Returns the place of a column's elements in the rows of a panel.
int64_t PlaceOfColumn(Element type, int64_t column) {
  if (type == Element::kFloat32) return column;
  constexpr auto kStrip = static_cast<int64_t>(kTileCols);
  constexpr auto kRegister = static_cast<int64_t>(kLanes);
  const int64_t within = column % kStrip;
  const int64_t place = within < kRegister ? 2 * within : 2 * (within - kRegister) + 1;
  return column - within + place;
}

template <typename T>
void PackPanelsOf(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
                  T* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t col = panel * kPanelWidth;
    PackPanel(static_cast<const T*>(b.data) + col * b.col_stride, b.row_stride, b.col_stride,
              std::min(kPanelWidth, n - col), depth, to + panel * depth * kPanelWidth);
  }
  // Orders the non-temporal stores before whatever hands the matrix to another thread.
  hwy::FlushStream();
}

template <typename T>
void PackGroupsOf(const T* from, int64_t depth, int64_t begin, int64_t end, T* to) {
  constexpr int64_t kGroups = kPanelWidth / kGroupPlaces<T>;  // of a panel
  for (int64_t group = begin; group < end; ++group) {
    PackGroup(from + (group - begin) * kGroupPlaces<T> * depth, depth, depth,
              to + group / kGroups * depth * kPanelWidth + group % kGroups * kGroupPlaces<T>);
  }
  // As in PackPanelsOf().
  hwy::FlushStream();
}

int64_t GroupWidth(Element type) {
  return type == Element::kFloat32 ? kGroupPlaces<float> : kGroupPlaces<BFloat16>;
}

// Packs groups [begin, end) of columns, stored one after another at `from`, into the packed matrix
// at `to`.
void PackGroups(Element type, const void* from, int64_t depth, int64_t begin, int64_t end,
                void* to) {
  if (type == Element::kBFloat16) {
    return PackGroupsOf(static_cast<const BFloat16*>(from), depth, begin, end,
                        static_cast<BFloat16*>(to));
  }
  PackGroupsOf(static_cast<const float*>(from), depth, begin, end, static_cast<float*>(to));
}

template <typename T>
void UnpackGroupsOf(const T* from, int64_t depth, int64_t begin, int64_t end, T* to) {
  constexpr int64_t kGroups = kPanelWidth / kGroupPlaces<T>;  // of a panel
  for (int64_t group = begin; group < end;) {
    const int64_t stop = std::min(end, (group / kGroups + 1) * kGroups);
    const int64_t places = (stop - group) * kGroupPlaces<T>;
    UnpackColumns(from + group / kGroups * depth * kPanelWidth + group % kGroups * kGroupPlaces<T>,
                  places, depth, to);
    to += places * depth;
    group = stop;
  }
}

// Inverse: unpacks from the packed matrix at `from`.
void UnpackGroups(Element type, const void* from, int64_t depth, int64_t begin, int64_t end,
                  void* to) {
  if (type == Element::kBFloat16) {
    return UnpackGroupsOf(static_cast<const BFloat16*>(from), depth, begin, end,
                          static_cast<BFloat16*>(to));
  }
  UnpackGroupsOf(static_cast<const float*>(from), depth, begin, end, static_cast<float*>(to));
}

// Packs panels [begin, end) into the packed matrix at `to`.
void PackPanels(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
                void* to) {
  if (b.type == Element::kBFloat16) {
    return PackPanelsOf(b, depth, n, begin, end, static_cast<BFloat16*>(to));
  }
  PackPanelsOf(b, depth, n, begin, end, static_cast<float*>(to));
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(PanelWidth);
HWY_EXPORT(PlaceOfColumn);
HWY_EXPORT(PackPanels);
HWY_EXPORT(PackGroups);
HWY_EXPORT(UnpackGroups);
HWY_EXPORT(GroupWidth);

namespace {

bool IsInTiles(Element type) {
  return type == Element::kBFloat16 && CurrentBFloat16Unit() != BFloat16Unit::kNone;
}

// Moves data between packed and plain elements. A count that the compiler knows makes it one move
// instead of a call.
template <bool kWrites, int kCount, typename T>
void Copy(T* packed, T* plain) {
  std::memcpy(kWrites ? packed : plain, kWrites ? plain : packed, kCount * sizeof(T));
}

// Moves elements [first, first + count) of a column in panels, the first at `column`: rows are
// `width` elements apart.
template <bool kWrites, typename T>
void MoveInPanel(T* column, int64_t width, int64_t first, int64_t count, T* plain) {
  T* packed = column + first * width;
  for (int64_t i = 0; i < count; ++i, packed += width) Copy<kWrites, 1>(packed, plain + i);
}

// The same for pairs of tiles: an element and its neighbour in k are adjacent, 16 columns per row.
template <bool kWrites, typename T>
void MoveInTiles(T* column, int64_t first, int64_t count, T* plain) {
  constexpr int64_t kDepth = 32;            // of k in a tile
  constexpr int64_t kRow = 32;              // elements
  constexpr int64_t kPair = 2 * 16 * kRow;  // elements
  const int64_t end = first + count;
  for (int64_t k = first; k < end;) {
    T* const packed = column + k / kDepth * kPair + k % kDepth / 2 * kRow + k % 2;
    const bool both = k % 2 == 0 && k + 1 < end;
    if (both) {
      Copy<kWrites, 2>(packed, plain);
    } else {
      Copy<kWrites, 1>(packed, plain);
    }
    k += both ? 2 : 1;
    plain += both ? 2 : 1;
  }
}

}  // namespace

PackedMatrix::PackedMatrix(Element type, int64_t k, int64_t n)
    : type_(type), k_(k), n_(n), owned_(AllocateBytes(size_bytes())), data_(owned_.get()) {}

PackedMatrix::PackedMatrix(Element type, int64_t k, int64_t n, void* memory)
    : type_(type), k_(k), n_(n), data_(memory) {}

PackedMatrix::PackedMatrix(const ConstMatrix& b, int64_t k, int64_t n)
    : PackedMatrix(b.type, k, n) {
  Repack(b, 0, num_panels());
}

int64_t PackedMatrix::panel_columns(Element type) {
  return IsInTiles(type) ? kBFloat16PanelColumns : HWY_DYNAMIC_DISPATCH(PanelWidth)();
}

int64_t PackedMatrix::group_columns(Element type) {
  return IsInTiles(type) ? kBFloat16GroupColumns : HWY_DYNAMIC_DISPATCH(GroupWidth)(type);
}

int64_t PackedMatrix::SizeBytes(Element type, int64_t k, int64_t n) {
  const int64_t columns = panel_columns(type);
  const int64_t panels = (n + columns - 1) / columns;
  return panels * (IsInTiles(type) ? BFloat16PanelBytes(k) : columns * k * SizeOf(type));
}

void PackedMatrix::Repack(const ConstMatrix& b, int64_t begin, int64_t end) {
  if (IsInTiles(type_)) return PackBFloat16Panels(b, k_, n_, begin, end, data_);
  HWY_DYNAMIC_DISPATCH(PackPanels)(b, k_, n_, begin, end, data_);
}

template <bool kWrites, typename T>
void PackedMatrix::MoveElements(int64_t first, int64_t count, T* plain) const {
  const int64_t columns = panel_columns();
  const int64_t panel_bytes = size_bytes() / std::max<int64_t>(1, num_panels());
  while (count > 0) {
    const int64_t column = first / k_;
    const int64_t k = first % k_;
    const int64_t part = std::min(count, k_ - k);
    auto* const panel =
        reinterpret_cast<T*>(static_cast<char*>(data_) + column / columns * panel_bytes);
    const int64_t within = column % columns;
    if (IsInTiles(type_)) {
      constexpr int64_t kTileColumns = 16;
      constexpr int64_t kTileElements = 512;
      T* const at = panel + within / kTileColumns * kTileElements + within % kTileColumns * 2;
      MoveInTiles<kWrites>(at, k, part, plain);
    } else {
      T* const at = panel + HWY_DYNAMIC_DISPATCH(PlaceOfColumn)(type_, within);
      MoveInPanel<kWrites>(at, columns, k, part, plain);
    }
    first += part;
    plain += part;
    count -= part;
  }
}

template <bool kWrites, typename T>
void PackedMatrix::Move(int64_t first, int64_t count, T* plain) const {
  const int64_t group = group_columns() * k_;
  const int64_t end = first + count;
  const int64_t begin_whole = (first + group - 1) / group;
  const int64_t end_whole = end / group;
  const auto move = [&](int64_t begin, int64_t stop) {
    MoveElements<kWrites>(begin, stop - begin, plain + (begin - first));
  };
  if (begin_whole >= end_whole) return move(first, end);
  move(first, begin_whole * group);
  T* const whole = plain + (begin_whole * group - first);
  if (IsInTiles(type_)) {
    const auto pack = kWrites ? PackBFloat16Groups : UnpackBFloat16Groups;
    pack(kWrites ? whole : data_, k_, begin_whole, end_whole, kWrites ? data_ : whole);
  } else if constexpr (kWrites) {
    HWY_DYNAMIC_DISPATCH(PackGroups)(type_, whole, k_, begin_whole, end_whole, data_);
  } else {
    HWY_DYNAMIC_DISPATCH(UnpackGroups)(type_, data_, k_, begin_whole, end_whole, whole);
  }
  move(end_whole * group, end);
}

void PackedMatrix::Write(int64_t first, int64_t count, const void* plain) {
  if (count <= 0) return;
  void* const from = const_cast<void*>(plain);  // only read
  if (type_ == Element::kFloat32) return Move<true>(first, count, static_cast<float*>(from));
  Move<true>(first, count, static_cast<uint16_t*>(from));
}

void PackedMatrix::Read(int64_t first, int64_t count, void* plain) const {
  if (count <= 0) return;
  if (type_ == Element::kFloat32) return Move<false>(first, count, static_cast<float*>(plain));
  Move<false>(first, count, static_cast<uint16_t*>(plain));
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
