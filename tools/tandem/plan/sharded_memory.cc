#include "tools/tandem/plan/sharded_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/head_chunk.h"
#include "common/model/hidden_matrices.h"
#include "common/sharding/matrix_exchange.h"
#include "common/status/status_macros.h"

namespace tandem::plan {
namespace {

sharding::Saves SavesOf(config::v1::ActivationCheckpointing checkpointing) {
  switch (checkpointing) {
    case config::v1::ACTIVATION_CHECKPOINTING_FULL:
      return sharding::Saves::kNothing;
    case config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE:
      return sharding::Saves::kSelected;
    default:
      return sharding::Saves::kEverything;
  }
}

// Patterns name tensors of the policy; its reference has the same units, the critic trains all.
model::UnitLimits LimitsOf(const setup::RankSetup& setup, ShardedMemory::Role role) {
  model::UnitLimits limits = setup.unit_limits;
  if (role == ShardedMemory::Role::kCritic) limits.frozen_parameters.clear();
  return limits;
}

// An optimizer step loads an offloaded unit's shard: master, gradient, two moments.
constexpr int64_t kStateBytes = 4 * kFloat;

}  // namespace

ShardedMemory::ShardedMemory(MemoryLedger& ledger, const model::ModelSpec& spec,
                             const setup::RankSetup& setup, const RankWorkload& workload, Role role)
    : ledger_(ledger),
      spec_(role == Role::kCritic ? model::ValueModelSpec(spec) : spec),
      setup_(setup),
      workload_(workload),
      role_(role),
      // Parts may differ in size; no rank's is larger than the last one's.
      table_(spec_, LimitsOf(setup, role), {setup.mesh.tp - 1, setup.mesh.tp},
             {setup.mesh.ep - 1, setup.mesh.ep}),
      stages_(table_, SavesOf(setup.checkpointing), setup.checkpointing_interval),
      batch_{.tokens = (workload.tokens + setup.mesh.sequence - 1) / setup.mesh.sequence,
             .attention_tokens = workload.tokens,
             .sequences = workload.sequences,
             .longest_sequence = workload.longest_sequence,
             .hidden = spec.hidden_size,
             .element_bytes = setup.element_bytes,
             .tensor_ranks = setup.mesh.tp,
             .sequence_ranks = setup.mesh.sequence,
             .expert_ranks = setup.mesh.ep,
             .expert_load = workload.expert_load,
             .kernels = setup.kernels,
             .sees_ahead = workload.image_prompts > 0 && spec.vision.has_value() &&
                           spec.vision->images_see_ahead},
      layers_(spec_, table_, batch_),
      head_(role == Role::kCritic ? table_.value_head() : table_.lm_head()),
      head_rows_(table_.parameter(head_).shape.front()),
      pool_(ledger) {
  for (const model::Unit& unit : table_.units()) {
    const int ranks = unit.of_experts ? setup.mesh.dp_shard : setup.mesh.num_shards();
    const int per_host =
        unit.of_experts ? setup.mesh.expert_shards_per_host() : setup.mesh.shards_per_host();
    units_.push_back({.extent = sharding::ExtentOf(unit.numel, ranks),
                      .num_hosts = per_host == 0 ? 1 : ranks / per_host,
                      .trainable = unit.trainable,
                      .has_master = unit.trainable || unit.moved,
                      .alone = ranks == 1 && setup.offload == config::v1::OFFLOAD_NONE});
  }
  using Reduction = sharding::GradientReduction<ReductionOps>;
  Reduction::Options reduction;
  reduction.compute_type = setup.element_bytes;
  reduction.reduce_type =
      setup.reduces_in_float32 ? ReductionOps::kFloat32 : ReductionOps::kBFloat16;
  reduction.shared_unit = stages_.shared_unit();
  reduction_ = std::make_unique<Reduction>(reduction_ops_, reduction, ReducedUnits());
  optimizer_elements_ = 2 * trained();
  if (has_muon()) CountMuon();
  ledger_.SetPlace("between steps");
  if (setup.offload != config::v1::OFFLOAD_NONE) return;
  const auto take = [&](MemoryKind kind, int64_t bytes) {
    resident_.push_back(ledger_.Take(Kind(kind), bytes));
  };
  take(MemoryKind::kParameters, shard_bytes());
  if (role == Role::kReference) return;
  take(MemoryKind::kGradients, trained() * kFloat);
  take(MemoryKind::kOptimizer, optimizer_elements_ * kFloat);
}

int64_t ShardedMemory::owned() const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.extent.owned;
  return sum;
}

