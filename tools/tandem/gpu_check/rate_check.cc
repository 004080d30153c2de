// The GPU's own rates, which the later checks are held against.
#include "absl/strings/str_format.h"
#include "tools/tandem/gpu_check/checks.h"
#include "tools/tandem/gpu_check/limits.h"

namespace tandem::gpu_check {

CheckResult CheckRates(const Tools& tools, Machine& machine, absl::Time deadline) {
  const ChildOutput output = tools.RunDevice("rates", {"rates", "--device", "cuda:0"}, deadline);
  if (!output.status.ok()) return Failed(std::string(output.status.message()));
  if (output.objects.empty()) return Failed("tandem-check-device printed no rates");
  CheckResult result;
  result.measured = output.objects.back();
  const double bytes = result.measured.value("copy_bytes", 0.0);
  const double copy_seconds = result.measured.value("copy_seconds", 0.0);
  const double product_seconds = result.measured.value("product_seconds", 0.0);
  if (copy_seconds <= 0 || product_seconds <= 0) {
    result.Fail("tandem-check-device measured no time");
    return result;
  }
  machine.rates.read_bytes_per_second = CopyTraffic(bytes, copy_seconds);
  machine.rates.flops_per_second =
      ProductRate(result.measured.value("product_size", int64_t{0}), product_seconds);
  result.measured["copy_gigabytes_per_second"] = bytes / copy_seconds / 1e9;
  result.measured["memory_gigabytes_per_second"] = machine.rates.read_bytes_per_second / 1e9;
  result.measured["product_teraflops_per_second"] = machine.rates.flops_per_second / 1e12;
  result.summary = absl::StrFormat("memory %.0f GB/s, bfloat16 products %.0f TFLOP/s",
                                   machine.rates.read_bytes_per_second / 1e9,
                                   machine.rates.flops_per_second / 1e12);
  return result;
}

}  // namespace tandem::gpu_check
