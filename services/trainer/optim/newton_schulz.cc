#include "services/trainer/optim/newton_schulz.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/linear.h"
#include "services/trainer/optim/muon_elements.h"

namespace tandem::trainer {
namespace {

constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;
constexpr double kLeastNorm = 1e-7;

// One sum in order, so that its bits depend on neither threads nor vector width.
double FrobeniusNorm(const at::Tensor& x) {
  const float* const values = x.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += static_cast<double>(values[i]) * values[i];
  return std::sqrt(sum);
}

// out = alpha x + beta y, every element by the same instructions. ATen's kernels compute the last
// elements of a thread's range by others.
void Combine(double alpha, const at::Tensor& x, double beta, const at::Tensor& y, at::Tensor& out) {
  const float* const from_x = x.const_data_ptr<float>();
  const float* const from_y = y.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  const auto a = static_cast<float>(alpha);
  const auto b = static_cast<float>(beta);
  at::parallel_for(0, x.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = a * from_x[i] + b * from_y[i];
  });
}

at::Tensor OnCpu(const at::Tensor& matrix, int64_t steps) {
  const double scale = 1.0 / std::max(FrobeniusNorm(matrix), kLeastNorm);
  at::Tensor x = at::empty_like(matrix);
  Combine(scale, matrix, 0.0, matrix, x);
  at::Tensor next = at::empty_like(x);
  at::Tensor gram = at::empty({x.size(0), x.size(0)}, x.options());
  at::Tensor square = at::empty_like(gram);
  for (int64_t step = 0; step < steps; ++step) {
    model::MultiplyTransposed(x, x, gram);
    model::MultiplyTransposed(gram, gram, square);  // the Gram matrix is its own transpose
    Combine(kB, gram, kC, square, square);
    model::MultiplyPlain(square, x, next);
    Combine(kA, x, 1.0, next, next);
    std::swap(x, next);
  }
  return x;
}

at::Tensor OnDevice(const at::Tensor& matrix, int64_t steps) {
  const at::Tensor norm = at::linalg_vector_norm(matrix).clamp_min(kLeastNorm);
  at::Tensor x = matrix.div(norm).to(at::kBFloat16);
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor factor = at::addmm(gram, gram, gram, /*beta=*/kB, /*alpha=*/kC);
    x = at::addmm(x, factor, x, /*beta=*/kA);
  }
  return x.to(at::kFloat);
}

}  // namespace

at::Tensor NewtonSchulz(const at::Tensor& matrix, int64_t steps) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  const at::Tensor wide = is_tall ? matrix.t().contiguous() : matrix;
  const at::Tensor x = wide.is_cpu() ? OnCpu(wide, steps) : OnDevice(wide, steps);
  return is_tall ? x.t().contiguous() : x;
}

}  // namespace tandem::trainer