int64_t ShardedMemory::trained() const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.trainable ? unit.extent.owned : 0;
  return sum;
}

int64_t ShardedMemory::masters() const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.has_master ? unit.extent.owned : 0;
  return sum;
}

bool ShardedMemory::has_muon() const {
  if (role_ == Role::kReference) return false;
  return role_ == Role::kCritic ? setup_.critic_has_muon : setup_.policy_has_muon;
}

void ShardedMemory::CountMuon() {
  // Of the ranks that share a unit: all of them, or those that hold the same experts.
  struct Sharers {
    explicit Sharers(int ranks)
        : in_matrices(static_cast<size_t>(ranks), 0), loads(static_cast<size_t>(ranks), 0.0) {}
    int64_t least() const { return *std::min_element(in_matrices.begin(), in_matrices.end()); }

    std::vector<int64_t> in_matrices;
    std::vector<double> loads;
  };
  Sharers all(setup_.mesh.num_shards());
  Sharers of_experts(setup_.mesh.dp_shard);
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].trainable) continue;
    const std::vector<model::HiddenMatrix> matrices =
        model::HiddenMatricesOf(table_, static_cast<int>(u));
    Sharers& sharers = table_.units()[u].of_experts ? of_experts : all;
    const size_t num_ranks = sharers.loads.size();
    const sharding::MatrixExchange exchange = sharding::PlanMatrixExchange(
        matrices, units_[u].extent.owned, static_cast<int>(num_ranks), sharers.loads);
    for (const sharding::MatrixExchange::Piece& piece : exchange.pieces) {
      sharers.in_matrices[static_cast<size_t>(piece.sender)] += piece.count;
    }
    int64_t iteration = 0;  // its input, and two or three more and two Gram matrices
    for (const model::HiddenMatrix& matrix : matrices) {
      const int64_t side = std::min(matrix.rows, matrix.columns);
      const int64_t copies = matrix.rows > matrix.columns ? 4 : 3;
      iteration = std::max(iteration, copies * matrix.numel() + 2 * side * side);
    }
    const int64_t buffers = num_ranks > 1 ? 2 : 1;
    optimizer_step_elements_ =
        std::max(optimizer_step_elements_,
                 buffers * static_cast<int64_t>(num_ranks) * exchange.slice + iteration);
  }
  optimizer_elements_ = 2 * trained() - all.least() - of_experts.least();
}

int64_t ShardedMemory::shard_bytes() const {
  const bool casts = setup_.element_bytes != kFloat;
  const int64_t computed = casts ? owned() : owned() - masters();
  return masters() * kFloat + computed * setup_.element_bytes;
}

int64_t ShardedMemory::largest_unit() const {
  int64_t most = 0;
  for (const Unit& unit : units_) most = std::max(most, unit.extent.padded);
  return most;
}

int64_t ShardedMemory::state_bytes() const {
  return shard_bytes() +
         (role_ == Role::kReference ? 0 : (trained() + optimizer_elements_) * kFloat);
}

MemoryKind ShardedMemory::Kind(MemoryKind of_policy) const {
  if (role_ == Role::kReference) return MemoryKind::kReference;
  if (role_ == Role::kPolicy) return of_policy;
  // The critic's graph has the same size as the policy's and lives at other times.
  const bool passing = of_policy == MemoryKind::kActivations || of_policy == MemoryKind::kHead;
  return passing ? of_policy : MemoryKind::kCritic;
}

int64_t ShardedMemory::image_rows() const {
  const int64_t all = workload_.image_prompts * workload_.rows_per_prompt;
  const int ranks = setup_.mesh.sequence;
  return ranks == 1 ? all : std::min(all, (all + ranks - 1) / ranks + workload_.rows_per_prompt);
}

