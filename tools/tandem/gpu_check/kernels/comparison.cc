#include "tools/tandem/gpu_check/kernels/comparison.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tandem::gpu_check {

at::Tensor Comparer::Random(std::vector<int64_t> sizes) const {
  return at::randn(sizes).to(options());
}

void Comparer::Expect(const at::Tensor& found, const at::Tensor& expected, double tolerance,
                      const std::string& what) {
  ++cases_;
  double difference = std::numeric_limits<double>::infinity();
  if (found.sizes() == expected.sizes()) {
    const at::Tensor wide = expected.to(at::kDouble);
    const at::Tensor apart = (found.to(at::kDouble) - wide).abs() / (wide.abs() + 1.0);
    difference = apart.numel() == 0 ? 0.0 : apart.max().item<double>();
    // max() of undefined numbers is undefined; a difference of infinities too.
    if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
  }
  const bool fits = difference <= tolerance;
  const double share = tolerance > 0 ? difference / tolerance
                       : fits        ? 0.0
                                     : std::numeric_limits<double>::infinity();
  passed_ = passed_ && fits;
  if (share <= worst_share_) return;
  worst_share_ = share;
  greatest_ = difference;
  tolerance_ = tolerance;
  worst_ = what;
}

void Comparer::ExpectOurs(bool ours) {
  if (device().is_cuda() && !ours) ours_ = false;
}

nlohmann::json Comparer::Result() const {
  return {{"passed", passed_ && ours_ && cases_ > 0},
          {"ours", ours_},
          {"cases", cases_},
          {"greatest_difference",
           std::isfinite(greatest_) ? nlohmann::json(greatest_) : nlohmann::json("not finite")},
          {"tolerance", tolerance_},
          {"worst", worst_}};
}

std::vector<Comparison> AllComparisons() {
  std::vector<Comparison> all;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    all.push_back({"norms", dtype, CompareNorms});
    all.push_back({"activations", dtype, CompareActivations});
    all.push_back({"rotated heads", dtype, CompareRotations});
    all.push_back({"log-probs", dtype, CompareLogProbs});
    all.push_back({"exact products", dtype, CompareRowProducts});
    all.push_back({"exact packed attention", dtype, ComparePackedAttention});
    all.push_back({"paged attention", dtype, ComparePagedAttention});
    all.push_back({"experts", dtype, CompareExperts});
    all.push_back({"linear attention", dtype, CompareLinearAttention});
    all.push_back({"attention over latents", dtype, CompareLatentAttention});
    all.push_back({"absorbed heads", dtype, CompareAbsorbedHeads});
  }
  all.push_back({"routing", at::kFloat, CompareRouting});
  all.push_back({"weight copies", at::kByte, CompareWeightCopies});
  all.push_back({"weight casts", at::kFloat, CompareWeightCasts});
  all.push_back({"weight digests", at::kByte, CompareWeightDigests});
  return all;
}

std::string NameOf(const Comparison& comparison) {
  if (comparison.dtype == at::kByte) return comparison.name;
  return absl::StrCat(comparison.name, ", ", c10::toString(comparison.dtype));
}

nlohmann::json RunComparison(const Comparison& comparison, at::Device device, bool small) {
  const c10::InferenceMode inference;
  at::manual_seed(1);
  Comparer comparer({.device = device, .dtype = comparison.dtype, .small = small});
  comparison.run(comparer);
  nlohmann::json result = comparer.Result();
  result["name"] = NameOf(comparison);
  return result;
}

}  // namespace tandem::gpu_check
