#include "services/trainer/optim/muon.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/optim/muon_elements.h"
#include "services/trainer/optim/newton_schulz.h"

namespace tandem::trainer {
namespace {

int64_t TotalSize(const std::vector<model::Range>& ranges) {
  int64_t sum = 0;
  for (const model::Range& range : ranges) sum += range.size();
  return sum;
}

// What `ranges`, in order, leave of [0, size).
std::vector<model::Range> Complement(const std::vector<model::Range>& ranges, int64_t size) {
  std::vector<model::Range> out;
  int64_t at = 0;
  for (const model::Range& range : ranges) {
    if (at < range.begin) out.push_back({at, range.begin});
    at = range.end;
  }
  if (at < size) out.push_back({at, size});
  return out;
}

// out = in, each slice to its rank. Waits, by the group's timeout.
absl::Status Exchange(const at::Tensor& out, const at::Tensor& in, comm::ProcessGroup& ranks,
                      const char* tag) {
  if (out.is_same(in)) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto work, ranks.AllToAll(out, in, tag));
  return work->Wait();
}

}  // namespace

Muon::Muon(const MuonOptions& options, ShardedModel& model, const comm::DeviceMesh& mesh)
    : Optimizer(options.adamw.grad_clip, model, mesh), options_(options) {
  const model::ParameterTable& table = model.transformer().table();
  plans_.resize(model.shards().size());
  std::vector<double> loads(static_cast<size_t>(mesh.shard().size()), 0.0);
  std::vector<double> expert_loads(static_cast<size_t>(mesh.expert_shard().size()), 0.0);
  for (const size_t u : trained_units()) {
    const UnitShard& shard = model.shards()[u];
    const int64_t owned = shard.master.numel();
    const bool of_experts = table.units()[u].of_experts;
    UnitPlan& plan = plans_[u];
    plan.ranks = of_experts ? &mesh.expert_shard() : &mesh.shard();
    plan.matrices = model::HiddenMatricesOf(table, static_cast<int>(u));
    plan.exchange = sharding::PlanMatrixExchange(plan.matrices, owned, plan.ranks->size(),
                                                 of_experts ? expert_loads : loads);
    for (const sharding::MatrixExchange::Piece& piece : plan.exchange.pieces) {
      if (piece.sender != plan.ranks->rank()) continue;
      plan.in_matrices.push_back({piece.in_shard, piece.in_shard + piece.count});
    }
    // The padding, always zero, has no state.
    const int64_t used = std::clamp<int64_t>(shard.numel - shard.offset, 0, owned);
    plan.others = Complement(plan.in_matrices, used);
    AllocateState(plan);
  }
}

void Muon::AllocateState(UnitPlan& plan) {
  if (const int64_t size = TotalSize(plan.in_matrices); size > 0) {
    plan.momentum = model().NewState(size);
  }
  if (const int64_t size = TotalSize(plan.others); size > 0) {
    plan.first_moment = model().NewState(size);
    plan.second_moment = model().NewState(size);
  }
}

std::vector<Optimizer::ShardState> Muon::StateOf(size_t unit) const {
  const UnitPlan& plan = plans_[unit];
  std::vector<ShardState> out;
  if (plan.first_moment.defined()) {
    out.push_back({kFirstMoment, plan.first_moment, plan.others});
    out.push_back({kSecondMoment, plan.second_moment, plan.others});
  }
  if (plan.momentum.defined()) out.push_back({kMomentumBuffer, plan.momentum, plan.in_matrices});
  return out;
}

std::vector<std::string> Muon::KindsOf(const model::Segment& segment, int index) const {
  const bool is_matrix =
      model::HoldsHiddenMatrices(model().transformer().table(), index) && model::IsMatrix(segment);
  if (is_matrix) return {kMomentumBuffer};
  return {kFirstMoment, kSecondMoment};
}

std::vector<at::Tensor> Muon::TouchedBy(const UnitShard& shard, const UnitPlan& plan) const {
  std::vector<at::Tensor> out = {shard.master, shard.grad};
  for (const at::Tensor& state : {plan.momentum, plan.first_moment, plan.second_moment}) {
    if (state.defined()) out.push_back(state);
  }
  return out;
}

absl::Status Muon::Update(std::vector<UnitShard>& shards, double learning_rate,
                          double clip_factor) {
  for (size_t i = 0; i < trained_units().size(); ++i) {
    const size_t u = trained_units()[i];
    if (i + 1 < trained_units().size()) {
      const size_t next = trained_units()[i + 1];
      for (const at::Tensor& tensor : TouchedBy(shards[next], plans_[next])) Prefetch(tensor);
    }
    UpdateOthers(shards[u], plans_[u], learning_rate, clip_factor);
    RETURN_IF_ERROR(
        UpdateMatrices(shards[u], plans_[u], learning_rate * options_.lr_ratio, clip_factor))
        << "while updating the matrices of " << model().transformer().table().units()[u].name;
    model().MasterChanged(static_cast<int>(u), 0, shards[u].master.numel());
    for (const at::Tensor& tensor : TouchedBy(shards[u], plans_[u])) Evict(tensor);
  }
  return absl::OkStatus();
}

