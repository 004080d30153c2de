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

PackedWeights::PackedWeights(const Arena& arena) : arena_(arena) {
  const ParameterTable& table = arena.table();
  packed_.resize(table.parameters().size());
  for (size_t i = 0; i < packed_.size(); ++i) {
    const int index = static_cast<int>(i);
    const at::Tensor& weight = arena.Get(index);
    const bool is_looked_up_only = index == table.embedding() && index != table.lm_head();
    if (weight.dim() != 2 || is_looked_up_only) continue;
    if (!KernelsTake({weight}) || !OwnProducts(weight.scalar_type())) continue;
    packed_[i] = std::make_unique<kernels::PackedMatrix>(RightSide(weight), weight.size(1),
                                                         weight.size(0), ForTasks);
  }
}

PackedWeights::~PackedWeights() = default;

void PackedWeights::Repack() {
  for (size_t i = 0; i < packed_.size(); ++i) {
    if (packed_[i] != nullptr) {
      packed_[i]->Repack(RightSide(arena_.Get(static_cast<int>(i))), ForTasks);
    }
  }
}

}  // namespace tandem::model
