#include "tools/tandem/plan/sharded_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::plan {
namespace {

constexpr int64_t kFloat = 4;  // bytes
constexpr int64_t kBFloat16 = 2;

// common/model/head.cc.
int64_t ChunkRows(int64_t vocab) {
  return std::clamp<int64_t>((int64_t{1} << 24) / vocab / 64 * 64, 64, 1024);
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
      table_(spec_, LimitsOf(setup, role), {setup.mesh.tp - 1, setup.mesh.tp}),
      batch_{.tokens = (workload.tokens + setup.mesh.sequence - 1) / setup.mesh.sequence,
             .attention_tokens = workload.tokens,
             .sequences = workload.sequences,
             .longest_sequence = workload.longest_sequence,
             .hidden = spec.hidden_size,
             .element_bytes = setup.element_bytes,
             .tensor_ranks = setup.mesh.tp,
             .sequence_ranks = setup.mesh.sequence,
             .kernels = setup.kernels},
      shard_ranks_(setup.mesh.dp_shard),
      alone_(setup.mesh.dp_shard == 1 && setup.offload == config::v1::OFFLOAD_NONE),
      vocab_(model::PartOf(spec.vocab_size, {setup.mesh.tp - 1, setup.mesh.tp}).size()),
      head_rows_(role == Role::kCritic ? 1 : vocab_) {
  for (const model::Unit& layout : table_.units()) {
    Unit unit;
    unit.owned = (layout.numel + shard_ranks_ - 1) / shard_ranks_;
    unit.numel = unit.owned * shard_ranks_;
    unit.trainable = layout.trainable;
    units_.push_back(std::move(unit));
  }
  ledger_.SetPlace("between steps");
  if (setup.offload != config::v1::OFFLOAD_NONE) return;
  const auto take = [&](MemoryKind kind, int64_t bytes) {
    resident_.push_back(ledger_.Take(Kind(kind), bytes));
  };
  take(MemoryKind::kParameters, shard_bytes());
  if (role == Role::kReference) return;
  take(MemoryKind::kGradients, trained() * kFloat);
  take(MemoryKind::kOptimizer, 2 * trained() * kFloat);
}

int64_t ShardedMemory::owned() const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.owned;
  return sum;
}

int64_t ShardedMemory::trained() const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.trainable ? unit.owned : 0;
  return sum;
}

int64_t ShardedMemory::shard_bytes() const {
  const bool casts = setup_.element_bytes != kFloat;
  const int64_t computed = casts ? owned() : owned() - trained();
  return trained() * kFloat + computed * setup_.element_bytes;
}

int64_t ShardedMemory::largest_unit() const {
  int64_t most = 0;
  for (const Unit& unit : units_) most = std::max(most, unit.numel);
  return most;
}

int64_t ShardedMemory::state_bytes() const {
  return shard_bytes() + (role_ == Role::kReference ? 0 : trained() * 3 * kFloat);
}

MemoryKind ShardedMemory::Kind(MemoryKind of_policy) const {
  if (role_ == Role::kReference) return MemoryKind::kReference;
  if (role_ == Role::kPolicy) return of_policy;
  // The critic's graph has the same size as the policy's and lives at other times.
  const bool passing = of_policy == MemoryKind::kActivations || of_policy == MemoryKind::kHead;
  return passing ? of_policy : MemoryKind::kCritic;
}

int64_t ShardedMemory::rows() const {
  return (workload_.rows + setup_.mesh.sequence - 1) / setup_.mesh.sequence;
}

// Transformer::Values() computes in float32.
int64_t ShardedMemory::WidenedRowBytes() const {
  const bool widens = role_ == Role::kCritic && batch_.element_bytes != kFloat;
  return widens ? rows() * batch_.hidden * kFloat : 0;
}

bool ShardedMemory::Checkpointed(int stage) const {
  // The embedding's graph holds no activations, so it stays.
  return stage > 0 && (stage - 1) % setup_.checkpointing_interval == 0;
}

// A tied model's embedding, to which two stages add, is summed in float32.
int64_t ShardedMemory::LayBytes(int unit) const {
  const bool shared =
      spec_.tie_word_embeddings && unit == table_.parameter(table_.embedding()).unit;
  return shared ? kFloat : setup_.element_bytes;
}

// Keeps a released buffer for the next one of its size.
ShardedMemory::Buffer ShardedMemory::Acquire(MemoryKind kind, int64_t numel,
                                             int64_t element_bytes) {
  Buffer buffer;
  buffer.key = {numel, element_bytes};
  std::vector<Size>& free = pool_[buffer.key];
  if (free.empty()) {
    buffer.size = ledger_.Take(Kind(kind), numel * element_bytes);
  } else {
    buffer.size = std::move(free.back());
    free.pop_back();
  }
  return buffer;
}

void ShardedMemory::Release(Buffer buffer) { pool_[buffer.key].push_back(std::move(buffer.size)); }