int64_t ShardedMemory::image_tokens() const {
  return std::min(batch_.tokens, workload_.sequences * workload_.rows_per_prompt);
}

Size ShardedMemory::TakePixels() {
  if (!has_images()) return nullptr;
  const int64_t patches = LoadOf(*spec_.vision, image_rows(), workload_.rows_per_prompt).patches;
  // A GPU has them in the type in which the tower reads them.
  const int64_t element_bytes =
      setup_.kernels == setup::Kernels::kPlain ? setup_.element_bytes : kFloat;
  return ledger_.Take(MemoryKind::kActivations,
                      patches * spec_.vision->patch_elements() * element_bytes);
}

int64_t ShardedMemory::rows() const {
  return (workload_.rows + setup_.mesh.sequence - 1) / setup_.mesh.sequence;
}

// Transformer::Values() computes in float32.
int64_t ShardedMemory::WidenedRowBytes() const {
  const bool widens = role_ == Role::kCritic && batch_.element_bytes != kFloat;
  return widens ? rows() * batch_.hidden * kFloat : 0;
}

std::vector<sharding::ReducedUnit> ShardedMemory::ReducedUnits() const {
  std::vector<sharding::ReducedUnit> units;
  for (const Unit& unit : units_) {
    units.push_back({.extent = unit.extent, .num_hosts = unit.num_hosts});
  }
  return units;
}

void ShardedMemory::Begin(bool backward) {
  schedule_ = sharding::GatherSchedule(
      stages_.UnitsOfSteps(backward),
      {.prefetch = setup_.prefetch_units, .reshard_after_forward = setup_.reshard_after_forward});
}

void ShardedMemory::Enter(size_t step) {
  for (const int unit : schedule_.step(step).frees) {
    if (units_[unit].alone) continue;
    pool_.Release(std::exchange(units_[unit].gathered, {}));
  }
  for (const int unit : schedule_.step(step).gathers) {
    if (units_[unit].alone) continue;
    units_[unit].gathered = pool_.Acquire(Kind(MemoryKind::kGatheredUnits),
                                          units_[unit].extent.padded, setup_.element_bytes);
  }
}

void ShardedMemory::End() {
  for (Unit& unit : units_) {
    if (unit.gathered.size != nullptr) pool_.Release(std::exchange(unit.gathered, {}));
  }
}

