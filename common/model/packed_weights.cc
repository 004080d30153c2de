#include "common/model/packed_weights.h"

#include <algorithm>

#include "common/model/cpu_dispatch.h"
#include "common/model/linear.h"

namespace tandem::model {
namespace {

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

bool PackedWeights::Prepare(int index) {
  const ParameterTable& table = arena_.table();
  const at::Tensor& weight = arena_.Get(index);
  const bool is_looked_up_only = index == table.embedding() && index != table.lm_head();
  if (weight.dim() != 2 || is_looked_up_only) return false;
  if (!KernelsTake({weight}) || !OwnProducts(weight.scalar_type())) return false;
  Entry& entry = entries_[index];
  if (entry.matrix == nullptr) {
    entry.matrix =
        std::make_unique<kernels::PackedMatrix>(ElementOf(weight), weight.size(1), weight.size(0));
  }
  if (entry.missing.empty()) {
    const int64_t panel = kernels::PackedMatrix::panel_columns() * weight.size(1);
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
  const int64_t panel = kernels::PackedMatrix::panel_columns() * weight.size(1);
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

}  // namespace tandem::model
