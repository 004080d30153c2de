#include "common/model/cpu_dispatch.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

constexpr int64_t kElementsPerThread = 16384;  // fewer do not justify waking a thread
constexpr int64_t kElementsPerWorker = 4096;   // likewise for pool workers, which poll for work

}  // namespace

bool KernelsTake(std::initializer_list<at::Tensor> tensors) {
  at::ScalarType type = at::ScalarType::Undefined;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.is_cpu()) return false;
    if (type == at::ScalarType::Undefined) type = tensor.scalar_type();
    if (tensor.scalar_type() != type) return false;
  }
  return type == at::kFloat || type == at::kBFloat16;
}

bool NeedsGraph(std::initializer_list<at::Tensor> tensors) {
  if (!at::GradMode::is_enabled()) return false;
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  });
}

kernels::Element ElementOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? kernels::Element::kFloat32
                                            : kernels::Element::kBFloat16;
}

void ForRows(int64_t rows, int64_t size, const kernels::RangeBody& body) {
  WorkerPool* const pool = CurrentWorkerPool();
  const int64_t elements = pool == nullptr ? kElementsPerThread : kElementsPerWorker;
  const int64_t grain = std::max<int64_t>(1, elements / std::max<int64_t>(size, 1));
  if (pool == nullptr) {
    at::parallel_for(0, rows, grain, body);
  } else if (rows <= grain) {
    if (rows > 0) body(0, rows);
  } else {
    pool->Run(rows, body);
  }
}

void ForTasks(int64_t tasks, const kernels::RangeBody& body) {
  WorkerPool* const pool = CurrentWorkerPool();
  if (pool == nullptr) {
    at::parallel_for(0, tasks, 1, body);
  } else {
    pool->Run(tasks, body);
  }
}

const kernels::ParallelFor& AsParallelFor() {
  static const kernels::ParallelFor threads = ForTasks;
  return threads;
}

at::Tensor SumOverRows(int64_t rows, int64_t size,
                       const std::function<void(int64_t, int64_t, float*)>& add, int64_t work) {
  // Blocks depend on the number of rows alone and are added in their order, so the sum's bits do
  // not depend on the number of threads.
  const int64_t block = std::max<int64_t>(64, (rows + 63) / 64);
  const int64_t blocks = std::max<int64_t>(1, (rows + block - 1) / block);
  const at::Tensor partial = at::zeros({blocks, size}, at::kFloat);
  float* const out = partial.mutable_data_ptr<float>();
  ForRows(blocks, block * (work > 0 ? work : size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      add(i * block, std::min(rows, (i + 1) * block), out + i * size);
    }
  });
  for (int64_t i = 1; i < blocks; ++i) {
    for (int64_t j = 0; j < size; ++j) out[j] += out[i * size + j];
  }
  return partial[0];
}

void Multiply(const kernels::Product& product) {
  static const kernels::ParallelFor parallel_for = ForTasks;
  kernels::Multiply(product, NumThreads(), parallel_for);
}

}  // namespace tandem::model