void ShardedMemory::Begin(bool backward) {
  steps_.clear();
  for (int stage = 0; stage <= stages(); ++stage) steps_.push_back(table_.stage_units(stage));
  for (int stage = stages() - 1; backward && stage >= 0 && HasBackward(stage); --stage) {
    steps_.push_back(table_.stage_units(stage));
  }
}

void ShardedMemory::Enter(size_t step) {
  if (alone_) return;
  const size_t ahead =
      std::min(steps_.size(), step + 1 + static_cast<size_t>(setup_.prefetch_units));
  const size_t end = setup_.reshard_after_forward ? ahead : steps_.size();
  for (size_t u = 0; u < units_.size(); ++u) {
    bool stays = false;
    for (size_t s = step; s < end && !stays; ++s) {
      stays = std::find(steps_[s].begin(), steps_[s].end(), static_cast<int>(u)) != steps_[s].end();
    }
    if (units_[u].gathered.size != nullptr && !stays) Release(std::move(units_[u].gathered));
  }
  for (size_t s = step; s < ahead; ++s) {
    for (const int u : steps_[s]) {
      Unit& unit = units_[u];
      if (unit.gathered.size != nullptr) continue;
      unit.gathered = Acquire(MemoryKind::kGatheredUnits, unit.numel, setup_.element_bytes);
    }
  }
}

void ShardedMemory::End() {
  for (Unit& unit : units_) {
    if (unit.gathered.size != nullptr) Release(std::move(unit.gathered));
  }
}

void ShardedMemory::Lay(int index) {
  Unit& unit = units_[index];
  if (alone_ || unit.full.size != nullptr) return;
  Finish();
  unit.full = Acquire(MemoryKind::kGradientBuffers, unit.numel, LayBytes(index));
}

void ShardedMemory::Complete(int index) {
  Unit& unit = units_[index];
  if (alone_) return;
  Finish();
  const int64_t travel_bytes = setup_.reduces_in_float32 ? LayBytes(index) : kBFloat16;
  Buffer full = std::move(unit.full);
  if (full.key.second != travel_bytes) {
    Buffer rounded = Acquire(MemoryKind::kGradientBuffers, unit.numel, travel_bytes);
    Release(std::move(full));
    full = std::move(rounded);
  }
  in_flight_.unit = index;
  in_flight_.buffers.push_back(std::move(full));
  if (unit.touched) {
    in_flight_.buffers.push_back(Acquire(MemoryKind::kGradientBuffers, unit.owned, kFloat));
  }
  // bfloat16 gradients arrive in buffers beside those being sent.
  if (travel_bytes != kFloat) {
    in_flight_.buffers.push_back(Acquire(MemoryKind::kGradientBuffers, unit.numel, travel_bytes));
  }
}

void ShardedMemory::Finish() {
  if (in_flight_.unit < 0) return;
  units_[in_flight_.unit].touched = true;
  for (Buffer& buffer : in_flight_.buffers) Release(std::move(buffer));
  in_flight_ = InFlight();
}

void ShardedMemory::AddGradients(int stage) {
  int open_unit = -1;
  const auto complete_open_unit = [&] {
    if (open_unit >= 0 && table_.first_stage(open_unit) == stage) Complete(open_unit);
  };
  for (const int index : table_.stage_parameters(stage)) {
    const model::Parameter& parameter = table_.parameter(index);
    if (!parameter.trainable) continue;
    if (parameter.unit != open_unit) {
      complete_open_unit();
      open_unit = parameter.unit;
    }
    Lay(open_unit);
  }
  complete_open_unit();
}

Size ShardedMemory::RunStage(int stage, const Size& x, LayerMemory::Mode mode,
                             std::unique_ptr<LayerMemory>& layer) {
  if (stage == 0) {
    return ledger_.Take(MemoryKind::kActivations, batch_.Bytes(batch_.hidden));
  }
  layer = std::make_unique<LayerMemory>(ledger_, table_, batch_, spec_.layers[stage - 1], stage - 1,
                                        mode);
  return layer->Forward(x);
}

void ShardedMemory::Forward() {
  Begin(/*backward=*/false);
  Size x;
  std::unique_ptr<LayerMemory> unused;
  for (int s = 0; s < stages(); ++s) {
    ledger_.SetPlace(absl::StrCat("forward of stage ", s));
    Enter(s);
    x = RunStage(s, x, LayerMemory::Mode::kNoGraph, unused);
  }
  ledger_.SetPlace("forward of the head");
  Enter(stages());
  HeadForward();
  End();
}

// Keeps log-probs, entropies and log-sum-exp of the rows; an upper bound for a value head.
void ShardedMemory::HeadForward() {
  const Size selected =
      ledger_.Take(MemoryKind::kHead, 2 * rows() * batch_.hidden * batch_.element_bytes);
  const Size widened = ledger_.Take(MemoryKind::kHead, WidenedRowBytes());
  const Size outputs = ledger_.Take(MemoryKind::kHead, 3 * rows() * kFloat);
  const Size logits = ledger_.Take(MemoryKind::kHead,
                                   std::min(rows(), ChunkRows(head_rows_)) * head_rows_ * kFloat);
}

