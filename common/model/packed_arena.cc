#include "common/model/packed_arena.h"

#include <ATen/ops/equal.h>

#include <cstring>

#include "common/model/cpu_dispatch.h"
#include "common/model/release_pages.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, required by PackedMatrix

// Returns whether the CPU's matrix products read it.
bool IsPacked(const ParameterTable& table, at::ScalarType dtype, int index) {
  // Other ranks' experts are empty.
  return (dtype == at::kFloat || dtype == at::kBFloat16) && table.IsMultipliedBy(index) &&
         table.parameter(index).numel > 0;
}

}  // namespace

PackedArena::PackedArena(const ParameterTable& table, at::ScalarType dtype, bool packs,
                         at::Device device)
    : table_(table),
      element_bytes_(static_cast<int64_t>(c10::elementSize(dtype))),
      arena_(table, dtype, device,
             [&](int index) {
               // A tied embedding lies here too: its rows are looked up besides being multiplied
               // by. So do parameters of which parts are multiplied by.
               return packs && IsPacked(table, dtype, index) && index != table.embedding() &&
                      !table.parameter(index).read_by_row;
             }),
      matrices_(table.parameters().size()) {
  if (!packs) return;
  std::vector<int64_t> places(matrices_.size(), -1);
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const at::Tensor& weight = arena_.Get(static_cast<int>(i));
    if (!IsPacked(table, dtype, static_cast<int>(i))) continue;
    places[i] = memory_bytes_;
    const int64_t bytes =
        kernels::PackedMatrix::SizeBytes(ElementOf(weight), weight.size(1), weight.size(0));
    memory_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  memory_ = kernels::AllocateBytes(memory_bytes_);
  // Products also read the padding of panels and tiles, which Write() never fills.
  std::memset(memory_.get(), 0, static_cast<size_t>(memory_bytes_));
  for (size_t i = 0; i < matrices_.size(); ++i) {
    if (places[i] < 0) continue;
    const at::Tensor& weight = arena_.Get(static_cast<int>(i));
    matrices_[i] =
        std::make_unique<kernels::PackedMatrix>(ElementOf(weight), weight.size(1), weight.size(0),
                                                static_cast<char*>(memory_.get()) + places[i]);
  }
}

int64_t PackedArena::FirstElement(size_t segment) const {
  const ParameterTable::SegmentRef ref = table_.segments()[segment];
  return table_.segment(ref).offset - table_.parameter(ref.parameter).offset;
}

kernels::PackedMatrix* PackedArena::MatrixOf(size_t segment) const {
  return matrices_[table_.segments()[segment].parameter].get();
}

void PackedArena::Write(size_t segment, int64_t offset, absl::Span<const std::byte> from) {
  MatrixOf(segment)->Write(FirstElement(segment) + offset / element_bytes_,
                           static_cast<int64_t>(from.size()) / element_bytes_, from.data());
}

void PackedArena::Read(size_t segment, int64_t offset, absl::Span<std::byte> to) const {
  MatrixOf(segment)->Read(FirstElement(segment) + offset / element_bytes_,
                          static_cast<int64_t>(to.size()) / element_bytes_, to.data());
}

void PackedArena::Pack(size_t segment, int64_t offset, int64_t size) {
  if (MatrixOf(segment) == nullptr) return;
  Write(segment, offset, SegmentBytes(segment).subspan(offset, size));
}

PackedArena::Grain PackedArena::GrainOf(size_t segment) const {
  const kernels::PackedMatrix* const matrix = MatrixOf(segment);
  if (matrix == nullptr) return {};
  return {FirstElement(segment) * element_bytes_,
          matrix->group_columns() * matrix->k() * element_bytes_};
}

void PackedArena::CopyFrom(const Arena& other) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const absl::Span<const std::byte> from = other.SegmentBytes(i);
    const absl::Span<std::byte> to = SegmentBytes(i);
    if (from.empty()) continue;
    if (to.empty()) {
      Write(i, 0, from);
      continue;
    }
    std::memcpy(to.data(), from.data(), from.size());
    Pack(i, 0, static_cast<int64_t>(from.size()));
  }
}

void PackedArena::CopyTo(Arena& other) const {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const absl::Span<std::byte> to = other.SegmentBytes(i);
    if (to.empty()) continue;
    if (const absl::Span<const std::byte> from = SegmentBytes(i); !from.empty()) {
      std::memcpy(to.data(), from.data(), from.size());
    } else {
      Read(i, 0, to);
    }
  }
}

bool PackedArena::HasSameBytes(const PackedArena& other, int index) const {
  if (const kernels::PackedMatrix* const matrix = Packed(index); matrix != nullptr) {
    return std::memcmp(matrix->data(), other.Packed(index)->data(),
                       static_cast<size_t>(matrix->size_bytes())) == 0;
  }
  const at::Tensor& own = Get(index);
  if (!own.is_cpu()) return at::equal(own.view(at::kByte), other.Get(index).view(at::kByte));
  return std::memcmp(own.const_data_ptr(), other.Get(index).const_data_ptr(), own.nbytes()) == 0;
}

void PackedArena::ReleaseMemory() {
  arena_.ReleaseMemory();
  // Released pages read as zeros again, so the padding stays zero for the next update.
  if (memory_ != nullptr) ReleasePages(memory_.get(), static_cast<size_t>(memory_bytes_));
}

}  // namespace tandem::model
