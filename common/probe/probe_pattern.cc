#include "common/probe/probe_pattern.h"

#include <ATen/ATen.h>

namespace tandem::probe {
namespace {

constexpr int64_t kPeriod = 1021;

}  // namespace

at::Tensor ProbePattern(int64_t count, int rank) {
  return at::arange(count, at::kLong).remainder(kPeriod).add(rank).to(at::kFloat);
}

int64_t CountWrongElements(const at::Tensor& sum, int size) {
  const int64_t ranks = static_cast<int64_t>(size) * (size - 1) / 2;
  const at::Tensor expected =
      at::arange(sum.numel(), at::kLong).remainder(kPeriod).mul(size).add(ranks).to(at::kFloat);
  return sum.ne(expected).sum().item<int64_t>();
}

}  // namespace tandem::probe