absl::Status ShardedMemory::AddGradients(int stage) {
  for (const sharding::UnitGradients& unit : stages_.GradientsOf(stage)) {
    if (units_[unit.unit].alone) continue;
    RETURN_IF_ERROR(reduction_->Open(unit.unit));
    if (unit.completes) {
      RETURN_IF_ERROR(reduction_->Complete(unit.unit));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardedMemory::PassOps::EnterForward(int stage) {
  const bool is_head = stage == memory_.stages_.head();
  memory_.ledger_.SetPlace(!is_head  ? absl::StrCat("forward of stage ", stage)
                           : trains_ ? "the head"
                                     : "forward of the head");
  memory_.Enter(stage);
  return absl::OkStatus();
}

absl::Status ShardedMemory::PassOps::EnterBackward(int stage) {
  memory_.ledger_.SetPlace(absl::StrCat("backward of stage ", stage));
  memory_.Enter(memory_.stages_.BackwardStep(stage));
  return absl::OkStatus();
}

// Each step of Transformer::Embed() makes a tensor of its own from the one before.
Size ShardedMemory::PassOps::RunEmbedding(sharding::Saves saves, std::vector<Size>& made) {
  const model::ModelSpec& spec = memory_.spec_;
  const auto take = [this] {
    const CountedBatch& batch = memory_.batch_;
    return memory_.ledger_.Take(MemoryKind::kActivations, batch.Bytes(batch.hidden));
  };
  Size x = take();
  if (spec.embedding_multiplier != 1.0) x = take();
  if (memory_.table_.position_embedding() >= 0) {
    const Size positions = take();
    x = take();
  }
  if (spec.embedding_norm.has_value()) {
    Size normed = take();
    if (saves != sharding::Saves::kNothing) embedding_norm_input_ = x;
    x = std::move(normed);
  }
  if (spec.layer_inputs.has_value()) {
    made.assign(static_cast<size_t>(spec.num_layers()), MakeLayerInputs(saves));
  }
  return memory_.has_images() ? PutImages(saves, made) : x;
}

int64_t ShardedMemory::PassOps::LayerInputBytes() const {
  return memory_.batch_.Bytes(memory_.spec_.layer_input_size());
}

// Each step of Transformer::MakeLayerInputs() makes a tensor of its own from the one before.
Size ShardedMemory::PassOps::MakeLayerInputs(sharding::Saves saves) {
  const auto take = [this] {
    return memory_.ledger_.Take(MemoryKind::kActivations, LayerInputBytes());
  };
  Size projected = take();
  projected = take();
  Size inputs = take();
  if (saves != sharding::Saves::kNothing) {
    const int64_t norms = memory_.batch_.tokens * memory_.spec_.num_layers();
    layer_inputs_saved_ = {std::move(projected),
                           memory_.ledger_.Take(MemoryKind::kActivations, norms * kFloat)};
  }
  projected.reset();
  Size rows = take();
  rows = take();
  inputs = take();
  rows.reset();
  return take();
}

Size ShardedMemory::PassOps::TakeGradient(std::initializer_list<int> parameters) {
  int64_t numel = 0;
  for (const int index : parameters) {
    if (index < 0) continue;
    const model::Parameter& parameter = memory_.table_.parameter(index);
    numel += parameter.trainable ? parameter.numel : 0;
  }
  return memory_.ledger_.Take(MemoryKind::kGradientBuffers, numel * memory_.batch_.element_bytes);
}

void ShardedMemory::PassOps::LayerInputsBackward(std::vector<Size>& gradients) {
  const auto take = [this] {
    return memory_.ledger_.Take(MemoryKind::kActivations, LayerInputBytes());
  };
  const model::LayerInputParameters& at = memory_.table_.layer_inputs();
  Size of_sum = take();  // of the layers' gradients, put together
  of_sum = take();
  {
    const Size of_rows = take();
    gradients.push_back(TakeGradient({at.table}));
  }
  const Size of_normed = take();
  of_sum.reset();
  layer_inputs_saved_.clear();
  const Size of_projected = take();
  gradients.push_back(TakeGradient({at.projection, at.norm.weight}));
}

Size ShardedMemory::PassOps::PutImages(sharding::Saves saves, std::vector<Size>& made) {
  const CountedBatch& batch = memory_.batch_;
  const bool has_graph = saves != sharding::Saves::kNothing && memory_.table_.trains_vision();
  auto tower = std::make_unique<TowerMemory>(
      memory_.ledger_, memory_.table_, batch,
      LoadOf(*memory_.spec_.vision, memory_.image_rows(), memory_.workload_.rows_per_prompt));
  const Size rows = tower->Forward(has_graph);
  if (has_graph) tower_ = std::move(tower);
  std::vector<Size> selected;  // of all parts
  for (int64_t part = 0; part < memory_.spec_.vision->num_row_parts(); ++part) {
    selected.push_back(TakeImageRows());
    if (part > 0) made.push_back(TakeImageRows());
  }
  return memory_.ledger_.Take(MemoryKind::kActivations, batch.Bytes(batch.hidden));
}

bool ShardedMemory::PassOps::AddsImageRows(int stage) const {
  return memory_.has_images() &&
         stage <= static_cast<int>(memory_.spec_.vision->deepstack_layers.size());
}

Size ShardedMemory::PassOps::TakeImageRows() {
  const CountedBatch& batch = memory_.batch_;
  return memory_.ledger_.Take(MemoryKind::kActivations,
                              memory_.image_tokens() * batch.hidden * batch.element_bytes);
}

std::vector<Size> ShardedMemory::PassOps::ImagesBackward() {
  const CountedBatch& batch = memory_.batch_;
  const auto take = [&](int64_t rows) {
    return memory_.ledger_.Take(MemoryKind::kActivations,
                                rows * batch.hidden * batch.element_bytes);
  };
  // That of the embedding, zero where images are; of each token's row; of each row.
  const Size of_embedding = take(batch.tokens);
  if (tower_ == nullptr) return {};
  const int64_t parts = memory_.spec_.vision->num_row_parts();
  const Size of_tokens = take(memory_.image_tokens() * parts);
  Size of_rows = take(memory_.image_rows() * parts);
  return std::exchange(tower_, nullptr)->Backward(std::move(of_rows));
}

Size ShardedMemory::PassOps::RunStage(int stage, const Inputs& inputs, sharding::Saves saves,
                                      Graph& graph, std::vector<Size>& made) {
  if (stage == 0) return RunEmbedding(saves, made);
  graph = std::make_unique<LayerReplay>(memory_.ledger_, memory_.layers_.Of(stage - 1, saves));
  Size x = graph->Forward(inputs.x, &made);
  if (AddsImageRows(stage)) {
    // In a tensor of its own.
    const CountedBatch& batch = memory_.batch_;
    x = memory_.ledger_.Take(MemoryKind::kActivations, batch.Bytes(batch.hidden));
  }
  return x;
}

// Keys and values, which several layers read: sums are in float32.
Size ShardedMemory::PassOps::Add(int carried, const Size& /*sum*/, const Size& /*gradient*/) {
  const int maker = memory_.stages_.carried()[carried].maker;
  const model::AttentionSpec& attention = memory_.spec_.layers[maker - 1].attention;
  const int64_t heads = model::PartOf(attention, memory_.table_.tensor_parallel()).kv_heads.size();
  const int64_t columns = heads * (attention.head_dim + attention.value_dim());
  return memory_.ledger_.Take(MemoryKind::kActivations, memory_.batch_.tokens * columns * kFloat);
}

ShardedMemory::PassOps::Inputs ShardedMemory::PassOps::Backward(int stage, Boundary& boundary,
                                                                const Outputs& /*output_gradients*/,
                                                                std::vector<Size>& gradients) {
  if (stage == 0) {
    if (memory_.spec_.layer_inputs.has_value()) LayerInputsBackward(gradients);
    if (memory_.has_images()) {
      std::vector<Size> of_tower = ImagesBackward();
      std::move(of_tower.begin(), of_tower.end(), std::back_inserter(gradients));
    }
    const CountedBatch& batch = memory_.batch_;
    if (embedding_norm_input_ != nullptr) {
      const Size x_gradient =
          memory_.ledger_.Take(MemoryKind::kActivations, batch.Bytes(batch.hidden));
      embedding_norm_input_ = nullptr;
    }
    // Of the tables whose rows are looked up. A tower's are among its gradients.
    const model::ParameterTable& table = memory_.table_;
    gradients.push_back(TakeGradient({table.embedding(), table.position_embedding()}));
    return {};
  }
  gradients = boundary.graph->Backward();
  Inputs of_inputs{std::move(gradients.back()), boundary.graph->TakeReadGradients()};
  gradients.pop_back();
  if (AddsImageRows(stage)) of_inputs.reads.push_back(TakeImageRows());
  return of_inputs;
}

absl::Status ShardedMemory::PassOps::AddGradients(int stage,
                                                  const std::vector<Size>& /*gradients*/) {
  return memory_.AddGradients(stage);
}

absl::Status ShardedMemory::PassOps::FinishGradients() { return memory_.reduction_->Finish(); }

void ShardedMemory::Forward() {
  Begin(/*backward=*/false);
  const Size pixels = TakePixels();
  PassOps ops(*this, /*trains=*/false);
  const absl::StatusOr<Size> x = sharding::ForwardPass(ops, stages_);
  HeadForward();
  End();
}

int64_t ShardedMemory::HeadChunk() const {
  return std::min(rows(),
                  model::HeadChunkRows(head_rows_, batch_.kernels == setup::Kernels::kPlain));
}

// Keeps log-probs, entropies and log-sum-exp of the rows; an upper bound for a value head.
void ShardedMemory::HeadForward() {
  const Size selected =
      ledger_.Take(MemoryKind::kHead, 2 * rows() * batch_.hidden * batch_.element_bytes);
  const Size widened = ledger_.Take(MemoryKind::kHead, WidenedRowBytes());
  const Size outputs = ledger_.Take(MemoryKind::kHead, 3 * rows() * kFloat);
  const Size logits = ledger_.Take(MemoryKind::kHead, HeadChunk() * head_rows_ * kFloat);
}

void ShardedMemory::ForwardBackward() {
  Begin(/*backward=*/true);
  // MakePass() makes the rotary table of the tokens.
  const model::AttentionSpec& attention = spec_.layers.front().attention;
  const int64_t rotary_dim =
      attention.latent.has_value() ? attention.latent->rope_dim : attention.head_dim;
  const Size rotary =
      ledger_.Take(MemoryKind::kActivations, workload_.tokens * rotary_dim * kFloat);
  const Size pixels = TakePixels();
  PassOps ops(*this, /*trains=*/true);
  sharding::TrainingPass(ops, stages_).IgnoreError();  // no operation on sizes fails
  End();
}

Size ShardedMemory::HeadForwardBackward(const Size& x) {
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kHead, bytes); };
  const int64_t hidden_row = batch_.hidden * batch_.element_bytes;
  const bool all_rows = workload_.rows == workload_.tokens;
  Size selected = all_rows ? x : take(rows() * hidden_row);
  const bool plain = batch_.kernels == setup::Kernels::kPlain;
  const bool has_mean =
      spec_.final_norm.has_value() && spec_.final_norm->kind == model::NormKind::kLayer;
  Size normed = take(spec_.final_norm.has_value() ? rows() * hidden_row : 0);
  Size norm_saved = take((has_mean ? 2 : 1) * rows() * kFloat);
  Size widened = take(WidenedRowBytes());
  Size outputs = take(3 * rows() * kFloat);
  take(HeadChunk() * head_rows_ * kFloat);
  // The loss and its gradients, a few float32 rows.
  const Size loss = take(4 * rows() * kFloat);

  std::vector<Size> gradients;
  Size grad_widened = take(WidenedRowBytes());
  widened.reset();
  Size grad_normed = take(rows() * hidden_row);
  grad_widened.reset();
  {
    const model::Parameter& weight = table_.parameter(head_);
    const int64_t weight_numel = weight.trainable ? weight.numel : 0;
    Size sum = take(weight_numel * kFloat);
    // On a GPU the gradient of bfloat16 products is a tensor beside the logits.
    const bool apart = plain && batch_.element_bytes != kFloat;
    take(HeadChunk() * head_rows_ * (kFloat + (apart ? batch_.element_bytes : 0)));
    if (batch_.element_bytes == kFloat) {
      gradients.push_back(sum);
    } else {
      gradients.push_back(take(weight_numel * batch_.element_bytes));
    }
    if (const int bias = table_.lm_head_bias(); bias >= 0 && table_.parameter(bias).trainable) {
      gradients.push_back(take(table_.parameter(bias).numel * kFloat));
    }
  }
  normed.reset();
  Size x_gradient = take(rows() * hidden_row);
  grad_normed.reset();
  norm_saved.reset();
  if (!all_rows) {
    Size spread = ledger_.Take(MemoryKind::kActivations, batch_.tokens * hidden_row);
    x_gradient = std::move(spread);
  }
  AddGradients(stages_.head()).IgnoreError();
  return x_gradient;
}

void ShardedMemory::OptimizerStep() {
  ledger_.SetPlace("the optimizer's step");
  reduction_->Reset();
  Size exchanged;
  if (has_muon()) {
    exchanged = ledger_.Take(Kind(MemoryKind::kOptimizer), optimizer_step_elements_ * kFloat);
  }
  if (setup_.offload == config::v1::OFFLOAD_NONE) return;
  int64_t most = 0;
  for (const Unit& unit : units_) most = std::max(most, unit.trainable ? unit.extent.owned : 0);
  ledger_.Take(Kind(MemoryKind::kOptimizer), most * kStateBytes);
}

}  // namespace tandem::plan
