#include "tools/tandem/gpu_check/limits.h"

namespace tandem::gpu_check {

double CopyTraffic(double copied_bytes, double seconds) { return 2 * copied_bytes / seconds; }

double ProductRate(int64_t n, double seconds) {
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / seconds;
}

double Utilisation(double flops_per_second, const bench::MachineRates& rates) {
  return rates.flops_per_second > 0 ? flops_per_second / rates.flops_per_second : 0;
}

double DecodeLimit(const bench::StepCost& step, int64_t batch, const bench::MachineRates& rates) {
  if (rates.read_bytes_per_second <= 0 || rates.flops_per_second <= 0) return 0;
  return static_cast<double>(batch) / step.Seconds(rates);
}

}  // namespace tandem::gpu_check
