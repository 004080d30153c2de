#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/packed_matrix.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>

#include "common/model/kernels/bfloat16_product.h"
#include "common/model/kernels/pack-inl.h"
#include "common/model/kernels/packed_matrix.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kPanelWidth = kPanelCols;

int64_t PanelWidth() { return kPanelWidth; }

template <typename T>
void PackPanelsOf(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
                  T* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t col = panel * kPanelWidth;
    PackPanel(static_cast<const T*>(b.data) + col * b.col_stride, b.row_stride, b.col_stride,
              std::min(kPanelWidth, n - col), depth, to + panel * depth * kPanelWidth);
  }
  hwy::FlushStream();
}

// Panels [begin, end) of a packed matrix at `to`.
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
HWY_EXPORT(PackPanels);

namespace {

bool IsInTiles(Element type) {
  return type == Element::kBFloat16 && CurrentBFloat16Unit() != BFloat16Unit::kNone;
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

int64_t PackedMatrix::SizeBytes(Element type, int64_t k, int64_t n) {
  const int64_t columns = panel_columns(type);
  const int64_t panels = (n + columns - 1) / columns;
  return panels * (IsInTiles(type) ? BFloat16PanelBytes(k) : columns * k * SizeOf(type));
}

void PackedMatrix::Repack(const ConstMatrix& b, int64_t begin, int64_t end) {
  if (IsInTiles(type_)) return PackBFloat16Panels(b, k_, n_, begin, end, data_);
  HWY_DYNAMIC_DISPATCH(PackPanels)(b, k_, n_, begin, end, data_);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
