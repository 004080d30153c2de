#include "services/trainer/algorithm/expert_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

// A model of more experts, of all layers, has no metrics of single ones: these would be most of a run's.
constexpr size_t kMostListedExperts = 256;

// Entropy of the experts' shares of the rows over that of equal shares: 1 if all have as many.
double LoadEntropy(absl::Span<const int64_t> rows, int64_t total) {
  if (rows.size() == 1) return 1.0;
  double entropy = 0.0;
  for (const int64_t count : rows) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(total);
    entropy -= share * std::log(share);
  }
  return entropy / std::log(static_cast<double>(rows.size()));
}

void AddLayer(int64_t layer, absl::Span<const int64_t> rows, bool lists_experts, Metrics& metrics) {
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (total == 0) return;
  const auto num_experts = static_cast<double>(rows.size());
  const double mean = static_cast<double>(total) / num_experts;
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  const double largest = static_cast<double>(*most) / mean;
  const std::string prefix = absl::StrCat("experts/layer_", layer, "/");
  metrics[prefix + "largest_load"] = largest;
  metrics[prefix + "smallest_load"] = static_cast<double>(*least) / mean;
  metrics[prefix + "load_entropy"] = LoadEntropy(rows, total);
  metrics[prefix + "unused"] =
      static_cast<double>(std::count(rows.begin(), rows.end(), 0)) / num_experts;
  for (size_t e = 0; e < rows.size() && lists_experts; ++e) {
    metrics[absl::StrCat(prefix, "expert_", e)] = static_cast<double>(rows[e]) / mean;
  }
  double& of_all = metrics["experts/largest_load"];
  of_all = std::max(of_all, largest);
}

// Adds the layer's rows to those of each of the ranks that split the experts.
void AddToRanks(absl::Span<const int64_t> rows, std::vector<int64_t>& of_ranks) {
  const size_t held = rows.size() / of_ranks.size();
  for (size_t e = 0; e < rows.size(); ++e) of_ranks[e / held] += rows[e];
}

void AddRankLoad(const std::vector<int64_t>& of_ranks, Metrics& metrics) {
  const int64_t total = std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{0});
  if (of_ranks.size() == 1 || total == 0) return;
  const double mean = static_cast<double>(total) / static_cast<double>(of_ranks.size());
  const int64_t most = *std::max_element(of_ranks.begin(), of_ranks.end());
  metrics["experts/largest_rank_load"] = static_cast<double>(most) / mean;
}

}  // namespace

absl::Status AddExpertMetrics(const std::vector<std::vector<int64_t>>& rows,
                              const comm::DeviceMesh& mesh, at::Device device, Metrics& metrics) {
  std::vector<int64_t> flat;
  for (const std::vector<int64_t>& layer : rows)
    flat.insert(flat.end(), layer.begin(), layer.end());
  if (flat.empty()) return absl::OkStatus();
  // Tensor-parallel ranks route the same tokens; sequence-parallel ones have their own.
  if (mesh.tensor().rank() != 0) std::fill(flat.begin(), flat.end(), 0);
  at::Tensor sums = at::tensor(flat, at::kLong).to(device);
  ASSIGN_OR_RETURN(auto work,
                   mesh.world().AllReduce(sums, comm::ReduceOp::kSum, "the experts' load"));
  RETURN_IF_ERROR(work->Wait());
  sums = sums.to(at::kCPU);
  const int64_t* next = sums.const_data_ptr<int64_t>();
  std::vector<int64_t> of_ranks(static_cast<size_t>(mesh.expert().size()), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const absl::Span<const int64_t> of_layer(next, rows[i].size());
    AddLayer(static_cast<int64_t>(i), of_layer, flat.size() <= kMostListedExperts, metrics);
    if (!of_layer.empty()) AddToRanks(of_layer, of_ranks);
    next += of_layer.size();
  }
  AddRankLoad(of_ranks, metrics);
  return absl::OkStatus();
}

}  // namespace tandem::trainer
