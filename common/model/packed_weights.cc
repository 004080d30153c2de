#include "common/model/packed_weights.h"

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
  for (Entry& entry : entries_) entry.fresh = false;
}

void PackedWeights::Pack(int index) {
  const ParameterTable& table = arena_.table();
  const at::Tensor& weight = arena_.Get(index);
  const bool is_looked_up_only = index == table.embedding() && index != table.lm_head();
  if (weight.dim() != 2 || is_looked_up_only) return;
  if (!KernelsTake({weight}) || !OwnProducts(weight.scalar_type())) return;
  Entry& entry = entries_[index];
  if (entry.matrix == nullptr) {
    entry.matrix =
        std::make_unique<kernels::PackedMatrix>(RightSide(weight), weight.size(1), weight.size(0));
  } else {
    entry.matrix->Repack(RightSide(weight));
  }
  entry.fresh = true;
}

void PackedWeights::PackRest() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].fresh) Pack(static_cast<int>(i));
  }
}

}  // namespace tandem::model