void Muon::UpdateOthers(const UnitShard& shard, const UnitPlan& plan, double learning_rate,
                        double clip_factor) const {
  const at::TensorOptions float32 = shard.master.options();
  const at::Tensor steps = at::full({}, static_cast<double>(num_steps()), float32);
  std::optional<at::Tensor> scale;
  if (clip_factor < 1.0) scale = at::full({}, 1.0 / clip_factor, float32);
  int64_t at = 0;
  for (const model::Range& range : plan.others) {
    const auto of_shard = [&](const at::Tensor& x) {
      return x.narrow(0, range.begin, range.size());
    };
    const auto of_state = [&](const at::Tensor& x) { return x.narrow(0, at, range.size()); };
    at::_fused_adamw_({of_shard(shard.master)}, {of_shard(shard.grad)},
                      {of_state(plan.first_moment)}, {of_state(plan.second_moment)},
                      /*max_exp_avg_sqs=*/{}, {steps}, learning_rate, options_.adamw.beta1,
                      options_.adamw.beta2, options_.adamw.weight_decay, options_.adamw.eps,
                      /*amsgrad=*/false, /*maximize=*/false, scale);
    at += range.size();
  }
}

absl::Status Muon::UpdateMatrices(const UnitShard& shard, const UnitPlan& plan,
                                  double learning_rate, double clip_factor) const {
  const sharding::MatrixExchange& exchange = plan.exchange;
  if (exchange.slice == 0) return absl::OkStatus();
  comm::ProcessGroup& ranks = *plan.ranks;
  const int64_t size = exchange.slice * ranks.size();
  // Calls `visit` for each of this rank's pieces with its place in the buffer and in the momentum.
  const auto for_each_piece = [&](const auto& visit) {
    int64_t in_momentum = 0;
    for (const sharding::MatrixExchange::Piece& piece : exchange.pieces) {
      if (piece.sender != ranks.rank()) continue;
      visit(piece, exchange.owners[piece.matrix] * exchange.slice + piece.in_slice, in_momentum);
      in_momentum += piece.count;
    }
  };

  at::Tensor directions = at::zeros({size}, shard.master.options());
  for_each_piece([&](const auto& piece, int64_t in_buffer, int64_t in_momentum) {
    AddToMomentum(shard.grad.narrow(0, piece.in_shard, piece.count), clip_factor, options_.momentum,
                  options_.nesterov, plan.momentum.narrow(0, in_momentum, piece.count),
                  directions.narrow(0, in_buffer, piece.count));
  });
  // Offloaded state is in host memory, where the group of a GPU's rank cannot read it.
  const at::Device device = model().device();
  at::Tensor sent = directions.to(device);
  at::Tensor received = ranks.size() == 1 ? sent : at::empty_like(sent);
  RETURN_IF_ERROR(Exchange(received, sent, ranks, "Muon's momentum"));
  ComputeOwned(plan, received);
  RETURN_IF_ERROR(Exchange(sent, received, ranks, "Muon's updates"));
  directions = sent.to(shard.master.device());
  for_each_piece([&](const auto& piece, int64_t in_buffer, int64_t) {
    const double rate = learning_rate * ScaleOf(plan.matrices[piece.matrix]);
    StepAgainst(directions.narrow(0, in_buffer, piece.count), rate,
                1.0 - learning_rate * options_.weight_decay,
                shard.master.narrow(0, piece.in_shard, piece.count));
  });
  return absl::OkStatus();
}

void Muon::ComputeOwned(const UnitPlan& plan, at::Tensor& received) const {
  const sharding::MatrixExchange& exchange = plan.exchange;
  const auto in_buffer = [&](const sharding::MatrixExchange::Piece& piece) {
    return received.narrow(0, piece.sender * exchange.slice + piece.in_slice, piece.count);
  };
  for (size_t begin = 0, end = 0; begin < exchange.pieces.size(); begin = end) {
    const int m = exchange.pieces[begin].matrix;
    while (end < exchange.pieces.size() && exchange.pieces[end].matrix == m) ++end;
    if (exchange.owners[m] != plan.ranks->rank()) continue;
    const model::HiddenMatrix& matrix = plan.matrices[m];
    at::Tensor whole = at::empty({matrix.numel()}, received.options());
    for (size_t i = begin; i < end; ++i) {
      const sharding::MatrixExchange::Piece& piece = exchange.pieces[i];
      whole.narrow(0, piece.in_matrix, piece.count).copy_(in_buffer(piece));
    }
    whole = NewtonSchulz(whole.view({matrix.rows, matrix.columns}), options_.ns_steps).view({-1});
    for (size_t i = begin; i < end; ++i) {
      const sharding::MatrixExchange::Piece& piece = exchange.pieces[i];
      in_buffer(piece).copy_(whole.narrow(0, piece.in_matrix, piece.count));
    }
  }
}

double Muon::ScaleOf(const model::HiddenMatrix& matrix) const {
  const auto rows = static_cast<double>(matrix.rows);
  const auto columns = static_cast<double>(matrix.columns);
  if (options_.scale == MuonScale::kOriginal) return std::sqrt(std::max(1.0, rows / columns));
  return 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace tandem::trainer
