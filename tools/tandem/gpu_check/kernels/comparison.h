// Comparisons of our kernels with ATen's float64 arithmetic on the same device.
//
//   void CompareNorms(Comparer& comparer) {
//     comparer.Expect(model::Normalize(x, norm), model::Normalize(x.to(at::kDouble), wide), 1e-5,
//                     "rms, 896");
//   }
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_COMPARISON_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_COMPARISON_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

struct ComparerOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // float32 or bfloat16, of what the kernels compute
  // Small inputs and few cases, for tools under which a kernel takes a thousand times longer.
  bool small = false;
};

// Collects the cases of one comparison. Single-threaded.
class Comparer {
 public:
  explicit Comparer(const ComparerOptions& options) : options_(options) {}

  at::Device device() const { return options_.device; }
  at::ScalarType dtype() const { return options_.dtype; }
  bool small() const { return options_.small; }
  at::TensorOptions options() const { return at::device(device()).dtype(dtype()); }

  // Standard normal, of this dtype on this device.
  at::Tensor Random(std::vector<int64_t> sizes) const;
  // Rounding of results near 1: of a product or sum of normal numbers in this dtype.
  double tolerance() const { return dtype() == at::kFloat ? 1e-5 : 1e-2; }

  // |found - expected| / (1 + |expected|) should be at most `tolerance` everywhere; `what` names the
  // case. Both have one shape; `expected` is float64 or exact.
  void Expect(const at::Tensor& found, const at::Tensor& expected, double tolerance,
              const std::string& what);
  // Every element the same.
  void ExpectEqual(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
    Expect(found, expected, 0, what);
  }

  // On a GPU: that our kernels do not take such tensors, so that ATen was compared with itself.
  void ExpectOurs(bool ours);

  // {"passed", "ours", "cases", "greatest_difference", "tolerance", "worst"}: of the case that is
  // closest to its tolerance, or furthest beyond it. A comparison without cases has not passed.
  nlohmann::json Result() const;

 private:
  const ComparerOptions options_;
  int64_t cases_ = 0;
  bool ours_ = true;
  bool passed_ = true;
  double worst_share_ = -1;  // of its tolerance
  double greatest_ = 0;
  double tolerance_ = 0;
  std::string worst_;
};

struct Comparison {
  const char* name;
  at::ScalarType dtype;
  void (*run)(Comparer& comparer);
};

// All comparisons, in a fixed order.
std::vector<Comparison> AllComparisons();

// "norms, Float"; the type only where there is a choice.
std::string NameOf(const Comparison& comparison);

// Runs one with the seed that all begin with. Errors of a device are exceptions.
nlohmann::json RunComparison(const Comparison& comparison, at::Device device, bool small);

void CompareNorms(Comparer& comparer);
void CompareActivations(Comparer& comparer);
void CompareRotations(Comparer& comparer);
void CompareLinearAttention(Comparer& comparer);
void CompareLogProbs(Comparer& comparer);
void CompareRowProducts(Comparer& comparer);
void ComparePackedAttention(Comparer& comparer);
void ComparePagedAttention(Comparer& comparer);
void CompareExperts(Comparer& comparer);
void CompareRouting(Comparer& comparer);
void CompareLatentAttention(Comparer& comparer);
void CompareAbsorbedHeads(Comparer& comparer);
void CompareWeightCopies(Comparer& comparer);
void CompareWeightCasts(Comparer& comparer);
void CompareWeightDigests(Comparer& comparer);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_COMPARISON_H_
