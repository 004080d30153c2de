#include "tools/tandem/gpu_check/device/device_rates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>

#include "common/device/device.h"
#include "common/status/status_macros.h"

namespace tandem::gpu_check {
namespace {

constexpr int kSeries = 5;

double LeastSeconds(device::Device& device, int repeats, const std::function<void()>& work) {
  work();  // chooses the kernel and makes its buffers
  device.Synchronize();
  double least = std::numeric_limits<double>::infinity();
  for (int series = 0; series < kSeries; ++series) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) work();
    device.Synchronize();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    least = std::min(least, spent.count() / repeats);
  }
  return least;
}

}  // namespace

absl::StatusOr<nlohmann::json> MeasureDeviceRates(at::Device device, const RateWork& work) {
  ASSIGN_OR_RETURN(const std::shared_ptr<device::Device> on, device::Device::Create(device));
  on->MakeCurrent();
  nlohmann::json rates = {{"copy_bytes", work.copy_bytes}, {"product_size", work.product_size}};
  {
    ASSIGN_OR_RETURN(const at::Tensor from, on->Buffer(work.copy_bytes));
    ASSIGN_OR_RETURN(const at::Tensor to, on->Buffer(work.copy_bytes));
    from.fill_(1);
    rates["copy_seconds"] = LeastSeconds(*on, work.repeats, [&] { to.copy_(from); });
  }
  // Random numbers: on zeros a GPU draws less power and runs faster.
  const auto kind = at::TensorOptions(at::kBFloat16).device(device);
  const at::Tensor a = at::randn({work.product_size, work.product_size}, kind);
  const at::Tensor b = at::randn({work.product_size, work.product_size}, kind);
  at::Tensor product = at::empty_like(a);
  rates["product_seconds"] = LeastSeconds(*on, work.repeats, [&] { at::mm_out(product, a, b); });
  return rates;
}

}  // namespace tandem::gpu_check
