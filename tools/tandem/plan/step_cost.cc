#include "tools/tandem/plan/step_cost.h"

#include <algorithm>

namespace tandem::plan {
namespace {

// Seconds through one rank of a ring of `ranks`, once.
double RingShare(int64_t ranks) {
  return ranks > 1 ? static_cast<double>(ranks - 1) / static_cast<double>(ranks) : 0;
}

// Keys that a token sees, on average over a sequence.
double MeanKeys(double length, const model::Window& window) {
  const auto size = static_cast<double>(window.size);
  if (!window.IsLimited() || size >= length) return 0.5 * length;
  return window.chunked ? 0.5 * size : size * (1.0 - 0.5 * size / length);
}

// `active`: spec.num_active_parameters(), which builds the whole parameter table.
double FlopsPerToken(const model::ModelSpec& spec, double active, int64_t length) {
  double attention = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.attention.delta.has_value()) {
      // A token reads, corrects and reads a head's state.
      const model::DeltaSpec& delta = *layer.attention.delta;
      attention += 18.0 * static_cast<double>(delta.value_size() * delta.key_dim);
      continue;
    }
    attention += 6.0 *
                 static_cast<double>(layer.attention.q_size() + layer.attention.attended_size()) *
                 MeanKeys(static_cast<double>(length), layer.attention.window);
  }
  return 6.0 * active + attention;
}

}  // namespace

double StepCost::total() const {
  return std::max(compute, sharding) + replicas + tensors + sequences + offload;
}

double TrainingFlopsPerToken(const model::ModelSpec& spec, int64_t length) {
  return FlopsPerToken(spec, static_cast<double>(spec.num_active_parameters()), length);
}

StepCost EstimateStep(const model::ModelSpec& spec, const setup::RankSetup& setup,
                      const BatchPlan& batch, const RankMemory& memory, const Hardware& hardware) {
  const comm::MeshShape& mesh = setup.mesh;
  // A group whose span fits in a host has intra-host bandwidth; adjacent ranks share a host.
  const auto bandwidth = [&hardware](int64_t span) {
    return span <= hardware.per_host ? hardware.intra_host : hardware.inter_host;
  };
  const double element = static_cast<double>(setup.element_bytes);
  const double parameters = static_cast<double>(spec.num_parameters());
  const double tokens = static_cast<double>(batch.step_tokens);
  const double epochs = static_cast<double>(batch.optimizer_steps * batch.mini_batch_samples) /
                        static_cast<double>(std::max<int64_t>(1, batch.samples));
  const bool full = setup.checkpointing == config::v1::ACTIVATION_CHECKPOINTING_FULL;
  const bool selective = setup.checkpointing == config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE;
  const double share = 1.0 / static_cast<double>(setup.checkpointing_interval);

  const double active = parameters - static_cast<double>(spec.num_idle_parameters());
  const double once = FlopsPerToken(spec, active, batch.longest_sequence);
  const double training =
      once * (1.0 + (full ? share / 3 : 0.0) + (selective ? 0.03 * share : 0.0));
  const int64_t passes = (setup.has_reference ? 1 : 0) + (batch.optimizer_steps > 1 ? 1 : 0);
  const double flops = tokens * (epochs * training + static_cast<double>(passes) * once / 3);
  const double speed =
      hardware.flops * hardware.efficiency * (setup.element_bytes == 4 ? 0.5 : 1.0);
  StepCost cost;
  cost.compute = flops / (speed * mesh.size());

  const double micro_batches = static_cast<double>(batch.micro_batches * batch.optimizer_steps);
  const double local = parameters / mesh.tp;
  const double gathers = setup.reshard_after_forward ? 2 : 1;
  const double reduce_bytes = setup.reduces_in_float32 ? element : 2;
  cost.sharding = micro_batches * local * (gathers * element + reduce_bytes) *
                  RingShare(mesh.num_shards()) / bandwidth(int64_t{mesh.num_shards()} * mesh.tp);
  cost.replicas = static_cast<double>(batch.optimizer_steps) * 2 * 4 * local / mesh.num_shards() *
                  RingShare(mesh.dp_replicate) / bandwidth(mesh.size());
  const double rank_tokens =
      tokens * (epochs + static_cast<double>(passes) / 3) / static_cast<double>(batch.data_ranks);
  const double residual =
      rank_tokens / mesh.sequence * static_cast<double>(spec.hidden_size) * element;
  cost.tensors = static_cast<double>(spec.num_layers()) * (4 + (full ? 2 * share : 0)) * 2 *
                 RingShare(mesh.tp) * residual / bandwidth(mesh.tp);
  cost.sequences = static_cast<double>(spec.num_layers()) * 8 * RingShare(mesh.sequence) *
                   residual / mesh.tp / bandwidth(int64_t{mesh.sequence} * mesh.tp);
  const double steps = static_cast<double>(batch.optimizer_steps);
  if (memory.host_bytes > 0) {
    cost.offload = 2 * steps * static_cast<double>(memory.host_bytes) / hardware.host_link;
  }
  if (memory.disk_bytes > 0) {
    cost.offload = 2 * steps * static_cast<double>(memory.disk_bytes) *
                   std::min(mesh.size(), hardware.per_host) / hardware.disk;
  }
  return cost;
}

}  // namespace tandem::plan
