#include "services/trainer/algorithm/deferred_values.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"

namespace tandem::trainer {

void DeferredValues::Add(const at::Tensor& values, std::function<void(const at::Tensor&)> use) {
  values_.push_back(values.detach().reshape({-1}).to(at::kDouble));
  uses_.push_back(std::move(use));
}

void DeferredValues::AddSum(const at::Tensor& values, std::function<void(double)> use) {
  Add(values.detach().sum(at::kDouble),
      [use = std::move(use)](const at::Tensor& sum) { use(sum.item<double>()); });
}

absl::Status DeferredValues::Read() {
  const std::vector<at::Tensor> values = std::exchange(values_, {});
  const auto uses = std::exchange(uses_, {});
  if (values.empty()) return absl::OkStatus();
  try {
    const at::Tensor all = at::cat(values).to(at::kCPU);
    int64_t begin = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t count = values[i].numel();
      uses[i](all.narrow(0, begin, count));
      begin += count;
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("reading what the device computed: ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::trainer
