#include "tools/tandem/plan/auto_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/validation.h"
#include "common/rank_setup/mesh_shape.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "tools/tandem/plan/mesh_fit.h"

namespace tandem::plan {
namespace {

// Whether every rank of a tensor-parallel group would have the same number of key-value heads, and of
// key heads of linear attention.
// Muon updates whole matrices, which tensor parallelism splits.
bool UsesMuon(const config::v1::RunConfig& config) {
  return config.actor().optim().name() == config::v1::OPTIMIZER_NAME_MUON ||
         config.critic().optim().name() == config::v1::OPTIMIZER_NAME_MUON;
}

bool DividesHeads(const model::ModelSpec& spec, int tp) {
  return std::all_of(spec.layers.begin(), spec.layers.end(), [tp](const model::LayerSpec& layer) {
    const std::optional<model::DeltaSpec>& delta = layer.attention.delta;
    return layer.attention.num_kv_heads % tp == 0 &&
           (!delta.has_value() || delta->num_key_heads % tp == 0);
  });
}

using config::v1::ActivationCheckpointing;
using config::v1::Offload;
using config::v1::RunConfig;

// Longer micro-batches gain nothing: the products are already large enough.
constexpr int64_t kMostMicroBatchTokens = 32768;
constexpr double kAsFast = 1.02;
constexpr size_t kMostReasons = 10;

std::string Checkpointing(ActivationCheckpointing mode) {
  switch (mode) {
    case config::v1::ACTIVATION_CHECKPOINTING_FULL:
      return "with full checkpointing";
    case config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE:
      return "with selective checkpointing";
    default:
      return "without checkpointing";
  }
}

std::string Strategy(const comm::MeshShape& mesh) {
  if (mesh.size() == 1) return "one rank";
  const std::string name = mesh.dp_shard == 1 && mesh.dp_replicate > 1 ? "no_shard"
                           : mesh.dp_replicate > 1                     ? "hybrid_shard"
                                                                       : "full_shard";
  return absl::StrCat(name, " (", DescribeMesh(mesh), ")");
}

int NumDimensions(const comm::MeshShape& mesh) {
  return (mesh.dp_replicate > 1) + (mesh.dp_shard > 1) + (mesh.tp > 1) + (mesh.sequence > 1);
}

class Search {
 public:
  explicit Search(const PlanRequest& request) : request_(request) {}

  absl::StatusOr<RunPlan> Run() {
    ASSIGN_OR_RETURN(const std::vector<comm::MeshShape> whole, Meshes(/*shares_sequences=*/false));
    TryAll(whole, config::v1::OFFLOAD_NONE);
    if (!best_.has_value() && !Stated("trainer.ulysses_sequence_parallel_size")) {
      ASSIGN_OR_RETURN(const std::vector<comm::MeshShape> split, Meshes(true));
      TryAll(split, config::v1::OFFLOAD_NONE);
      if (!best_.has_value()) TryAll(split, OffloadHere());
    }
    if (!best_.has_value()) TryAll(whole, OffloadHere());
    if (!first_error_.ok() && !best_.has_value() && !least_.has_value()) return first_error_;
    RunPlan plan = best_.has_value() ? *best_ : *least_;
    plan.reasons = Reasons(plan);
    if (!best_.has_value()) plan.problem = Problem(plan);
    return plan;
  }

 private:
  bool Stated(const char* key) const { return request_.places.count(key) > 0; }

  Offload OffloadHere() const {
    return request_.hardware.is_gpu ? config::v1::OFFLOAD_CPU : config::v1::OFFLOAD_DISK;
  }