void ShardedMemory::ForwardBackward() {
  Begin(/*backward=*/true);

  // MakePass() makes the rotary table of the tokens.
  const Size rotary =
      ledger_.Take(MemoryKind::kActivations,
                   workload_.tokens * spec_.layers.front().attention.head_dim * kFloat);
  struct Boundary {
    Size input, output;
    std::unique_ptr<LayerMemory> layer;
    bool kept = false;
  };
  const auto mode_of = [this](int stage) {
    if (!HasBackward(stage)) return LayerMemory::Mode::kNoGraph;
    if (setup_.checkpointing == config::v1::ACTIVATION_CHECKPOINTING_NONE || !Checkpointed(stage)) {
      return LayerMemory::Mode::kFull;
    }
    return setup_.checkpointing == config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE
               ? LayerMemory::Mode::kSelective
               : LayerMemory::Mode::kNoGraph;
  };
  std::vector<Boundary> boundaries(stages());
  Size x;
  for (int s = 0; s < stages(); ++s) {
    ledger_.SetPlace(absl::StrCat("forward of stage ", s));
    Enter(s);
    Boundary& boundary = boundaries[s];
    boundary.input = x;
    boundary.kept = mode_of(s) != LayerMemory::Mode::kNoGraph;
    x = RunStage(s, x, mode_of(s), boundary.layer);
    if (boundary.kept) boundary.output = x;
    if (!HasBackward(s)) boundary.input.reset();
  }

  ledger_.SetPlace("the head");
  Enter(stages());
  Size gradient = HeadForwardBackward(std::exchange(x, nullptr));

  for (int s = stages() - 1; s >= 0 && HasBackward(s); --s) {
    ledger_.SetPlace(absl::StrCat("backward of stage ", s));
    Enter(2 * stages() - s);
    std::vector<Size> gradients;
    {
      Boundary boundary = std::move(boundaries[s]);
      if (!boundary.kept) {
        boundary.output = RunStage(s, boundary.input, LayerMemory::Mode::kFull, boundary.layer);
      }
      if (s > 0) {
        gradients = boundary.layer->Backward(gradient);
        gradient = std::move(gradients.back());
        gradients.pop_back();
      } else {
        gradients.push_back(ledger_.Take(MemoryKind::kGradientBuffers,
                                         vocab_ * batch_.hidden * batch_.element_bytes));
        gradient.reset();
      }
    }
    AddGradients(s);
  }
  Finish();
  End();
}

Size ShardedMemory::HeadForwardBackward(const Size& x) {
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kHead, bytes); };
  const int64_t hidden_row = batch_.hidden * batch_.element_bytes;
  const bool all_rows = workload_.rows == workload_.tokens;
  Size selected = all_rows ? x : take(rows() * hidden_row);
  const bool plain = batch_.kernels == setup::Kernels::kPlain;
  Size normed = take(rows() * hidden_row);
  Size norm_saved = take(rows() * kFloat + (plain ? 2 * rows() * batch_.hidden * kFloat : 0));
  Size widened = take(WidenedRowBytes());
  Size outputs = take(3 * rows() * kFloat);
  const int64_t chunk_bytes = std::min(rows(), ChunkRows(head_rows_)) * head_rows_ * kFloat;
  // Plain ops scale, exponentiate and sum in separate tensors.
  const int64_t chunk_tensors = plain ? 3 : 1;
  take(chunk_tensors * chunk_bytes);
  // The loss and its gradients, a few float32 rows.
  const Size loss = take(4 * rows() * kFloat);

  std::vector<Size> gradients;
  Size grad_widened = take(WidenedRowBytes());
  widened.reset();
  Size grad_normed = take(rows() * hidden_row);
  grad_widened.reset();
  const int head = role_ == Role::kCritic ? table_.value_head() : table_.lm_head();
  {
    const bool trains = table_.parameter(head).trainable;
    const int64_t weight_numel = trains ? head_rows_ * batch_.hidden : 0;
    Size sum = take(weight_numel * kFloat);
    take(chunk_tensors * chunk_bytes);
    if (batch_.element_bytes == kFloat) {
      gradients.push_back(sum);
    } else {
      gradients.push_back(take(weight_numel * batch_.element_bytes));
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
  AddGradients(stages());
  return x_gradient;
}

void ShardedMemory::OptimizerStep() {
  ledger_.SetPlace("the optimizer's step");
  for (Unit& unit : units_) unit.touched = false;
  if (setup_.offload == config::v1::OFFLOAD_NONE) return;
  int64_t most = 0;
  for (const Unit& unit : units_) most = std::max(most, unit.trainable ? unit.owned : 0);
  ledger_.Take(Kind(MemoryKind::kOptimizer), most * kStateBytes);
}

}  // namespace tandem::plan
