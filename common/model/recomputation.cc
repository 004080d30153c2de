#include "common/model/recomputation.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <utility>

namespace tandem::model {

void Recomputation::Add(const std::vector<at::Tensor>& results, Compute compute) {
  Step step{{}, std::move(compute)};
  for (const at::Tensor& result : results) step.results.push_back(result.detach());
  steps_.push_back(std::move(step));
}

void Recomputation::Drop() {
  // The step's own reference counts as one.
  const auto is_saved = [](const at::Tensor& result) { return result.storage().use_count() > 1; };
  steps_.erase(std::remove_if(steps_.begin(), steps_.end(),
                              [&](const Step& step) {
                                return std::none_of(step.results.begin(), step.results.end(),
                                                    is_saved);
                              }),
               steps_.end());
  for (const Step& step : steps_) {
    for (const at::Tensor& result : step.results) {
      result.storage().set_data_ptr_noswap(at::DataPtr(nullptr, result.device()));
    }
  }
}

void Recomputation::Restore() {
  const at::NoGradGuard no_grad;
  for (const Step& step : steps_) {
    const std::vector<at::Tensor> computed = step.compute();
    TORCH_INTERNAL_ASSERT(computed.size() == step.results.size());
    for (size_t i = 0; i < computed.size(); ++i) {
      const c10::Storage from = computed[i].storage();
      const c10::Storage to = step.results[i].storage();
      TORCH_INTERNAL_ASSERT(from.nbytes() == to.nbytes() && computed[i].storage_offset() == 0,
                            "a result of ", to.nbytes(), " bytes was recomputed as ", from.nbytes(),
                            " bytes");
      to.set_data_ptr_noswap(from.set_data_ptr(at::DataPtr(nullptr, computed[i].device())));
    }
  }
  steps_.clear();
}

}  // namespace tandem::model