  // Simple meshes first.
  absl::StatusOr<std::vector<comm::MeshShape>> Meshes(bool shares_sequences) const {
    const int ranks = static_cast<int>(request_.config.trainer().ranks());
    if (!request_.config.trainer().mesh_shape().empty() || Stated("trainer.sharding_strategy")) {
      absl::StatusOr<comm::MeshShape> mesh = setup::MeshShapeOf(
          request_.config.trainer(), std::min(ranks, request_.hardware.per_host));
      if (!mesh.ok()) {
        return absl::InvalidArgumentError(
            WithPlace(request_.places, std::string(mesh.status().message())));
      }
      return std::vector<comm::MeshShape>{*mesh};
    }
    std::vector<comm::MeshShape> meshes;
    const auto stated_sequence =
        static_cast<int>(request_.config.trainer().ulysses_sequence_parallel_size());
    const int most_tp = UsesMuon(request_.config) ? 1 : std::min(ranks, request_.hardware.per_host);
    for (int tp = 1; tp <= most_tp; ++tp) {
      // With unequal parts, ranks wait for the largest.
      if (ranks % tp != 0 || !DividesHeads(request_.spec, tp)) continue;
      for (int shard = ranks / tp; shard >= 1; --shard) {
        if (ranks / tp % shard != 0) continue;
        for (int sequence = shares_sequences ? 2 : stated_sequence;
             sequence <= (shares_sequences ? request_.hardware.per_host / tp : stated_sequence);
             sequence *= 2) {
          const comm::MeshShape mesh{.dp_replicate = ranks / tp / shard,
                                     .dp_shard = shard,
                                     .tp = tp,
                                     .sequence = sequence,
                                     .ranks_per_host = std::min(ranks, request_.hardware.per_host)};
          if (shard % sequence == 0 && FindMeshProblems(mesh, request_.spec).empty()) {
            meshes.push_back(mesh);
          }
        }
      }
    }
    return meshes;
  }

  void TryAll(const std::vector<comm::MeshShape>& meshes, Offload offload) {
    if (Stated("trainer.offload")) {
      if (tried_offload_) return;
      tried_offload_ = offload != config::v1::OFFLOAD_NONE;
      offload = request_.config.trainer().offload();
    }
    std::vector<ActivationCheckpointing> modes = {config::v1::ACTIVATION_CHECKPOINTING_NONE,
                                                  config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE,
                                                  config::v1::ACTIVATION_CHECKPOINTING_FULL};
    if (Stated("trainer.activation_checkpointing")) {
      modes = {request_.config.trainer().activation_checkpointing()};
    }
    for (const comm::MeshShape& mesh : meshes) {
      for (const ActivationCheckpointing mode : modes) Try(mesh, mode, offload);
    }
  }

  // Uses the largest micro-batches that fit.
  void Try(const comm::MeshShape& mesh, ActivationCheckpointing mode, Offload offload) {
    RunConfig config = request_.config;
    config::v1::TrainerConfig& trainer = *config.mutable_trainer();
    trainer.clear_mesh();
    SetMesh(mesh, trainer);
    if (Stated("trainer.sharding_strategy")) {
      trainer.set_sharding_strategy(request_.config.trainer().sharding_strategy());
    }
    trainer.set_activation_checkpointing(mode);
    trainer.set_offload(offload);
    const std::string what =
        absl::StrCat(Strategy(mesh), " ", Checkpointing(mode),
                     offload == config::v1::OFFLOAD_CPU    ? ", state in host memory,"
                     : offload == config::v1::OFFLOAD_DISK ? ", state on disk,"
                                                           : "");
    if (request_.this_build) {
      const std::vector<std::string> unbuilt = config::FindInvalidValues(config, {});
      if (!unbuilt.empty()) {
        if (unbuilt_.insert(unbuilt[0]).second) {
          tried_.push_back(absl::StrCat(what, " is skipped: ", unbuilt[0], "."));
        }
        return;
      }
    }
    std::vector<int64_t> sizes = {trainer.max_tokens_per_micro_batch()};
    if (!Stated("trainer.max_tokens_per_micro_batch")) {
      const BatchPlan batch = PlanBatch(config, mesh);
      const int64_t all = batch.samples_per_rank * batch.longest_sequence;
      sizes.clear();
      for (int64_t tokens = batch.longest_sequence;; tokens *= 2) {
        sizes.push_back(tokens);
        if (tokens >= all || 2 * tokens > kMostMicroBatchTokens) break;
      }
    }
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      trainer.set_max_tokens_per_micro_batch(*size);
      absl::StatusOr<RunPlan> plan = EvaluatePlan(request_, config);
      if (!plan.ok()) {
        first_error_.Update(plan.status());
        return;
      }
      ++num_evaluated_;
      if (!plan->fits() && std::next(size) != sizes.rend()) continue;
      Record(what, *std::move(plan));
      return;
    }
  }

