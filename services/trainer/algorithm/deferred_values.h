// DeferredValues: numbers of a device that the host needs only later, read in one copy. Reading each
// where it is computed would make the host wait for the device every time.
//
//   DeferredValues later;
//   later.AddSum(loss, [&](double value) { total += value; });    // by micro-batch
//   RETURN_IF_ERROR(later.Read());
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_DEFERRED_VALUES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_DEFERRED_VALUES_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace tandem::trainer {

// One thread. Tensors are on one device, of any floating-point type.
class DeferredValues {
 public:
  // `use` is called by Read() with the values, float64 [numel] on the CPU; what it refers to must
  // live until then.
  void Add(const at::Tensor& values, std::function<void(const at::Tensor& values)> use);
  // The same with the sum of the values, added in float64.
  void AddSum(const at::Tensor& values, std::function<void(double sum)> use);
  // Passes on all values, in the order of Add(), and forgets them. INTERNAL if the device has failed.
  absl::Status Read();

 private:
  std::vector<at::Tensor> values_;  // float64 [numel]
  std::vector<std::function<void(const at::Tensor&)>> uses_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_DEFERRED_VALUES_H_
