#include "common/model/packed_weights.h"

#include <algorithm>

#include "common/model/cpu_dispatch.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: what a PackedMatrix asks for

// The transposed weight [in, out], as the products' right side.
kernels::ConstMatrix RightSide(const at::Tensor& weight) {
  return {weight.const_data_ptr(), ElementOf(weight), 1, weight.size(1)};
}

}  // namespace

PackedWeights::PackedWeights(const Arena& arena)
    : arena_(arena), entries_(arena.table().parameters().size()) {}

PackedWeights::~PackedWeights() = default;

void PackedWeights::Invalidate() {
  for (Entry& entry : entries_) {
    entry.fresh = false;
    entry.missing.clear();
  }
}

bool PackedWeights::IsPacked(int index) const {
  const ParameterTable& table = arena_.table();
  const at::Tensor& weight = arena_.Get(index);
  const bool is_looked_up_only = index == table.embedding() && index != table.lm_head();
  if (weight.dim() != 2 || is_looked_up_only) return false;
  return KernelsTake({weight});
}

void PackedWeights::Allocate() {
  const auto size = [&](size_t index) {
    const at::Tensor& weight = arena_.Get(static_cast<int>(index));
    const int64_t bytes =
        kernels::PackedMatrix::SizeBytes(ElementOf(weight), weight.size(1), weight.size(0));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  int64_t total = 0;
  for (size_t i = 0; i < entries_.size(); ++i) total += IsPacked(static_cast<int>(i)) ? size(i) : 0;
  memory_ = kernels::AllocateBytes(total);
  char* next = static_cast<char*>(memory_.get());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!IsPacked(static_cast<int>(i))) continue;
    const at::Tensor& weight = arena_.Get(static_cast<int>(i));
    entries_[i].matrix = std::make_unique<kernels::PackedMatrix>(ElementOf(weight), weight.size(1),
                                                                 weight.size(0), next);
    next += size(i);
  }
}

bool PackedWeights::Prepare(int index) {
  if (!IsPacked(index)) return false;
  if (memory_ == nullptr) Allocate();
  const at::Tensor& weight = arena_.Get(index);
  Entry& entry = entries_[index];
  if (entry.missing.empty()) {
    const int64_t panel = entry.matrix->panel_columns() * weight.size(1);
    entry.panels_left = entry.matrix->num_panels();
    entry.missing.assign(entry.panels_left, panel);
    if (entry.panels_left > 0) {
      entry.missing.back() = weight.numel() - (entry.panels_left - 1) * panel;
    }
    entry.fresh = entry.panels_left == 0;
  }
  return true;
}

void PackedWeights::Pack(int index, int64_t first, int64_t count) {
  if (count == 0 || !Prepare(index)) return;
  const at::Tensor& weight = arena_.Get(index);
  Entry& entry = entries_[index];
  const int64_t panel = entry.matrix->panel_columns() * weight.size(1);
  const int64_t end = first + count;
  // Panels that are complete and follow one another are packed at once.
  int64_t run = first / panel;
  for (int64_t p = run; p * panel < end; ++p) {
    entry.missing[p] -= std::min(end, (p + 1) * panel) - std::max(first, p * panel);
    if (entry.missing[p] == 0) {
      --entry.panels_left;
      continue;
    }
    if (run < p) entry.matrix->Repack(RightSide(weight), run, p);
    run = p + 1;
  }
  const int64_t last = (end + panel - 1) / panel;
  if (run < last) entry.matrix->Repack(RightSide(weight), run, last);
  entry.fresh = entry.panels_left == 0;
}

void PackedWeights::PackRest() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (entries_[i].fresh || !Prepare(index)) continue;
    Entry& entry = entries_[i];
    entry.matrix->Repack(RightSide(arena_.Get(index)), 0, entry.matrix->num_panels());
    entry.panels_left = 0;
    entry.fresh = true;
  }
}

void PackedWeights::ReleaseMemory() {
  Invalidate();
  for (Entry& entry : entries_) entry.matrix.reset();
  memory_.reset();
}

}  // namespace tandem::model