  void Record(const std::string& what, RunPlan plan) {
    const std::string need = FormatBytes(plan.needed_bytes());
    const std::string have = FormatBytes(std::max<int64_t>(0, plan.budget.rank_bytes));
    const int64_t tokens = plan.config.trainer().max_tokens_per_micro_batch();
    if (!plan.fits()) {
      tried_.push_back(absl::StrCat(what, " needs ", need, " of ", have, ", with micro-batches of ",
                                    tokens, " tokens."));
      if (!least_.has_value() || plan.needed_bytes() < least_->needed_bytes()) {
        least_ = std::move(plan);
      }
      return;
    }
    tried_.push_back(absl::StrFormat("%s needs %s of %s, with micro-batches of %d tokens: %.1f s.",
                                     what, need, have, tokens, plan.cost.total()));
    if (!best_.has_value() || IsBetter(plan, *best_)) {
      best_ = std::move(plan);
      best_index_ = tried_.size() - 1;
    }
  }

  static bool IsBetter(const RunPlan& a, const RunPlan& b) {
    if (a.cost.total() * kAsFast < b.cost.total()) return true;
    if (b.cost.total() * kAsFast < a.cost.total()) return false;
    if (NumDimensions(a.mesh) != NumDimensions(b.mesh)) {
      return NumDimensions(a.mesh) < NumDimensions(b.mesh);
    }
    return a.cost.total() * 1.0001 < b.cost.total();
  }

  std::vector<std::string> Reasons(const RunPlan& plan) const {
    std::vector<std::string> reasons;
    for (size_t i = 0; i < tried_.size() && reasons.size() < kMostReasons; ++i) {
      if (!best_.has_value() || i != best_index_) reasons.push_back(tried_[i]);
    }
    const size_t shown = reasons.size() + (best_.has_value() ? 1 : 0);
    if (tried_.size() > shown) {
      reasons.push_back(absl::StrCat("... and ", text::Count(tried_.size() - shown, "other"), "."));
    }
    if (best_.has_value()) {
      reasons.push_back(absl::StrFormat(
          "Chosen: %s Per step: %.1f s compute, %.1f s communication in parallel, %.1f s other.",
          tried_[best_index_], plan.cost.compute, plan.cost.sharding,
          plan.cost.total() - std::max(plan.cost.compute, plan.cost.sharding)));
    }
    return reasons;
  }

  // The memory that it would need.
  std::string Problem(const RunPlan& least) const {
    if (!least.budget.problem.empty()) return least.problem;
    std::string problem = absl::StrCat(
        WithPlace(request_.places, "trainer.mesh"), ": no plan fits: the smallest one needs ",
        FormatBytes(least.needed_bytes()),
        least.mesh.size() == 1 ? "" : absl::StrCat(" for each of ", least.mesh.size(), " ranks"),
        ", but a rank has ", FormatBytes(least.budget.rank_bytes));
    RunConfig config = least.config;
    for (int64_t ranks = 2 * least.mesh.size(); ranks <= 65536; ranks *= 2) {
      comm::MeshShape mesh = least.mesh;
      mesh.dp_shard = static_cast<int>(ranks / mesh.tp);
      mesh.dp_replicate = 1;
      config.mutable_trainer()->set_ranks(ranks);
      SetMesh(mesh, *config.mutable_trainer());
      const absl::StatusOr<RunPlan> larger = EvaluatePlan(request_, config);
      if (!larger.ok() || larger->needed_bytes() > least.budget.rank_bytes) continue;
      return absl::StrCat(problem, "; ", ranks, " ranks with the same memory would fit");
    }
    return absl::StrCat(problem,
                        "; more ranks do not help: use more memory per rank or shorter sequences");
  }

  const PlanRequest& request_;
  std::optional<RunPlan> best_;   // best plan that fits
  std::optional<RunPlan> least_;  // of plans that do not fit, the one with the lowest peak
  absl::Status first_error_;
  std::vector<std::string> tried_;
  std::set<std::string> unbuilt_;
  size_t best_index_ = 0;
  int64_t num_evaluated_ = 0;
  bool tried_offload_ = false;
};

}  // namespace

absl::StatusOr<RunPlan> ChoosePlan(const PlanRequest& request) { return Search(request).Run(); }

}  // namespace tandem::plan
