#include "common/model/tensor_collectives.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "common/model/cpu_dispatch.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor Summed(const at::Tensor& x, comm::ProcessGroup& group, const char* tag) {
  at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
  AllReduce(sum, comm::ReduceOp::kSum, group, tag);
  return sum;
}

at::Tensor Exchanged(const at::Tensor& x, comm::ProcessGroup& group, const char* tag) {
  const at::Tensor in = x.detach().contiguous();
  at::Tensor out = at::empty_like(in);
  Await(*Issued(group.AllToAll(out.view(-1), in.view(-1), tag)));
  return out;
}

struct CopyFunction : torch::autograd::Function<CopyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, comm::ProcessGroup* group,
                            const char* tag) {
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(group);
    ctx->saved_data["tag"] = reinterpret_cast<int64_t>(tag);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto* const group = reinterpret_cast<comm::ProcessGroup*>(ctx->saved_data["group"].toInt());
    auto* const tag = reinterpret_cast<const char*>(ctx->saved_data["tag"].toInt());
    return {Summed(grads[0], *group, tag), at::Tensor(), at::Tensor()};
  }
};

struct SumFunction : torch::autograd::Function<SumFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, comm::ProcessGroup* group,
                            const char* tag) {
    return Summed(x, *group, tag);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0], at::Tensor(), at::Tensor()};
  }
};

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, comm::ProcessGroup* group,
                            const char* tag) {
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(group);
    ctx->saved_data["tag"] = reinterpret_cast<int64_t>(tag);
    return Exchanged(x, *group, tag);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto* const group = reinterpret_cast<comm::ProcessGroup*>(ctx->saved_data["group"].toInt());
    auto* const tag = reinterpret_cast<const char*>(ctx->saved_data["tag"].toInt());
    return {Exchanged(grads[0], *group, tag), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::unique_ptr<comm::Work> Issued(comm::ProcessGroup::WorkOr work) {
  if (!work.ok()) throw CollectiveError(std::move(work).status());
  return *std::move(work);
}

void Await(comm::Work& work) {
  if (absl::Status status = work.Wait(); !status.ok()) throw CollectiveError(std::move(status));
}

at::Tensor CopyToRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag) {
  if (!IsSplit(group) || x.numel() == 0 || !NeedsGraph({x})) return x;
  return CopyFunction::apply(x, group, tag);
}

at::Tensor SumOverRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag) {
  if (!IsSplit(group) || x.numel() == 0) return x;
  if (NeedsGraph({x})) return SumFunction::apply(x, group, tag);
  return Summed(x, *group, tag);
}

at::Tensor ExchangeSlices(const at::Tensor& x, comm::ProcessGroup* group, const char* tag) {
  if (!IsSplit(group) || x.numel() == 0) return x;
  if (NeedsGraph({x})) return ExchangeFunction::apply(x, group, tag);
  return Exchanged(x, *group, tag);
}

void AllReduce(at::Tensor& tensor, comm::ReduceOp op, comm::ProcessGroup& group, const char* tag) {
  Await(*Issued(group.AllReduce(tensor, op, tag)));
}

}  // namespace tandem::model
