#include "common/probe/probe_pattern.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <new>

namespace tandem::probe {
namespace {

constexpr int64_t kPeriod = 1021;

// Uses a mapping of its own, which returns to the system with the tensor. A service's heap keeps
// freed memory for its next passes (model/allocator.h), which never need as much.
at::Tensor MapTensor(int64_t count) {
  const size_t bytes = count * sizeof(float);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return at::from_blob(memory, {count}, [bytes](void* mapped) { munmap(mapped, bytes); });
}

}  // namespace

at::Tensor ProbePattern(int64_t count, int rank) {
  at::Tensor out = MapTensor(count);
  float* const values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % kPeriod + rank);
  return out;
}

int64_t CountWrongElements(const at::Tensor& sum, int size) {
  const int64_t ranks = static_cast<int64_t>(size) * (size - 1) / 2;
  const at::Tensor in_order = sum.contiguous();
  const float* const values = in_order.const_data_ptr<float>();
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < in_order.numel(); ++i) {
    if (values[i] != static_cast<float>(i % kPeriod * size + ranks)) ++num_wrong;
  }
  return num_wrong;
}

}  // namespace tandem::probe
